"""Model files whose metadata names no usable pre-tokenizer (cases R05, R06): what the start says, what helps."""

import subprocess

import pytest

import gguf_bytes
from http_rig import BINARY, PATIENCE_S, clean_environment, start

WAY_OUT = ("; --tokenizer.pre NAME chooses one of gpt-2, smollm, llama-bpe, qwen2, qwen35, tekken, deepseek-llm, "
           "deepseek-coder, deepseek-v3")


def argv(model, *options):
    return [BINARY, "serve", "--model", str(model), "--port", "0", "--log.level", "error", *options]


def refused(model, *options):
    """The one line that a start which fails leaves."""
    done = subprocess.run(argv(model, *options), capture_output=True, text=True, timeout=PATIENCE_S,
                          env=clean_environment(), check=False)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done
    return done.stderr


def with_pre(target, pre):
    model = gguf_bytes.tiny_llama().drop("tokenizer.ggml.pre")
    if pre is not None:
        model.set("tokenizer.ggml.pre", gguf_bytes.STRING, pre)
    return model.write(target)


@pytest.mark.parametrize("pre, text", [
    (None, "the file lacks tokenizer.ggml.pre"),
    ("default", "pre-tokenizer 'default' is not supported"),
    ("nonesuch", "pre-tokenizer 'nonesuch' is not supported"),
])
def test_a_file_without_a_known_pre_tokenizer_is_served_by_the_option_that_the_error_names(tmp_path, pre, text):
    model = with_pre(tmp_path / "m.gguf", pre)
    assert text + WAY_OUT in refused(model)
    with start(argv(model, "--tokenizer.pre", "smollm")) as server:
        assert server.post("/tokenize", {"prompt": "%&"}).json["tokens"]


def test_an_option_that_names_no_pre_tokenizer_is_refused(tmp_path):
    model = with_pre(tmp_path / "m.gguf", "smollm")
    assert "pre-tokenizer 'smolm' is not supported" + WAY_OUT in refused(model, "--tokenizer.pre", "smolm")


def test_an_alias_of_a_known_rule_is_served(tmp_path):
    with start(argv(with_pre(tmp_path / "m.gguf", "smaug-bpe"))) as server:
        assert server.post("/tokenize", {"prompt": "%&"}).json["tokens"]
