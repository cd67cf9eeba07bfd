"""deploy/quickstart, offline, with stand-ins for apt, sudo, cmake and fetch-model that record their calls. For a
run on a really fresh machine see tests/fresh-machine."""

import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

STAND_INS = {
    "id": 'echo "${FAKE_UID}"',
    "apt-get": 'echo "apt-get $*" >>"$CALLS"',
    "sudo": 'echo "sudo $1" >>"$CALLS"; exec "$@"',
    "dpkg-query": 'for last; do :; done; case " $FAKE_MISSING " in *" $last "*) exit 1;; esac; echo "install ok installed"',
    "cmake": (
        'echo "cmake $*" >>"$CALLS"; mkdir -p build; '
        "printf '#!/bin/sh\\necho \"millrace $*\" >>\"$CALLS\"\\n' >build/millrace; chmod +x build/millrace"
    ),
}


@pytest.fixture
def quickstart(tmp_path):
    (tmp_path / "deploy").mkdir()
    for name in ("lib.sh", "quickstart"):
        shutil.copy(ROOT / "deploy" / name, tmp_path / "deploy" / name)
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, body in {**STAND_INS, "../deploy/fetch-model": 'echo "fetch-model $*" >>"$CALLS"'}.items():
        (tools / name).write_text(f"#!/bin/bash\n{body}\n")
        (tools / name).chmod(0o755)

    def run(*arguments, uid=0, missing=""):
        calls = tmp_path / "calls"
        calls.write_text("")
        done = subprocess.run(
            [tmp_path / "deploy" / "quickstart", *arguments],
            env={
                **os.environ,
                "PATH": f"{tools}:{os.environ['PATH']}",
                "CALLS": str(calls),
                "FAKE_UID": str(uid),
                "FAKE_MISSING": missing,
            },
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr
        return calls.read_text().splitlines()

    return run


def test_order_is_build_model_server(quickstart):
    calls = quickstart()
    assert [call.split(" --parallel")[0] for call in calls] == [
        "cmake --preset release",
        "cmake --build --preset release",
        "fetch-model smollm2-135m",
        "millrace serve smollm2-135m",
    ]


def test_arguments_go_to_the_server(quickstart):
    assert quickstart("--port", "8081")[-1] == "millrace serve smollm2-135m --port 8081"


def test_only_missing_packages_are_installed(quickstart):
    calls = [call for call in quickstart(missing="libcjson-dev cmake") if call.startswith("apt-get")]
    assert len(calls) == 2 and calls[0].endswith("update")
    assert calls[1].endswith("install --no-install-recommends cmake libcjson-dev")


def test_curl_is_installed_where_it_is_missing(quickstart):
    """The next line of the README, and of the banner, begins with it."""
    calls = [call for call in quickstart(missing="curl") if call.startswith("apt-get")]
    assert calls and calls[-1].endswith("install --no-install-recommends curl")


def test_a_user_installs_through_sudo_and_builds_without(quickstart):
    calls = quickstart(uid=1000, missing="cmake")
    assert [call for call in calls if call.startswith("sudo")] == ["sudo env"] * 2
    assert "sudo cmake" not in calls


def test_a_user_needs_no_root_when_nothing_is_missing(quickstart):
    assert not [call for call in quickstart(uid=1000) if call.startswith(("sudo", "apt-get"))]


def test_it_can_be_run_again(quickstart):
    assert quickstart() == quickstart()
