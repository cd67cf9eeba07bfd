"""The filters of llama.cpp's family against numpy: what top_n_sigma, typical_p and XTC keep, and how far back penalties look."""
import math

import numpy as np
import pytest

from test_sampler import Sampler, kept, penalised, rows_like_a_model, sampler  # noqa: F401

N_ROWS = 2500  # of each filter and temperature, 10,000 distributions in all


def base(x, temperature):
    order = np.arange(len(x))
    return order, np.exp((x - x.max()) / np.float64(np.float32(temperature)))


def top_n_sigma(x, n_sigma):
    floor = np.float32(x.max() - np.float64(np.float32(n_sigma)) * x.std())
    return x >= floor


def typical(p, share):
    """Places of a distribution, and how near the last one is to being left out."""
    q = p / p.sum()
    with np.errstate(divide="ignore"):
        surprise = -np.log(q)
    entropy = np.sum(np.where(q > 0, q * np.where(q > 0, surprise, 0), 0))
    distance = np.abs(surprise - entropy)
    order = np.lexsort((np.arange(len(p)), distance))
    before = np.concatenate([[0], np.cumsum(q[order])[:-1]])
    return order, before, distance


def ids_of(got):
    return [i for i, _ in got["kept"]]


@pytest.mark.parametrize("temperature", [0.3, 0.8, 1.0, 1.7])
def test_top_n_sigma(sampler, temperature):
    rows = rows_like_a_model(np.random.default_rng(1), N_ROWS, 200)
    s = sampler(rows)
    for row, x in enumerate(rows):
        x = x.astype(np.float64)
        n_sigma = (0.2, 1.0, 1.5, 3.0)[row % 4]
        got = s(row=row, temperature=temperature, kept=1, top_n_sigma=n_sigma)
        assert ids_of(got) == list(np.flatnonzero(top_n_sigma(x, n_sigma)))


@pytest.mark.parametrize("temperature", [0.3, 0.8, 1.0, 1.7])
def test_typical_p(sampler, temperature):
    rows = rows_like_a_model(np.random.default_rng(2), N_ROWS, 200)
    s = sampler(rows)
    for row, x in enumerate(rows):
        share = (0.2, 0.5, 0.9, 0.99)[row % 4]
        _, p = base(x.astype(np.float64), temperature)
        order, before, _ = typical(p, share)
        got = set(ids_of(s(row=row, temperature=temperature, kept=1, typical_p=share)))
        least, most = set(order[before < share - 1e-5]), set(order[before < share + 1e-5])
        assert got and (least <= got <= most or len(got ^ least) <= 2), (row, got, least, most)


@pytest.mark.parametrize("temperature", [0.3, 0.8, 1.0, 1.7])
def test_xtc(sampler, temperature):
    rows = rows_like_a_model(np.random.default_rng(3), N_ROWS, 200)
    s = sampler(rows)
    for row, x in enumerate(rows):
        threshold = (0.02, 0.1, 0.2, 0.4)[row % 4]
        _, p = base(x.astype(np.float64), temperature)
        q = p / p.sum()
        if np.any(np.abs(q - threshold) < 1e-6):
            continue
        top = [i for i in range(len(q)) if q[i] >= threshold]
        gone = set(top) - {min(reversed(top), key=lambda i: np.float32(p[i]))} if len(top) > 1 else set()
        got = s(row=row, temperature=temperature, kept=1, xtc_probability=1, xtc_threshold=threshold)
        assert ids_of(got) == [i for i in range(len(q)) if i not in gone]


def test_xtc_happens_as_often_as_asked(sampler):
    s = sampler(np.array([2.0, 1.9, 0.0, -1.0], np.float32))
    for probability in (0.0, 0.25, 0.5, 1.0):
        draws = s(draws=20000, seed=7, xtc_probability=probability, xtc_threshold=0.3)["tokens"]
        p = np.exp([2.0, 1.9, 0.0, -1.0])
        expected = (1 - probability) * p[0] / p.sum()
        share = draws.count(0) / len(draws)
        assert abs(share - expected) < 5 * math.sqrt(expected * (1 - expected) / len(draws)) + 1e-9


def test_filters_stand_in_their_documented_order(sampler):
    rows = rows_like_a_model(np.random.default_rng(4), 200, 300)
    s = sampler(rows)
    for row, x in enumerate(rows):
        x = x.astype(np.float64)
        got = set(ids_of(s(row=row, kept=1, top_n_sigma=2, top_k=30, top_p=0.9, min_p=0.05)))
        alive = np.where(top_n_sigma(x, 2), x, -np.inf)
        least, _ = kept(alive, 1.0, 30, 0.9, 0.05, -1e-6)
        most, _ = kept(alive, 1.0, 30, 0.9, 0.05, 1e-6)
        assert set(least) <= got <= set(most)


@pytest.mark.parametrize("last_n", [1, 2, 5, 100])
def test_penalties_look_so_far_back(sampler, last_n):
    rng = np.random.default_rng(5)
    rows = rows_like_a_model(rng, 40, 50)
    s = sampler(rows)
    for row, x in enumerate(rows):
        history = [int(t) for t in rng.integers(0, 50, 12)]
        got = s(row=row, kept=1, top_k=49, history=history, n_prompt=6, last_n=last_n, repetition=1.5, presence=0.5, frequency=0.25)
        seen = history[-last_n:]
        n_prompt = max(0, len(seen) - 6)
        ids, p = kept(penalised(x, {}, (), seen, n_prompt, 1.5, 0.5, 0.25), 1.0, 49)
        assert ids_of(got) == list(ids)
        q = np.array([v for _, v in got["kept"]])
        assert np.allclose(q / q.sum(), p, rtol=2e-5, atol=1e-9)


def test_awkward_rows_leave_a_token(sampler):
    n = 500
    rng = np.random.default_rng(6)
    rows = np.array([np.full(n, 1.5), np.where(np.arange(n) == 3, 90.0, -90.0),
                     np.where(rng.random(n) < 0.9, -np.inf, rng.normal(0, 2, n))], np.float32)
    s = sampler(rows)
    for row, x in enumerate(rows):
        for order in (dict(top_n_sigma=0.01), dict(typical_p=0.01), dict(xtc_probability=1, xtc_threshold=0.0001),
                      dict(typical_p=0.5, top_p=0.1, min_p=1.0, xtc_probability=1, xtc_threshold=0.01)):
            for token in s(row=row, draws=20, **order)["tokens"]:
                assert 0 <= token < n and np.isfinite(x[token])


def text(server, **fields):
    reply = server.chat(max_tokens=12, seed=5, **fields)
    assert reply.status == 200 and not reply.get("x-ignored-params"), reply.body
    return reply.json["choices"][0]["message"]["content"]


def test_the_server_takes_them(real):
    greedy = text(real, temperature=0)
    assert text(real, temperature=1.5, top_n_sigma=1e-6) == greedy
    assert text(real, temperature=1.5, typical_p=0.9) != text(real, temperature=1.5)
    assert text(real, temperature=0.01, xtc_probability=1, xtc_threshold=0.001) != greedy
    assert text(real, temperature=0, repetition_penalty=5, repeat_last_n=0) == greedy
    penalised = text(real, temperature=0, repetition_penalty=5)
    assert penalised == text(real, temperature=0, repetition_penalty=5, repeat_last_n=-1) != greedy
    assert text(real, temperature=0, repetition_penalty=5, repeat_last_n=1) != penalised


@pytest.mark.parametrize("field, value", [("typical_p", 1.5), ("xtc_threshold", -1), ("top_n_sigma", "x"), ("repeat_last_n", -2)])
def test_values_out_of_range_are_refused(real, field, value):
    reply = real.chat(**{field: value})
    assert reply.status == 400 and reply.error["param"] == field
