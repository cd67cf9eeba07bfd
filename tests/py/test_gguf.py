"""Model files: good ones open, broken ones give one clear line and exit code 1, never a crash.

gguf_check opens a file, reads the hyperparameters and binds the weights, as loading does.
"""
import os
import resource
import struct
import subprocess
import time
from pathlib import Path

import gguf
import numpy as np
import pytest

from gguf_bytes import (ARRAY, BOOL, F32, F64, I32, I8, STRING, U16, U32, U64, U8, File, Tensor, array,
                        string, tiny_gemma, tiny_llama)

BUILD = Path(os.environ["MILLRACE_BUILD"]) / "tests"
DATA = Path(os.environ["MILLRACE_TEST_DATA"])


def run(tool, path, *options):
    def limit():
        # Enough for the tools; far below what a lying count would ask for.
        resource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30))

    return subprocess.run([str(BUILD / tool), *options, str(path)], capture_output=True, text=True,
                          timeout=600, preexec_fn=limit)


def check(path):
    return run("gguf_check", path)


def refused(path, *words):
    done = check(path)
    assert done.returncode == 1, (done.returncode, done.stdout, done.stderr)
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and lines[0].isprintable() and len(lines[0]) < 400, done.stderr
    for word in words:
        assert word in lines[0], (word, lines[0])
    return lines[0]


def accepted(path):
    done = check(path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.gguf"


# ---- good files ----

@pytest.mark.parametrize("version", [2, 3])
def test_a_whole_file_is_accepted(path, version):
    f = tiny_llama()
    f.version = version
    accepted(f.write(path))


@pytest.mark.parametrize("alignment", [8, 64, 4096])
def test_other_alignments_are_accepted(path, alignment):
    f = tiny_llama().set("general.alignment", U32, alignment)
    f.alignment = alignment
    accepted(f.write(path))


@pytest.mark.parametrize("name", ["smollm2-135m", "gemma3-270m"])
def test_the_known_models_are_accepted(name):
    accepted(DATA / "models" / f"{name}.gguf")


def test_another_architecture_is_refused_by_name(path):
    f = tiny_llama().set("general.architecture", STRING, "mamba")
    assert refused(f.write(path)) .startswith("architecture 'mamba' is not supported yet: it needs recurrent layers")


def test_a_vocabulary_of_262144_strings_opens_in_milliseconds(path):
    f = tiny_llama(n_vocab=262144, n_embd=8, n_heads=1, n_kv=1, n_layers=1)
    f.set("tokenizer.ggml.tokens", ARRAY, array(STRING, [f"token{i}" for i in range(262144)]))
    f.write(path)
    accepted(path)
    start = time.perf_counter()
    accepted(path)
    print(f"opened and checked in {(time.perf_counter() - start) * 1e3:.1f} ms")


def test_counts_given_as_equal_arrays_are_accepted(path):
    f = tiny_llama()
    f.set("llama.attention.head_count", ARRAY, array(U32, [4, 4]))
    f.set("llama.attention.head_count_kv", ARRAY, array(I32, [2, 2]))
    f.set("llama.feed_forward_length", ARRAY, array(U64, [48, 48]))
    accepted(f.write(path))


def test_numbers_of_any_integer_type_are_accepted(path):
    f = tiny_llama()
    f.set("llama.block_count", U8, 2).set("llama.embedding_length", U16, 32)
    f.set("llama.context_length", U64, 128).set("llama.attention.head_count", I8, 4)
    f.set("llama.attention.layer_norm_rms_epsilon", F64, 1e-5)
    accepted(f.write(path))


def test_untied_output_and_biases_are_accepted(path):
    f = tiny_llama()
    f.tensors.append(Tensor("output.weight", [32, 40], np.ones(32 * 40)))
    f.tensors += [Tensor(f"blk.{i}.attn_q.bias", [32], np.ones(32)) for i in range(2)]
    f.tensors += [Tensor(f"blk.{i}.attn_rot_embd.weight", [4], np.ones(4)) for i in range(2)]
    accepted(f.write(path))


def test_a_window_as_long_as_the_context_is_accepted(path):
    accepted(tiny_llama().set("llama.attention.sliding_window", U32, 128).write(path))


# ---- not files at all ----

def test_what_is_no_file_is_refused(tmp_path):
    refused(tmp_path / "absent", "cannot open", "No such file")
    refused(tmp_path, "not a regular file")
    (tmp_path / "empty").write_bytes(b"")
    refused(tmp_path / "empty", "empty")
    os.mkfifo(tmp_path / "fifo")
    refused(tmp_path / "fifo", "not a regular file")
    refused("/dev/zero", "not a regular file")


# ---- the container ----

@pytest.mark.parametrize("change, words", [
    (dict(magic=b"GGML"), ["not a gguf file"]),
    (dict(magic=b"PK\3\4"), ["not a gguf file"]),
    (dict(version=1), ["version 1", "only 2 and 3"]),
    (dict(version=4), ["version 4"]),
    (dict(version=0), ["version 0"]),
    (dict(version=3, order=">"), ["big-endian"]),
    (dict(n_values=2**60), ["value count 1152921504606846976"]),
    (dict(n_values=2**64 - 1), ["value count"]),
    (dict(n_values=60000), ["more than the file holds"]),
    (dict(n_tensors=2**60), ["tensor count 1152921504606846976"]),
    (dict(n_tensors=2**64 - 1), ["tensor count"]),
    (dict(n_tensors=21), ["a tensor name"]),
    (dict(n_values=17), []),
    (dict(n_values=19), []),
], ids=str)
def test_wrong_headers_are_refused(path, change, words):
    f = tiny_llama()
    for key, value in change.items():
        setattr(f, key, value)
    refused(f.write(path), *words)


def test_a_count_above_the_limit_is_refused(path):
    many = [(f"k{i:06}", U8, 1) for i in range(65537)]
    refused(File(many).write(path), "value count 65537", "65536")


def test_every_truncation_at_a_border_is_refused(path):
    f = tiny_llama()
    whole = f.bytes()
    cuts = sorted({b + d for b in f.borders for d in (-1, 0, 1)} & set(range(len(whole))))
    assert len(cuts) > 150
    for cut in cuts:
        path.write_bytes(whole[:cut])
        refused(path, *([f"incomplete: tensor", f"has {cut} bytes"] if cut > f.borders[-22] else []))


@pytest.mark.parametrize("values, words", [
    ([("k", U32, 1), ("k", U32, 2)], ["value k occurs twice"]),
    ([("", U32, 1)], ["metadata key", "0 bytes"]),
    ([("x" * 65536, U32, 1)], ["65536 bytes"]),
    ([("k", 13, b"\0" * 8)], ["value k has unknown type 13"]),
    ([("k", 2**32 - 1, b"\0" * 8)], ["unknown type 4294967295"]),
    ([("k", BOOL, 2)], ["value k", "boolean holds 2"]),
    ([("k", ARRAY, array(BOOL, [0, 1, 7]))], ["boolean holds 7"]),
    ([("k", ARRAY, struct.pack("<IQ", ARRAY, 1) + array(U8, [1]))], ["arrays of type 9"]),
    ([("k", ARRAY, struct.pack("<IQ", 99, 1))], ["arrays of type 99"]),
    ([("k", ARRAY, array(U8, [], count=2**60))], ["array of 1152921504606846976 elements"]),
    ([("k", ARRAY, array(U64, [], count=2**61))], ["array of"]),
    ([("k", ARRAY, array(STRING, [], count=2**60))], ["ends inside k"]),
    ([("k", ARRAY, array(STRING, ["a"], count=2))], ["ends inside k"]),
    ([("k", STRING, string("abc", length=2**64 - 1))], ["ends inside k"]),
    ([("k", STRING, string("abc", length=2**63))], ["ends inside k"]),
    ([("k\n\x1b[31m", STRING, string("abc", length=99))], ["k??[31m"]),
    ([("general.alignment", U32, 0)], ["general.alignment 0"]),
    ([("general.alignment", U32, 24)], ["general.alignment 24"]),
    ([("general.alignment", U32, 4)], ["general.alignment 4"]),
    ([("general.alignment", U64, 2**40)], ["general.alignment 1099511627776"]),
    ([("general.alignment", STRING, "32")], ["not a whole number"]),
    ([("split.count", U16, 3)], ["one of 3 parts"]),
], ids=lambda v: str(v)[:40])
def test_wrong_values_are_refused(path, values, words):
    refused(File(values).write(path), *words)


@pytest.mark.parametrize("tensor, words", [
    (Tensor("t", [], [1.0]), ["0 dimensions"]),
    (Tensor("t", [1] * 5, [1.0]), ["5 dimensions"]),
    (Tensor("t", [1], [1.0], n_dims=2**32 - 1), ["4294967295 dimensions"]),
    (Tensor("t", [0], b""), ["dimension 0 is 0"]),
    (Tensor("t", [4, 0], b""), ["dimension 1 is 0"]),
    (Tensor("t", [2**32, 2**32], b""), ["dimensions overflow"]),
    (Tensor("t", [2**62], b""), ["dimensions overflow"]),
    (Tensor("t", [2**63, 2, 2, 2], b""), ["dimensions overflow"]),
    (Tensor("t", [2**58], b""), ["incomplete", "tensor t lies outside the file"]),
    (Tensor("t", [8], [1.0]), ["incomplete", "tensor t lies outside the file"]),
    (Tensor("t", [1], [1.0], offset=0), ["token_embd.weight", "overlap"]),
    (Tensor("t", [8], [1.0] * 8, offset=5088), ["token_embd.weight and t overlap"]),
    (Tensor("t", [1], [1.0], offset=2**64 - 32), ["outside the file"]),
    (Tensor("t", [1], [1.0], offset=2**63), ["outside the file"]),
    (Tensor("t", [1], [1.0], offset=8), ["not a multiple of 32"]),
    (Tensor("t", [33], b"\0" * 36, kind=2), ["row length 33", "Q4_0", "32"]),
    (Tensor("t", [128], b"\0" * 144, kind=12), ["row length 128", "Q4_K", "256"]),
    (Tensor("", [1], [1.0]), ["tensor name"]),
], ids=lambda v: str(getattr(v, "dims", v))[:40])
def test_wrong_tensors_are_refused(path, tensor, words):
    f = tiny_llama()
    f.tensors.append(tensor)
    refused(f.write(path), *words)


def test_a_tensor_named_twice_is_refused(path):
    f = tiny_llama()
    f.tensors.append(Tensor("blk.0.attn_q.weight", [32, 32], np.zeros(1024)))
    refused(f.write(path), "blk.0.attn_q.weight occurs twice")


# ---- hyperparameters ----

@pytest.mark.parametrize("key, kind, value, words", [
    ("general.architecture", STRING, "mamba", ["architecture 'mamba' is not supported yet"]),
    ("general.architecture", STRING, "", ["architecture '' is not"]),
    ("general.architecture", STRING, b"\x04\0\0\0\0\0\0\0a\nb\x1b", ["architecture 'a?b?'"]),
    ("general.architecture", U32, 5, ["general.architecture is missing"]),
    ("llama.block_count", U32, 0, ["block_count is 0", "1 to 1024"]),
    ("llama.block_count", U32, 1025, ["block_count is 1025"]),
    ("llama.block_count", I32, -1, ["block_count", "whole number"]),
    ("llama.block_count", F32, 2.0, ["block_count", "whole number"]),
    ("llama.block_count", STRING, "2", ["block_count", "whole number"]),
    ("llama.block_count", U32, 3, ["blk.2.attn_norm.weight is missing"]),
    ("llama.block_count", U32, 1, ["blk.1.attn_norm.weight is not used"]),
    ("llama.embedding_length", U32, 0, ["embedding_length is 0"]),
    ("llama.embedding_length", U64, 2**40, ["embedding_length is 1099511627776"]),
    ("llama.embedding_length", U32, 33, ["33 is not a multiple of 4 heads"]),
    ("llama.embedding_length", U32, 64, ["token_embd.weight has shape [32, 40", "[64, 40]"]),
    ("llama.feed_forward_length", U32, 0, ["feed_forward_length is 0"]),
    ("llama.feed_forward_length", U32, 2**19, ["feed_forward_length is 524288"]),
    ("llama.feed_forward_length", ARRAY, array(U32, [48, 64]), ["differs between layers"]),
    ("llama.attention.head_count", U32, 0, ["head_count is 0"]),
    ("llama.attention.head_count", U32, 2000, ["head_count is 2000"]),
    ("llama.attention.head_count", ARRAY, array(U32, [4, 8]), ["differs between layers (4 and 8)"]),
    ("llama.attention.head_count", ARRAY, array(U32, []), ["whole number"]),
    ("llama.attention.head_count_kv", U32, 0, ["head_count_kv is 0"]),
    ("llama.attention.head_count_kv", U32, 3, ["4 heads", "3 kv heads"]),
    ("llama.attention.head_count_kv", ARRAY, array(I32, [-2, -2]), ["whole number"]),
    ("llama.attention.head_count_kv", ARRAY, array(F32, [float("nan")] * 2), ["whole number"]),
    ("llama.attention.key_length", U32, 7, ["key_length is 7"]),
    ("llama.attention.key_length", U32, 9, ["head size 9 is not an even number"]),
    ("llama.attention.key_length", U32, 1024, ["key_length is 1024"]),
    ("llama.attention.value_length", U32, 16, ["key length 8 and value length 16 differ"]),
    ("llama.context_length", U32, 0, ["context_length is 0"]),
    ("llama.attention.layer_norm_rms_epsilon", F32, float("nan"), ["epsilon is nan"]),
    ("llama.attention.layer_norm_rms_epsilon", F32, 0.0, ["epsilon is 0"]),
    ("llama.attention.layer_norm_rms_epsilon", F32, -1.0, ["epsilon is -1"]),
    ("llama.attention.layer_norm_rms_epsilon", STRING, "x", ["not a number"]),
    ("llama.attention.scale", F32, float("inf"), ["attention.scale is inf"]),
    ("llama.rope.freq_base", F32, float("nan"), ["freq_base is nan"]),
    ("llama.rope.freq_base", F32, 0.0, ["freq_base is 0"]),
    ("llama.rope.freq_base", F32, -1e4, ["freq_base is -10000"]),
    ("llama.rope.dimension_count", U32, 0, ["dimension_count is 0"]),
    ("llama.rope.dimension_count", U32, 10, ["dimension_count is 10", "2 to 8"]),
    ("llama.rope.dimension_count", U32, 5, ["must be even"]),
    ("llama.rope.scaling.type", STRING, "longrope", ["scaling kind 'longrope'"]),
    ("llama.rope.scaling.type", STRING, "su", ["scaling kind 'su'"]),
    ("llama.rope.scaling.type", STRING, "dynamic", ["scaling kind 'dynamic'"]),
    ("llama.rope.scaling.type", STRING, "Linear", ["scaling kind 'Linear'"]),
    ("llama.rope.scaling.type", U32, 1, ["not a string"]),
    ("llama.rope.scaling.type", STRING, "linear", ["rope.scaling.factor is missing"]),
    ("llama.rope.scaling.factor", F32, 2.0, ["without its kind"]),
    ("llama.vocab_size", U32, 41, ["vocab_size is 41", "40 rows"]),
    ("llama.expert_count", U32, 8, ["mixture of experts"]),
    ("llama.attention.sliding_window", U32, 64, ["sliding-window"]),
    ("llama.attention.causal", BOOL, 0, ["not causal"]),
    ("llama.use_parallel_residual", BOOL, 1, ["parallel residuals"]),
    ("llama.logit_scale", F32, 0.5, ["scaled logits"]),
    ("llama.embedding_scale", F32, 12.0, ["scaled embeddings"]),
    ("llama.final_logit_softcapping", F32, 30.0, ["soft capping of logits"]),
    ("llama.rope.dimension_sections", ARRAY, array(I32, [1, 2]), ["sections"]),
    ("tokenizer.ggml.tokens", ARRAY, array(STRING, ["a"] * 39), ["39 tokens", "40"]),
], ids=lambda v: str(v)[:44])
def test_impossible_hyperparameters_are_refused(path, key, kind, value, words):
    refused(tiny_llama().set(key, kind, value).write(path), *words)


@pytest.mark.parametrize("key, kind, value, words", [
    ("attention.sliding_window", STRING, "16", ["sliding_window is not a whole number"]),
    ("attention.sliding_window", U32, 2**25, ["sliding_window is 33554432"]),
    ("attention.sliding_window_pattern", ARRAY, array(BOOL, [1]),
     ["sliding_window_pattern has 1 elements", "2 layers"]),
    ("attention.sliding_window_pattern", ARRAY, array(BOOL, [1, 0, 1]), ["has 3 elements"]),
    ("attention.sliding_window_pattern", ARRAY, array(STRING, ["a", "b"]), ["not a whole number"]),
    ("attention.sliding_window_pattern", U32, 5000, ["sliding_window_pattern is 5000"]),
    ("rope.freq_base_swa", F32, 0.0, ["freq_base_swa is 0"]),
    ("final_logit_softcapping", F32, 30.0, ["soft capping of logits"]),
], ids=lambda v: str(v)[:44])
def test_impossible_local_layers_are_refused(path, key, kind, value, words):
    refused(tiny_gemma().set(f"gemma3.{key}", kind, value).write(path), *words)


@pytest.mark.parametrize("pattern", [
    (U32, 2), (U32, 0), (U32, 1024), (ARRAY, array(BOOL, [0, 1])), (ARRAY, array(BOOL, [1, 1]))])
def test_patterns_of_local_layers_are_accepted(path, pattern):
    accepted(tiny_gemma().set("gemma3.attention.sliding_window_pattern", *pattern).write(path))


@pytest.mark.parametrize("key", [
    "general.architecture", "llama.block_count", "llama.context_length", "llama.embedding_length",
    "llama.feed_forward_length", "llama.attention.head_count",
    "llama.attention.layer_norm_rms_epsilon"])
def test_missing_hyperparameters_are_named(path, key):
    refused(tiny_llama().drop(key).write(path), f"{key} is missing")


def test_a_model_of_local_layers_names_their_window(path):
    key = "gemma3.attention.sliding_window"
    refused(tiny_gemma().drop(key).write(path), f"{key} is missing")


# ---- weights ----

@pytest.mark.parametrize("model", [tiny_llama, tiny_gemma])
def test_each_missing_tensor_is_named(path, model):
    accepted(model().write(path))
    for name in [t.name for t in model().tensors]:
        f = model()
        f.tensors = [t for t in f.tensors if t.name != name]
        refused(f.write(path), f"tensor {name} is missing")


def test_norms_of_another_architecture_are_refused(path):
    f = tiny_llama()
    f.tensors += [t for t in tiny_gemma().tensors if "attn_q_norm" in t.name]
    refused(f.write(path), "blk.0.attn_q_norm.weight is not used by architecture llama")


def test_all_missing_tensors_are_listed(path):
    f = tiny_llama()
    gone = [t.name for t in f.tensors if "ffn" in t.name]
    f.tensors = [t for t in f.tensors if "ffn" not in t.name]
    lines = run("gguf_check", f.write(path), "-p").stdout.splitlines()
    assert [l for l in lines if "missing" in l] == [f"tensor {n} is missing" for n in gone]


@pytest.mark.parametrize("model", [tiny_llama, tiny_gemma])
def test_each_misshaped_tensor_is_named(path, model):
    for name in [t.name for t in model().tensors]:
        f = model()
        t = f.tensor(name)
        t.dims = [t.dims[0] // 2] + t.dims[1:]
        refused(f.write(path), name, "has shape", "must be") if name != "token_embd.weight" else \
            refused(f.write(path), name)
    f = tiny_llama()
    f.tensor("blk.0.ffn_up.weight").dims = [32, 24, 2]
    refused(f.write(path), "blk.0.ffn_up.weight has shape [32, 24, 2, 1]")
    f = tiny_llama()
    f.tensor("blk.1.ffn_down.weight").dims.reverse()
    refused(f.write(path), "blk.1.ffn_down.weight has shape [32, 48, 1, 1], must be [48, 32]")


@pytest.mark.parametrize("kind, words", [
    (16, ["type IQ2_XXS (16)"]), (20, ["type IQ4_NL (20)"]), (39, ["type MXFP4"]),
    (28, ["type F64"]), (4, ["type Q4_2 (4)"]), (250, ["type unknown (250)"])])
def test_unsupported_types_are_named(path, kind, words):
    f = tiny_llama(n_embd=256, n_heads=8, head_dim=32, n_kv=8)
    f.tensor("blk.1.ffn_up.weight").kind = kind
    f.tensor("blk.1.ffn_up.weight").data = b"\0" * (256 * 48 * 8)
    refused(f.write(path), "blk.1.ffn_up.weight", *words)


def test_norms_must_be_f32(path):
    f = tiny_llama()
    f.tensor("blk.0.attn_norm.weight").kind = 1
    refused(f.write(path), "blk.0.attn_norm.weight has type F16, must be F32")


def test_unknown_tensors_are_refused(path):
    f = tiny_llama()
    f.tensors.append(Tensor("blk.0.attn_output.bias", [32], np.zeros(32)))
    refused(f.write(path), "blk.0.attn_output.bias is not used by architecture llama")


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_impossible_rope_factors_are_refused(path, value):
    f = tiny_llama()
    f.tensors.append(Tensor("rope_freqs.weight", [4], [1.0, value, 8.0, 8.0]))
    refused(f.write(path), "rope_freqs.weight holds")


def test_random_corruption_never_crashes(path):
    """One to eight changed bytes in the part before the weights: any answer but a crash."""
    rng = np.random.default_rng(17)
    f = tiny_llama()
    whole = f.bytes()
    head = f.borders[-len(f.tensors) - 1]
    for _ in range(150):
        broken = bytearray(whole)
        for at in rng.integers(0, head, rng.integers(1, 9)):
            broken[at] = rng.integers(0, 256)
        path.write_bytes(broken)
        done = check(path)
        assert done.returncode in (0, 1), done
        assert len(done.stderr.splitlines()) <= 1


# ---- rope ----

POSITIONS = [0, 1, 4095, 8193]


def rope(path):
    done = run("gguf_rope", path)
    assert done.returncode == 0, done.stderr
    numbers = [float(x) for x in done.stdout.split()]
    return np.array(numbers[:-1]), numbers[-1]


def same_angles(path, freq, magnitude=1.0):
    got, got_magnitude = rope(path)
    assert np.allclose(got, freq, rtol=1e-6)
    assert abs(got_magnitude - magnitude) < 1e-6
    for position in POSITIONS:
        for f in (np.cos, np.sin):
            assert np.abs(f(position * got) - f(position * freq)).max() < 2e-3 * position / 8193 + 1e-9


def plain(base, dims):
    return base ** (-np.arange(0, dims, 2) / dims)


def wide_llama(base=500000.0):
    f = tiny_llama(n_embd=128, n_heads=1, n_kv=1, head_dim=128)
    return f.set("llama.rope.freq_base", F32, base)


def test_rope_without_scaling(path):
    same_angles(wide_llama().write(path), plain(5e5, 128))
    f = tiny_llama().drop("llama.rope.freq_base").drop("llama.rope.dimension_count")
    same_angles(f.write(path), plain(1e4, 8))


def test_rope_of_part_of_a_head(path):
    same_angles(wide_llama().set("llama.rope.dimension_count", U32, 64).write(path), plain(5e5, 64))


def test_linear_scaling_divides_frequencies(path):
    f = wide_llama().set("llama.rope.scaling.type", STRING, "linear")
    f.set("llama.rope.scaling.factor", F32, 4.0)
    same_angles(f.write(path), plain(5e5, 128) / 4)
    f = wide_llama().set("llama.rope.scale_linear", F32, 2.0)
    same_angles(f.write(path), plain(5e5, 128) / 2)


def llama3(freq, factor=8.0, low=1.0, high=4.0, original=8192):
    """Llama 3.1's rule, wavelength by wavelength."""
    out = []
    for f in freq:
        wavelength = 2 * np.pi / f
        if wavelength < original / high:
            out.append(f)
        elif wavelength > original / low:
            out.append(f / factor)
        else:
            smooth = (original / wavelength - low) / (high - low)
            out.append((1 - smooth) * f / factor + smooth * f)
    return np.array(out)


def test_llama3_scaling_by_metadata(path):
    f = wide_llama().set("llama.rope.scaling.type", STRING, "llama3")
    f.set("llama.rope.scaling.factor", F32, 8.0)
    f.set("llama.rope.scaling.original_context_length", U32, 8192)
    same_angles(f.write(path), llama3(plain(5e5, 128)))
    f.set("llama.rope.scaling.low_freq_factor", F32, 2.0)
    f.set("llama.rope.scaling.high_freq_factor", F32, 16.0)
    same_angles(f.write(path), llama3(plain(5e5, 128), low=2.0, high=16.0))


@pytest.mark.parametrize("kind", [None, "none", "llama3"])
def test_llama3_scaling_by_tensor(path, kind):
    freq = plain(5e5, 128)
    factors = (freq / llama3(freq)).astype(np.float32)
    f = wide_llama()
    if kind:
        f.set("llama.rope.scaling.type", STRING, kind)
    f.tensors.append(Tensor("rope_freqs.weight", [64], factors))
    accepted(f.write(path))
    same_angles(path, llama3(freq))


def yarn(base, dims, factor, original, fast=32.0, slow=1.0, extrapolation=1.0):
    """Peng et al. 2023, section 3.2, with the index bounds rounded outwards as published code does."""
    freq = plain(base, dims)

    def index_of(turns):
        return dims * np.log(original / (turns * 2 * np.pi)) / (2 * np.log(base))

    low, high = max(np.floor(index_of(fast)), 0), min(np.ceil(index_of(slow)), dims - 1)
    ramp = np.clip((np.arange(dims // 2) - low) / (high - low), 0, 1)
    mask = (1 - ramp) * extrapolation
    return freq / factor * (1 - mask) + freq * mask, 0.1 * np.log(factor) + 1


def test_yarn_scaling(path):
    f = wide_llama(1e4).set("llama.rope.scaling.type", STRING, "yarn")
    f.set("llama.rope.scaling.factor", F32, 16.0)
    f.set("llama.rope.scaling.original_context_length", U32, 4096)
    same_angles(f.write(path), *yarn(1e4, 128, 16.0, 4096))
    f.set("llama.rope.scaling.yarn_beta_fast", F32, 16.0)
    f.set("llama.rope.scaling.yarn_beta_slow", F32, 2.0)
    f.set("llama.rope.scaling.yarn_ext_factor", F32, 0.5)
    f.set("llama.rope.scaling.attn_factor", F32, 1.25)
    freq, magnitude = yarn(1e4, 128, 16.0, 4096, 16.0, 2.0, 0.5)
    same_angles(f.write(path), freq, magnitude * 1.25)


# ---- agreement with the package gguf ----

def test_files_of_the_package_gguf_are_read(tmp_path, path):
    w = gguf.GGUFWriter(str(path), "llama")
    w.add_block_count(1)
    w.add_context_length(64)
    w.add_embedding_length(32)
    w.add_feed_forward_length(64)
    w.add_head_count(2)
    w.add_head_count_kv(1)
    w.add_layer_norm_rms_eps(1e-6)
    w.add_token_list([f"t{i}" for i in range(10)])
    rng = np.random.default_rng(1)
    for name, shape in [("token_embd.weight", (10, 32)), ("output_norm.weight", (32,)),
                        ("blk.0.attn_norm.weight", (32,)), ("blk.0.attn_q.weight", (32, 32)),
                        ("blk.0.attn_k.weight", (16, 32)), ("blk.0.attn_v.weight", (16, 32)),
                        ("blk.0.attn_output.weight", (32, 32)), ("blk.0.ffn_norm.weight", (32,)),
                        ("blk.0.ffn_gate.weight", (64, 32)), ("blk.0.ffn_up.weight", (64, 32)),
                        ("blk.0.ffn_down.weight", (32, 64))]:
        w.add_tensor(name, rng.normal(0, 1, shape).astype(np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    accepted(path)
