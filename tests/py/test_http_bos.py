"""A chat and a completion begin with exactly one BOS, whatever the template prints (cases G004, G062)."""

import pytest

import gguf_bytes
from http_rig import BINARY, start

BOS = 3
WITH_BOS = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"
WITHOUT_BOS = "{% for m in messages %}{{ m.content }}{% endfor %}"


@pytest.fixture(scope="module", params=[WITH_BOS, WITHOUT_BOS], ids=["printed", "left-out"])
def server(request, tmp_path_factory):
    model = gguf_bytes.tiny_llama()
    types = [1] * 40
    types[BOS] = 3  # control
    model.set("tokenizer.ggml.token_type", gguf_bytes.ARRAY, gguf_bytes.array(gguf_bytes.I32, types))
    model.set("tokenizer.ggml.bos_token_id", gguf_bytes.U32, BOS)
    model.set("tokenizer.ggml.add_bos_token", gguf_bytes.BOOL, True)
    model.set("tokenizer.chat_template", gguf_bytes.STRING, request.param)
    path = model.write(tmp_path_factory.mktemp("bos") / "tiny.gguf")
    with start([BINARY, "serve", "--model", str(path), "--port", "0"]) as running:
        running.prints_bos = request.param == WITH_BOS
        yield running


def tokens(server, **body):
    reply = server.post("/tokenize", body)
    assert reply.status == 200, reply.body
    return reply.json["tokens"]


def test_a_chat_begins_with_one_bos(server):
    ids = tokens(server, messages=[{"role": "user", "content": "%&"}])
    assert ids[0] == BOS and ids.count(BOS) == 1 and len(ids) == 3


def test_a_chat_without_special_tokens_has_what_the_template_prints(server):
    ids = tokens(server, messages=[{"role": "user", "content": "%&"}], add_special_tokens=False)
    assert ids.count(BOS) == server.prints_bos and len(ids) == 2 + server.prints_bos


def test_a_prompt_begins_with_one_bos_even_when_it_was_typed(server):
    bos_text = "#"
    assert tokens(server, prompt="%&") == tokens(server, prompt=bos_text + "%&")
    assert tokens(server, prompt="%&")[0] == BOS
