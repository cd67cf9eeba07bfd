"""README.md against what it describes."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_tables_are_fresh():
    done = subprocess.run([sys.executable, ROOT / "deploy" / "readme-tables", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_files_that_the_documents_name_exist():
    named = re.compile(r"`((?:base|config|kvpool|engine|scheduler|server|deploy|tests)/[\w./-]+\.[a-z]+)`|\]\(([\w./-]+)\)")
    missing = [
        f"{document}: {path}"
        for document in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "tests/README.md")
        for pair in named.findall((ROOT / document).read_text())
        for path in pair
        if path and not (ROOT / path).exists()
    ]
    assert missing == []


def test_every_part_of_the_test_run_has_a_budget():
    script = (ROOT / "tests" / "run").read_text()
    parts = set(re.findall(r"^part_([\w-]+)\(\)", script, re.M))
    table = re.findall(r"^\| ([\w-]+) \| (\d+) \| ([\w, ]+) \|", (ROOT / "tests" / "README.md").read_text(), re.M)
    assert {name for name, *_ in table} == parts
    in_full = sum(int(seconds) for name, seconds, modes in table if "full" in modes and name != "environments")
    assert in_full <= 25 * 60, "the parts of a full run (the environments are made beside the builds)"


def test_every_technique_names_tests_that_exist():
    table = (ROOT / "tests" / "README.md").read_text().split("## Techniques and pitfalls")[1]
    rows = [line.rsplit("|", 3) for line in table.splitlines() if re.match(r"\| \d+ \|", line)]
    assert sorted(int(re.match(r"\| (\d+)", row[0]).group(1)) for row in rows) == list(range(1, 82))
    source = "".join(path.read_text() for kind in ("*.c", "*.py") for path in (ROOT / "tests").rglob(kind))
    programs = {path.stem for path in (ROOT / "tests" / "bench").iterdir()}
    for _, does, shown, _ in rows:
        names = re.findall(r"`(\w+)`", shown)
        assert names or "refused" in does, does
        for name in names:
            assert name in programs or re.search(rf"START_TEST\({name}\)|def {name}\(", source), name
