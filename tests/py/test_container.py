"""The image of deploy/Containerfile: built with buildah on a base made here by mmdebstrap under the name of the ARG's
default, run with podman the way it should be run in production (read-only root, no capabilities, non-root). Needs root
or sudo, and the Debian mirror that this machine's apt uses; no registry.

Storage of its own in the cache folder, so nobody's images are touched."""

import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import urllib.error
import urllib.request

import pytest
from client_server import CHAT, COUNT_PROMPT, COUNT_TEXT, COUNT_TOKENS, free_port, model_path, wait_for

ROOT = pathlib.Path(__file__).resolve().parents[2]
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "millrace" / "tests"
BASE = "docker.io/library/debian:bookworm-slim"
IMAGE = "localhost/millrace:test"

CONTAINERS_CONF = """
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""

# The mirror, the suites and the certificates are those of this machine's apt; nothing of them stays in the project.
MAKE_BASE = r"""
set -eu
work=$1
targets=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
    grep -E ' bookworm(-updates|-security)? main$' | sort -u)
mirror=$(echo "$targets" | awk '$2 == "bookworm" {print $1; exit}')
mmdebstrap --quiet --variant=minbase --include=ca-certificates bookworm "$work/root.tar" "$mirror"
mkdir -p "$work/extra/etc/apt" "$work/extra/usr/local/share/ca-certificates" "$work/extra/etc/ssl/certs"
echo "$targets" | sed 's/^/deb /' >"$work/extra/etc/apt/sources.list"
cp /usr/local/share/ca-certificates/*.crt "$work/extra/usr/local/share/ca-certificates/" 2>/dev/null || true
cp /etc/ssl/certs/ca-certificates.crt "$work/extra/etc/ssl/certs/"
"""


class Tools:
    def __init__(self, folder):
        self.folder = folder
        self.conf = folder / "containers.conf"
        self.conf.write_text(CONTAINERS_CONF)
        # podman takes no run root longer than 50 characters, and wants the same one each time
        run = f"/run/millrace-{hashlib.sha256(bytes(folder)).hexdigest()[:8]}"
        self.storage = ["--root", str(folder / "storage"), "--runroot", run]
        self.sudo = [] if os.geteuid() == 0 else ["sudo", "-n", "-E"]

    def run(self, *command, timeout=600, check=True):
        done = subprocess.run(
            [*self.sudo, "env", f"CONTAINERS_CONF={self.conf}", *map(str, command)],
            capture_output=True,
            text=True,
            timeout=timeout,
            cwd=ROOT,
        )
        if check:
            assert done.returncode == 0, f"{command[:3]}: {done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done

    def buildah(self, *arguments, **options):
        return self.run("buildah", *self.storage, *arguments, **options)

    def podman(self, *arguments, **options):
        return self.run("podman", *self.storage, *arguments, **options)


@pytest.fixture(scope="module")
def tools(tmp_path_factory):
    # Not in /tmp's test folder: layers are kept between runs, so that a second one is quick.
    folder = CACHE / "containers"
    folder.mkdir(parents=True, exist_ok=True)
    return Tools(folder)


@pytest.fixture(scope="module")
def image(tools, tmp_path_factory):
    if tools.buildah("images", "--quiet", BASE, check=False).stdout.strip() == "":
        work = tmp_path_factory.mktemp("base")
        tools.run("sh", "-c", MAKE_BASE, "sh", work, timeout=600)
        name = tools.buildah("from", "scratch").stdout.strip()
        tools.buildah("add", name, work / "root.tar", "/")
        tools.buildah("add", name, work / "extra", "/")
        tools.buildah("config", "--cmd", "bash", name)
        tools.buildah("commit", "--rm", name, BASE)
    tools.buildah(
        "bud", "--layers", "--isolation", "chroot", "--format", "docker", "--pull-never", "-f", "deploy/Containerfile", "-t", IMAGE, ".",
        timeout=600,
    )  # fmt: skip
    return IMAGE


class Container:
    def __init__(self, tools, name, port):
        self.tools = tools
        self.name = name
        self.url = f"http://127.0.0.1:{port}"

    def inspect(self, template):
        return self.tools.podman("inspect", "--format", template, self.name).stdout.strip()

    def logs(self):
        done = self.tools.podman("logs", self.name, check=False)
        return done.stdout + done.stderr

    def ready(self):
        assert self.inspect("{{.State.Running}}") == "true", self.logs()
        try:
            with urllib.request.urlopen(self.url + "/ready", timeout=5):
                return True
        except (urllib.error.URLError, OSError):
            return False

    def post(self, path, body):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode())
        return urllib.request.urlopen(request, timeout=600)


@pytest.fixture
def models(tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    shutil.copyfile(model_path(), folder / "smollm2-135m.gguf")
    for each in (folder, *folder.parents[:3]):
        each.chmod(0o755)  # the server's user must get through
    return folder


@contextlib.contextmanager
def running(tools, image, models, port, *options):
    name = f"millrace-test-{os.getpid()}-{port}"
    tools.podman(
        "run", "--detach", "--pull=never", "--name", name, "--read-only", "--cap-drop", "all",
        "--security-opt", "no-new-privileges", "--volume", f"{models}:/models:ro", "--memory", "2g",
        "--stop-timeout", "40", *options, image, "serve", "--model", "smollm2-135m", "--port", port,
    )  # fmt: skip
    try:
        yield Container(tools, name, port)
    finally:
        tools.podman("rm", "--force", "--time", "0", name, check=False)


@pytest.fixture
def container(tools, image, models):
    with running(tools, image, models, free_port(), "--network", "host") as started:
        wait_for(started.ready, 60, "the container was not ready")
        yield started


def test_image_is_small_and_describes_itself(tools, image):
    config = json.loads(tools.podman("inspect", image).stdout)[0]
    assert config["Config"]["User"] == "10001"
    assert config["Config"]["StopSignal"] == "SIGTERM"
    assert config["Healthcheck"]["Test"] == ["CMD", "millrace", "health"]
    assert "/models" in config["Config"]["Volumes"]
    found = tools.podman(
        "run", "--rm", "--pull=never", "--network", "none", "--entrypoint", "find", image, "/usr/bin", "/usr/local",
        "/models", "/var/cache/millrace", "(", "-name", "*.gguf", "-o", "-name", "gcc*", "-o", "-name", "python3*", ")",
    )  # fmt: skip
    assert found.stdout.split() == []


def test_serves_as_a_plain_user_on_a_read_only_root(container):
    with container.post(
        "/v1/completions", {"prompt": COUNT_PROMPT, "temperature": 0, "max_tokens": COUNT_TOKENS}
    ) as reply:
        assert json.load(reply)["choices"][0]["text"] == COUNT_TEXT
    with urllib.request.urlopen(container.url + "/v1/models", timeout=10) as reply:
        assert [model["id"] for model in json.load(reply)["data"]] == ["smollm2-135m"]


def test_health_check_of_the_image_passes(tools, image, models):
    """Its command, run in a container of its own that shares the server's network: entering a running container
    (exec, healthcheck run) does not work where podman itself runs in a chroot."""
    check = json.loads(tools.podman("inspect", image).stdout)[0]["Healthcheck"]
    kind, program, *arguments = check["Test"]
    assert (kind, program) == ("CMD", "millrace")
    with running(tools, image, models, 8080, "--network", "none") as started:

        def healthy():
            done = tools.podman(
                "run", "--rm", "--pull=never", "--network", f"container:{started.name}", "--no-healthcheck", image,
                *arguments, check=False,
            )  # fmt: skip
            return done.returncode == 0

        wait_for(healthy, 60, "no health")


def test_health_check_fails_without_a_server(tools, image):
    done = tools.podman(
        "run", "--rm", "--pull=never", "--network", "none", "--read-only", image, "health", check=False
    )
    assert done.returncode == 1


def test_sigterm_to_pid_1_lets_a_stream_finish(container):
    """PID 1 gets no default action for signals: it must handle SIGTERM itself, and drain."""
    body = {"messages": CHAT, "temperature": 0, "max_tokens": 400, "ignore_eos": True, "stream": True}
    with container.post("/v1/chat/completions", body) as reply:
        reply.readline()
        container.tools.podman("kill", "--signal", "TERM", container.name)
        lines = [line for line in reply.read().decode().splitlines() if line]
    assert lines[-1] == "data: [DONE]"
    assert sum('"content":' in line for line in lines) > 300 and not any('"error"' in line for line in lines)
    wait_for(lambda: container.inspect("{{.State.Running}}") == "false", 60, "the container did not stop")
    assert container.inspect("{{.State.ExitCode}}") == "0", container.logs()


def test_missing_model_is_one_clear_error(tools, image):
    done = tools.podman(
        "run", "--rm", "--pull=never", "--network", "none", "--read-only", image, "serve", "--model", "smollm2-135m",
        check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "smollm2-135m.gguf" in done.stderr and "put the file SmolLM2-135M-Instruct.Q4_1.gguf" in done.stderr
