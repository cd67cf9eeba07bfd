#!/usr/bin/env python3
"""Functions of at most 61 lines, files of at most 800; prints the totals.

Usage: sizes.py [ROOT]
"""

import re
import statistics

import tree

MAX_FUNCTION = 61
MAX_FILE = 800

# Relies on the formatting that format.sh checks: a function's braces stand alone in column 0.
OPENING = re.compile(r"^\{$")
NAME = re.compile(r"([A-Za-z_]\w*)\(")


def functions(lines):
    """(name, first line, number of lines) of each function; the head counts."""
    start = None
    for i, line in enumerate(lines):
        if OPENING.match(line):
            head = i
            while head > 0 and lines[head - 1].strip() and not re.match(r"^[}#]|.*;$", lines[head - 1]):
                head -= 1
            start = head
        elif line == "}" and start is not None:
            name = NAME.search(" ".join(lines[start:i]))
            yield name.group(1) if name else "?", start + 1, i - start + 1
            start = None


def print_summary(sizes):
    p90 = statistics.quantiles(sizes, n=10)[8]
    print(f"{len(sizes)} functions: median {statistics.median(sizes):.0f} lines, p90 {p90:.0f}, "
          f"longest {max(sizes)}")


def check(root, summary=lambda sizes: None):
    findings, sizes = [], []
    for path in tree.files(root, ".c", ".h", ".py", ".sh"):
        text = (root / path).read_text(encoding="utf-8")
        n_lines = text.count("\n")
        if n_lines > MAX_FILE:
            findings.append(f"{path}: {n_lines} lines are over the limit of {MAX_FILE}")
        if path.suffix not in (".c", ".h"):
            continue
        for name, line, n in functions(tree.code_of(text).split("\n")):
            if path.parts[0] in tree.ROOMS:
                sizes.append(n)
            if n > MAX_FUNCTION:
                findings.append(f"{path}:{line}: {name} has {n} lines, over the limit of {MAX_FUNCTION}")
    if len(sizes) > 1:
        summary(sizes)
    return findings


if __name__ == "__main__":
    tree.main(lambda root: check(root, print_summary))
