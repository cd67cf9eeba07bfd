"""README.md against the product."""

import json
import pathlib
import re
import subprocess
import sys
import xml.dom.minidom

import pytest

from http_rig import PATIENCE_S, clean_environment, start_real

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_tables_are_fresh():
    done = subprocess.run([sys.executable, ROOT / "deploy" / "readme-tables", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def readme_lines():
    return (ROOT / "README.md").read_text().splitlines()


@pytest.mark.parametrize("activations", ["int8", "int16", "f32"])
def test_the_first_curl_line_gets_a_short_and_right_answer(activations):
    line = next(line.strip() for line in readme_lines() if line.startswith("    curl "))
    with start_real("--cpu.activations", activations) as server:
        assert "http://127.0.0.1:8080/" in line
        command = line.replace("127.0.0.1:8080", f"127.0.0.1:{server.port}")
        done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=PATIENCE_S, env=clean_environment())
        assert done.returncode == 0 and done.stdout.rstrip().endswith("data: [DONE]")
        events = [json.loads(event[6:]) for event in done.stdout.splitlines() if event.startswith("data: {")]
        choices = [event["choices"][0] for event in events if event["choices"]]
        assert "".join(choice["delta"].get("content", "") for choice in choices) == "The chemical symbol for water is H2O."
        assert choices[-1]["finish_reason"] == "stop"
        # decided by a wide margin: rounding flips nothing
        body = json.loads(re.search(r"-d '(.*)'", line).group(1))
        scored = server.post("/v1/chat/completions", {**body, "stream": False, "logprobs": True, "top_logprobs": 2}).json
        for token in scored["choices"][0]["logprobs"]["content"]:
            first, second = token["top_logprobs"]
            assert first["logprob"] - second["logprob"] > 1.5, token


def test_the_banner_asks_what_the_readme_asks():
    body = re.search(r"-d '(.*)'", next(line for line in readme_lines() if line.startswith("    curl "))).group(1)
    source = (ROOT / "server" / "cli" / "banner.c").read_text()
    parts = re.search(r"#define FIRST_CHAT(.*?)\n#define", source, re.S).group(1)
    assert "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', parts)).replace('\\"', '"') == body


def test_hello_gets_a_sane_answer_under_the_defaults():
    with start_real() as server:
        for seed in range(4):
            body = {"messages": [{"role": "user", "content": "Hello"}], "seed": seed}
            choice = server.post("/v1/chat/completions", body).json["choices"][0]
            assert choice["finish_reason"] == "stop" and len(choice["message"]["content"]) < 400
            assert re.search(r"[Hh]ello|[Hh]elp|assist", choice["message"]["content"]), choice


def test_what_it_is_for_whom_and_pictures_stand_on_the_first_screen():
    lines = readme_lines()
    first = "\n".join(lines[: lines.index("## Quick start")])
    assert len(first.splitlines()) <= 20 and "for anyone who" in first
    pictures = re.findall(r"!\[[^\]]+\]\((docs/[\w.]+\.svg)\)", first)
    assert len(pictures) == 2
    for picture in pictures:
        xml.dom.minidom.parse(str(ROOT / picture))


def test_the_picture_of_speed_is_made_from_its_csv(tmp_path):
    made = tmp_path / "speed.svg"
    subprocess.run([sys.executable, ROOT / "tests/bench/speed_svg.py", ROOT / "docs/speed.csv", made], check=True)
    assert made.read_text() == (ROOT / "docs" / "speed.svg").read_text()


def test_the_config_file_and_a_private_port_are_named():
    text = "\n".join(readme_lines())
    assert "config/millrace.conf" in text and "-p 127.0.0.1:8080:8080" in text


def test_files_that_the_documents_name_exist():
    named = re.compile(r"`((?:base|config|kvpool|engine|scheduler|server|deploy|tests)/[\w./-]+\.[a-z]+)`|\]\(([\w./-]+)\)")
    missing = [
        f"{document}: {path}"
        for document in ("README.md", "docs/api.md", "docs/options.md", "docs/keys.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "tests/README.md")
        for pair in named.findall((ROOT / document).read_text())
        for path in pair
        if path and not (ROOT / path).exists() and not (ROOT / document).parent.joinpath(path).exists()
    ]
    assert missing == []


def test_every_part_of_the_test_run_has_a_budget():
    script = (ROOT / "tests" / "run").read_text()
    parts = set(re.findall(r"^part_([\w-]+)\(\)", script, re.M))
    table = re.findall(r"^\| ([\w-]+) \| (\d+) \| ([\w, ]+) \|", (ROOT / "tests" / "README.md").read_text(), re.M)
    assert {name for name, *_ in table} == parts
    in_full = sum(int(seconds) for name, seconds, modes in table if "full" in modes and name != "environments")
    assert in_full <= 35 * 60, "the parts of a full run (the environments are made beside the builds)"


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
