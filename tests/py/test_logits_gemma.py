"""Gemma 3: logits of the CPU engine against the float32 oracle, windows and all.

MILLRACE_LONG=1 (tests/run long) compares 1,000 positions of every golden text; otherwise the positions around the
window's first edge and far beyond it in one text.
"""
import functools
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

import oracle_gemma
import tiny_gemma
import tokenizer_oracle
from levels import LEVELS

TOOL = Path(os.environ["MILLRACE_BUILD"]) / "tests" / "logits_dump"
GEMMA = Path(os.environ["MILLRACE_TEST_DATA"]) / "models" / "gemma3-270m.gguf"
GOLDEN = Path(__file__).parent.parent / "golden"
WINDOW = 512
LONG = os.environ.get("MILLRACE_LONG") == "1"
# text: (positions that run, ranges whose logits are compared, both ends counted)
CASES = ({"prose": (1001, [(0, 999)]), "code": (1401, [(0, 999), (1200, 1399)]), "mixed": (1001, [(0, 999)])}
         if LONG else {"code": (1201, [(0, 15), (500, 539), (1000, 1199)])})


def positions(ranges):
    return np.concatenate([np.arange(a, b + 1) for a, b in ranges])


def dump(tmp_path, model, ids, ranges, *options):
    """[positions, vocab] logits of millrace."""
    ids_path, out = tmp_path / "ids", tmp_path / "logits"
    np.asarray(ids, np.int32).tofile(ids_path)
    keep = "keep=" + ",".join(f"{a}-{b}" for a, b in ranges)
    subprocess.run([str(TOOL), str(model), str(ids_path), str(out), keep, *options], check=True)
    got = np.fromfile(out, np.float32).reshape(len(positions(ranges)), -1)
    out.unlink()
    return got


@functools.cache
def gemma():
    return oracle_gemma.Model(GEMMA)


@functools.cache
def tokenizer():
    return tokenizer_oracle.build_oracle(tokenizer_oracle.Vocab(GEMMA))


def encode(text):
    return np.array([2] + tokenizer().encode_batch([text], False)[0])


@functools.lru_cache(1)
def golden(text):
    """The first ids of a text, and the oracle's logits for the chosen positions."""
    n, ranges = CASES[text]
    ids = encode((GOLDEN / f"{text}.txt").read_text())[:n]
    assert len(ids) == n
    return ids, oracle_gemma.logits(gemma(), ids, positions(ranges))


def compare(ids, at, want, got):
    """As oracle_llama.compare over chosen positions, a few at a time: rows of 262,144 are large."""
    largest = kl = ratio = top1 = 0.0
    for i in range(0, len(at), 50):
        w, g = want[i:i + 50], got[i:i + 50]
        p, q = oracle_gemma.log_softmax(w), oracle_gemma.log_softmax(g)
        largest = max(largest, float(np.abs(w - g).max()))
        kl += float((np.exp(p) * (p - q)).sum())
        top1 += float((w.argmax(-1) == g.argmax(-1)).sum())
        ratio += float((p - q)[np.arange(len(w)), ids[at[i:i + 50] + 1]].sum())
    n = len(at)
    return {"largest": largest, "kl": kl / n, "top1": top1 / n, "perplexity_ratio": np.exp(ratio / n)}


def measured(tmp_path, text, *options):
    n, ranges = CASES[text]
    ids, want = golden(text)
    got = dump(tmp_path, GEMMA, ids, ranges, *options)
    figures = compare(ids, positions(ranges), want, got)
    print(text, *options, figures)
    return figures


@pytest.mark.parametrize("text", CASES)
def test_every_mode_keeps_its_bars(tmp_path, text):
    """All modes of a text in one test: the oracle takes longer than any of them."""
    exact = measured(tmp_path, text, "cpu.activations=f32", "kv.dtype=f32")
    assert exact["largest"] <= 0.01
    f16_kv = measured(tmp_path, text, "cpu.activations=f32")
    assert f16_kv["largest"] <= 0.1 and f16_kv["kl"] <= 1e-5
    served = measured(tmp_path, text)
    assert served["kl"] <= 0.002 and served["top1"] >= 0.975
    assert abs(served["perplexity_ratio"] - 1) <= 0.004


def test_chunks_threads_and_company_change_no_bit(tmp_path):
    ids = encode((GOLDEN / "code.txt").read_text())[:700]
    ranges = [(0, 9), (WINDOW - 4, WINDOW + 3), (690, 699)]
    want = dump(tmp_path, GEMMA, ids, ranges)
    for options in (["chunks=1"], ["chunks=7,64,3,129"], ["rows=32", "cpu.threads=1"],
                    ["chunks=150,1", "company=5", "cpu.threads=3"]):
        got = dump(tmp_path, GEMMA, ids, ranges, *options)
        assert np.array_equal(got.view(np.uint32), want.view(np.uint32)), options


def test_the_greedy_prompt_continues_as_known(tmp_path):
    ids = encode("1, 2, 3, 4, 5, 6, 7,")
    want = [236743, 236828, 236764, 236743, 236819, 236764, 236743, 236770, 236771, 236764]
    got = dump(tmp_path, GEMMA, np.append(ids, want), [(len(ids) - 1, len(ids) + len(want) - 2)])
    assert got.argmax(-1).tolist() == want


# ---- generated models: every edge of small windows ----

def check_tiny(tmp_path, path, level, n, *extra):
    ids = np.random.default_rng(3).integers(0, tiny_gemma.VOCAB, n)
    model = oracle_gemma.Model(path)
    want = oracle_gemma.logits(model, ids)
    everything = [(0, n - 1)]
    for options, bars in ((["cpu.activations=f32", "kv.dtype=f32"], (0.01, 1e-8)),
                          (["cpu.activations=f32"], (0.1, 1e-5)),
                          ([], (2, 0.004))):
        options = [f"cpu.isa={level}", *options, *extra]
        got = dump(tmp_path, path, ids, everything, *options)
        f = oracle_gemma.compare(want, got, ids)
        print(options, f)
        assert f["largest"] <= bars[0] and f["kl"] <= bars[1], (options, f)
        again = dump(tmp_path, path, ids, everything, "chunks=1,40,3", "company=3", *options)
        assert np.array_equal(again.view(np.uint32), got.view(np.uint32)), options
    return model, ids, want


SHAPES = {
    "as published": {},
    "a window of one": {"window": 1},
    "a window of one block": {"window": 16},
    "a window beside a block": {"window": 17},
    "a window over several chunks": {"window": 260},
    "a window longer than the text": {"window": 1000},
    "no window": {"window": 0},
    "two kv heads": {"n_kv": 2, "head_dim": 64},
    "every layer local": {"pattern": [True] * 7},
    "every layer global": {"pattern": [False] * 7},
    "every other layer global": {"pattern": 2},
    "flags of layers": {"pattern": [False, True, True, False, False, True, True]},
    "a base of local layers in the file": {"local_base": 500.0},
    "a scale in the file": {"scale": 0.11},
    "global layers scaled": {"scaling": 8.0},
    "K-quants": {"kind": "Q4_K", "n_head": 8, "n_kv": 8},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_equals_the_oracle(tmp_path, shape):
    path = tiny_gemma.write(tmp_path / "m.gguf", **SHAPES[shape])
    check_tiny(tmp_path, path, LEVELS[-1], 301)


@pytest.mark.parametrize("shape", ["as published", "a window of one", "two kv heads"])
def test_plain_c_equals_the_oracle(tmp_path, shape):
    path = tiny_gemma.write(tmp_path / "m.gguf", **SHAPES[shape])
    check_tiny(tmp_path, path, "c", 90)


@pytest.mark.parametrize("slots", [8, 24, 64])
def test_block_size_is_free(tmp_path, slots):
    path = tiny_gemma.write(tmp_path / "m.gguf", window=37)
    check_tiny(tmp_path, path, LEVELS[-1], 150, f"kv.block_tokens={slots}")


@pytest.mark.parametrize("off_by", [-1, 1])
def test_a_window_off_by_one_is_seen(tmp_path, off_by):
    """The bar of 0.01 tells W - 1, W and W + 1 apart: the test of the tests above."""
    path = tiny_gemma.write(tmp_path / "m.gguf")
    model = oracle_gemma.Model(path)
    ids = np.random.default_rng(3).integers(0, tiny_gemma.VOCAB, 100)
    want = oracle_gemma.logits(model, ids)
    model.window += off_by
    wrong = oracle_gemma.logits(model, ids)
    differs = np.abs(wrong - want).max(-1) > 0.02
    assert not differs[:model.window - max(off_by, 0)].any() and differs[30:].mean() > 0.9
