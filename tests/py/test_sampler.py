"""The sampler against numpy: tokens kept by the filters, frequencies of draws, log-probabilities.

numpy works in float64 by full sorts; the sampler in float32 by partial selection.
"""
import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

TOOL = Path(os.environ["MILLRACE_BUILD"]) / "tests" / "sample_rows"


def rows_like_a_model(rng, n_rows, n_vocab):
    x = rng.normal(0, 3, (n_rows, n_vocab))
    for row in x:
        high = rng.choice(n_vocab, min(50, n_vocab // 4), replace=False)
        row[high] += rng.uniform(0, 20, len(high))
    return x.astype(np.float32)


class Sampler:
    def __init__(self, path, logits):
        self.logits = np.atleast_2d(np.asarray(logits, np.float32))
        self.logits.tofile(path)
        self.process = subprocess.Popen(
            [str(TOOL), str(path), str(self.logits.shape[1])],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, **order):
        words = []
        for key, value in order.items():
            if key == "bias":
                value = ",".join(f"{t}:{b!r}" for t, b in sorted(value.items()))
            elif isinstance(value, (list, tuple)):
                value = ",".join(map(str, value))
            words.append(f"{key}={value}")
        self.process.stdin.write(" ".join(words) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        assert self.process.wait() == 0


@pytest.fixture
def sampler(tmp_path):
    made = []

    def make(logits):
        made.append(Sampler(tmp_path / f"logits{len(made)}", logits))
        return made[-1]

    yield make
    for s in made:
        s.close()


def penalised(x, bias={}, ban=(), history=(), n_prompt=0, repetition=1.0, presence=0.0,
              frequency=0.0):
    x = x.astype(np.float64)
    for token, value in bias.items():
        x[token] = -np.inf if value <= -100 else x[token] + value
    x[list(ban)] = -np.inf
    for token in set(history):
        x[token] = x[token] / repetition if x[token] > 0 else x[token] * repetition
    output = list(history[n_prompt:])
    for token in set(output):
        x[token] -= presence + frequency * output.count(token)
    return x


def kept(x, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, top_p_slack=0.0):
    """Token ids and probabilities by the definitions in sampler.h."""
    order = np.lexsort((np.arange(len(x)), -x))
    if top_k > 0:
        order = order[:top_k]
    order = order[np.isfinite(x[order])]
    p = np.exp((x[order] - x[order[0]]) / np.float64(np.float32(temperature)))
    if top_p < 1:
        q = p / p.sum()
        before = np.concatenate([[0], np.cumsum(q)[:-1]])
        keep = before < np.float64(np.float32(top_p)) + top_p_slack
        keep[0] = True
        order, p = order[keep], p[keep]
    keep = p >= np.float64(np.float32(min_p)) * p[0]
    order, p = order[keep], p[keep]
    ascending = np.argsort(order)
    return order[ascending], (p / p.sum())[ascending]


FILTERS = [
    dict(top_k=1), dict(top_k=2), dict(top_k=40), dict(top_k=300), dict(top_k=5000),
    dict(top_p=0.95), dict(top_p=0.5), dict(top_p=0.01), dict(top_p=0.999), dict(top_p=0.9999),
    dict(min_p=0.05), dict(min_p=0.5), dict(min_p=1.0), dict(min_p=1e-6),
    dict(top_k=40, top_p=0.95), dict(top_k=40, top_p=0.9, min_p=0.1), dict(top_p=0.9, min_p=0.02),
    dict(top_k=300, min_p=0.001),
]


def same_kept(got, x, temperature, filters):
    """Equal sets; where top_p cuts, float32 may differ by tokens whose share is under 1e-6."""
    ids, p = kept(x, temperature, **filters)
    got_ids = [i for i, _ in got["kept"]]
    if got_ids != list(ids):
        least, _ = kept(x, temperature, **filters, top_p_slack=-1e-6)
        most, _ = kept(x, temperature, **filters, top_p_slack=1e-6)
        assert set(least) <= set(got_ids) <= set(most)
        return
    got_p = np.array([q for _, q in got["kept"]], np.float64)
    assert np.allclose(got_p / got_p.sum(), p, rtol=2e-5, atol=1e-9)


@pytest.mark.parametrize("n_vocab", [1, 3, 63, 64, 65, 1000, 49152])
def test_filters_keep_what_their_definitions_say(sampler, n_vocab):
    rng = np.random.default_rng(n_vocab)
    logits = rows_like_a_model(rng, 1 if n_vocab > 10000 else 4, n_vocab)
    s = sampler(logits)
    for row, x in enumerate(logits):
        for temperature in (0.3, 1.0, 1.7):
            for filters in FILTERS:
                got = s(row=row, temperature=temperature, kept=1, **filters)
                same_kept(got, x.astype(np.float64), temperature, filters)


@pytest.mark.parametrize("name", ["flat", "equal", "ascending", "one", "minus infinity", "coarse"])
def test_filters_on_awkward_rows(sampler, name):
    n = 5000
    rng = np.random.default_rng(5)
    x = {
        "flat": rng.normal(0, 0.01, n),
        "equal": np.full(n, 1.5),
        "ascending": np.linspace(-20, 20, n),
        "one": np.where(np.arange(n) == 4321, 90.0, -90.0),
        "minus infinity": np.where(rng.random(n) < 0.9, -np.inf, rng.normal(0, 2, n)),
        "coarse": np.round(rng.normal(0, 2, n)),  # many ties, also at the cut
    }[name].astype(np.float32)
    s = sampler(x)
    for filters in FILTERS:
        same_kept(s(kept=1, **filters), x.astype(np.float64), 1.0, filters)


def test_penalties_biases_and_bans_change_logits_in_the_documented_order(sampler):
    rng = np.random.default_rng(11)
    n = 2000
    logits = rows_like_a_model(rng, 8, n)
    s = sampler(logits)
    for row, x in enumerate(logits):
        history = [int(t) for t in rng.choice(np.argsort(-x)[:60], 100)]
        likely = [int(t) for t in np.argsort(-x)[:30]]
        args = dict(history=history, n_prompt=int(rng.integers(0, 100)),
                    repetition=float(np.float32(rng.uniform(0.7, 1.6))),
                    presence=float(np.float32(rng.uniform(-2, 2))),
                    frequency=float(np.float32(rng.uniform(-2, 2))),
                    bias={likely[0]: -100.0, likely[3]: 2.5, likely[7]: -1.25, 1999: 9.0},
                    ban=[likely[1], likely[4]])
        got = s(row=row, kept=1, top_k=50, **args)
        ids, p = kept(penalised(x, **args), top_k=50)
        assert [i for i, _ in got["kept"]] == list(ids)
        q = np.array([q for _, q in got["kept"]])
        assert np.allclose(q / q.sum(), p, rtol=1e-4, atol=1e-9)


def chi_square(tokens, ids, p):
    """Statistic and degrees of freedom; tokens expected fewer than 5 times share one cell."""
    count = np.array([np.count_nonzero(tokens == i) for i in ids], np.float64)
    want = p * len(tokens)
    rare = want < 5
    count = np.append(count[~rare], count[rare].sum())
    want = np.append(want[~rare], want[rare].sum())
    count, want = count[want > 1e-9], want[want > 1e-9]
    return ((count - want) ** 2 / want).sum(), max(len(want) - 1, 1)


@pytest.mark.parametrize("filters", [
    dict(), dict(temperature=0.5), dict(temperature=2.0), dict(top_k=40), dict(top_p=0.9),
    dict(min_p=0.02), dict(top_k=100, top_p=0.9, temperature=1.5)], ids=str)
@pytest.mark.parametrize("shape", ["model", "flat", "two hot blocks"])
def test_tokens_are_drawn_with_their_probabilities(sampler, filters, shape):
    rng = np.random.default_rng(3)
    n = 1000
    x = rows_like_a_model(rng, 1, n)[0]
    if shape == "flat":
        x = rng.normal(0, 1, n).astype(np.float32)
    if shape == "two hot blocks":  # elsewhere one high element a block: the bound is loose
        x = np.full(n, -6, np.float32)
        x[::64] = rng.normal(0, 2, len(x[::64]))
        x[64:128] = rng.normal(2, 1, 64)
    s = sampler(x)
    tokens = np.array(s(draws=40000, seed=1, **filters)["tokens"])
    temperature = filters.get("temperature", 1.0)
    ids, p = kept(x.astype(np.float64), temperature,
                  **{k: v for k, v in filters.items() if k != "temperature"})
    assert set(tokens) <= set(ids)
    statistic, freedom = chi_square(tokens, ids, p)
    # Six standard deviations of the statistic: the seed is fixed, so this never flickers.
    assert statistic < freedom + 6 * np.sqrt(2 * freedom) + 6


def log_softmax(x):
    x = x.astype(np.float64)
    m = x.max()
    return x - m - np.log(np.exp(x - m).sum())


@pytest.mark.parametrize("n_vocab", [7, 1000, 49152])
def test_logprobs_are_of_the_raw_distribution(sampler, n_vocab):
    rng = np.random.default_rng(n_vocab)
    logits = rows_like_a_model(rng, 6, n_vocab)
    s = sampler(logits)
    for row, x in enumerate(logits):
        want = log_softmax(x)
        order = np.lexsort((np.arange(n_vocab), -x))
        for n_top in (0, 1, 5, 20):
            got = s(row=row, n_top=n_top, temperature=0.6, top_k=3, bias={0: 5.0}, seed=row)
            assert abs(got["logprob"] - want[got["tokens"][0]]) < 1e-5
            top = order[:n_top]
            assert [t for t, _ in got["top"]] == list(top)
            assert np.allclose([p for _, p in got["top"]], want[top], atol=1e-5, rtol=0)


def test_a_given_token_is_reported_and_not_drawn(sampler):
    x = rows_like_a_model(np.random.default_rng(2), 1, 500)[0]
    s = sampler(x)
    got = s(given=123, n_top=2, temperature=0)
    assert got["tokens"] == [123]
    assert abs(got["logprob"] - log_softmax(x)[123]) < 1e-5
    assert len(got["top"]) == 2


def test_logprobs_do_not_change_what_is_drawn(sampler):
    s = sampler(rows_like_a_model(np.random.default_rng(2), 1, 3000)[0])
    for filters in (dict(), dict(top_p=0.9), dict(top_k=7), dict(temperature=0.7)):
        plain = s(draws=200, seed=9, **filters)["tokens"]
        assert s(draws=200, seed=9, n_top=5, **filters)["tokens"] == plain
