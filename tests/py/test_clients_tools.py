"""curl and wrk, as people type them."""

import json
import pathlib
import re
import subprocess

import pytest
from client_server import COUNT_PROMPT, COUNT_TEXT, COUNT_TOKENS, serving

WRK = pathlib.Path(__file__).resolve().parents[1] / "bench" / "wrk"
BODY = json.dumps({"prompt": COUNT_PROMPT, "temperature": 0, "max_tokens": COUNT_TOKENS})


@pytest.fixture(scope="module")
def server():
    with serving() as running:
        yield running


def curl(server, *arguments, path="/v1/completions"):
    done = subprocess.run(
        ["curl", "-sS", "--max-time", "600", *arguments, server.url + path], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def text_of(reply):
    return json.loads(reply)["choices"][0]["text"]


def test_curl_plain_d_is_json(server):
    assert text_of(curl(server, "-d", BODY)) == COUNT_TEXT


@pytest.mark.parametrize(
    "options",
    [
        ["-H", "Content-Type: application/json"],
        ["-H", "Transfer-Encoding: chunked", "-H", "Content-Type: application/json"],
        ["--http1.0"],
        ["-H", "Expect: 100-continue"],
        ["-H", "Connection: Upgrade, HTTP2-Settings", "-H", "Upgrade: h2c", "-H", "HTTP2-Settings: AAMAAABkAAQAAP__"],
    ],
    ids=["json", "chunked", "http-1.0", "expect", "h2c"],
)
def test_curl_forms_are_answered(server, options):
    assert text_of(curl(server, *options, "-d", BODY)) == COUNT_TEXT


def test_curl_n_streams_events(server):
    body = json.dumps({**json.loads(BODY), "stream": True})
    lines = [line for line in curl(server, "-N", "-d", body).splitlines() if line]
    assert all(line.startswith("data: ") for line in lines) and lines[-1] == "data: [DONE]"
    chunks = [json.loads(line[6:]) for line in lines[:-1]]
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == COUNT_TEXT


def test_curl_head_has_no_body(server):
    head = curl(server, "-I", path="/v1/models")
    assert head.startswith("HTTP/1.1 200") and head.endswith("\n\n")  # text mode: CRLF was read as LF


def test_curl_http2_preface_is_refused_cleanly(server):
    done = subprocess.run(
        ["curl", "-sS", "--max-time", "20", "--http2-prior-knowledge", server.url + "/health"],
        capture_output=True,
        timeout=600,
    )
    assert done.returncode != 0
    assert json.loads(curl(server, path="/v1/models"))["data"]


@pytest.mark.parametrize("script", ["completions", "chat"])
def test_wrk_counts_tokens_without_errors(server, script):
    done = subprocess.run(
        ["wrk", "-t1", "-c4", "-d3s", "--timeout", "60s", "-s", WRK / f"{script}.lua", server.url],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert "Socket errors" not in done.stdout and "Non-2xx" not in done.stdout
    assert float(re.search(r"requests/s: *([\d.]+)", done.stdout).group(1)) > 0
    assert float(re.search(r"tokens/s: *([\d.]+)", done.stdout).group(1)) > 0
