#!/usr/bin/env python3
"""Who may include what: the arrows between rooms, and which files may touch a third-party library.

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
    "engine": ["base/*", "config/*", "kvpool/layout.h", "kvpool/sizing.h", "kvpool/arena.h", "kvpool/tier.h"],
    "scheduler": [
        "base/*", "config/*", "kvpool/*", "engine/backend.h", "engine/batch.h", "engine/sample/sampler.h",
        "engine/text/text.h",
    ],
    "server": [
        "base/*", "config/*", "kvpool/layout.h", "kvpool/sizing.h", "kvpool/arena.h", "kvpool/tier.h", "kvpool/disk.h",
        "kvpool/named.h",
        "engine/engine.h", "engine/text/text.h", "engine/template/template.h",
        "engine/sample/sampler.h", "scheduler/scheduler.h", "scheduler/request.h", "scheduler/tenant.h",
        "scheduler/snapshot.h", "scheduler/journal.h", "scheduler/sim/simulate.h",
    ],
}

# Folder that is a room of its own -> headers outside of it that it may include.
INNER = {
    "engine/template": ["base/*", "engine/text/text.h"],
    "engine/text": ["base/*", "engine/model/gguf.h"],
}

# Folder -> the headers in it that files outside of it may include.
DOORS = {
    "engine/template": ["engine/template/template.h"],
    "engine/text": ["engine/text/text.h"],
}

# Headers that other rooms must not see even where a pattern above would let them.
PRIVATE = {
    "base/cgroup.h": "base", "config/option_table.h": "config", "kvpool/copier.h": "kvpool", "kvpool/file.h": "kvpool",
    "kvpool/disk_int.h": "kvpool", "kvpool/cache_int.h": "kvpool",
}

# Third-party or dangerous system header -> files of the rooms that may include it.
QUARANTINE = {
    "microhttpd.h": ["server/*"],
    "cjson/cJSON.h": ["base/json.c"],
    "cJSON.h": ["base/json.c"],
    "immintrin.h": ["engine/cpu/*_avx2.[ch]", "engine/cpu/*_avx512.[ch]"],
    "pthread.h": ["base/thread.h", "base/thread.c", "base/ring.c", "engine/cpu/pool.c"],
    "pcre2.h": ["engine/text/*"],
    "utf8proc.h": ["engine/template/*"],
    "threads.h": [],
    "assert.h": [],
    "check.h": [],
    "setjmp.h": ["engine/template/interp.h"],
}

# A device is a folder of its own: nothing outside it includes from it, but the table of devices its door.
DEVICES = ["engine/cpu", "engine/fake"]
DEVICE_TABLE = "engine/backend.c"
DEVICE_DOORS = ["engine/cpu/cpu_device.h"]

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)


def allowed(name, patterns):
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def inside(path, folder):
    return path.startswith(folder + "/")


def inner_fault(path, name):
    """What the arrows of folders that are rooms of their own have against the include, or None."""
    for folder, patterns in INNER.items():
        if inside(path, folder) and not inside(name, folder) and not allowed(name, patterns):
            return f"{folder} must not include {name}"
    for folder, doors in DOORS.items():
        if inside(name, folder) and not inside(path, folder) and name not in doors:
            return f"{name} is private to {folder}"
    return None


def into_device(path, name):
    """The device whose inside this file includes without being part of it."""
    for device in DEVICES:
        if name.startswith(device + "/") and not str(path).startswith(device + "/"):
            return None if str(path) == DEVICE_TABLE and name in DEVICE_DOORS else device
    return None


def check_file(root, path):
    room = path.parts[0]
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
            elif other != room and not allowed(name, ARROWS[room]):
                yield f"{where}: {room} must not include {name}"
            elif into_device(path, name):
                yield f"{where}: {name} is a device's own: only {DEVICE_TABLE} names devices, by their doors"
            elif PRIVATE.get(name, room) != room:
                yield f"{where}: {name} is private to {PRIVATE[name]}"
            elif inner_fault(str(path), name):
                yield f"{where}: {inner_fault(str(path), name)}"
            elif generated:
                yield f"{where}: {name} does not exist"
        elif name in QUARANTINE and not allowed(str(path), QUARANTINE[name]):
            yield f"{where}: <{name}> is only for {', '.join(QUARANTINE[name]) or 'nobody'}"


def check(root):
    findings = []
    for path in tree.files(root, ".c", ".h"):
        if path.parts[0] in tree.ROOMS:
            findings += check_file(root, path)
    return findings


if __name__ == "__main__":
    tree.main(check)
