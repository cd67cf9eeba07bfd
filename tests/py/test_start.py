"""What a start refuses or warns of, by the names of the options at fault; before the model is read where it can."""

import subprocess

import pytest

from http_rig import BINARY, MODEL, PATIENCE_S, clean_environment, start_real

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


def test_swapping_to_nothing_is_warned_of(tmp_path):
    text = "sched.preempt is swap, but there is nothing to swap to"
    for options, warned in [((), True), (("--kv.host_bytes", "16MiB"), False), (("--sched.preempt", "auto"), False)]:
        with start_real(*SMALL, "--sched.preempt", "swap", *options) as server:
            assert (text in server.log_text()) == warned
    with start_real(*SMALL, "--sched.preempt", "swap", "--kv.spill.path", str(tmp_path), "--kv.spill.bytes", "16MiB") as server:
        assert text not in server.log_text()
