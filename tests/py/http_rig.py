"""A raw HTTP client that can misbehave, and servers to point it at. Standard library only.

Fake: tests/tools/fake_server.c, the real front end and scheduler over a backend of any speed.
Real: the program itself with SmolLM2-135M."""

import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("MILLRACE_BUILD", ROOT / "build-test"))
BINARY = os.environ.get("MILLRACE_BIN", str(BUILD / "millrace"))
FAKE = str(BUILD / "tests" / "fake_server")
MODEL = os.environ.get("MILLRACE_TEST_DATA", "") + "/models/smollm2-135m.gguf"
# An address sanitizer keeps freed memory for a while: bounded, so that RSS means something there too.
SMALL_QUARANTINE = {"ASAN_OPTIONS": "quarantine_size_mb=1:thread_local_quarantine_size_kb=64"}
TSAN = b"__tsan_init" in pathlib.Path(FAKE).read_bytes()  # it keeps a history of accesses: RSS says little about the program
PATIENCE_S = 600  # for things that must happen, on a busy machine


def wait_for(condition, text, seconds=PATIENCE_S):
    """Polls until condition gives something true; what it gives never depends on how long it took."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"{text} within {seconds} s"
        time.sleep(0.005)


class Reply:
    def __init__(self, version, status, headers, body):
        self.version = version
        self.status = status
        self.headers = headers  # lower-case names, in order
        self.body = body

    def get(self, name, default=None):
        values = [v for n, v in self.headers if n == name.lower()]
        return values[0] if values else default

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        error = self.json["error"]
        assert set(error) >= {"message", "type", "param", "code"}, error
        return error

    def events(self):
        return parse_events(self.body)


def parse_events(data):
    """The JSON of each event; the last one must be [DONE]."""
    assert data.endswith(b"data: [DONE]\n\n"), data[-200:]
    out = []
    for block in data.decode().split("\n\n"):
        lines = [line for line in block.split("\n") if line and not line.startswith(":")]
        if not lines:
            continue
        assert len(lines) == 1 and lines[0].startswith("data: "), block
        out.append(lines[0][6:])
    assert out.count("[DONE]") == 1 and out[-1] == "[DONE]"
    return [json.loads(text) for text in out[:-1]]


class Closed(Exception):
    """The server closed the connection where more was expected."""


class Raw:
    """One TCP connection, byte by byte."""

    def __init__(self, server, rcvbuf=None):
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if rcvbuf:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        self.sock.settimeout(PATIENCE_S)
        self.sock.connect(("127.0.0.1", server.port))
        self.buffer = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, data):
        self.sock.sendall(data.encode() if isinstance(data, str) else data)

    def close(self):
        self.sock.close()

    def reset(self):
        """RST in place of FIN."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def half_close(self):
        self.sock.shutdown(socket.SHUT_WR)

    def leave(self, how):
        {"fin": self.close, "rst": self.reset, "half": self.half_close}[how]()

    def more(self):
        try:
            data = self.sock.recv(65536)
        except ConnectionResetError as error:
            raise Closed("reset") from error
        if not data:
            raise Closed("end of stream")
        self.buffer += data

    def until(self, mark):
        while mark not in self.buffer:
            self.more()
        head, self.buffer = self.buffer.split(mark, 1)
        return head

    def exactly(self, n):
        while len(self.buffer) < n:
            self.more()
        data, self.buffer = self.buffer[:n], self.buffer[n:]
        return data

    def rest(self):
        """All bytes until the server closes."""
        try:
            while True:
                self.more()
        except Closed:
            pass
        data, self.buffer = self.buffer, b""
        return data

    def head(self):
        lines = self.until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        version, status = lines[0].split(" ")[:2]
        headers = [tuple(part.strip() for part in line.split(":", 1)) for line in lines[1:]]
        return Reply(version, int(status), [(n.lower(), v) for n, v in headers], b"")

    def chunk(self):
        """One HTTP chunk; b"" is the last."""
        size = int(self.until(b"\r\n"), 16)
        data = self.exactly(size)
        assert self.exactly(2) == b"\r\n"
        return data

    def reply(self, head_only=False):
        reply = self.head()
        while reply.status == 100:
            reply = self.head()
        if head_only or reply.status == 204:
            return reply
        if (reply.get("transfer-encoding") or "").lower() == "chunked":
            while True:
                data = self.chunk()
                if not data:
                    return reply
                reply.body += data
        length = reply.get("content-length")
        reply.body = self.rest() if length is None else self.exactly(int(length))
        return reply

    def reply_of_stream(self):
        """The events of a stream whose head was read."""
        data = b""
        while part := self.chunk():
            data += part
        return parse_events(data)

    def request(self, method, path, body=None, headers=(), version="HTTP/1.1"):
        self.send(request_bytes(method, path, body, headers, version))

    def ask(self, method, path, body=None, headers=(), version="HTTP/1.1"):
        self.request(method, path, body, headers, version)
        return self.reply(head_only=method == "HEAD")


def request_bytes(method, path, body=None, headers=(), version="HTTP/1.1"):
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    lines = [f"{method} {path} {version}", "Host: localhost"]
    lines += [f"{name}: {value}" for name, value in headers]
    names = {name.lower() for name, _ in headers}
    if body is not None and not names & {"content-length", "transfer-encoding"}:
        lines.append(f"Content-Length: {len(body)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + (body or b"")


class Server:
    def __init__(self, process, port, log):
        self.process = process
        self.port = port
        self.log = log
        self.url = f"http://127.0.0.1:{port}"

    def raw(self, **options):
        return Raw(self, **options)

    def ask(self, method, path, body=None, headers=(), version="HTTP/1.1"):
        with self.raw() as c:
            return c.ask(method, path, body, headers, version)

    def post(self, path, body, headers=()):
        return self.ask("POST", path, body, headers)

    def chat(self, **fields):
        return self.post("/v1/chat/completions", {**CHAT, **fields})

    def complete(self, **fields):
        return self.post("/v1/completions", {**COMPLETION, **fields})

    def metric(self, name, labels=""):
        """Sum over the series whose labels hold the text."""
        total = 0.0
        for line in self.ask("GET", "/metrics").body.decode().splitlines():
            if re.match(re.escape(name) + r"[{ ]", line) and labels in line:
                total += float(line.rsplit(" ", 1)[1])
        return total

    def wait_metric(self, name, value, labels=""):
        wait_for(lambda: self.metric(name, labels) == value, f"{name}{labels} is {value}")

    def wait_idle(self):
        """Nothing runs, nothing waits, every KV block is free."""
        self.wait_metric("vllm:num_requests_running", 0)
        self.wait_metric("vllm:num_requests_waiting", 0)
        total = self.metric("millrace_kv_blocks")
        self.wait_metric("millrace_kv_blocks_free", total)

    def log_text(self):
        # The program writes through the same file offset: a seek here would move its writes.
        return pathlib.Path(f"/proc/self/fd/{self.log.fileno()}").read_text()

    def rss_kib(self):
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", text).group(1))

    def n_threads(self):
        return len(list(pathlib.Path(f"/proc/{self.process.pid}/task").iterdir()))

    def signal(self, number=signal.SIGTERM):
        self.process.send_signal(number)


CHAT = {"messages": [{"role": "user", "content": "Say hi"}], "max_tokens": 8, "temperature": 0}
COMPLETION = {"prompt": "1, 2, 3, 4,", "max_tokens": 8, "temperature": 0}


def clean_environment(extra=None):
    """Without options, but for the wait before the port closes: no test needs it that does not say so."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("MILLRACE_")}
    return {**env, "MILLRACE_SERVER_LAME_DUCK": "0", **(extra or {})}


def read_line(process, pattern):
    """The first line of the program's output that matches; None when it ends without one."""
    for line in process.stdout:
        found = re.search(pattern, line)
        if found:
            return found
    return None


@contextlib.contextmanager
def start(argv, environment=None, expect_code=0):
    log = tempfile.TemporaryFile()
    process = subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=log, text=True, env=clean_environment(environment)
    )
    server = None
    try:
        found = read_line(process, r"url +http://[^ ]*:(\d+)")
        if not found:
            log.seek(0)
            raise AssertionError(f"{argv} ended with {process.wait()}: {log.read().decode()}")
        server = Server(process, int(found.group(1)), log)
        yield server
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            code = process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        text = server.log_text() if server else ""
        log.close()
        process.stdout.close()
    assert code == expect_code, f"ended with {code}: {text[-3000:]}"


# The default's 60 s are a clock that a busy machine can miss; tests of the limit set their own.
def patient(options):
    return [*options] if "--server.queue_timeout" in options else ["--server.queue_timeout", f"{PATIENCE_S}s", *options]


def start_fake(*options, step_ms=1, **how):
    return start([FAKE, MODEL, "--step-ms", str(step_ms), "--port", "0", *patient(options)], **how)


def start_real(*options, **how):
    return start([BINARY, "serve", "--model", MODEL, "--port", "0", *patient(options)], **how)
