"""The life of the process: loading, readiness, drain, signals, faults, verbs (cases G028, G030, G052)."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import threading

import pytest

from gguf_bytes import STRING, tiny_llama
from http_rig import BINARY, CHAT, MODEL, PATIENCE_S, Raw, clean_environment, start_fake, start_real, wait_for

PATH = "/v1/chat/completions"
ENDLESS = {"ignore_eos": True, "max_tokens": 4000}


def run(*argv, environment=None):
    return subprocess.run(
        [BINARY, *argv], capture_output=True, text=True, timeout=PATIENCE_S, env=clean_environment(environment)
    )


class Address:
    def __init__(self, port):
        self.port = port


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_while_loading_health_is_live_and_the_rest_says_503():
    port = free_port()
    argv = [BINARY, "serve", "--model", MODEL, "--port", str(port)]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=clean_environment())
    try:
        def connect():
            try:
                return Raw(Address(port))
            except ConnectionRefusedError:
                return None

        wait_for(connect, "the port is open").close()
        seen = []
        while not seen or seen[-1] != (200, 200, 200):
            statuses = []
            for method, path in [("GET", "/health"), ("GET", "/ready"), ("GET", "/v1/models")]:
                with Raw(Address(port)) as c:
                    reply = c.ask(method, path)
                    statuses.append(reply.status)
                    if reply.status == 503:
                        assert reply.error["code"] == "model_loading" and reply.get("retry-after")
            seen.append(tuple(statuses))
        assert seen[0] == (200, 503, 503)  # asked as soon as the port was open
        assert {s[0] for s in seen} == {200}
        assert [s[1] for s in seen] == sorted((s[1] for s in seen), reverse=True)
    finally:
        process.terminate()
        assert process.wait(PATIENCE_S) == 0


def test_a_signal_while_loading_ends_the_process():
    port = free_port()
    argv = [BINARY, "serve", "--model", MODEL, "--port", str(port)]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=clean_environment())
    while process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.05)
    assert process.returncode in (-signal.SIGTERM, 0, 1)


def test_drain_finishes_what_runs_and_refuses_what_is_new():
    with start_fake(step_ms=5) as server:
        running = [server.raw() for _ in range(4)]
        for i, c in enumerate(running):
            c.request("POST", PATH, {**CHAT, **ENDLESS, "max_tokens": 200, "stream": i % 2 == 0})
        idle = server.raw()
        assert idle.ask("GET", "/health").status == 200
        server.wait_metric("vllm:num_requests_running", 4)
        server.signal()
        for i, c in enumerate(running):
            reply = c.reply()
            assert reply.status == 200
            if i % 2 == 0:
                assert reply.events()[-1]["choices"][0]["finish_reason"] == "length"
            else:
                assert reply.json["usage"]["completion_tokens"] == 200
        assert idle.rest() == b""  # between two requests: closed when nothing runs any more
        assert server.process.wait(PATIENCE_S) == 0
        with pytest.raises(OSError):
            server.raw()


LEAVING = ["--server.lame_duck", "600s", "--server.drain_timeout", "600s"]


def must_be_leaving(reply):
    assert reply.status == 503 and reply.error["code"] == "shutting_down"
    assert int(reply.get("retry-after")) >= 1 and reply.get("connection").lower() == "close"


def test_after_sigterm_all_that_is_new_gets_503_and_what_runs_goes_on():
    """R11: a balancer must see that the server leaves while its requests still arrive."""
    with start_fake(*LEAVING, step_ms=5, expect_code=1) as server:
        kept = [server.raw() for _ in range(3)]
        assert all(c.ask("GET", "/ready").status == 200 for c in kept)
        stream = server.raw()
        stream.request("POST", PATH, {**CHAT, **ENDLESS, "max_tokens": 300, "stream": True})
        assert stream.head().status == 200
        server.signal()
        wait_for(lambda: server.ask("GET", "/ready").status == 503, "/ready turns")
        must_be_leaving(server.ask("GET", "/ready"))
        for method, path, body in [("POST", PATH, CHAT), ("POST", "/v1/completions", {"prompt": "a"}), ("GET", "/v1/models", None)]:
            must_be_leaving(server.ask(method, path, body))
        must_be_leaving(kept[0].ask("GET", "/ready"))
        must_be_leaving(kept[1].ask("POST", PATH, CHAT))
        for path in ["/health", "/version", "/metrics"]:
            assert server.ask("GET", path).status == 200
        assert stream.reply_of_stream()[-1]["choices"][0]["finish_reason"] == "length"
        server.wait_metric("vllm:num_requests_running", 0)
        must_be_leaving(server.ask("POST", PATH, CHAT))  # nothing runs, and its time is not over
        must_be_leaving(kept[2].ask("POST", PATH, CHAT))
        server.signal()
        assert server.process.wait(PATIENCE_S) == 1


def test_an_idle_server_leaves_when_the_time_of_the_lame_duck_is_over():
    with start_fake("--server.lame_duck", "300ms") as server:
        server.signal()
        assert server.process.wait(PATIENCE_S) == 0
    with start_real("--server.lame_duck", "300ms") as server:
        server.signal()
        wait_for(lambda: "shutting down" in server.log_text(), "the log line")
        assert server.process.wait(PATIENCE_S) == 0


def test_ctrl_c_waits_for_what_runs_only():
    for start in [start_fake, start_real]:
        with start("--server.lame_duck", "600s") as server:
            server.signal(signal.SIGINT)
            assert server.process.wait(PATIENCE_S) == 0
    with start_fake("--server.lame_duck", "600s", step_ms=5) as server, server.raw() as c:
        c.request("POST", PATH, {**CHAT, **ENDLESS, "max_tokens": 200, "stream": True})
        c.head()
        server.signal(signal.SIGINT)
        wait_for(lambda: server.ask("GET", "/ready").status == 503, "/ready turns")
        assert c.reply_of_stream()[-1]["choices"][0]["finish_reason"] == "length"
        assert server.process.wait(PATIENCE_S) == 0


def test_a_drain_timeout_before_the_end_of_the_lame_duck_cuts_streams_and_leaves_the_port_open():
    with start_fake("--server.lame_duck", "600s", "--server.drain_timeout", "100ms", step_ms=5, expect_code=1) as server:
        stream = server.raw()
        stream.request("POST", PATH, {**CHAT, **ENDLESS, "stream": True})
        stream.head()
        server.signal()
        assert stream.reply_of_stream()[-1]["error"]["code"] == "shutting_down"
        must_be_leaving(server.ask("GET", "/ready"))
        server.signal()
        assert server.process.wait(PATIENCE_S) == 1


def test_the_end_of_the_drain_timeout_is_an_error_event_or_503():
    with start_fake("--server.drain_timeout", "200ms", step_ms=5) as server:
        stream, whole, queued = server.raw(), server.raw(), server.raw()
        stream.request("POST", PATH, {**CHAT, **ENDLESS, "stream": True})
        whole.request("POST", PATH, {**CHAT, **ENDLESS})
        queued.request("POST", PATH, {**CHAT, **ENDLESS})
        server.wait_metric("vllm:num_requests_running", 3)
        server.signal()
        assert stream.reply().events()[-1]["error"]["code"] == "shutting_down"
        reply = whole.reply()
        assert reply.status == 503 and reply.error["code"] == "shutting_down" and reply.get("retry-after")
        assert queued.reply().status == 503
        assert server.process.wait(PATIENCE_S) == 0


def test_a_drain_with_a_stalled_reader_ends():
    options = ["--server.drain_timeout", "100ms", "--server.sndbuf", "4KiB", "--kv-blocks", "300"]
    with start_fake(*options, step_ms=0) as server:
        c = server.raw(rcvbuf=2048)
        c.request("POST", PATH, {**CHAT, **ENDLESS, "stream": True})
        wait_for(lambda: server.metric("millrace_sequences_paused") > 0, "a paused sequence")
        server.signal()
        assert server.process.wait(PATIENCE_S) == 0


def test_a_second_signal_exits_at_once():
    with start_real("--limits.max_context", "8192", expect_code=1) as server:
        c = server.raw()
        c.request("POST", PATH, {**CHAT, **ENDLESS, "max_tokens": 8000, "stream": True})
        c.head()
        c.chunk()
        server.signal(signal.SIGINT)
        wait_for(lambda: "shutting down" in server.log_text(), "the drain")
        server.signal(signal.SIGTERM)
        assert server.process.wait(PATIENCE_S) == 1


def test_drain_under_load_cuts_no_stream():
    with start_fake("--sched.max_running", "256", step_ms=1) as server:
        conns = [server.raw() for _ in range(200)]
        for c in conns:
            c.request("POST", PATH, {**CHAT, **ENDLESS, "max_tokens": 100, "stream": True})
        for c in conns:
            c.head()
        server.signal()
        for c in conns:
            assert c.reply_of_stream()[-1]["choices"][0]["finish_reason"] == "length"
        assert server.process.wait(PATIENCE_S) == 0


def test_an_engine_failure_mid_stream_is_an_error_event_and_no_fake_end():
    with start_fake("--fail-after", "10", "--fail-count", "1") as server:
        events = server.chat(stream=True, **ENDLESS).events()
        assert events[-1]["error"]["type"] == "server_error"
        assert all(c["finish_reason"] is None for e in events[:-1] for c in e["choices"])
        assert server.chat().status == 200  # one bad step is not the end
        server.wait_idle()


def test_an_engine_that_keeps_failing_turns_health_to_503():
    with start_fake("--fail-after", "1") as server:
        assert server.chat().status == 500
        for _ in range(5):
            server.chat()
        wait_for(lambda: server.ask("GET", "/health").status == 503, "health turns")
        assert server.ask("GET", "/ready").status == 503
        reply = server.chat()
        assert reply.status in (500, 503) and reply.error["type"] == "server_error"


def test_a_busy_port_names_its_holder_and_how_to_choose_another():
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        done = run("serve", "--model", MODEL, "--port", str(port))
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert str(port) in done.stderr and str(os.getpid()) in done.stderr and "--port" in done.stderr


def test_two_servers_never_share_a_port():
    with start_real("--server.threads", "3") as server:
        done = run("serve", "--model", MODEL, "--port", str(server.port))
        assert done.returncode == 1 and str(server.process.pid) in done.stderr
        for _ in range(12):
            assert server.ask("GET", "/health").status == 200


def test_several_loops_serve_one_port():
    with start_fake("--server.threads", "3") as server:
        results = []

        def work():
            for _ in range(30):
                results.append(server.chat(stream=True).status)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert results == [200] * 240


def test_an_unsupported_architecture_is_one_line_and_exit_code_1(tmp_path):
    file = tiny_llama().set("general.architecture", STRING, "mamba").write(tmp_path / "m.gguf")
    done = run("serve", "--model", str(file), "--port", "0")
    assert done.returncode == 1 and done.stdout == ""
    errors = [line for line in done.stderr.splitlines() if "error" in line]
    assert len(errors) == 1 and "architecture 'mamba' is not supported" in errors[0]


def test_health_verb_tells_by_its_exit_code():
    with start_fake() as server:
        assert run("health", "--url", server.url).returncode == 0
        assert run("health", "--ready", "--url", server.url).returncode == 0
        assert run("health", environment={"MILLRACE_PORT": str(server.port)}).returncode == 0
        assert run("health", "--host", "0.0.0.0", "--port", str(server.port)).returncode == 0
    done = run("health", "--url", server.url)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert run("health", "--url", "nonsense").returncode == 1


def test_verbs_and_usage():
    assert re.fullmatch(r"millrace \d+\.\d+\.\d+\n", run("--version").stdout)
    for verb in ["serve", "inspect", "health"]:
        assert verb in run("--help").stdout
    assert "server.max_body" in run("serve", "--help").stdout
    assert run("--help").returncode == 0 and run("serve", "--help").returncode == 0
    assert run().returncode == 2 and run("sevre").returncode == 2 and run("inspect").returncode == 2
    done = run("serve", "--modle", "x")
    assert done.returncode == 2 and "--model" in done.stderr or "model" in done.stderr
    done = run("serve")
    assert done.returncode == 1 and "--model" in done.stderr
    done = run("serve", "--model", "/nonexistent.gguf")
    assert done.returncode == 1 and "/nonexistent.gguf" in done.stderr


def banner_of(server_argv, n_lines):
    process = subprocess.Popen(server_argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment())
    lines = [process.stdout.readline().rstrip("\n") for _ in range(n_lines)]
    process.terminate()
    rest, log = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0 and not rest, log
    return lines, log


def test_the_banner_has_each_tier_on_a_line(tmp_path):
    lines, _ = banner_of([BINARY, "serve", MODEL, "--port", "0", "--kv.bytes", "64MiB", "--kv.host_bytes", "24MiB",
                          "--kv.spill.path", str(tmp_path), "--kv.spill.bytes", "32MiB"], 9)  # fmt: skip
    rows = {line.split()[0]: line for line in lines[1:]}
    assert re.search(r"182 blocks of 16 tokens, f16, 63\.98 MiB: set by kv.bytes", rows["kv"])
    assert re.search(r"68 blocks more, 23\.91 MiB: kv.host_bytes", rows["ram"])
    assert re.search(r"\d+ blocks more, 3\d\.\d\d MiB in .*: kv.spill.bytes", rows["spill"])


def test_with_json_logs_the_banner_is_json_too():
    lines, log = banner_of([BINARY, "serve", MODEL, "--port", "0", "--log.format", "json"], 1)
    told = json.loads(lines[0])
    assert told["model"] == "smollm2-135m" and told["chat"] is True and told["url"].startswith("http://127.0.0.1:")
    assert all(json.loads(line)["message"] for line in log.splitlines())
    assert "Ctrl-C" in log


def test_a_base_model_gets_a_line_for_completions():
    gemma = os.environ.get("MILLRACE_TEST_DATA", "") + "/models/gemma3-270m.gguf"
    lines, _ = banner_of([BINARY, "serve", gemma, "--port", "0", "--limits.max_context", "512", "--kv.bytes", "64MiB"], 7)
    assert "/v1/completions" in lines[-1] and '"prompt":' in lines[-1]


def test_the_banner_has_a_curl_line_that_works():
    port = free_port()
    # few tokens, so that the stream ends soon in a build with sanitizers too
    argv = [BINARY, "serve", "--model", MODEL, "--port", str(port), "--limits.default_max_tokens", "24"]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                               env=clean_environment())
    try:
        lines = []
        for line in process.stdout:
            lines.append(line.strip())
            if "curl" in line:
                break
        assert len(lines) <= 8
        text = "\n".join(lines)
        for part in ["avx2", "threads", "blocks of 16", "max_tokens 24", f"http://127.0.0.1:{port}", "<|im_end|>"]:
            assert part in text
        command = lines[-1][lines[-1].index("curl") :]
        done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=PATIENCE_S)
        assert done.returncode == 0 and done.stdout.rstrip().endswith("data: [DONE]")
        events = [json.loads(line[6:]) for line in done.stdout.splitlines() if line.startswith("data: {")]
        text = "".join(event["choices"][0]["delta"].get("content", "") for event in events if event["choices"])
        assert text == "The chemical symbol for water is H2O."
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
