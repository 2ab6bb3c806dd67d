"""Measures the package against floors and peers of the same run; started by `bench/run`.

Every figure stands beside a floor that is taken in alternation with it: trust the ratios, not the
absolute times.
"""

import asyncio
import json
import multiprocessing
import socket
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack

import redis
import redis.asyncio
import redis_lock

import polylatch

ROUNDS = 12
PER_ROUND = 150
TASKS = 64


class Server:
    """A Redis server of our own, without persistence."""

    def __init__(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}"
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        self.client = redis.Redis(port=self.port)
        deadline = time.monotonic() + 30
        while True:
            try:
                self.client.ping()
                return
            except redis.ConnectionError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def calls(self, names):
        """How often the server was asked for these commands."""
        stats = self.client.info("commandstats")
        return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in names)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


class Companion:
    """The program that takes the floors, in Rust."""

    def __init__(self, program, url):
        self.process = subprocess.Popen(
            [program, "companion", url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def ask(self, word, count):
        self.process.stdin.write(f"{word} {count}\n")
        return json.loads(self.process.stdout.readline())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()


def timed(pair, count=PER_ROUND):
    figures = []
    for _ in range(count):
        started = time.perf_counter_ns()
        pair()
        figures.append((time.perf_counter_ns() - started) / 1e3)
    return figures


def heading(text):
    print(f"\n{text}\n{'-' * len(text)}")


def row(name, figures, unit, floor=None, target=None):
    middle = statistics.median(figures)
    low, high = (statistics.quantiles(figures, n=10)[at] for at in (0, 8))
    text = f"{name:44} {middle:10.1f} {unit}  (p10 {low:.1f}, p90 {high:.1f})"
    if floor:
        text += f"  {middle / statistics.median(floor):6.2f} x floor"
    if target:
        text += f"  [{target}]"
    print(text)


def with_block(lock):
    def pair():
        with lock:
            pass

    return pair


async def async_pairs(lock, count=PER_ROUND):
    figures = []
    for _ in range(count):
        started = time.perf_counter_ns()
        async with lock:
            pass
        figures.append((time.perf_counter_ns() - started) / 1e3)
    return figures


def overhead(companion):
    heading("what a call costs over the Rust API, without a network (µs a call)")
    lock = polylatch.connect("memory:").lock("overhead", lease=30)
    rust, sync, aio = [], [], []

    async def rounds():
        twin = (await polylatch.connect_async("memory:")).lock("overhead", lease=30)
        for _ in range(ROUNDS):
            rust.extend(companion.ask("memory", PER_ROUND))
            sync.extend(timed(with_block(lock)))
            aio.extend(await async_pairs(twin))

    asyncio.run(rounds())
    base = statistics.median(rust)
    row("rust, acquire + release", rust, "µs")
    row("python, the same in a with block", sync, "µs")
    row("python, the same in an async with block", aio, "µs")
    for name, figures, most in (("sync", sync, 5), ("asyncio", aio, 30)):
        each = (statistics.median(figures) - base) / 2
        print(f"    overhead of a call, {name}: {each:.2f} µs  [at most {most}]")


def uncontended(server, companion):
    heading("acquire + release of a free lock, one client (µs a pair)")
    floor, rust, sync, aio, peer, other = [], [], [], [], [], []
    lock = polylatch.connect(server.url).lock("sync")
    their = server.client.lock("redis-py", timeout=10)

    def their_pair():
        with their:
            pass

    def other_pair():
        with redis_lock.Lock(server.client, "python-redis-lock", expire=10):
            pass

    async def rounds():
        twin = (await polylatch.connect_async(server.url)).lock("asyncio")
        for _ in range(ROUNDS):
            floor.extend(companion.ask("pair", PER_ROUND))
            rust.extend(companion.ask("rust", PER_ROUND))
            sync.extend(timed(with_block(lock)))
            aio.extend(await async_pairs(twin))
            peer.extend(timed(their_pair))
            other.extend(timed(other_pair))

    asyncio.run(rounds())
    row("floor: two round trips, blocking socket", floor, "µs")
    row("rust, blocking API", rust, "µs", floor)
    row("python", sync, "µs", floor, "at most 3")
    row("python, asyncio", aio, "µs", floor)
    row("redis-py Lock", peer, "µs", floor)
    row("python-redis-lock", other, "µs", floor)
    middle = statistics.median
    print(f"    python over rust: {(middle(sync) - middle(rust)) / 2:.1f} µs a call [at most 5]", end="")
    print(f"; asyncio over rust: {(middle(aio) - middle(rust)) / 2:.1f} µs a call [at most 30]")


def throughput(server, companion):
    heading(f"{TASKS} asyncio tasks with {TASKS} locks (pairs a second)")
    floor, ours, theirs = [], [], []

    async def ours_round(client):
        async def work(lock):
            for _ in range(50):
                async with lock:
                    pass

        started = time.perf_counter()
        await asyncio.gather(*(work(client.lock(f"task-{task}")) for task in range(TASKS)))
        return TASKS * 50 / (time.perf_counter() - started)

    async def their_round(client):
        async def work(name):
            lock = client.lock(name, timeout=10)
            for _ in range(10):
                async with lock:
                    pass

        started = time.perf_counter()
        await asyncio.gather(*(work(f"their-{task}") for task in range(TASKS)))
        return TASKS * 10 / (time.perf_counter() - started)

    async def rounds():
        client = await polylatch.connect_async(server.url)
        their = redis.asyncio.Redis(port=server.port)
        for _ in range(ROUNDS):
            floor.extend(companion.ask("pipeline", 3))
            ours.append(await ours_round(client))
            theirs.append(await their_round(their))
        await their.aclose()
        await client.close()

    asyncio.run(rounds())
    row("floor: 64 pairs at a time in one pipeline", floor, "pairs/s")
    row("python, asyncio", ours, "pairs/s", floor, "at least 0.1")
    row("redis-py asyncio Lock", theirs, "pairs/s", floor)
    try:
        import uvloop
    except ImportError:
        return
    ours.clear()
    floor.clear()
    theirs.clear()
    loop = uvloop.new_event_loop()
    loop.run_until_complete(rounds())
    loop.close()
    row("python, asyncio on uvloop", ours, "pairs/s", floor)


def contend(which, port, until, pipe):
    """Takes the lock again and again; tells when it was entered and left."""
    if which == "polylatch":
        lock = polylatch.connect(f"redis://127.0.0.1:{port}").lock("handoff")
    elif which == "redis-py":
        lock = redis.Redis(port=port).lock("handoff", timeout=10)
    else:
        client = redis.Redis(port=port)
    pipe.send("ready")
    pipe.recv()
    told = []
    while len(told) < until:
        with lock if which != "python-redis-lock" else redis_lock.Lock(client, "handoff", expire=10):
            entered = time.monotonic_ns()
            time.sleep(0.0002)
            left = time.monotonic_ns()
        told.append((entered, left))
    pipe.send(told)


def handoff(server):
    heading("hand-off between two Python processes (µs from release to the other's entry)")
    context = multiprocessing.get_context("spawn")
    # What each of them asks the server for; what runs inside their scripts does not count.
    asks = {
        "polylatch": ["evalsha", "eval"],
        "redis-py": ["set", "evalsha"],
        "python-redis-lock": ["set", "evalsha", "blpop"],
    }
    for which, sections in (("polylatch", 1500), ("python-redis-lock", 600), ("redis-py", 300)):
        pipes, workers = [], []
        for _ in range(2):
            ours, theirs = context.Pipe()
            worker = context.Process(target=contend, args=(which, server.port, sections, theirs))
            worker.start()
            pipes.append(ours)
            workers.append(worker)
        for pipe in pipes:
            pipe.recv()
        server.client.config_resetstat()
        for pipe in pipes:
            pipe.send("go")
        told = [(*one, who) for who, pipe in enumerate(pipes) for one in pipe.recv()]
        for worker in workers:
            worker.join()
        each = server.calls(asks[which]) / len(told)
        told.sort()
        passed = [
            (entered - left) / 1e3
            for (_, left, before), (entered, _, after) in zip(told, told[1:])
            if before != after
        ]
        target = "p50 at most 1000" if which == "polylatch" else None
        if len(passed) > 1:
            row(which, passed, "µs", target=target)
        else:
            print(f"{which}: it was handed over {len(passed)} times, too few for a figure")
        share = len(passed) / len(told)
        print(f"    commands for each section {each:.2f}; the lock went to the other in {share:.0%}")


def imports():
    heading("import (ms)")
    code = "import time; t = time.perf_counter(); import polylatch; print((time.perf_counter() - t) * 1e3)"

    def figures(code):
        words = [sys.executable, "-c", code]
        return [float(subprocess.run(words, capture_output=True, text=True).stdout) for _ in range(9)]

    row("import polylatch", figures(code), "ms", target="at most 10")
    row(
        "with connect_async, and so asyncio",
        figures(code.replace("polylatch;", "polylatch as p; p.connect_async;")),
        "ms",
    )


def main():
    with ExitStack() as stack:
        server = stack.enter_context(Server())
        companion = stack.enter_context(Companion(sys.argv[1], server.url))
        imports()
        overhead(companion)
        uncontended(server, companion)
        throughput(server, companion)
        handoff(server)


if __name__ == "__main__":
    main()
