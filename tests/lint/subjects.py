#!/usr/bin/env python3
"""Commit subjects read `room: what changes`, in at most 60 characters: checks every commit since the one
that introduced this rule. A tree without history has none to check; a shallow clone is checked as far as it goes.

Usage: subjects.py [ROOT]
"""

import re
import subprocess

import tree

RULE = "tests/lint/subjects.py"
MAX_SUBJECT = 60
PLACES = (*tree.ROOMS, "deploy", "tests", "docs", "build")
PLACE = rf"(?:{'|'.join(PLACES)})(?:/\w+)*"
SUBJECT = re.compile(rf"^{PLACE}(?:, {PLACE})*: \S.*[^.\s]$")


def git(root, *arguments):
    """Its output, or None where there is no git or no history."""
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout if done.returncode == 0 else None


def check_subject(subject):
    if len(subject) > MAX_SUBJECT:
        return f"has {len(subject)} characters, over the limit of {MAX_SUBJECT}"
    if not SUBJECT.match(subject):
        return f"is not '{PLACES[0]}|{PLACES[1]}|...: what changes' without a full stop"
    return None


def check(root):
    if not (root / ".git").exists():
        return []
    began = (git(root, "log", "--diff-filter=A", "--format=%H", "--", RULE) or "").split()
    if not began:
        return []
    # In a shallow clone that begins later, the first commit seems to have added the file.
    log = git(root, "log", "--no-merges", "--format=%h %s", f"{began[-1]}..HEAD") or ""
    findings = []
    for line in log.splitlines():
        commit, _, subject = line.partition(" ")
        fault = check_subject(subject)
        if fault:
            findings.append(f"commit {commit}: '{subject}' {fault}")
    return findings


if __name__ == "__main__":
    tree.main(check)
