"""Grammars against independent validators: every sample that the masks allow validates with jsonschema (or re), no
invalid instance is a whole match, masks equal matching each token's bytes, and what cannot be honoured is refused
with its place. grammar_check.c draws the samples token by token from a real vocabulary."""

import json
import os
import pathlib
import random
import re
import subprocess

import jsonschema
import pytest

BUILD = pathlib.Path(os.environ["MILLRACE_BUILD"])
DATA = pathlib.Path(os.environ["MILLRACE_TEST_DATA"])


class Checker:
    def __init__(self, model):
        self.process = subprocess.Popen([BUILD / "tests/grammar_check", DATA / "models" / f"{model}.gguf"], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, kind, source, texts=(), samples=0, seed=1, masks=0):
        line = {"kind": kind, "source": source, "texts": list(texts), "samples": samples, "seed": seed, "masks": masks}
        self.process.stdin.write(json.dumps(line) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        assert self.process.wait() == 0


@pytest.fixture(scope="module")
def checker():
    c = Checker("smollm2-135m")
    yield c
    c.close()


@pytest.fixture(scope="module")
def gemma():
    c = Checker("gemma3-270m")
    yield c
    c.close()


WEATHER = {"type": "object", "properties": {"city": {"type": "string"}, "unit": {"enum": ["C", "F"]},
           "days": {"type": "integer", "minimum": 1, "maximum": 14}}, "required": ["city"], "additionalProperties": False}
TREE = {"$defs": {"node": {"type": "object", "properties": {"value": {"type": "number"}, "children": {
        "type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 3}}, "required": ["value"],
        "additionalProperties": False}}, "$ref": "#/$defs/node"}
SHAPES = {"oneOf": [
    {"type": "object", "properties": {"kind": {"const": "circle"}, "r": {"type": "number", "exclusiveMinimum": 0}},
     "required": ["kind", "r"], "additionalProperties": False},
    {"type": "object", "properties": {"kind": {"const": "box"}, "w": {"type": "integer", "minimum": 1},
                                      "h": {"type": "integer", "minimum": 1}}, "required": ["kind", "w", "h"]}]}

# (schema, instances that do not validate)
SCHEMAS = [
    (True, []),
    ({}, []),
    ({"type": "object"}, [[], 1, "x"]),
    ({"type": "null"}, [0, False]),
    ({"type": "boolean"}, [None, "true", 1]),
    ({"type": "string"}, [1, None]),
    ({"type": ["string", "null"]}, [1, []]),
    ({"type": "number"}, ["1", None]),
    ({"type": "integer"}, [1.5, "1"]),
    ({"type": "integer", "minimum": 10, "maximum": 20}, [9, 21, 100, -10]),
    ({"type": "integer", "minimum": -5, "maximum": 5}, [-6, 6, 10]),
    ({"type": "integer", "minimum": 0}, [-1]),
    ({"type": "integer", "maximum": -3}, [-2, 0, 3]),
    ({"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 100}, [0, 100, -1]),
    ({"type": "integer", "minimum": 998, "maximum": 1203}, [997, 1204, 99, 12030]),
    ({"type": "integer", "multipleOf": 7}, [1, 8, 20]),
    ({"type": "integer", "minimum": 0, "maximum": 1000, "multipleOf": 25}, [24, 1025, -25]),
    ({"type": "number", "minimum": 0, "maximum": 1}, [-0.1, 1.1, 2]),
    ({"type": "number", "minimum": 0.25, "maximum": 0.75}, [0, 1, 0.2, 0.8]),
    ({"type": "number", "exclusiveMinimum": -1.5, "maximum": 2.5}, [-1.5, -2, 2.6]),
    ({"type": "number", "minimum": 0, "maximum": 10, "multipleOf": 0.5}, [0.3, 10.5]),
    ({"type": "number", "minimum": -273.15}, [-273.16, -300]),
    ({"minimum": 3}, [2, 0]),
    ({"type": "string", "minLength": 2, "maxLength": 5}, ["", "a", "abcdef", "äöüßéè"]),
    ({"type": "string", "minLength": 3}, ["ab", ""]),
    ({"type": "string", "maxLength": 0}, ["a"]),
    ({"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3,5}$"}, ["A-123", "AB-12", "AB-123456", "ab-123"]),
    ({"type": "string", "pattern": "^(a|b)*c?$"}, ["d", "ca"]),
    ({"type": "string", "pattern": "^[\\w.]{1,8}@[\\w.]{1,8}\\.com$"}, ["a@b.de", "@b.com"]),
    ({"type": "string", "pattern": "^\"\\\\?\\n\"$"}, ["x"]),
    ({"type": "string", "pattern": "ab+"}, ["a", "xyz"]),
    ({"type": "string", "format": "date"}, []),
    ({"type": "string", "format": "date-time"}, []),
    ({"type": "string", "format": "time"}, []),
    ({"type": "string", "format": "uuid"}, []),
    ({"type": "string", "format": "email"}, []),
    ({"type": "string", "format": "ipv4"}, []),
    ({"type": "string", "format": "ipv6"}, []),
    ({"type": "string", "format": "uri"}, []),
    ({"type": "string", "format": "hostname"}, []),
    ({"type": "string", "format": "duration"}, []),
    ({"type": "string", "format": "password"}, [3]),
    ({"const": "x"}, ["y", None]),
    ({"const": {"a": [1, 2]}}, [{"a": [1]}, {}]),
    ({"enum": ["red", "green", 3, None, {"a": 1}]}, ["blue", 4, {"a": 2}]),
    ({"type": "string", "enum": ["a", 1, "b"]}, [1, "c"]),
    ({"type": "array"}, [{}, 1]),
    ({"type": "array", "items": {"type": "integer"}}, [["a"], [1, None]]),
    ({"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 3}, [[], [True], [True] * 4]),
    ({"type": "array", "items": {"type": "string", "maxLength": 3}, "minItems": 1}, [[], ["abcd"]]),
    ({"type": "array", "maxItems": 0}, [[1]]),
    ({"type": "array", "items": False}, [[1]]),
    ({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False, "minItems": 2},
     [[1], [1, "a", 2], ["a", 1]]),
    ({"type": "array", "prefixItems": [{"type": "integer"}], "items": {"type": "null"}}, [[1, 2], ["a"]]),
    ({"type": "array", "items": {"enum": ["a", "b", "c"]}, "uniqueItems": True, "minItems": 1}, [[], ["a", "a"]]),
    ({"type": "array", "items": {"type": "array", "items": {"type": "number"}, "minItems": 1}, "maxItems": 2}, [[[]]]),
    (WEATHER, [{}, {"city": "x", "unit": "K"}, {"city": "x", "days": 15}, {"city": "x", "more": 1}]),
    ({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}, "c": {"type": "integer"}}},
     [{"a": "x"}, {"b": None}]),
    ({"type": "object", "properties": {"a": True, "b": {"type": "null"}}, "required": ["b"]}, [{}, {"b": 1}]),
    ({"type": "object", "properties": {"a": {}}, "required": ["a", "z"]}, [{"a": 1}]),
    ({"type": "object", "additionalProperties": {"type": "integer"}}, [{"x": "y"}]),
    ({"type": "object", "additionalProperties": {"type": "boolean"}, "minProperties": 1}, [{}, {"a": 1}]),
    ({"type": "object", "additionalProperties": {"type": "boolean"}, "maxProperties": 2}, [{"a": 1}]),
    ({"type": "object", "properties": {"abc": {"type": "string"}, "ab": {"const": 1}},
      "additionalProperties": {"type": "number"}}, [{"abc": 1}, {"ab": 2}, {"x": "y"}]),
    ({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": True, "required": ["a"]}, [{}]),
    ({"type": "object", "patternProperties": {"^x_[a-z]+$": {"type": "integer"}}, "additionalProperties": False},
     [{"y": 1}, {"x_a": "s"}]),
    ({"type": "object", "properties": {"x": {"type": "integer"}}, "patternProperties": {"^x": {"minimum": 5}}},
     [{"x": 1}, {"x": "a"}]),
    ({"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 3}]}, [None, "abcd", 1.5]),
    ({"type": "object", "properties": {"v": {"anyOf": [{"type": "null"}, WEATHER]}}, "required": ["v"]}, [{}, {"v": {}}]),
    ({"anyOf": [{"required": ["a"]}, {"required": ["b"]}], "type": "object",
      "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}}, [{}, {"a": "x"}]),
    (SHAPES, [{"kind": "box"}, {"kind": "circle", "r": 0}, {"kind": "box", "w": 0, "h": 1}]),
    ({"oneOf": [{"type": "integer"}, {"type": "boolean"}, {"type": "array", "items": {"type": "null"}}]}, ["x", [1]]),
    ({"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
                {"properties": {"b": {"type": "string"}}, "required": ["b"]}]}, [{"a": 1}, {"b": "x"}]),
    ({"allOf": [{"minimum": 3}, {"maximum": 9}], "type": "integer"}, [2, 10]),
    ({"allOf": [{"properties": {"a": {"minimum": 3}}}, {"properties": {"a": {"type": "integer", "maximum": 8}}}],
      "type": "object", "required": ["a"]}, [{"a": 2}, {"a": 9}, {"a": 3.5}]),
    (TREE, [{}, {"value": "x"}, {"value": 1, "children": [{}]}]),
    ({"$defs": {"s": {"type": "string", "maxLength": 2}}, "type": "array", "items": {"$ref": "#/$defs/s"}}, [["abc"]]),
    ({"definitions": {"p": {"type": "integer", "minimum": 1}}, "properties": {"n": {"$ref": "#/definitions/p"}},
      "required": ["n"]}, [{"n": 0}, {}]),
    ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"enum": [1, 2]}}}, [3]),
    ({"properties": {"foo/bar": {"type": "integer"}, "a\"b\\c": {"const": "\u00e9\n"}}, "required": ["foo/bar", "a\"b\\c"]},
     [{"foo/bar": 1}]),
    ({"type": "object", "properties": {"name": {"type": "string", "description": "x", "title": "N", "default": "a"}},
      "required": ["name"], "$schema": "https://json-schema.org/draft/2020-12/schema", "x-order": 1}, [{}]),
    ({"type": "object", "properties": {"a": {"type": "integer"}}, "unevaluatedProperties": False}, [{"b": 1}]),
]

def some_of(n, prefix, **fields):
    """An object of n members of which none is required."""
    return {"type": "object", "properties": {f"{prefix}{i}": {"type": "integer", "minimum": 0, "maximum": 9} for i in range(n)}, **fields}


def kinds(n):
    return [{"type": "object", "properties": {"id": {"type": "integer"}, "kind": {"const": f"kind {i}"}, f"of{i}": {"type": "integer"}},
             "required": ["id", "kind", f"of{i}"]} for i in range(n)]  # fmt: skip


# A text can be at 32 places at once: objects of many members that may be left out, and choices of many objects.
SCHEMAS += [
    (some_of(33, "m"), [{"m0": 10}, {"m32": "x"}]),
    (some_of(200, "member "), [{"member 199": -1}]),
    (some_of(100, "a", additionalProperties={"type": "null"}, required=["a50"]), [{"a99": 1}, {"a50": 1, "x": 1}]),
    ({"oneOf": kinds(70)}, [{"kind": "kind 0"}, {"id": 1, "kind": "kind 69", "of1": 2}]),
    ({"$defs": {f"d{i}": kind for i, kind in enumerate(kinds(40))}, "properties": {"x": {"oneOf": [{"$ref": f"#/$defs/d{i}"} for i in range(40)]}},
      "required": ["x"]}, [{}, {"x": {"id": 1, "kind": "kind 3"}}]),
]
MANY_VALUES = {"anyOf": [{"properties": {"a": {"type": "integer", "minimum": i}}, "required": ["a"]} for i in range(40)]}

REFUSED = [
    ({"not": {"type": "string"}}, "/not"),
    ({"if": {}, "then": {}}, "/if"),
    ({"type": "array", "contains": {"type": "integer"}}, "/contains"),
    ({"type": "array", "uniqueItems": True, "items": {"type": "string"}}, "/uniqueItems"),
    ({"type": "object", "propertyNames": {"maxLength": 3}}, "/propertyNames"),
    ({"type": "object", "dependentRequired": {"a": ["b"]}}, "/dependentRequired"),
    ({"properties": {"a": {"properties": {"b": {"not": {}}}}}}, "#/properties/a/properties/b/not"),
    ({"$ref": "https://other.example/schema"}, "/$ref"),
    ({"$ref": "#/$defs/none"}, "/$ref"),
    ({"allOf": [{"$ref": "#"}]}, "refers to itself"),
    ({"oneOf": [{"type": "integer"}, {"minimum": 2}]}, "/oneOf"),
    ({"type": "strin"}, "/type"),
    ({"type": "string", "pattern": "(?=a)b"}, "/pattern"),
    ({"type": "string", "pattern": "a\\1"}, "/pattern"),
    ({"type": "string", "pattern": "\\bword\\b"}, "/pattern"),
    ({"type": "string", "pattern": "^a+$", "maxLength": 4}, "/pattern"),
    ({"type": "string", "minLength": -1}, "/minLength"),
    ({"type": "string", "maxLength": 10 ** 9}, "/maxLength"),
    ({"type": "number", "multipleOf": 0.01}, "/multipleOf"),
    ({"type": "integer", "multipleOf": 0}, "/multipleOf"),
    ({"enum": [], }, "/enum"),
    ({"enum": ["a", "bb"], "maxLength": 1}, "enum"),
    ({"type": "object", "properties": []}, "/properties"),
    ({"type": "object", "minProperties": 3, "properties": {"a": {}}}, "/minProperties"),
    ({"anyOf": []}, "/anyOf"),
    (3, "#"),
    (False, "matches no text"),
    (MANY_VALUES, "over 32 places at once"),
    ({"type": "object", "patternProperties": {"^(?:\\D?){60000}$": {}}, "properties": {"a": {}}}, "#/patternProperties/^(?:\\D?){60000}$: the grammar is too large"),
    ({"anyOf": [{"properties": {f"a{i}": {"pattern": "x{3000}"}}} for i in range(400)]}, "the grammar is too large"),
    ({"type": "object", "properties": {"a": False}, "required": ["a"]}, "matches no text"),
]


def text_of(instance):
    return [json.dumps(instance, ensure_ascii=False), json.dumps(instance, separators=(",", ":"), ensure_ascii=False)]


@pytest.mark.parametrize("index", range(len(SCHEMAS)))
def test_samples_validate_and_invalid_instances_do_not_match(checker, index):
    schema, invalid = SCHEMAS[index]
    validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
    texts = [t for instance in invalid for t in text_of(instance)]
    result = checker.ask("schema", schema, texts, samples=4, seed=index + 1, masks=2)
    assert "error" not in result, result
    assert all(not validator.is_valid(instance) for instance in invalid), "the test's own instances"
    assert 2 not in result["texts"], [t for t, m in zip(texts, result["texts"]) if m == 2]
    assert result["wrong"] == 0
    finished = [s for s in result["samples"] if s is not None]
    assert finished or schema in (True, {})
    for sample in finished:
        validator.validate(json.loads(sample))


@pytest.mark.parametrize("index", range(0, len(SCHEMAS), 8))
def test_a_large_vocabulary_of_another_kind_gives_the_same_guarantees(gemma, index):
    schema, _ = SCHEMAS[index]
    result = gemma.ask("schema", schema, samples=2, seed=index + 5, masks=1)
    assert result["wrong"] == 0
    for sample in result["samples"]:
        if sample is not None:
            jsonschema.Draft202012Validator(schema).validate(json.loads(sample))


def random_object(rng, names, required, others):
    """An object of some members in their order, and whether it is valid: all required ones are there, no other is where none may be."""
    kept = [name for name in names if name in required or rng.random() < 0.4]
    left_out = [kept.pop(rng.randrange(len(kept)))] if kept and rng.random() < 0.2 else []
    more = {"zz": True, "k": False} if rng.random() < 0.3 else {}
    return {**{name: 7 for name in kept}, **more}, not set(left_out) & set(required) and (others or not more)


@pytest.mark.parametrize("seed", range(30))
def test_every_choice_of_members_is_taken_and_no_other(checker, seed):
    """The other direction: what may be left out, and what may follow, however the members are merged."""
    rng = random.Random(seed)
    names = [f"k{i}" for i in range(rng.choice([1, 2, 3, 5, 13, 30, 60]))]
    share, others = rng.choice([0, 0, 0.1, 0.5, 1]), rng.random() < 0.5
    required = [name for name in names if rng.random() < share]
    schema = {"type": "object", "properties": {name: rng.choice([{"const": 7}, {"type": "integer"}, {}]) for name in names}, "required": required}
    if others:
        schema["additionalProperties"] = {"type": "boolean"}
    objects = [random_object(rng, names, required, others) for _ in range(30)]
    texts = [json.dumps(o, separators=rng.choice([(",", ":"), (", ", ": ")])) for o, _ in objects]
    assert [m == 2 for m in checker.ask("schema", schema, texts)["texts"]] == [valid for _, valid in objects]


@pytest.mark.parametrize("schema, place", REFUSED, ids=lambda x: json.dumps(x)[:40])
def test_what_cannot_be_honoured_is_refused_with_its_place(checker, schema, place):
    result = checker.ask("schema", schema)
    assert place in result["error"], result


@pytest.mark.parametrize("instance", [{}, {"a": 1}, {"a": {"b": [1, {"c": None}]}, "d": "x\n\"y\"\\ \u20ac"}])
def test_any_object_is_taken_in_usual_spellings(checker, instance):
    spellings = [*text_of(instance), json.dumps(instance, indent=2), json.dumps(instance, indent=4)]
    assert set(checker.ask("object", None, spellings)["texts"]) == {2}


PATTERNS = ["abc", "a*b+c?", "(ab|cd)*", "[a-f0-9]{4,8}", "[^x-z\\n]+", "\\d{3}-\\d{4}", "(?:\\w+ ){2}\\w+\\.", "a{3}", "a{2,}b",
            "\\$\\d+(\\.\\d\\d)?", "é+|日本", "[\\u0041-\\u0043]x", "(a|ab)(c|bcd)(d*)", "x{0,3}y", "(?<year>\\d{4})", "a|b|", "[\\]\\-]+", "."]
TEXTS = ["", "abc", "ab", "aabbc", "abcdab", "deadbeef", "dead", "12g4", "hello", "xyz", "555-1234", "one two three.", "aaa",
         "aab", "$12.50", "$1", "é", "日本", "Ax", "abcd", "xxy", "1999", "a", "b", "]-", "\n", "abbcdd", "aaaa"]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_regular_expressions_match_what_re_matches(checker, pattern):
    result = checker.ask("regex", pattern, TEXTS, samples=3, seed=7)
    ours = [m == 2 for m in result["texts"]]
    expression = re.compile(re.sub(r"\(\?<(\w+)>", r"(?P<\1>", pattern), re.ASCII)
    assert ours == [expression.fullmatch(t) is not None for t in TEXTS]
    for sample in result["samples"]:
        if sample is not None:
            assert expression.fullmatch(sample), sample


@pytest.mark.parametrize("pattern, what", [("(a", "without its )"), ("a)", "a ) without"), ("[a", "without its ]"), ("*a", "nothing to repeat"),
                                           ("a**", "behind a quantifier"), ("a{3,1}", "exchanged"), ("(?=a)", "look-around"), ("(?<!a)b", "look-around"),
                                           ("a\\1", "back reference"), ("\\q", "not supported"), ("a^b", "anchor"), ("\\u12", "digit is missing"),
                                           ("[z-a]", "ends before"), ("a{70000}", "70000"), ("((((a{99}){99}){99}){99})", "too large"),
                                           ("(((a?){50}){50}){50}", "too large"), ("(" * 300 + ")" * 300, "inside one another")])
def test_bad_and_boundless_expressions_are_refused(checker, pattern, what):
    result = checker.ask("regex", pattern)
    assert what in result["error"] and result["compile_us"] < 20e6, result


def test_choices_are_the_whole_output(checker):
    result = checker.ask("choice", ["yes", "no", "not sure"], ["yes", "no", "not", "not sure", "maybe", "yesno"], samples=8, seed=3, masks=3)
    assert result["texts"] == [2, 2, 1, 2, 0, 0] and result["wrong"] == 0
    assert set(result["samples"]) <= {"yes", "no", "not sure"}


ARITHMETIC = """root  ::= expr "=" term "\\n"
expr  ::= term ([-+*/] term)*   # left to right
term  ::= ident | num | "(" ws expr ws ")"
ident ::= [a-z] [a-z0-9_]*
num   ::= [0-9]{1,4}
ws    ::= [ \\t]?
"""


def test_gbnf_rules_with_recursion(checker):
    texts = ["1=2\n", "a+b*(c-1)=x\n", "((1+2))=3\n", "1+=2\n", "=1\n", "12345=1\n", "(1=2\n", "a=b"]
    result = checker.ask("gbnf", ARITHMETIC, texts, samples=4, seed=2, masks=3)
    assert result["texts"] == [2, 2, 2, 0, 0, 0, 0, 1] and result["wrong"] == 0


@pytest.mark.parametrize("text, what", [("", "no rule \"root\""), ("root ::= x", "not defined"), ("root ::= root \"a\" | \"b\"", "left-recursive"),
                                        ("root ::= a\na ::= b\nb ::= a?", "left-recursive"), ("root = \"a\"", "::= is missing"),
                                        ("root ::= \"a", "without its end"), ("root ::= [a", "without its ]"), ("root ::= (\"a\"", "without its )"),
                                        ("root ::= \"a\"\nroot ::= \"b\"", "defined twice"), ("root ::= \"a\"{2,1}", "repetition"),
                                        ("root ::= \"\\q\"", "escape"), ("root ::= \"(\" root \")\"", "matches no text"), ("root ::= \"a\"{99999}", "99999")])
def test_bad_grammars_are_refused_with_line_and_column(checker, text, what):
    result = checker.ask("gbnf", text)
    assert what in result["error"], result


def test_nesting_ends_where_the_stack_does(checker):
    deep = "[" * 200 + "]" * 200
    shallow = "[" * 40 + "]" * 40
    assert checker.ask("schema", True, [shallow, deep])["texts"] == [2, 0]
