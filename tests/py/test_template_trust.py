"""Which bytes of a rendering count as the template's own: never one that came from the request,
always the template's markers."""

import copy
import re

import pytest

import test_template_jinja as jinja_cases
from template_cases import CONVERSATIONS, SPECIAL
from template_oracle import BOS, EOS, Failed, Ours

TEMPLATES = jinja_cases.TEMPLATES
# Letters of the request are moved to a private-use block, so that each byte of the output tells
# where it came from. Text like control tokens keeps its shape.
SHIFT = 0xE000
KEEP = {"role", "type", "id", "tool_call_id"}
MARKERS = re.compile(
    r"<\|[A-Za-z_0-9]+\|>|<｜[^｜]+｜>|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\]"
    r"|<(?:start|end)_of_turn>|</?s>|<(?:/|)think>|<\|?(?:im_start|im_end)\|?>"
)


def private(text):
    return "".join(chr(SHIFT + ord(c)) if c.isascii() and c.isalpha() else c for c in text)


def mask(value, key=None):
    if isinstance(value, str):
        return value if key in KEEP else private(value)
    if isinstance(value, list):
        return [mask(v) for v in value]
    if isinstance(value, dict):
        return {k: mask(v, k) for k, v in value.items()}
    return value


@pytest.fixture(scope="module")
def ours():
    renderer = Ours()
    yield renderer
    renderer.close()


def trusted_flags(text, ranges):
    data = text.encode()
    flags = bytearray(len(data))
    last = -1
    for start, end in ranges:
        assert last < start < end <= len(data), "ranges ascend and don't touch"
        flags[start:end] = b"\1" * (end - start)
        last = end
    return data, flags


def rendered(ours, source, case, prompt=True):
    try:
        text, ranges = ours.render(source, add_generation_prompt=prompt, **case)
    except Failed:
        return None
    return trusted_flags(text, ranges)


@pytest.mark.parametrize("name", TEMPLATES)
def test_no_byte_of_the_request_is_trusted(ours, name):
    shown = 0
    for case_name, case in CONVERSATIONS.items():
        result = rendered(ours, TEMPLATES[name], mask(copy.deepcopy(case)))
        if not result:
            continue
        data, flags = result
        for m in re.finditer("[\ue000-\ue0ff]+".encode().decode(), data.decode()):
            start = len(data.decode()[: m.start()].encode())
            end = start + len(m.group().encode())
            assert not any(flags[start:end]), f"{case_name}: {m.group()!r} counts as the template's"
            shown += 1
    assert shown >= 3


@pytest.mark.parametrize("name", TEMPLATES)
def test_control_text_in_messages_is_never_trusted(ours, name):
    nonce = "q7z" + SPECIAL.replace("\n", " ") + "q7z"
    needle = nonce.encode()
    seen = 0
    for case_name in ("special_text", "tool_special", "one_user", "parts", "multi_turn"):
        case = copy.deepcopy(CONVERSATIONS[case_name])
        for message in case["messages"]:
            message["content"] = nonce
        result = rendered(ours, TEMPLATES[name], case)
        if not result:
            continue
        data, flags = result
        at = data.find(needle)
        while at >= 0:
            assert not any(flags[at : at + len(needle)]), case_name
            seen += 1
            at = data.find(needle, at + 1)
    # Templates that only read parts show nothing here; all others show each message.
    assert seen or "SPECIAL" not in TEMPLATES[name] and not seen


@pytest.mark.parametrize("name", TEMPLATES)
def test_markers_of_the_template_are_always_trusted(ours, name):
    for case_name, case in CONVERSATIONS.items():
        if "special" in case_name or "thinking_inline" in case_name:
            continue
        result = rendered(ours, TEMPLATES[name], case)
        if not result:
            continue
        data, flags = result
        for m in MARKERS.finditer(data.decode()):
            start = len(data.decode()[: m.start()].encode())
            marker = m.group().encode()
            assert all(flags[start : start + len(marker)]), f"{case_name}: {m.group()} is not trusted"


SNIPPETS = [
    # template, marked text: bytes within ⟦⟧ must be trusted, all others not
    ("<x>{{ v }}</x>", "⟦<x>⟧ab⟦</x>⟧"),
    ("{{ '<x>' + v + '</x>' }}", "⟦<x>⟧ab⟦</x>⟧"),
    ("{{ '<x>' ~ v ~ 1 }}", "⟦<x>⟧ab1"),
    ("{{ ('<x>' + v + '<y>')[1:5] }}", "⟦x>⟧ab"),
    ("{{ ('<x>' + v + '<y>')[::-1] }}", "⟦>y<⟧ba⟦>x<⟧"),
    ("{{ ('  <x>' + v + '  ')|trim }}", "⟦<x>⟧ab"),
    ("{{ ('<x>' + v).upper() }}", "⟦<X>⟧AB"),
    ("{{ ('<x>-' + v).split('-')|join('|') }}", "⟦<x>⟧⟦|⟧ab"),
    ("{{ v.replace('a', '<x>') }}", "⟦<x>⟧b"),
    ("{{ '<x>'.replace('x', v) }}", "⟦<⟧ab⟦>⟧"),
    ("{{ '<%s>' % v }}", "⟦<⟧ab⟦>⟧"),
    ("{{ '<{}>'.format(v) }}", "⟦<⟧ab⟦>⟧"),
    ("{{ '<x>'|tojson }}", '"<x>"'),
    ("{{ ['<x>'] }}", "['<x>']"),
    ("{{ v|tojson }}", '"ab"'),
    ("{% set q %}<x>{{ v }}{% endset %}{{ q }}", "⟦<x>⟧ab"),
    ("{% macro m(a) %}<{{ a }}>{% endmacro %}{{ m(v) }}{{ m('x') }}", "⟦<⟧ab⟦><x>⟧"),
    ("{% filter upper %}<x>{{ v }}{% endfilter %}", "⟦<X>⟧AB"),
    ("{{ ('<x>' + v)|indent(2, true) }}", "⟦  <x>⟧ab"),
    ("{{ ('<x>' + v)|list|join }}", "⟦<x>⟧ab"),
    ("{{ {'k': '<x>'}['k'] }}{{ {'k': v}.k }}", "⟦<x>⟧ab"),
    ("{{ bos_token }}{{ eos_token }}", "⟦<s></s>⟧"),
    ("{{ messages[0].role }}{{ messages[1].role }}", "⟦user⟧evil"),
    ("{{ messages[0].content }}", "user"),
    ("{{ ('<' + v)|replace('a', '') }}", "⟦<⟧b"),
    ("{% for c in '<x>' + v %}{{ c }}{% endfor %}", "⟦<x>⟧ab"),
    ("{{ v.ljust(4, '<') }}", "ab⟦<<⟧"),
    ("{{ '<'|safe + v + '<' }}", "⟦<⟧ab⟦&lt;⟧"),
    ("{{ ('<|' + messages[0].role + '|>') }}", "⟦<|user|>⟧"),
    ("{{ '<x>' if v == 'ab' else 'n' }}", "⟦<x>⟧"),
    ("{{ v|default('<x>') }}{{ nope|default('<x>') }}", "ab⟦<x>⟧"),
    ("{{ 'ß'.upper() + v }}", "⟦SS⟧ab"),
]


@pytest.mark.parametrize("source, marked", SNIPPETS)
def test_marks_follow_the_text(ours, source, marked):
    messages = [{"role": "user", "content": "user"}, {"role": "evil", "content": ""}]
    text, ranges = ours.render(source, messages, kwargs={"v": "ab"})
    data, flags = trusted_flags(text, ranges)
    want_text, want_flags, inside = bytearray(), bytearray(), False
    for c in marked:
        if c in "⟦⟧":
            inside = c == "⟦"
        else:
            want_text += c.encode()
            want_flags += bytes([inside] * len(c.encode()))
    assert data == bytes(want_text)
    assert flags == want_flags


def test_a_kwarg_that_replaces_a_token_is_data(ours):
    text, ranges = ours.render("{{ bos_token }}|", [], kwargs={"bos_token": "<evil>"})
    assert text == "<evil>|" and ranges == [(6, 7)]


def test_ranges_are_offsets_of_the_text_without_a_byte_between_neighbours(ours):
    text, ranges = ours.render("a{{ 'b' }}{# x #}c{{ v }}d", [], kwargs={"v": "é"})
    assert (text, ranges) == ("abcéd", [(0, 3), (5, 6)])
    assert BOS and EOS
