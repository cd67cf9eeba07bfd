"""Grammars that cost much: whatever a small body asks for is compiled off the loops, and every part of compiling is
bounded, so that none takes long. No answer is timed: what is bounded is refused with its reason."""

import json
import select

import pytest

from http_rig import start_fake

PATH = "/v1/completions"
REGEX = "(a|b)*a(a|b){24}"
GBNF = 'root ::= [ab]* "a" [ab]{24}'
PATTERN = {"type": "string", "pattern": REGEX}

COSTLY = {
    "regex": {"regex": REGEX},
    "guided_regex": {"guided_regex": REGEX},
    "structured_outputs": {"structured_outputs": {"regex": REGEX}},
    "guided_json": {"guided_json": PATTERN},
    "json_schema": {"json_schema": PATTERN},
    "response_format": {"response_format": {"type": "json_schema", "json_schema": {"schema": PATTERN}}},
    "grammar": {"grammar": GBNF},
    "guided_grammar": {"guided_grammar": GBNF},
}


def bodies():
    for name, fields in COSTLY.items():
        text = json.dumps({"prompt": "x", "max_tokens": 1, **fields})
        yield pytest.param(text, id=name)
        yield pytest.param(text.replace(f'"{name}"', f'"\\u{ord(name[0]):04x}{name[1:]}"', 1), id=f"{name} escaped")


@pytest.fixture(scope="module")
def fake():
    with start_fake("--server.threads", "1") as server:
        yield server


@pytest.mark.parametrize("body", list(bodies()))
def test_a_small_body_with_a_costly_grammar_is_not_compiled_on_a_loop(fake, body):
    """On the loop, 20 turns of it would have answered all."""
    assert len(body) < 1024
    conns = [fake.raw() for _ in range(8)]
    for c in conns:
        c.request("POST", PATH, body.encode())
    for _ in range(20):
        assert fake.ask("GET", "/health").status == 200
    assert sum(bool(select.select([c.sock], [], [], 0)[0]) for c in conns) < 8
    for c in conns:
        reply = c.reply()
        assert reply.status == 400 and "too large" in reply.error["message"], reply.body
        c.close()


def chain(n, last):
    rules = [f"r{i} ::= r{i + 1} | [a-z]{{12}} \"{i}\"" for i in range(n)]
    return "\n".join(['root ::= "a" r0', *rules, f"r{n} ::= {last}"])


SECOND = [f"b{i}" for i in range(20000)]
BOUNDED = {
    "many names in a grammar": ({"grammar": "root ::= " + " ".join(f"r{i:05x}" for i in range(100000))}, "too large"),
    "many uses of a name": ({"grammar": "root ::= " + "a " * 300000}, "too large"),
    "two long enumerations": ({"guided_json": {"oneOf": [{"enum": [f"a{i}" for i in range(20000)]}, {"enum": SECOND}]}}, "steps of compiling"),
    "many constants": ({"guided_json": {"oneOf": [{"const": i} for i in range(20000)]}}, "too long to compare"),
    "many types": ({"guided_json": {"oneOf": [{"type": ["null"] * 2000}] * 50}}, "no type"),
    "wide objects in oneOf": ({"guided_json": {"oneOf": [
        {"properties": {f"{side}{i}": {} for i in range(4000)}, "required": [f"{side}{i}" for i in range(4000)]} for side in "ab"]}}, "too long to compare"),
    "many definitions": ({"guided_json": {"$defs": {f"d{i}": {} for i in range(5000)}, "type": "null"}}, "4096 members"),
    "many patterns of names": ({"guided_json": {
        "type": "object", "properties": {f"m{i}": {} for i in range(500)}, "additionalProperties": False,
        "patternProperties": {rf"(a|b)*a(a|b){{12}}{i}": {} for i in range(30)}}}, "steps of compiling"),
    "many calls": ({"grammar": 'root ::= "x" (' + "|".join(f"r{i}" for i in range(2000)) + ")?\n" + "root2 ::= (" +
                    "|".join(f"r{i}" for i in range(2000)) + "){0,3} (r1?){60000}\n" + "\n".join(f'r{i} ::= "{i}"' for i in range(2000))}, "steps of compiling"),
}  # fmt: skip


@pytest.mark.parametrize("name", BOUNDED)
def test_what_would_take_long_is_refused(fake, name):
    fields, why = BOUNDED[name]
    reply = fake.post(PATH, {"prompt": "x", "max_tokens": 1, **fields})
    assert reply.status == 400 and why in reply.error["message"], reply.body


def test_a_long_chain_of_empty_rules_is_compiled(fake):
    """Round by round over all rules, each with all states: that was minutes."""
    reply = fake.post(PATH, {"prompt": "x", "max_tokens": 1, "grammar": chain(4000, '""')})
    assert reply.status in (200, 400), reply.body


def crossing():
    """Every character leads through 120 rules, each of which calls the same 120 others."""
    alternatives = "|".join
    return "\n".join([
        "root ::= " + alternatives(f"t{i}" for i in range(120)), *[f"t{i} ::= " + alternatives(f"u{k}" for k in range(120)) for i in range(120)],
        *[f"u{i} ::= v" for i in range(120)], 'v ::= [^"] root | [^"]'])  # fmt: skip


def test_a_mask_that_would_take_too_long_ends_the_request_with_the_limit(real):
    reply = real.post(PATH, {"prompt": "x", "max_tokens": 1, "grammar": crossing()})
    assert reply.status == 400 and "too ambiguous at position" in reply.error["message"], reply.body
    assert "over 33554432 steps" in reply.error["message"]


def test_what_needs_rules_deeper_than_the_stack_is_refused_before_it_runs(fake):
    rules = "\n".join(f'r{i} ::= r{i + 1} "a"' for i in range(100))
    reply = fake.post(PATH, {"prompt": "x", "grammar": f'root ::= r0 "x"\n{rules}\nr100 ::= "b"'})
    assert reply.status == 400 and reply.error["code"] == "invalid_grammar", reply.body
    assert "nested at least 101 deep, the limit is 64" in reply.error["message"]


def test_what_bans_all_that_the_grammar_allows_is_not_called_a_limit(real):
    token = real.post("/tokenize", {"prompt": "a", "add_special_tokens": False}).json["tokens"]
    reply = real.post(PATH, {"prompt": "x", "guided_regex": "a", "min_tokens": 1, "stop_token_ids": token})
    assert reply.status == 400 and "every token that the grammar allows is banned" in reply.error["message"], reply.body
