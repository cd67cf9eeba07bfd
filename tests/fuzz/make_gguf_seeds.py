#!/usr/bin/env python3
"""Writes the seeds of fuzz_gguf: whole models of a few KB, one for each way through the readers."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "py"))
from gguf_bytes import (  # noqa: E402
    ARRAY, BOOL, F32, I32, STRING, U32, U64, Tensor, array, tiny_gemma, tiny_llama)

SEEDS = Path(__file__).parent / "seeds" / "gguf"


def small():
    return tiny_llama(n_layers=1, n_embd=8, n_ff=8, n_heads=1, n_kv=1, n_vocab=8)


def yarn():
    f = small().set("llama.rope.scaling.type", STRING, "yarn")
    f.set("llama.rope.scaling.factor", F32, 4.0)
    f.set("llama.rope.scaling.original_context_length", U32, 32)
    f.tensors.append(Tensor("rope_freqs.weight", [4], [1, 2, 4, 8]))
    return f


def arrays():
    f = small().set("llama.attention.head_count", ARRAY, array(U32, [1]))
    f.set("general.sampling.temp", F32, 0.6).set("tokenizer.ggml.add_bos_token", BOOL, 1)
    f.set("general.tags", ARRAY, array(STRING, ["a", ""])).set("x", ARRAY, array(U64, [1, 2]))
    f.version = 2
    return f


def quantised():
    f = tiny_llama(n_layers=1, n_embd=32, n_ff=32, n_heads=1, n_kv=1, head_dim=32, n_vocab=8)
    sizes = {2: 18, 3: 20, 6: 22, 7: 24, 8: 34}
    kinds = [2, 3, 6, 7, 8, 2, 3, 6]
    for t in f.tensors:
        if len(t.dims) == 2:
            t.kind = kinds.pop()
            t.data = bytes(i % 60 for i in range(sizes[t.kind] * t.dims[1]))
    return f


def sentencepiece():
    f = small().set("tokenizer.ggml.model", STRING, "llama").drop("tokenizer.ggml.merges")
    f.set("tokenizer.ggml.scores", ARRAY, array(F32, [-float(i) for i in range(8)]))
    f.set("tokenizer.ggml.token_type", ARRAY, array(I32, [2, 3, 6, 1, 1, 1, 4, 5]))
    f.set("tokenizer.ggml.tokens", ARRAY,
          array(STRING, ["<unk>", "<s>", "<0x0A>", "▁", "h", "▁h", "  ", "e"]))
    return f


def local():
    f = tiny_gemma(n_layers=1, n_embd=8, n_ff=8, n_heads=1, n_kv=1, n_vocab=8)
    f.set("gemma3.attention.sliding_window_pattern", ARRAY, array(BOOL, [1]))
    return f.set("gemma3.rope.freq_base_swa", F32, 1000.0)


def main():
    SEEDS.mkdir(parents=True, exist_ok=True)
    for make in (small, yarn, arrays, quantised, sentencepiece, local):
        raw = make().bytes()
        if make in (arrays, sentencepiece):  # the readers of values; tensors are in the others
            f = make()
            f.tensors = []
            raw = f.bytes()
        (SEEDS / f"{make.__name__}.gguf").write_bytes(raw)
        print(f"{make.__name__}.gguf: {len(raw)} bytes")


if __name__ == "__main__":
    main()
