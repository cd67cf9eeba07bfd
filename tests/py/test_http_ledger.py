"""Memory that clients make the server keep: whatever they send, do not read or never finish, the total is bounded, the
server stays up, refused requests get a well-formed answer, and all memory is given back when they leave."""

import contextlib
import json
import os
import pathlib
import resource

import pytest

from http_rig import BINARY, MODEL, SMALL_QUARANTINE, Closed, request_bytes, start, start_fake, wait_for

MIB = 1 << 20
PATH = "/v1/completions"
CHAT_PATH = "/v1/chat/completions"
HELD = "millrace_client_memory_bytes"
REFUSED = {(413, "request_too_large"), (429, "key_memory_full"), (429, "queue_full"), (503, "out_of_memory"), (503, "too_many_connections")}
CGROUP = pathlib.Path("/sys/fs/cgroup/memory" if pathlib.Path("/sys/fs/cgroup/memory/cgroup.procs").exists() else "/sys/fs/cgroup")


def as_key(key):
    return [("Authorization", f"Bearer {key}")] if key else []


def held(server, kind, headers=()):
    text = server.ask("GET", "/metrics", headers=headers).body.decode()
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(HELD) and f'kind="{kind}"' in line)


def wait_given_back(server, headers=()):
    for kind in ("bodies", "requests", "answers"):
        wait_for(lambda kind=kind: held(server, kind, headers) == 0, f"memory of {kind} is given back")
    wait_for(lambda: held(server, "connections", headers) < 64 * 1024, "memory of connections is given back")


def outcome(c):
    """(200, None), or status and code of a refusal; a refusal is a whole answer with the error object."""
    reply = c.reply()
    if reply.status == 200:
        return 200, None
    if reply.status in (429, 503):
        assert int(reply.get("retry-after")) >= 1
    return reply.status, reply.error["code"]


def limited(n_bytes):
    """A command's prefix that bounds its memory: a cgroup of its own where one can be made, else RLIMIT_AS."""
    group = CGROUP / f"millrace-test-{os.getpid()}"
    file = "memory.limit_in_bytes" if CGROUP.name == "memory" else "memory.max"
    try:
        group.mkdir(exist_ok=True)
        (group / file).write_text(str(n_bytes))
        (group / "cgroup.procs").read_text()
        return ["/bin/sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh"], group
    except OSError:
        # Address space counts what is mapped and never used: threads' stacks and allocators' arenas.
        return ["/bin/sh", "-c", f'ulimit -v {(n_bytes + 1024 * MIB) // 1024}; exec "$@"', "sh"], None


@contextlib.contextmanager
def start_limited(n_bytes, *options):
    prefix, group = limited(n_bytes)
    try:
        with start([*prefix, BINARY, "serve", "--model", MODEL, "--port", "0", *options], SMALL_QUARANTINE) as server:
            yield server
    finally:
        if group:
            group.rmdir()


@pytest.fixture
def descriptors_for_700():
    """Servers of later tests inherit the limit, so it goes back; the hard one could not be raised again."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 1000:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(1000, hard), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.heavy
def test_700_unfinished_bodies_of_a_mebibyte_in_512_mib(descriptors_for_700):
    body = b'{"prompt":"' + b"a" * MIB
    with start_limited(512 * MIB) as server:
        conns = []
        for _ in range(700):
            c = server.raw()
            conns.append(c)
            with contextlib.suppress(OSError):  # refused before its body came
                c.send(request_bytes("POST", PATH, body[: MIB - 1], [("Content-Length", str(MIB))]))
        assert server.ask("GET", "/health").status == 200
        assert server.complete().status == 200, "small requests are not shut out"
        outcomes = []
        for c in conns:
            with contextlib.suppress(OSError):
                c.send(b"a")
            with contextlib.suppress(Closed):
                outcomes.append(outcome(c))
            c.close()
        assert set(outcomes) <= REFUSED | {(400, "invalid_json")}, set(outcomes)
        assert (400, "invalid_json") in outcomes and (503, "out_of_memory") in outcomes
        wait_given_back(server)
        assert server.complete().status == 200


def test_memory_is_sized_from_what_there_is_and_shown():
    shown = []
    for n_bytes in (400 * MIB, 800 * MIB):
        prefix, group = limited(n_bytes)
        if not group:
            continue
        group.rmdir()
        with start_limited(n_bytes, "--kv.bytes", "64MiB") as server:
            shown.append(server.metric("millrace_client_memory_limit_bytes"))
            assert 16 * MIB <= shown[-1] < n_bytes / 2 + n_bytes / 4
    assert shown == sorted(shown)
    with start_fake("--server.memory", "20MiB") as server:
        assert server.metric("millrace_client_memory_limit_bytes") == 20 * MIB


def test_what_no_memory_could_hold_is_413():
    with start_fake("--server.memory", "2MiB", "--server.max_body", "8MiB") as server:
        reply = server.post(CHAT_PATH, {"messages": [{"role": "user", "content": "a" * 4 * MIB}]})
        assert reply.status == 413 and reply.error["code"] == "request_too_large", reply.body
        assert "server.memory" in reply.error["message"]
        wait_given_back(server)


def test_a_key_that_fills_memory_leaves_room_for_another(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("sk-a name=a\nsk-b name=b\n")
    with start_fake("--server.memory", "16MiB", "--server.api_key_file", str(keys)) as server:
        part = b'{"prompt":"' + b"a" * (300 << 10)
        announced = [("Content-Length", str(len(part) + 10))]
        flood = []
        for _ in range(60):
            c = server.raw()
            c.request("POST", PATH, part, [*as_key("sk-a"), *announced])
            flood.append(c)
        wait_for(lambda: held(server, "bodies", as_key("sk-b")) > 6 * MIB, "the flood is in")
        big = {"prompt": "b", "user": "x" * (500 << 10), "max_tokens": 2}
        assert server.post(PATH, big, as_key("sk-b")).status == 200
        outcomes = set()
        for c in flood:
            c.send(b'"} bad   !')
            outcomes.add(outcome(c))
            c.close()
        assert outcomes == {(400, "invalid_json"), (429, "key_memory_full")}
        wait_given_back(server, as_key("sk-b"))
        assert server.metric  # the ledger is whole again for either key
        assert server.post(PATH, big, as_key("sk-a")).status == 200


@pytest.mark.heavy
@pytest.mark.parametrize("fields", [
    {"prompt": [[7] * 4000] * 60, "n": 16},
    {"prompt": [[7] * 4000] * 60, "n": 1, "best_of": 16},
    {"prompt": ["a"] * 256, "n": 16},
    {"prompt": ["b " * 2000] * 60, "n": 16, "logprobs": 20, "echo": True},
    {"prompt": [[7] * 100] * 16, "n": 16, "logprobs": 20, "max_tokens": 60},
])  # fmt: skip
def test_lists_of_prompts_times_choices_are_bounded(fields):
    body = {"max_tokens": 2, "ignore_eos": True, **fields}
    with start_fake("--server.memory", "16MiB", "--kv-blocks", "20000", step_ms=0, environment=SMALL_QUARANTINE) as server:
        before = server.rss_kib()
        conns = [server.raw() for _ in range(24)]
        for c in conns:
            c.request("POST", PATH, body)
        outcomes = set()
        for c in conns:
            outcomes.add(outcome(c))
            c.close()
        assert outcomes <= REFUSED | {(200, None)}, outcomes
        assert server.rss_kib() - before < 160 * 1024
        wait_given_back(server)
        server.wait_idle()
        assert server.complete().status == 200


def put(server, name, body, key=None):
    return server.ask("PUT", f"/v1/prefixes/{name}", body, as_key(key))


UNUSED = {
    "member": {"role": "user", "content": "hi", "unused": "x" * 900000},
    "nested": {"role": "user", "content": "hi", "extra": [{"a": "x" * 900000}]},
    "part": {"role": "user", "content": [{"type": "text", "text": "hi", "unused": "x" * 900000}]},
    "call": {"role": "assistant", "content": "hi", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}", "x": "x" * 900000}}]},
}  # fmt: skip


@pytest.mark.heavy
@pytest.mark.parametrize("kind", UNUSED)
def test_a_named_prefix_keeps_only_what_it_needs_of_its_request(kind):
    with start_fake(environment=SMALL_QUARANTINE) as server:
        plain = {"messages": [{"role": "user", "content": "hi"}]}
        for i in range(30):
            reply = put(server, f"p{i}", {"messages": [UNUSED[kind]], "other": "y" * 100000})
            assert reply.status == 200, reply.body
            if i == 4:
                before = server.rss_kib()
        assert server.rss_kib() - before < 25 * 900 // 2
        assert held(server, "names") < 30 * 2000
        turn = {"messages": [{"role": "user", "content": "go on"}], "max_tokens": 2, "temperature": 0}
        if kind == "part":
            assert put(server, "plain", plain).status == 200
            texts = [server.post(CHAT_PATH, {**turn, "prefix": name}).json["usage"] for name in ("p0", "plain")]
            assert texts[0]["prompt_tokens"] == texts[1]["prompt_tokens"]
        for i in range(30):
            assert server.ask("DELETE", f"/v1/prefixes/p{i}").status == 200
        assert kind == "part" or held(server, "names") == 0


def test_members_that_the_template_reads_are_kept(tmp_path):
    template = tmp_path / "t.jinja"
    template.write_text("{% for m in messages %}{{ m.role }}: {{ m.content }}{{ m.mood }}\n{% endfor %}")
    with start([BINARY, "serve", "--model", MODEL, "--port", "0", "--chat-template", str(template)]) as server:
        for name, mood in [("a", " said the fox"), ("b", "")]:
            assert put(server, name, {"messages": [{"role": "user", "content": "hi", "mood": mood, "unused": 1}]}).status == 200
        turn = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
        n = [server.post(CHAT_PATH, {**turn, "prefix": name}).json["usage"]["prompt_tokens"] for name in "ab"]
        assert n[0] >= n[1] + 3


@pytest.mark.heavy
def test_names_are_bounded_in_memory_and_refused_with_413_or_503():
    with start_fake("--server.memory", "16MiB") as server:
        big = {"messages": [{"role": "user", "content": "a" * 100}, {"role": "tool", "content": "b" * 10000}]}
        codes = [put(server, f"p{i}", big).status for i in range(700)]
        assert set(codes) == {200, 503} and codes[0] == 200, set(codes)
        assert held(server, "names") <= 4 * MIB
        assert server.complete().status == 200
        for i in range(700):
            server.ask("DELETE", f"/v1/prefixes/p{i}")
        assert held(server, "names") == 0


def test_one_key_cannot_take_all_names(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("sk-a name=a\nsk-b name=b\n")
    with start_fake("--server.api_key_file", str(keys)) as server:
        body = {"prompt": [1, 2, 3]}
        replies = [put(server, f"p{i}", body, "sk-a") for i in range(520)]
        assert [r.status for r in replies] == [200] * 512 + [413] * 8
        assert replies[-1].error["code"] == "key_prefixes_full"
        assert put(server, "p0", body, "sk-a").status == 200, "one that is there may be put again"
        assert put(server, "mine", body, "sk-b").status == 200
        server.ask("DELETE", "/v1/prefixes/p1", headers=as_key("sk-a"))
        server.ask("DELETE", "/v1/prefixes/p2", headers=as_key("sk-a"))
        assert put(server, "again", body, "sk-a").status == 200


@pytest.mark.heavy
def test_names_of_both_keys_and_the_disk_stay_within_its_bytes(tmp_path):
    keys, folder = tmp_path / "keys", tmp_path / "disk"
    keys.write_text("sk-a name=a\nsk-b name=b\n")
    options = ["--prefix.disk.path", str(folder), "--prefix.disk.bytes", "8MiB", "--kv.bytes", "64MiB", "--server.api_key_file", str(keys)]

    def n_bytes():
        return sum(f.stat().st_blocks * 512 for f in folder.rglob("*") if f.is_file())

    with start([BINARY, "serve", "--model", MODEL, "--port", "0", *options]) as server:
        replies = []
        for key, n in [("sk-a", 24), ("sk-b", 4)]:
            replies += [put(server, f"p{i}", {"prompt": [i + 5] * 160}, key) for i in range(n)]
        assert {r.status for r in replies} <= {200, 413}
        assert replies[24].status == 200, "the first of the other key"
        wait_for(lambda: n_bytes() <= 8 * MIB, "all files are within prefix.disk.bytes")
    assert n_bytes() <= 8 * MIB
    with start([BINARY, "serve", "--model", MODEL, "--port", "0", *options]) as server:
        assert held(server, "names", as_key("sk-a")) > 0, "names from the disk are counted"


SLOW = {
    "ids": ("/tokenize", {"prompt": "a b " * 60000}),
    "echo": (PATH, {"prompt": "a b " * 1900, "max_tokens": 1, "echo": True, "logprobs": 20}),
    "choices": (PATH, {"prompt": [[9] * 3] * 16, "n": 16, "max_tokens": 40, "ignore_eos": True, "logprobs": 5}),
    "state": ("/debug/journal", None),
    "stream": (PATH, {"prompt": "\u0001" * 6000, "max_tokens": 1, "echo": True, "stream": True}),
}


@pytest.mark.heavy
@pytest.mark.parametrize("kind", SLOW)
def test_many_slow_readers_of_large_answers(kind):
    path, body = SLOW[kind]
    options = ["--server.memory", "12MiB", "--server.sndbuf", "4KiB", "--server.slow_client_timeout", "600s"]
    with start_fake(*options, "--kv-blocks", "20000", step_ms=0, environment=SMALL_QUARANTINE) as server:
        for _ in range(40 if kind == "state" else 0):
            server.complete(max_tokens=100)
        before = server.rss_kib()
        conns = [server.raw(rcvbuf=2048) for _ in range(60)]
        for c in conns:
            c.request("GET" if body is None else "POST", path, body)
        server.wait_idle()
        heads = [c.head() for c in conns]  # each has its answer, of which it reads no more
        refused = 0
        for c, head in zip(conns, heads):
            if head.status != 200:
                assert head.status in (413, 429, 503), head.status
                text = json.loads(c.exactly(int(head.get("content-length"))))
                assert (head.status, text["error"]["code"]) in REFUSED
                refused += 1
        assert held(server, "answers") <= 12 * MIB
        assert server.rss_kib() - before < 140 * 1024
        assert refused or kind == "stream", "the sum of all answers is far above the bound"
        reply = server.ask("GET", "/health")
        assert reply.status == 200, reply.body
        for c in conns:
            c.close()
        wait_given_back(server)
        server.wait_idle()
