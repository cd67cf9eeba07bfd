"""Starts the binary under test for the client tests, which run in environments of their own.

MILLRACE_URL names a server that is already running instead (its options must be the defaults).
Standard library only: every environment imports this."""

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = "smollm2-135m"
# Decided by a wide margin at every token (1.9 logits at least), so no rounding can change it.
COUNT_PROMPT = "1, 2, 3, 4, 5, 6, 7,"
COUNT_TEXT = " 8, 9, 10, 11, 12, 13, 1"
COUNT_TOKENS = 24
CHAT = [{"role": "user", "content": "Count from 1 to 10."}]


class Server:
    def __init__(self, url, process=None, log=None):
        self.url = url
        self.v1 = url + "/v1"
        self.process = process
        self.log = log

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=600) as reply:
            return reply.read().decode()

    def post(self, path, body):
        request = urllib.request.Request(
            self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=600) as reply:
            return json.load(reply)

    def gauge(self, name):
        """Sum of a metric over its labels."""
        total = 0.0
        for line in self.get("/metrics").splitlines():
            if line.startswith((name + " ", name + "{")):
                total += float(line.rsplit(" ", 1)[1])
        return total

    def wait_idle(self, seconds=600):
        wait_for(
            lambda: self.gauge("vllm:num_requests_running") + self.gauge("vllm:num_requests_waiting") == 0,
            seconds,
            "the server did not become idle",
        )


def wait_for(condition, seconds, text):
    """Polls a condition of the server; the result never depends on how long it took."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{text} within {seconds} s")
        time.sleep(0.02)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def model_path():
    data = os.environ.get("MILLRACE_TEST_DATA")
    if data:
        return f"{data}/models/{MODEL}.gguf"
    cache = os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))
    return f"{cache}/millrace/models/{MODEL}.gguf"


def clean_environment():
    """The server refuses MILLRACE_* names that are no options, such as those of the test run."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("MILLRACE_")}
    return {**env, "MILLRACE_SERVER_LAME_DUCK": "0"}


@contextlib.contextmanager
def serving(*options, environment=None):
    if os.environ.get("MILLRACE_URL") and not options and not environment:
        yield Server(os.environ["MILLRACE_URL"])
        return
    binary = os.environ.get("MILLRACE_BIN", str(ROOT / "build" / "millrace"))
    port = free_port()
    log = tempfile.TemporaryFile()
    process = subprocess.Popen(
        [binary, "serve", "--model", model_path(), "--model.alias", MODEL, "--port", str(port), *options],
        stdout=log,
        stderr=subprocess.STDOUT,
        env={**clean_environment(), **(environment or {})},
    )
    server = Server(f"http://127.0.0.1:{port}", process, log)

    def ready():
        if process.poll() is not None:
            log.seek(0)
            raise AssertionError(f"the server ended with {process.returncode}: {log.read().decode()[-2000:]}")
        try:
            server.get("/ready")
            return True
        except (urllib.error.URLError, OSError):
            return False

    try:
        wait_for(ready, 60, "the server was not ready")
        yield server
    finally:
        process.terminate()
        try:
            rc = process.wait(45)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    assert rc == 0, f"the server ended with {rc}"
