"""The server's own reports: per-request timing, /v1/requests, /debug/kv, /debug/journal."""

import json
import re

import pytest

from http_rig import COMPLETION, Raw, start_fake, wait_for

PARTS = ["queue", "prefill", "wait", "decode", "swap"]


def check_timings(timings):
    assert list(timings) == [f"{part}_ms" for part in PARTS] + ["total_ms"]
    assert all(value >= 0 for value in timings.values())
    total = sum(timings[f"{part}_ms"] for part in PARTS)
    assert timings["total_ms"] == pytest.approx(total, abs=1e-5)


def server_timing(reply):
    """{name: dur} of the header; every entry has the form that browsers read."""
    entries = reply.get("server-timing").split(", ")
    found = [re.fullmatch(r"([a-z]+);dur=(\d+\.\d{3})", entry) for entry in entries]
    assert all(found), entries
    return {m.group(1): float(m.group(2)) for m in found}


def test_whole_answers_tell_timings_when_asked(fake):
    reply = fake.complete(timings=True, max_tokens=20, ignore_eos=True)
    timings = reply.json["timings"]
    check_timings(timings)
    assert timings["prefill_ms"] > 0 and timings["decode_ms"] >= 19  # a millisecond a step
    assert "timings" not in fake.complete().json
    assert "timings" not in fake.complete(timings=False).json


def test_streams_tell_timings_in_their_usage_chunk(fake):
    for more in [{}, {"stream_options": {"include_usage": True}}]:
        reply = fake.chat(stream=True, timings=True, ignore_eos=True, **more)
        events = reply.events()
        assert [i for i, event in enumerate(events) if "timings" in event] == [len(events) - 1]
        assert events[-1]["choices"] == [] and events[-1]["usage"]["completion_tokens"] == 8
        check_timings(events[-1]["timings"])
    events = fake.chat(stream=True).events()
    assert all("timings" not in event for event in events)


def test_timings_is_a_boolean(fake):
    reply = fake.complete(timings="yes")
    assert reply.status == 400 and reply.error["param"] == "timings"


def test_whole_answers_carry_a_server_timing_header(fake):
    reply = fake.complete(timings=True, max_tokens=20, ignore_eos=True)
    parts = server_timing(reply)
    assert set(parts) <= {*PARTS, "total"}
    for part in PARTS:
        assert parts.get(part, 0) == pytest.approx(reply.json["timings"][f"{part}_ms"], abs=0.001)
    assert parts["total"] == pytest.approx(sum(v for k, v in parts.items() if k != "total"), abs=0.01)


def test_streams_carry_what_is_known_at_their_head(fake):
    assert list(server_timing(fake.chat(stream=True))) == ["prepare"]


def test_errors_and_other_answers_carry_no_server_timing(fake):
    assert fake.ask("GET", "/health").get("server-timing") is None
    assert fake.complete(max_tokens="x").get("server-timing") is None


def test_a_request_that_waits_says_so():
    """One sequence at a time: the second waits in the queue while the first runs."""
    with start_fake("--sched.max_running", "1", "--sched.max_batch_tokens", "64") as server:
        with server.raw() as first, server.raw() as second:
            body = {**COMPLETION, "ignore_eos": True, "timings": True}
            first.request("POST", "/v1/completions", {**body, "max_tokens": 100})
            server.wait_metric("vllm:num_requests_running", 1)
            second.request("POST", "/v1/completions", {**body, "max_tokens": 5})
            one, two = first.reply().json["timings"], second.reply().json["timings"]
        check_timings(one)
        check_timings(two)
        assert two["queue_ms"] > two["decode_ms"] and one["decode_ms"] >= 99


@pytest.fixture()
def held():
    """A server with a request that runs until it is cancelled, and one behind it in the queue."""
    with start_fake("--sched.max_running", "2", "--sched.max_batch_tokens", "64") as server:
        with server.raw() as a, server.raw() as b:
            body = {**COMPLETION, "ignore_eos": True, "max_tokens": 4000, "stream": True}
            a.request("POST", "/v1/completions", {**body, "n": 2}, [("X-Request-Id", "runs")])
            server.wait_metric("vllm:num_requests_running", 2)
            a.head()
            b.request("POST", "/v1/completions", body, [("X-Request-Id", "waits")])
            server.wait_metric("vllm:num_requests_waiting", 1)
            yield server


def test_requests_show_every_sequence(held):
    def both_run():
        reply = held.ask("GET", "/v1/requests")
        assert reply.status == 200
        rows = reply.json["data"]
        return reply.json if min(row["output_tokens"] for row in rows[:2]) >= 2 else None

    answer = wait_for(both_run, "both choices have tokens")
    assert answer["object"] == "list" and answer["next"] is None and answer["total"] == 3
    assert (answer["running"], answer["queued"], answer["parked"]) == (2, 1, 0)
    assert [(row["id"], row["choice"]) for row in answer["data"]] == [("runs", 0), ("runs", 1), ("waits", 0)]
    assert {row["tenant"] for row in answer["data"]} == {"default"}
    for row in answer["data"][:2]:
        assert row["state"] in ("running", "waiting") and row["n"] == 2 and row["max_tokens"] == 4000
        assert row["tokens"] == row["prompt_tokens"] + row["output_tokens"]
        assert row["kv_tokens"] == row["tokens"] - 1
        assert row["blocks"]["arena"] == (row["kv_tokens"] + 15) // 16 and row["blocks"]["ram"] == 0
        assert row["blocks"]["age_s"] >= 0 and row["age_s"] > 0
        check_timings(row["timings"])
    last = answer["data"][2]
    assert last["state"] == "queued" and last["output_tokens"] == 0 and last["blocks"]["arena"] == 0
    assert last["timings"]["queue_ms"] == last["timings"]["total_ms"] > 0


def test_pages_of_requests(held):
    rows = [held.ask("GET", f"/v1/requests?from={i}").json for i in range(4)]
    assert [len(page["data"]) for page in rows] == [3, 2, 1, 0]
    assert all(page["total"] == 3 and page["next"] is None for page in rows)
    for bad in ["x", "-1", "", "12345678901", "1x"]:
        reply = held.ask("GET", f"/v1/requests?from={bad}")
        assert reply.status == 400 and reply.error["param"] == "from", bad


def test_debug_kv_adds_up(held):
    answer = held.ask("GET", "/debug/kv?audit=1").json
    assert answer["audit"] == {"ok": True, "error": None}
    assert held.ask("GET", "/debug/kv").json["audit"] is None
    assert held.ask("GET", "/debug/kv?audit=0").json["audit"] is None
    group = answer["totals"]["groups"][0]
    used = group["frames"] - group["free"]
    assert group["frames"] == held.metric("millrace_kv_blocks")
    assert answer["total"] == len(answer["blocks"]) == used
    assert sum(block["filled"] for block in answer["blocks"]) == answer["totals"]["token_slots_written"]
    assert used * answer["totals"]["block_tokens"] == answer["totals"]["token_slots_allocated"]
    assert all(block["tier"] == "arena" and block["refs"] >= 1 for block in answer["blocks"])


def test_a_question_whose_client_leaves_harms_nothing(held):
    for how in ["fin", "rst", "half"] * 20:
        c = Raw(held)
        c.request("GET", "/debug/kv")
        c.leave(how)
    assert held.ask("GET", "/debug/kv?audit=1").json["audit"]["ok"]


def test_head_and_keep_alive_work_for_questions(held):
    with held.raw() as c:
        assert c.ask("HEAD", "/v1/requests").status == 200
        for _ in range(50):
            assert c.ask("GET", "/v1/requests").json["total"] == 3


def test_debug_routes_need_a_key():
    with start_fake("--api_key", "secret") as server:
        for path in ["/v1/requests", "/debug/kv", "/debug/journal"]:
            assert server.ask("GET", path).status == 401
            assert server.ask("GET", path, headers=[("Authorization", "Bearer secret")]).status == 200


def journal(server):
    reply = server.ask("GET", "/debug/journal")
    assert reply.status == 200 and reply.get("content-type") == "application/jsonl"
    return [json.loads(line) for line in reply.body.decode().splitlines()]


def test_the_journal_holds_a_run_and_no_text():
    with start_fake() as server:
        secret = "the launch code is 48151623"
        for i in range(3):
            server.complete(prompt=secret * 8, max_tokens=5, ignore_eos=True)
        server.complete(prompt="other", max_tokens=7, ignore_eos=True, n=2)
        server.wait_idle()
        lines = journal(server)
    config, records = lines[0], lines[1:]
    assert config["kind"] == "config" and config["block_tokens"] == 16 and config["groups"][0]["n_frames"] > 0
    submits = [r for r in records if r["kind"] == "submit"]
    ends = [r for r in records if r["kind"] == "end"]
    steps = [r for r in records if r["kind"] == "step"]
    assert [r["max_tokens"] for r in submits] == [5, 5, 5, 7] and submits[3]["n_choices"] == 2
    assert [r["n_output"] for r in ends] == [5, 5, 5, 14] and {r["status"] for r in ends} == {0}
    assert [r["request"] for r in submits] == [r["request"] for r in ends]
    prompts = {}
    for r in records:
        if r["kind"] == "prompt":
            prompts.setdefault(r["request"], []).extend(r["print"])
    first = [prompts[r["request"]] for r in submits[:3]]
    assert first[0] == first[1] == first[2] and len(first[0]) == submits[0]["n_prompt"] // 16
    assert all(r["took_ns"] > 0 and r["n_rows"] > 0 for r in steps)
    at = [r["at_ns"] for r in steps]
    assert at == sorted(at)
    assert "launch" not in json.dumps(lines)


def test_a_journal_of_no_bytes_still_tells_the_limits():
    with start_fake("--sched.journal", "0") as server:
        server.complete()
        assert [r["kind"] for r in journal(server)] == ["config"]


def test_a_full_journal_forgets_the_oldest():
    with start_fake("--sched.journal", "4KiB") as server:
        for _ in range(4):
            server.complete(max_tokens=40, ignore_eos=True)
        server.wait_idle()
        lines = journal(server)
    assert len(lines) == 1 + 4096 // 64
    assert lines[-1]["kind"] in ("end", "prompt")  # the prompt goes on with the output's blocks
