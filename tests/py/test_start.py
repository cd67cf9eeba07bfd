"""Refusals and warnings at start, with the names of the options at fault; before the model is read, if possible."""

import os
import re
import resource
import subprocess

import pytest

from http_rig import BINARY, MODEL, PATIENCE_S, clean_environment, start_real

GEMMA = os.environ.get("MILLRACE_TEST_DATA", "") + "/models/gemma3-270m.gguf"
SMALL = ("--kv.bytes", "64MiB", "--limits.max_context", "512")


def refused(*options, model=MODEL):
    """The one line that a start which fails leaves."""
    argv = [BINARY, "serve", "--model", model, "--port", "0", "--log.level", "error", *options]
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=PATIENCE_S, env=clean_environment(), check=False
    )
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done
    return done.stderr


@pytest.mark.parametrize("options,text", [
    (["--kv.spill.path", "."], "kv.spill.path and kv.spill.bytes belong together: kv.spill.bytes is not given"),
    (["--kv.spill.bytes", "1GiB"], "kv.spill.path and kv.spill.bytes belong together: kv.spill.path is not given"),
    (["--prefix.disk.path", ".", "--prefix.disk.bytes", "0"], "belong together: prefix.disk.bytes is 0"),
    (["--prefix.disk.path", ".", "--prefix.enabled=false"], "prefix.disk.path needs prefix.enabled"),
])  # fmt: skip
def test_options_that_belong_together_are_checked_before_the_model_is_read(tmp_path, options, text):
    broken = tmp_path / "model.gguf"
    broken.write_bytes(b"no model")
    assert text in refused(*options, model=str(broken))


@pytest.mark.parametrize("option", ["kv.host_bytes", "kv.spill.bytes"])
@pytest.mark.parametrize("model,least", [(MODEL, 368640), (GEMMA, 5 * 3 * 16384 + 3 * 16384)], ids=["smollm2", "gemma3"])
def test_a_tier_too_small_for_a_block_is_refused_with_the_least_that_works(tmp_path, option, model, least):
    path = ["--kv.spill.path", str(tmp_path)] if "spill" in option else []
    kinds = " of each kind of layers" if model == GEMMA else ""
    error = refused(*SMALL, *path, f"--{option}", str(least - 1), model=model)
    assert f"{option} {least - 1} is less than one KV block{kinds}, {least} bytes" in error
    with start_real(*SMALL, *path, f"--{option}", str(least), "--model", model):
        pass


def test_a_tier_that_cannot_be_had_is_told_by_option_value_and_limit(tmp_path):
    error = refused("--kv.host_bytes", "100TiB")
    assert f"kv.host_bytes {100 << 40} exceeds the available memory, " in error
    error = refused("--kv.bytes", "200TiB")  # more than can be addressed
    assert f"kv.bytes {200 << 40}, kv.host_bytes 0: kv arena of " in error
    error = refused(*SMALL, "--kv.spill.bytes", "1GiB", "--kv.spill.path", str(tmp_path / "none"))
    assert f"kv.spill.path: cannot make a spill file in '{tmp_path}/none': No such file or directory" in error
    error = refused(*SMALL, "--kv.spill.bytes", "1000TiB", "--kv.spill.path", str(tmp_path))
    assert f"kv.spill.bytes {1000 << 40}: no room for a spill file of 360.00 TiB in '{tmp_path}', where " in error
    assert " are free, of which kv.spill.min_free keeps 256.00 MiB: " in error
    (tmp_path / "file").write_text("")
    error = refused(*SMALL, "--prefix.disk.path", str(tmp_path / "file"))
    assert f"prefix.disk.path: cannot open the folder '{tmp_path}/file" in error


def test_a_spill_file_is_compared_with_the_free_space_before_it_takes_any(tmp_path):
    disk = os.statvfs(tmp_path)
    free = disk.f_bavail * disk.f_frsize
    error = refused(*SMALL, "--kv.spill.bytes", str(free - (64 << 20)), "--kv.spill.path", str(tmp_path))
    shown = re.search(r"where ([\d.]+) GiB are free", error)
    assert shown and abs(float(shown.group(1)) - free / 2**30) < 1, "the true figure, not what a full disk leaves"
    with start_real(*SMALL, "--kv.spill.bytes", "32MiB", "--kv.spill.path", str(tmp_path), "--kv.spill.min_free", "64MiB"):
        pass
    error = refused(*SMALL, "--kv.spill.bytes", "32MiB", "--kv.spill.path", str(tmp_path), "--kv.spill.min_free", "900TiB")
    assert "no room for a spill file of" in error and "kv.spill.min_free keeps 900.00 TiB" in error


def test_an_arena_beyond_the_memory_is_warned_of():
    argv = [BINARY, "serve", "--model", MODEL, "--port", "0", "--kv.bytes", "200TiB"]
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=PATIENCE_S, env=clean_environment(), check=False
    )
    assert f"kv.bytes {200 << 40} exceeds the available memory, " in done.stderr
    with start_real(*SMALL) as server:
        assert "exceeds the available memory" not in server.log_text()


def test_swapping_to_nothing_is_warned_of(tmp_path):
    text = "sched.preempt is swap, but there is nothing to swap to"
    for options, warned in [((), True), (("--kv.host_bytes", "16MiB"), False), (("--sched.preempt", "auto"), False)]:
        with start_real(*SMALL, "--sched.preempt", "swap", *options) as server:
            assert (text in server.log_text()) == warned
    with start_real(*SMALL, "--sched.preempt", "swap", "--kv.spill.path", str(tmp_path), "--kv.spill.bytes", "16MiB") as server:
        assert text not in server.log_text()


SANITISED = any(mark in open(BINARY, "rb").read() for mark in (b"__asan_init", b"__tsan_init"))  # they map terabytes


@pytest.mark.parametrize("mib,starts", [(450, False), (560, False), (4096, True)])
def test_a_model_that_does_not_fit_is_refused_with_sum_limit_and_what_would(mib, starts):
    def limit():
        if not SANITISED:
            resource.setrlimit(resource.RLIMIT_AS, (mib << 20, mib << 20))

    argv = [BINARY, "serve", MODEL, "--port", "0", "--log.level", "error", "--kv.bytes", "16MiB", "--limits.max_context", "512"]
    process = subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment(), preexec_fn=limit
    )
    if starts or SANITISED:
        assert process.stdout.readline().startswith("millrace ")
        process.terminate()
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0
        return
    _, error = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1 and len(error.splitlines()) == 1, error
    told = re.search(r"weights ([\d.]+) MiB, scratch .* are ([\d.]+) MiB, and ([\d.]+) MiB are free \(limit: ([\d.]+) MiB", error)
    weights, total, free, limited = map(float, told.groups())
    assert weights < total and free < total and limited == mib
    assert re.search(r"what fits is weights of [\d.]+ \w+, or a limit of \d+MiB$", error.strip())
