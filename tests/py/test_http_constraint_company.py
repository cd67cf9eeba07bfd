"""Many constrained requests at once, on the real model: each gets what it gets alone, whatever the others do, and the
memory of their grammars is in the ledger once, from the first use to the last."""

import concurrent.futures
import itertools
import json
import re

import jsonschema
import pytest

from http_rig import start_fake, start_real, wait_for
from test_memory import arena, tokens

PERSON = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
          "tags": {"type": "array", "items": {"enum": ["a", "b", "c"]}, "maxItems": 3}}, "required": ["name", "age", "tags"],
          "additionalProperties": False}  # fmt: skip
CODE = "[A-Z]{2}-[0-9]{3,6}(?: [a-z]{2,8}){1,4}"
PATH = "/v1/completions"
N = 32
ALL = "millrace_client_memory_bytes"
GRAMMARS = 'kind="grammars"'


def body(i, **more):
    limit = {"guided_json": PERSON} if i % 2 else {"guided_regex": CODE}
    return {"prompt": f"Number {i}: ", "seed": i, "temperature": 1, "max_tokens": 60, **limit, **more}


def check_text(i, text):
    if i % 2:
        jsonschema.validate(json.loads(text), PERSON)
    else:
        assert re.fullmatch(CODE, text), text


def answers(reply):
    assert reply.status == 200, reply.body
    return [(c["text"], c["finish_reason"]) for c in reply.json["choices"]]


def streamed(events):
    chunks = [c for e in events for c in e["choices"]]
    return [("".join(c["text"] for c in chunks), next(c["finish_reason"] for c in chunks if c["finish_reason"]))]


def ask_stream(server, i):
    with server.raw() as c:
        c.request("POST", PATH, body(i, stream=True))
        assert c.head().status == 200
        return streamed(c.reply_of_stream())


@pytest.fixture(scope="module")
def alone():
    """Answers one after the other, without a prefix cache."""
    with start_real("--prefix.enabled=false") as server:
        out = [answers(server.post(PATH, body(i))) for i in range(N)]
    for i, [(text, reason)] in enumerate(out):
        if reason == "stop":
            check_text(i, text)
    assert sum(reason == "stop" for [(_, reason)] in out) > N / 2
    return out


def size_of(server, **limit):
    return server.post("/v1/grammar/check", {**limit, "samples": 0}).json["size"]["bytes"]


def wait_given_back(server):
    server.wait_idle()
    wait_for(lambda: server.metric(ALL, 'kind="requests"') == 0, "requests are gone")
    both = size_of(server, guided_json=PERSON) + size_of(server, guided_regex=CODE)
    assert server.metric(ALL, GRAMMARS) == both, "the cache has each once"
    wait_for(lambda: server.metric("millrace_key_memory_bytes") < both / 8, "the key holds nothing")


@pytest.mark.heavy
def test_32_streams_get_what_each_gets_alone(alone):
    with start_real() as server, concurrent.futures.ThreadPoolExecutor(N) as pool:
        assert list(pool.map(lambda i: ask_stream(server, i), range(N))) == alone
        wait_given_back(server)


def test_clients_that_leave_change_nothing_for_the_others(alone):
    with start_real() as server:
        conns = []
        for i in range(N):
            c = server.raw()
            c.request("POST", PATH, body(i, stream=True))
            conns.append(c)
        for i in range(0, N, 4):  # of both kinds in turn, in the middle of their answers
            conns[i + i // 4 % 2].until(b"data: ")
            conns[i + i // 4 % 2].leave("rst" if i % 8 else "fin")
        left = {i + i // 4 % 2 for i in range(0, N, 4)}
        for i in sorted(set(range(N)) - left):
            assert conns[i].head().status == 200
            assert streamed(conns[i].reply_of_stream()) == alone[i]
            conns[i].close()
        wait_given_back(server)


LIST = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 999999}, "minItems": 24, "maxItems": 26}


def long_body(i):
    return {"prompt": tokens(i, 100 + 10 * (i % 7)), "seed": i, "temperature": 1, "max_tokens": 300, "guided_json": LIST}


@pytest.mark.heavy
def test_being_preempted_changes_nothing():
    with start_real("--prefix.enabled=false") as server:
        solo = [answers(server.post(PATH, long_body(i))) for i in range(10)]
    with start_real(*arena(32)) as server, concurrent.futures.ThreadPoolExecutor(10) as pool:
        assert list(pool.map(lambda i: answers(server.post(PATH, long_body(i))), range(10))) == solo
        assert server.metric("vllm:num_preemptions_total") > 0
    for [(text, reason)] in solo:
        assert reason == "stop"
        jsonschema.validate(json.loads(text), LIST)


@pytest.mark.heavy
def test_choices_are_the_same_in_company(alone):
    with start_real() as server:
        solo = [answers(server.post(PATH, body(i, n=4))) for i in range(4)]
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            others = [pool.submit(server.post, PATH, body(i)) for i in range(8)]
            assert list(pool.map(lambda i: answers(server.post(PATH, body(i, n=4))), range(4))) == solo
            assert [answers(f.result()) for f in others] == alone[:8]
        for i in range(4):
            assert solo[i][0] == alone[i][0], "the first choice is the only one of n=1"
            assert len({text for text, _ in solo[i]}) > 1
            for text, reason in solo[i]:
                if reason == "stop":
                    check_text(i, text)
        wait_given_back(server)


# ---- no room for more


PAIRS = [pair for pair in itertools.permutations("0123456789", 2) if abs(int(pair[0]) - int(pair[1])) > 1]  # as many byte classes


def endless(i):
    """A grammar of its own, as large as the others, which a running request holds."""
    return {"prompt": "x", "max_tokens": 1 << 20, "ignore_eos": True, "stream": True, "guided_regex": f"(?:a|b{''.join(PAIRS[i])})*c"}


def hold(server, n, headers=()):
    conns = []
    for i in range(n):
        c = server.raw()
        c.request("POST", PATH, endless(i), headers)
        assert c.head().status == 200
        conns.append(c)
    return conns


def test_running_grammars_are_bounded_and_give_way_when_they_end():
    with start_fake("--server.memory", "16MiB", step_ms=20) as server:
        size = size_of(server, guided_regex=endless(0)["guided_regex"])
        room = (16 << 20) // 100 * 50 // size
        conns = hold(server, room)
        assert server.metric(ALL, GRAMMARS) == room * size
        refused = server.post(PATH, endless(room))
        assert (refused.status, refused.error["code"]) == (503, "out_of_memory") and "grammars" in refused.error["message"], refused.body
        assert int(refused.get("retry-after")) >= 1
        assert server.complete(guided_regex=endless(0)["guided_regex"], max_tokens=1).status == 200, "one that is there needs no room"
        conns.pop().close()
        wait_for(lambda: server.post("/v1/grammar/check", {"guided_regex": "q"}).status == 200, "an idle grammar makes room")
        for c in conns:
            c.close()
        server.wait_idle()


def test_a_key_whose_requests_hold_many_grammars_gets_429(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("sk-a name=a\nsk-b name=b\n")
    a, b = ([("Authorization", f"Bearer sk-{name}")] for name in "ab")
    with start_fake("--server.memory", "24MiB", "--server.api_key_file", str(keys), step_ms=20) as server:
        conns = hold(server, 6, a)
        statuses = []
        for i in range(6, 12):
            c = server.raw()
            c.request("POST", PATH, endless(i), a)
            reply = c.head()
            statuses.append(reply.status)
            conns.append(c)
        assert 429 in statuses and set(statuses) <= {200, 429}, statuses
        shared = server.raw()  # of a grammar that the other key pays for
        shared.request("POST", PATH, endless(0), b)
        assert shared.head().status == 200
        for c in [*conns, shared]:
            c.close()
        text = "millrace_key_memory_bytes"
        wait_for(lambda: all(float(line.rsplit(" ", 1)[1]) < 1 << 19 for line in server.ask("GET", "/metrics", headers=a).body.decode().splitlines()
                             if line.startswith(text)), "both keys hold nothing")  # fmt: skip
