"""Permissions of keys and routes: limits at their exact edges, reload by SIGHUP, deadlines, best of several choices."""

import signal

import pytest

from http_rig import CHAT, COMPLETION, start_fake, start_real, wait_for
from http_shapes import counts

CHAT_PATH = "/v1/chat/completions"
ENDLESS = {"ignore_eos": True, "max_tokens": 4000}


def ids(n):
    return {"prompt": [1000 + i for i in range(n)], "max_tokens": 4, "temperature": 0, "ignore_eos": True}


def as_key(key):
    return [("Authorization", f"Bearer {key}")]


def reload(server, count, text="reload: done"):
    server.signal(signal.SIGHUP)
    wait_for(lambda: server.log_text().count("reload:") >= count, "a reload")
    assert text in server.log_text()


def too_long(reply, n, most):
    assert reply.status == 400, reply.body
    error = reply.error
    assert (error["code"], error["type"]) == ("context_length_exceeded", "invalid_request_error")
    assert (error["input_length"], error["max_allowed"]) == (n, most)
    assert str(n) in error["message"] and str(most) in error["message"]
    return error


@pytest.fixture(scope="module")
def limited(tmp_path_factory):
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text(
        "sk-in name=in max_input=20\nsk-out name=out max_output=3\nsk-ctx name=ctx max_context=24\n"
        "sk-more name=more max_context=120\nsk-free name=free\n"
    )
    options = ["--server.api_key_file", str(keys), "--limits.max_input", "100", "--limits.max_context", "200"]
    options += ["--limits.route", "completions max_input=40", "--limits.route", "chat max_output=5"]
    with start_fake(*options) as server:
        yield server


def complete(server, key, n, **fields):
    return server.post("/v1/completions", {**ids(n), **fields}, as_key(key))


@pytest.mark.parametrize("key,most", [("sk-in", 20), ("sk-free", 40), ("sk-out", 40), ("sk-ctx", 23)])
def test_the_least_limit_of_server_route_and_key_holds_at_its_edge(limited, key, most):
    assert complete(limited, key, most - 1).status == 200
    assert complete(limited, key, most).status == 200
    too_long(complete(limited, key, most + 1), most + 1, most)


def test_a_limit_says_where_it_comes_from(limited):
    assert "max_input of the key is 20" in too_long(complete(limited, "sk-in", 30), 30, 20)["message"]
    assert "max_input of the route is 40" in too_long(complete(limited, "sk-free", 41), 41, 40)["message"]
    assert "max_context of the key is 24" in too_long(complete(limited, "sk-ctx", 30), 30, 23)["message"]


def test_the_limit_of_a_route_is_not_that_of_another(limited):
    text = [{"role": "user", "content": "word " * 50}]
    reply = limited.post(CHAT_PATH, {**CHAT, "messages": text}, as_key("sk-free"))
    assert reply.status == 200 and reply.json["usage"]["prompt_tokens"] > 40
    text = [{"role": "user", "content": "word " * 120}]
    reply = limited.post(CHAT_PATH, {**CHAT, "messages": text}, as_key("sk-free"))
    too_long(reply, reply.error["input_length"], 100)


def test_a_refused_prompt_never_reaches_the_engine(limited):
    before = limited.ask("GET", "/metrics", headers=as_key("sk-free")).body
    steps = [line for line in before.decode().splitlines() if line.startswith("millrace_engine_steps_total")]
    too_long(complete(limited, "sk-in", 21, stream=True), 21, 20)
    after = limited.ask("GET", "/metrics", headers=as_key("sk-free")).body
    assert steps[0] in after.decode().splitlines()


@pytest.mark.parametrize("key,n,asked,made", [
    ("sk-out", 10, 3, 3), ("sk-out", 10, 4, 3), ("sk-out", 10, 10**7, 3),
    ("sk-ctx", 20, 4, 4), ("sk-ctx", 20, 5, 4), ("sk-ctx", 23, 9, 1),
])  # fmt: skip
def test_max_tokens_is_cut_to_the_limit(limited, key, n, asked, made):
    reply = complete(limited, key, n, max_tokens=asked)
    assert reply.status == 200 and reply.json["usage"]["completion_tokens"] == made
    assert reply.json["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("key,most,n", [("sk-ctx", 24, 1), ("sk-ctx", 24, 23), ("sk-more", 120, 1), ("sk-more", 120, 40)])
def test_overflow_goes_beyond_no_max_context_of_a_key(limited, key, most, n):
    reply = complete(limited, key, n, max_tokens=150, overflow="sinks")
    assert reply.status == 200, reply.body
    assert reply.json["usage"]["completion_tokens"] == most - n
    assert reply.json["choices"][0]["finish_reason"] == "length"
    assert complete(limited, "sk-free", n, max_tokens=250, overflow="sinks").json["usage"]["completion_tokens"] == 250


def test_max_output_of_a_route(limited):
    reply = limited.post(CHAT_PATH, {**CHAT, **ENDLESS}, as_key("sk-free"))
    assert reply.json["usage"]["completion_tokens"] == 5


def test_each_prompt_of_a_list_is_checked(limited):
    body = {**ids(1), "prompt": [[1000] * 20, [1000] * 21]}
    too_long(limited.post("/v1/completions", body, as_key("sk-in")), 21, 20)


# ---- reload ----


def test_sighup_changes_keys_and_limits_and_drops_nobody(tmp_path):
    keys, config = tmp_path / "keys", tmp_path / "millrace.conf"
    keys.write_text("sk-old name=app\n")
    config.write_text(f"[limits]\nmax_input = 30\n[server]\napi_key_file = {keys}\n")
    with start_fake("--config", str(config), step_ms=2) as server, server.raw() as running:
        body = {**ids(10), "max_tokens": 2000, "stream": True}
        running.request("POST", "/v1/completions", body, as_key("sk-old"))
        running.head()
        first = running.chunk()
        too_long(complete(server, "sk-old", 31), 31, 30)
        keys.write_text("sk-new name=app max_output=2\n")
        config.write_text(f"[limits]\nmax_input = 32\n[server]\napi_key_file = {keys}\n")
        reload(server, 1)
        assert complete(server, "sk-old", 10).status == 401
        assert complete(server, "sk-new", 32).json["usage"]["completion_tokens"] == 2
        too_long(complete(server, "sk-new", 33), 33, 32)
        data = first
        while part := running.chunk():
            data += part
        assert data.endswith(b"data: [DONE]\n\n") and b'"finish_reason":"length"' in data


def test_a_bad_file_keeps_the_old_one_and_says_why(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("sk-a name=a\n")
    with start_fake("--server.api_key_file", str(keys)) as server:
        keys.write_text("sk-b name=b\nsk-c wieght=2\n")
        reload(server, 1, 'line 2: unknown word "wieght": did you mean "weight"')
        assert complete(server, "sk-a", 5).status == 200
        assert complete(server, "sk-b", 5).status == 401
        keys.unlink()
        reload(server, 2, "cannot read the key file")
        assert complete(server, "sk-a", 5).status == 200
        keys.write_text("sk-b name=b\n")
        reload(server, 3)
        assert complete(server, "sk-a", 5).status == 401
        assert complete(server, "sk-b", 5).status == 200
        assert "sk-" not in server.log_text()


def test_the_program_itself_reloads_and_goes_on(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("sk-a name=a\n")
    with start_real("--server.api_key_file", str(keys)) as server:
        keys.write_text("sk-b name=b max_input=3\n")
        reload(server, 1, "reload: keys and limits were read again")
        assert complete(server, "sk-a", 3).status == 401
        assert complete(server, "sk-b", 3).status == 200
        too_long(complete(server, "sk-b", 4), 4, 3)


def test_a_bad_key_file_at_the_start_is_one_line(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("sk-a weight=0\n")
    with pytest.raises(AssertionError, match="line 1: weight must be a whole number from 1 to 1000"):
        with start_real("--server.api_key_file", str(keys)):
            pass


# ---- who sees what is others' ----


def rows(server, key):
    reply = server.ask("GET", "/v1/requests", headers=as_key(key))
    assert reply.status == 200, reply.body
    return reply.json


DEBUG = ["/debug/kv", "/debug/kv?audit=1", "/debug/journal", "/v1/debug/kv", "/metrics", "/v1/metrics"]


def test_where_a_key_is_admin_the_others_see_their_own_requests_only(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("sk-a name=a\nsk-b name=b\nsk-ops name=ops admin=true\n")
    options = ["--server.api_key_file", str(keys), "--sched.max_running", "2", "--sched.max_batch_tokens", "64"]
    with start_fake(*options, environment={"MILLRACE_API_KEY": "sk-env"}) as server:
        with server.raw() as a, server.raw() as b, server.raw() as waits:
            for c, key, name in [(a, "sk-a", "of-a"), (b, "sk-b", "of-b"), (waits, "sk-b", "later-of-b")]:
                body = {**ids(10), **ENDLESS, "stream": True}
                c.request("POST", "/v1/completions", body, [*as_key(key), ("X-Request-Id", name)])
                wait_for(lambda name=name: name in {row["id"] for row in rows(server, "sk-ops")["data"]}, name)
            for key in ("sk-ops", "sk-env"):
                told = rows(server, key)
                assert {row["id"] for row in told["data"]} == {"of-a", "of-b", "later-of-b"}
                assert (told["total"], told["running"], told["queued"]) == (3, 2, 1)
                for path in DEBUG:
                    assert server.ask("GET", path, headers=as_key(key)).status == 200
            told = rows(server, "sk-a")
            assert [(row["id"], row["tenant"]) for row in told["data"]] == [("of-a", "a")]
            assert (told["total"], told["running"], told["queued"], told["parked"]) == (1, 1, 0, 0)
            told = rows(server, "sk-b")
            assert [row["id"] for row in told["data"]] == ["of-b", "later-of-b"]
            assert (told["total"], told["running"], told["queued"]) == (2, 1, 1)
            page = server.ask("GET", "/v1/requests?from=1", headers=as_key("sk-b")).json
            assert [row["id"] for row in page["data"]] == ["later-of-b"] and page["next"] is None
            for path in DEBUG:
                reply = server.ask("GET", path, headers=as_key("sk-a"))
                assert reply.status == 403 and reply.error["code"] == "admin_key_required"
                assert reply.error["type"] == "permission_error" and "admin=true" in reply.error["message"]
                assert server.ask("GET", path, headers=as_key("sk-none")).status == 401
            keys.write_text("sk-a name=a\nsk-b name=b\n")
            reload(server, 1)
            assert {row["id"] for row in rows(server, "sk-a")["data"]} == {"of-a", "of-b", "later-of-b"}
            assert server.ask("GET", "/debug/kv", headers=as_key("sk-b")).status == 200


# ---- what can never run is refused at the door ----


def test_choices_beyond_what_a_key_may_run_at_once_are_400(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("sk-two name=two max_running=2\nsk-free name=free\n")
    with start_fake("--server.api_key_file", str(keys), "--sched.max_running", "8") as server:
        for path, base in [("/v1/completions", COMPLETION), (CHAT_PATH, CHAT)]:
            for n in (1, 2):
                assert server.post(path, {**base, "n": n}, as_key("sk-two")).status == 200
            for n in (3, 8):
                reply = server.post(path, {**base, "n": n}, as_key("sk-two"))
                assert reply.status == 400 and reply.error["param"] == "n"
                assert "from 1 to 2 (max_running of the key)" in reply.error["message"]
            assert server.post(path, {**base, "n": 8}, as_key("sk-free")).status == 200
            reply = server.post(path, {**base, "n": 9}, as_key("sk-free"))
            assert reply.status == 400 and "from 1 to 8 (sched.max_running)" in reply.error["message"]
        reply = complete(server, "sk-two", 4, best_of=3)
        assert reply.status == 400 and reply.error["param"] == "best_of"
        assert complete(server, "sk-two", 4, best_of=2).status == 200


def test_lists_of_prompts_that_can_never_wait_together_are_400(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("sk-key name=key max_running=4 max_queued=3\nsk-free name=free\n")
    options = ["--server.api_key_file", str(keys), "--sched.max_running", "8", "--sched.max_queued", "10"]
    with start_fake(*options) as server:
        for key, n, most in [("sk-key", 1, 7), ("sk-key", 2, 5), ("sk-key", 4, 4), ("sk-free", 1, 18), ("sk-free", 8, 11)]:
            fields = {"prompt": ["x"] * most, "max_tokens": 2, "n": n}
            reply = server.post("/v1/completions", fields, as_key(key))
            assert reply.status in (200, 429), "429 where an earlier one still runs"
            reply = server.post("/v1/completions", {**fields, "prompt": ["x"] * (most + 1)}, as_key(key))
            assert reply.status == 400 and reply.error["param"] == "prompt", reply.body
            assert f"at most {most} of them" in reply.error["message"]
            assert ("of the key" if key == "sk-key" else "sched.max_queued") in reply.error["message"]


# ---- fields ----


@pytest.mark.parametrize("field,value", [
    ("priority", 1.5), ("priority", "high"), ("priority", 2**31), ("deadline_ms", 0), ("deadline_ms", -5),
    ("deadline_ms", 86400001), ("cache_salt", 7), ("cache_salt", "x" * 129), ("kv_reserve", 1), ("overflow", "shift"),
    ("best_of", 0), ("best_of", 17), ("best_of", 10**9),
])  # fmt: skip
def test_a_bad_value_of_a_service_field_is_400(fake, field, value):
    reply = fake.complete(**{field: value})
    assert reply.status == 400 and reply.error["param"] == field, reply.body


@pytest.mark.parametrize("field,value", [
    ("priority", -(2**31)), ("priority", 2**31 - 1), ("deadline_ms", 1), ("deadline_ms", 86400000), ("cache_salt", ""),
    ("cache_salt", "x" * 128), ("cache_salt", "\u00e9"), ("kv_reserve", True), ("overflow", "stop"), ("overflow", None),
])  # fmt: skip
def test_good_values_of_service_fields_are_taken(fake, field, value):
    for path, body in [("/v1/completions", COMPLETION), (CHAT_PATH, CHAT)]:
        # A deadline may be too near for the machine at hand.
        assert fake.post(path, {**body, field: value}).status in ((200, 429, 504) if field == "deadline_ms" else (200,))


# ---- what can never fit ----


@pytest.mark.parametrize("fields", [{}, {"stream": True}, {"n": 3, "max_tokens": 60}])
def test_a_prompt_too_long_to_reserve_is_told_how_long_it_may_be(fields):
    """40 blocks of 16 tokens, which must hold the whole answer of each choice."""

    def bound(reply, n):
        assert (reply.status, reply.error["code"], reply.error["input_length"]) == (400, "context_length_exceeded", n)
        assert "40" in reply.error["message"] and "reserved" in reply.error["message"]
        return reply.error["max_allowed"]

    with start_fake("--kv-blocks", "40") as server:
        body = {**ids(500), "max_tokens": 100, "n": 2, "kv_reserve": True, **fields}
        ask = lambda prompt, **more: server.post("/v1/completions", {**body, "prompt": prompt, **more})  # noqa: E731
        most = bound(ask(body["prompt"]), 500)
        assert ask(body["prompt"][:most]).status == 200
        assert bound(ask(body["prompt"][: most + 1]), most + 1) == most
        assert bound(ask([[1000], [1000] * 500]), 500) == most  # the second one of the list
        assert bound(ask([1000], n=16, max_tokens=100), 1) == 0  # no prompt is short enough
        server.wait_idle()


# ---- best_of ----


def mean_logprob(choice):
    values = choice["logprobs"]["token_logprobs"]
    return sum(values) / len(values)


def test_best_of_gives_the_most_likely_choices_first(real):
    fields = {"prompt": "The best colour is", "max_tokens": 6, "temperature": 1.5, "seed": 7, "logprobs": 0}
    every = real.post("/v1/completions", {**fields, "n": 6}).json
    best = real.post("/v1/completions", {**fields, "n": 2, "best_of": 6}).json
    ranked = sorted(every["choices"], key=mean_logprob, reverse=True)
    assert [c["text"] for c in best["choices"]] == [c["text"] for c in ranked[:2]]
    assert [c["index"] for c in best["choices"]] == [0, 1]
    assert counts(best["usage"]) == counts(every["usage"]), "all computed tokens are told"
    assert len({c["text"] for c in every["choices"]}) > 1


def test_best_of_needs_no_logprobs_and_keeps_prompts_apart(real):
    fields = {"prompt": ["One", "Two"], "max_tokens": 5, "temperature": 1.5, "seed": 7}
    every = real.post("/v1/completions", {**fields, "n": 4, "logprobs": 0}).json["choices"]
    best = real.post("/v1/completions", {**fields, "best_of": 4}).json["choices"]
    assert [c["text"] for c in best] == [max(every[i : i + 4], key=mean_logprob)["text"] for i in (0, 4)]
    assert [c["index"] for c in best] == [0, 1] and best[0]["logprobs"] is None


def test_best_of_and_n(fake):
    assert fake.complete(n=3, best_of=2).error["param"] == "best_of"
    assert fake.complete(best_of=2, stream=True).error["param"] == "best_of"
    assert fake.complete(n=2, best_of=2, stream=True).status == 200
    assert len(fake.complete(n=2, best_of=2).json["choices"]) == 2
    assert len(fake.complete(n=2, best_of=None).json["choices"]) == 2


# ---- what the log may know ----


def test_neither_keys_nor_salts_are_told_anywhere(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("sk-hidden name=shown\nsk-unnamed\n")
    with start_fake("--server.api_key_file", str(keys), "--log.level", "debug") as server:
        for key in ("sk-hidden", "sk-unnamed"):
            assert complete(server, key, 5, cache_salt="pepper").status == 200
            told = server.ask("GET", "/metrics", headers=as_key(key)).body.decode() + server.log_text()
            assert "sk-" not in told and "pepper" not in told
