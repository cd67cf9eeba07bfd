#!/usr/bin/env python3
"""The graph of calls between the files of a folder. A circle of many files has no order in which it can be read, so
circles are bounded; where a folder has floors, a file may call and include only its own floor and those below it.

A file is its stem: x.c and x.h are one. Static functions belong to their file, inline ones to their header. A
function that is only named, for instance as a callback, does not count as called.

Usage: circles.py [ROOT]            checks the folders of BOUNDS and FLOORS
       circles.py ROOT FOLDER [N]   prints the graph of a folder and its circles of more than N files (default 1)
"""

import pathlib
import re
import sys

import tree

# Folder -> most files that may call each other in a circle.
BOUNDS = {"scheduler": 3, "server": 3}

# Folder -> its floors, the lowest first. Every file stands on one; those of folders below stand on top of all.
FLOORS = {
    "scheduler": [
        "cost order timing journal_text journal tenant_int tenant_gate tenant request",
        "seq sched",
        "room notes emit gauges copies",
        "queue parked",
        "running",
        "park disk",
        "admit memory plan retire snapshot",
        "step",
        "scheduler",
    ],
}

# Headers that are a door: types for every floor, functions of any.
DOORS = {"scheduler/scheduler.h", "scheduler/request.h", "scheduler/snapshot.h"}

DEFINED = re.compile(r"^(?!return\b|else\b|typedef\b)([A-Za-z_][\w \t*]*?[ *]\*?)(\w+)\([^;{}]*\)\s*\{", re.M)
DECLARED = re.compile(r"^(?!return\b|else\b|typedef\b)[A-Za-z_][\w \t*]*?[ *]\*?(\w+)\([^;{}]*\)[^;{}]*;", re.M)
CALL = re.compile(r"(?<![\w.>])(\w+)\(")
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)


def stem(path):
    return str(path).rpartition(".")[0]


def sources(root, folder):
    """(path, code) of each file of a folder and those below it."""
    for path in tree.files(root, ".c", ".h"):
        if str(path).startswith(folder + "/"):
            yield str(path), tree.code_of((root / path).read_text(encoding="utf-8"))


def definitions(files):
    """Function that other files can call -> the file that defines it."""
    found = {}
    for path, code in files:
        for kind, name in DEFINED.findall(code):
            if not kind.startswith("static") or "inline" in kind:
                found[name] = stem(path)
    return found


def calls(files):
    """File -> {file that it calls: (one function that it calls there, path, line)}."""
    defined = definitions(files)
    graph = {stem(path): {} for path, _ in files}
    for path, code in files:
        code = DECLARED.sub(lambda match: re.sub(r"[^\n]", " ", match.group(0)), code)
        for match in CALL.finditer(code):
            other = defined.get(match.group(1), stem(path))
            if other != stem(path):
                line = code.count("\n", 0, match.start()) + 1
                graph[stem(path)].setdefault(other, (match.group(1), path, line))
    return graph


def circles(graph):
    """Sets of files that all reach each other, largest first (Tarjan's components)."""
    index, low, on_path, path, found = {}, {}, set(), [], []

    def visit(name):
        index[name] = low[name] = len(index)
        path.append(name)
        on_path.add(name)
        for other in graph[name]:
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in on_path:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            group = set()
            while name not in group:
                group.add(path.pop())
            on_path.difference_update(group)
            found.append(sorted(group))

    for name in sorted(graph):
        if name not in index:
            visit(name)
    return sorted((group for group in found if len(group) > 1), key=len, reverse=True)


def check_circles(root):
    for folder, most in BOUNDS.items():
        for group in circles(calls(list(sources(root, folder)))):
            if len(group) > most:
                yield f"{folder}: {len(group)} files call each other in a circle, {most} may: {', '.join(group)}"


def floor_of(folder, name):
    """The number of a file's floor; None: it stands on none."""
    if "/" in name[len(folder) + 1:]:
        return len(FLOORS[folder])
    for number, row in enumerate(FLOORS[folder]):
        if name[len(folder) + 1:] in row.split():
            return number
    return None


def check_floor(folder, files, path, code):
    own = floor_of(folder, stem(path))
    if own is None:
        yield f"{path}: stands on no floor of {folder} in FLOORS of tests/lint/circles.py"
        return
    for match in INCLUDE.finditer(files[path]):
        name = match.group(1)
        if name in files and name not in DOORS and (floor_of(folder, stem(name)) or 0) > own:
            yield f"{path}:{files[path].count(chr(10), 0, match.start(1)) + 1}: {name} is on a floor above"
    if not path.endswith(".h") or path in DOORS:
        return
    defined = definitions([(other, tree.code_of(text)) for other, text in files.items()])
    for match in DECLARED.finditer(code):
        other = defined.get(match.group(1))
        if other and floor_of(folder, other) != own:
            line = code.count("\n", 0, match.start()) + 1
            yield f"{path}:{line}: {match.group(1)}() belongs to {other}.h, on another floor"


def check_floors(root):
    for folder in FLOORS:
        coded = list(sources(root, folder))
        files = {path: (root / path).read_text(encoding="utf-8") for path, _ in coded}
        for path, code in coded:
            yield from check_floor(folder, files, path, code)
        for name, others in calls(coded).items():
            for other, (function, path, line) in others.items():
                if (floor_of(folder, other) or 0) > (floor_of(folder, name) or 0):
                    yield f"{path}:{line}: {function}() is on a floor above, in {other}.c"


def check(root):
    return [*check_circles(root), *check_floors(root)]


def show(root, folder, most):
    graph = calls(list(sources(root, folder)))
    for name, others in sorted(graph.items()):
        print(f"{name}: " + ", ".join(f"{other} ({why[0]})" for other, why in sorted(others.items())))
    for group in circles(graph):
        if len(group) > most:
            print(f"circle of {len(group)}: {', '.join(group)}")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        show(pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    else:
        tree.main(check)
