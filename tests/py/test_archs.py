"""Every architecture of engine/model/arch.def beyond llama and gemma3, on tiny models against float32 (oracle_archs.py)."""
import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

import oracle_archs
import oracle_llama
import tiny_archs
from levels import LEVELS
from test_logits import dump

N = 150  # positions: past every window, a few blocks
ROOT = Path(__file__).resolve().parents[2]
CASES = {
    **{name: (name, {}) for name in tiny_archs.ARCHS},
    "qwen3 of many heads": ("qwen3", {"n_head": 12, "n_kv": 3, "head_dim": 24}),
    "phi3 without a window": ("phi3", {"window": 0, "rope_dims": 32}),
    "granite without rope": ("granite", {"no_rope": True, "scale": 0.3}),
    "gemma2 whose file leaves its caps out": ("gemma2", {"silent": True}),
    "gemma2 with a tight cap": ("gemma2", {"attn_cap": 2.0, "final_cap": 5.0}),
}
# What each one has and llama lacks: without it the oracle must be far away, or the test could not fail.
WITHOUT = {
    "qwen3": {"qk_norm": False}, "phi3": {"window": 0}, "smollm3": {"nope_every": 0}, "granite": {"residual": 1.0},
    "gemma2": {"window": 0}, "gemma2 with a tight cap": {"attn_cap": 0}, "granite without rope": {"no_rope": False},
}


def ids_of():
    return np.random.default_rng(3).integers(0, tiny_archs.VOCAB, N)


def model(tmp_path, case, kind="F32"):
    arch, changes = CASES[case]
    facts, weights = tiny_archs.make(arch, **changes)
    return facts, weights, tiny_archs.write(tmp_path / "m.gguf", facts, weights, kind)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("case", CASES)
def test_logits_equal_the_oracle(tmp_path, case, level):
    facts, weights, path = model(tmp_path, case)
    ids, isa = ids_of(), f"cpu.isa={level}"
    want = oracle_archs.logits(facts, weights, ids)
    for options, bars in ((["cpu.activations=f32", "kv.dtype=f32"], (0.002, 1e-8)), (["cpu.activations=f32"], (0.1, 1e-5)),
                          ([], (1.5, 0.004))):
        got = dump(tmp_path, path, ids, isa, *options)
        f = oracle_llama.compare(want, got, ids)
        print(options, f)
        assert f["largest"] <= bars[0] and f["kl"] <= bars[1], (options, f)
        again = dump(tmp_path, path, ids, isa, "chunks=1,40,3", "company=3", *options)
        assert np.array_equal(again.view(np.uint32), got.view(np.uint32)), options
    if case in WITHOUT:
        other = oracle_archs.logits({**facts, **WITHOUT[case]}, weights, ids)
        assert oracle_llama.compare(want, other, ids)["largest"] > 0.1


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_K", "Q6_K"])
def test_fused_rows_of_quantised_types_are_split(tmp_path, kind):
    facts, weights, path = model(tmp_path, "phi3", kind)
    split = {name: x for name, x in weights.items()}
    plain = tiny_archs.write(tmp_path / "plain.gguf", {**facts, "fused": False, "arch": "llama", "window": 0}, split, kind)
    ids = ids_of()[:15]  # within the window; llama rotates neighbours, so only the first position's logits are equal
    fused, separate = dump(tmp_path, path, ids), dump(tmp_path, plain, ids)
    assert np.array_equal(fused[0].view(np.uint32), separate[0].view(np.uint32))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", ["bf16", "q8", "q4"])
def test_caps_hold_with_every_kv_type(tmp_path, dtype, level):
    facts, weights, path = model(tmp_path, "gemma2 with a tight cap")
    ids = ids_of()
    f = oracle_llama.compare(oracle_archs.logits(facts, weights, ids),
                             dump(tmp_path, path, ids, f"cpu.isa={level}", "cpu.activations=f32", f"kv.dtype={dtype}"), ids)
    assert f["kl"] <= {"bf16": 1e-4, "q8": 5e-4, "q4": 0.02}[dtype], f


# All windowed, half of them, layers without rotation: swapped out and back, spilled, preempted, in company.
@pytest.mark.parametrize("case", ["phi3", "gemma2", "smollm3"])
@pytest.mark.parametrize("dtype", ["f16", "q8"])
def test_schedules_change_no_bit(tmp_path, case, dtype):
    *_, path = model(tmp_path, case)
    done = subprocess.run([str(Path(os.environ["MILLRACE_BUILD"]) / "tests" / "schedules"), str(path), dtype, "1", "4"],
                          cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    runs = [dict(word.split("=", 1) for word in line.split()) for line in done.stdout.splitlines()]
    assert done.returncode == 0 and [r["ok"] for r in runs] == ["1"] * 4, done.stdout
    assert sum(int(r["swapped"]) for r in runs) > 0 and {r["tiers"] for r in runs} == {"none", "ram", "file", "both"}


def test_all_rows_of_the_table_are_tested():
    rows = re.findall(r'^ARCH\("(\w+)"', (ROOT / "engine/model/arch.def").read_text(), re.M)
    assert set(rows) == set(tiny_archs.ARCHS) | {"llama", "gemma3"}


@pytest.mark.parametrize("case, line", [
    ("smollm3", "without rope"), ("granite", "factors"), ("gemma2", "soft caps"), ("phi3", "21 positions in 2 of 2 layers")])
def test_inspect_shows_what_differs(tmp_path, case, line):
    *_, path = model(tmp_path, case)
    shown = subprocess.run([os.environ["MILLRACE_BIN"], "inspect", str(path)], capture_output=True, text=True)
    assert line in shown.stdout, shown


@pytest.mark.parametrize("case", tiny_archs.ARCHS)
def test_a_missing_tensor_is_named(tmp_path, case):
    facts, weights = tiny_archs.make(case)
    del weights["1.down"]
    path = tiny_archs.write(tmp_path / "m.gguf", facts, weights)
    shown = subprocess.run([os.environ["MILLRACE_BIN"], "inspect", str(path)], capture_output=True, text=True)
    assert shown.returncode == 2 and "blk.1.ffn_down.weight is missing" in shown.stdout + shown.stderr, shown


@pytest.mark.parametrize("arch, words", [("qwen3moe", "mixtures of experts"), ("mamba", "recurrent layers"), ("bert", "encoders"),
                                         ("nosuch", "llama, qwen2")])
def test_what_an_unserved_architecture_needs_is_named(tmp_path, arch, words):
    facts, weights = tiny_archs.make("qwen2")
    path = tiny_archs.write(tmp_path / "m.gguf", {**facts, "arch": arch}, weights)
    for verb in (["inspect", str(path)], ["serve", str(path), "--port", "0"]):
        done = subprocess.run([os.environ["MILLRACE_BIN"], *verb], capture_output=True, text=True)
        assert done.returncode != 0 and words in done.stdout + done.stderr and f"'{arch}'" in done.stdout + done.stderr, done
        assert verb[0] != "inspect" or done.returncode == 2
