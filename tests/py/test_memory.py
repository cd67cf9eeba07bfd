"""KV memory over HTTP with SmolLM2: prefix cache, swap, recomputation, contexts beyond the arena, isolation.
Whatever happens to its blocks, a request gets the same text and log-probabilities as it does alone.

Cases of other servers, by number: G020, G021, G035, G037, G038, G040, G041, G155."""

import concurrent.futures
import random

import pytest

from http_rig import start_real, wait_for

BLOCK_BYTES = 23040 * 16  # SmolLM2-135M: 30 layers x 3 KV heads x 64 x (K, V) in f16, 16 positions


def arena(n_blocks):
    return ("--kv.bytes", str(n_blocks * BLOCK_BYTES))


def ram(n_blocks):
    return ("--kv.host_bytes", str(n_blocks * BLOCK_BYTES))


def spill(folder, n_blocks):
    return ("--kv.spill.path", str(folder), "--kv.spill.bytes", str(n_blocks * BLOCK_BYTES))


def tokens(seed, n):
    rng = random.Random(seed)
    return [rng.randrange(100, 40000) for _ in range(n)]


def body(prompt, max_tokens=24, **more):
    return {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True, "logprobs": 3, **more}


def answer(reply):
    """All that a client can see of the result: text, tokens, log-probabilities, why it ended."""
    assert reply.status == 200, reply.body
    return [{k: choice[k] for k in ("index", "text", "logprobs", "finish_reason")} for choice in reply.json["choices"]]


def cached(reply):
    return reply.json["usage"]["prompt_tokens_details"]["cached_tokens"]


def ask_all(server, bodies):
    with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
        return list(pool.map(lambda b: server.post("/v1/completions", b), bodies))


# 12 requests of 14 to 20 blocks: four or five fit the arena of 64 blocks.
CROWD = [body(tokens(i, 160 + 12 * (i % 7)), max_tokens=64 + 4 * (i % 5)) for i in range(12)]


@pytest.fixture(scope="module")
def alone():
    """Answers to CROWD, one after the other, every block free and nothing cached."""
    with start_real("--prefix.enabled=false") as server:
        return [answer(server.post("/v1/completions", b)) for b in CROWD]


def tiers(name, folder):
    return {
        "none": (),
        "ram": ram(400),
        "file": spill(folder, 400),
        "both": (*ram(24), *spill(folder, 400)),
    }[name]


@pytest.mark.parametrize("tier", ["none", "both"])
def test_a_crowd_beyond_the_arena_loses_nothing_and_changes_nothing(alone, tmp_path, tier):
    """G037: also without any swap space; G038: blocks given away and got back."""
    options = (*arena(64), *tiers(tier, tmp_path))
    with start_real(*options) as server:
        replies = ask_all(server, CROWD)
        assert server.metric("vllm:num_preemptions_total") > 0
        server.wait_idle()
    assert [answer(r) for r in replies] == alone


def test_neighbours_change_no_bit(alone):
    """G020"""
    with start_real("--sched.chunk_max", "48") as server:
        others = [body(tokens(1000 + i, 20 + 17 * i % 300), 24) for i in range(28)]
        replies = ask_all(server, CROWD[:4] + others)
    assert [answer(r) for r in replies[:4]] == alone[:4]


def test_no_answer_holds_anything_of_another_request():
    """G021: a small arena, so that blocks are recycled all the time."""
    markers = [f"zq{i:02d}x{(i * 7919) % 1000:03d}" for i in range(32)]
    bodies = [body(f"The word is {m}. Say it again: the word is {m}. And again: the word is", 10) for m in markers]
    with start_real(*arena(48)) as server:
        first = [answer(server.post("/v1/completions", b)) for b in bodies]
        for _ in range(3):
            assert [answer(r) for r in ask_all(server, bodies)] == first
    for i, choices in enumerate(first):
        for other in markers[:i] + markers[i + 1 :]:
            assert other not in choices[0]["text"]


@pytest.mark.parametrize("n", [15, 16, 17, 32, 33])
def test_equal_prompts_of_one_moment_share_only_what_is_computed(n):
    """G040: around the ends of blocks."""
    prompt = body(tokens(7, n), 8)
    with start_real() as server:
        replies = ask_all(server, [prompt] * 4)
        again = server.post("/v1/completions", prompt)
    assert all(answer(r) == answer(again) for r in replies)
    assert cached(again) == (n - 1) // 16 * 16


def test_a_reused_block_is_not_found_under_its_old_prefix():
    """G041: the arena of 40 blocks forgets the first prompt, then gets it again."""
    first = body(tokens(1, 200), 8)
    with start_real(*arena(40)) as server:
        before = server.post("/v1/completions", first)
        for i in range(6):
            server.post("/v1/completions", body(tokens(100 + i, 300), 8))
        after = server.post("/v1/completions", first)
        assert cached(after) == 0 and answer(after) == answer(before)
        assert cached(server.post("/v1/completions", first)) == 192


def test_64_equal_prompts_at_once_are_computed_once():
    prompt = tokens(5, 400)
    with start_real() as server:
        replies = ask_all(server, [body(prompt, 4)] * 64)
        computed = server.metric("vllm:prompt_tokens_total") - sum(cached(r) for r in replies)
        counted = server.ask("GET", "/debug/kv").json["totals"]
    assert len({str(answer(r)) for r in replies}) == 1
    # once an admission, however often a waiting prompt was looked up
    assert counted["prefix_queries"] == 64 and counted["prefix_query_tokens"] == 64 * 400
    assert counted["prefix_hit_tokens"] == sum(cached(r) for r in replies)
    # all but the open tail (positions 384 to 399) once, the tail by each
    assert computed <= 400 + 63 * 16


def test_cached_tokens_count_what_was_read_and_a_salt_keeps_prefixes_apart():
    prompt = tokens(9, 100)
    with start_real() as server:
        assert cached(server.post("/v1/completions", body(prompt, 4))) == 0
        assert cached(server.post("/v1/completions", body(prompt, 4))) == 96
        assert cached(server.post("/v1/completions", body(prompt, 4, cache_salt="a"))) == 0
        assert cached(server.post("/v1/completions", body(prompt, 4, cache_salt="a"))) == 96
        assert cached(server.post("/v1/completions", body(prompt, 4, cache_salt="b"))) == 0
        assert server.metric("vllm:prefix_cache_hits_total") == 192
        assert server.metric("vllm:prefix_cache_queries_total") == 500


def test_two_keys_share_no_prefix_unless_told(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("key-one name=one\nkey-two name=two\n")
    prompt = body(tokens(9, 100), 4)
    one, two = ([("Authorization", f"Bearer key-{k}")] for k in ("one", "two"))
    for isolation, expected in (("tenant", 0), ("global", 96)):
        with start_real("--server.api_key_file", str(keys), "--prefix.isolation", isolation) as server:
            assert cached(server.post("/v1/completions", prompt, one)) == 0
            assert cached(server.post("/v1/completions", prompt, one)) == 96
            assert cached(server.post("/v1/completions", prompt, two)) == expected


def test_small_requests_pass_a_large_one_that_waits_and_it_ends_too():
    """G035: one request needs 9 of 10 blocks while another holds a third of them."""
    with start_real(*arena(100), "--sched.reserve", "max") as server:
        holder = body(tokens(1, 400), 100)
        heavy = body(tokens(2, 1200), 200)
        light = [body(tokens(10 + i, 10), 10) for i in range(10)]
        replies = ask_all(server, [holder, heavy, *light])
        assert all(r.status == 200 for r in replies)
        server.wait_idle()


def test_prompts_that_keep_coming_do_not_starve_what_was_swapped_out(tmp_path):
    """G155: n=8 prompts arrive while earlier ones are swapped."""
    bodies = [body(tokens(i, 100), 60, n=8, temperature=1, seed=i) for i in range(12)]
    with start_real(*arena(64), *spill(tmp_path, 600)) as server:
        replies = ask_all(server, bodies)
        assert all(r.status == 200 and len(r.json["choices"]) == 8 for r in replies)
        wait_for(lambda: server.metric("vllm:num_requests_swapped") == 0, "swapped sequences are back")
        server.wait_idle()


@pytest.mark.parametrize("tier", ["ram", "file"])
def test_a_sequence_longer_than_the_arena_gets_the_same_bits(tmp_path, tier):
    prompt = body(tokens(3, 1500), 40)
    with start_real("--prefix.enabled=false") as server:
        expected = answer(server.post("/v1/completions", prompt))
    with start_real(*arena(48), "--prefix.enabled=false", *tiers(tier, tmp_path)) as server:
        assert answer(server.post("/v1/completions", prompt)) == expected
        refused = server.post("/v1/completions", body(tokens(3, 8000), 40))
        assert refused.status == 400 and refused.error["code"] == "context_length_exceeded"
        server.wait_idle()


def test_choices_of_one_request_share_its_prompt_and_differ_by_seed():
    one = body(tokens(4, 64), 12, n=4, temperature=1, seed=11)
    with start_real() as server:
        reply = server.post("/v1/completions", one)
        assert len({c["text"] for c in answer(reply)}) > 1
        assert answer(server.post("/v1/completions", one)) == answer(reply)
    with start_real(*arena(24), *ram(200)) as server:  # forks are swapped out and in
        replies = ask_all(server, [one] * 3)
        assert all(answer(r) == answer(reply) for r in replies)


def test_an_answer_beyond_the_context_is_that_of_the_history_that_is_left():
    """overflow=sinks: at 96 tokens the first 16 and the last 40 stay. What follows equals, bit for bit, what a request
    with these tokens as its prompt gets."""
    start = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11,"
    with start_real("--limits.max_context", "96") as server:
        ids = lambda text: server.post("/tokenize", {"prompt": text, "add_special_tokens": False}).json["tokens"]  # noqa: E731
        prompt = ids(start)
        whole = server.post("/v1/completions", body(prompt, 200, overflow="sinks")).json
        choice = whole["choices"][0]
        assert whole["usage"]["completion_tokens"] == 200 and choice["finish_reason"] == "length"
        out = [i for text in choice["logprobs"]["tokens"] for i in ids(text)]
        assert len(out) == 200
        history, at, n_dropped = list(prompt), 0, 0
        while at < 200:
            n = min(96 - len(history), 200 - at)
            part = server.post("/v1/completions", body(history, n)).json["choices"][0]
            for key in ("tokens", "token_logprobs", "top_logprobs"):
                assert part["logprobs"][key] == choice["logprobs"][key][at : at + n]
            history += out[at : at + n]
            at += n
            if at < 200:
                n_dropped += 40
                history = history[:16] + history[-40:]
        assert choice["dropped_tokens"] == n_dropped > 40
        events = server.post("/v1/completions", body(prompt, 200, overflow="sinks", stream=True)).events()
        assert events[-1]["choices"][0]["dropped_tokens"] == n_dropped
        # penalties, seeds and forks see the whole answer
        drawn = body(prompt, 150, overflow="sinks", n=3, temperature=1, seed=5, frequency_penalty=0.5)
        first = answer(server.post("/v1/completions", drawn))
        assert answer(server.post("/v1/completions", drawn)) == first and len({c["text"] for c in first}) == 3
        refused = server.post("/v1/completions", body(prompt, 200, overflow="sinks", kv_reserve=True))
        assert refused.status == 400 and refused.error["param"] == "overflow"
