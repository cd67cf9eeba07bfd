"""Tool calls come back in the history without content; every template that knows them renders them."""

import os
import pathlib

import pytest

from http_rig import start_real

TEMPLATES = pathlib.Path(os.environ["MILLRACE_TEST_DATA"]) / "templates"
CALL = {"id": "1", "type": "function", "function": {"name": "lookup", "arguments": '{"city":"Oslo"}'}}


def history(**content):
    return [
        {"role": "user", "content": "x"},
        {"role": "assistant", **content, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "1", "content": "12 degrees"},
    ]


def prompt(server, messages):
    reply = server.post("/tokenize", {"messages": messages})
    assert reply.status == 200, reply.body
    text = server.post("/detokenize", {"tokens": reply.json["tokens"]})
    return text.json["prompt"]


@pytest.fixture(scope="module", params=[None, "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "Qwen-Qwen3-0.6B"])
def server(request):
    options = ["--chat-template", str(TEMPLATES / f"{request.param}.jinja")] if request.param else []
    with start_real(*options) as running:
        running.shows_calls = request.param is not None
        yield running


def test_null_and_absent_content_render_alike(server):
    null = prompt(server, history(content=None))
    assert null == prompt(server, history())
    assert "12 degrees" in null
    if server.shows_calls:
        assert "lookup" in null and "Oslo" in null


@pytest.mark.parametrize("messages", [None, [], [None], [1], ["x"], [[]], [{}], [{"role": "assistant"}, 5], "x", {}])
def test_messages_of_another_shape_are_refused(fake, messages):
    for body in [{"messages": messages}, {} if messages is None else {"messages": messages, "max_tokens": 1}]:
        assert fake.post("/v1/chat/completions", body).status == 400
    assert fake.ask("GET", "/health").status == 200
