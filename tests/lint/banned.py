#!/usr/bin/env python3
"""Calls and words that the conventions forbid, and where each is allowed.

Usage: banned.py [ROOT]
"""

import fnmatch
import re

import tree

MAIN = ["server/main.c"]
COMMANDS = ["server/main.c", "server/cli/banner.c", "server/cli/plan.c", "server/cli/simulate.c", "server/cli/verb.c"]


def call(*names):
    return re.compile(r"(?<![\w.>])(?:" + "|".join(names) + r")\s*\(")


# (pattern in code without comments and literals, where it is allowed, why not elsewhere)
ROOM_RULES = [
    (call("strcpy", "strcat", "stpcpy", "strncpy", "sprintf", "vsprintf", "gets"), [],
     "has no bound that is checked; use base/buf.h or snprintf"),
    (call("atoi", "atol", "atoll", "atof"), [], "cannot tell an error; use strtoll and look at the end"),
    (call("strtok"), [], "keeps hidden state"),
    (call("rand", "srand", "random", "drand48"), [], "is one state for all threads"),
    (call("alloca"), [], "takes stack without a bound"),
    (call("setlocale"), [], "changes how every thread reads numbers"),
    (call("setjmp", "longjmp", "sigsetjmp", "siglongjmp"), ["engine/template/*.c"],
     "hides control flow; only the template interpreter leaves its arena that way"),
    (call("assert"), [], "use CHECK or DCHECK"),
    (call("malloc", "calloc", "realloc", "free", "strdup", "strndup", "asprintf", "vasprintf",
          "aligned_alloc", "posix_memalign", "memalign"), ["base/mem.c"], "allocation goes through base/mem.h"),
    (call("printf", "vprintf", "puts", "putchar"), COMMANDS, "standard output belongs to the commands"),
    (call("perror"), COMMANDS, "messages go through base/log.h or struct err"),
    (call("exit", "_exit", "_Exit", "quick_exit"), MAIN, "only main may end the process"),
    (call("abort"), ["base/check.c"], "use CHECK"),
    (call("system", "popen"), [], "runs a shell"),
    (call("sleep", "usleep"), [], "wait for an event instead"),
    (call("getenv", "secure_getenv"), ["config/*"], "the environment is read in config/ only"),
    (re.compile(r"\bMHD_(?:create|destroy)_post_processor\b|\bMHD_post_process\b|\bMHD_PostProcessor\b"), [],
     "form bodies are not served"),
    (re.compile(r"\b(?:_mm\d*_\w+|__m(?:128|256|512)[id]?)\b"), ["engine/cpu/avx*/*"],
     "instructions are used in the folders of levels"),
    (re.compile(r"\b\w+_avx2\b"), ["engine/cpu/avx2/*", "engine/cpu/avx512/*", "engine/cpu/levels.c"],
     "the symbols of a level are named in its folder, in those of higher levels and in the table of levels"),
    (re.compile(r"\b\w+_avx512\b"), ["engine/cpu/avx512/*", "engine/cpu/levels.c"],
     "the symbols of a level are named in its folder and in the table of levels"),
    (call("__builtin_cpu_supports", "__builtin_cpu_is", "__get_cpuid", "__get_cpuid_count", "__cpuid", "__cpuid_count"),
     ["base/cpu.c"], "the processor is asked in base/cpu.c"),
    (re.compile(r"\bkv_block_ptr\b"), ["engine/cpu/*"],
     "only a device addresses KV bytes; the rest moves blocks by kvpool/store.h"),
    (re.compile(r"\btypedef\s+(?:struct|union|enum)\b"), [], "structs are named struct x"),
    (re.compile(r"\bgoto\s+(?!fail\b|out\b)\w+"), [], "goto leads to fail: or out: only"),
]

# In the tests' C code.
TEST_RULES = [
    (call("sleep", "usleep", "nanosleep", "clock_nanosleep"), ["tests/tools/*", "tests/bench/*"],
     "tests wait for events"),
    (call("strcpy", "strcat", "sprintf", "gets"), [], "has no bound that is checked"),
    (call("setlocale"), [], "changes how every thread reads numbers"),
    (call("tcase_set_timeout", "alarm"), [], "a test has no clock: ctest's limit ends what hangs"),
    (call("srunner_create", "srunner_run_all"), ["tests/unit/run_suite.h"], "suites run through run_suite()"),
]

# In everything, comments included.
WORDS = [
    (re.compile(r"\b(?:TODO|FIXME|HACK)\b"), ["tests/lint/*"], "an open end belongs into an issue"),
    (re.compile(r"\bfor now\b", re.I), ["tests/lint/*"], "say what holds"),
    (re.compile(r"^(?:<<<<<<<|>>>>>>>) ", re.M), [], "a merge was left unfinished"),
]


def apply(rules, path, text):
    for pattern, places, why in rules:
        if any(fnmatch.fnmatchcase(str(path), place) for place in places):
            continue
        for match in pattern.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            yield f"{path}:{line}: '{match.group(0).strip().rstrip('(').strip()}': {why}"


def check(root):
    findings = []
    for path in tree.files(root, ".c", ".h", ".def", ".py", ".sh", ".md", ".cu", ".txt"):
        text = (root / path).read_text(encoding="utf-8", errors="replace")
        if path.parts[:2] != ("tests", "golden"):
            findings += apply(WORDS, path, text)
        if path.suffix not in (".c", ".h"):
            continue
        if path.parts[0] in tree.ROOMS:
            findings += apply(ROOM_RULES, path, tree.code_of(text))
        elif path.parts[0] == "tests":
            findings += apply(TEST_RULES, path, tree.code_of(text))
    return findings


if __name__ == "__main__":
    tree.main(check)
