"""Shrinks a failing world of random operations: PROGRAM SEED prints the longest
MILLRACE_RANDOM_SKIP found and the operations that remain, as traced by the program."""

import os
import re
import subprocess
import sys


def run(program, seed, kept, trace=False):
    """The number of the operation that fails, or None."""
    skip, start = [], None
    for op in range(kept[-1] + 1):
        if op in kept_set(kept):
            if start is not None:
                skip.append(f"{start}-{op - 1}")
                start = None
        elif start is None:
            start = op
    env = dict(
        os.environ,
        CK_FORK="yes",
        MILLRACE_RANDOM_SEED=seed,
        MILLRACE_RANDOM_OPS="1",
        MILLRACE_RANDOM_STOP=str(kept[-1] + 1),
        MILLRACE_RANDOM_SKIP=",".join(skip),
    )
    if trace:
        env["MILLRACE_RANDOM_TRACE"] = "0"
    done = subprocess.run([program], env=env, capture_output=True, text=True, timeout=120)
    text = done.stdout + done.stderr
    if done.returncode == 0:
        return None, text
    found = re.search(r"operation (\d+)", text)
    return (int(found.group(1)) if found else kept[-1]), text


def kept_set(kept, cache={}):
    if cache.get("kept") is not kept:
        cache["kept"], cache["set"] = kept, set(kept)
    return cache["set"]


def main():
    program, seed = sys.argv[1:3]
    kept = list(range(5000))
    failed, _ = run(program, seed, kept)
    if failed is None:
        sys.exit("this world does not fail")
    kept = [op for op in kept if op <= failed]
    size = len(kept) // 2
    while size >= 1:
        at = 0
        while at < len(kept):
            fewer = kept[:at] + kept[at + size :]
            failed = run(program, seed, fewer)[0] if fewer else None
            if failed is None:
                at += size
            else:
                kept = [op for op in fewer if op <= failed]
        size //= 2
    print(run(program, seed, kept, trace=True)[1])
    print(f"operations left: {kept}")


main()
