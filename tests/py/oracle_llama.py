"""Float32 oracle of the llama architecture, numpy only: weights expanded by the package gguf.

Written from the published descriptions of the models and of RoPE scaling (linear; Llama 3; YaRN,
arXiv 2309.00071), not from millrace's code.
"""
import math
import struct

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

import tokenizer_oracle


def scaled_frequencies(base, dims, scaling, factors=None):
    """Angle per position of each pair, and what cos and sin are multiplied by."""
    freq = base ** (-np.arange(0, dims, 2, dtype=np.float64) / dims)
    if factors is not None:
        return freq / factors, 1.0
    kind, factor = scaling.get("type", "none"), scaling.get("factor", 1.0)
    old = scaling.get("original_context_length", 0)
    if kind == "linear":
        return freq / factor, 1.0
    if kind == "llama3":
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        wave = 2 * np.pi / freq
        smooth = np.clip((old / wave - low) / (high - low), 0, 1)
        return freq / factor * (1 - smooth) + freq * smooth, 1.0
    if kind == "yarn":
        def pair(turns):
            return dims * math.log(old / (turns * 2 * math.pi)) / (2 * math.log(base))
        low, high = max(math.floor(pair(32)), 0), min(math.ceil(pair(1)), dims - 1)
        ramp = np.clip((np.arange(dims // 2) - low) / max(high - low, 0.001), 0, 1)
        return freq / factor * ramp + freq * (1 - ramp), 0.1 * math.log(factor) + 1
    return freq, 1.0


def read_hyperparameters(path, arch):
    """({key without the prefix: value} of an architecture, where the directory of tensors starts)."""
    values, end = {}, 24
    for key, kind, raw in tokenizer_oracle.read_values(path):
        end += 8 + len(key.encode()) + 4 + len(raw)
        if key.startswith(arch + "."):
            values[key[len(arch) + 1:]] = tokenizer_oracle.decode_value(kind, raw)
    return values, end


def read_tensors(path, start):
    """{name: f32 array} of the directory at start. (The reader of gguf takes 12 s for a vocabulary of 262,144.)"""
    raw = np.memmap(path, np.uint8, "r")
    n_tensors, = struct.unpack_from("<Q", raw, 8)
    at, infos = start, []
    for _ in range(n_tensors):
        n, = struct.unpack_from("<Q", raw, at)
        name = bytes(raw[at + 8:at + 8 + n]).decode()
        at += 8 + n
        n_dims, = struct.unpack_from("<I", raw, at)
        dims = struct.unpack_from(f"<{n_dims}Q", raw, at + 4)
        at += 4 + 8 * n_dims
        kind, offset = struct.unpack_from("<IQ", raw, at)
        at += 12
        infos.append((name, dims, GGMLQuantizationType(kind), offset))
    base = -(-at // 32) * 32
    out = {}
    for name, dims, kind, offset in infos:
        weights, n_bytes = GGML_QUANT_SIZES[kind]
        size = int(np.prod(dims)) // weights * n_bytes
        data = raw[base + offset:base + offset + size]
        if kind == GGMLQuantizationType.F32:
            out[name] = data.view(np.float32).reshape(dims[::-1])
        else:
            rows = data.reshape(*dims[:0:-1], dims[0] // weights * n_bytes)
            out[name] = dequantize(rows, kind).astype(np.float32)
    return out


class Model:
    def __init__(self, path):
        values, end = read_hyperparameters(path, "llama")
        meta = values.get
        self.n_layer, self.n_head = meta("block_count"), meta("attention.head_count")
        self.n_kv = meta("attention.head_count_kv", self.n_head)
        self.eps = meta("attention.layer_norm_rms_epsilon")
        self.w = read_tensors(path, end)
        self.head_dim = meta("attention.key_length", meta("embedding_length") // self.n_head)
        rope_dims = meta("rope.dimension_count", self.head_dim)
        scaling = {k: meta("rope.scaling." + k) for k in
                   ("type", "factor", "original_context_length", "low_freq_factor",
                    "high_freq_factor") if meta("rope.scaling." + k) is not None}
        self.freq, self.magnitude = scaled_frequencies(
            meta("rope.freq_base", 10000.0), rope_dims, scaling, self.w.get("rope_freqs.weight"))
        self.head = self.w.get("output.weight", self.w["token_embd.weight"])


def rms_norm(x, weight, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(eps)) * weight


def rope(m, x, pos):
    """Rotates neighbours (2i, 2i+1) of the first components of each head. x: [n, heads, dim]."""
    angle = pos[:, None] * m.freq
    cos = (np.cos(angle) * m.magnitude).astype(np.float32)[:, None, :]
    sin = (np.sin(angle) * m.magnitude).astype(np.float32)[:, None, :]
    out, n = x.copy(), 2 * len(m.freq)
    even, odd = x[..., 0:n:2], x[..., 1:n:2]
    out[..., 0:n:2] = even * cos - odd * sin
    out[..., 1:n:2] = even * sin + odd * cos
    return out


def attention(q, k, v):
    n, n_head, dim = q.shape
    group, out = n_head // k.shape[1], np.empty_like(q)
    future = np.triu(np.ones((n, n), bool), 1)
    for h in range(n_head):
        s = q[:, h] @ k[:, h // group].T / np.float32(math.sqrt(dim))
        s[future] = -np.inf
        s = np.exp(s - s.max(-1, keepdims=True))
        out[:, h] = s / s.sum(-1, keepdims=True) @ v[:, h // group]
    return out.reshape(n, n_head * dim)


def logits(m, ids):
    """Logits [n, vocab] of every position of one text."""
    w, n, pos = m.w, len(ids), np.arange(len(ids))
    x = w["token_embd.weight"][ids]
    for i in range(m.n_layer):
        p = f"blk.{i}."
        h = rms_norm(x, w[p + "attn_norm.weight"], m.eps)
        q = (h @ w[p + "attn_q.weight"].T).reshape(n, m.n_head, m.head_dim)
        k = (h @ w[p + "attn_k.weight"].T).reshape(n, m.n_kv, m.head_dim)
        v = (h @ w[p + "attn_v.weight"].T).reshape(n, m.n_kv, m.head_dim)
        x = x + attention(rope(m, q, pos), rope(m, k, pos), v) @ w[p + "attn_output.weight"].T
        h = rms_norm(x, w[p + "ffn_norm.weight"], m.eps)
        gate, up = h @ w[p + "ffn_gate.weight"].T, h @ w[p + "ffn_up.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * up) @ w[p + "ffn_down.weight"].T
    return rms_norm(x, w["output_norm.weight"], m.eps) @ m.head.T


def log_softmax(x):
    x = x.astype(np.float64)
    x -= x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def compare(want, got, ids):
    """Figures of got against the oracle's want; ids: the text, one more than the positions used."""
    n = len(ids) - 1
    largest = kl = top1 = loss = 0.0
    for i in range(0, n, 32):  # a few rows at a time stay in the cache
        w, g = want[i:min(i + 32, n)], got[i:min(i + 32, n)]
        p, q = log_softmax(w), log_softmax(g)
        largest = max(largest, float(np.abs(w - g).max()))
        loss += float((p - q)[np.arange(len(w)), ids[i + 1:i + 1 + len(w)]].sum())
        kl += float((np.exp(p) * (p - q)).sum())
        top1 += float((w.argmax(-1) == g.argmax(-1)).sum())
    return {"largest": largest, "kl": kl / n, "top1": top1 / n, "perplexity_ratio": float(np.exp(loss / n))}
