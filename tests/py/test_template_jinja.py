"""Real chat templates render byte for byte as jinja2 renders them when transformers sets it up."""

import mmap
import os
import pathlib
import re
import struct

import pytest

import template_oracle as oracle
from template_cases import CONVERSATIONS, SPECIAL
from template_oracle import Failed, Ours, Raised

DATA = pathlib.Path(os.environ["MILLRACE_TEST_DATA"])


def templates_of_ggufs():
    """The value of tokenizer.chat_template, found by its key: gguf's own reader takes seconds a file."""
    found = {}
    key = b"tokenizer.chat_template" + struct.pack("<I", 8)  # type 8: string
    for path in sorted(DATA.glob("models/*.gguf")) + sorted(DATA.glob("vocabs/*.gguf")):
        with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as data:
            at = data.find(key)
            if at < 0:
                continue
            at += len(key)
            (length,) = struct.unpack_from("<Q", data, at)
            found[path.name] = data[at + 8 : at + 8 + length].decode()
    return found


def all_templates():
    found = {p.name: p.read_text(encoding="utf-8") for p in sorted(DATA.glob("templates/*.jinja"))}
    found.update(templates_of_ggufs())
    return found


TEMPLATES = all_templates()


@pytest.fixture(scope="module")
def ours():
    renderer = Ours()
    yield renderer
    renderer.close()


def expected_of(compiled, **case):
    try:
        return "text", oracle.render(compiled, **case)
    except Raised as e:
        return "raised", str(e)
    except Exception as e:  # noqa: BLE001 - jinja2 lets any Python error out
        return "error", repr(e)


def got_of(ours, source, **case):
    try:
        text, ranges = ours.render(source, **case)
        return "text", text, ranges
    except Failed as e:
        return "failed", e.text, e.status


def compare(ours, name, source, compiled, case_name, case, prompt):
    """None, or what differs."""
    case = {"add_generation_prompt": prompt, **case}
    kind, want = expected_of(compiled, **case) if compiled else ("error", "does not compile")
    got = got_of(ours, source, **case)
    where = f"{name} / {case_name} / add_generation_prompt={prompt}"
    if kind == "text":
        if got[0] == "failed":
            return f"{where}: ours failed: {got[1]}"
        if got[1] != want:
            at = next((i for i, (a, b) in enumerate(zip(got[1], want)) if a != b), min(len(got[1]), len(want)))
            return f"{where}: differs at {at}: got {got[1][at - 20:at + 60]!r}, want {want[at - 20:at + 60]!r}"
    elif kind == "raised":
        if got[0] != "failed" or got[2] != "ERR_INVALID":
            return f"{where}: raises {want!r}, ours: {got}"
        if got[1].encode() != want.encode()[:511]:
            return f"{where}: message {got[1]!r}, want {want!r}"
    elif got[0] != "failed":
        return f"{where}: jinja2 fails with {want}, ours gives {got[1]!r}"
    return None


def test_there_are_at_least_forty_templates_and_twenty_conversations():
    assert len(TEMPLATES) >= 40
    assert len(CONVERSATIONS) >= 20


@pytest.mark.parametrize("name", TEMPLATES)
def test_template_renders_as_jinja2_does(ours, name):
    source = TEMPLATES[name]
    try:
        compiled = oracle.compile_template(source)
    except Exception:  # noqa: BLE001 - a syntax error or an unknown filter
        compiled = None
    wrong = []
    for case_name, case in CONVERSATIONS.items():
        for prompt in (False, True):
            difference = compare(ours, name, source, compiled, case_name, case, prompt)
            if difference:
                wrong.append(difference)
    assert not wrong, "\n".join(wrong)
