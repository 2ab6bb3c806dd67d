"""One library in a process of its own: `peer.py LIBRARY PORT pairs` or `peer.py LIBRARY PORT contend`.

With `pairs`, each line of the input is a number, and the answer is a line of JSON: a list of so many
microseconds, one for each acquire and release of a free lock, and the seconds of a processor that the process
has spent on them. With `contend`, a line of the input starts it; it goes on until the input ends, and then
prints when it had the lock that all of them contend for, in nanoseconds that all processes share:
`acquired released`, one line a section.
"""

import asyncio
import json
import os
import sys
import threading
import time

# Seconds of a section: one that is over at once is over before another process asks.
SECTION = 0.001


class Polylatch:
    def __init__(self, port):
        import polylatch

        self.client = polylatch.connect(f"redis://127.0.0.1:{port}")

    def named(self, name):
        lock = self.client.lock(name)
        return lambda: lock.acquire().release

    def close(self):
        self.client.close()


class RedisPy:
    def __init__(self, port):
        import redis

        self.client = redis.Redis(port=int(port))

    def named(self, name):
        def acquire():
            lock = self.client.lock(name, timeout=10)
            lock.acquire()
            return lock.release

        return acquire

    def close(self):
        self.client.close()


class PythonRedisLock(RedisPy):
    def named(self, name):
        import redis_lock

        def acquire():
            lock = redis_lock.Lock(self.client, name, expire=10)
            lock.acquire()
            return lock.release

        return acquire


LIBRARIES = {"polylatch": Polylatch, "redis-py": RedisPy, "python-redis-lock": PythonRedisLock}


def ended():
    """Says ready, waits for the line that starts it, and returns what is set when the input ends."""
    print("ready", flush=True)
    sys.stdin.readline()
    done = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), done.set()), daemon=True).start()
    return done


def free():
    return f"free-{os.getpid()}"


def pairs(library):
    acquire = library.named(free())
    for line in sys.stdin:
        took, before = [], time.process_time()
        for _ in range(int(line)):
            started = time.perf_counter_ns()
            acquire()()
            took.append((time.perf_counter_ns() - started) / 1e3)
        print(json.dumps([took, time.process_time() - before]), flush=True)


def contend(library):
    library.named(f"warm-{os.getpid()}")()()
    acquire = library.named("contended")
    done = ended()
    sections = []
    while not done.is_set():
        release = acquire()
        acquired = time.monotonic_ns()
        time.sleep(SECTION)
        released = time.monotonic_ns()
        release()
        sections.append(f"{acquired} {released}")
    print("\n".join(sections))


async def with_asyncio(port, what):
    import polylatch

    client = await polylatch.connect_async(f"redis://127.0.0.1:{port}")
    if what == "pairs":
        lock = client.lock(free())
        while line := sys.stdin.readline():
            took, before = [], time.process_time()
            for _ in range(int(line)):
                started = time.perf_counter_ns()
                guard = await lock.acquire()
                await guard.release()
                took.append((time.perf_counter_ns() - started) / 1e3)
            print(json.dumps([took, time.process_time() - before]), flush=True)
    else:
        guard = await client.lock(f"warm-{os.getpid()}").acquire()
        await guard.release()
        lock = client.lock("contended")
        done = ended()
        sections = []
        while not done.is_set():
            guard = await lock.acquire()
            acquired = time.monotonic_ns()
            await asyncio.sleep(SECTION)
            released = time.monotonic_ns()
            await guard.release()
            sections.append(f"{acquired} {released}")
        print("\n".join(sections))
    await client.close()


def main():
    name, port, what = sys.argv[1:]
    if name == "polylatch-asyncio":
        asyncio.run(with_asyncio(port, what))
        return
    library = LIBRARIES[name](port)
    if what == "pairs":
        pairs(library)
    else:
        contend(library)
    library.close()


if __name__ == "__main__":
    main()
