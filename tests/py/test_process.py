"""The program and its surroundings: model files that change, signals while loading, small stacks, few descriptors."""

import contextlib
import os
import resource
import shutil
import signal
import subprocess

import numpy as np
import pytest

from gguf_bytes import Tensor, tiny_llama
from http_rig import BINARY, COMPLETION, MODEL, PATIENCE_S, Raw, clean_environment, read_line, start, start_real, wait_for

SMALL = ("--kv.bytes", "64MiB", "--limits.max_context", "512")


@contextlib.contextmanager
def loading(model, *options):
    """A server that has opened its port and is stopped before its model is read."""
    argv = [BINARY, "serve", "--model", str(model), "--port", "0", "--cpu.threads", "1", *options]
    process = subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment()
    )
    try:
        wait_for(lambda: listens(process.pid), "a listening socket")
        process.send_signal(signal.SIGSTOP)
        yield process
    finally:
        process.kill()
        process.communicate()


def listens(pid):
    """Does the process hold a socket in state LISTEN (0A)?"""
    with open("/proc/net/tcp", encoding="ascii") as table:
        inodes = {f"socket:[{row.split()[9]}]" for row in table if row.split()[3] == "0A"}
    held = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            held.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
    return bool(held & inodes)


def under(limits, *options):
    """The program under limits that a shell sets."""
    script = f'{limits} exec "$0" "$@"'
    return start(["bash", "-c", script, BINARY, "serve", "--model", MODEL, "--port", "0", *SMALL, *options])


def caught_loading(make_model, do):
    """What a process that `do` met before its model was loaded leaves: exit code and log. On a busy machine it may
    take a few to catch one."""
    for _ in range(100):
        model = make_model()
        with loading(model) as process:
            do(process, model)
            process.send_signal(signal.SIGCONT)
            if not read_line(process, r"url +http"):
                return process.wait(PATIENCE_S), process.stderr.read()
    raise AssertionError("none was caught")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_the_model_loads_is_a_clean_end(number):
    code, _ = caught_loading(lambda: MODEL, lambda process, _: process.send_signal(number))
    assert code == 0


def test_a_model_file_that_is_cut_while_it_is_read_is_one_clear_error(tmp_path):
    code, log = caught_loading(
        lambda: shutil.copyfile(MODEL, tmp_path / "model.gguf"), lambda _, model: os.truncate(model, 3000000)
    )
    assert code == 1
    errors = [line for line in log.splitlines() if "error" in line]
    assert len(errors) == 1 and ("became shorter" in errors[0] or "incomplete" in errors[0])


def untied(path):
    f = tiny_llama()
    f.tensors.append(Tensor("output.weight", [32, 40], np.random.default_rng(3).normal(0, 0.1, 1280)))
    return f.write(path)


@pytest.mark.parametrize("make", [lambda path: shutil.copyfile(MODEL, path), untied], ids=["tied", "untied"])
def test_a_model_file_may_change_while_it_is_served(tmp_path, make):
    model = tmp_path / "model.gguf"
    make(model)
    asked = {"prompt": [3, 5, 7, 9], "max_tokens": 20, "temperature": 0, "ignore_eos": True, "logprobs": 2}
    with start_real("--model", str(model), "--prefix.enabled=false", *SMALL) as server:
        def answers():
            shown = [server.post("/v1/detokenize", {"tokens": [i]}).json for i in range(40)]
            return server.complete(**asked).json["choices"], shown

        before = answers()
        model.write_bytes(b"\xff" * 500000)
        assert answers() == before
        os.truncate(model, 0)
        assert answers() == before


def test_the_banner_of_any_address_has_a_url_that_works():
    argv = [BINARY, "serve", "--model", MODEL, "--port", "0", "--host", "*", *SMALL]
    process = subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=clean_environment()
    )
    try:
        url = read_line(process, r"url +(\S+)").group(1)
        assert url.startswith("http://127.0.0.1:")
        argv = [BINARY, "health", "--ready", "--url", url]
        assert subprocess.run(argv, timeout=PATIENCE_S, env=clean_environment(), check=False).returncode == 0
    finally:
        process.terminate()
        process.communicate()


def test_closed_standard_files_are_taken_by_no_other():
    with under("exec 0<&- 2>&-;") as server:
        assert server.complete().status == 200
        for fd in (0, 2):
            assert os.readlink(f"/proc/{server.process.pid}/fd/{fd}") == "/dev/null"


def test_small_stacks_of_the_environment_do_not_matter():
    deep = "[" * 60 + "]" * 60
    with under("ulimit -s 64;", "--server.threads", "2") as server:
        body = b'{"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0, "x": %s}' % deep.encode()
        assert server.ask("POST", "/v1/completions", body).status == 200
        assert server.ask("POST", "/v1/completions", body + b" " * 100000).status == 200
        assert server.chat().status == 200
        assert server.chat(stream=True, n=3).events()[-1]
        assert server.ask("GET", "/v1/requests").status == 200


def test_with_few_descriptors_the_rest_get_503_and_nobody_a_reset():
    with under("ulimit -n 64;") as server:
        conns = [Raw(server) for _ in range(120)]
        statuses = []
        for c in conns:
            c.request("POST", "/v1/completions", COMPLETION)
        for c in conns:
            statuses.append(c.reply().status)
        assert set(statuses) == {200, 503} and statuses.count(200) > 20
        for c in conns:
            c.close()
        wait_for(lambda: server.complete().status == 200, "descriptors are free again")


def test_a_second_signal_ends_the_closing_at_once():
    with start_real(*SMALL, expect_code=1) as server:
        server.signal(signal.SIGSTOP)  # both come at once: one ends the serving, the other the closing
        server.signal(signal.SIGINT)
        server.signal(signal.SIGTERM)
        server.signal(signal.SIGCONT)
        assert server.process.wait(PATIENCE_S) == 1


def test_signals_that_the_parent_ignored_are_heard():
    with under("trap '' HUP INT TERM;") as server:
        server.signal(signal.SIGHUP)
        wait_for(lambda: "keys and limits were read again" in server.log_text(), "a reload")
        server.signal(signal.SIGINT)
        assert server.process.wait(PATIENCE_S) == 0


def test_a_drain_timeout_of_zero_cuts_all_at_once():
    with start_real("--server.drain_timeout", "0", "--sched.max_running", "1", *SMALL) as server:
        streams = [server.raw() for _ in range(3)]
        for c in streams:
            c.request("POST", "/v1/completions", {**COMPLETION, "max_tokens": 400, "ignore_eos": True, "stream": True})
        server.wait_metric("vllm:num_requests_waiting", 2)
        server.signal()
        for c in streams:
            assert c.reply().events()[-1]["error"]["code"] == "shutting_down"
        assert server.process.wait(PATIENCE_S) == 0


def descriptors(pid):
    """Number of each with what it stands for."""
    links = {}
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            links[int(fd)] = os.readlink(f"/proc/{pid}/fd/{fd}")
    return links


def test_a_spare_descriptor_that_was_lost_comes_back():
    with start_real(*SMALL, "--server.threads", "1") as server:
        pid = server.process.pid
        soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)

        def spares():
            return [fd for fd, target in descriptors(pid).items() if fd > 2 and target == "/dev/null"]

        assert len(spares()) == 1
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (5, hard))  # all that are free lie above
        waiting = server.raw()
        waiting.request("GET", "/health")
        wait_for(lambda: not spares(), "the spare one is lost")
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
        assert waiting.reply().status == 200
        wait_for(spares, "there is one again")
        full = next(n for n in range(soft) if n not in descriptors(pid))
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (full, hard))
        with server.raw() as late:
            assert late.reply().status == 503
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
        assert server.ask("GET", "/health").status == 200
