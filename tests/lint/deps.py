#!/usr/bin/env python3
"""Permitted includes and calls: the arrows between rooms and between the folders of a room, and the files that may
use a third-party library. A call counts as an include of the header that declares the function, even if the
declaration was included indirectly.

Usage: deps.py [ROOT]
"""

import fnmatch
import re

import tree

# Room -> patterns of headers of other rooms that it may include.
ARROWS = {
    "base": [],
    "config": ["base/*"],
    "kvpool": ["base/*", "config/*"],
    "engine": [
        "base/*", "config/*", "kvpool/layout.h", "kvpool/sizing.h", "kvpool/arena.h", "kvpool/store.h",
        "kvpool/tier.h",
    ],
    "scheduler": [
        "base/*", "config/*", "kvpool/*", "engine/backend.h", "engine/batch.h", "engine/sample/sampler.h",
        "engine/text/text.h", "engine/grammar/grammar.h",
    ],
    "server": [
        "base/*", "config/*", "kvpool/memory.h", "kvpool/layout.h", "kvpool/sizing.h", "kvpool/arena.h", "kvpool/store.h", "kvpool/tier.h",
        "kvpool/disk.h",
        "kvpool/named.h",
        "engine/engine.h", "engine/text/text.h", "engine/template/template.h", "engine/grammar/grammar.h",
        "engine/grammar/compile.h", "engine/grammar/examples.h", "engine/grammar/vocab.h",
        "engine/sample/sampler.h", "scheduler/scheduler.h", "scheduler/request.h", "scheduler/tenant.h",
        "scheduler/snapshot.h", "scheduler/journal.h", "scheduler/sim/simulate.h",
    ],
}

# A device is a folder of its own: nothing outside it includes from it, but the table of devices its door.
DEVICES = ["engine/cpu", "engine/fake"]
DEVICE_TABLE = "engine/backend.c"
DEVICE_DOORS = ["engine/cpu/cpu_device.h"]

# An instruction level is a folder below engine/cpu, which only the table of levels includes from; every level may
# stand on plain C.
LEVEL_TABLE = "engine/cpu/levels.c"
LEVEL_DOORS = ["engine/cpu/c/kernels_c.h", "engine/cpu/avx2/kernels_avx2.h", "engine/cpu/avx512/kernels_avx512.h"]

# Folder -> patterns of headers in other folders of the same room that its files may include; a * ends at a slash.
# Every folder that has one beside, above or below it stands here.
FOLDERS = {
    "engine": [*DEVICE_DOORS, "engine/model/*.h", "engine/sample/sampler.h", "engine/template/template.h", "engine/text/text.h"],
    "engine/model": [],
    "engine/text": ["engine/model/gguf.h"],
    "engine/template": ["engine/text/text.h"],
    "engine/sample": ["engine/grammar/grammar.h"],
    "engine/grammar": ["engine/text/text.h"],
    "engine/cpu": ["engine/*.h", "engine/model/*.h", "engine/sample/row_passes.h", "engine/sample/sampler.h"],
    "engine/cpu/c": ["engine/cpu/*.h", "engine/model/quant.h", "engine/sample/row_passes.h"],
    "engine/cpu/avx2": ["engine/cpu/*.h", "engine/cpu/c/*.h", "engine/sample/row.h", "engine/sample/row_passes.h"],
    "engine/cpu/avx512": ["engine/cpu/*.h", "engine/cpu/c/*.h", "engine/cpu/avx2/kernels_avx2.h"],
    "engine/fake": ["engine/*.h", "engine/grammar/grammar.h"],
    "scheduler": [],
    "scheduler/sim": ["scheduler/*.h"],
    "server": ["server/http/*.h", "server/api/*.h", "server/cli/*.h"],
    "server/http": ["server/*.h", "server/api/api.h", "server/api/format.h", "server/api/job.h"],
    "server/api": ["server/*.h"],
    "server/cli": ["server/*.h"],
}

# Folder that is a room of its own -> headers of other rooms that it may include.
INNER = {"engine/template": ["base/*"], "engine/text": ["base/*"]}

# Function -> files that may call it, where its header alone says too little.
CALLERS = {
    "kv_block_ptr": ["engine/cpu/*"],
}

# Headers that other rooms must not see even where a pattern above would let them.
PRIVATE = {
    "base/cgroup.h": "base", "config/option_table.h": "config", "kvpool/copier.h": "kvpool", "kvpool/file.h": "kvpool",
    "kvpool/disk_int.h": "kvpool", "kvpool/cache_int.h": "kvpool",
}

# Third-party or dangerous system header -> files of the rooms that may include it.
QUARANTINE = {
    "microhttpd.h": ["server/*"],
    "cjson/cJSON.h": [],
    "cJSON.h": [],
    "immintrin.h": ["engine/cpu/avx*/*"],
    "cpuid.h": ["base/cpu.c"],
    "pthread.h": ["base/thread.h", "base/thread.c", "base/ring.c", "engine/cpu/pool.c"],
    "pcre2.h": ["engine/text/*"],
    "utf8proc.h": ["engine/template/*"],
    "threads.h": [],
    "assert.h": [],
    "check.h": [],
    "setjmp.h": ["engine/template/interp.h"],
}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)


def allowed(name, patterns):
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def in_folder(name, patterns):
    """As allowed, but a * does not go down into folders."""
    return any(name.count("/") == pattern.count("/") and fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def into_device(path, name):
    """The device whose inside this file includes without being part of it."""
    for device in DEVICES:
        if name.startswith(device + "/") and not str(path).startswith(device + "/"):
            return None if str(path) == DEVICE_TABLE and name in DEVICE_DOORS else device
    return None


def forbidden(path, name):
    """Why a file may not have to do with a header, or None."""
    room, other = path.parts[0], name.split("/")[0]
    folder, other_folder = str(path.parent), name.rpartition("/")[0]
    if other != room:
        if not allowed(name, ARROWS[room]):
            return f"{room} must not include {name}"
        if not allowed(name, INNER.get(folder, ["*"])):
            return f"{folder} must not include {name}"
        if PRIVATE.get(name, room) != room:
            return f"{name} is private to {PRIVATE[name]}"
    elif into_device(path, name):
        return f"{name} is a device's own: only {DEVICE_TABLE} names devices, by their doors"
    elif other_folder != folder and not (str(path) == LEVEL_TABLE and name in LEVEL_DOORS):
        if folder not in FOLDERS:
            return f"folder {folder} has no row in FOLDERS of tests/lint/deps.py"
        if not in_folder(name, FOLDERS[folder]):
            return f"{folder} must not include {name}"
    return None


# A function's declaration or definition: it starts a line, and no statement does in column 0.
DECLARED = re.compile(r"^(?!return\b|else\b|typedef\b)[A-Za-z_][\w \t*]*?[ *]\*?(\w+)\(", re.M)
CALL = re.compile(r"(?<![\w.>])(\w+)\(")


def declarations(root):
    """Function -> the header that declares it."""
    found = {}
    for path in tree.files(root, ".h"):
        if path.parts[0] in tree.ROOMS:
            for name in DECLARED.findall(tree.code_of((root / path).read_text(encoding="utf-8"))):
                found[name] = str(path)
    return found


def check_calls(path, text, declared):
    code = tree.code_of(text)
    own = set(DECLARED.findall(code))
    included = {match.group(2) for match in INCLUDE.finditer(text)}
    for match in CALL.finditer(code):
        name = match.group(1)
        if name in CALLERS and not allowed(str(path), CALLERS[name]):
            why = f"is only for {', '.join(CALLERS[name])}"
        elif name in own or name not in declared or declared[name] in included:
            continue
        else:
            why = forbidden(path, declared[name])
        if why:
            yield f"{path}:{text.count(chr(10), 0, match.start()) + 1}: {name}(): {why}"


def check_file(root, path):
    text = (root / path).read_text(encoding="utf-8")
    for match in INCLUDE.finditer(text):
        line = text.count("\n", 0, match.start(2)) + 1
        where = f"{path}:{line}"
        quoted, name = match.group(1) == '"', match.group(2)
        if quoted:
            other = name.split("/")[0]
            generated = not (root / name).exists() and "/" in name
            if other not in tree.ROOMS or "/" not in name or ".." in name:
                yield f'{where}: "{name}" is not written from the root of a room'
            elif forbidden(path, name):
                yield f"{where}: {forbidden(path, name)}"
            elif generated:
                yield f"{where}: {name} does not exist"
        elif name in QUARANTINE and not allowed(str(path), QUARANTINE[name]):
            yield f"{where}: <{name}> is only for {', '.join(QUARANTINE[name]) or 'nobody'}"


def check(root):
    findings = []
    declared = declarations(root)
    for path in tree.files(root, ".c", ".h"):
        if path.parts[0] in tree.ROOMS:
            findings += check_file(root, path)
            findings += check_calls(path, (root / path).read_text(encoding="utf-8"), declared)
    return findings


if __name__ == "__main__":
    tree.main(check)
