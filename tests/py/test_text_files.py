"""Key file, config file, template and environment follow one set of rules: UTF-8 with an optional byte order mark,
LF or CRLF, blanks around a secret removed, anything else refused with name and line."""

import os
import signal
import subprocess

import pytest

from http_rig import BINARY, CHAT, MODEL, PATIENCE_S, clean_environment, start_fake, start_real, wait_for

BAD = [
    (b"\xff\xfeh\x00i\x00\n\x00", "line 1: the file is utf-16, not utf-8"),
    (b"one\n\nt\xe9n\n", "line 3: byte 0xe9 is not valid utf-8"),
    (b"one\ntw\x00o\n", "line 2: holds a nul byte"),
    (b"one\r\ntw\x1bo\r\n", "line 2: holds the control character U+001B"),
    (b"one\rtwo\n", "line 1: holds the control character U+000D"),
    (b"one\ntwo\xc2\x85\n", "line 2: holds the control character U+0085"),
]
KINDS = {"key file": "--server.api_key_file", "config file": "--config", "chat template": "--chat-template"}


def refused(*options, environment=None):
    argv = [BINARY, "serve", "--model", MODEL, "--port", "0", "--log.level", "error", *options]
    env = clean_environment()
    env = {**{os.fsencode(k): os.fsencode(v) for k, v in env.items()}, **(environment or {})}
    return subprocess.run(argv, capture_output=True, timeout=PATIENCE_S, env=env, check=False)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("data,why", BAD)
def test_what_is_no_text_is_refused_by_name_and_line(tmp_path, kind, data, why):
    path = tmp_path / "file"
    path.write_bytes(data)
    done = refused(KINDS[kind], str(path))
    assert done.returncode in (1, 2)
    assert done.stderr.decode().splitlines() == [f'millrace: error: {kind} "{path}" {why}']


@pytest.mark.parametrize("value,why", [
    (b"   ", "option api_key: holds blanks only"),
    (b"sk\n1", "is not free of control characters"),
    (b"sk-\xff", "is not valid utf-8"),
    (b"sk-\xc3\xa9", "the key holds a character that is not ascii"),
])  # fmt: skip
def test_a_key_that_no_client_can_send_is_refused(value, why):
    done = refused(environment={b"MILLRACE_API_KEY": value})
    assert done.returncode in (1, 2) and len(done.stderr.splitlines()) == 1
    assert b"MILLRACE_API_KEY" in done.stderr and why.encode() in done.stderr and b"sk" not in done.stderr


def asks(server, key):
    return server.post("/v1/chat/completions", {**CHAT, "max_tokens": 1}, [("Authorization", f"Bearer {key}")]).status


@pytest.mark.parametrize("given", [" sk-1 ", "sk-1\n", "\tsk-1\r\n", "\ufeffsk-1"])
def test_blanks_around_a_key_of_the_environment_are_dropped(given):
    with start_fake(environment={"MILLRACE_API_KEY": given}) as server:
        assert asks(server, "sk-1") == 200 and asks(server, "sk-2") == 401


def test_marks_and_crlf_are_dropped_everywhere(tmp_path):
    keys, config, template = tmp_path / "keys", tmp_path / "conf", tmp_path / "template"
    keys.write_bytes(b"\xef\xbb\xbf# keys of the \xc3\xa9quipe\r\n\r\n sk-1 \t name=a \r\nsk-2")
    template.write_bytes(b"\xef\xbb\xbf{% for m in messages %}\r\n<{{ m.content }}>\r\n{% endfor %}")
    config.write_bytes(f"\ufeff[server]\r\napi_key_file = {keys}\r\nthreads = 1\r\n".encode())
    with start_real("--config", str(config), "--chat-template", str(template)) as server:
        assert asks(server, "sk-1") == 200 and asks(server, "sk-2") == 200
        headers = [("Authorization", "Bearer sk-1")]
        body = {"messages": [{"role": "user", "content": "hi"}], "add_generation_prompt": False}
        ids = server.post("/tokenize", body, headers).json["tokens"]
        text = server.post("/detokenize", {"tokens": ids}, headers).json["prompt"]
        assert "\r" not in text and "\ufeff" not in text and "<hi>" in text


@pytest.mark.parametrize("data,why", BAD + [(b"sk-1\nsk-\xc3\xa9\n", "line 2: the key holds a character that is not ascii")])
def test_a_reload_of_what_is_no_text_keeps_the_old_keys(tmp_path, data, why):
    keys = tmp_path / "keys"
    keys.write_text("sk-1\n")
    with start_fake("--server.api_key_file", str(keys)) as server:
        keys.write_bytes(data)
        server.signal(signal.SIGHUP)
        wait_for(lambda: "reload:" in server.log_text(), "a reload")
        assert f'key file "{keys}" {why}' in server.log_text()
        assert asks(server, "sk-1") == 200
