"""The loss of quality of each KV type against f16, printed; and that no schedule changes a bit of any type.

Measured twice: with 16-bit activations, where only the type makes a difference, and as served (int8
activations turn differences in the last bit into a KL of about 0.0007, as f32 against f16 shows).
MILLRACE_LONG=1 (tests/run long) measures all types on 1,000 positions of every golden text; otherwise the most
important ones on 400 positions of one text.
"""
import functools
import os

import numpy as np
import pytest

import oracle_llama
import test_logits
import test_logits_gemma

LONG = os.environ.get("MILLRACE_LONG") == "1"
TEXTS = test_logits.TEXTS if LONG else ["mixed"]
POSITIONS = 1000 if LONG else 400
GEMMA_RANGES = [(100, 199), (550, 649)]  # within the window and behind it
# option values: largest KL, least agreement of first choices
SERVED = {"f32": (0.003, 0.97), "bf16": (0.003, 0.97), "q8": (0.003, 0.97), "q4": (0.2, 0.7)}
ISOLATED = {"f32": (1e-5, 0.99), "bf16": (5e-4, 0.98), "q8": (1e-3, 0.98), "q8/q4": (0.05, 0.9),
            "q4/q8": (0.2, 0.7), "q4": (0.2, 0.7)}
if not LONG:
    SERVED = {"q8": SERVED["q8"]}
    ISOLATED = {types: ISOLATED[types] for types in ("bf16", "q8", "q8/q4")}


def options(types, activations):
    k, _, v = types.partition("/")
    return [f"kv.dtype_k={k}", f"kv.dtype_v={v or k}", f"cpu.activations={activations}"]


@functools.cache
def smollm2_ids(text):
    return np.array(test_logits.encode((test_logits.GOLDEN / f"{text}.txt").read_text())[:POSITIONS + 1])


@functools.cache
def smollm2_f16(tmp_path, text, activations):
    return test_logits.dump(tmp_path, test_logits.SMOLLM2, smollm2_ids(text), *options("f16", activations))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("kv")


def smollm2_costs(folder, text, types, activations):
    ids = smollm2_ids(text)
    got = test_logits.dump(folder, test_logits.SMOLLM2, ids, *options(types, activations))
    f = oracle_llama.compare(smollm2_f16(folder, text, activations), got, ids)
    print(f"SmolLM2 {text}, kv {types} against f16, {activations} activations: KL {f['kl']:.6f}, first choices "
          f"equal {f['top1']:.3f}, perplexity x {f['perplexity_ratio']:.4f}")
    return f["kl"], f["top1"]


@pytest.mark.parametrize("types", ISOLATED)
@pytest.mark.parametrize("text", TEXTS)
def test_the_type_alone_keeps_its_bars_on_smollm2(folder, text, types):
    kl, top1 = smollm2_costs(folder, text, types, "int16")
    assert kl <= ISOLATED[types][0] and top1 >= ISOLATED[types][1]


@pytest.mark.parametrize("types", SERVED)
@pytest.mark.parametrize("text", TEXTS)
def test_as_served_a_type_keeps_its_bars_on_smollm2(folder, text, types):
    kl, top1 = smollm2_costs(folder, text, types, "int8")
    assert kl <= SERVED[types][0] and top1 >= SERVED[types][1]


@functools.cache
def gemma_f16(folder):
    text = (test_logits_gemma.GOLDEN / "code.txt").read_text()
    ids = test_logits_gemma.encode(text)[:GEMMA_RANGES[-1][1] + 2]
    return ids, test_logits_gemma.dump(folder, test_logits_gemma.GEMMA, ids, GEMMA_RANGES,
                                       *options("f16", "int16"))


GEMMA = [("q8", (1e-3, 0.97)), ("bf16", (1e-3, 0.97)), ("q4", (0.4, 0.7))]


@pytest.mark.parametrize("types, bars", GEMMA if LONG else GEMMA[:1])
def test_the_type_alone_keeps_its_bars_on_gemma(folder, types, bars):
    ids, want = gemma_f16(folder)
    got = test_logits_gemma.dump(folder, test_logits_gemma.GEMMA, ids, GEMMA_RANGES,
                                 *options(types, "int16"))
    f = test_logits_gemma.compare(ids, test_logits_gemma.positions(GEMMA_RANGES), want, got)
    print(f"Gemma 3, kv {types} against f16: KL {f['kl']:.6f}, first choices equal {f['top1']:.3f}")
    assert f["kl"] <= bars[0] and f["top1"] >= bars[1]


@pytest.mark.parametrize("types", ["bf16", "q8", "q4", "q8/f16"])
def test_chunks_threads_and_company_change_no_bit(folder, types):
    ids = smollm2_ids("mixed")[:280]
    want = test_logits.dump(folder, test_logits.SMOLLM2, ids, *options(types, "int8"))
    for how in (["chunks=7,64,3,129", "cpu.threads=1"], ["chunks=50,1", "company=5", "cpu.threads=3"]):
        got = test_logits.dump(folder, test_logits.SMOLLM2, ids, *options(types, "int8"), *how)
        assert np.array_equal(got.view(np.uint32), want.view(np.uint32)), how
