"""Output continues the prompt, so its first space stays, even with vocabularies that put a space before every
text (Llama 2, Phi 3)."""

import pytest

import gguf_bytes
from http_rig import BINARY, start

WORD = 5  # "▁go": a space and a word


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    model = gguf_bytes.tiny_llama()
    pieces = ["<unk>", "<s>", "</s>", "▁", "a", "▁go"] + [chr(ord("b") + i) for i in range(24)]
    pieces += [f"t{i}" for i in range(40 - len(pieces))]
    types = [2, 3, 3] + [1] * 37
    model.set("tokenizer.ggml.model", gguf_bytes.STRING, "llama")
    model.set("tokenizer.ggml.pre", gguf_bytes.STRING, "default")
    model.set("tokenizer.ggml.tokens", gguf_bytes.ARRAY, gguf_bytes.array(gguf_bytes.STRING, pieces))
    model.set("tokenizer.ggml.token_type", gguf_bytes.ARRAY, gguf_bytes.array(gguf_bytes.I32, types))
    model.set("tokenizer.ggml.scores", gguf_bytes.ARRAY,
              gguf_bytes.array(gguf_bytes.F32, [-float(i) for i in range(40)]))
    model.set("tokenizer.ggml.add_space_prefix", gguf_bytes.BOOL, True)
    path = model.write(tmp_path_factory.mktemp("spaces") / "tiny.gguf")
    with start([BINARY, "serve", "--model", str(path), "--port", "0"]) as running:
        yield running


@pytest.mark.parametrize("stream", [False, True])
def test_the_first_space_of_the_output_stays(server, stream):
    body = {"prompt": "a", "max_tokens": 2, "temperature": 0, "logit_bias": {str(WORD): 100}, "stream": stream}
    reply = server.post("/v1/completions", body)
    if stream:
        text = "".join(e["choices"][0]["text"] for e in reply.events() if isinstance(e, dict) and e["choices"])
    else:
        text = reply.json["choices"][0]["text"]
    assert text == " go go"


def test_offsets_count_from_the_text_that_is_echoed(server):
    body = {"prompt": "go go", "max_tokens": 1, "temperature": 0, "logit_bias": {str(WORD): 100}, "echo": True,
            "logprobs": 0}
    choice = server.post("/v1/completions", body).json["choices"][0]
    assert choice["text"] == "go go go" and choice["logprobs"]["tokens"] == [*" go go", " go"]
    assert choice["logprobs"]["text_offset"] == [0, 0, 1, 2, 3, 4, 5]
