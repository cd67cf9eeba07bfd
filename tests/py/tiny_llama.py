"""Writes small GGUFs of the llama architecture with random weights of any type."""
import gguf
import libgguf
import numpy as np

EMBD, FF, VOCAB, LAYERS = 256, 512, 288, 2


def quantised(x, name):
    """Rows of x in a GGUF type: (array for the writer, type)."""
    kind = gguf.GGMLQuantizationType[name]
    if name == "F32":
        return x.astype(np.float32), kind
    if name == "F16":
        return x.astype(np.float16), kind
    if name == "BF16":
        return gguf.quants.quantize(x.astype(np.float32), kind), kind
    rows, cols = x.shape
    raw = libgguf.quantize_rows_raw(int(kind), np.ascontiguousarray(x, np.float32), rows, cols)
    return np.frombuffer(bytes(raw), np.uint8).reshape(rows, -1), kind


def write(path, kind="F32", n_head=8, n_kv=8, head_dim=32, rope_dims=None, untied=False,
          scaling=None, freq_factors=None, seed=1):
    rng = np.random.default_rng(seed)
    w = gguf.GGUFWriter(str(path), "llama")
    w.add_block_count(LAYERS)
    w.add_context_length(4096)
    w.add_embedding_length(EMBD)
    w.add_feed_forward_length(FF)
    w.add_head_count(n_head)
    w.add_head_count_kv(n_kv)
    w.add_key_length(head_dim)
    w.add_value_length(head_dim)
    w.add_rope_dimension_count(rope_dims or head_dim)
    w.add_rope_freq_base(10000.0)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_vocab_size(VOCAB)
    for key, value in (scaling or {}).items():
        key = "llama.rope.scaling." + key
        if isinstance(value, str):
            w.add_string(key, value)
        elif isinstance(value, int):
            w.add_uint32(key, value)
        else:
            w.add_float32(key, value)

    def matrix(name, n_out, n_in, gain=1.0):
        x = rng.standard_t(4, (n_out, n_in)) * gain / np.sqrt(2 * n_in)
        data, as_kind = quantised(x, kind)
        w.add_tensor(name, data, raw_dtype=as_kind)

    def vector(name, n):
        w.add_tensor(name, (1 + 0.3 * rng.standard_normal(n)).astype(np.float32))

    matrix("token_embd.weight", VOCAB, EMBD, 1.0 if untied else 1.5)
    if untied:
        matrix("output.weight", VOCAB, EMBD, 1.5)
    vector("output_norm.weight", EMBD)
    if freq_factors is not None:
        w.add_tensor("rope_freqs.weight", np.asarray(freq_factors, np.float32))
    for i in range(LAYERS):
        p = f"blk.{i}."
        vector(p + "attn_norm.weight", EMBD)
        vector(p + "ffn_norm.weight", EMBD)
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
