#!/usr/bin/env python3
"""Speed of the KV memory and of the schedule. Only prints; no time fails it.

    memory_bench.py oversubscribe   one load on arenas that hold all of it twice, once, half, a quarter
    memory_bench.py long            a sequence of 8,192 tokens on an arena of 2,048, with swap space
    memory_bench.py hits            time to first token of a 2,000-token prompt, new and cached; 64 equal ones at once
    memory_bench.py attack          8 streams decode while prompts of the maximum length keep arriving
    memory_bench.py fair            a light key beside a key that floods
    memory_bench.py all             everything

Standard library only; run it on a quiet machine."""

import argparse
import json
import os
import tempfile

import load
import serve_bench
from serve_bench import CACHE, ROOT, millrace

BLOCK_TOKENS = 16


def block_bytes(options):
    """Bytes a block of the default KV type, from the server itself."""
    with millrace(options, ["--kv.bytes", str(256 << 20)]) as server:
        return (256 << 20) / server.gauge("millrace_kv_blocks")


def streams_of(server, bodies, key=None):
    """All at once; (requests, seconds)."""
    waiting = dict(enumerate(bodies))
    runner = load.Load(server.port, lambda lane: load.Request(waiting.pop(lane), key=key) if lane in waiting else None)
    seconds = runner.run(len(bodies), limit_s=1800)
    return runner.finished, seconds


def failed(requests):
    return [request.error for request in requests if request.error]


# --- more load than the arena holds


def oversubscribe(options):
    lanes, n_in, n_out = 32, 192, 256
    size = block_bytes(options)
    need = lanes * (n_in + n_out) // BLOCK_TOKENS
    print(f"\n{lanes} streams of {n_in} ids in, {n_out} out, twice each: they need {need} blocks at their end")
    print("| load / arena | swap | tok/s | goodput of the one that fits | failed | preemptions | recomputed |\n|---|---|---|---|---|---|---|")
    fits = None
    for ratio in (0.5, 1.0, 2.0, 4.0):
        for swap in ("ram", "file", "none") if ratio > 1 else ("none",):
            with tempfile.TemporaryDirectory() as folder:
                extra = ["--kv.bytes", str(int(need / ratio * size)), "--prefix.enabled=false"]
                if swap == "ram":
                    extra += ["--kv.host_bytes", str(int(4 * need * size))]
                if swap == "file":
                    extra += ["--kv.spill.path", folder, "--kv.spill.bytes", str(int(4 * need * size))]
                with millrace(options, extra) as server:
                    left = [2] * lanes
                    counter = iter(range(10_000))

                    def next_request(lane, left=left, counter=counter):
                        if left[lane] == 0:
                            return None
                        left[lane] -= 1
                        number = next(counter)
                        return load.Request(load.completion(load.random_ids(n_in, number), n_out, number))

                    runner = load.Load(server.port, next_request)
                    seconds = runner.run(lanes, limit_s=1800)
                    done = [request for request in runner.finished if not request.error]
                    rate = sum(request.tokens for request in done) / seconds
                    preempted = server.gauge("vllm:num_preemptions_total")
                    computed = server.gauge("millrace_prompt_tokens_computed_total") + server.gauge("millrace_recomputed_tokens_total")
                    again = server.gauge("millrace_recomputed_tokens_total")
            if ratio == 0.5:
                fits = rate
            print(
                f"| {ratio:.1f}x | {swap} | {rate:.1f} | {rate / fits:.0%} | {len(runner.finished) - len(done)} | {preempted:.0f}"
                f" | {again:.0f} ({again / max(1, computed + sum(r.tokens for r in done)):.1%}) |",
                flush=True,
            )
    print("bars at 2x: no failed request, goodput at least 90 %, recomputed under 2 % of the tokens")


# --- one sequence longer than the arena


class Kept(load.Request):
    """Keeps what came: texts and log-probabilities of all tokens."""

    raw = b""

    def take(self, data, now):
        self.raw += data
        super().take(data, now)

    def choices(self):
        events = [json.loads(line[6:]) for line in self.raw.split(b"\n") if line.startswith(b"data: {")]
        return [choice for event in events for choice in event["choices"]]


def long(options):
    size = block_bytes(options)
    ids, n_out = load.random_ids(8192 - 128, 1), 128
    body = json.dumps({**json.loads(load.completion(ids, n_out, 1)), "logprobs": 5}).encode()
    rows, results = [], []
    for name, blocks, swap in (("arena of 8,192 tokens", 520, None), ("2,048 + RAM", 128, "ram"), ("2,048 + file", 128, "file")):
        with tempfile.TemporaryDirectory() as folder:
            extra = ["--kv.bytes", str(int(blocks * size)), "--prefix.enabled=false"]
            if swap == "ram":
                extra += ["--kv.host_bytes", str(int(560 * size))]
            if swap == "file":
                extra += ["--kv.spill.path", folder, "--kv.spill.bytes", str(int(560 * size))]
            with millrace(options, extra) as server:
                begin = server.memory_kib("VmRSS")
                asked = [Kept(body)]
                runner = load.Load(server.port, lambda lane: asked.pop() if asked else None)
                runner.run(1, limit_s=1800)
                one = runner.finished[0]
                if one.error:
                    raise SystemExit(f"long: {one.error}")
                results.append(one.choices())
                rows.append(
                    (name, one.events[0] - one.sent, (len(one.events) - 1) / (one.events[-1] - one.events[0]), begin, server.memory_kib("VmHWM"))
                )
    print(f"\none sequence of 8,192 tokens ({len(ids)} in, {n_out} out)")
    print("| memory | prefill s | decode tok/s | RSS before MiB | peak MiB |\n|---|---|---|---|---|")
    for name, first, rate, begin, peak in rows:
        print(f"| {name} | {first:.1f} | {rate:.1f} | {begin / 1024:.0f} | {peak / 1024:.0f} |")
    same = all(result == results[0] for result in results)
    print(f"tokens and log-probabilities of the {len(results[0])} events: {'equal' if same else 'DIFFERENT'}")


# --- prefix hits


def hits(options):
    with millrace(options) as server:
        load.closed_loop(server.port, 2, 1, 64, 16, 1)
        times = {"new": [], "cached": []}
        for turn in range(options.repeats + 2):
            prompt = load.random_ids(2000, 70 + turn)
            for kind in ("new", "cached"):
                requests, _ = streams_of(server, [load.completion(prompt, 4, 1)])
                times[kind].append((requests[0].events[0] - requests[0].sent) * 1e3)
        new, cached = (load.percentile(times[kind], 0.5) for kind in ("new", "cached"))
        print(f"\n2,000-token prompt: first token after {new:.0f} ms, on a hit after {cached:.1f} ms: {new / cached:.0f}x (bar 20x)")
        before = server.gauge("millrace_prompt_tokens_computed_total")
        requests, seconds = streams_of(server, [load.completion(load.random_ids(2000, 999), 4, n) for n in range(64)])
        computed = server.gauge("millrace_prompt_tokens_computed_total") - before
        firsts = [(request.events[0] - request.sent) * 1e3 for request in requests]
        read = sum(request.cached_tokens for request in requests)
        print(
            f"64 equal prompts of 2,000 tokens at once: {64 * 2000 - read} of {64 * 2000} prompt tokens computed, {read} read"
            f" (counter: {computed:.0f}), first tokens p50 {load.percentile(firsts, 0.5):.0f} max {max(firsts):.0f} ms, all after {seconds:.2f} s"
        )


# --- long prompts beside decoding streams


def gaps_of(requests, begin=0.0, end=float("inf")):
    return [
        (later - earlier) * 1e3
        for request in requests
        for earlier, later in zip(request.events, request.events[1:], strict=False)
        if begin <= later <= end
    ]


def attack(options):
    with millrace(options) as server:
        load.closed_loop(server.port, 2, 1, 64, 16, 1)
        solo, _ = streams_of(server, [load.completion(load.random_ids(16, n), 192, n) for n in range(8)])
        counter = iter(range(10_000))
        decoding = {lane: load.completion(load.random_ids(16, 50 + lane), 192, lane) for lane in range(8)}
        span = {}

        def next_request(lane):
            if lane < 8:
                return load.Request(decoding.pop(lane)) if lane in decoding else None
            if not any(active < 8 for active in runner.active):
                return None
            number = next(counter)
            return load.Request(load.completion(load.random_ids(8192 - 8, 5000 + number), 2, number))

        def begin_attack(running):
            streams = [request for lane, request in running.active.items() if lane < 8]
            if not span and len(streams) == 8 and min(len(request.events) for request in streams) >= 8:
                span["begin"] = max(request.events[-1] for request in streams)
                running.start(8)
                running.start(9)

        runner = load.Load(server.port, next_request)
        runner.run(8, begin_attack, limit_s=1800)
        victims = [request for request in runner.finished if request.lane < 8]
        found = gaps_of(victims, span["begin"])
        alone = load.percentile(gaps_of(solo), 0.99)
        p99 = load.percentile(found, 0.99)
        bound = 1.5 * alone + float(options.step_ms)
        print(
            f"\n8 streams decode: gap p99 {alone:.0f} ms alone, {p99:.0f} ms (p50 {load.percentile(found, 0.5):.0f}, max {max(found):.0f})"
            f" while prompts of 8,184 tokens keep arriving; bar 1.5 x alone + step budget = {bound:.0f} ms"
        )


# --- one key floods


def fair(options):
    with tempfile.NamedTemporaryFile("w") as keys:
        keys.write("light-key name=light\nflood-key name=flood\n")
        keys.flush()
        with millrace(options, ["--server.api_key_file", keys.name]) as server:
            light = lambda n: load.completion(load.random_ids(512, 3000 + n), 8, n)  # noqa: E731
            first = lambda request: (request.events[0] - request.sent) * 1e3  # noqa: E731
            solo = [first(streams_of(server, [light(n)], "light-key")[0][0]) for n in range(12)]
            counter = iter(range(10_000))
            left = [24]

            def next_request(lane):
                number = next(counter)
                if lane == 0:
                    left[0] -= 1
                    return load.Request(light(100 + number), key="light-key") if left[0] >= 0 else None
                return load.Request(load.completion(load.random_ids(512, number), 64, number), key="flood-key") if left[0] > 0 else None

            runner = load.Load(server.port, next_request)
            runner.run(49, limit_s=1800)
            flooded = [first(request) for request in runner.finished if request.lane == 0 and not request.error]
            bound = 2 * load.percentile(solo, 0.99) + 2 * float(options.step_ms)
            print(
                f"\nlight key, prompts of 512 tokens: first token p99 {load.percentile(solo, 0.99):.0f} ms alone,"
                f" {load.percentile(flooded, 0.99):.0f} ms (p50 {load.percentile(flooded, 0.5):.0f}) beside 48 streams of another key;"
                f" bar 2 x alone + two step budgets = {bound:.0f} ms; {len(failed(runner.finished))} failed"
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = {"oversubscribe": oversubscribe, "long": long, "hits": hits, "attack": attack, "fair": fair}
    parser.add_argument("mode", choices=[*modes, "all"])
    parser.add_argument("--binary", default=str(ROOT / "build" / "millrace"))
    parser.add_argument("--model", default=str(CACHE / "models" / "smollm2-135m.gguf"))
    parser.add_argument("--isa", default="auto")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--step-ms", default="200", help="sched.step_target_ms, to set the gaps against")
    parser.add_argument("--set", action="append", default=[], help="further option of millrace, NAME=VALUE")
    options = parser.parse_args()
    options.set = [part for setting in options.set for part in ("--set", setting)]
    serve_bench.describe(options)
    for name in modes if options.mode == "all" else [options.mode]:
        modes[name](options)


if __name__ == "__main__":
    main()
