"""A request's results do not depend on the rest of the batch: the same tokens and the same bits of logits alone
and in any batch, however its prompt is cut into chunks."""
import os
import subprocess
from pathlib import Path

import pytest

TOOL = Path(os.environ["MILLRACE_BUILD"]) / "tests" / "sched_company"
MODEL = Path(os.environ["MILLRACE_TEST_DATA"]) / "models" / "smollm2-135m.gguf"


def run(*how):
    return subprocess.run([TOOL, MODEL, *how], check=True, stdout=subprocess.PIPE, text=True).stdout


@pytest.fixture(scope="module")
def alone():
    return run("alone")


@pytest.mark.parametrize("seed", ["1", "2"])
def test_64_requests_get_the_same_tokens_and_logits_alone_and_together(alone, seed):
    assert {line.split(".")[0] for line in alone.splitlines()} == {str(i) for i in range(64)}
    assert run("together", seed) == alone
