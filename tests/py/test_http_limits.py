"""Limits and deadlines of the front end (cases G025, G031, G050, G102, G120, G138, G142, G157)."""

import contextlib
import json

import pytest

from http_rig import CHAT, SMALL_QUARANTINE, TSAN, Closed, start_fake, wait_for

PATH = "/v1/chat/completions"
ENDLESS = {"ignore_eos": True, "max_tokens": 4000}


@contextlib.contextmanager
def stream(server, **fields):
    with server.raw() as c:
        c.request("POST", PATH, {**CHAT, **ENDLESS, "stream": True, **fields})
        c.head()
        yield c


def test_keys_guard_every_route_but_health_and_readiness(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("# first\nsk-file\n")
    env = {"MILLRACE_API_KEY": "sk-env"}
    with start_fake("--server.api_key_file", str(keys), environment=env) as server:
        for path in ["/health", "/ready"]:
            assert server.ask("GET", path).status == 200
        guarded = [("GET", p) for p in ["/v1/models", "/v1/models/m", "/version", "/metrics", "/tokenizer_info"]]
        guarded += [("POST", p) for p in [PATH, "/v1/completions", "/tokenize", "/detokenize"]]
        for method, path in guarded:
            body = {} if method == "POST" else None
            for headers in [[], [("Authorization", "Bearer no")], [("X-Api-Key", "sk-en")]]:
                reply = server.ask(method, path, body, headers)
                assert reply.status == 401 and reply.error["code"] == "invalid_api_key"
            for headers in [[("Authorization", "Bearer sk-env")], [("X-Api-Key", "sk-file")]]:
                assert server.ask(method, path, body, headers).status in (200, 400)
        assert server.ask("OPTIONS", PATH).status == 204
        assert "sk-" not in server.log_text()


def test_listening_beyond_loopback_without_a_key_warns():
    with start_fake("--host", "0.0.0.0") as server:
        assert "without a key" in server.log_text()
    with start_fake("--host", "0.0.0.0", environment={"MILLRACE_API_KEY": "k"}) as server:
        assert "without a key" not in server.log_text()


def test_more_connections_than_allowed_get_503_json():
    with start_fake("--server.max_connections", "10") as server:
        held = [server.raw() for _ in range(10)]
        assert held[9].ask("GET", "/health").status == 200  # all ten are accepted by now
        with server.raw() as c:
            reply = c.reply()
            assert reply.status == 503 and reply.error["code"] == "too_many_connections"
            assert reply.get("retry-after") == "1" and c.rest() == b""
        for c in held:
            c.close()
        wait_for(lambda: server.ask("GET", "/health").status == 200, "room again")


def test_a_full_queue_answers_429_with_retry_after():
    options = ["--sched.max_running", "1", "--sched.max_queued", "4"]
    with start_fake(*options, step_ms=5) as server:
        with stream(server) as blocker:
            blocker.chunk()
            waiting = [server.raw() for _ in range(4)]
            for c in waiting:
                c.request("POST", PATH, CHAT)
            server.wait_metric("vllm:num_requests_waiting", 4)
            for s in [False, True]:
                reply = server.chat(stream=s)
                assert reply.status == 429 and int(reply.get("retry-after")) >= 1
                assert reply.error["type"] == "rate_limit_error" and "4" in reply.error["message"]
        for c in waiting:
            assert c.reply().status == 200
            c.close()
        server.wait_idle()


def test_a_long_wait_in_the_queue_is_503_or_an_error_event():
    options = ["--sched.max_running", "1", "--server.queue_timeout", "300ms"]
    with start_fake(*options, step_ms=2) as server, stream(server) as blocker:
        blocker.chunk()
        reply = server.chat()
        assert reply.status == 503 and reply.error["code"] == "queue_timeout"
        assert int(reply.get("retry-after")) >= 1
        events = server.chat(stream=True).events()
        assert len(events) == 1 and events[0]["error"]["code"] == "queue_timeout"
        blocker.chunk()


def test_slow_heads_are_cut_and_slow_bodies_get_408():
    options = ["--server.header_timeout", "300ms", "--server.body_timeout", "300ms", "--server.idle_timeout", "60s"]
    with start_fake(*options) as server:
        with server.raw() as c:  # nothing at all
            assert c.rest() == b""
        with server.raw() as c:  # a byte now and then does not help
            c.send("GET /health HTTP/1.1\r\n")
            reply = c.head()
            assert reply.status == 408
        with server.raw() as c:
            c.send(f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{{")
            reply = c.reply()
            assert reply.status == 408 and reply.error["code"] == "request_timeout"
            assert c.rest() == b""
        with server.raw() as c:  # the deadline does not hit answers that take longer
            assert c.ask("POST", PATH, {**CHAT, **ENDLESS, "max_tokens": 1000}).status == 200
            assert c.ask("GET", "/health").status == 200


def test_dripping_headers_does_not_extend_the_deadline():
    with start_fake("--server.header_timeout", "500ms") as server, server.raw() as c:
        c.send("GET /health HTTP/1.1\r\n")
        c.sock.settimeout(0.05)
        data = b""
        for i in range(400):  # 20 s at most
            try:
                c.send(f"X-{i}: y\r\n")
                data = c.sock.recv(100)
                break
            except TimeoutError:
                continue
            except ConnectionError:
                break
        assert i < 399 and data[:12] in (b"", b"HTTP/1.1 408")


def test_idle_connections_are_closed():
    with start_fake("--server.idle_timeout", "300ms") as server, server.raw() as c:
        assert c.ask("GET", "/health").status == 200
        assert c.rest() == b""


def comments_and_events(c):
    comments = events = 0
    data = b""
    while True:
        part = c.chunk()
        if not part:
            break
        assert part.startswith((b": ping\n", b": queued position=1\n", b"data: ")), part  # never inside an event
        comments += part.count(b": ping\n")
        events += part.count(b"data: ")
        data += part
    assert data.endswith(b"data: [DONE]\n\n")
    return comments, events


def test_comments_keep_a_waiting_stream_alive_without_a_blank_line():
    options = ["--server.heartbeat", "100ms", "--sched.max_running", "1", "--sched.max_batch_tokens", "8"]
    with start_fake(*options, step_ms=20) as server:
        with stream(server, max_tokens=50) as first, stream(server, max_tokens=3) as queued:
            assert queued.chunk() in (b": ping\n", b": queued position=1\n")
            comments_and_events(first)
            comments, events = comments_and_events(queued)
            assert events >= 4
        with stream(server, max_tokens=2, messages=[{"role": "user", "content": "word " * 100}]) as long:
            comments, events = comments_and_events(long)
            assert comments >= 1 and events >= 3


def test_a_client_that_does_not_read_is_paused_then_dropped_and_nobody_else_notices():
    options = ["--server.slow_client_timeout", "1s", "--server.sndbuf", "4KiB", "--kv-blocks", "2600"]
    with start_fake(*options, "--log.access=false", step_ms=0, environment=SMALL_QUARANTINE) as server:
        reference = server.complete(max_tokens=200, ignore_eos=True).json["choices"][0]["text"]
        rss = server.rss_kib()
        stalled = []
        for _ in range(10):
            c = server.raw(rcvbuf=2048)
            c.request("POST", PATH, {**CHAT, **ENDLESS, "stream": True})
            stalled.append(c)
        wait_for(lambda: server.metric("millrace_sequences_paused") > 0, "a paused sequence")
        text = server.complete(max_tokens=200, ignore_eos=True).json["choices"][0]["text"]
        assert text == reference
        server.wait_metric("vllm:num_requests_running", 0)
        assert server.metric("vllm:generation_tokens_total") < 10 * 4000
        assert TSAN or server.rss_kib() - rss < 10 * 512
        for c in stalled:
            c.close()
        server.wait_idle()


def test_a_slow_reader_still_gets_every_token():
    options = ["--server.sndbuf", "4KiB", "--kv-blocks", "200"]
    with start_fake(*options, step_ms=0) as server:
        fields = {**ENDLESS, "max_tokens": 2500, "prompt": "x", "temperature": 0}
        whole = server.post("/v1/completions", fields).json["choices"][0]["text"]
        with server.raw(rcvbuf=2048) as c:
            c.request("POST", "/v1/completions", {**fields, "stream": True})
            wait_for(lambda: server.metric("millrace_sequences_paused") > 0, "a paused sequence")
            events = c.reply().events()
            assert "".join(e["choices"][0]["text"] for e in events) == whole


@pytest.mark.parametrize("depth,status", [(32, 200), (60, 200), (64, 400), (1000, 400), (100000, 400)])
def test_nesting_is_bounded(fake, depth, status):
    body = '{"x":' + "[" * depth + "]" * depth + "," + json.dumps(CHAT)[1:]
    reply = fake.post(PATH, body.encode())
    assert reply.status == status
    if status == 400:
        assert "nested" in reply.error["message"] and reply.error["code"] == "invalid_json"


def test_big_bodies_do_not_hold_up_health(fake):
    big = {**CHAT, "messages": [{"role": "user", "content": "word " * 150000}]}
    conns = [fake.raw() for _ in range(8)]
    for c in conns:
        c.request("POST", PATH, big)
    for c in conns:
        assert fake.ask("GET", "/health").status == 200
    for c in conns:
        reply = c.reply()
        assert reply.status == 400 and reply.error["code"] == "context_length_exceeded"
        c.close()


def test_a_leaver_during_the_parse_of_a_big_body_is_harmless(fake):
    big = {**CHAT, "messages": [{"role": "user", "content": "word " * 150000}]}
    for how in ["fin", "rst", "half"] * 4:
        c = fake.raw()
        c.request("POST", PATH, big)
        c.leave(how)
        if how == "half":
            with pytest.raises(Closed):
                c.reply()
    assert fake.chat().status == 200
    fake.wait_idle()


def test_a_body_of_many_values_is_bounded(fake):
    before = fake.rss_kib()
    for _ in range(3):
        body = b'{"messages":[' + b"0," * 500000 + b"0]}"
        assert fake.post(PATH, body).status == 400
    assert fake.rss_kib() - before < 200 * 1024


@pytest.mark.parametrize("n", [0, -1, 17, 10**6, 10**12])
def test_an_n_out_of_bounds_names_the_value(fake, n):
    reply = fake.post(PATH, {**CHAT, "n": n})
    assert reply.status == 400 and reply.error["param"] == "n"
    assert str(n) in reply.error["message"]
    if 17 <= n <= 10**6:
        assert "from 1 to 16 (limits.n)" in reply.error["message"]
