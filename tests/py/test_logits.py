"""Logits of the CPU engine against the float32 oracle, and that the rest of the batch never changes a bit."""
import functools
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

import oracle_llama
import tiny_llama
import tokenizer_oracle
from levels import LEVELS

TOOL = Path(os.environ["MILLRACE_BUILD"]) / "tests" / "logits_dump"
SMOLLM2 = Path(os.environ["MILLRACE_TEST_DATA"]) / "models" / "smollm2-135m.gguf"
GOLDEN = Path(__file__).parent.parent / "golden"
TEXTS = ["prose", "code", "mixed"]
POSITIONS = 1000
N_TINY = 301  # ids for generated models: more than one chunk of 256 keys
TYPES = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1",
         "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"]


def dump(tmp_path, model, ids, *options):
    """[len(ids), vocab] logits of millrace."""
    ids_path, out = tmp_path / "ids", tmp_path / "logits"
    np.asarray(ids, np.int32).tofile(ids_path)
    subprocess.run([str(TOOL), str(model), str(ids_path), str(out), *options], check=True)
    return np.fromfile(out, np.float32).reshape(len(ids), -1)


@functools.cache
def smollm2():
    return oracle_llama.Model(SMOLLM2)


@functools.cache
def tokenizer():
    return tokenizer_oracle.build_oracle(tokenizer_oracle.Vocab(SMOLLM2))


def encode(text):
    return tokenizer().encode_batch([text], True)[0]


def golden_ids(text):
    ids = np.array(encode((GOLDEN / f"{text}.txt").read_text())[:POSITIONS + 1])
    assert len(ids) == POSITIONS + 1
    return ids


@functools.lru_cache(1)
def golden(text):
    """The first 1,001 ids of a text and the oracle's logits for them."""
    ids = golden_ids(text)
    return ids, oracle_llama.logits(smollm2(), ids)


def measured(tmp_path, text, *options):
    ids, want = golden(text)
    figures = oracle_llama.compare(want, dump(tmp_path, SMOLLM2, ids, *options), ids)
    print(text, *options, figures)
    return figures


@pytest.mark.parametrize("text", TEXTS)
def test_every_mode_keeps_its_bars(tmp_path, text):
    """All modes of a text in one test: the oracle takes longer than any of them."""
    exact = measured(tmp_path, text, "cpu.activations=f32", "kv.dtype=f32")
    assert exact["largest"] <= 0.01
    f16_kv = measured(tmp_path, text, "cpu.activations=f32")
    assert f16_kv["largest"] <= 0.1 and f16_kv["kl"] <= 1e-5
    int16 = measured(tmp_path, text, "cpu.activations=int16")
    assert int16["largest"] <= 0.15 and int16["kl"] <= 1e-5
    # Plain C rounds activations as AVX2 does (test_kernels.c), only slower.
    for level in LEVELS[1:] or LEVELS:
        served = measured(tmp_path, text, f"cpu.isa={level}")
        assert served["kl"] <= 0.0006 and served["top1"] >= 0.985, level
        assert abs(served["perplexity_ratio"] - 1) <= 0.004, level


def test_chunks_threads_and_company_change_no_bit(tmp_path):
    ids = golden_ids("mixed")[:300]
    want = dump(tmp_path, SMOLLM2, ids)
    for options in (["chunks=1"], ["chunks=7,64,3,129"], ["rows=32", "cpu.threads=1"],
                    ["chunks=50,1", "company=9", "cpu.threads=3"]):
        assert np.array_equal(dump(tmp_path, SMOLLM2, ids, *options).view(np.uint32),
                              want.view(np.uint32)), options


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", TYPES)
def test_every_weight_type_equals_the_oracle(tmp_path, kind, level):
    path = tiny_llama.write(tmp_path / "m.gguf", kind, n_head=4, n_kv=1, head_dim=64)
    check_tiny(tmp_path, path, level)


def check_tiny(tmp_path, path, level):
    ids = np.random.default_rng(3).integers(0, tiny_llama.VOCAB, N_TINY)
    want = oracle_llama.logits(oracle_llama.Model(path), ids)
    isa = f"cpu.isa={level}"
    for options, bars in ((["cpu.activations=f32", "kv.dtype=f32"], (0.01, 1e-8)),
                          (["cpu.activations=f32"], (0.1, 1e-5)),
                          (["cpu.activations=int16"], (0.1, 1e-5)),
                          ([], (1, 0.002))):
        got = dump(tmp_path, path, ids, isa, *options)
        f = oracle_llama.compare(want, got, ids)
        print(options, f)
        assert f["largest"] <= bars[0] and f["kl"] <= bars[1], (options, f)
        again = dump(tmp_path, path, ids, isa, "chunks=1,40,3", "company=3", *options)
        assert np.array_equal(again.view(np.uint32), got.view(np.uint32)), options


SHAPES = {
    "one kv head": {"n_head": 8, "n_kv": 1, "head_dim": 32},
    "three kv heads": {"n_head": 9, "n_kv": 3, "head_dim": 64},
    "eight kv heads": {"n_head": 8, "n_kv": 8, "head_dim": 32},
    "odd head size": {"n_head": 6, "n_kv": 2, "head_dim": 20},
    "head size of 24": {"n_head": 4, "n_kv": 2, "head_dim": 24},
    "part of a head rotates": {"n_head": 4, "n_kv": 2, "head_dim": 32, "rope_dims": 16},
    "own output matrix": {"untied": True},
    "linear scaling": {"scaling": {"type": "linear", "factor": 4.0}},
    "llama 3 scaling": {"scaling": {
        "type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_context_length": 64}},
    "yarn scaling": {"scaling": {
        "type": "yarn", "factor": 4.0, "original_context_length": 128}},
    "divisors in the file": {"freq_factors": np.linspace(1, 8, 16)},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_and_scaling_equals_the_oracle(tmp_path, shape):
    path = tiny_llama.write(tmp_path / "m.gguf", **SHAPES[shape])
    for level in LEVELS:
        check_tiny(tmp_path, path, level)


@pytest.mark.parametrize("slots", [8, 24, 64])
def test_block_size_is_free(tmp_path, slots):
    path = tiny_llama.write(tmp_path / "m.gguf", n_head=6, n_kv=2, head_dim=32)
    ids = np.random.default_rng(3).integers(0, tiny_llama.VOCAB, N_TINY)
    want = oracle_llama.logits(oracle_llama.Model(path), ids)
    f = oracle_llama.compare(want, dump(tmp_path, path, ids, f"kv.block_tokens={slots}",
                                        "kv.dtype=f32"), ids)
    assert f["largest"] <= 0.001


CHAT = ("<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
        "<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n")
# Greedy continuations that are decided by a wide margin (0.5 to 1.9 logits at the closest token).
GREEDY = {
    "1, 2, 3, 4, 5, 6, 7,": [216, 40, 28, 216, 41, 28, 216, 33, 32, 28, 216, 33, 33, 28, 216, 33,
                             34, 28, 216, 33, 35, 28, 216, 33],
    CHAT.format("What is 2+2?"): [504, 2988, 288, 451, 8170, 4119, 1732, 314, 216, 36, 30, 2],
    CHAT.format("Count from 1 to 10."): [33, 30, 216, 33, 198, 34, 30, 216, 34, 198, 35, 30, 216,
                                         35, 198, 36, 30, 216, 36, 198, 37, 30, 216, 37],
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("prompt", GREEDY)
def test_greedy_prompts_continue_as_known(tmp_path, prompt, level):
    want, ids = GREEDY[prompt], encode(prompt)
    got = dump(tmp_path, SMOLLM2, ids + want, f"cpu.isa={level}")
    assert got[len(ids) - 1:-1].argmax(-1).tolist() == want


@pytest.mark.parametrize("level", LEVELS)
def test_a_close_call_falls_as_in_float32(tmp_path, level):
    """The answer "The capital of France is Paris." begins with a token that leads by 0.08 logits in float32."""
    want, ids = [504, 3575, 282, 4649, 314, 7042, 30, 2], encode(CHAT.format("What is the capital of France?"))
    got = dump(tmp_path, SMOLLM2, ids + want, f"cpu.isa={level}")
    assert got[len(ids) - 1:-1].argmax(-1).tolist() == want
