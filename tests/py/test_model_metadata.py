"""Model files whose metadata names no usable pre-tokenizer (cases R05, R06) or chat template (R03): messages at the
start, and the options that help."""

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


# ---- chat templates that do not show the conversation ----

MUTE = {
    "empty": "", "blank": " \n", "a comment": "{# for m in messages #}", "words": "You are a helpful model.",
    "bos": "{{ bos_token }}", "roles": "{% for m in messages %}<{{ m.role }}>{% endfor %}",
    "count": "{{ messages|length }}{{ messages[0].content|length > 0 }}",
    "system": "{% for m in messages if m.role == 'system' %}{{ m.content }}{% endfor %}",
    "answers": "{% for m in messages if m.role == 'assistant' %}{{ m.content }}{% endfor %}",
    "other": "{% for m in history %}{{ m.content }}{% endfor %}",
    "picky": "{% if messages|length < 2 %}{{ raise_exception('too short') }}{% endif %}x",
}  # fmt: skip
SHOWN = {
    "last": "{{ messages[-1].content }}", "first": "{{ messages[0].content }}", "upper": "{{ messages[0].content|upper }}",
    "part": "{{ messages[-1].content[0].text }}", "cut": "{{ messages[-1].content[:4] }}",
    "json": "{{ messages|tojson }}", "no user": "{% if messages[0].role == 'user' %}{{ raise_exception('no') }}{% endif %}{{ messages[1].content }}",
    "second": "{% if messages|length > 1 %}{{ messages[1].content }}{% endif %}",
    "needs a variable": "{{ needed.x }}{{ messages[0].content }}",
}  # fmt: skip
CHAT = {"messages": [{"role": "user", "content": "%&"}], "max_tokens": 2}


def with_template(target, template):
    return gguf_bytes.tiny_llama().set("tokenizer.chat_template", gguf_bytes.STRING, template).write(target)


@pytest.mark.parametrize("name", MUTE)
def test_chat_is_refused_where_the_models_template_does_not_show_the_messages(tmp_path, name):
    model = with_template(tmp_path / "m.gguf", MUTE[name])
    with start(argv(model, "--log.level", "warn")) as server:
        assert "chat requests are refused" in server.log_text()
        reply = server.post("/v1/chat/completions", CHAT)
        assert reply.status == 400 and reply.error["code"] == "no_chat_template"
        assert server.post("/v1/completions", {"prompt": "%&", "max_tokens": 2}).status == 200


@pytest.mark.parametrize("name", MUTE)
def test_a_template_file_that_does_not_show_the_messages_is_a_refused_start(tmp_path, name):
    (tmp_path / "t.jinja").write_text(MUTE[name])
    error = refused(gguf_bytes.tiny_llama().write(tmp_path / "m.gguf"), "--chat-template", str(tmp_path / "t.jinja"))
    what = "is empty" if not MUTE[name].strip() else "prints the same whatever the user's messages say"
    assert f"{tmp_path}/t.jinja: the chat template {what}" in error


def test_templates_that_show_a_message_in_some_conversation_are_served(tmp_path):
    for name, template in SHOWN.items():
        (tmp_path / "t.jinja").write_text(template)
        model = gguf_bytes.tiny_llama().write(tmp_path / "m.gguf")
        with start(argv(model, "--chat-template", str(tmp_path / "t.jinja"))) as server:
            assert server.post("/tokenize", {"prompt": "%&"}).status == 200, name


def test_inspect_names_a_template_that_does_not_show_the_messages(tmp_path):
    model = with_template(tmp_path / "m.gguf", "{{ bos_token }}")
    done = subprocess.run([BINARY, "inspect", str(model)], capture_output=True, text=True, timeout=PATIENCE_S,
                          env=clean_environment(), check=False)
    assert "the chat template does not show the messages" in done.stdout
