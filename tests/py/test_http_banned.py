"""A mask that leaves no token ends its own request with an error; others and the server go on."""

import pytest

import gguf_bytes
from http_rig import BINARY, start

ALL = {str(i): -100 for i in range(40)}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    path = gguf_bytes.tiny_llama().write(tmp_path_factory.mktemp("banned") / "tiny.gguf")
    with start([BINARY, "serve", "--model", str(path), "--port", "0", "--model.any_name", "true"]) as running:
        yield running


def completion(server, **body):
    return server.post("/v1/completions", {"prompt": "%&", "max_tokens": 4, "ignore_eos": True, **body})


@pytest.mark.parametrize("more", [{}, {"temperature": 0}, {"top_k": 1}, {"n": 3}, {"logprobs": 2}, {"best_of": 2}])
def test_a_request_that_bans_every_token_is_an_error(server, more):
    reply = completion(server, logit_bias=ALL, **more)
    assert reply.status == 400
    assert "every token is banned at position 2 of choice 0 (logit_bias, min_tokens)" in reply.error["message"]


def test_a_stream_that_bans_every_token_ends_with_an_error(server):
    reply = completion(server, logit_bias=ALL, stream=True)
    assert b"every token is banned" in reply.body


def test_others_and_the_server_go_on(server):
    alone = completion(server, temperature=0, max_tokens=12).json["choices"][0]["text"]
    assert completion(server, logit_bias=ALL).status == 400
    assert completion(server, temperature=0, max_tokens=12).json["choices"][0]["text"] == alone
    left = {k: v for k, v in ALL.items() if k != "7"}
    only = completion(server, logit_bias=left, max_tokens=3, logprobs=0)
    assert only.status == 200 and len(set(only.json["choices"][0]["logprobs"]["tokens"])) == 1
