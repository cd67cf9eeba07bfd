"""A request's results do not depend on the schedule: the same tokens and the same bits of logits as
alone, whatever the batch, the chunks, the prefix cache, preemption and the tiers do (tests/tools/schedules.c
draws the schedules from seeds and compares). Each run must have exercised its features."""
import os
import subprocess
from pathlib import Path

import pytest

TOOL = Path(os.environ["MILLRACE_BUILD"]) / "tests" / "schedules"
MODELS = Path(os.environ["MILLRACE_TEST_DATA"]) / "models"
LONG = os.environ.get("MILLRACE_LONG") == "1"
# model, KV type, first seed, schedules
EVERY_RUN = [("smollm2-135m", "f16", 0, 4), ("smollm2-135m", "q8", 8, 4), ("gemma3-270m", "f16", 0, 4)]
LONG_RUN = [
    ("smollm2-135m", "f16", 100, 25),
    ("smollm2-135m", "q8", 125, 25),
    ("gemma3-270m", "f16", 150, 25),
    ("gemma3-270m", "q8", 175, 25),
]
WINDOW = 512  # of Gemma's local layers


def fields(line):
    return dict(pair.split("=", 1) for pair in line.split())


@pytest.mark.timeout(3600 if LONG else 1800)
@pytest.mark.parametrize("model, dtype, seed, n", LONG_RUN if LONG else EVERY_RUN)
def test_tokens_and_logits_equal_those_alone_under_schedules(tmp_path, model, dtype, seed, n):
    pool = "large" if LONG else "small"
    done = subprocess.run(
        [TOOL, MODELS / f"{model}.gguf", dtype, str(seed), str(n), pool],
        cwd=tmp_path,  # where spill files go
        stdout=subprocess.PIPE,
        text=True,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout
    runs = [fields(line) for line in done.stdout.splitlines()]
    assert [int(run["seed"]) for run in runs] == list(range(seed, seed + n))
    assert all(run["ok"] == "1" for run in runs)

    def total(*names):
        return sum(int(run[name]) for run in runs for name in names)

    assert {run["tiers"] for run in runs} == {"none", "ram", "file", "both"}
    assert {run["preempt"] for run in runs} == {"auto", "swap", "recompute"}
    assert total("forced") > 0
    assert total("swapped") > 0
    assert total("recomputed") > 0
    assert total("swapped", "recomputed") > total("forced"), "nobody was preempted for lack of blocks"
    assert total("cached") > 0
    assert total("staged") > 0
    assert total("ram_copies") > 0
    assert total("file_copies") > 0
    assert total("copied_tails") > 0
    if model.startswith("gemma"):
        assert max(int(run["longest_hit"]) for run in runs) > WINDOW
