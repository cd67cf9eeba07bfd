"""A client that leaves frees its sequence and its KV blocks within a step, whenever and however it
leaves (cases G002, G032, G042; the issue's bar "nothing leaks")."""

import random
import threading

import pytest

from http_rig import CHAT, COMPLETION, SMALL_QUARANTINE, TSAN, Closed, start_fake

CHAT_PATH = "/v1/chat/completions"
ENDLESS = {"ignore_eos": True, "max_tokens": 4000}


@pytest.fixture(scope="module")
def narrow():
    """One sequence at a time, 8 rows a step: queues and long prefills are easy to make."""
    options = ["--sched.max_running", "1", "--sched.max_batch_tokens", "8", "--sched.chunk_max", "8"]
    with start_fake(*options, "--kv-blocks", "1024", step_ms=2) as server:
        yield server
        server.wait_idle()


def ask(server, stream, **fields):
    c = server.raw()
    c.request("POST", CHAT_PATH, {**CHAT, **ENDLESS, "stream": stream, **fields})
    return c


def in_queue(server, stream):
    blocker = ask(server, True)
    blocker.head()
    blocker.chunk()
    victim = ask(server, stream)
    server.wait_metric("vllm:num_requests_waiting", 1)
    return victim, blocker


def in_prefill(server, stream):
    victim = ask(server, stream, messages=[{"role": "user", "content": "word " * 3000}])
    server.wait_metric("vllm:num_requests_running", 1)
    return victim, None


def in_decode(server, stream):
    before = server.metric("vllm:generation_tokens_total")
    victim = ask(server, stream)
    if stream:
        victim.head()
        for _ in range(3):
            victim.chunk()
    else:
        while server.metric("vllm:generation_tokens_total") < before + 3:
            pass
    return victim, None


@pytest.mark.parametrize("how", ["fin", "rst", "half"])
@pytest.mark.parametrize("phase", [in_queue, in_prefill, in_decode])
@pytest.mark.parametrize("stream", [True, False])
def test_leaving_frees_everything(narrow, how, phase, stream):
    victim, blocker = phase(narrow, stream)
    gone = narrow.metric("millrace_client_disconnects_total")
    victim.leave(how)
    narrow.wait_metric("millrace_client_disconnects_total", gone + 1)
    if blocker:
        narrow.wait_metric("vllm:num_requests_waiting", 0)
        assert narrow.metric("vllm:num_requests_running") == 1
        blocker.chunk()  # goes on
        blocker.close()
    narrow.wait_idle()
    if how == "half":
        with pytest.raises(Closed):  # cut, never ended as if it were whole
            victim.reply()
        victim.close()


def test_leaving_the_queue_costs_no_prefill(narrow):
    blocker = ask(narrow, True)
    blocker.head()
    blocker.chunk()
    before = narrow.metric("millrace_prompt_tokens_computed_total")
    waiting = [ask(narrow, i % 2 == 0) for i in range(50)]
    narrow.wait_metric("vllm:num_requests_waiting", 50)
    for c in waiting[:49]:
        c.close()
    narrow.wait_metric("vllm:num_requests_waiting", 1)
    assert narrow.metric("millrace_prompt_tokens_computed_total") == before
    blocker.close()
    waiting[49].close()
    narrow.wait_idle()


def test_a_leaver_never_wedges_one_that_prefills(fake):
    rng = random.Random(1)
    long = [{"role": "user", "content": "word " * 1500}]
    for _ in range(50):
        a = fake.raw()
        a.request("POST", CHAT_PATH, {**CHAT, "messages": long, "stream": rng.random() < 0.5})
        b = fake.raw()
        b.request("POST", CHAT_PATH, {**CHAT, **ENDLESS, "stream": True})
        b.head()
        for _ in range(rng.randrange(3)):
            b.chunk()
        b.leave(rng.choice(["fin", "rst"]))
        assert a.reply().status == 200
        assert fake.chat().status == 200
        a.close()
    fake.wait_idle()


def test_a_client_that_closes_right_after_done_is_a_success(fake):
    before = fake.metric("millrace_client_disconnects_total")
    for _ in range(50):
        with fake.raw() as c:
            c.request("POST", CHAT_PATH, {**CHAT, "stream": True})
            c.until(b"data: [DONE]\n\n")
            c.reset()
    fake.wait_idle()
    assert fake.metric("millrace_client_disconnects_total") == before
    lines = [line for line in fake.log_text().splitlines() if "tokens_out=8 " in line and " stream=1 " in line]
    assert len(lines) >= 50 and all(line.endswith(" end=ok") for line in lines[-50:])


def one_random_request(server, rng, reference):
    """Leaves at random, or checks that the answer is the reference: company must not matter."""
    stream = rng.random() < 0.5
    stays = rng.random() < 0.3
    fields = COMPLETION if stays else {**COMPLETION, "ignore_eos": True, "max_tokens": rng.choice([1, 50, 1000])}
    with server.raw() as c:
        c.request("POST", "/v1/completions", {**fields, "stream": stream})
        if stays:
            reply = c.reply()
            choices = [e["choices"][0] for e in reply.events()] if stream else reply.json["choices"]
            assert "".join(choice["text"] for choice in choices) == reference
            return
        try:
            for _ in range(rng.randrange(4) if stream else 0):
                if not c.buffer.endswith(b"0\r\n\r\n"):
                    c.more()
        except Closed:
            pass
        c.leave(rng.choice(["fin", "rst", "half"]))


def run_random_requests(server, n, seed, reference):
    errors = []

    def work(k):
        rng = random.Random(seed * 100 + k)
        try:
            for _ in range(n // 16):
                one_random_request(server, rng, reference)
        except Exception as error:  # reported by the main thread
            errors.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors, errors[:3]
    server.wait_idle()


def test_two_thousand_random_leavers_leak_nothing():
    with start_fake("--kv-blocks", "4200", "--log.access=false", environment=SMALL_QUARANTINE) as server:
        reference = server.complete().json["choices"][0]["text"]
        run_random_requests(server, 208, 1, reference)
        threads = server.n_threads()
        rss = server.rss_kib()
        run_random_requests(server, 1808, 2, reference)
        assert TSAN or server.rss_kib() - rss <= 2048
        assert server.n_threads() == threads
        assert server.complete().json["choices"][0]["text"] == reference
