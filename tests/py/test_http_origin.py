"""Web pages and a local server: the Host names it answers to, and the pages that a browser lets use it.

Without a key the loopback address is the only protection, and browsers can reach it from every page."""

import json
import subprocess

import pytest

from http_rig import BINARY, CHAT, Raw, clean_environment, start_fake

PATH = "/v1/chat/completions"
PAGE = "https://app.example"
NAMED = f"{PAGE},http://localhost:3000"
BODY = json.dumps({**CHAT, "max_tokens": 1}).encode()
GUARDED = [("GET", "/v1/requests"), ("GET", "/debug/kv"), ("GET", "/debug/journal"), ("PUT", "/v1/prefixes/a"), ("DELETE", "/v1/prefixes/a")]
OTHERS = [("POST", PATH), ("POST", "/v1/completions"), ("POST", "/v1/tokenize"), ("GET", "/v1/models"), ("GET", "/v1/prefixes"), ("GET", "/metrics"), ("GET", "/version")]


def ask(server, method, path, host=None, origin=None, headers=(), version="HTTP/1.1"):
    """host: None for the server's own, "" for none at all."""
    with server.raw() as c:
        lines = [f"{method} {path} {version}"]
        if host != "":
            lines.append(f"Host: {host or f'127.0.0.1:{server.port}'}")
        if origin is not None:
            lines.append(f"Origin: {origin}")
        body = BODY if method in ("POST", "PUT") else b""
        lines += [f"{n}: {v}" for n, v in headers] + [f"Content-Length: {len(body)}"]
        c.send("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        return c.reply(head_only=method == "HEAD")


def cors_of(reply):
    return {n: v for n, v in reply.headers if n.startswith("access-control-")}


# ---- names of this machine ----

OURS = ["localhost", "LOCALHOST", "localhost.", "localhost:1", "127.0.0.1", "127.0.0.1:99", "127.1.2.3", "[::1]", "[::1]:8080",
        "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]"]
FOREIGN = ["evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", "evil-localhost", "0.0.0.0",
           "10.0.0.1", "[::]", "[::2]", "[::ffff:10.0.0.1]", "1.127.0.0", "127.1", "2130706433", "0x7f.0.0.1"]


@pytest.mark.parametrize("host", OURS)
def test_names_of_this_machine_are_served(fake, host):
    assert ask(fake, "GET", "/v1/models", host).status == 200


@pytest.mark.parametrize("host", FOREIGN)
@pytest.mark.parametrize("method,path", [("GET", "/health"), ("GET", "/v1/models"), ("POST", PATH), ("GET", "/nothing"), ("OPTIONS", PATH)])
def test_other_names_are_refused_by_a_line_that_names_the_option(fake, host, method, path):
    reply = ask(fake, method, path, host)
    assert reply.status == 403 and reply.error["code"] == "host_not_allowed"
    assert "server.allowed_hosts" in reply.error["message"]


def test_the_host_of_a_url_as_target_counts_too(fake):
    assert ask(fake, "GET", "http://localhost/v1/models").status == 200
    assert ask(fake, "GET", "http://evil.example/v1/models").status == 403
    assert ask(fake, "GET", "http://localhost/v1/models", "evil.example").status == 200  # RFC 9112 3.2.2


def test_a_request_without_a_name_is_served_only_where_there_is_none(fake):
    assert ask(fake, "GET", "/v1/models", "", version="HTTP/1.0").status == 200
    with fake.raw() as c:
        c.send(b"GET /v1/models HTTP/1.1\r\nHost:\r\n\r\n")
        assert c.reply().status == 403


def test_the_host_option_and_a_list_add_names():
    with start_fake("--host", "localhost", "--server.allowed_hosts", "llm.example", "--server.allowed_hosts", "box:8080") as server:
        for host in ["llm.example", "LLM.example:1", "box", "localhost"]:
            assert ask(server, "GET", "/v1/models", host).status == 200
        assert ask(server, "GET", "/v1/models", "evil.example").status == 403


def test_with_a_key_or_on_other_addresses_any_name_is_served_unless_there_is_a_list():
    with start_fake(environment={"MILLRACE_API_KEY": "sk-1"}) as server:
        assert ask(server, "GET", "/v1/models", "any.example", headers=[("X-Api-Key", "sk-1")]).status == 200
    with start_fake("--host", "0.0.0.0") as server:
        assert ask(server, "GET", "/v1/models", "any.example").status == 200
    with start_fake("--host", "0.0.0.0", "--server.allowed_hosts", "llm.example") as server:
        assert ask(server, "GET", "/v1/models", "any.example").status == 403
        assert ask(server, "GET", "/v1/models", "llm.example").status == 200
        assert ask(server, "GET", "/v1/models").status == 200


# ---- pages ----


def test_no_answer_has_a_cors_header_by_default(fake):
    for method, path in [("GET", "/health"), ("GET", "/v1/models"), ("OPTIONS", PATH), ("POST", PATH)]:
        for origin in [None, f"http://127.0.0.1:{fake.port}"]:
            assert cors_of(ask(fake, method, path, origin=origin)) == {}
    assert cors_of(ask(fake, "OPTIONS", PATH, origin=PAGE)) == {}
    assert fake.ask("OPTIONS", "*").status == 204 and fake.ask("OPTIONS", "/nothing").status == 404


@pytest.mark.parametrize("origin", [PAGE, "null", "http://localhost:3000", "http://127.0.0.1", "https://evil.example:8080", "file://", "chrome-extension://abc", ""])
@pytest.mark.parametrize("method,path", OTHERS + GUARDED)
def test_without_a_key_no_foreign_page_is_served(fake, origin, method, path):
    reply = ask(fake, method, path, origin=origin, headers=[("Content-Type", "text/plain")])
    assert reply.status == 403 and reply.error["code"] == "origin_not_allowed"
    assert "server.cors_origin" in reply.error["message"] and cors_of(reply) == {}


@pytest.mark.parametrize("method,path", OTHERS + GUARDED[:3])
def test_pages_of_the_server_itself_and_clients_without_a_page_are_served(fake, method, path):
    for origin in [None, f"http://127.0.0.1:{fake.port}", f"https://127.0.0.1:{fake.port}"]:
        assert ask(fake, method, path, origin=origin).status in (200, 400)  # 400: fields of another route
    assert ask(fake, "GET", "/v1/models", "localhost", "http://localhost:80").status == 200
    assert ask(fake, "GET", "/v1/models", "localhost:443", "https://localhost").status == 200
    assert ask(fake, "GET", "/v1/models", "localhost", "http://localhost:443").status == 403


def test_liveness_is_no_secret(fake):
    assert ask(fake, "GET", "/health", origin=PAGE).status == 200
    assert ask(fake, "GET", "/ready", origin=PAGE).status == 200


def test_with_a_key_pages_need_the_key_and_never_reach_what_is_guarded():
    key = [("X-Api-Key", "sk-1")]
    with start_fake(environment={"MILLRACE_API_KEY": "sk-1"}) as server:
        assert ask(server, "POST", PATH, origin=PAGE).status == 401
        assert ask(server, "POST", PATH, origin=PAGE, headers=key).status == 200  # an app that is no browser
        for method, path in GUARDED:
            assert ask(server, method, path, origin=PAGE, headers=key).status == 403
            assert ask(server, method, path, headers=key).status not in (401, 403)


@pytest.fixture(scope="module")
def named():
    with start_fake(environment={"MILLRACE_SERVER_CORS_ORIGIN": NAMED}) as server:
        yield server


@pytest.fixture(scope="module")
def star():
    with start_fake("--server.cors_origin", "*") as server:
        yield server


@pytest.mark.parametrize("origin", NAMED.split(","))
def test_a_page_that_is_named_may_use_all(named, origin):
    for method, path in OTHERS + GUARDED:
        reply = ask(named, method, path, origin=origin)
        assert reply.status != 403
        assert reply.get("access-control-allow-origin") == origin and "Origin" in reply.get("vary")
        exposed = reply.get("access-control-expose-headers").split(", ")
        assert {"x-request-id", "server-timing", "retry-after", "x-ignored-params"} <= set(exposed)


def test_a_page_that_is_not_named_may_use_nothing(named):
    for origin in ["https://app.example.evil", "http://app.example", "https://app.example:444", "null"]:
        for method, path in OTHERS + GUARDED:
            reply = ask(named, method, path, origin=origin)
            assert reply.status == 403 and cors_of(reply) == {} and reply.get("vary") == "Origin"


def test_preflights_follow_the_list(named):
    asked = [("Access-Control-Request-Method", "POST"), ("Access-Control-Request-Headers", "authorization,content-type,x-stainless-os")]
    reply = ask(named, "OPTIONS", PATH, origin=PAGE, headers=asked)
    assert reply.status == 204 and reply.get("access-control-allow-origin") == PAGE
    assert reply.get("access-control-allow-headers") == "authorization,content-type,x-stainless-os"
    assert "POST" in reply.get("access-control-allow-methods") and "POST" in reply.get("allow")
    reply = ask(named, "OPTIONS", PATH, origin="https://evil.example", headers=asked)
    assert reply.status == 204 and cors_of(reply) == {}


def test_a_star_lets_all_pages_in_but_not_to_what_is_guarded(star):
    for origin in [PAGE, "null"]:
        for method, path in OTHERS:
            reply = ask(star, method, path, origin=origin)
            assert reply.status != 403 and reply.get("access-control-allow-origin") == "*"
        for method, path in GUARDED:
            assert ask(star, method, path, origin=origin).error["code"] == "origin_not_allowed"


def test_a_long_list_of_headers_is_answered_by_the_wildcard(star):
    for n in [1024, 1025, 6000, 11000]:
        reply = star.ask("OPTIONS", PATH, headers=[("Access-Control-Request-Headers", "a" * n)])
        assert reply.status == 204
        assert reply.get("access-control-allow-headers") == ("a" * n if n == 1024 else "*, authorization")


@pytest.mark.parametrize("bad", ["app.example", "https://app.example/", "https://", "https://a b", "**"])
def test_what_no_page_can_be_is_refused_at_start(bad):
    done = subprocess.run([BINARY, "serve", "--model", "smollm2-135m", "--port", "0", "--server.cors_origin", bad],
                          capture_output=True, text=True, timeout=600, env=clean_environment())
    assert done.returncode == 1 and "server.cors_origin" in done.stderr and bad in done.stderr


@pytest.mark.parametrize("host", ["[::1]", "::1"])
def test_a_host_option_in_brackets_is_an_address(host):
    with start_fake("--host", host) as server:
        class At(Raw):
            def __init__(self):
                import socket
                self.sock = socket.create_connection(("::1", server.port))
                self.buffer = b""
        with At() as c:
            c.send(b"GET /health HTTP/1.1\r\nHost: [::1]\r\n\r\n")
            assert c.reply().status == 200
        for options in [["--url", f"http://[::1]:{server.port}"], ["--host", host, "--port", str(server.port)]]:
            assert subprocess.run([BINARY, "health", *options], env=clean_environment()).returncode == 0
