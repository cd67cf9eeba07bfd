"""Small random models of every architecture, as their makers' libraries hold them, and as GGUF files hold them.

The weights are drawn in the makers' layout (every rotation by halves, separate projections); `write` does to them what
converters do: permuted rows for neighbours that rotate, fused matrices, norm weights with the 1 added.
"""
import gguf
import numpy as np

from tiny_llama import quantised

EMBD, FF, VOCAB = 256, 512, 288

# per architecture: facts of the definition, then what this tiny one has
ARCHS = {
    "qwen2": dict(bias=True, n_head=8, n_kv=2, head_dim=32, n_layers=2),
    "qwen3": dict(qk_norm=True, n_head=4, n_kv=2, head_dim=64, n_layers=2),
    "phi3": dict(fused=True, n_head=8, n_kv=4, head_dim=32, n_layers=2, window=21, all_local=True, rope_dims=24),
    "smollm3": dict(permuted=True, nope_every=4, n_head=8, n_kv=2, head_dim=32, n_layers=5, base=5e6),
    "granite": dict(permuted=True, n_head=8, n_kv=2, head_dim=32, n_layers=2, embedding=12.0, residual=0.22, logit_divisor=8.0,
                    scale=0.015625),
    "gemma2": dict(gemma=True, n_head=4, n_kv=2, head_dim=64, n_layers=4, window=24, attn_cap=50.0, final_cap=30.0),
}


def make(arch, seed=1, **changes):
    """(facts, {maker's name: float32 array}); matrices are [out, in]."""
    c = {"base": 10000.0, "eps": 1e-5, **ARCHS[arch], "arch": arch, **changes}
    c.setdefault("scale", c["head_dim"] ** -0.5)
    c.setdefault("rope_dims", c["head_dim"])
    rng, w = np.random.default_rng(seed), {}

    def matrix(name, n_out, n_in, gain=1.0):
        w[name] = (rng.standard_t(4, (n_out, n_in)) * gain / np.sqrt(2 * n_in)).astype(np.float32)

    def vector(name, n, mean=1.0):
        w[name] = (mean + 0.3 * rng.standard_normal(n)).astype(np.float32)

    one = 0.0 if c.get("gemma") else 1.0  # Gemma's norms multiply by 1 + weight
    matrix("embed", VOCAB, EMBD, 4.0 if c.get("attn_cap") else 1.5)
    vector("norm", EMBD, one)
    q, kv = c["n_head"] * c["head_dim"], c["n_kv"] * c["head_dim"]
    for i in range(c["n_layers"]):
        for name, n_out, n_in in (("q", q, EMBD), ("k", kv, EMBD), ("v", kv, EMBD), ("o", EMBD, q),
                                  ("gate", FF, EMBD), ("up", FF, EMBD), ("down", EMBD, FF)):
            matrix(f"{i}.{name}", n_out, n_in, 6.0 if c.get("attn_cap") and name in "qk" else 1.0)
        for name in ("attn_norm", "ffn_norm") + (("post_attn", "post_ffn") if c.get("gemma") else ()):
            vector(f"{i}.{name}", EMBD, one)
        if c.get("bias"):
            for name, n in (("q", q), ("k", kv), ("v", kv)):
                vector(f"{i}.{name}_bias", n, 0.0)
        if c.get("qk_norm"):
            vector(f"{i}.q_norm", c["head_dim"])
            vector(f"{i}.k_norm", c["head_dim"])
    return c, w


def neighbours(x, n_head):
    """Rows of each head reordered from (0, 1, ..., d/2, ...) to (0, d/2, 1, d/2 + 1, ...)."""
    return x.reshape(n_head, 2, -1, x.shape[1]).swapaxes(1, 2).reshape(x.shape)


def tokenizer(w):
    """Bytes as GPT-2 spells them, one merge, control tokens."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    spelled = {**{b: chr(b) for b in plain}, **{b: chr(256 + i) for i, b in enumerate(others)}}
    tokens = [spelled[b] for b in range(256)] + ["th"] + [f"<|{i}|>" for i in range(257, VOCAB)]
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen2")
    w.add_token_list(tokens)
    w.add_token_types([1] * 257 + [3] * (VOCAB - 257))
    w.add_token_merges(["t h"])
    w.add_eos_token_id(VOCAB - 1)


def metadata(w, c):
    tokenizer(w)
    arch = c["arch"]
    w.add_block_count(c["n_layers"])
    w.add_context_length(4096)
    w.add_embedding_length(EMBD)
    w.add_feed_forward_length(FF)
    w.add_head_count(c["n_head"])
    w.add_head_count_kv(c["n_kv"])
    w.add_key_length(c["head_dim"])
    w.add_value_length(c["head_dim"])
    w.add_rope_dimension_count(c["rope_dims"])
    w.add_rope_freq_base(c["base"])
    w.add_layer_norm_rms_eps(c["eps"])
    w.add_vocab_size(VOCAB)
    if c.get("window"):
        w.add_sliding_window(c["window"])
    if arch == "granite":
        w.add_attention_scale(c["scale"])
        w.add_embedding_scale(c["embedding"])
        w.add_residual_scale(c["residual"])
        w.add_logit_scale(c["logit_divisor"])
        if c.get("no_rope"):
            w.add_bool("granite.rope.scaling.finetuned", False)
    if c.get("attn_cap") and not c.get("silent"):
        w.add_attn_logit_softcapping(c["attn_cap"])
        w.add_final_logit_softcapping(c["final_cap"])


NAMES = {"q": "attn_q", "k": "attn_k", "v": "attn_v", "o": "attn_output", "gate": "ffn_gate", "up": "ffn_up", "down": "ffn_down",
         "attn_norm": "attn_norm", "ffn_norm": "ffn_norm", "post_attn": "post_attention_norm", "post_ffn": "post_ffw_norm",
         "q_norm": "attn_q_norm", "k_norm": "attn_k_norm"}


def write(path, c, weights, kind="F32"):
    w = gguf.GGUFWriter(str(path), c["arch"])
    metadata(w, c)

    def matrix(name, x):
        data, as_kind = quantised(x, kind)
        w.add_tensor(name + ".weight", data, raw_dtype=as_kind)

    plus = 1.0 if c.get("gemma") else 0.0
    matrix("token_embd", weights["embed"])
    w.add_tensor("output_norm.weight", weights["norm"] + np.float32(plus))
    for i in range(c["n_layers"]):
        part = {name.split(".")[1]: x for name, x in weights.items() if name.startswith(f"{i}.")}
        if c.get("permuted"):
            part["q"], part["k"] = neighbours(part["q"], c["n_head"]), neighbours(part["k"], c["n_kv"])
        if c.get("fused"):
            matrix(f"blk.{i}.attn_qkv", np.concatenate([part.pop(n) for n in "qkv"]))
            matrix(f"blk.{i}.ffn_up", np.concatenate([part.pop("gate"), part.pop("up")]))
        for name, x in part.items():
            if x.ndim == 2:
                matrix(f"blk.{i}.{NAMES[name]}", x)
            elif name.endswith("_bias"):
                w.add_tensor(f"blk.{i}.attn_{name[0]}.bias", x)
            else:
                w.add_tensor(f"blk.{i}.{NAMES[name]}.weight", x + np.float32(plus if "norm" in name or "post" in name else 0))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path
