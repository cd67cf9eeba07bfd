"""Gemma 3 through the server: a base model without a chat template, and with one given."""
import os
from pathlib import Path

import pytest

from http_rig import BINARY, start

DATA = Path(os.environ["MILLRACE_TEST_DATA"])
GEMMA = DATA / "models" / "gemma3-270m.gguf"
TEMPLATE = DATA / "templates" / "google-gemma-2-2b-it.jinja"  # Gemma 3 takes the same turns
PROMPT = "1, 2, 3, 4, 5, 6, 7,"
GREEDY = {"prompt": PROMPT, "max_tokens": 24, "temperature": 0}
END_OF_TURN = 106


def serve(*options):
    return start([BINARY, "serve", "--model", str(GEMMA), "--port", "0", "--kv.bytes", "256MiB", *options])


@pytest.fixture(scope="module")
def plain():
    with serve() as server:
        yield server
        server.wait_idle()


@pytest.fixture(scope="module")
def chatting():
    with serve("--chat-template", str(TEMPLATE)) as server:
        yield server
        server.wait_idle()


def test_a_completion_continues_as_known(plain):
    reply = plain.post("/v1/completions", GREEDY).json
    assert reply["choices"][0]["text"] == " 8, 9, 10, 11, 12, 13, 1"
    assert reply["choices"][0]["finish_reason"] == "length"
    assert reply["usage"]["prompt_tokens"] == 21  # <bos> in front


def test_company_and_prompts_across_the_window_change_no_token(plain):
    long_prompt = "".join(f"{i}, " for i in range(250))  # over 900 tokens
    bodies = [{**GREEDY, "prompt": p} for p in (PROMPT, long_prompt, long_prompt + " and")]
    alone = [plain.post("/v1/completions", b).json["choices"][0]["text"] for b in bodies]
    streams = []
    for body in bodies * 2:
        streams.append(plain.raw())
        streams[-1].request("POST", "/v1/completions", body)
    together = [c.reply().json["choices"][0]["text"] for c in streams]
    for c in streams:
        c.close()
    assert together == alone * 2


def test_sampling_over_the_whole_vocabulary_repeats_by_seed(plain):
    body = {**GREEDY, "temperature": 1.2, "top_p": 0.9, "seed": 7, "logprobs": 5}
    first, second = (plain.post("/v1/completions", body).json["choices"][0] for _ in range(2))
    assert first["text"] == second["text"] and first["logprobs"] == second["logprobs"]
    assert all(len(top) >= 5 for top in first["logprobs"]["top_logprobs"])


def test_without_a_template_the_chat_endpoint_says_so(plain):
    reply = plain.chat()
    assert reply.status == 400 and reply.error["code"] == "no_chat_template"
    assert "--chat-template" in reply.error["message"] and "/v1/completions" in reply.error["message"]


def test_a_given_template_makes_the_chat_endpoint_work(chatting):
    reply = chatting.chat(messages=[{"role": "user", "content": "Hi"}])
    assert reply.status == 200 and reply.json["choices"][0]["message"]["content"]
    # <bos> <start_of_turn> user \n Hi <end_of_turn> \n <start_of_turn> model \n
    assert reply.json["usage"]["prompt_tokens"] == 10


def test_the_end_of_a_turn_ends_the_answer(chatting):
    reply = chatting.chat(logit_bias={str(END_OF_TURN): 100}).json
    assert reply["choices"][0]["finish_reason"] == "stop"
    assert reply["choices"][0]["message"]["content"] == ""
    assert reply["usage"]["completion_tokens"] == 1
