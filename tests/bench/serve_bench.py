#!/usr/bin/env python3
"""Speed of the server. Only prints: no mode of this program fails because of a time.

    serve_bench.py peers       millrace against llama.cpp's server: 1, 8, 32 streams on the same cores, alternating
    serve_bench.py batching    16 decoding streams while a 512-token prompt arrives; decode at 1 and 32 streams
    serve_bench.py neighbour   throughput beside another process that keeps one core busy
    serve_bench.py memory      resident memory with the KV arena full, time to ready, size of the binary
    serve_bench.py all         everything

llama.cpp comes from the xllamacpp wheel (installed into the cache folder at first use, tests/py/requirements-bench.txt);
--native PATH adds a llama-server built elsewhere (tests/bench/build-llama-server builds one from a PyPI package).
Standard library only; run it on a quiet machine."""

import argparse
import os
import pathlib
import platform
import re
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import load

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "millrace"
STREAMS = {1: 8, 8: 4, 32: 3}  # streams: requests of each


# --- servers


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """One server process on the chosen cores; `command` gets the port."""

    def __init__(self, name, command, ready_path):
        self.name = name
        self.command = command
        self.ready_path = ready_path

    def __enter__(self):
        self.port = free_port()
        self.log = tempfile.TemporaryFile()
        environment = {key: value for key, value in os.environ.items() if not key.startswith("MILLRACE_")}
        began = time.perf_counter()
        self.process = subprocess.Popen(
            self.command(self.port), stdout=self.log, stderr=subprocess.STDOUT, env=environment
        )
        while not self.answers():
            if self.process.poll() is not None or time.perf_counter() - began > 120:
                self.log.seek(0)
                raise SystemExit(f"{self.name} did not start:\n{self.log.read().decode(errors='replace')[-3000:]}")
            time.sleep(0.002)
        self.ready_s = time.perf_counter() - began
        return self

    def answers(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{self.ready_path}", timeout=1) as reply:
                return reply.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def metrics(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as reply:
            return reply.read().decode()

    def gauge(self, name):
        return sum(
            float(line.rsplit(" ", 1)[1]) for line in self.metrics().splitlines() if re.match(re.escape(name) + r"[ {]", line)
        )

    def memory_kib(self, key):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(rf"^{key}:\s+(\d+)", status, re.M).group(1))

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGINT)  # SIGTERM waits for balancers to see it
        try:
            self.process.wait(40)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def millrace(options, extra=()):
    command = [options.binary, "serve", "--model", options.model, "--cpu.threads", str(options.threads)]
    command += ["--cpu.isa", options.isa, "--log.access=false", *extra, *options.set]
    return Server("millrace", lambda port: [*command, "--port", str(port)], "/ready")


# The peer's server runs in a process of its own, like ours.
XLLAMACPP = """
import signal, sys
import xllamacpp
p = xllamacpp.CommonParams()
p.model.path, p.port = sys.argv[1], int(sys.argv[2])
p.n_parallel, p.n_ctx, p.n_batch, p.n_ubatch = 32, 8192, 2048, 512
p.cpuparams.n_threads = p.cpuparams_batch.n_threads = int(sys.argv[3])
p.kv_unified, p.cache_prompt, p.cache_ram_mib, p.slot_prompt_similarity = False, False, 0, 0.0
server = xllamacpp.Server(p)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
signal.pause()
"""


def xllamacpp(options):
    pins = ROOT / "tests" / "py" / "requirements-bench.txt"
    version = re.search(r"xllamacpp==(\S+)", pins.read_text()).group(1)
    venv = CACHE / "tests" / f"venv-bench-{version}"
    python = venv / "bin" / "python"
    if not (venv / ".complete").exists():
        print(f"installing xllamacpp {version} into {venv}", flush=True)
        subprocess.run(["/usr/bin/python3", "-m", "venv", "--clear", venv], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", pins], check=True)
        (venv / ".complete").touch()
    command = [python, "-c", XLLAMACPP, options.model]
    return Server("xllamacpp", lambda port: [*command, str(port), str(options.threads)], "/health")


def native(options):
    t = str(options.threads)
    flags = f"-np 32 -c 8192 -t {t} -tb {t} -fa on -b 2048 -ub 512 --no-cache-prompt --cache-ram 0 -sps 0 --no-kv-unified"
    command = [options.native, "-m", options.model, *flags.split(), "--host", "127.0.0.1"]
    return Server("llama-server", lambda port: [*command, "--port", str(port)], "/health")


# --- the machine


def foreign_cpu():
    """(busy, all) ticks of all cores since boot."""
    fields = [int(value) for value in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return sum(fields) - fields[3] - fields[4], sum(fields)


def describe(options):
    info = pathlib.Path("/proc/cpuinfo").read_text()
    model = re.search(r"^model name\s*:\s*(.*)", info, re.M)
    flags = set(re.search(r"^flags\s*:\s*(.*)", info, re.M).group(1).split()) if "flags" in info else set()
    levels = [flag for flag in ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8") if flag in flags]
    cores = len(os.sched_getaffinity(0))
    memory = int(re.search(r"MemTotal:\s+(\d+)", pathlib.Path("/proc/meminfo").read_text()).group(1)) / 2**20
    version = subprocess.run([options.binary, "--version"], capture_output=True, text=True).stdout.strip()
    busy = foreign_cpu()
    time.sleep(1)
    after = foreign_cpu()
    share = (after[0] - busy[0]) / max(1, after[1] - busy[1]) * os.cpu_count()
    print(f"machine   {model.group(1) if model else platform.machine()}, {cores} cores used, {memory:.0f} GiB, {' '.join(levels)}")
    print(f"system    Linux {platform.release()}, load {os.getloadavg()[0]:.2f}, foreign CPU {share:.2f} cores before the start")
    print(f"millrace  {version}, cpu.isa {options.isa}, {options.threads} threads")
    print(f"model     {pathlib.Path(options.model).name}, {os.path.getsize(options.model):,} bytes")
    print(f"command   {' '.join(sys.argv)}", flush=True)


def ceilings(options):
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "ceilings"
        subprocess.run(
            ["gcc", "-O3", "-D_GNU_SOURCE", "-pthread", HERE / "ceilings.c", "-o", program], check=True
        )
        text = subprocess.run([program, str(options.threads)], check=True, capture_output=True, text=True).stdout
    figures = dict(line.split() for line in text.splitlines())
    print(
        f"ceilings  read {figures['read_gb_s']} GB/s, int8 {figures['int8_gop_s']} Gop/s"
        f" ({figures['int8_lazy_gop_s']} with 16-bit sums), float {figures['float_gflop_s']} Gflop/s"
    )
    return {name: float(value) for name, value in figures.items()}


# --- GGUF, as much as is needed to count


class Gguf:
    """Tensor bytes and matrix-product operations a token, read from the file's header."""

    SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}

    def __init__(self, path):
        self.file = open(path, "rb")
        magic, _, n_tensors, n_kv = struct.unpack("<IIQQ", self.file.read(24))
        assert magic == 0x46554747, "not a GGUF file"
        alignment = 32
        for _ in range(n_kv):
            key = self.string()
            value = self.value(*struct.unpack("<I", self.file.read(4)))
            if key == b"general.alignment":
                alignment = value
        self.ops_per_token = 0
        shapes = {}
        for _ in range(n_tensors):
            name = self.string()
            (n_dims,) = struct.unpack("<I", self.file.read(4))
            shapes[name] = struct.unpack(f"<{n_dims}Q", self.file.read(8 * n_dims))
            self.file.read(12)
        data = (self.file.tell() + alignment - 1) // alignment * alignment
        self.tensor_bytes = os.path.getsize(path) - data
        for name, shape in shapes.items():
            if len(shape) == 2 and (name != b"token_embd.weight" or b"output.weight" not in shapes):
                self.ops_per_token += 2 * shape[0] * shape[1]

    def string(self):
        (n,) = struct.unpack("<Q", self.file.read(8))
        return self.file.read(n)

    def value(self, kind):
        if kind == 8:
            return self.string()
        if kind == 9:
            inner, n = struct.unpack("<IQ", self.file.read(12))
            if inner == 8:
                for _ in range(n):
                    self.string()
            else:
                self.file.seek(n * self.SIZES[inner], 1)
            return None
        raw = self.file.read(self.SIZES[kind])
        return int.from_bytes(raw, "little")


# --- modes


def median(rows, key):
    return statistics.median(row[key] for row in rows)


def write_csv(options, rows):
    with open(options.csv, "w", encoding="utf-8") as file:
        print(f"# tests/bench/serve_bench.py peers: {pathlib.Path(options.model).name}, 64 token ids in, 64 tokens out", file=file)
        print(f"# machine: {options.threads} cores, {platform.machine()}, cpu.isa {options.isa}", file=file)
        print("server,streams,tok_s", file=file)
        for (name, streams), runs in sorted(rows.items(), key=lambda item: (item[0][0] != "millrace", item[0])):
            print(f'"{name}",{streams},{median(runs, "tok_s"):.0f}', file=file)


def peers(options):
    makers = [millrace, xllamacpp] + ([native] if options.native else [])
    rows = {}
    starts = {}
    for turn in range(options.repeats):
        for maker in makers:
            with maker(options) as server:
                starts.setdefault(server.name, []).append(server.ready_s)
                load.closed_loop(server.port, 2, 1, 64, 16, 1)
                for streams, each in STREAMS.items():
                    if streams not in options.streams:
                        continue
                    result = load.closed_loop(server.port, streams, each, 64, 64, 1000 * turn + streams)
                    rows.setdefault((server.name, streams), []).append(load.summary(*result))
                    last = rows[server.name, streams][-1]
                    print(f"  run {turn + 1} {server.name:12} {streams:3} streams  {last['tok_s']:7.1f} tok/s", flush=True)
    print("\n64 token ids in, 64 tokens out, temperature 0.8, SSE, closed loop, a new connection a request;")
    print(f"medians of {options.repeats} alternating runs\n")
    print("| server | streams | tok/s | TTFT p50 / p99 ms | inter-token p50 / p99 ms |\n|---|---|---|---|---|")
    for (name, streams), runs in sorted(rows.items(), key=lambda item: (item[0][1], item[0][0] != "millrace", item[0][0])):
        print(
            f"| {name} | {streams} | {median(runs, 'tok_s'):.1f} | {median(runs, 'ttft_p50'):.0f} / {median(runs, 'ttft_p99'):.0f}"
            f" | {median(runs, 'itl_p50'):.1f} / {median(runs, 'itl_p99'):.1f} |"
        )
    if options.csv:
        write_csv(options, rows)
    for name in sorted({name for name, _ in rows} - {"millrace"}):
        print(f"\nmillrace over {name} (ratio of medians; throughput: more is better, times: less)")
        for streams in options.streams:
            ours, theirs = rows["millrace", streams], rows[name, streams]
            print(
                f"  {streams:2} streams: "
                + ", ".join(
                    f"{label} {median(ours, key) / max(1e-9, median(theirs, key)):.2f}x"
                    for label, key in (
                        ("throughput", "tok_s"),
                        ("TTFT p50", "ttft_p50"),
                        ("inter-token p50", "itl_p50"),
                        ("inter-token p99", "itl_p99"),
                    )
                )
            )
    print("bars: throughput 1.0x at 1 stream and 1.5x at 32, TTFT p50 0.5x at 32, against xllamacpp with cpu.isa avx2")
    print("time to ready: " + ", ".join(f"{name} {statistics.median(values):.2f} s" for name, values in starts.items()))


def decode_rate(server, streams, n_out, seed):
    """Aggregate tokens a second while all streams decode: from the last first token to the first last token."""
    requests, _ = load.closed_loop(server.port, streams, 1, 16, n_out, seed)
    begin = max(request.events[0] for request in requests)
    end = min(request.events[-1] for request in requests)
    tokens = sum(1 for request in requests for event in request.events if begin < event <= end)
    return tokens / (end - begin)


def batching(options):
    top = ceilings(options)
    gguf = Gguf(options.model)
    with millrace(options) as server:
        load.closed_loop(server.port, 2, 1, 64, 16, 1)
        rates = {}
        for streams in (1, 32):
            rates[streams] = statistics.median(
                decode_rate(server, streams, 160, 50 * streams + turn) for turn in range(options.repeats)
            )
        print(f"\ndecode, 16 ids in: {rates[1]:.1f} tok/s at 1 stream, {rates[32]:.1f} at 32, ratio {rates[32] / rates[1]:.2f}x (bar 2.5x)")
        by_read = top["read_gb_s"] * 1e9 / gguf.tensor_bytes
        for name in ("int8_gop_s", "int8_lazy_gop_s"):
            bound = top[name] * 1e9 / gguf.ops_per_token
            print(
                f"  {name[:-6]}: ceiling {bound:.0f} tok/s, whole step at 32 streams reaches {rates[32] / bound:.0%} of it"
            )
        print(f"  read bandwidth: ceiling {by_read:.0f} tok/s at 1 stream, reached {rates[1] / by_read:.0%}")

        budget = float(options.step_ms)
        gaps, firsts = [], []
        for turn in range(options.repeats):
            found, first = late_prompt(server, turn)
            gaps += found
            firsts.append(first)
        gaps.sort()
        print(
            f"\n16 streams decode, a 17th with 512 prompt tokens joins ({options.repeats} times): gaps of the 16 while it is"
            f" prefilled p50 {load.percentile(gaps, 0.5):.0f} p99 {load.percentile(gaps, 0.99):.0f} max {gaps[-1]:.0f} ms,"
            f" its first token after {statistics.median(firsts):.0f} ms"
        )
        print(f"  p99 over the step budget of {budget:.0f} ms (sched.step_target_ms): {load.percentile(gaps, 0.99) / budget:.2f}x (bar 1.5x)")


def late_prompt(server, turn):
    """(gaps in ms of the 16 while the 17th is prefilled, ms to the 17th's first token)"""
    late = load.Request(load.completion(load.random_ids(512, 900 + turn), 8, turn))
    waiting = {
        lane: load.Request(load.completion(load.random_ids(16, 100 * turn + lane), 192, lane)) for lane in range(16)
    }
    waiting[16] = late

    def join_when_all_decode(running):
        if 16 in waiting and len(running.active) == 16 and min(len(r.events) for r in running.active.values()) >= 16:
            running.start(16)

    runner = load.Load(server.port, lambda lane: waiting.pop(lane, None))
    runner.run(16, join_when_all_decode)
    if not late.events or any(request.error for request in runner.finished):
        raise SystemExit("batching: the late prompt was not served beside the 16 streams")
    gaps = [
        (later - earlier) * 1e3
        for request in runner.finished
        if request is not late
        for earlier, later in zip(request.events, request.events[1:], strict=False)
        if later > late.sent and earlier < late.events[0]
    ]
    return gaps, (late.events[0] - late.sent) * 1e3


BURNER = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"


def neighbour(options):
    core = min(os.sched_getaffinity(0))
    streams = 8
    makers = [millrace] + ([xllamacpp] if options.with_peer else [])
    print(f"\none foreign process burns core {core}; {streams} streams, 64 in, 64 out")
    for maker in makers:
        quiet, disturbed = [], []
        with maker(options) as server:
            load.closed_loop(server.port, 2, 1, 64, 16, 1)
            for turn in range(options.repeats):
                requests, seconds = load.closed_loop(server.port, streams, 3, 64, 64, 10 * turn)
                quiet.append(load.summary(requests, seconds)["tok_s"])
                burner = subprocess.Popen([sys.executable, "-c", BURNER, str(core)])
                try:
                    requests, seconds = load.closed_loop(server.port, streams, 3, 64, 64, 10 * turn)
                finally:
                    burner.kill()
                    burner.wait()
                disturbed.append(load.summary(requests, seconds)["tok_s"])
        print(
            f"  {server.name:12} undisturbed {statistics.median(quiet):7.1f} tok/s, beside it {statistics.median(disturbed):7.1f}:"
            f" {statistics.median(disturbed) / statistics.median(quiet):.0%} (bar for millrace: above 40 %)"
        )


def memory(options):
    pathlib.Path(options.model).read_bytes()  # into the page cache
    tensor_bytes = Gguf(options.model).tensor_bytes
    readies = []
    for _ in range(5):
        with millrace(options) as server:
            readies.append(server.ready_s)
    print(f"\nready after {statistics.median(readies):.2f} s from a warm page cache, median of 5 starts (bar 3 s)")
    kv = 128 << 20
    with millrace(options, ["--kv.bytes", str(kv), "--sched.max_running", "64"]) as server:
        begin = server.memory_kib("VmRSS")
        blocks = server.gauge("millrace_kv_blocks")
        # 24 sequences grow side by side until they fill the arena; all decode at the same time
        lanes = 24
        length = int(blocks // lanes) * 16
        load.closed_loop(server.port, lanes, 1, 16, length - 16, 5)
        rss, peak = server.memory_kib("VmRSS"), server.memory_kib("VmHWM")
        file_kib = server.memory_kib("RssFile")
        arena = server.gauge('millrace_memory_bytes{kind="kv"}') or kv
    bound = 1.15 * (tensor_bytes + arena + (64 << 20)) / 1024
    print(
        f"resident {begin / 1024:.0f} MiB at the start, {rss / 1024:.0f} MiB with the arena used (peak {peak / 1024:.0f};"
        f" {file_kib / 1024:.0f} of them file pages);"
        f" bar 1.15 x (tensors {tensor_bytes / 2**20:.0f} + arena {arena / 2**20:.0f} + 64) = {bound / 1024:.0f} MiB"
    )
    with tempfile.TemporaryDirectory() as folder:
        stripped = pathlib.Path(folder) / "millrace"
        subprocess.run(["strip", "-o", stripped, options.binary], check=True)
        print(f"binary {stripped.stat().st_size / 1024:.0f} KiB stripped (bar 2,048)")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=["peers", "batching", "neighbour", "memory", "all"])
    parser.add_argument("--binary", default=str(ROOT / "build" / "millrace"))
    parser.add_argument("--model", default=str(CACHE / "models" / "smollm2-135m.gguf"))
    parser.add_argument("--isa", default="avx2", help="cpu.isa of millrace; avx2 is what the wheel of the peer has")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--streams", type=lambda text: [int(part) for part in text.split(",")], default=list(STREAMS))
    parser.add_argument("--csv", help="peers: write server,streams,tok_s for tests/bench/speed_svg.py")
    parser.add_argument("--native", help="a llama-server to measure as well")
    parser.add_argument("--step-ms", default="200", help="sched.step_target_ms, to set the gaps against")
    parser.add_argument("--with-peer", action="store_true", help="neighbour: measure xllamacpp too")
    parser.add_argument("--set", action="append", default=[], help="further option of millrace, NAME=VALUE")
    options = parser.parse_args()
    options.set = [part for setting in options.set for part in ("--set", setting)]
    describe(options)
    modes = {"peers": peers, "batching": batching, "neighbour": neighbour, "memory": memory}
    for name in modes if options.mode == "all" else [options.mode]:
        modes[name](options)


if __name__ == "__main__":
    main()
