"""Float32 forward passes of the architectures of tiny_archs.py, numpy only, from their makers' published definitions:
weights in the makers' layout, every rotation by halves. Nothing of millrace or of a GGUF file is read."""
import numpy as np


def rms_norm(x, weight, eps):
    return (x / np.sqrt(np.mean(x.astype(np.float64) ** 2, -1, keepdims=True) + eps)).astype(np.float32) * weight


def rope(x, base, dims):
    """Pairs (i, i + dims / 2) of the first dims components; x [n, heads, dim]."""
    freq = base ** (-np.arange(0, dims, 2) / dims)
    angle = np.arange(len(x))[:, None] * freq
    cos, sin = (f(angle).astype(np.float32)[:, None, :] for f in (np.cos, np.sin))
    a, b, rest = np.split(x, [dims // 2, dims], -1)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], -1)


def silu(x):
    return x / (1 + np.exp(-x))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3)))


def attend(c, q, k, v, window):
    n = len(q)
    age = np.arange(n)[:, None] - np.arange(n)[None, :]
    seen = (age >= 0) & ((age < window) if window else True)
    out = np.empty_like(q)
    for h in range(c["n_head"]):
        g = h // (c["n_head"] // c["n_kv"])
        s = q[:, h] @ k[:, g].T * np.float32(c["scale"])
        if c.get("attn_cap"):
            s = c["attn_cap"] * np.tanh(s / c["attn_cap"])
        s = np.where(seen, s, -np.inf)
        p = np.exp(s - s.max(-1, keepdims=True))
        out[:, h] = p / p.sum(-1, keepdims=True) @ v[:, g]
    return out.reshape(n, -1)


def is_local(c, i):
    return bool(c.get("window")) and (c.get("all_local") or i % 2 == 0)


def rotates(c, i):
    return not c.get("no_rope") and not (c.get("nope_every") and (i + 1) % c["nope_every"] == 0)


def qkv(c, w, i, h):
    def heads(name, n):
        y = h @ w[f"{i}.{name}"].T + w.get(f"{i}.{name}_bias", 0)
        y = y.reshape(len(h), n, c["head_dim"])
        if c.get("qk_norm") and name in "qk":
            y = rms_norm(y, w[f"{i}.{name}_norm"], c["eps"])
        return rope(y, c["base"], c["rope_dims"]) if name in "qk" and rotates(c, i) else y
    return heads("q", c["n_head"]), heads("k", c["n_kv"]), heads("v", c["n_kv"])


def logits(c, w, ids):
    plus = np.float32(1 if c.get("gemma") else 0)
    norm = lambda x, name: rms_norm(x, w[name] + plus, c["eps"])  # noqa: E731
    act = gelu_tanh if c.get("gemma") else silu
    residual = np.float32(c.get("residual", 1))
    x = w["embed"][ids] * np.float32(np.sqrt(w["embed"].shape[1]) if c.get("gemma") else c.get("embedding", 1))
    for i in range(c["n_layers"]):
        y = attend(c, *qkv(c, w, i, norm(x, f"{i}.attn_norm")), c["window"] if is_local(c, i) else 0) @ w[f"{i}.o"].T
        x = x + residual * (norm(y, f"{i}.post_attn") if c.get("gemma") else y)
        h = norm(x, f"{i}.ffn_norm")
        y = (act(h @ w[f"{i}.gate"].T) * (h @ w[f"{i}.up"].T)) @ w[f"{i}.down"].T
        x = x + residual * (norm(y, f"{i}.post_ffn") if c.get("gemma") else y)
    out = norm(x, "norm") @ w["embed"].T / np.float32(c.get("logit_divisor", 1))
    return c["final_cap"] * np.tanh(out / c["final_cap"]) if c.get("final_cap") else out
