"""`millrace simulate` on journals and access logs of real runs."""

import json
import subprocess
import threading

import pytest

from http_rig import BINARY, PATIENCE_S, clean_environment, start_fake

N = 24


def run(*argv, stdin=None):
    return subprocess.run(
        [BINARY, "simulate", *argv], capture_output=True, text=True, timeout=PATIENCE_S, input=stdin,
        env=clean_environment(),
    )


def simulate(*argv):
    done = run(*argv, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def load(server):
    """Requests at once, half of them with one beginning; then a conversation in two turns."""
    shared = "You are a helpful assistant that answers in one line. " * 6

    def one(i):
        prompt = (shared if i % 2 else f"Request {i}: ") + f"question {i} " * (3 + i)
        reply = server.complete(prompt=prompt, max_tokens=10 + i, ignore_eos=True)
        assert reply.status == 200

    threads = [threading.Thread(target=one, args=(i,)) for i in range(N)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    server.wait_metric("vllm:num_requests_running", 0)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recorded")
    with start_fake("--sched.max_running", "6", "--sched.max_batch_tokens", "64", step_ms=3) as server:
        load(server)
        (folder / "journal.jsonl").write_bytes(server.ask("GET", "/debug/journal").body)
        (folder / "access.log").write_text(server.log_text())
    return folder


@pytest.fixture(scope="module")
def journal(recorded):
    return str(recorded / "journal.jsonl")


def test_the_same_journal_gives_the_same_bytes(journal):
    outputs = {run(journal).stdout for _ in range(3)} | {run("-", stdin=open(journal).read()).stdout}
    assert len(outputs) == 1 and "first token" in outputs.pop()
    assert len({run(journal, "--json", "--rate", "3").stdout for _ in range(3)}) == 1


def test_every_request_of_the_journal_runs(journal):
    told = simulate(journal)
    assert told["requests"] == N and told["recorded_steps"] > 0 and told["skipped"] == 0
    names = [r["name"] for r in told["runs"]]
    assert names == ["base", "kv x0.5", "kv x2", "kv x4", "running x2", "machine x2"]
    for r in told["runs"]:
        assert r["finished"] == N and r["refused"] == r["failed"] == r["cancelled"] == 0
        assert r["output_tokens"] == sum(10 + i for i in range(N))
        assert r["first_token"]["n"] == N and r["between_tokens"]["n"] == r["output_tokens"] - N
        for times in (r["first_token"], r["between_tokens"]):
            assert 0 < times["p50_ns"] <= times["p90_ns"] <= times["p99_ns"] <= times["max_ns"]
        assert r["busy_ns"] <= r["span_ns"]
    assert told["measured_first_token"]["n"] == N
    assert told["step_base_ns"] + 64 * told["step_row_ns"] > 3e6  # the fake's 3 ms a step


def test_shared_beginnings_are_hits(journal):
    base = simulate(journal, "--once")["runs"][0]
    assert base["hit_tokens"] > 0.3 * base["query_tokens"]
    without = simulate(journal, "--once", "--prefix.enabled=false")["runs"][0]
    assert without["hit_tokens"] == 0 and without["rows"] > base["rows"]


def test_less_memory_preempts_and_more_sequences_help(journal):
    told = simulate(journal, "--cost", "3000000,1000,0")
    assert told["helps"] in ("running x2", "machine x2")
    by_name = {r["name"]: r for r in told["runs"]}
    assert by_name["running x2"]["first_token"]["p90_ns"] < by_name["base"]["first_token"]["p90_ns"]
    small = simulate(journal, "--once", "--kv", "24MiB", "--sched.max_running", "24")["runs"][0]
    large = simulate(journal, "--once", "--kv", "400MiB", "--sched.max_running", "24")["runs"][0]
    assert small["finished"] == large["finished"] == N
    assert small["span_ns"] > large["span_ns"] and small["peak_kv_blocks"] <= 64
    assert large["preemptions"] == 0


def test_slower_arrivals_wait_less(journal):
    crowd, calm = (simulate(journal, "--once", "--rate", rate)["runs"][0] for rate in ("1", "0.0001"))
    assert calm["queue"]["max_ns"] == 0 < crowd["queue"]["max_ns"]
    assert calm["first_token"]["p90_ns"] < crowd["first_token"]["p90_ns"]


def test_a_short_queue_refuses(journal):
    told = simulate(journal, "--once", "--sched.max_queued", "2", "--sched.max_running", "1", "--rate", "1000")
    r = told["runs"][0]
    assert r["refused"] > 0 and r["refused"] + r["finished"] == N


def test_an_access_log_of_either_form_runs(recorded, tmp_path):
    told = simulate(str(recorded / "access.log"), "--once")
    assert told["requests"] == N and told["recorded_steps"] == 0
    assert told["runs"][0]["output_tokens"] == sum(10 + i for i in range(N))
    lines = [line.split(" ", 2) for line in (recorded / "access.log").read_text().splitlines()]
    as_json = [
        json.dumps({"time": time, "level": level, "message": rest.strip()}) for time, level, rest in lines
    ]
    (tmp_path / "access.jsonl").write_text("\n".join(as_json) + "\n")
    again = simulate(str(tmp_path / "access.jsonl"), "--once")
    assert again["runs"] == told["runs"]


def test_access_lines_tell_lengths_and_limits(recorded):
    lines = [line for line in (recorded / "access.log").read_text().splitlines() if "/v1/completions" in line]
    assert len(lines) == N
    assert all(f" n=1 max_tokens={10 + i} " in " ".join(lines) for i in range(N))


@pytest.mark.parametrize(
    "argv,code,text",
    [
        ([], 2, "no file given"),
        (["/nonexistent"], 1, "cannot open"),
        (["JOURNAL", "--rate", "0"], 2, "--rate"),
        (["JOURNAL", "--rate", "fast"], 2, "--rate"),
        (["JOURNAL", "--cost", "1,2"], 2, "BASE,ROW,KV"),
        (["JOURNAL", "--kv", "1"], 2, "kv.bytes"),
        (["JOURNAL", "--nonsense", "1"], 2, "unknown option 'nonsense'"),
        (["JOURNAL", "--sched.max_running", "100000"], 2, "sched.max_running"),
    ],
)
def test_wrong_arguments_are_named(journal, argv, code, text):
    done = run(*[journal if arg == "JOURNAL" else arg for arg in argv])
    assert done.returncode == code and text in done.stderr, (done.returncode, done.stderr)
    assert not done.stdout


def test_files_that_are_no_load_are_refused(journal, tmp_path):
    lines = open(journal).read().splitlines(keepends=True)
    config = json.loads(lines[0])
    for n, text in enumerate(
        [
            "", "hello\n", lines[0], "".join(lines[:5]) + "{\n",
            json.dumps({**config, "block_tokens": 7}) + "\n" + "".join(lines[1:]),
            json.dumps({**config, "max_running": 2**32 - 1}) + "\n" + "".join(lines[1:]),
            json.dumps({**config, "groups": [{**config["groups"][0], "n_frames": 2**32 - 1}]}) + "\n" + "".join(lines[1:]),
        ]
    ):
        path = tmp_path / str(n)
        path.write_text(text)
        done = run(str(path))
        assert done.returncode in (1, 2) and "error:" in done.stderr, (n, done)


def test_a_journal_cut_at_its_tail_still_runs(journal, tmp_path):
    lines = open(journal).read().splitlines(keepends=True)
    path = tmp_path / "cut"
    path.write_text("".join([lines[0], *lines[3:]]))
    told = simulate(str(path), "--once")
    assert 0 < told["requests"] < N and told["skipped"] > 0
    assert told["runs"][0]["finished"] == told["requests"]


@pytest.mark.parametrize("n_torn", [1, 20, 60, 200])
def test_an_unfinished_last_line_is_ignored_with_a_warning(journal, tmp_path, n_torn):
    lines = open(journal).read().splitlines(keepends=True)
    whole, torn = tmp_path / "whole", tmp_path / "torn"
    whole.write_text("".join(lines[:-1]))
    part = lines[-1].rstrip()[:-1][:n_torn]  # at most all but its last brace
    torn.write_text("".join(lines[:-1]) + part)
    expected, done = run(str(whole)), run(str(torn))
    assert done.returncode == 0 and done.stdout == expected.stdout
    assert f"the last line is cut off: its {len(part)} bytes are ignored" in done.stderr and not expected.stderr
    torn.write_text("".join(lines[:-2]) + part + "\n" + lines[-1])  # not the last one: an error
    assert run(str(torn)).returncode == 1


def test_a_whole_last_line_needs_no_newline(journal, tmp_path):
    path = tmp_path / "bare"
    path.write_text(open(journal).read().rstrip("\n"))
    done = run(str(path))
    assert done.stdout == run(journal).stdout and not done.stderr


def test_an_unfinished_last_line_of_an_access_log_is_ignored(recorded, tmp_path):
    """Cut within tokens_out, what is left would read as a shorter answer."""
    lines = [line for line in (recorded / "access.log").read_text().splitlines(keepends=True) if "tokens_out" in line]
    path = tmp_path / "torn.log"
    path.write_text("".join(lines[:5]) + lines[5][: lines[5].index("tokens_out=") + len("tokens_out=1")])
    done = run(str(path), "--json", "--once")
    assert done.returncode == 0 and json.loads(done.stdout)["requests"] == 5
    assert "the last line is cut off" in done.stderr


def test_an_access_log_is_fitted_to_the_measured_times(recorded):
    """Concurrent prompts: a prompt's time holds the steps of all that ran beside it."""
    told = simulate(str(recorded / "access.log"), "--once")
    measured, base = told["measured_first_token"], told["runs"][0]["first_token"]
    assert told["base_fits"] is True
    assert 0.5 < base["p50_ns"] / measured["p50_ns"] < 2
    assert "fitted to the measured times" in run(str(recorded / "access.log"), "--once").stdout


def test_a_base_that_does_not_fit_is_no_advice(recorded):
    path = str(recorded / "access.log")
    done = run(path, "--once", "--cost", "1e9,1e7,0")
    assert "the base run does not match the measured times" in done.stdout
    assert simulate(path, "--once", "--cost", "1e9,1e7,0")["base_fits"] is False
