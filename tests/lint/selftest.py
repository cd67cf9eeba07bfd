#!/usr/bin/env python3
"""Each lint finds its faults and accepts correct files: artificial trees with one fault each."""

import pathlib
import shutil
import subprocess
import sys
import tempfile

import banned
import circles
import deps
import doors
import format as formatting
import headers
import names
import sizes
import subjects

HEADER = "#ifndef BASE_X_H\n#define BASE_X_H\n\nint x(void);\n\n#endif\n"


def unit(name, calls=""):
    """scheduler/NAME.h and .c: one function, which calls that of another file."""
    other = f'#include "scheduler/{calls}.h"\n' if calls else ""
    body = f"return {calls}_y();" if calls else "return 0;"
    return {
        f"scheduler/{name}.h": HEADER.replace("BASE_X_H", f"SCHEDULER_{name.upper()}_H").replace("x(void)", f"{name}_y(void)"),
        f"scheduler/{name}.c": f'#include "scheduler/{name}.h"\n\n{other}\nint {name}_y(void)\n{{\n    {body}\n}}\n'
                               .replace("\n\n\n", "\n\n"),
    }


SOUND = {
    **unit("step", "memory"), **unit("memory", "plan"), **unit("plan", "retire"), **unit("retire", "admit"), **unit("admit"),
    "base/x.h": HEADER,
    "base/base_test.h": HEADER.replace("BASE_X_H", "BASE_BASE_TEST_H").replace("x(void)", "test_y(void)"),
    "base/test_y.c": '#include "base/base_test.h"\n\nint test_y(void)\n{\n    return 0;\n}\n',
    "base/x.c": '/* free(p) inside texts is no call. */\n#include "base/x.h"\n\n'
                "#include <stdio.h>\n\nint x(void)\n{\n    return 0;\n}\n",
    "server/y.c": '#include "base/x.h"\n#include <microhttpd.h>\n\nint y(void)\n{\n    return x();\n}\n',
    "engine/fake/z.c": '#include "engine/batch.h"\n\nint z(void)\n{\n    return batch_y();\n}\n',
    "engine/text/text.h": HEADER.replace("BASE_X_H", "ENGINE_TEXT_TEXT_H").replace("x(void)", "text_y(void)"),
    "engine/batch.h": HEADER.replace("BASE_X_H", "ENGINE_BATCH_H").replace("x(void)", "batch_y(void)"),
    "server/server.h": HEADER.replace("BASE_X_H", "SERVER_SERVER_H").replace("x(void)", "server_y(void)"),
    "server/http/loop.h": HEADER.replace("BASE_X_H", "SERVER_HTTP_LOOP_H").replace("x(void)", "loop_y(void)"),
    "scheduler/sim/sim_int.h": HEADER.replace("BASE_X_H", "SCHEDULER_SIM_SIM_INT_H").replace("x(void)", "sim_y(void)"),
    "engine/a.c": '#include "engine/text/text.h"\n\nint a(void)\n{\n    return text_y();\n}\n',
    "tests/unit/base/test_x.c": "#include <check.h>\n",
    "README.md": "See https://github.com/x/y and /v1/models, /tmp/millrace-x.\n",
}

# (lint, file, its text, part of the finding)
FAULTS = [
    (deps, "base/a.c", '#include "engine/engine.h"\n', "base must not include engine/engine.h"),
    (deps, "config/a.c", '#include "kvpool/arena.h"\n', "config must not include"),
    (deps, "engine/a.c", '#include "kvpool/pool.h"\n', "engine must not include kvpool/pool.h"),
    (deps, "scheduler/a.c", '#include "server/http/http.h"\n', "scheduler must not include"),
    (deps, "server/a.c", '#include "engine/model/gguf.h"\n', "server must not include engine/model/gguf.h"),
    (deps, "server/a.c", '#include "base/cgroup.h"\n', "private to base"),
    (deps, "engine/text/a.c", '#include "engine/template/template.h"\n', "engine/text must not include"),
    (deps, "engine/template/a.c", '#include "engine/text/vocab.h"\n', "engine/template must not include"),
    (deps, "engine/a.c", '#include "engine/template/interp.h"\n', "engine must not include"),
    (deps, "engine/a.c", '#include "engine/cpu/pool.h"\n', "engine/cpu/pool.h is a device's own"),
    (deps, "engine/a.h", '#include "engine/cpu/cpu_device.h"\n', "is a device's own"),
    (deps, "engine/text/a.c", '#include "engine/fake/fake.h"\n', "is a device's own"),
    (deps, "engine/cpu/a.c", '#include "engine/fake/fake.h"\n', "is a device's own"),
    (deps, "engine/backend.c", '#include "engine/cpu/pool.h"\n', "is a device's own"),
    (deps, "base/a.c", '#include "x.h"\n', "not written from the root"),
    (deps, "base/a.c", '#include "base/../base/x.h"\n', "not written from the root"),
    (deps, "base/a.c", '#include "base/gone.h"\n', "does not exist"),
    (deps, "base/a.c", "#include <microhttpd.h>\n", "<microhttpd.h> is only for server/*"),
    (deps, "server/a.c", "#include <cjson/cJSON.h>\n", "only for nobody"),
    (deps, "engine/cpu/a.c", '#include "engine/text/text.h"\n', "engine/cpu must not include engine/text/text.h"),
    (deps, "engine/sample/a.c", '#include "engine/batch.h"\n', "engine/sample must not include engine/batch.h"),
    (deps, "server/api/a.c", '#include "server/http/loop.h"\n', "server/api must not include server/http/loop.h"),
    (deps, "server/new/a.c", '#include "server/server.h"\n', "folder server/new has no row"),
    (deps, "scheduler/a.c", '#include "scheduler/sim/sim_int.h"\n', "scheduler must not include scheduler/sim"),
    (deps, "engine/cpu/a.c", "int y(void);\nint z(void)\n{\n    return text_y();\n}\n",
     "text_y(): engine/cpu must not include engine/text/text.h"),
    (deps, "scheduler/a.c", "void z(void)\n{\n    kv_block_ptr(a, 0, 1);\n}\n", "kv_block_ptr(): is only for"),
    (circles, "scheduler/admit.c", '#include "scheduler/memory.h"\nint admit_y(void)\n{\n    return memory_y();\n}\n',
     "scheduler: 4 files call each other in a circle, 3 may: scheduler/admit, scheduler/memory"),
    (circles, "scheduler/room.c", '#include "scheduler/step.h"\n', "scheduler/room.c:1: scheduler/step.h is on a floor above"),
    (circles, "scheduler/room.c", "int step_y(void);\nint room_y(void)\n{\n    return step_y();\n}\n",
     "scheduler/room.c:4: step_y() is on a floor above, in scheduler/step.c"),
    (circles, "scheduler/room.h", "int step_y(void);\n", "scheduler/room.h:1: step_y() belongs to scheduler/step.h"),
    (circles, "scheduler/sched.h", '#include "scheduler/step.h"\n', "scheduler/sched.h:1: scheduler/step.h is on a floor above"),
    (circles, "scheduler/new.c", "int new_y(void);\n", "scheduler/new.c: stands on no floor of scheduler"),
    (deps, "engine/cpu/a.c", "#  include <immintrin.h>\n", "only for engine/cpu/avx*"),
    (deps, "engine/cpu/a.c", '#include "engine/cpu/avx2/a.h"\n', "engine/cpu must not include engine/cpu/avx2/a.h"),
    (deps, "engine/cpu/c/a.c", '#include "engine/cpu/avx2/a.h"\n', "engine/cpu/c must not include engine/cpu/avx2/a.h"),
    (deps, "base/a.c", "#include <cpuid.h>\n", "only for base/cpu.c"),
    (deps, "scheduler/a.c", "#include <pthread.h>\n", "only for base/thread.h"),
    (deps, "server/a.c", "#include <assert.h>\n", "only for nobody"),
    (sizes, "base/a.c", "int a(void)\n{\n" + "    x();\n" * 59 + "}\n", "a has 62 lines"),
    (sizes, "tests/a.c", "int a(void)\n{\n" + "    x();\n" * 59 + "}\n", "a has 62 lines"),
    (sizes, "base/a.h", "int a(void);\n" * 801, "801 lines are over"),
    (sizes, "tests/py/a.py", "a = 1\n" * 801, "801 lines are over"),
    (banned, "base/a.c", "void f(void) { strcpy(a, b); }\n", "'strcpy'"),
    (banned, "base/a.c", "void f(void) { sprintf (a, b); }\n", "'sprintf'"),
    (banned, "base/a.c", "int f(void) { return atoi(a); }\n", "'atoi'"),
    (banned, "base/a.c", "void f(void) { strtok(a, b); }\n", "'strtok'"),
    (banned, "engine/a.c", "void f(void) { p = malloc(1); }\n", "base/mem.h"),
    (banned, "engine/a.c", "void f(void) { free(p); }\n", "base/mem.h"),
    (banned, "engine/a.c", "void f(void) { printf(a); }\n", "standard output"),
    (banned, "server/a.c", "void f(void) { exit(1); }\n", "only main may end"),
    (banned, "server/a.c", "void f(void) { abort(); }\n", "use CHECK"),
    (banned, "server/a.c", "void f(void) { setlocale(LC_ALL, a); }\n", "'setlocale'"),
    (banned, "server/a.c", "struct MHD_PostProcessor *p;\n", "form bodies"),
    (banned, "server/a.c", "void f(void) { getenv(a); }\n", "config/ only"),
    (banned, "kvpool/a.c", "uint8_t *f(void) { return kv_block_ptr(a, 0, 1); }\n", "only a device addresses KV bytes"),
    (banned, "engine/a.h", "uint8_t *kv_block_ptr(const struct kv_store *s);\n", "only a device addresses"),
    (banned, "server/a.c", "void f(void) { g(&kv_block_ptr); }\n", "only a device addresses"),
    (banned, "engine/cpu/a.c", "void f(void) { _mm_pause(); }\n", "folders of levels"),
    (banned, "engine/cpu/a.c", "void f(void) { attend_avx2(a); }\n", "in its folder"),
    (banned, "engine/cpu/avx2/a.c", "void f(void) { attend_avx512(a); }\n", "in its folder"),
    (banned, "base/a.c", 'int f(void) { return __builtin_cpu_supports("avx2"); }\n', "base/cpu.c"),
    (banned, "engine/a.c", "typedef struct { int x; } y;\n", "structs are named"),
    (banned, "engine/a.c", "void f(void) { goto again; }\n", "fail: or out:"),
    (banned, "tests/unit/base/test_a.c", "void f(void) { usleep(1); }\n", "wait for events"),
    (banned, "tests/unit/base/test_a.c", "void f(void) { tcase_set_timeout(t, 4); }\n", "has no clock"),
    (banned, "tests/unit/base/test_a.c", "void f(void) { srunner_create(s); }\n", "run_suite()"),
    (banned, "engine/a.c", "/* TODO: later */\n", "belongs into an issue"),
    (banned, "ARCHITECTURE.md", "Enough for now.\n", "say what holds"),
    (banned, "README.md", "<" * 7 + " HEAD\n", "left unfinished"),
    (names, "README.md", "in /ho" + "me/somebody/x\n", "path of one machine"),
    (names, "deploy/run", "cd /wo" + "rk/x\n", "path of one machine"),
    (names, "base/a.c", '"/t' + 'mp/x"\n', "path of one machine"),
    (names, "README.md", "http:/" + "/mirror.internal.lan/x\n", "not among the public hosts"),
    (headers, "base/a.h", "#ifndef BASE_A_H\n#define BASE_A_H\n\nsize_t a(void);\n\n#endif\n", "does not compile alone"),
    (headers, "base/a.h", "#ifndef A_H\n#define A_H\n\n#endif\n", "the include guard is not BASE_A_H"),
    (doors, "base/a.h", "#ifndef BASE_A_H\n#define BASE_A_H\nint a_y(void);\n#endif\n", "nothing but tests calls a_y()"),
    (doors, "server/a.c", '#include "base/base_test.h"\n', "base/base_test.h is for tests and for base/"),
    (formatting, "base/a.c", "int  a;\n", "base/a.c: run clang-format"),
]


def write(root, name, text):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def findings_of(lint, extra):
    with tempfile.TemporaryDirectory(prefix="millrace-lint-") as folder:
        root = pathlib.Path(folder)
        shutil.copy(pathlib.Path(__file__).resolve().parents[2] / ".clang-format", root)
        for name, text in {**SOUND, **extra}.items():
            write(root, name, text)
        return lint.check(root)


# Subjects and what is wrong with them, None: nothing.
SUBJECTS = [
    ("base: lists in one header", None),
    ("engine/text: merges by rank", None),
    ("server, tests: a head of any length gets its answer", None),
    ("base: " + "x" * 54, None),
    ("base: " + "x" * 55, "61 characters"),
    ("Base: lists", "what changes"),
    ("lists in one header", "what changes"),
    ("elsewhere: lists", "what changes"),
    ("base: lists.", "what changes"),
    ("base:lists", "what changes"),
]


def history(root, *messages):
    """What subjects.py finds in a repository whose second commit brings the rule."""
    def git(*arguments):
        subprocess.run(["git", "-C", str(root), "-c", "user.name=a", "-c", "user.email=a@example.com", *arguments],
                       check=True, capture_output=True)
    git("init", "--quiet")
    git("commit", "--quiet", "--allow-empty", "-m", "A commit from before the rule.")
    write(root, subjects.RULE, "")
    git("add", ".")
    git("commit", "--quiet", "-m", "The rule itself.")
    for subject in messages:
        git("commit", "--quiet", "--allow-empty", "-m", subject)
    return subjects.check(root)


def check_subjects():
    """Lines that say which part of the rule does not hold."""
    for subject, part in SUBJECTS:
        fault = subjects.check_subject(subject)
        if (fault is None) != (part is None) or (part and part not in fault):
            yield f"subject '{subject}': '{part}' is not what is found: {fault}"
    with tempfile.TemporaryDirectory(prefix="millrace-lint-") as folder:
        root = pathlib.Path(folder)
        if subjects.check(root):
            yield "subjects are checked where there is no history"
        found = history(root, "base: sound", "No room.")
        if len(found) != 1 or "'No room.'" not in found[0]:
            yield f"of a history with one wrong subject is found: {found}"
        clone = root / "shallow"
        subprocess.run(["git", "clone", "--quiet", "--depth", "1", root.as_uri(), str(clone)], check=True,
                       capture_output=True)
        if subjects.check(clone):
            yield f"a shallow clone is refused for what it does not hold: {subjects.check(clone)}"


def main():
    failures = list(check_subjects())
    lints = sorted({lint for lint, *_ in FAULTS}, key=lambda lint: lint.__name__)
    for lint in lints:
        found = findings_of(lint, {})
        if found:
            failures.append(f"{lint.__name__} finds in a sound tree: {found}")
    for lint, name, text, part in FAULTS:
        found = findings_of(lint, {name: text})
        if len(found) != 1 or part not in found[0]:
            failures.append(f"{lint.__name__} on {name} {text[:60]!r}: '{part}' is not what it finds: {found}")
    for failure in failures:
        print(failure)
    print(f"{len(FAULTS) + len(SUBJECTS)} faults, {len(lints) + 1} lints")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
