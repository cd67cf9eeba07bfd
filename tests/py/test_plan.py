"""`millrace plan` against a server's real allocations, and the behaviour of the verbs."""

import json
import os
import re
import subprocess

import pytest

from http_rig import BINARY, MODEL, PATIENCE_S, clean_environment, start_real

GEMMA = os.environ.get("MILLRACE_TEST_DATA", "") + "/models/gemma3-270m.gguf"
MIB = 1 << 20


def run(*argv):
    return subprocess.run(
        [BINARY, *argv], capture_output=True, text=True, timeout=PATIENCE_S, env=clean_environment()
    )


def plan(*argv, model=MODEL, code=0):
    done = run("plan", model, "--json", *argv)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


SETUPS = [
    ("8", "1024", ()),
    ("3", "100", ("--kv.dtype", "f32")),
    ("5", "777", ("--kv.host_bytes", "64MiB")),
    ("16", "512", ("--kv.block_tokens", "32", "--sched.max_batch_tokens", "100")),
]


@pytest.mark.parametrize("model", [MODEL, GEMMA], ids=["smollm2", "gemma3"])
@pytest.mark.parametrize("users,context,options", SETUPS)
def test_a_plan_is_what_the_server_allocates(model, users, context, options):
    told = plan("--users", users, "--context", context, *options, model=model)
    argv = ["--model", model, "--sched.max_running", users, "--limits.max_context", context, *options]
    with start_real(*argv) as server:
        memory = {kind: server.metric("millrace_memory_bytes", f'kind="{kind}"') for kind in ("weights", "kv", "scratch")}
        frames = server.metric("millrace_kv_blocks")
    assert memory == {kind: told[f"{kind}_bytes"] for kind in memory}
    assert frames == sum(group["frames"] for group in told["groups"])
    assert told["total_bytes"] == sum(memory.values())


def test_kv_by_hand():
    """SmolLM2-135M: 30 layers, 3 KV heads of 64, two bytes a number, K and V."""
    told = plan("--users", "64", "--context", "2048")
    per_token = 30 * 3 * 64 * 2 * 2
    assert told["groups"][0]["bytes_per_token"] == per_token
    assert told["groups"][0]["bytes_per_user"] == per_token * 2048
    assert told["kv_bytes"] == per_token * 2048 * 64


def test_windows_bound_what_a_long_context_takes():
    """Gemma 3: 15 of 18 layers see the last 512 tokens only."""
    short, long = (plan("--users", "4", "--context", str(n), model=GEMMA) for n in (4096, 32768))
    assert [group["window"] for group in long["groups"]] == [0, 512]
    assert long["groups"][0]["bytes_per_user"] == 8 * short["groups"][0]["bytes_per_user"]
    assert long["groups"][1]["bytes_per_user"] == short["groups"][1]["bytes_per_user"]
    assert long["groups"][1]["frames"] == short["groups"][1]["frames"]


@pytest.mark.parametrize("memory", ["600MiB", "2GiB", "16GiB"])
def test_what_fits_fits_and_one_more_does_not(memory):
    told = plan("--users", "10", "--context", "2048", "--memory", memory)
    users, context = told["users_that_fit"], told["context_that_fits"]
    bound = told["memory_bytes"]
    assert users >= 1
    assert plan("--users", str(users), "--context", "2048")["total_bytes"] <= bound + scratch_slack(users)
    if users < 4096:
        assert plan("--users", str(users + 1), "--context", "2048")["total_bytes"] > bound
    assert plan("--users", "10", "--context", str(context))["total_bytes"] <= bound
    if context < told["model_context"]:
        assert plan("--users", "10", "--context", str(context + 1))["total_bytes"] > bound
    assert told["fits"] == (told["total_bytes"] <= bound)


def scratch_slack(users):
    """More users than tokens a step ask for a longer step; the count of users is told for this one."""
    return 0 if users <= 512 else 1 << 40


def test_a_machine_that_is_too_small_is_told_so():
    done = run("plan", MODEL, "--users", "64", "--context", "8192", "--memory", "1GiB")
    assert done.returncode == 0
    assert re.search(r"fits +no", done.stdout) and "--kv.spill.bytes" in done.stdout
    told = plan("--users", "64", "--context", "8192", "--memory", "50MiB", code=1)
    assert not told["fits"] and told["users_that_fit"] == 0 and told["context_that_fits"] == 0


@pytest.mark.parametrize("options", [("--memory", "50MiB"), ("--memory", "1GiB", "--kv.bytes", "2GiB")])
def test_when_nothing_fits_a_line_says_so_and_the_code_is_1(options):
    done = run("plan", MODEL, "--users", "64", "--context", "8192", *options)
    assert done.returncode == 1 and re.search(r"fits +no", done.stdout)
    assert len(done.stderr.splitlines()) == 1 and "error: nothing fits: " in done.stderr
    needed, there = map(int, re.search(r"(\d+) bytes of (\d+)$", done.stderr).groups())
    assert needed > there


@pytest.mark.parametrize("option", ["--kv.host_bytes", "--kv.spill.bytes"])
def test_a_tier_that_is_too_small_is_refused(option):
    done = run("plan", MODEL, option, "1000")
    assert done.returncode == 2 and f"{option[2:]} 1000 is less than one KV block, 368640 bytes" in done.stderr


def test_the_words_tell_the_numbers():
    done = run("plan", MODEL, "--users", "8", "--context", "1024")
    told = plan("--users", "8", "--context", "1024")
    assert f"{told['kv_bytes'] / MIB:.2f} MiB" in done.stdout
    assert f"{told['weights_bytes'] / MIB:.2f} MiB" in done.stdout
    group = told["groups"][0]
    given = re.search(r"--kv.bytes (\d+)MiB", done.stdout)
    assert 0 <= int(given.group(1)) * MIB - group["frames"] * group["block_bytes"] < MIB
    assert re.search(r"free .* of ", done.stdout)


def test_plan_inspect_and_a_server_describe_the_same_device():
    told = plan("--users", "4", "--context", "256")
    words = re.search(r"^  cpu +(.*)$", run("plan", MODEL, "--users", "4").stdout, re.M).group(1)
    assert told["device"] == "cpu" and words.startswith(told["device_level"] + " (available: ")
    assert re.search(rf"^device\n  cpu +{re.escape(words)}$", run("inspect", MODEL).stdout, re.M)
    with start_real("--model", MODEL, "--limits.max_context", "256", "--kv.bytes", "16MiB") as server:
        assert server.metric("millrace_build_info", f'isa="{told["device_level"]}"') == 1


def test_tiers_stand_on_lines_of_their_own():
    options = ["--kv.host_bytes", "24MiB", "--kv.spill.path", ".", "--kv.spill.bytes", "3GiB"]
    lines = run("plan", MODEL, "--users", "8", "--context", "1024", "--memory", "64GiB", *options).stdout.splitlines()
    line = {row.split("  ")[1].strip(): row for row in lines if row.startswith("  ") and row.split("  ")[1].strip()}
    alone = plan("--users", "8", "--context", "1024", "--memory", "64GiB")
    assert abs(alone["kv_bytes"] / MIB - float(line["kv"].split()[1])) < 2  # whole huge pages
    assert re.search(r" 23\.\d\d MiB +kv.host_bytes", line["ram tier"])
    assert re.search(r" 3\.00 GiB +on disk", line["spill file"])


def test_options_are_written_as_a_person_would():
    done = run("plan", MODEL, "--users", "64", "--context", "8192", "--memory", "100GiB")
    assert re.search(r"--kv\.bytes 12GiB\b", done.stdout)
    assert not re.search(r"--kv\.\w+ \d{7}", done.stdout)


def test_the_command_that_a_plan_gives_serves_so_much():
    for given in ([], ["--kv.dtype", "q8", "--kv.host_bytes=32MiB", "--prefix.enabled", "false"]):
        done = run("plan", MODEL, "--users", "6", "--context", "640", *given)
        command = re.search(r"serve +(millrace serve .*)", done.stdout).group(1).split()
        with start_real(*command[3:], "--model.alias", "m") as server:
            assert 6 * 40 <= server.metric("millrace_kv_blocks") <= 6 * 40 + 10
            labels = 'cache_dtype="q8"' if given else 'cache_dtype="f16"'
            assert server.metric("vllm:cache_config_info", labels) == 1


@pytest.mark.parametrize(
    "argv,text",
    [
        ([], "no model given"),
        ([MODEL, "--users", "0"], "sched.max_running"),
        ([MODEL, "--users"], "needs a value"),
        ([MODEL, "--context", "9000"], "above the model's 8192"),
        ([MODEL, "--memory", "lots"], "not a size"),
        ([MODEL, "--uses", "5"], "unknown option 'uses'"),
    ],
)
def test_wrong_arguments_are_named(argv, text):
    done = run("plan", *argv)
    assert done.returncode == 2 and text in done.stderr and not done.stdout


def test_a_file_that_is_no_model_fails():
    done = run("plan", __file__)
    assert done.returncode == 1 and "error" in done.stderr


@pytest.mark.parametrize(
    "given,meant", [("serv", "serve"), ("sreve", "serve"), ("simlate", "simulate"), ("plna", "plan"), ("helth", "health")]
)
def test_a_wrong_verb_gets_the_nearest_one(given, meant):
    done = run(given)
    assert done.returncode == 2
    assert done.stderr.rstrip().endswith(f'unknown verb "{given}": did you mean "{meant}"?')


def test_help_names_every_verb():
    text = run("--help").stdout
    for verb in ("serve", "inspect", "plan", "simulate", "health"):
        assert f"\n  {verb} " in text
    for verb in ("plan", "simulate"):
        done = run(verb, "--help")
        assert done.returncode == 0 and f"usage: millrace {verb}" in done.stdout


def test_memory_for_clients_is_what_the_machine_leaves():
    def clients(*options):
        return plan("--kv.bytes", "64MiB", *options)["client_bytes"]

    assert clients("--memory", "1GiB") < clients("--memory", "2GiB") < 2 << 30
    assert clients("--memory", "2GiB", "--server.max_body", "32MiB") < clients("--memory", "2GiB")
    assert clients("--memory", "1GiB", "--server.memory", "20MiB") == 20 << 20
