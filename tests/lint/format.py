#!/usr/bin/env python3
"""C files are formatted as by clang-format 14 with .clang-format. Generated tables that switch it off are
skipped, because it would take minutes and change nothing.

Usage: format.py [ROOT]
"""

import subprocess

import tree


def is_generated(path):
    with path.open(encoding="utf-8") as file:
        head = file.read(500)
    return head.startswith("/* Generated ") and "/* clang-format off */" in head


def check(root):
    paths = [str(path) for path in tree.files(root, ".c", ".h") if not is_generated(root / path)]
    if not paths:
        return []
    result = subprocess.run(["clang-format", "--dry-run", *paths], cwd=root, capture_output=True, text=True,
                            check=False)
    if result.returncode != 0:
        return [result.stderr.strip() or f"clang-format ended with {result.returncode}"]
    named = sorted({line.split(":")[0] for line in result.stderr.split("\n") if ": warning: " in line})
    return [f"{path}: run clang-format -i {path}" for path in named]


if __name__ == "__main__":
    tree.main(check)
