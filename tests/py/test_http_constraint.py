"""Constrained output through the server, on the real model: answers conform, whatever else is in the batch."""

import concurrent.futures
import json
import re

import jsonschema
import pytest

PERSON = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 30}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
          "tags": {"type": "array", "items": {"enum": ["a", "b", "c"]}, "maxItems": 3}}, "required": ["name", "age", "tags"],
          "additionalProperties": False}
FORMAT = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": PERSON}}


def chat(server, **fields):
    fields = {"temperature": 1, "max_tokens": 200, **fields}
    return server.chat(**fields)


def content(reply, i=0):
    assert reply.status == 200, reply.body
    return reply.json["choices"][i]["message"]["content"]


@pytest.mark.parametrize("seed", range(4))
def test_a_finished_answer_validates(real, seed):
    reply = chat(real, seed=seed, response_format=FORMAT)
    text = content(reply)
    assert reply.json["choices"][0]["finish_reason"] == "stop"
    jsonschema.validate(json.loads(text), PERSON)


def test_every_choice_has_a_place_of_its_own_in_the_grammar(real):
    reply = chat(real, seed=3, n=4, response_format=FORMAT)
    texts = [c["message"]["content"] for c in reply.json["choices"]]
    for text in texts:
        jsonschema.validate(json.loads(text), PERSON)
    assert len(set(texts)) > 1


@pytest.mark.heavy
def test_an_answer_is_the_same_alone_and_in_company(real):
    alone = [content(chat(real, seed=s, response_format=FORMAT)) for s in range(6)]
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        free = [pool.submit(chat, real, seed=s, max_tokens=40) for s in range(6)]
        bound = [pool.submit(chat, real, seed=s, response_format=FORMAT) for s in range(6)]
        assert [content(f.result()) for f in bound] == alone
        assert all(f.result().status == 200 for f in free)


@pytest.mark.parametrize("fields, pattern", [
    ({"guided_choice": ["yes", "no"]}, "yes|no"),
    ({"structured_outputs": {"choice": ["north", "south"]}}, "north|south"),
    ({"guided_regex": "[0-9]{4}-[0-9]{2}"}, r"\d{4}-\d{2}"),
    ({"regex": "(ab|cd){2}"}, "(ab|cd){2}"),
    ({"structured_outputs": {"regex": "x{3}"}}, "xxx"),
    ({"grammar": "root ::= \"<\" [a-z]{2,5} \">\""}, "<[a-z]{2,5}>"),
    ({"guided_grammar": "root ::= \"ok\" | \"bad\""}, "ok|bad"),
    ({"guided_json": {"type": "integer", "minimum": 5, "maximum": 7}}, "[567]"),
    ({"guided_json": "{\"enum\": [\"q\"]}"}, '"q"'),
    ({"json_schema": {"type": "boolean"}}, "true|false"),
    ({"structured_outputs": {"json": {"const": None}}}, "null"),
    ({"response_format": {"type": "json_object", "schema": {"const": {}}}}, r"\{\}"),
])
def test_fields_of_other_servers(real, fields, pattern):
    for temperature in (0, 1):
        assert re.fullmatch(pattern, content(chat(real, temperature=temperature, **fields)))


def test_json_object_gives_an_object(real):
    reply = chat(real, seed=5, max_tokens=400, response_format={"type": "json_object"})
    if reply.json["choices"][0]["finish_reason"] == "stop":
        assert isinstance(json.loads(content(reply)), dict)


def test_an_answer_that_is_cut_says_so(real):
    reply = chat(real, max_tokens=3, response_format=FORMAT)
    assert reply.json["choices"][0]["finish_reason"] == "length" and content(reply)[0] == "{"


def test_an_end_token_that_is_ignored_still_ends_a_whole_answer(real):
    reply = chat(real, ignore_eos=True, max_tokens=50, guided_regex="a+")
    assert re.fullmatch("a+", content(reply))


def test_a_stream_is_the_answer_in_pieces(real):
    whole = content(chat(real, seed=2, response_format=FORMAT))
    events = chat(real, seed=2, stream=True, response_format=FORMAT).events()
    chunks = [e for e in events if isinstance(e, dict)]
    assert "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"]) == whole


@pytest.mark.parametrize("fields, param, what", [
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"properties": {"a": {"not": {}}}}}}},
     "response_format", "#/properties/a/not"),
    ({"response_format": {"type": "json_schema"}}, "response_format", "json_schema.schema"),
    ({"response_format": {"type": "xml"}}, "response_format", "xml"),
    ({"response_format": "json"}, "response_format", "object"),
    ({"guided_regex": "(a"}, "guided_regex", "without its )"),
    ({"guided_regex": 3}, "guided_regex", "string"),
    ({"grammar": "root ::= x"}, "grammar", "not defined"),
    ({"guided_choice": [1]}, "guided_choice", "string"),
    ({"guided_json": "{"}, "guided_json", ""),
    ({"guided_choice": ["a"], "regex": "b"}, "regex", "both"),
    ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs", "both"),
    ({"structured_outputs": {"structural_tag": {}}}, "structured_outputs", "structural_tag"),
    ({"regex": "(((a?){99}){99}){99}"}, "regex", "too large"),
])
def test_what_cannot_be_honoured_is_400_with_field_and_place(real, fields, param, what):
    reply = chat(real, **fields)
    assert reply.status == 400 and reply.error["param"] == param and what in reply.error["message"], reply.body
    assert reply.error["type"] == "invalid_request_error"


@pytest.mark.parametrize("field", ["guided_choice", "grammar", "regex", "guided_json"])
def test_empty_and_null_constraints_are_none(real, field):
    empty = {"guided_choice": [], "grammar": "", "regex": "", "guided_json": None}[field]
    assert content(chat(real, temperature=0, max_tokens=5, **{field: empty})) == content(chat(real, temperature=0, max_tokens=5))
