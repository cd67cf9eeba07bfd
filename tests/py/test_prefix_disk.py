"""Prompts that outlive the process (prefix.disk.path) and named prefixes, over HTTP with SmolLM2-135M.

The answer must never change: text and log-probabilities equal those of a server without a disk, bit for bit."""

import os
import pathlib
import random
import resource
import signal
import stat
import subprocess

import pytest

from http_rig import BINARY, MODEL, clean_environment, start_fake, start_real, wait_for

BLOCK = 16
PATH = "/v1/completions"
SMALL = ["--kv.bytes", "128MiB"]
HITS = "millrace_prefix_disk_hit_tokens_total"
BLOCKS = "millrace_prefix_disk_blocks"
USED = "millrace_prefix_disk_used_bytes"
ERRORS = "millrace_prefix_disk_errors_total"
BAD = "millrace_prefix_disk_bad_total"
GEMMA = os.environ.get("MILLRACE_TEST_DATA", "") + "/models/gemma3-270m.gguf"


def ids(seed, n):
    rng = random.Random(seed)
    return [rng.randrange(1000, 40000) for _ in range(n)]


def ask(server, prompt, headers=(), **fields):
    body = {"prompt": prompt, "max_tokens": 6, "temperature": 0, "logprobs": 5, "ignore_eos": True, **fields}
    reply = server.ask("POST", PATH, body, headers)
    assert reply.status == 200, reply.body
    return reply.json


def answer(reply):
    """What must be equal: texts, tokens, log-probabilities."""
    return [(c["text"], c["logprobs"], c["finish_reason"]) for c in reply["choices"]]


def cached(reply):
    return reply["usage"]["prompt_tokens_details"]["cached_tokens"]


def with_disk(folder, *options, **how):
    return start_real("--prefix.disk.path", str(folder), *SMALL, *options, **how)


def ask_twice(server, prompt, headers=(), **fields):
    """The second time it is a hit, and its blocks go to the disk: waits until they are there."""
    before = server.metric(BLOCKS)
    ask(server, prompt, headers, **fields)
    n = cached(ask(server, prompt, headers, **fields))
    assert n == (len(prompt) - 1) // BLOCK * BLOCK
    wait_for(lambda: server.metric(BLOCKS) >= before + n // BLOCK, "the prompt is on the disk")
    return n


def disk_use(folder):
    """Bytes of all files but the secret, in units of 4096."""
    files = [path.stat().st_size for path in (folder / "kv").rglob("*") if path.is_file() and path.name != "secret"]
    return sum((size + 4095) // 4096 * 4096 for size in files)


def block_files(folder):
    return sorted((folder / "kv" / "blocks").glob("*.kv"))


PROMPTS = [ids(seed, n) for seed, n in enumerate([40, 100, 161, 200])]


@pytest.fixture(scope="module", name="truth")
def fixture_truth():
    """Answers of a server that has neither disk nor prefix cache."""
    with start_real("--set", "prefix.enabled=false", *SMALL) as server:
        return [answer(ask(server, prompt)) for prompt in PROMPTS]


@pytest.fixture(name="filled")
def fixture_filled(tmp_path):
    with with_disk(tmp_path) as server:
        for prompt in PROMPTS:
            ask_twice(server, prompt)
    return tmp_path


def test_after_a_restart_prompts_come_from_the_disk_and_answers_are_the_same_bits(filled, truth):
    with with_disk(filled) as server:
        for prompt, expected in zip(PROMPTS, truth):
            before = server.metric(HITS)
            reply = ask(server, prompt)
            assert answer(reply) == expected
            assert cached(reply) == (len(prompt) - 1) // BLOCK * BLOCK == server.metric(HITS) - before
        assert server.metric(BAD) == 0
        again = ask(server, PROMPTS[3])
        assert answer(again) == truth[3] and cached(again) == 192
        longer = ask(server, PROMPTS[2] + ids(99, 50))
        assert cached(longer) == 160


def test_what_was_asked_for_once_is_not_written(tmp_path):
    with with_disk(tmp_path) as server:
        ask(server, PROMPTS[0])
        ask_twice(server, PROMPTS[1])
    assert len(block_files(tmp_path)) == 6


def test_concurrent_requests_for_one_prompt_get_it_from_the_disk_together(filled, truth):
    with with_disk(filled) as server:
        clients = [server.raw() for _ in range(6)]
        body = {"prompt": PROMPTS[3], "max_tokens": 6, "temperature": 0, "logprobs": 5, "ignore_eos": True}
        for client in clients:
            client.request("POST", PATH, body)
        for client in clients:
            reply = client.reply().json
            assert answer(reply) == truth[3] and cached(reply) == 192
            client.close()
        assert server.metric("millrace_prefix_disk_bytes_total", "read") == 12 * 16 * 30 * 2 * 3 * 64 * 2


def test_kill_9_while_blocks_are_written_leaves_right_answers(tmp_path, truth):
    rng = random.Random(7)
    n_hit = 0
    for _ in range(4):
        with with_disk(tmp_path, expect_code=-signal.SIGKILL) as server:
            for prompt, expected in zip(PROMPTS, truth):
                for _ in range(2):
                    reply = ask(server, prompt)
                    assert answer(reply) == expected
                    n_hit += server.metric(HITS) > 0
            n = len(block_files(tmp_path)) + rng.randrange(3)
            wait_for(lambda n=n: server.metric(BLOCKS) >= min(n, 30), "some blocks are written")
            assert server.metric(BAD) == 0, "rename leaves whole files only"
            server.process.kill()
            server.process.wait()
        assert not [path for path in block_files(tmp_path) if path.stat().st_size < 300000]
    assert n_hit


LONG = os.environ.get("MILLRACE_LONG") == "1"  # tests/run long: every kind
OTHERS = [
    ["--kv.dtype_v", "q8"],
    ["--kv.block_tokens", "32"],
    ["--cpu.activations", "int16"],
    ["--cpu.isa", "c"],
]
OTHERS = OTHERS if LONG else []


@pytest.mark.parametrize(
    "options",
    [
        ["--kv.dtype", "f32"],
        ["--model", GEMMA],
        *OTHERS,
    ],
    ids=lambda options: options[1].rsplit("/", 1)[-1],
)
def test_blocks_of_another_model_type_or_layout_are_not_served(filled, options):
    names = {path.name for path in block_files(filled)}
    with with_disk(filled, *options) as server:
        assert server.metric(BLOCKS) == 0
        if options != ["--cpu.isa", "c"]:  # plain C takes most of a minute for the prompt
            reply = ask(server, PROMPTS[3], logprobs=0)
            assert cached(reply) == 0 == server.metric(HITS)
    assert names <= {path.name for path in block_files(filled)}
    with with_disk(filled) as server:
        assert cached(ask(server, PROMPTS[3])) == 192


@pytest.mark.parametrize("damage", ["flip", "cut", "swap"] if LONG else ["flip"])
def test_damaged_files_are_computed_again(filled, truth, damage):
    rng = random.Random(damage)
    files = block_files(filled)
    assert len(files) == 30
    if damage == "swap":
        contents = [path.read_bytes() for path in files]
        for path, content in zip(files, contents[1:] + contents[:1]):
            path.write_bytes(content)
    for path in files:
        data = bytearray(path.read_bytes())
        if damage == "flip":
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        elif damage == "cut":
            del data[rng.randrange(len(data)) :]
        path.write_bytes(data)
    with with_disk(filled) as server:
        for prompt, expected in zip(PROMPTS, truth):
            reply = ask(server, prompt)
            assert answer(reply) == expected and cached(reply) == 0
        assert server.metric(HITS) == 0
        for prompt, expected in zip(PROMPTS, truth):  # hits again, written again
            assert answer(ask(server, prompt)) == expected


def test_salts_and_keys_have_their_own(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("sk-a name=a\nsk-b name=b\nsk-c\n")
    disk = tmp_path / "disk"
    disk.mkdir()
    options = ["--server.api_key_file", str(keys)]
    as_key = {name: [("Authorization", f"Bearer sk-{name}")] for name in "abc"}
    prompt = PROMPTS[1]
    with with_disk(disk, *options) as server:
        for key, fields in (("a", {}), ("a", {"cache_salt": "s"}), ("c", {})):
            for _ in range(2):
                n = cached(ask(server, prompt, as_key[key], **fields))
            assert n == 96
        wait_for(lambda: len(block_files(disk)) == 18, "three times six blocks")
    with with_disk(disk, *options) as server:
        assert cached(ask(server, prompt, as_key["b"])) == 0
        assert cached(ask(server, prompt, as_key["a"], cache_salt="t")) == 0
        assert cached(ask(server, prompt, as_key["a"])) == 96
        assert cached(ask(server, prompt, as_key["a"], cache_salt="s")) == 96
        assert cached(ask(server, prompt, as_key["c"])) == 96
    for path in disk.rglob("*"):  # keys do not get there
        assert not path.is_file() or b"sk-" not in path.read_bytes()


def test_the_cap_holds_and_modes_are_private(tmp_path):
    most = 4 << 20
    with with_disk(tmp_path, "--prefix.disk.bytes", "4MiB") as server:
        for seed in range(6):
            for _ in range(2):
                ask(server, ids(100 + seed, 70))
            use = sum(path.stat().st_blocks * 512 for path in block_files(tmp_path))
            assert use <= most
        wait_for(lambda: server.metric("millrace_prefix_disk_evictions_total") > 0, "the cap is reached")
        assert server.metric("millrace_prefix_disk_used_bytes") <= most
    assert 8 <= len(block_files(tmp_path)) <= 11
    for path in (tmp_path / "kv").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


@pytest.mark.parametrize(
    "options,text",
    [
        (["--set", "prefix.enabled=false"], "prefix.disk.path needs prefix.enabled"),
        (["--prefix.disk.bytes", "100KiB"], "prefix.disk.bytes 102400 leaves 89600 bytes beside named prefixes, less than one block"),
    ],
)
def test_options_that_cannot_be_are_refused_by_name(tmp_path, options, text):
    argv = [BINARY, "serve", "--model", MODEL, "--port", "0", "--prefix.disk.path", str(tmp_path), *SMALL, *options]
    done = subprocess.run(argv, capture_output=True, text=True, env=clean_environment(), check=False)
    assert done.returncode == 1 and text in done.stderr


@pytest.mark.parametrize("folder", ["", "kv", "kv/blocks", "kv/names"])
def test_a_folder_that_others_get_at_is_refused_with_the_owners_id(tmp_path, folder):
    (tmp_path / "kv" / "blocks").mkdir(parents=True)
    (tmp_path / "kv" / "names").mkdir()
    argv = [BINARY, "serve", "--model", MODEL, "--port", "0", "--prefix.disk.path", str(tmp_path), *SMALL]
    for spoil, text in ((lambda path: os.chown(path, 4321, 4321), "is owned by user 4321"),
                        (lambda path: path.chmod(0o777), "(owned by user 0) can be written by others: mode 0777")):
        spoil(tmp_path / folder)
        done = subprocess.run(argv, capture_output=True, text=True, env=clean_environment(), check=False)
        assert done.returncode == 1 and f"'{tmp_path / folder}' {text}" in done.stderr, done.stderr
        os.chown(tmp_path / folder, 0, 0)


def test_a_disk_that_is_full_shows_in_a_metric_and_one_line(tmp_path, truth):
    with with_disk(tmp_path) as server:
        ask_twice(server, PROMPTS[0])
        old = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (4096, old[1]))
        for prompt, expected in zip(PROMPTS[1:], truth[1:]):
            for _ in range(2):
                assert answer(ask(server, prompt)) == expected
        wait_for(lambda: server.metric(ERRORS) >= 3, "the disk refuses")
        n = server.metric(ERRORS)
        assert put(server, "big", {"prompt": ids(3, 2000)}).status == 500
        wait_for(lambda: server.metric(ERRORS) > n, "a name that is not written counts too")
        assert names_of(server) == []
        wait_for(lambda: server.metric(USED) == disk_use(tmp_path), "the gauge is what is there")
        assert server.metric(BLOCKS) == len(block_files(tmp_path)) == 2
        assert server.log_text().count("cannot write to the disk prefix cache: ") == 1
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, old)
        ask_twice(server, ids(77, 60))
        # Blocks that the disk refused may be written now as well, one after the other.
        wait_for(lambda: server.metric(BLOCKS) == len(block_files(tmp_path)) >= 5, "blocks are written again")
        wait_for(lambda: server.metric(USED) == disk_use(tmp_path), "the gauge is what is there")


def test_a_folder_belongs_to_one_process_at_a_time(filled):
    with with_disk(filled) as server:
        argv = [BINARY, "serve", "--model", MODEL, "--port", "0", "--prefix.disk.path", str(filled), *SMALL]
        done = subprocess.run(argv, capture_output=True, text=True, env=clean_environment(), check=False)
        assert done.returncode != 0 and "another process" in done.stderr
        assert cached(ask(server, PROMPTS[0])) == 32


# ---- named prefixes ----


def put(server, name, body, headers=()):
    return server.ask("PUT", f"/v1/prefixes/{name}", body, headers)


def names_of(server, headers=()):
    reply = server.ask("GET", "/v1/prefixes", headers=headers)
    assert reply.status == 200 and reply.json["object"] == "list"
    return [p["name"] for p in reply.json["data"]]


SYSTEM = [{"role": "system", "content": "You speak of rivers only. " * 12}]
USER = [{"role": "user", "content": "What is a mill race?"}]


def chat(server, messages, **fields):
    reply = server.chat(messages=messages, logprobs=True, top_logprobs=3, ignore_eos=True, **fields)
    assert reply.status == 200, reply.body
    choice = reply.json["choices"][0]
    return (choice["message"]["content"], choice["logprobs"]), cached(reply.json), reply.json["usage"]["prompt_tokens"]


@pytest.mark.parametrize("disk", [True, False])
def test_a_named_prefix_gives_the_answers_of_the_whole_prompt(tmp_path, truth, disk):
    with with_disk(tmp_path) if disk else start_real(*SMALL) as server:
        whole, _, n_whole = chat(server, SYSTEM + USER)
        made = put(server, "doc", {"prompt": PROMPTS[3][:160]})
        assert made.status == 200, made.body
        assert made.json["object"] == "prefix" and made.json["name"] == "doc"
        assert (made.json["tokens"], made.json["cached_tokens"], made.json["kind"]) == (160, 0, "prompt")
        reply = ask(server, PROMPTS[3][160:], prefix="doc")
        assert answer(reply) == truth[3] and cached(reply) == 160
        assert reply["usage"]["prompt_tokens"] == 200
        made = put(server, "rivers", {"messages": SYSTEM})
        assert made.status == 200 and made.json["kind"] == "messages"
        n_blocks = made.json["tokens"] // BLOCK * BLOCK
        assert chat(server, USER, prefix="rivers") == (whole, max(n_blocks, (n_whole - 1) // BLOCK * BLOCK), n_whole)
        assert names_of(server) == ["doc", "rivers"]
        one = server.ask("GET", "/v1/prefixes/rivers").json
        assert one["tokens"] == made.json["tokens"] and one["created"] == made.json["created"]
        if disk:
            # The conversation was asked for twice: all of its full blocks are written, not those of the prefix only.
            wait_for(lambda: server.metric(BLOCKS) == 10 + (n_whole - 1) // BLOCK, "both are on the disk")
    if not disk:
        return
    with with_disk(tmp_path) as server:
        assert names_of(server) == ["doc", "rivers"]
        reply = ask(server, PROMPTS[3][160:], prefix="doc")
        assert answer(reply) == truth[3] and cached(reply) == 160
        assert chat(server, USER, prefix="rivers")[:2] == (whole, (n_whole - 1) // BLOCK * BLOCK)
        assert server.ask("DELETE", "/v1/prefixes/doc").json == {"object": "prefix", "name": "doc", "deleted": True}
        assert names_of(server) == ["rivers"]
    with with_disk(tmp_path) as server:
        assert names_of(server) == ["rivers"]


def test_a_prefix_of_text_begins_as_the_prompt_does(tmp_path):
    head, tail = "The quick brown fox jumps over the lazy dog, and " * 6, " then it sleeps."
    with with_disk(tmp_path) as server:
        assert put(server, "fox", {"prompt": head}).status == 200
        named = ask(server, tail, prefix="fox", echo=True)
        n = server.ask("GET", "/v1/prefixes/fox").json["tokens"]
        tokens = server.post("/tokenize", {"prompt": head}).json["tokens"]
        tokens += server.post("/tokenize", {"prompt": tail, "add_special_tokens": False}).json["tokens"]
        assert n + len(server.post("/tokenize", {"prompt": tail}).json["tokens"]) == len(tokens)
        whole = ask(server, tokens, echo=True)
        assert named["choices"][0]["text"] == whole["choices"][0]["text"]
        assert named["choices"][0]["text"].startswith(head + tail)
        assert named["choices"][0]["logprobs"]["token_logprobs"] == whole["choices"][0]["logprobs"]["token_logprobs"]


def test_pinned_blocks_stay_whatever_room_others_want(tmp_path):
    options = ["--prefix.disk.bytes", "4MiB"]
    prompt = ids(5, 80)
    with with_disk(tmp_path, *options) as server:
        assert put(server, "kept", {"prompt": prompt}).status == 200
        wait_for(lambda: server.metric(BLOCKS) == 5, "the prefix is on the disk")
        for seed in range(6):
            for _ in range(2):
                ask(server, ids(200 + seed, 70))
        wait_for(lambda: server.metric("millrace_prefix_disk_evictions_total") > 4, "others made place")
    with with_disk(tmp_path, *options) as server:
        assert cached(ask(server, ids(6, 20), prefix="kept")) == 80
        for seed in range(3):
            for _ in range(2):
                ask(server, ids(300 + seed, 70))
        assert put(server, "kept", {"prompt": ids(7, 40)}).status == 200  # the old blocks are let go
        wait_for(lambda: server.metric("millrace_prefix_disk_bytes_total", "written") > 0, "the new ones are written")
        assert server.ask("DELETE", "/v1/prefixes/kept").status == 200
        for seed in range(6):
            for _ in range(2):
                ask(server, ids(400 + seed, 70))
    with with_disk(tmp_path, *options) as server:
        assert cached(ask(server, prompt + ids(6, 20))) == 0


def test_a_prefix_that_lost_its_blocks_is_computed_again(tmp_path, truth):
    with start_real("--kv.bytes", "16MiB", "--limits.max_context", "400") as server:
        assert put(server, "doc", {"prompt": PROMPTS[3][:160]}).status == 200
        for seed in range(4):
            ask(server, ids(500 + seed, 300))
        reply = ask(server, PROMPTS[3][160:], prefix="doc")
        assert answer(reply) == truth[3] and cached(reply) < 160
    assert tmp_path.exists()


def test_names_of_one_model_are_not_seen_by_another(tmp_path, truth):
    """Ids of a small vocabulary are all there in a larger one, and mean something else."""
    with with_disk(tmp_path) as server:
        assert put(server, "doc", {"prompt": PROMPTS[3][:160]}).status == 200
        assert put(server, "rivers", {"messages": SYSTEM}).status == 200
        kept = sorted(path.name for path in (tmp_path / "kv" / "names").iterdir())
    with with_disk(tmp_path, "--model", GEMMA) as server:
        assert names_of(server) == []
        for name in ("doc", "rivers"):
            assert server.ask("GET", f"/v1/prefixes/{name}").status == 404
            assert server.ask("DELETE", f"/v1/prefixes/{name}").status == 404
            fields = {"prompt": ids(1, 5), "prefix": name, "max_tokens": 2}
            assert server.ask("POST", PATH, fields).status == 404
        assert put(server, "doc", {"prompt": ids(2, 40)}).status == 200
        assert names_of(server) == ["doc"]
        assert cached(ask(server, ids(3, 20), prefix="doc")) == 32
    with with_disk(tmp_path) as server:
        assert names_of(server) == ["doc", "rivers"]
        reply = ask(server, PROMPTS[3][160:], prefix="doc")
        assert answer(reply) == truth[3] and cached(reply) == 160
    names = {path.name for path in (tmp_path / "kv" / "names").iterdir()}
    assert names.issuperset(kept) and len(names) == 3


def test_names_and_blocks_together_stay_within_the_disk_bytes(tmp_path):
    most = 4 << 20
    with with_disk(tmp_path, "--prefix.disk.bytes", "4MiB") as server:
        seen = set()
        for i in range(140):
            reply = put(server, f"n{i}", {"prompt": ids(i, 4)})
            seen.add(reply.status)
            assert disk_use(tmp_path) <= most
            if reply.status == 413:
                assert "prefix.disk.bytes" in reply.json["error"]["message"]
        assert len(names_of(server)) == most // 8 // 4096
        assert seen == {200, 413}
        for seed in range(6):
            for _ in range(2):
                ask(server, ids(700 + seed, 70))
            assert disk_use(tmp_path) <= most
        server.wait_idle()
        wait_for(lambda: server.metric(USED) == disk_use(tmp_path), "the gauge is what is there")


def test_names_belong_to_the_key(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("sk-a name=a\nsk-b name=b\nsk-c\nsk-d\n")
    disk = tmp_path / "disk"
    disk.mkdir()
    options = ["--server.api_key_file", str(keys)]
    as_key = {name: [("Authorization", f"Bearer sk-{name}")] for name in "abcd"}
    with with_disk(disk, *options) as server:
        assert put(server, "x", {"prompt": PROMPTS[1]}).status == 401
        assert put(server, "x", {"prompt": PROMPTS[1], "cache_salt": "s"}, as_key["a"]).status == 200
        assert put(server, "x", {"prompt": PROMPTS[2]}, as_key["c"]).status == 200
        for key in "bd":
            assert names_of(server, as_key[key]) == []
            assert server.ask("GET", "/v1/prefixes/x", headers=as_key[key]).status == 404
            assert server.ask("DELETE", "/v1/prefixes/x", headers=as_key[key]).status == 404
            assert server.post(PATH, {"prompt": "a", "prefix": "x"}, as_key[key]).status == 404
        # The prefix's salt counts where the request has none.
        assert cached(ask(server, ids(1, 5), as_key["a"], prefix="x")) == 96
        assert cached(ask(server, ids(1, 5), as_key["a"], prefix="x", cache_salt="t")) == 0
        wait_for(lambda: len(block_files(disk)) == 6 + 10, "both are on the disk")
    keys.write_text("sk-c\nsk-a name=a\nsk-d\n")  # lines move: a key without a name keeps what is its own
    with with_disk(disk, *options) as server:
        assert names_of(server, as_key["c"]) == ["x"] == names_of(server, as_key["a"])
        assert names_of(server, as_key["d"]) == []
        assert cached(ask(server, ids(1, 5), as_key["c"], prefix="x")) == 160
    for path in disk.rglob("*"):
        assert not path.is_file() or b"sk-" not in path.read_bytes()


@pytest.fixture(scope="module", name="plain")
def fixture_plain():
    with start_fake() as server:
        yield server
        server.wait_idle()


@pytest.mark.parametrize(
    "method,path,body,status,code",
    [
        ("GET", "/v1/prefixes/none", None, 404, "prefix_not_found"),
        ("DELETE", "/v1/prefixes/none", None, 404, "prefix_not_found"),
        ("POST", PATH, {"prompt": "a", "prefix": "none"}, 404, "prefix_not_found"),
        ("POST", "/v1/chat/completions", {"messages": USER, "prefix": "none"}, 404, "prefix_not_found"),
        ("POST", PATH, {"prompt": "a", "prefix": ""}, 400, "invalid_value"),
        ("POST", PATH, {"prompt": "a", "prefix": "a/b"}, 400, "invalid_value"),
        ("POST", PATH, {"prompt": "a", "prefix": 7}, 400, "invalid_type"),
        ("POST", "/v1/chat/completions", {"messages": USER, "prefix": "text"}, 400, "invalid_value"),
        ("PUT", "/v1/prefixes/a%20b", {"prompt": "a"}, 400, "invalid_value"),
        ("PUT", "/v1/prefixes/" + "a" * 65, {"prompt": "a"}, 400, "invalid_value"),
        ("PUT", "/v1/prefixes/a", {}, 400, "missing"),
        ("PUT", "/v1/prefixes/a", {"prompt": "a", "messages": USER}, 400, "invalid_value"),
        ("PUT", "/v1/prefixes/a", {"prompt": []}, 400, "empty_prompt"),
        ("PUT", "/v1/prefixes/a", {"prompt": [1, -1]}, 400, "invalid_token_id"),
        ("PUT", "/v1/prefixes/a", {"prompt": 5}, 400, "invalid_type"),
        ("PUT", "/v1/prefixes/a", {"messages": []}, 400, "invalid_value"),
        ("PUT", "/v1/prefixes/a", {"prompt": [5] * 100000}, 400, "context_length_exceeded"),
        ("PUT", "/v1/prefixes", {"prompt": "a"}, 405, "method_not_allowed"),
        ("POST", "/v1/prefixes/a", {"prompt": "a"}, 405, "method_not_allowed"),
    ],
)
def test_what_is_wrong_is_said(plain, method, path, body, status, code):
    assert put(plain, "text", {"prompt": "a text"}).status == 200
    reply = plain.ask(method, path, body)
    assert (reply.status, reply.error["code"]) == (status, code), reply.body
    assert "a" not in names_of(plain)


def test_a_client_that_goes_while_its_prefix_is_computed_leaves_no_name():
    with start_fake(step_ms=20) as server:
        with server.raw() as client:
            client.request("PUT", "/v1/prefixes/gone", {"prompt": ids(1, 3000)})
            wait_for(lambda: server.metric("vllm:num_requests_running") == 1, "it is computed")
        server.wait_idle()
        assert names_of(server) == []
        assert put(server, "here", {"prompt": ids(1, 30)}).status == 200
        assert names_of(server) == ["here"]


def test_a_stop_waits_for_a_prefix_under_way():
    with start_fake(step_ms=20) as server, server.raw() as client:
        client.request("PUT", "/v1/prefixes/last", {"prompt": ids(1, 3000)})
        wait_for(lambda: server.metric("vllm:num_requests_running") == 1, "it is computed")
        server.signal()
        assert client.reply().status == 200
        server.process.wait()


def test_the_folder_has_nothing_beside_its_own(filled):
    assert {path.name for path in pathlib.Path(filled).iterdir()} == {"kv"}
    assert {path.name for path in (filled / "kv").iterdir()} == {"blocks", "names"}
