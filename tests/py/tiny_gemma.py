"""Writes small GGUFs of the gemma3 architecture with random weights of any type."""
import gguf
import numpy as np

from tiny_llama import quantised

EMBD, FF, VOCAB = 256, 256, 288


def write(path, kind="F32", n_layers=7, n_head=4, n_kv=1, head_dim=32, window=24, pattern=None,
          base=1e6, local_base=None, scale=None, scaling=None, seed=1):
    """pattern: a number, a list of flags (true = windowed), or None for a file that does not say."""
    rng = np.random.default_rng(seed)
    w = gguf.GGUFWriter(str(path), "gemma3")
    w.add_block_count(n_layers)
    w.add_context_length(4096)
    w.add_embedding_length(EMBD)
    w.add_feed_forward_length(FF)
    w.add_head_count(n_head)
    w.add_head_count_kv(n_kv)
    w.add_key_length(head_dim)
    w.add_value_length(head_dim)
    w.add_rope_freq_base(base)
    w.add_layer_norm_rms_eps(1e-6)
    w.add_vocab_size(VOCAB)
    w.add_sliding_window(window)
    if pattern is not None:
        w.add_sliding_window_pattern(pattern)
    if local_base is not None:
        w.add_float32("gemma3.rope.freq_base_swa", local_base)
    if scale is not None:
        w.add_float32("gemma3.attention.scale", scale)
    if scaling is not None:
        w.add_string("gemma3.rope.scaling.type", "linear")
        w.add_float32("gemma3.rope.scaling.factor", scaling)

    def matrix(name, n_out, n_in, gain=1.0):
        x = rng.standard_t(4, (n_out, n_in)) * gain / np.sqrt(2 * n_in)
        data, as_kind = quantised(x, kind)
        w.add_tensor(name, data, raw_dtype=as_kind)

    def vector(name, n, mean=1.0):
        w.add_tensor(name, (mean * (1 + 0.3 * rng.standard_normal(n))).astype(np.float32))

    matrix("token_embd.weight", VOCAB, EMBD, 1.5)
    vector("output_norm.weight", EMBD, 0.2)
    for i in range(n_layers):
        p = f"blk.{i}."
        vector(p + "attn_norm.weight", EMBD)
        vector(p + "post_attention_norm.weight", EMBD, 2.0)
        vector(p + "ffn_norm.weight", EMBD)
        vector(p + "post_ffw_norm.weight", EMBD, 2.0)
        vector(p + "attn_q_norm.weight", head_dim, 1.5)
        vector(p + "attn_k_norm.weight", head_dim, 1.5)
        matrix(p + "attn_q.weight", n_head * head_dim, EMBD)
        matrix(p + "attn_k.weight", n_kv * head_dim, EMBD)
        matrix(p + "attn_v.weight", n_kv * head_dim, EMBD)
        matrix(p + "attn_output.weight", EMBD, n_head * head_dim)
        matrix(p + "ffn_gate.weight", FF, EMBD)
        matrix(p + "ffn_up.weight", FF, EMBD)
        matrix(p + "ffn_down.weight", EMBD, FF)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path
