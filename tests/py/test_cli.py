"""The command line for newcomers: options of other servers, help of each verb, texts of errors."""

import fcntl
import os
import pathlib
import pty
import re
import struct
import subprocess
import termios

import pytest

from http_rig import BINARY, BUILD, MODEL, PATIENCE_S, clean_environment, start, start_fake

VERBS = ["serve", "inspect", "plan", "simulate", "health", "version"]


def run(*argv, environment=None, binary=BINARY):
    return subprocess.run(
        [binary, *argv], capture_output=True, text=True, timeout=PATIENCE_S, env=clean_environment(environment), check=False
    )


@pytest.mark.parametrize("argv,ours", [
    (["--ctx-size", "4096"], "limits.max_context"),
    (["-c", "4096"], "limits.max_context"),
    (["--max-model-len=4096"], "limits.max_context"),
    (["--parallel", "4"], "sched.max_running"),
    (["-np", "4"], "sched.max_running"),
    (["--max-num-seqs", "4"], "sched.max_running"),
    (["-t", "2"], "cpu.threads"),
    (["--threads", "2"], "cpu.threads"),
    (["--gpu-memory-utilization", "0.9"], "kv.bytes"),
    (["--served-model-name", "x"], "model.alias"),
    (["--kv-cache-dtype", "fp8"], "kv.dtype"),
])  # fmt: skip
def test_words_of_other_servers_get_ours(argv, ours):
    done = run("serve", MODEL, *argv)
    assert done.returncode == 2 and f"here it is '{ours}'" in done.stderr and len(done.stderr.splitlines()) == 1


def test_words_that_have_no_counterpart_say_why():
    assert "no GPU layers" in run("serve", MODEL, "-ngl", "99").stderr
    assert "a field of requests" in run("serve", MODEL, "--temp", "0.5").stderr


@pytest.mark.parametrize("argv", [["--frobnicate", "1"], ["--zz", "1"], ["--kv.something.else=1"]])
def test_no_far_fetched_option_is_suggested(argv):
    done = run("serve", MODEL, *argv)
    assert done.returncode == 2 and "did you mean" not in done.stderr and "--help` lists all" in done.stderr


@pytest.mark.parametrize("verb,meant", [("run", "serve"), ("start", "serve"), ("serv", "serve"), ("quantize", None), ("x", None)])
def test_a_wrong_verb_gets_what_was_meant_or_nothing(verb, meant):
    done = run(verb)
    assert done.returncode == 2
    found = re.search(r'did you mean "(\w+)"', done.stderr)
    assert (found and found.group(1)) == meant


@pytest.mark.parametrize("given", [[MODEL], ["-m", MODEL], ["--model", MODEL], ["--log.level", "info", MODEL]])
def test_a_model_is_a_word_or_an_option(given):
    with start([BINARY, "serve", *given, "--port", "0"]) as server:
        assert server.ask("GET", "/v1/models").json["data"][0]["id"] == "smollm2-135m"


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("ask", [lambda v: (v, "--help"), lambda v: (v, "-h"), lambda v: ("help", v)], ids=["long", "short", "help"])
def test_each_verb_has_its_own_help(verb, ask):
    done = run(*ask(verb))
    assert done.returncode == 0 and not done.stderr
    assert done.stdout.startswith(f"usage: millrace {verb}")


@pytest.mark.parametrize("columns", [50, 80, 132])
@pytest.mark.parametrize("argv", [["--help"], *[[verb, "--help"] for verb in VERBS]], ids=lambda argv: argv[0])
def test_help_keeps_to_the_terminal(columns, argv):
    outer, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen([BINARY, *argv], stdout=inner, env=clean_environment())
    os.close(inner)
    text = b""
    try:
        while data := os.read(outer, 4096):
            text += data
    except OSError:
        pass  # the other end is closed
    assert process.wait(PATIENCE_S) == 0
    os.close(outer)
    for line in text.decode().splitlines():
        assert len(line) <= columns or " " not in line.strip(), line


def test_health_of_an_unknown_host_says_so():
    host = "no-such-host.invalid"
    done = run("health", "--url", "http://" + host + ":8080")
    assert done.returncode == 1 and host in done.stderr and "Success" not in done.stderr
    assert re.search(r"cannot find the host .*: \w", done.stderr)


@pytest.mark.parametrize("url", ["http://127.0.0.1:70000", "http://127.0.0.1:x", "http://127.0.0.1:", "nonsense"])
def test_health_of_a_url_that_is_none_says_so(url):
    done = run("health", "--url", url)
    assert done.returncode == 1 and "the url" in done.stderr


def test_health_takes_its_options_in_any_order():
    with start_fake() as server:
        assert run("health", "--port", str(server.port), "--ready").returncode == 0
        assert run("health", f"--url={server.url}", "--ready").returncode == 0


def test_inspect_of_what_cannot_be_served_exits_2(tmp_path):
    assert run("inspect", MODEL).returncode == 0
    data = pathlib.Path(MODEL).read_bytes()
    broken = tmp_path / "other.gguf"
    broken.write_bytes(data.replace(b"general.architecture\x08\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00llama",
                                    b"general.architecture\x08\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00other", 1))  # fmt: skip
    assert broken.read_bytes() != data
    done = run("inspect", str(broken))
    assert done.returncode == 2 and "other" in done.stdout and "nothing: this file can be served" not in done.stdout
    broken.write_bytes(b"no model")
    assert run("inspect", str(broken)).returncode == 1


def test_a_missing_model_names_a_way_that_works_where_the_program_is(tmp_path):
    empty = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = run("serve", "smollm2-135m", environment=empty)
    script = re.search(r"run (\S+/deploy/fetch-model) smollm2-135m$", done.stderr.strip()).group(1)
    assert os.access(script, os.X_OK)
    subprocess.run(["cmake", "--install", str(BUILD), "--prefix", str(tmp_path / "there")], check=True, capture_output=True)
    done = run("serve", "smollm2-135m", environment=empty, binary=str(tmp_path / "there" / "bin" / "millrace"))
    script = re.search(r"run (\S+) smollm2-135m$", done.stderr.strip()).group(1)
    assert script.startswith(str(tmp_path / "there"))
    listed = subprocess.run([script, "--help"], capture_output=True, text=True, check=True).stdout
    assert "smollm2-135m" in listed and "gemma3-270m" in listed
    alone = tmp_path / "millrace"
    alone.write_bytes(pathlib.Path(BINARY).read_bytes())
    alone.chmod(0o755)
    done = run("serve", "smollm2-135m", environment=empty, binary=str(alone))
    assert "fetch-model" not in done.stderr and "put the file SmolLM2-135M-Instruct.Q4_1.gguf" in done.stderr
