"""`inspect`: every file that can be read is described, and everything missing is named.

Numbers are compared with those that the package gguf reads from the same file.
"""
import os
import re
import struct
import subprocess
from pathlib import Path

import gguf
import pytest

from gguf_bytes import ARRAY, F32, I32, STRING, U32, Tensor, array, string, tiny_llama

TOOL = Path(os.environ["MILLRACE_BUILD"]) / "tests" / "gguf_inspect"
DATA = Path(os.environ["MILLRACE_TEST_DATA"])
VOCABS = sorted((DATA / "vocabs").glob("ggml-vocab-*.gguf"))
SECTIONS = ["file", "architecture", "tensors", "tokenizer", "chat template",
            "missing or unsupported"]


def inspect(path):
    done = subprocess.run([str(TOOL), str(path)], capture_output=True, timeout=600)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def sections(path):
    code, out, err = inspect(path)
    assert (code, err) == (0, "")
    found, name = {}, None
    for line in out.splitlines():
        if line and not line.startswith(" "):
            name = line
            found[name] = []
        elif line:
            found[name].append(line.strip())
    return found


def facts(lines):
    return dict(re.split(r"\s{2,}", line, maxsplit=1) for line in lines if "  " in line)


def problems(path):
    return sections(path)["missing or unsupported"]


def array_count(file, key):
    """Elements of an array by the bytes behind its key (the package's reader takes a minute)."""
    raw = file.read_bytes()
    at = raw.index(string(key)) + len(string(key))
    kind, _, count = struct.unpack_from("<IIQ", raw, at)
    assert kind == ARRAY
    return count


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.gguf"


@pytest.mark.parametrize("vocab", VOCABS, ids=lambda p: p.stem)
def test_every_vocabulary_file_is_described(vocab):
    found = sections(vocab)
    assert [s for s in found if s != "memory"] == SECTIONS
    assert any("vocabulary only" in p or "is not supported" in p
               for p in found["missing or unsupported"])
    assert facts(found["tokenizer"])["tokens"] == str(array_count(vocab, "tokenizer.ggml.tokens"))


def test_the_version_2_vocabulary_is_read_and_what_it_lacks_is_named():
    [file] = [v for v in VOCABS if v.read_bytes()[4:8] == b"\2\0\0\0"]
    assert facts(sections(file)["file"])["format"].startswith("gguf version 2,")
    raw = file.read_bytes()
    missing = [k for k in ("tokenizer.ggml.pre", "tokenizer.ggml.merges") if string(k) not in raw]
    assert missing
    listed = problems(file)
    for key in missing:
        assert f"{key} is missing" in listed


def counts(file):
    found = sections(file)
    assert facts(found["file"])["size"].startswith(f"{file.stat().st_size} bytes")
    return {line.split()[0]: tuple(map(int, line.split()[1:4:2])) for line in found["tensors"]}


def test_counts_equal_those_of_the_package_gguf():
    file = DATA / "models" / "smollm2-135m.gguf"
    want = {}
    for t in gguf.GGUFReader(file).tensors:
        n, size = want.get(t.tensor_type.name, (0, 0))
        want[t.tensor_type.name] = (n + 1, size + int(t.n_bytes))
    want["all"] = tuple(map(sum, zip(*want.values())))
    assert counts(file) == want


def test_counts_of_the_k_quant_model():
    got = counts(DATA / "models" / "gemma3-270m.gguf")
    assert {k: n for k, (n, _) in got.items()} == \
        {"F32": 109, "Q8_0": 10, "Q5_0": 81, "Q4_K": 27, "Q6_K": 9, "all": 236}


def test_the_default_model_can_be_served():
    found = sections(DATA / "models" / "smollm2-135m.gguf")
    assert found["missing or unsupported"] == ["nothing: this file can be served"]
    shape = facts(found["architecture"])
    assert (shape["layers"], shape["heads"], shape["kv heads"], shape["head size"]) == \
        ("30", "9", "3", "64")
    assert facts(found["tokenizer"])["generation stops at"] == "0 <|endoftext|>"
    assert "parses" in found["chat template"][0]
    assert facts(found["memory"])["kv"].startswith("23040 bytes per token (f16), 46080 (f32)")


def test_the_other_known_model_can_be_served():
    found = sections(DATA / "models" / "gemma3-270m.gguf")
    assert found["missing or unsupported"] == ["nothing: this file can be served"]
    shown = facts(found["architecture"])
    assert (shown["layers"], shown["heads"], shown["kv heads"], shown["head size"]) == \
        ("18", "4", "1", "256")
    assert (shown["gate"], shown["rope base"]) == ("gelu", "1e+06")
    assert shown["sliding window"] == "512 positions in 15 of 18 layers, rope base 10000 there"
    stops = [line.split(None, 1)[-1] for line in found["tokenizer"]][-2:]
    assert [s.split()[-1] for s in stops] == ["<eos>", "<end_of_turn>"]
    assert found["chat template"][0].startswith("none")
    assert facts(found["memory"])["kv"].startswith("18432 bytes per token (f16)")


def test_an_unsupported_architecture_shows_its_metadata(path):
    f = tiny_llama().set("general.architecture", STRING, "other").set("other.block_count", U32, 7)
    found = sections(f.write(path))
    assert found["missing or unsupported"][0].startswith("architecture 'other' is not supported yet; those that are: llama, qwen2")
    shown = facts(found["architecture"])
    assert shown["name"] == "other (not supported yet)"
    assert shown["block_count"] == "7"


def test_all_problems_are_listed_at_once(path):
    f = tiny_llama()
    f.tensors = [t for t in f.tensors if t.name not in ("blk.0.attn_q.weight", "output_norm.weight")]
    f.tensors.append(Tensor("blk.0.attn_output.bias", [32], [0.0] * 32))
    f.drop("tokenizer.ggml.pre").drop("tokenizer.ggml.merges")
    f.set("tokenizer.chat_template", STRING, "{% for %}")
    listed = problems(f.write(path))
    for line in ["tensor output_norm.weight is missing", "tensor blk.0.attn_q.weight is missing",
                 "tensor blk.0.attn_output.bias is not used by architecture llama",
                 "tokenizer.ggml.pre is missing", "tokenizer.ggml.merges is missing"]:
        assert line in listed
    assert any(line.startswith("chat template: ") for line in listed)
    assert len(listed) == 6


def test_unsupported_tensor_types_are_shown(path):
    f = tiny_llama(n_embd=256, n_heads=8, head_dim=32, n_kv=8)
    t = f.tensor("blk.1.ffn_up.weight")
    t.kind, t.data = 20, b"\0" * (256 * 48 // 32 * 18)
    found = sections(f.write(path))
    assert any("IQ4_NL" in line and "(not supported)" in line for line in found["tensors"])
    assert any("blk.1.ffn_up.weight has type IQ4_NL" in p
               for p in found["missing or unsupported"])


def test_text_of_the_file_cannot_drive_the_terminal(path):
    f = tiny_llama().set("general.name", STRING, "a\x1b[31mb\nc\x9b1md\x7f")
    f.set("llama.note\x1b", U32, 1)
    f.set("tokenizer.ggml.tokens", ARRAY, array(STRING, ["\x1b]0;x\x07"] * 40))
    _, out, _ = inspect(f.write(path))
    assert not [c for c in out if c != "\n" and not c.isprintable()]
    assert "a?[31mb?c?1md?" in out


def test_sampling_defaults_are_shown_and_impossible_ones_ignored(path):
    f = tiny_llama().set("general.sampling.temp", F32, 0.6).set("general.sampling.top_k", I32, 20)
    shown = facts(sections(f.write(path))["architecture"])
    assert (shown["sampling temperature"], shown["sampling top_k"]) == ("0.6", "20")
    f.set("general.sampling.top_p", F32, 1.5)
    code, out, err = inspect(f.write(path))
    assert code == 0 and "sampling top_p" not in out
    assert "general.sampling.top_p" in err and "ignored" in err


def test_what_is_no_gguf_is_an_error(path):
    path.write_bytes(b"PK\3\4" + b"\0" * 100)
    code, out, err = inspect(path)
    assert (code, out) == (1, "")
    assert len(err.splitlines()) == 1 and "not a gguf file" in err
