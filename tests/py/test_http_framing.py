"""HTTP itself: framing, methods, paths, bodies, keep-alive (cases G102, G111-G118, G135, G151, G152)."""

import gzip
import json

import pytest

from http_rig import CHAT, Closed, request_bytes, start_fake

BODY = json.dumps(CHAT).encode()
PATH = "/v1/chat/completions"


def chunked(data, size, extension=b"", trailer=b""):
    out = b""
    for i in range(0, len(data), size):
        part = data[i : i + size]
        out += b"%x%s\r\n%s\r\n" % (len(part), extension, part)
    return out + b"0\r\n" + trailer + b"\r\n"


@pytest.mark.parametrize("size", [1, 7, 10000])
@pytest.mark.parametrize("extension", [b"", b";name=value"])
@pytest.mark.parametrize("trailer", [b"", b"X-Trailer: 1\r\n"])
def test_chunked_uploads_are_read_like_others(fake, size, extension, trailer):
    with fake.raw() as c:
        c.send(request_bytes("POST", PATH, b"", [("Transfer-Encoding", "chunked")]))
        c.send(chunked(BODY, size, extension, trailer))
        assert c.reply().status == 200
        assert c.ask("GET", "/health").status == 200


MEDIA = {
    "application/json": 200,
    "Application/JSON; Charset=UTF-8": 200,
    "application/x-www-form-urlencoded": 200,
    "text/plain": 200,
    "": 200,
    "multipart/form-data; boundary=x": 415,
    "Multipart/Mixed": 415,
}


@pytest.mark.parametrize("media", MEDIA)
def test_any_content_type_but_multipart_is_taken_as_json(fake, media):
    headers = [("Content-Type", media)] if media else []
    assert fake.ask("POST", PATH, BODY, headers).status == MEDIA[media]


@pytest.mark.parametrize("coding", ["gzip", "zstd", "br", "deflate, gzip"])
def test_compressed_bodies_are_415_and_never_echoed(fake, coding):
    body = gzip.compress(BODY)
    reply = fake.ask("POST", PATH, body, [("Content-Encoding", coding)])
    assert reply.status == 415 and reply.error["code"] == "unsupported_media_type"
    assert body[:10] not in reply.body


def test_identity_coding_is_no_coding(fake):
    assert fake.ask("POST", PATH, BODY, [("Content-Encoding", "identity")]).status == 200


def test_expect_100_continue_is_answered_before_the_body(fake):
    with fake.raw() as c:
        headers = [("Expect", "100-continue"), ("Content-Length", str(len(BODY)))]
        c.send(request_bytes("POST", PATH, b"", headers))
        assert c.head().status == 100
        c.send(BODY)
        assert c.reply().status == 200


@pytest.mark.parametrize("path,length,status", [(PATH, 2 << 20, 413), ("/nothing", 10, 404)])
def test_a_refusal_comes_in_place_of_100_continue(fake, path, length, status):
    with fake.raw() as c:
        headers = [("Expect", "100-continue"), ("Content-Length", str(length))]
        c.send(request_bytes("POST", path, b"", headers))
        reply = c.head()
        assert reply.status == status and reply.get("connection").lower() == "close"


def test_413_by_length_by_chunks_and_far_beyond(fake):
    big = b"x" * (3 << 20)
    reply = fake.ask("POST", PATH, b"", [("Content-Length", str(1 << 40))])
    assert reply.status == 413 and reply.error["code"] == "request_too_large"
    for head, body in [([("Transfer-Encoding", "chunked")], chunked(big, 65536)), ([], b"x" * (12 << 20))]:
        with fake.raw() as c:  # within the part that is swallowed: an answer, and the connection lives
            c.send(request_bytes("POST", PATH, b"", head or [("Content-Length", str(len(body)))]))
            c.send(body)
            assert c.reply().status == 413
            assert c.ask("GET", "/health").status == 200
    assert fake.ask("GET", "/health").status == 200


class Endless:
    """A body far above the limit, of so many MiB, in a shape."""

    def __init__(self, how, n_mib):
        self.header = ("Transfer-Encoding", "chunked") if how == "chunks" else ("Content-Length", str(n_mib << 20))
        part = b"x" * (1 << 20)
        self.parts = [b"100000\r\n" + part + b"\r\n"] * n_mib + [b"0\r\n\r\n"] if how == "chunks" else [part] * n_mib


@pytest.mark.parametrize("how", ["chunks", "length"])
@pytest.mark.parametrize("n_mib", [17, 200])
def test_a_client_that_sends_all_before_it_reads_sees_413_for_a_body_of_any_size(fake, how, n_mib):
    body = Endless(how, n_mib)
    with fake.raw() as c:
        c.send(request_bytes("POST", PATH, b"", [body.header]))
        for part in body.parts:
            c.send(part)
        reply = c.reply()
        assert reply.status == 413 and reply.error["code"] == "request_too_large"
        assert reply.get("connection").lower() == "close" and c.rest() == b""


@pytest.mark.parametrize("path,headers,status", [("/nothing", [], 404), (PATH, [("Content-Encoding", "gzip")], 415)])
def test_a_large_body_of_a_refused_request_gets_its_own_answer(fake, path, headers, status):
    body = Endless("chunks", 20)
    with fake.raw() as c:
        c.send(request_bytes("POST", path, b"", [body.header, *headers]))
        for part in body.parts:
            c.send(part)
        assert c.reply().status == status and c.rest() == b""


def test_a_body_without_end_is_read_for_a_bounded_time():
    with start_fake("--server.body_timeout", "300ms") as server, server.raw() as c:
        c.send(request_bytes("POST", PATH, b"", [("Transfer-Encoding", "chunked")]))
        with pytest.raises(ConnectionError):  # never reads, never ends
            while True:
                c.send(b"100000\r\n" + b"x" * (1 << 20) + b"\r\n")
        assert server.ask("GET", "/health").status == 200


def test_a_small_refused_body_is_read_and_the_connection_lives(fake):
    with fake.raw() as c:
        assert c.ask("POST", "/nothing", BODY).status == 404
        assert c.ask("POST", "/v1/models", BODY).status == 405
        assert c.ask("POST", PATH, BODY).status == 200


def test_pipelined_requests_are_answered_in_order(fake):
    with fake.raw() as c:
        c.send(b"".join(request_bytes("POST", PATH, {**CHAT, "n": n, "stream": n == 2}) for n in (1, 2, 3)))
        assert len(c.reply().json["choices"]) == 1
        assert c.reply().get("content-type").startswith("text/event-stream")
        assert len(c.reply().json["choices"]) == 3


def test_a_stream_ends_with_the_last_chunk_and_keeps_the_connection(fake):
    with fake.raw() as c:
        for _ in range(5):
            reply = c.ask("POST", PATH, {**CHAT, "stream": True})
            assert reply.status == 200 and reply.events()
            assert reply.get("cache-control") == "no-cache" and reply.get("x-accel-buffering") == "no"
        assert c.ask("GET", "/health").status == 200


@pytest.mark.parametrize("stream", [False, True])
def test_connection_close_is_honoured(fake, stream):
    with fake.raw() as c:
        c.request("POST", PATH, {**CHAT, "stream": stream}, [("Connection", "close")])
        reply = c.reply()
        assert reply.status == 200 and (reply.events() if stream else reply.json["choices"])
        assert c.rest() == b""


@pytest.mark.parametrize("stream", [False, True])
def test_http_1_0_gets_no_chunks_and_a_closed_connection(fake, stream):
    with fake.raw() as c:
        c.request("POST", PATH, {**CHAT, "stream": stream}, version="HTTP/1.0")
        reply = c.head()
        assert reply.status == 200 and reply.get("transfer-encoding") is None
        reply.body = c.rest()
        assert reply.events() if stream else reply.json["choices"]


def test_head_is_get_without_its_body(fake):
    for path in ["/health", "/ready", "/v1/models", "/metrics", "/version", "/tokenizer_info"]:
        with fake.raw() as c:
            get = c.ask("GET", path)
            head = c.ask("HEAD", path)
            assert head.status == get.status == 200
            assert head.get("content-type") == get.get("content-type")
            assert c.ask("GET", "/health").status == 200


@pytest.mark.parametrize(
    "method,path,status,allow",
    [
        ("GET", PATH, 405, "POST, OPTIONS"),
        ("HEAD", PATH, 405, "POST, OPTIONS"),
        ("PUT", PATH, 405, "POST, OPTIONS"),
        ("TRACE", PATH, 405, "POST, OPTIONS"),
        ("DELETE", "/v1/models/m", 405, "GET, HEAD, OPTIONS"),
        ("POST", "/health", 405, "GET, HEAD, OPTIONS"),
        ("GET", "/", 404, None),
        ("POST", "/v1/embeddings", 404, None),
        ("GET", "/v1/chat/completions/x", 404, None),
    ],
)
def test_wrong_methods_and_paths(fake, method, path, status, allow):
    reply = fake.ask(method, path)
    assert reply.status == status and reply.get("allow") == allow
    if method != "HEAD":
        assert reply.error["message"]


@pytest.mark.parametrize(
    "path",
    ["/v1/chat/completions", "/chat/completions", "/v1//chat/completions", "//v1/chat/completions/",
     "/v1/chat/completions?api-version=1", "/v1/chat/completions/?a=b&c", "http://localhost/v1/chat/completions"],
)
def test_slashes_are_normalised_and_queries_ignored(fake, path):
    assert fake.post(path, CHAT).status == 200


def test_upgrade_to_http2_is_ignored_and_its_preface_refused(fake):
    headers = [("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", "h2c"), ("HTTP2-Settings", "AAMAAABk")]
    reply = fake.ask("GET", "/health", headers=headers)
    assert reply.status == 200 and reply.version == "HTTP/1.1"
    with fake.raw() as c:
        c.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        assert c.head().status == 505
    assert fake.ask("GET", "/health").status == 200


@pytest.mark.parametrize(
    "head",
    [b"GET /health HTTP/1.1\r\nHost: a\r\n" + b"".join(b"X-%d: y\r\n" % i for i in range(10000)),
     b"GET /health HTTP/1.1\r\nHost: a\r\nX: " + b"y" * (1 << 22) + b"\r\n",
     b"GET /" + b"a" * (1 << 20) + b" HTTP/1.1\r\nHost: a\r\n"],
    ids=["many", "long", "url"],
)
def test_header_bombs_are_refused_in_bounded_memory(fake, head):
    before = fake.rss_kib()
    for _ in range(5):
        with fake.raw() as c:
            try:
                c.send(head + b"\r\n")
                assert c.head().status in (400, 413, 414, 431)
            except (Closed, ConnectionError):
                pass  # cut while still sending
    assert fake.ask("GET", "/health").status == 200
    assert fake.rss_kib() - before < 8192


def test_a_head_of_any_length_gets_an_answer(fake):
    unknown = {f"x_{i}": 1 for i in range(100)}  # the answer's own head is long as well
    seen = []
    for n in [*range(6000, 14000, 100)]:
        reply = fake.ask("POST", PATH, {**CHAT, "max_tokens": 1, **unknown}, [("Authorization", "Bearer " + "a" * n)])
        seen.append(reply.status)
    assert set(seen) == {200, 431} and seen == sorted(seen) and seen[50] == 200
    assert reply.error["code"] == "head_too_large"


def test_request_ids_are_echoed_when_plain_and_made_when_not(fake):
    assert fake.ask("GET", "/health", headers=[("X-Request-Id", "abc-1")]).get("x-request-id") == "abc-1"
    for bad in ["a b", "x" * 200, "caf\u00e9"]:
        reply = fake.ask("GET", "/health", headers=[("X-Request-Id", bad)])
        assert reply.get("x-request-id").startswith("req-")
    ids = {fake.ask("GET", "/health").get("x-request-id") for _ in range(20)}
    assert len(ids) == 20


def test_unknown_fields_are_named_in_a_header(fake):
    reply = fake.chat(x_new=1, store=True, y={"a": 1})
    assert reply.status == 200 and reply.get("x-ignored-params") == "x_new, store, y"
    assert fake.chat(stream=True, x_new=1).get("x-ignored-params") == "x_new"
    assert fake.chat().get("x-ignored-params") is None


def test_a_nul_in_the_path_is_refused(fake):
    assert fake.ask("GET", "/v1/models/m%00x").status == 400
    assert fake.ask("GET", "/v1/models/m").status == 200


def test_a_thousand_connections_at_once_all_get_an_answer(fake):
    conns = [fake.raw() for _ in range(1000)]
    for c in conns:
        c.request("POST", PATH, {**CHAT, "max_tokens": 1})
    statuses = [c.reply().status for c in conns]
    assert set(statuses) <= {200, 429, 503} and statuses.count(200) > 500
    for c in conns:
        c.close()


@pytest.fixture(scope="module")
def small():
    with start_fake("--limits.max_context", "128", step_ms=0) as server:
        yield server


@pytest.mark.parametrize("value", ["9007199254740993", "9223372036854775807", "1e18", "1e400", "9" * 300])
@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens", "min_tokens", "top_k"])
def test_numbers_of_any_size_are_cut_to_fit(small, field, value):
    """R12: clients send the largest number that they know for "no limit"."""
    fields = {"max_tokens": "8", field: value}
    if field == "min_tokens":  # may not be above max_tokens
        fields["max_tokens"] = value
    text = ",".join(f'"{name}":{number}' for name, number in fields.items())
    body = f'{{"messages":[{{"role":"user","content":"hi"}}],"ignore_eos":true,{text}}}'
    assert small.post(PATH, body.encode()).status == 200


@pytest.mark.parametrize("field", ["n", "best_of"])
def test_a_bound_in_an_error_is_the_one_that_holds(fake, field):
    for value in ["100000", "1e18", "1e400", "9223372036854775807"]:
        reply = fake.post("/v1/completions", f'{{"prompt":"a","{field}":{value}}}'.encode())
        assert reply.status == 400 and "limits.n" in reply.error["message"] and "from 1 to 16 " in reply.error["message"]
    message = fake.post("/v1/completions", f'{{"prompt":"a","{field}":0}}'.encode()).error["message"]
    assert message == f'"{field}" must be at least 1, not 0'


@pytest.mark.parametrize("body", [b'{"messages":[],"a\\u0000":1}', b'{"mess\\u0000ages":[]}', b'{"messages":[{"role":"user","content":"a","\\u0000":1}]}'])
def test_a_name_with_nul_is_400(fake, body):
    reply = fake.post(PATH, body)
    assert reply.status == 400 and "U+0000" in reply.error["message"]
