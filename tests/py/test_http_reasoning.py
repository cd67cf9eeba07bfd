"""Reasoning in front of an answer is split off where the template knows it."""

import pytest

import http_rig
from http_shapes import Stream, check_answer

LINE = "<think>one two</think>\nthree four\n"


def start(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("template") / "t.jinja"
    path.write_text(text)
    return http_rig.start_real("--chat-template", str(path))


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    with start(tmp_path_factory, "{{ messages[-1].content }}<think>") as server:
        yield server
        server.wait_idle()


@pytest.fixture(scope="module")
def unopened(tmp_path_factory):
    with start(tmp_path_factory, "{# <think> #}{{ messages[-1].content }}") as server:
        yield server
        server.wait_idle()


@pytest.fixture(scope="module")
def without(tmp_path_factory):
    with start(tmp_path_factory, "{{ messages[-1].content }}") as server:
        yield server
        server.wait_idle()


def ask(server, **fields):
    """(reasoning, content), the same whole and streamed."""
    body = {"messages": [{"role": "user", "content": LINE * 12}], "temperature": 0, "max_tokens": 16, **fields}
    message = check_answer(server.post("/v1/chat/completions", body).json, body, True)["choices"][0]["message"]
    seen = Stream(server.post("/v1/chat/completions", {**body, "stream": True}).events(), body, True)
    assert message.get("reasoning_content") == message.get("reasoning") == (seen.reasoning[0] or None)
    assert message["content"] == seen.text[0]
    return message.get("reasoning"), message["content"]


def test_reasoning_that_the_prompt_opens(opened):
    reasoning, content = ask(opened)
    assert reasoning == "one two" and content.startswith("three four")


def test_reasoning_that_the_model_opens(unopened):
    reasoning, content = ask(unopened)
    assert reasoning == "one two" and content.startswith("three four")


def test_a_template_without_reasoning_leaves_the_text(without):
    reasoning, content = ask(without)
    assert reasoning is None and content.startswith("<think>one two</think>\nthree")


@pytest.mark.parametrize("server", ["opened", "unopened"])
def test_an_answer_that_is_constrained_has_none(server, request):
    assert ask(request.getfixturevalue(server), regex="(yes|no)") in [(None, "yes"), (None, "no")]
