"""Float32 oracle of the gemma3 architecture (text), numpy only: weights expanded by the package gguf.

Written from the published descriptions of the model, not from millrace's code. Files may leave out which
layers are global (every sixth is) and the RoPE base of the others (10,000).
"""
import numpy as np

from oracle_llama import compare, log_softmax, read_hyperparameters, read_tensors, rms_norm, scaled_frequencies  # noqa: F401

GLOBAL_EVERY, LOCAL_BASE = 6, 10000.0


class Model:
    def __init__(self, path):
        values, end = read_hyperparameters(path, "gemma3")
        self.n_layer, self.d = values["block_count"], values["embedding_length"]
        self.n_head, self.n_kv = values["attention.head_count"], values["attention.head_count_kv"]
        self.head_dim = values["attention.key_length"]
        self.eps = values["attention.layer_norm_rms_epsilon"]
        self.window = values["attention.sliding_window"]
        self.scale = values.get("attention.scale", self.head_dim ** -0.5)
        every = values.get("attention.sliding_window_pattern", GLOBAL_EVERY)
        self.local = (list(every) if isinstance(every, (list, tuple))
                      else [(i + 1) % every != 0 for i in range(self.n_layer)])
        scaling = {"type": values.get("rope.scaling.type", "none"),
                   "factor": values.get("rope.scaling.factor", 1.0)}
        self.freq, _ = scaled_frequencies(values["rope.freq_base"], self.head_dim, scaling)
        self.freq_local, _ = scaled_frequencies(values.get("rope.freq_base_swa", LOCAL_BASE),
                                                self.head_dim, {})
        self.w = read_tensors(path, end)
        self.head = self.w.get("output.weight", self.w["token_embd.weight"])


def rope_halves(x, freq):
    """Rotates pairs (i, i + dim / 2) of each head. x: [n, heads, dim]."""
    angle = np.arange(len(x))[:, None] * freq
    cos = np.cos(angle).astype(np.float32)[:, None, :]
    sin = np.sin(angle).astype(np.float32)[:, None, :]
    a, b = np.split(x, 2, -1)
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], -1)


def gelu_tanh(x):
    inner = np.float32(np.sqrt(2 / np.pi)) * (x + np.float32(0.044715) * x ** 3)
    return x * np.float32(0.5) * (1 + np.tanh(inner))


def attention(q, k, v, visible, scale):
    n, n_head, dim = q.shape
    group, out = n_head // k.shape[1], np.empty_like(q)
    for h in range(n_head):
        s = q[:, h] @ k[:, h // group].T * np.float32(scale)
        s = np.where(visible, s, -np.inf)
        s = np.exp(s - s.max(-1, keepdims=True))
        out[:, h] = s / s.sum(-1, keepdims=True) @ v[:, h // group]
    return out.reshape(n, n_head * dim)


def logits(m, ids, rows=slice(None)):
    """Logits [len(rows), vocab] of the chosen positions of one text."""
    w, n = m.w, len(ids)
    age = np.arange(n)[:, None] - np.arange(n)[None, :]  # 0 = the position itself
    causal = age >= 0
    windowed = causal & (age < m.window) if m.window else causal
    x = w["token_embd.weight"][ids] * np.float32(np.sqrt(m.d))
    for i in range(m.n_layer):
        p = f"blk.{i}."
        freq, visible = (m.freq_local, windowed) if m.local[i] else (m.freq, causal)
        h = rms_norm(x, w[p + "attn_norm.weight"], m.eps)
        q = (h @ w[p + "attn_q.weight"].T).reshape(n, m.n_head, m.head_dim)
        k = (h @ w[p + "attn_k.weight"].T).reshape(n, m.n_kv, m.head_dim)
        v = (h @ w[p + "attn_v.weight"].T).reshape(n, m.n_kv, m.head_dim)
        q = rope_halves(rms_norm(q, w[p + "attn_q_norm.weight"], m.eps), freq)
        k = rope_halves(rms_norm(k, w[p + "attn_k_norm.weight"], m.eps), freq)
        y = attention(q, k, v, visible, m.scale) @ w[p + "attn_output.weight"].T
        x = x + rms_norm(y, w[p + "post_attention_norm.weight"], m.eps)
        h = rms_norm(x, w[p + "ffn_norm.weight"], m.eps)
        y = gelu_tanh(h @ w[p + "ffn_gate.weight"].T) * (h @ w[p + "ffn_up.weight"].T)
        y = y @ w[p + "ffn_down.weight"].T
        x = x + rms_norm(y, w[p + "post_ffw_norm.weight"], m.eps)
    return rms_norm(x[rows], w["output_norm.weight"], m.eps) @ m.head.T
