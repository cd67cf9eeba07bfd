#!/usr/bin/env python3
"""Every function declared in a room's door is called by the product: functions that only tests call belong in a header
named *_test.h, which the rest of the product never includes. A door is a header that another room may include
(tests/lint/deps.py).

Usage: doors.py [ROOT]
"""

import collections
import re

import deps
import tree

WORD = re.compile(r"\b[A-Za-z_]\w*\b")
INSIDE = ["*_int.h", "*_test.h"]


def is_door(name):
    if deps.allowed(name, INSIDE) or name in deps.PRIVATE:
        return False
    room = name.split("/")[0]
    return any(deps.allowed(name, patterns) for other, patterns in deps.ARROWS.items() if other != room)


def check(root):
    used, declared = collections.Counter(), {}
    findings = []
    for path in tree.files(root, ".c", ".h", ".def"):
        if path.parts[0] not in tree.ROOMS:
            continue
        text = (root / path).read_text(encoding="utf-8")
        code = tree.code_of(text)
        names = deps.DECLARED.findall(code)
        used.update(WORD.findall(code))
        used.subtract(names)
        if path.suffix == ".h" and is_door(str(path)):
            declared.update((name, path) for name in names)
        for name in re.findall(r'#include "([^"]+_test\.h)"', text):
            if name.rpartition("/")[0] != str(path.parent):
                findings.append(f"{path}: {name} is for tests and for {name.rpartition('/')[0]}/, which defines it")
    findings += [f"{path}: nothing but tests calls {name}()" for name, path in declared.items() if used[name] <= 0]
    return sorted(findings)


if __name__ == "__main__":
    tree.main(check)
