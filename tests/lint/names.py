#!/usr/bin/env python3
"""Nothing in the repository names the machine it was written on: absolute paths exist on any Linux or belong to
millrace itself, and links lead to public hosts.

Usage: names.py [ROOT]
"""

import re

import tree

# First folders an absolute path may have. Routes of the HTTP API are no files: only paths of at least two parts
# whose first is a usual place for somebody's own files are looked at.
PRIVATE_PLACES = ("work", "home", "root", "mnt", "media", "Users", "workspace", "workspaces", "builds", "data")
PATH = re.compile(r"(?<![\w.~}$)*/-])/(" + "|".join(PRIVATE_PLACES) + r")/[\w.-]+")
SCRATCH = re.compile(r"(?<![\w.~}$)*-])/tmp/(?!millrace|XXXXXX)[\w.-]+")
ALLOWED_PATHS = re.compile(r"^/home/(u|user|you|millrace)\b")

LINK = re.compile(r"\b(?:https?|git|ssh)://(?:[\w.+-]+@)?([\w.-]+)")
PUBLIC = re.compile(
    r"^(127\.0\.0\.\d+|0\.0\.0\.0|10\.[\d.]+|localhost|host|[\w-]+|([\w-]+\.)*example(\.\w+)?"
    r"|([\w-]+\.)*(github\.com|githubusercontent\.com|gnu\.org|ietf\.org|rfc-editor\.org|unicode\.org|json\.org|arxiv\.org"
    r"|openai\.com|apache\.org|google\.dev|google\.com|huggingface\.co|python\.org|pypi\.org|debian\.org|w3\.org|whatwg\.org"
    r"|prometheus\.io|kubernetes\.io|opencontainers\.org|docker\.com|json-schema\.org))$")


def check_text(path, text):
    for pattern in (PATH, SCRATCH):
        for match in pattern.finditer(text):
            if not ALLOWED_PATHS.match(match.group(0)):
                line = text.count("\n", 0, match.start()) + 1
                yield f"{path}:{line}: '{match.group(0)}' is a path of one machine"
    for match in LINK.finditer(text):
        if not PUBLIC.match(match.group(1)):
            line = text.count("\n", 0, match.start()) + 1
            yield f"{path}:{line}: '{match.group(0)}' is not among the public hosts of tests/lint/names.py"


def check(root):
    findings = []
    for path in tree.files(root):
        if path.parts[:2] in (("tests", "golden"), ("tests", "fuzz")) and path.suffix not in (".c", ".md"):
            continue
        try:
            text = (root / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        findings += check_text(path, text)
    return findings


if __name__ == "__main__":
    tree.main(check)
