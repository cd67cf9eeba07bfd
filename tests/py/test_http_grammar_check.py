"""POST /v1/grammar/check: sizes, samples that independent validators accept, and the place of what is refused."""

import json
import re

import jsonschema
import pytest

from http_rig import start_fake
from test_grammar import SCHEMAS, TREE, WEATHER

PATH = "/v1/grammar/check"


def check(server, **fields):
    reply = server.post(PATH, fields)
    assert reply.status == 200, reply.body
    return reply.json


@pytest.mark.parametrize("index", range(0, len(SCHEMAS), 3))
def test_samples_of_a_schema_validate(fake, index):
    schema, _ = SCHEMAS[index]
    result = check(fake, guided_json=schema, samples=6, seed=index)
    assert result["valid"] and result["kind"] == "json_schema" and result["field"] == "guided_json", result
    validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
    assert len(result["samples"]) == 6 and None not in result["samples"], result
    for sample in result["samples"]:
        validator.validate(json.loads(sample))
        assert len(result["samples"][0]) <= len(sample), "the first is the shortest"


@pytest.mark.parametrize("fields, kind, pattern", [
    ({"guided_regex": "(\\d{3}-){2}[a-f]+"}, "regex", r"(\d{3}-){2}[a-f]+"),
    ({"structured_outputs": {"choice": ["north", "south"]}}, "choice", "north|south"),
    ({"grammar": 'root ::= "(" root ")" | [a-z]+'}, "gbnf", r"\(*[a-z]+\)*"),
])
def test_samples_of_the_other_notations_match(fake, fields, kind, pattern):
    result = check(fake, samples=16, **fields)
    assert result["kind"] == kind and all(re.fullmatch(pattern, s, re.ASCII) for s in result["samples"]), result
    assert len(set(result["samples"])) > 1
    assert check(fake, samples=16, **fields) == result, "samples are a function of the seed"


def test_sizes_grow_with_the_grammar_and_depth_is_what_every_text_needs(fake):
    small, large = (check(fake, guided_regex=f"a{{{n}}}")["size"] for n in (3, 300))
    assert small["states"] == 4 and large["states"] == 301 and small["bytes"] < large["bytes"]
    nested = check(fake, grammar='root ::= a "x"\na ::= b "y"\nb ::= c "z"\nc ::= "q"')
    assert nested["size"]["rules"] == 5 and nested["size"]["depth"] == 3 and nested["samples"] == ["qzyx"] * 3


def test_a_text_too_long_to_show_is_null(fake):
    assert check(fake, guided_regex="a{3000}", samples=1)["samples"] == [None]
    assert check(fake, guided_regex="a{3000}", samples=0)["samples"] == []


LONG = "a_rather_long_name_of_a_member" * 2


@pytest.mark.parametrize("fields, pointer, message", [
    ({"guided_json": {"properties": {"a": {"items": {"not": {}}}}}}, "#/properties/a/items/not", "not supported"),
    ({"json_schema": {"properties": {"a/b": {"type": "strin"}}}}, "#/properties/a~1b/type", "no type"),
    ({"guided_json": {"properties": {LONG: {"properties": {LONG: {"if": {}}}}}}}, f"#/properties/{LONG}/properties/{LONG}/if", "not supported"),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"$ref": "#/$defs/none"}}}}, "#/$ref", "no pointer"),
    ({"guided_json": {"type": "string", "pattern": "(?:\\D?){65536}"}}, None, "too large"),
    ({"guided_json": "{"}, None, "json"),
    ({"guided_regex": "(a"}, None, "byte 2"),
    ({"grammar": 'root ::= "a"\nx ::= y'}, None, "line 2, column 7"),
    ({"guided_choice": [1]}, None, "string"),
])
def test_what_is_refused_says_where(fake, fields, pointer, message):
    result = check(fake, **fields)
    assert result["valid"] is False and "samples" not in result and "size" not in result
    assert result["error"]["pointer"] == pointer and message in result["error"]["message"], result


@pytest.mark.parametrize("fields, param, message", [
    ({}, None, "is required"),
    ({"guided_regex": "a", "regex": "b"}, "regex", "both"),
    ({"guided_regex": "a", "samples": 17}, "samples", "16"),
    ({"response_format": {"type": "xml"}}, "response_format", "xml"),
    ({"guided_regex": "a", "model": "none"}, None, "none"),
])
def test_a_request_that_asks_nothing_sensible_is_an_error(fake, fields, param, message):
    reply = fake.post(PATH, fields)
    assert reply.status in (400, 404) and message in reply.error["message"], reply.body
    assert param is None or reply.error["param"] == param


def test_the_grammar_is_kept_for_the_request_that_follows():
    with start_fake() as server:
        size = check(server, guided_json=TREE)["size"]["bytes"]
        for _ in range(2):
            assert server.metric("millrace_client_memory_bytes", 'kind="grammars"') == size
            assert server.metric("millrace_key_memory_bytes") < size, "idle, it is on no key's account"
            assert server.complete(guided_json=TREE).status == 200
            server.wait_idle()


def test_what_there_is_no_memory_for_is_413():
    with start_fake("--server.memory", "1MiB") as server:
        reply = server.post(PATH, {"guided_json": WEATHER})
        assert reply.status == 413 and reply.error["code"] == "request_too_large" and "grammars" in reply.error["message"]
