"""Requests recorded from real clients: each one to an endpoint of millrace is answered as its client expects,
or refused with the name of a field that is not served yet (LATER lists those)."""

import json
import pathlib

import pytest

import http_rig
from http_shapes import Stream, check_answer

RECORDS = [
    json.loads(line)
    for line in (pathlib.Path(__file__).parents[1] / "golden" / "client-requests.jsonl").read_text().split("\n")
    if line
]
SERVED = ("/v1/chat/completions", "/v1/completions", "/v1/models", "/tokenize", "/tokenizer_info", "/health", "/metrics")
OURS = [r for r in RECORDS if any(r["path"] == p or r["path"].startswith("/v1/models/") for p in SERVED)]
OTHERS = [r for r in RECORDS if r not in OURS]


def name_of(record):
    return f"{record['client']} {record['version']} {record['call']}"


LATER_FIELDS = {"functions", "function_call", "suffix", "return_token_ids", "audio", "n_probs"}

# Requests that are wrong by any server's measure, and the field that the 400 names.
INVALID = {"extra empty messages": "messages", "extra max_tokens 0/1": "max_tokens"}


def wrong_field(body):
    """The first field of a body that this server does not serve yet, told from the body alone."""
    if not isinstance(body, dict):
        return None
    for field in body:
        if field in LATER_FIELDS and body[field]:
            return field
    for i, message in enumerate(body.get("messages") or []):
        for k, part in enumerate(message["content"] if isinstance(message.get("content"), list) else []):
            if part["type"] not in ("text", "refusal"):
                return f"messages[{i}].content[{k}].type"
    return None


@pytest.fixture(scope="module")
def server():
    options = ["--model.alias", "m", "--model.alias", "org/m", "--model.alias", "tgi", "--model.alias", "org/name"]
    with http_rig.start_fake(*options, "--limits.default_max_tokens", "12", "--log.access=false", step_ms=0) as s:
        yield s
        s.wait_idle()


def send(server, record):
    """As recorded, byte for byte where the text was kept."""
    skip = {"content-length", "host", "transfer-encoding", "expect", "connection"}
    headers = [(n, v) for n, v in record["headers"] if n.lower() not in skip]
    body = record.get("raw")
    if body is None and record["body"] is not None:
        body = json.dumps(record["body"])
    with server.raw() as c:
        return c.ask(record["method"], record["path"], body.encode() if body is not None else None, headers)


@pytest.mark.parametrize("record", OURS, ids=name_of)
def test_a_recorded_request_is_answered_as_its_client_expects(server, record):
    reply = send(server, record)
    body, path, method = record["body"], record["path"], record["method"]
    field = wrong_field(body)
    if field:
        assert reply.status == 400, reply.body
        assert reply.error["type"] == "invalid_request_error"
        assert reply.error["code"] in ("unsupported_parameter", "unsupported_content")
        assert reply.error["param"] == field
        assert name_of(record) in LATER, f"{name_of(record)!r}: {field!r} is not listed"
        assert LATER[name_of(record)] == field
        return
    if record["call"] in INVALID:
        assert reply.status == 400 and reply.error["param"] == INVALID[record["call"]]
        return
    if path.startswith("/v1/chat/completions/") or method == "DELETE":
        assert reply.status in (404, 405) and reply.error["message"]
        return
    assert reply.status == 200, reply.body
    if path.endswith("/completions"):
        chat = "chat" in path
        if body.get("stream"):
            assert reply.get("content-type").startswith("text/event-stream")
            Stream(reply.events(), body, chat)
        else:
            assert reply.get("content-type") == "application/json"
            check_answer(reply.json, body, chat)
    elif path == "/v1/models":
        check_models(reply.json, any(n.lower() == "anthropic-version" for n, _ in record["headers"]))
    elif path.startswith("/v1/models/"):
        assert reply.json["id"] == "org/m" and reply.json["object"] == "model"
    elif path == "/tokenize":
        assert reply.json["count"] == len(reply.json["tokens"]) > 0
    elif path == "/tokenizer_info":
        assert reply.json["eos_token"] == "<|im_end|>"


def check_models(models, anthropic):
    ids = [m["id"] for m in models["data"]]
    assert ids == ["m", "org/m", "tgi", "org/name"]
    if anthropic:
        assert models["has_more"] is False and models["first_id"] == "m" and models["last_id"] == "org/name"
        for m in models["data"]:
            assert set(m) == {"type", "id", "display_name", "created_at"} and m["type"] == "model"
    else:
        assert models["object"] == "list"
        for m in models["data"]:
            assert m["object"] == "model" and type(m["created"]) is int and m["owned_by"] == "millrace"


@pytest.mark.parametrize("record", OTHERS, ids=name_of)
def test_endpoints_of_later_issues_are_a_clean_404_or_405(server, record):
    reply = send(server, record)
    assert reply.status in (404, 405, 415) and reply.error["message"]


def test_the_list_of_later_fields_is_exact():
    names = {name_of(r) for r in OURS if wrong_field(r["body"])}
    assert names == set(LATER)


# Client and call -> the field of a later issue that its 400 names.
LATER = json.loads((pathlib.Path(__file__).parents[1] / "golden" / "client-requests-later.json").read_text())
