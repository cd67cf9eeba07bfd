"""Preparation (parsing, rendering, tokenising) takes turns by key, never runs on a loop, and counts in the limits.
While one rendering takes seconds, other requests are answered; the tests check order, not time."""

import contextlib
import json
import select

import pytest

from http_rig import COMPLETION, start_fake, start_real, wait_for

PATH = "/v1/completions"
CHAT_PATH = "/v1/chat/completions"

# Looks at every message for each message, as templates that count turns do.
QUADRATIC = (
    "{% for a in messages %}{% set ns = namespace(n=0) %}{% for b in messages %}"
    "{% if b.role == a.role %}{% set ns.n = ns.n + 1 %}{% endif %}{% endfor %}{% endfor %}{{ messages[0].content }}"
)


def as_key(key):
    return [("Authorization", f"Bearer {key}")]


def has_answer(c):
    return bool(c.buffer) or bool(select.select([c.sock], [], [], 0)[0])


@contextlib.contextmanager
def slow_rendering(tmp_path, *options, keys=()):
    template, file = tmp_path / "quadratic.jinja", tmp_path / "keys"
    template.write_text(QUADRATIC)
    file.write_text("".join(f"sk-{key} name={key}\n" for key in keys))
    options = [*options, *(["--server.api_key_file", str(file)] if keys else [])]
    with start_real("--chat-template", str(template), *options) as server:
        yield server


def many_messages(n=2400):
    return {"messages": [{"role": "user", "content": ""}] * n, "max_tokens": 1}


def preparing(server, key):
    text = server.ask("GET", "/metrics", headers=as_key(key)).body.decode()
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith("millrace_requests_preparing{"))


def test_health_and_small_requests_are_answered_while_a_rendering_goes_on(tmp_path):
    with slow_rendering(tmp_path, keys=("a", "b")) as server:
        flood = [server.raw() for _ in range(8)]
        for c in flood:
            c.request("POST", CHAT_PATH, many_messages(), as_key("sk-a"))
        wait_for(lambda: preparing(server, "sk-b") == 7, "one is rendered, the others wait")
        for _ in range(20):
            assert server.ask("GET", "/health").status == 200
            assert server.ask("GET", "/ready").status == 200
        assert server.post(PATH, COMPLETION, as_key("sk-b")).status == 200
        assert sum(has_answer(c) for c in flood) <= 4, "all that came while the flood was prepared"
        for c in flood:
            c.close()


def test_a_flood_of_large_bodies_delays_another_key_by_turns_not_by_the_flood(tmp_path):
    with slow_rendering(tmp_path, keys=("a", "b")) as server:
        flood = [server.raw() for _ in range(12)]
        for c in flood:
            c.request("POST", CHAT_PATH, many_messages(800), as_key("sk-a"))
        wait_for(lambda: preparing(server, "sk-b") > 8, "the flood waits")
        for _ in range(5):
            before = sum(has_answer(c) for c in flood)
            assert server.post("/tokenize", {"prompt": "a b " * 18000}, as_key("sk-b")).status == 200
            assert sum(has_answer(c) for c in flood) - before <= 2, "one in progress at each of two moments"
        for c in flood:
            c.close()


def test_who_leaves_while_waiting_for_preparation_is_forgotten(tmp_path):
    with slow_rendering(tmp_path) as server:
        before, leavers = [server.raw() for _ in range(8)], [server.raw() for _ in range(20)]
        for c in before:
            c.request("POST", CHAT_PATH, many_messages())
        for c in leavers:
            c.request("POST", CHAT_PATH, many_messages(100))
        wait_for(lambda: server.metric("millrace_requests_preparing") > 20, "all wait, behind those before")
        for c in leavers:
            c.close()
        wait_for(lambda: server.metric("millrace_requests_preparing") < 8, "those that left wait no more")
        assert sum(has_answer(c) for c in before) < 8, "it was not their turn yet"
        for c in before:
            c.close()
        wait_for(lambda: server.metric("millrace_client_memory_bytes", 'kind="bodies"') == 0, "its memory is back")


def test_what_waits_for_preparation_counts_in_the_limits(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("sk-a name=a max_queued=3 max_running=1\nsk-b name=b\n")
    template = tmp_path / "quadratic.jinja"
    template.write_text(QUADRATIC)
    with start_real("--chat-template", str(template), "--server.api_key_file", str(keys)) as server:
        flood = [server.raw() for _ in range(12)]
        for c in flood:
            c.request("POST", CHAT_PATH, many_messages(), as_key("sk-a"))
        wait_for(lambda: sum(has_answer(c) for c in flood) >= 7, "those beyond the limit are refused at once")
        codes = []
        for c in flood:
            reply = c.reply()
            codes.append(reply.error["code"] if reply.status != 200 else 200)
            if reply.status == 429:
                assert int(reply.get("retry-after")) >= 1
            c.close()
        assert 7 <= codes.count("key_queue_full") <= 8, codes
        assert server.post(PATH, COMPLETION, as_key("sk-b")).status == 200


def test_the_queue_timeout_holds_before_preparation_too(tmp_path):
    with slow_rendering(tmp_path, "--server.queue_timeout", "50ms") as server:
        conns = [server.raw() for _ in range(3)]
        for c in conns:
            c.request("POST", CHAT_PATH, many_messages())
        replies = [c.reply() for c in conns]
        assert {r.error["code"] for r in replies[1:]} == {"queue_timeout"}
        assert all(r.status == 503 for r in replies[1:])
        for c in conns:
            c.close()


@pytest.mark.parametrize("body", [
    {"prompt": [""] * 200, "max_tokens": 1},
    {"prompt": "a", "max_tokens": 1, "user": "\u00e9"},
    {"prompt": "a" * 3000, "max_tokens": 1},
    {"prompt": "a", "max_tokens": 1},
])  # fmt: skip
def test_whichever_thread_prepares_the_answer_is_the_same(body):
    with start_fake() as server:
        replies = [server.post(PATH, {**body, "temperature": 0}) for _ in range(2)]
        assert all(r.status == 200 for r in replies)
        assert len({json.dumps(r.json["choices"]) for r in replies}) == 1


def test_a_burst_of_small_bodies_is_answered_whole():
    with start_fake("--sched.max_running", "64") as server:
        conns = [server.raw() for _ in range(60)]
        for c in conns:
            c.request("POST", PATH, COMPLETION)
        for c in conns:
            assert c.reply().status == 200
            c.close()
        server.wait_idle()
