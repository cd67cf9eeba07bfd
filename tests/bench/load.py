"""Load for the benchmarks: one process, one thread, epoll over raw sockets, a new connection per request.

Deliberately light, because it runs on the same cores as the measured servers. Per event it only takes the time; texts
are not decoded. Standard library only."""

import json
import random
import selectors
import socket
import time


class Request:
    """One streamed completion: arrival times of its events."""

    def __init__(self, body, lane=0, key=None):
        self.body = body
        self.key = key  # API key
        self.lane = lane
        self.sent = 0.0
        self.events = []  # time of each event that carries a choice
        self.tokens = 0
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.error = None
        self.tail = b""
        self.out = b""
        self.sock = None
        self.done = False
        self.finished = 0.0

    def take(self, data, now):
        """Server-sent events may be cut anywhere; a token event holds "text", the last one "usage"."""
        lines = (self.tail + data).split(b"\n")
        self.tail = lines.pop()
        for line in lines:
            if line.startswith(b"data: ") and line[6:7] == b"{":
                if line.startswith(b'data: {"error"'):
                    self.error = line.decode(errors="replace")
                elif b'"text"' in line and (b'"finish_reason":null' in line or b'"text":""' not in line):
                    self.events.append(now)
                if b'"completion_tokens"' in line:
                    usage = json.loads(line[6:])["usage"]
                    self.tokens = usage["completion_tokens"]
                    self.prompt_tokens = usage["prompt_tokens"]
                    self.cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
            elif line.startswith(b"HTTP/1.1 ") and not line.startswith(b"HTTP/1.1 200"):
                self.error = line.decode()
            elif line.startswith(b"data: [DONE]"):
                self.done = True


def completion(prompt_ids, n_tokens, seed):
    """The request all servers get: token ids in, exactly n_tokens out, sampled at 0.8, no prefix reuse."""
    return json.dumps(
        {
            "prompt": prompt_ids,
            "max_tokens": n_tokens,
            "temperature": 0.8,
            "seed": seed,
            "stream": True,
            "stream_options": {"include_usage": True},
            "ignore_eos": True,
            "cache_prompt": False,
        }
    ).encode()


def random_ids(n, seed, low=300, high=40000):
    generator = random.Random(seed)
    return [generator.randrange(low, high) for _ in range(n)]


class Load:
    """Streams run side by side until `next_request(lane)` gives None for each lane."""

    def __init__(self, port, next_request):
        self.port = port
        self.next_request = next_request
        self.selector = selectors.EpollSelector()
        self.finished = []
        self.active = {}  # lane: request

    def start(self, lane):
        request = self.next_request(lane)
        if request is None:
            return
        request.lane = lane
        request.sock = socket.socket()
        request.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        request.sent = time.perf_counter()
        request.sock.connect(("127.0.0.1", self.port))
        request.out = (
            b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b"Connection: close\r\n%sContent-Length: %d\r\n\r\n"
            % (b"Authorization: Bearer %s\r\n" % request.key.encode() if request.key else b"", len(request.body))
        ) + request.body
        request.sock.sendall(request.out)
        request.sock.setblocking(False)
        self.selector.register(request.sock, selectors.EVENT_READ, request)
        self.active[lane] = request

    def end(self, request, now):
        self.selector.unregister(request.sock)
        request.sock.close()
        request.finished = now
        if request.error is None and not request.done:
            request.error = "the connection ended before [DONE]"
        del self.active[request.lane]
        self.finished.append(request)
        self.start(request.lane)

    def run(self, lanes, on_events=None, limit_s=600):
        """on_events(load) is called after each batch of arrivals; it may start further lanes."""
        began = time.perf_counter()
        for lane in range(lanes):
            self.start(lane)
        while self.active:
            for key, _ in self.selector.select(1.0):
                request = key.data
                now = time.perf_counter()
                try:
                    data = request.sock.recv(65536)
                except BlockingIOError:
                    continue
                except OSError as error:
                    request.error = str(error)
                    data = b""
                if data:
                    request.take(data, now)
                if not data or request.done:
                    self.end(request, now)
            if on_events:
                on_events(self)
            if time.perf_counter() - began > limit_s:
                raise SystemExit(f"load: not finished after {limit_s} s")
        return time.perf_counter() - began


def closed_loop(port, lanes, per_lane, n_in, n_out, seed):
    """`lanes` streams, each asking per_lane times in a row. Returns (requests, seconds)."""
    left = [per_lane] * lanes
    counter = iter(range(seed, seed + 1_000_000))

    def next_request(lane):
        if left[lane] == 0:
            return None
        left[lane] -= 1
        number = next(counter)
        return Request(completion(random_ids(n_in, number), n_out, number))

    load = Load(port, next_request)
    seconds = load.run(lanes)
    bad = [request.error for request in load.finished if request.error]
    if bad:
        raise SystemExit(f"load: {len(bad)} requests failed, the first: {bad[0]}")
    short = [request for request in load.finished if request.tokens != n_out]
    if short:
        raise SystemExit(f"load: {len(short)} answers have {short[0].tokens} tokens, asked for {n_out}")
    return load.finished, seconds


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def summary(requests, seconds):
    first = [(request.events[0] - request.sent) * 1e3 for request in requests]
    gaps = [
        (later - earlier) * 1e3
        for request in requests
        for earlier, later in zip(request.events, request.events[1:], strict=False)
    ]
    return {
        "tok_s": sum(request.tokens for request in requests) / seconds,
        "ttft_p50": percentile(first, 0.5),
        "ttft_p99": percentile(first, 0.99),
        "itl_p50": percentile(gaps, 0.5),
        "itl_p99": percentile(gaps, 0.99),
    }
