#!/usr/bin/env python3
"""Every header of the rooms compiles on its own, and has an include guard named after it.

Usage: headers.py [ROOT]
"""

import os
import re
import subprocess

import tree

COMPILER = [
    os.environ.get("CC", "cc"), "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wstrict-prototypes",
    "-Wno-unused-function", "-Werror", "-fsyntax-only", "-x", "c", "-I.",
]


# Headers that only files built with an instruction set include.
ISA_FLAGS = {"_avx2": ["-mavx2", "-mfma", "-mf16c"], "_avx512": ["-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq",
                                                            "-mavx512vnni"]}


def flags_of(path):
    return [flag for suffix, flags in ISA_FLAGS.items() if path.stem.endswith(suffix) for flag in flags]


def check_guard(root, path):
    guard = re.sub(r"\W", "_", str(path)).upper()
    text = (root / path).read_text(encoding="utf-8")
    if f"#ifndef {guard}\n#define {guard}\n" not in text:
        yield f"{path}: the include guard is not {guard}"


def check(root):
    findings = []
    for path in tree.files(root, ".h"):
        if path.parts[0] not in tree.ROOMS:
            continue
        findings += check_guard(root, path)
        result = subprocess.run(COMPILER + flags_of(path) + ["-"], input=f'#include "{path}"\n', cwd=root, capture_output=True,
                                text=True, check=False)
        if result.returncode != 0:
            lines = result.stderr.strip().split("\n")
            first = next((line for line in lines if "error:" in line), lines[0])
            findings.append(f"{path}: does not compile alone: {first}")
    return findings


if __name__ == "__main__":
    tree.main(check)
