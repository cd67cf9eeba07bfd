"""GGUF bytes written by hand, so that tests can write them wrong.

A File holds values and tensors as lists; every count, length and offset in the output can be
overridden. `borders` are the offsets at which a region of the file begins.
"""
import struct

import numpy as np

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
SCALAR = {U8: "<B", I8: "<b", U16: "<H", I16: "<h", U32: "<I", I32: "<i", F32: "<f", BOOL: "<B",
          U64: "<Q", I64: "<q", F64: "<d"}


def string(text, length=None):
    raw = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw


def array(elem_type, items, count=None):
    count = len(items) if count is None else count
    body = b"".join(string(i) if elem_type == STRING else struct.pack(SCALAR[elem_type], i)
                    for i in items)
    return struct.pack("<IQ", elem_type, count) + body


def payload(kind, value):
    if isinstance(value, bytes):
        return value
    return string(value) if kind == STRING else struct.pack(SCALAR[kind], value)


class Tensor:
    def __init__(self, name, dims, data, kind=0, offset=None, n_dims=None):
        self.name, self.dims, self.kind, self.offset, self.n_dims = name, dims, kind, offset, n_dims
        self.data = np.asarray(data, np.float32).tobytes() if not isinstance(data, bytes) else data


class File:
    def __init__(self, values=(), tensors=(), version=3, magic=b"GGUF", n_values=None,
                 n_tensors=None, alignment=32, order="<"):
        self.values, self.tensors = list(values), list(tensors)
        self.version, self.magic, self.order = version, magic, order
        self.n_values, self.n_tensors, self.alignment = n_values, n_tensors, alignment
        self.borders = []

    def set(self, key, kind, value):
        self.values = [v for v in self.values if v[0] != key] + [(key, kind, value)]
        return self

    def drop(self, key):
        self.values = [v for v in self.values if v[0] != key]
        return self

    def tensor(self, name):
        return next(t for t in self.tensors if t.name == name)

    def bytes(self):
        n_t = len(self.tensors) if self.n_tensors is None else self.n_tensors
        n_v = len(self.values) if self.n_values is None else self.n_values
        out = bytearray(self.magic + struct.pack(self.order + "IQQ", self.version, n_t, n_v))
        self.borders = [0, 4, 8, 16, 24]
        for key, kind, value in self.values:
            out += string(key)
            self.borders.append(len(out))
            out += struct.pack("<I", kind)
            self.borders.append(len(out))
            out += payload(kind, value)
            self.borders.append(len(out))
        offset = 0
        for t in self.tensors:
            n_dims = len(t.dims) if t.n_dims is None else t.n_dims
            out += string(t.name) + struct.pack("<I", n_dims)
            self.borders.append(len(out))
            out += struct.pack(f"<{len(t.dims)}Q", *t.dims)
            out += struct.pack("<IQ", t.kind, offset if t.offset is None else t.offset)
            self.borders.append(len(out))
            offset += -(-len(t.data) // self.alignment) * self.alignment
        for t in self.tensors:
            out += b"\0" * (-len(out) % self.alignment)
            self.borders.append(len(out))
            out += t.data
        self.borders.append(len(out))
        return bytes(out)

    def write(self, path):
        path.write_bytes(self.bytes())
        return path


def tiny_llama(n_layers=2, n_embd=32, n_ff=48, n_heads=4, n_kv=2, head_dim=8, n_vocab=40, seed=1):
    """A llama model of a few KB with random weights and a vocabulary of a few characters."""
    rng = np.random.default_rng(seed)
    tokens = ['!"'] + [chr(33 + i) if i < 90 else f"t{i}" for i in range(n_vocab - 1)]
    values = [
        ("general.architecture", STRING, "llama"),
        ("general.name", STRING, "tiny"),
        ("llama.block_count", U32, n_layers),
        ("llama.context_length", U32, 128),
        ("llama.embedding_length", U32, n_embd),
        ("llama.feed_forward_length", U32, n_ff),
        ("llama.attention.head_count", U32, n_heads),
        ("llama.attention.head_count_kv", U32, n_kv),
        ("llama.attention.layer_norm_rms_epsilon", F32, 1e-5),
        ("llama.rope.freq_base", F32, 10000.0),
        ("llama.rope.dimension_count", U32, head_dim),
        ("llama.vocab_size", U32, n_vocab),
        ("tokenizer.ggml.model", STRING, "gpt2"),
        ("tokenizer.ggml.pre", STRING, "smollm"),
        ("tokenizer.ggml.tokens", ARRAY, array(STRING, tokens)),
        ("tokenizer.ggml.token_type", ARRAY, array(I32, [1] * n_vocab)),
        ("tokenizer.ggml.merges", ARRAY, array(STRING, ['! "'])),
        ("tokenizer.ggml.eos_token_id", U32, 2),
    ]

    def matrix(name, rows, cols):
        return Tensor(name, [cols, rows], rng.normal(0, 0.1, rows * cols))

    tensors = [matrix("token_embd.weight", n_vocab, n_embd),
               Tensor("output_norm.weight", [n_embd], np.ones(n_embd))]
    for i in range(n_layers):
        tensors += [
            Tensor(f"blk.{i}.attn_norm.weight", [n_embd], np.ones(n_embd)),
            matrix(f"blk.{i}.attn_q.weight", n_heads * head_dim, n_embd),
            matrix(f"blk.{i}.attn_k.weight", n_kv * head_dim, n_embd),
            matrix(f"blk.{i}.attn_v.weight", n_kv * head_dim, n_embd),
            matrix(f"blk.{i}.attn_output.weight", n_embd, n_heads * head_dim),
            Tensor(f"blk.{i}.ffn_norm.weight", [n_embd], np.ones(n_embd)),
            matrix(f"blk.{i}.ffn_gate.weight", n_ff, n_embd),
            matrix(f"blk.{i}.ffn_up.weight", n_ff, n_embd),
            matrix(f"blk.{i}.ffn_down.weight", n_embd, n_ff),
        ]
    return File(values, tensors)


def tiny_gemma(n_layers=2, n_embd=32, head_dim=8, **shape):
    """The same as a gemma3 model: further norms, and layers of a window of 16."""
    f = tiny_llama(n_layers, n_embd, head_dim=head_dim, **shape)
    f.values = [(key.replace("llama.", "gemma3."), kind, value) for key, kind, value in f.values]
    f.set("general.architecture", STRING, "gemma3").set("gemma3.attention.sliding_window", U32, 16)
    for i in range(n_layers):
        for name, n in [("attn_q_norm", head_dim), ("attn_k_norm", head_dim),
                        ("post_attention_norm", n_embd), ("post_ffw_norm", n_embd)]:
            f.tensors.append(Tensor(f"blk.{i}.{name}.weight", [n], np.ones(n)))
    return f
