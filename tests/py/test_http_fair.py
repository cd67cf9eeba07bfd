"""Fairness between keys under overload: caps, shares, priorities, deadlines, places in the queue, and sharing of
cached prompts. The tests check orders and counts, not times."""

import contextlib
import json
import threading

import pytest

from http_rig import start_fake, wait_for

PATH = "/v1/completions"
ENDLESS = {"ignore_eos": True, "max_tokens": 8000}
SLOW_MS = 5  # of a step: an endless request lasts 40 s


def body(n=8, out=2, first=1000, **fields):
    return {"prompt": [first + i for i in range(n)], "max_tokens": out, "temperature": 0, "ignore_eos": True, **fields}


def as_key(key):
    return [("Authorization", f"Bearer {key}")] if key else []


@contextlib.contextmanager
def keyed(tmp_path, lines, *options, step_ms=SLOW_MS):
    keys = tmp_path / "keys"
    keys.write_text("".join(line + "\n" for line in lines))
    with start_fake("--server.api_key_file", str(keys), *options, environment={"MILLRACE_API_KEY": "sk-probe"}, step_ms=step_ms) as s:
        yield s


def metric(server, name, labels=""):
    text = server.ask("GET", "/metrics", headers=as_key("sk-probe")).body.decode()
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name + "{") and labels in line)


def wait_waiting(server, n, key):
    wait_for(lambda: metric(server, "millrace_key_requests_waiting", f'key="{key}"') == n, f"{n} of {key} wait")


class Asked:
    """Requests that wait side by side; the order in which the engine was done with them, by its own journal."""

    def __init__(self, server):
        self.server = server
        self.names = []
        self.replies = {}
        self.threads = []

    def ask(self, name, fields, key=None):
        place = len(self.names)
        self.names.append(name)

        def run():
            self.replies[place] = self.server.post(PATH, fields, as_key(key))

        self.threads.append(threading.Thread(target=run))
        self.threads[-1].start()

    def all(self):
        """(name, reply) of each, first done first. They came last, and one after the other where names differ."""
        for thread in self.threads:
            thread.join()
        text = self.server.ask("GET", "/debug/journal", headers=as_key("sk-probe")).body.decode()
        records = [json.loads(line) for line in text.splitlines()]
        came = [r["request"] for r in records if r["kind"] == "submit"][-len(self.names) :]
        done = [came.index(r["request"]) for r in records if r["kind"] == "end" and r["request"] in came]
        assert len(done) == len(self.names)
        return [(self.names[place], self.replies[place]) for place in done]


@contextlib.contextmanager
def busy(server, key=None):
    """One endless request holds the only place until the block ends."""
    with server.raw() as c:
        c.request("POST", PATH, body(4, **ENDLESS, stream=True) | ENDLESS, as_key(key))
        c.head()
        c.chunk()
        yield c


ONE_PLACE = ["--sched.max_running", "1"]


def test_metrics_tell_names_and_never_keys(tmp_path):
    with keyed(tmp_path, ["sk-hidden name=shown", "", "sk-unnamed"]) as server:
        assert server.post(PATH, body(8, 3), as_key("sk-hidden")).status == 200
        assert server.post(PATH, body(5, 2), as_key("sk-unnamed")).status == 200
        text = server.ask("GET", "/metrics", headers=as_key("sk-probe")).body.decode()
        assert "sk-" not in text
        for kind, key, n in [("computed", "shown", 8), ("output", "shown", 3), ("computed", "line:3", 5)]:
            assert metric(server, "millrace_key_tokens_total", f'key="{key}",kind="{kind}"') == n


def test_the_queue_of_a_key_is_bounded_and_others_go_on(tmp_path):
    lines = ["sk-a name=a max_queued=2", "sk-b name=b", "sk-c name=c max_queued_tokens=20"]
    with keyed(tmp_path, lines, *ONE_PLACE) as server:
        asked = Asked(server)
        with busy(server, "sk-b"):
            for i in range(2):
                asked.ask("a", body(), "sk-a")
            wait_waiting(server, 2, "a")
            reply = server.post(PATH, body(), as_key("sk-a"))
            assert reply.status == 429 and reply.error["code"] == "key_queue_full"
            assert int(reply.get("retry-after")) >= 1 and "limit is 2" in reply.error["message"]
            for i in range(2):
                asked.ask("c", body(10), "sk-c")
            wait_waiting(server, 2, "c")
            reply = server.post(PATH, body(1), as_key("sk-c"))
            assert reply.status == 429 and "20" in reply.error["message"]
            for i in range(3):
                asked.ask("b", body(), "sk-b")
            wait_waiting(server, 3, "b")
        assert all(reply.status == 200 for _, reply in asked.all())
        assert metric(server, "millrace_key_refused_total", 'key="a"') == 1


def test_the_queue_of_all_is_bounded_by_tokens():
    with start_fake(*ONE_PLACE, "--sched.max_queued_tokens", "30", step_ms=SLOW_MS) as server:
        asked = Asked(server)
        with busy(server):
            asked.ask("x", body(30))
            server.wait_metric("vllm:num_requests_waiting", 1)
            reply = server.post(PATH, body(1))
            assert reply.status == 429 and reply.error["code"] == "queue_full" and "30" in reply.error["message"]
        assert asked.all()[0][1].status == 200


def test_tokens_per_minute_are_prompt_and_output_and_unused_ones_come_back(tmp_path):
    with keyed(tmp_path, ["sk-a name=a tokens_per_minute=100", "sk-b name=b"]) as server:
        assert server.post(PATH, body(10, 60), as_key("sk-a")).status == 200
        reply = server.post(PATH, body(10, 60), as_key("sk-a"))
        assert reply.status == 429 and reply.error["code"] == "tokens_per_minute"
        assert 1 <= int(reply.get("retry-after")) <= 60
        assert server.post(PATH, body(10, 60), as_key("sk-b")).status == 200


def test_no_more_of_a_key_runs_than_its_cap(tmp_path):
    with keyed(tmp_path, ["sk-a name=a max_running=2", "sk-b name=b"], step_ms=2) as server:
        streams = [server.raw() for _ in range(3)]
        for c in streams:
            c.request("POST", PATH, body(4, **ENDLESS, stream=True) | ENDLESS, as_key("sk-a"))
        wait_waiting(server, 1, "a")
        assert metric(server, "millrace_key_sequences_running", 'key="a"') == 2
        assert server.post(PATH, body(), as_key("sk-b")).status == 200
        assert metric(server, "millrace_key_requests_waiting", 'key="a"') == 1
        for c in streams:
            c.close()


def test_priority_orders_the_queue_lower_first():
    with start_fake(*ONE_PLACE, step_ms=SLOW_MS) as server:
        asked = Asked(server)
        with busy(server):
            for i, priority in enumerate([5, None, -3, 1, 2**31 - 1]):
                asked.ask(priority, body(4 + i, priority=priority))
                server.wait_metric("vllm:num_requests_waiting", i + 1)
        assert [name for name, _ in asked.all()] == [-3, None, 1, 5, 2**31 - 1]


def test_a_request_cannot_go_before_its_keys_priority(tmp_path):
    with keyed(tmp_path, ["sk-late name=late priority=3", "sk-b name=b", "sk-c name=c priority=-2"], *ONE_PLACE) as server:
        asked = Asked(server)
        with busy(server, "sk-b"):
            for key, name in [("sk-late", "late"), ("sk-b", "b"), ("sk-c", "c")]:
                asked.ask(name, body(priority=-31), key)
                wait_waiting(server, 1, name)
        assert [name for name, _ in asked.all()] == ["c", "b", "late"]


def test_the_deadline_of_a_request_goes_before_the_ticket():
    with start_fake(*ONE_PLACE, "--sched.age", "1000s", step_ms=SLOW_MS) as server:
        asked = Asked(server)
        with busy(server):
            for i, deadline in enumerate([None, 900000, 600000]):
                asked.ask(deadline, body(4 + i, deadline_ms=deadline))
                server.wait_metric("vllm:num_requests_waiting", i + 1)
        order = asked.all()
        assert [name for name, _ in order] == [600000, 900000, None]


def test_a_deadline_that_passes_in_the_queue_is_504_or_an_error_event():
    with start_fake(*ONE_PLACE, step_ms=SLOW_MS) as server, busy(server):
        reply = server.post(PATH, body(deadline_ms=200))
        assert reply.status == 504 and reply.error["code"] == "deadline_exceeded"
        events = server.post(PATH, body(deadline_ms=200, stream=True)).events()
        assert len(events) == 1 and events[0]["error"]["code"] == "deadline_exceeded"


def test_a_deadline_that_cannot_be_met_is_429_at_once():
    options = [*ONE_PLACE, "--sched.max_batch_tokens", "16", "--sched.chunk_max", "16"]
    with start_fake(*options, step_ms=20) as server:
        assert server.post(PATH, body(200)).status == 200  # 13 steps: the rate is known by now
        asked = Asked(server)
        with busy(server):
            asked.ask("before", body(2000))
            server.wait_metric("vllm:num_requests_waiting", 1)
            reply = server.post(PATH, body(100, deadline_ms=300))
            assert reply.status == 429 and reply.error["code"] == "deadline_unreachable"
            assert int(reply.get("retry-after")) >= 1 and "2000 prompt tokens are ahead" in reply.error["message"]
        assert asked.all()[0][1].status == 200


def test_a_waiting_stream_is_told_its_place():
    with start_fake(*ONE_PLACE, "--server.heartbeat", "100ms", step_ms=SLOW_MS) as server:
        streams = []
        with busy(server):
            for i in range(3):
                c = server.raw()
                c.request("POST", PATH, body(4 + i, stream=True))
                c.head()
                streams.append(c)
                server.wait_metric("vllm:num_requests_waiting", i + 1)
            for i, c in enumerate(streams):
                wait_for(lambda c=c, i=i: c.chunk() == f": queued position={i + 1}\n".encode(), f"place {i + 1}")
            streams[0].close()
            wait_for(lambda: streams[1].chunk() == b": queued position=1\n", "the next place")
        for c in streams[1:]:
            data = b""
            while part := c.chunk():
                data += part
            assert data.endswith(b"data: [DONE]\n\n")
            lines = data.decode().split("data: ", 1)[1]
            assert "queued" not in lines, "no place once it runs"
            c.close()


# ---- shares ----


def test_a_flood_of_one_key_passes_another_keys_request_at_most_once(tmp_path):
    with keyed(tmp_path, ["sk-flood name=flood", "sk-light name=light"], *ONE_PLACE) as server:
        asked = Asked(server)
        with busy(server, "sk-flood"):
            for i in range(20):
                asked.ask("flood", body(50 + i, 4), "sk-flood")
            wait_waiting(server, 20, "flood")
            asked.ask("light", body(50, 4, first=5000), "sk-light")
            wait_waiting(server, 1, "light")
        order = [name for name, _ in asked.all()]
        assert order.index("light") <= 1, order


@pytest.mark.parametrize("weight", [1, 3])
def test_keys_that_all_wait_are_served_by_weight(tmp_path, weight):
    n = 24
    with keyed(tmp_path, [f"sk-a name=a weight={weight}", "sk-b name=b", "sk-x name=x"], *ONE_PLACE) as server:
        asked = Asked(server)
        with busy(server, "sk-x"):
            for i in range(n):
                for name, first in [("a", 100), ("b", 9000)]:
                    asked.ask(name, body(40, 4, first=first + 50 * i), f"sk-{name}")
                    wait_waiting(server, i + 1, name)
        order = [name for name, _ in asked.all()]
        half = order[: n if weight == 1 else n + n // 3]
        want = len(half) * weight / (weight + 1)
        assert abs(half.count("a") - want) <= 2, order


# ---- whose cached prompts are shared ----


def cached(server, key, **fields):
    reply = server.post(PATH, body(64, 2, **fields), as_key(key))
    return reply.json["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_cached_prompts_are_shared_within_a_key_and_a_salt_only(tmp_path):
    lines = ["sk-a name=a", "sk-a2 name=a", "sk-b name=b", "sk-plain"]
    with keyed(tmp_path, lines) as server:
        assert cached(server, "sk-a") == 0
        assert cached(server, "sk-a") > 0
        assert cached(server, "sk-a2") > 0, "another key of the same name"
        assert cached(server, "sk-b") == 0
        assert cached(server, "sk-plain") == 0
        assert cached(server, "sk-a", cache_salt="x") == 0
        assert cached(server, "sk-a", cache_salt="x") > 0
        assert cached(server, "sk-a", cache_salt="y") == 0
        assert cached(server, "sk-b", cache_salt="x") == 0
        assert cached(server, "sk-a", cache_salt="") > 0


def test_a_salt_cannot_widen_what_a_key_sees(tmp_path):
    with keyed(tmp_path, ["sk-a name=a", "sk-b name=b"]) as server:
        assert cached(server, "sk-a") == 0
        for salt in ["a", "t2:na", "na", "b", "nb", "t2:nb", "s1:x"]:
            assert cached(server, "sk-b", cache_salt=salt) == 0


@pytest.mark.parametrize("isolation", ["global", "off"])
def test_isolation_can_be_given_up(tmp_path, isolation):
    with keyed(tmp_path, ["sk-a name=a", "sk-b name=b"], "--prefix.isolation", isolation) as server:
        assert cached(server, "sk-a") == 0
        assert cached(server, "sk-b") > 0
        assert (cached(server, "sk-b", cache_salt="x") > 0) == (isolation == "off")
