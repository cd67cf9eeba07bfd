"""The files that the lints check, and the form of their reports: one line per finding, exit status 1 if there are any."""

import pathlib
import re
import sys

ROOMS = ("base", "config", "kvpool", "engine", "scheduler", "server")
SKIPPED = re.compile(r"^(\.git|build|build-.*|__pycache__|\.pytest_cache|\.cache|\.venv)$")


def root_of(argv):
    return pathlib.Path(argv[1]) if len(argv) > 1 else pathlib.Path(__file__).resolve().parents[2]


def files(root, *suffixes):
    """All files below root with one of the suffixes (all files without any), as paths relative to root."""
    found = []
    pending = [root]
    while pending:
        for path in sorted(pending.pop().iterdir()):
            if SKIPPED.match(path.name) or path.is_symlink():
                continue
            if path.is_dir():
                pending.append(path)
            elif not suffixes or path.suffix in suffixes:
                found.append(path.relative_to(root))
    return sorted(found)


def code_of(text):
    """C source with comments and the contents of literals blanked; line numbers stay."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)

    def blank(match):
        kept = match.group(0)[0] if match.group(0)[0] in "\"'" else ""
        return kept + re.sub(r"[^\n]", " ", match.group(0)[len(kept):])

    return pattern.sub(blank, text)


def report(findings):
    for finding in findings:
        print(finding)
    return 1 if findings else 0


def main(check):
    sys.exit(report(check(root_of(sys.argv))))
