"""Small templates against jinja2: expressions, filters, tests, methods, statements, whitespace.

Each must give the same text, or fail where jinja2 fails. UNSUPPORTED lists snippets that millrace refuses by
design although jinja2 renders them."""

import pytest

import template_oracle as oracle
from template_oracle import Failed, Ours, Raised
from template_snippets import EXPRESSIONS, FILTERS, STATEMENTS, UNSUPPORTED, VARIABLES, WHITESPACE


def sources():
    out = []
    for line in EXPRESSIONS.strip().splitlines():
        out += ["{{ " + e + " }}" for e in line.split("|") if e]
    out += ["{{ " + e + " }}" for e in FILTERS.split("\n")]
    return list(dict.fromkeys(out + STATEMENTS + WHITESPACE))


@pytest.fixture(scope="module")
def ours():
    renderer = Ours()
    yield renderer
    renderer.close()


def want_of(source):
    try:
        return "text", oracle.render(oracle.compile_template(source), [], kwargs=VARIABLES)
    except Raised as e:
        return "raised", str(e)
    except Exception as e:  # noqa: BLE001 - any Python error may come out of a template
        return "error", repr(e)


def got_of(ours, source):
    try:
        return "text", ours.render(source, [], kwargs=VARIABLES)[0]
    except Failed as e:
        return e.status, e.text


def judge(ours, source):
    kind, want = want_of(source)
    got_kind, got = got_of(ours, source)
    if source in UNSUPPORTED:
        return None if got_kind == "ERR_UNSUPPORTED" else f"{source!r}: no longer unsupported: {got!r}"
    if kind == "text" and got != want:
        return f"{source!r}: got {got_kind} {got!r}, want {want!r}"
    if kind == "raised" and (got_kind, got) != ("ERR_INVALID", want):
        return f"{source!r}: got {got_kind} {got!r}, want the message {want!r}"
    if kind == "error" and got_kind == "text":
        return f"{source!r}: gives {got!r}, jinja2 fails: {want}"
    return None


def test_there_are_hundreds_of_snippets():
    assert len(sources()) >= 600


def test_snippets_render_as_jinja2_does(ours):
    wrong = [w for w in (judge(ours, source) for source in sources()) if w]
    assert not wrong, f"{len(wrong)} of {len(sources())}\n" + "\n".join(wrong)
