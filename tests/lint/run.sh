#!/usr/bin/env bash
# Runs all lints over the repository, then the test that each can fail. Exit status 1 if anything was found.
set -uo pipefail
cd "$(dirname "$0")/../.."
export PYTHONDONTWRITEBYTECODE=1
failed=0
for lint in deps doors circles sizes banned names headers format subjects selftest; do
    if output=$(python3 "tests/lint/$lint.py" 2>&1); then
        echo "lint $lint: passed${output:+ ($output)}"
    else
        echo "lint $lint: FAILED"
        printf '%s\n' "$output" | sed 's/^/    /'
        failed=1
    fi
done
exit "$failed"
