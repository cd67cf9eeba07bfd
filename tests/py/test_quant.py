"""Dequantisation of every weight type against the package gguf, to the bit."""
import os
import subprocess
from pathlib import Path

import gguf
import libgguf
import numpy as np
import pytest

from gguf_bytes import File, Tensor

TOOL = Path(os.environ["MILLRACE_BUILD"]) / "tests" / "gguf_dequant"
QUANTISED = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"]


def dequantised(tmp_path, kind, raw, n_cols, n_rows):
    path = File([], [Tensor("t", [n_cols, n_rows], raw, kind)]).write(tmp_path / "t.gguf")
    out = subprocess.run([str(TOOL), str(path), "t"], check=True, capture_output=True).stdout
    return np.frombuffer(out, np.float32)


def same_bits(got, want):
    """Equal to the bit; a NaN is a NaN whatever its payload."""
    want = np.ascontiguousarray(want, np.float32).ravel()
    assert got.shape == want.shape
    nan = np.isnan(want)
    assert np.array_equal(np.isnan(got), nan)
    assert np.array_equal(got[~nan].view(np.uint32), want[~nan].view(np.uint32))


@pytest.mark.parametrize("name", QUANTISED)
def test_quantised_weights_expand_as_in_gguf(tmp_path, name):
    kind = gguf.GGMLQuantizationType[name]
    n_cols, n_rows = 512, 64
    x = np.random.default_rng(int(kind)).standard_t(3, (n_rows, n_cols)).astype(np.float32)
    raw = bytes(libgguf.quantize_rows_raw(int(kind), x, n_rows, n_cols))
    want = gguf.quants.dequantize(np.frombuffer(raw, np.uint8).reshape(n_rows, -1), kind)
    assert np.abs(want - x).mean() < 0.5  # the package's quantiser did its work
    same_bits(dequantised(tmp_path, int(kind), raw, n_cols, n_rows), want)


@pytest.mark.parametrize("name", QUANTISED)
def test_random_bytes_expand_as_in_gguf(tmp_path, name):
    kind = gguf.GGMLQuantizationType[name]
    block, size = gguf.GGML_QUANT_SIZES[kind]
    n_cols, n_rows = 512, 200
    raw = np.random.default_rng(7).bytes(n_rows * n_cols // block * size)
    with np.errstate(all="ignore"):
        want = gguf.quants.dequantize(np.frombuffer(raw, np.uint8).reshape(n_rows, -1), kind)
    same_bits(dequantised(tmp_path, int(kind), raw, n_cols, n_rows), want)


def test_every_f16_expands_as_in_numpy(tmp_path):
    bits = np.arange(65536, dtype=np.uint16)
    got = dequantised(tmp_path, 1, bits.tobytes(), 65536, 1)
    same_bits(got, bits.view(np.float16).astype(np.float32))


def test_every_bf16_is_the_upper_half_of_an_f32(tmp_path):
    bits = np.arange(65536, dtype=np.uint32)
    got = dequantised(tmp_path, 30, bits.astype(np.uint16).tobytes(), 65536, 1)
    assert np.array_equal(got.view(np.uint32), bits << 16)


def test_f32_is_copied(tmp_path):
    raw = np.random.default_rng(1).bytes(4 * 1024)
    got = dequantised(tmp_path, 0, raw, 256, 4)
    assert got.tobytes() == raw
