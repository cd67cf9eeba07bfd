"""Rules that name tokens or follow the history, against Python: allowed tokens, bad words, DRY; and the fields that bring them."""
import numpy as np
import pytest

from test_sampler import Sampler, rows_like_a_model, sampler  # noqa: F401


def alive(got):
    return {i for i, _ in got["kept"]}


def weights(got, n):
    """Shares that the sampler left, as an array."""
    w = np.zeros(n)
    for token, p in got["kept"]:
        w[token] = p
    return w / w.sum()


def dry(x, history, multiplier, base, allowed, last_n, breakers):
    """By the definition: for each token, the longest end of the history that occurred before it."""
    x = x.astype(np.float64)
    h = history[-min(last_n or len(x), len(x)):]  # never more than n_vocab tokens
    longest = {}
    for i in range(len(h) - 1):  # a match that ends at i would be continued by h[i + 1]
        m = 0
        while m <= i and h[i - m] == h[len(h) - 1 - m] and h[i - m] not in breakers:
            m += 1
        longest[h[i + 1]] = max(m, longest.get(h[i + 1], 0))
    for token, m in longest.items():
        if m >= allowed:
            x[token] -= min(multiplier * base ** (m - allowed), 1e30)
    return x


@pytest.mark.parametrize("multiplier, base, allowed, last_n", [(0.8, 1.75, 2, 0), (3.0, 1.0, 1, 0), (0.5, 1.2, 3, 20), (100.0, 100.0, 1, 7)])
def test_dry(sampler, multiplier, base, allowed, last_n):  # noqa: F811
    n, rng = 40, np.random.default_rng(11)
    rows = rows_like_a_model(rng, 300, n)
    s = sampler(rows)
    changed = 0
    for row, x in enumerate(rows):
        kind = row % 4
        history = [int(t) for t in rng.integers(0, (2, 3, 8, 40)[kind], rng.integers(1, 60))]
        if kind == 2:
            history = history[: len(history) // 2 + 1] * 3  # a period
        breakers = [int(t) for t in rng.choice(n, 3, replace=False)] if row % 3 else [n - 1]
        expected = dry(x, history, multiplier, base, allowed, last_n, set(breakers))
        got = s(row=row, kept=1, min_p=1e-30, history=history, n_prompt=len(history) // 2, dry_multiplier=multiplier,
                dry_base=base, dry_allowed=allowed, dry_last_n=last_n, breakers=breakers)
        p = np.exp(expected - expected.max())
        assert np.allclose(weights(got, n), p / p.sum(), rtol=2e-4, atol=1e-9), (row, history)
        changed += not np.array_equal(expected, x.astype(np.float64))
    assert changed > 50


def test_dry_of_a_long_period_ends_in_a_ban_and_not_in_an_error(sampler):  # noqa: F811
    s = sampler(np.array([1.0, 2.0, 3.0, 0.0], np.float32))
    got = s(history=[0, 1, 2] * 5000, n_prompt=3, draws=20, dry_multiplier=1, dry_base=1.75, dry_allowed=2, breakers=[3])
    assert 0 not in got["tokens"] and -2 not in got["tokens"]  # the window is the vocabulary's size: 4 tokens


def test_allowed_tokens(sampler):  # noqa: F811
    rng = np.random.default_rng(12)
    rows = rows_like_a_model(rng, 200, 300)
    s = sampler(rows)
    for row in range(len(rows)):
        allowed = [int(t) for t in rng.choice(300, rng.integers(1, 20), replace=False)]
        assert alive(s(row=row, kept=1, min_p=1e-38, temperature=3, allowed=allowed)) == set(allowed)
        assert s(row=row, temperature=0, allowed=allowed)["tokens"] == [max(allowed, key=lambda t: (rows[row][t], -t))]
    assert s(row=0, allowed=[5], ban=[5])["tokens"] == [-2]


def test_bad_words(sampler):  # noqa: F811
    rng = np.random.default_rng(13)
    rows = rows_like_a_model(rng, 200, 6)
    s = sampler(rows)
    hits = 0
    for row in range(len(rows)):
        words = [[int(t) for t in rng.integers(0, 3, rng.integers(1, 4))] for _ in range(3)]
        history = [int(t) for t in rng.integers(0, 3, 12)]
        n_prompt = int(rng.integers(0, 12))
        output = history[n_prompt:]
        banned = {w[-1] for w in words if len(w) == 1 or output[-(len(w) - 1):] == w[:-1]}
        got = s(row=row, kept=1, min_p=1e-38, temperature=3, history=history, n_prompt=n_prompt,
                bad=[n for w in words for n in (len(w), *w)])
        assert alive(got) == set(range(6)) - banned
        hits += any(len(w) > 1 and w[-1] in banned for w in words)
    assert hits > 20


# ---- the fields


def text(server, prompt="The capital of France is", **fields):
    reply = server.post("/v1/completions", {"prompt": prompt, "max_tokens": 16, "temperature": 0, **fields})
    assert reply.status == 200 and not reply.get("x-ignored-params"), reply.body
    return reply.json["choices"][0]["text"]


def ids(server, prompt):
    return server.post("/tokenize", {"prompt": prompt, "add_special_tokens": False}).json["tokens"]


def test_bad_words_do_not_appear(real):
    plain = text(real)
    assert "Paris" in plain
    assert "Paris" not in text(real, bad_words=["Paris"])
    assert "Paris." in plain
    other = text(real, bad_words=["Paris."])
    assert "Paris." not in other and other.startswith(" Paris")


def test_allowed_tokens_are_all_there_is(real):
    allowed = ids(real, " yes") + ids(real, " no")
    answer = text(real, allowed_token_ids=allowed)
    assert set(answer.split()) <= {"yes", "no"} and answer.split()


def test_biases_by_text(real):
    assert "Paris" not in text(real, logit_bias=[[" Paris", False]])
    one = ids(real, " Rome")[0]
    assert text(real, max_tokens=1, logit_bias=[[" Rome", 100]]) == text(real, max_tokens=1, logit_bias={str(one): 100})
    assert text(real, logit_bias=[[one, 60], [one, 60], [one, False]]) == text(real, logit_bias={str(one): -100})


def test_dry_ends_a_loop(real):
    prompt = "one two three one two three one two three one two three one two"
    assert text(real, prompt).startswith(" three one two")
    assert not text(real, prompt, dry_multiplier=20).startswith(" three one two")
    assert text(real, prompt, dry_multiplier=20, dry_sequence_breakers=[" two"]).startswith(" three")
    assert text(real, prompt, dry_multiplier=20, dry_penalty_last_n=0) == text(real, prompt)
    assert text(real, prompt, dry_multiplier=20, dry_allowed_length=1000) == text(real, prompt)


def test_a_truncated_prompt_is_its_end(real, fake):
    prompt = ids(real, "Nothing of this counts at all. The capital of France is")
    whole = real.post("/v1/completions", {"prompt": prompt, "truncate_prompt_tokens": 5, "max_tokens": 8, "temperature": 0}).json
    end = real.post("/v1/completions", {"prompt": prompt[-5:], "max_tokens": 8, "temperature": 0}).json
    assert whole["choices"] == end["choices"] and whole["usage"] == end["usage"]
    context = fake.ask("GET", "/v1/models").json["data"][0]["max_model_len"]
    long = fake.post("/v1/completions", {"prompt": [prompt[0]] * (context + 100), "truncate_prompt_tokens": -1, "max_tokens": 1})
    assert long.status == 200 and long.json["usage"]["prompt_tokens"] == context - 1


@pytest.mark.parametrize("fields, param", [
    ({"bad_words": "x"}, "bad_words"),
    ({"bad_words": [""]}, "bad_words[0]"),
    ({"bad_words": ["a", "b" * 257]}, "bad_words[1]"),
    ({"bad_words": ["a"] * 129}, "bad_words"),
    ({"allowed_token_ids": []}, "allowed_token_ids"),
    ({"allowed_token_ids": [1, -1]}, "allowed_token_ids[1]"),
    ({"logit_bias": [[1]]}, "logit_bias"),
    ({"logit_bias": [["", 1]]}, "logit_bias[0]"),
    ({"logit_bias": [[1, True]]}, "logit_bias"),
    ({"logit_bias": [[1, 101]]}, "logit_bias"),
    ({"logit_bias": [[10**9, 1]]}, "logit_bias"),
    ({"logit_bias": "x"}, "logit_bias"),
    ({"dry_multiplier": -1}, "dry_multiplier"),
    ({"dry_base": 0.5}, "dry_base"),
    ({"dry_allowed_length": 0}, "dry_allowed_length"),
    ({"dry_multiplier": 1, "dry_sequence_breakers": ["x" * 41]}, "dry_sequence_breakers[0]"),
    ({"dry_multiplier": 1, "dry_sequence_breakers": ["x"] * 17}, "dry_sequence_breakers"),
    ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
    ({"truncate_prompt_tokens": 5, "echo": True}, "truncate_prompt_tokens"),
    ({"truncate_prompt_tokens": -2}, "truncate_prompt_tokens"),
])
def test_what_is_out_of_bounds_is_refused_by_name(real, fields, param):
    reply = real.post("/v1/completions", {"prompt": "a", "max_tokens": 1, **fields})
    assert reply.status == 400 and reply.error["param"] == param, reply.body
