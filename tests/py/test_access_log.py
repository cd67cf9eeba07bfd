"""The access log's lines about requests, however they end."""

import re
import signal

import pytest

from http_rig import CHAT, start_fake, wait_for


def ids(n, **fields):
    return {"prompt": [1000 + i for i in range(n)], "temperature": 0, "ignore_eos": True, **fields}


def line_of(server, request_id):
    def find():
        return [line for line in server.log_text().splitlines() if f"request id={request_id} " in line]

    return dict(re.findall(r"(\w+)=(\S*)", wait_for(find, "an access line")[0]))


def test_a_finished_request_has_its_counts_and_its_rate():
    with start_fake(step_ms=2) as server:
        body = ids(40, max_tokens=30)
        assert server.post("/v1/completions", body, [("X-Request-Id", "done")]).status == 200
        told = line_of(server, "done")
        assert (told["tokens_in"], told["tokens_out"], told["end"]) == ("40", "30", "ok")
        assert 0 < float(told["tok_s"]) <= 1000 / 2 * 1.5 and float(told["ttft_ms"]) > 0


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_has_its_counts(how, stream):
    with start_fake(step_ms=5) as server, server.raw() as client, server.raw() as other:
        body = ids(40, max_tokens=100000, stream=stream)
        client.request("POST", "/v1/completions", body, [("X-Request-Id", "left")])
        if stream:
            client.head()
            for _ in range(5):
                client.chunk()
        else:
            wait_for(lambda: server.metric("vllm:generation_tokens_total") >= 5, "5 tokens")
        client.leave(how)
        told = line_of(server, "left")
        assert told["tokens_in"] == "40" and int(told["tokens_out"]) >= 4 and told["end"] == "client_gone"
        assert float(told["ttft_ms"]) > 0 and float(told["tok_s"]) > 0
        assert other.ask("GET", "/health").status == 200


def test_a_drain_has_the_counts():
    with start_fake("--server.drain_timeout", "100ms", step_ms=5) as server, server.raw() as client:
        client.request("POST", "/v1/completions", ids(40, max_tokens=100000, stream=True), [("X-Request-Id", "cut")])
        client.head()
        for _ in range(5):
            client.chunk()
        server.signal(signal.SIGTERM)
        client.rest()
        told = line_of(server, "cut")
        assert told["tokens_in"] == "40" and int(told["tokens_out"]) >= 4 and float(told["ttft_ms"]) > 0


def test_a_prompt_over_5_s_shows_its_progress():
    with start_fake("--sched.chunk_max", "8", step_ms=400) as server:
        with server.raw() as client:
            client.request("POST", "/v1/completions", ids(400, max_tokens=1), [("X-Request-Id", "long")])
            lines = wait_for(lambda: re.findall(r"prompt id=long: (\d+) of 400 tokens after (\d+) s", server.log_text()), "progress")
            done, seconds = map(int, lines[0])
            assert 5 <= seconds < 60 and 8 <= done < 400 and done % 8 == 0


def test_probes_are_debug_lines():
    with start_fake() as server:
        for path in ("/ready", "/health"):
            assert server.ask("GET", path, headers=[("X-Request-Id", "probe")]).status == 200
        assert server.post("/v1/chat/completions", {**CHAT, "max_tokens": 1}, [("X-Request-Id", "real")]).status == 200
        line_of(server, "real")
        assert "id=probe" not in server.log_text()


def test_probes_of_a_server_that_is_not_ready_are_debug_lines_too():
    with start_fake("--fail-after", "1") as server:
        for _ in range(6):
            server.chat()
        wait_for(lambda: server.ask("GET", "/health").status == 503, "health turns")
        for path in ("/ready", "/health"):
            assert server.ask("GET", path, headers=[("X-Request-Id", "probe")]).status == 503
        assert server.ask("GET", "/none", headers=[("X-Request-Id", "real")]).status == 404
        line_of(server, "real")
        assert "id=probe" not in server.log_text()


def test_put_answers_carry_no_allow_header():
    with start_fake() as server:
        body = {"prompt": "one two three"}
        assert server.ask("PUT", "/v1/prefixes/a", body).get("allow") is None
        assert server.ask("DELETE", "/v1/prefixes/a").get("allow") is None
        reply = server.ask("POST", "/v1/prefixes/a", {})
        assert reply.status == 405 and {"GET", "HEAD", "PUT", "DELETE"} <= set(reply.get("allow").split(", "))
