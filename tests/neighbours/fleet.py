"""Fleets of several libraries at one key: each worker gets its share, and no two hold the key at once.

`fleet.py POLYLATCH_WORKER NODE_FOLDER`, by an interpreter that has redis-py. POLYLATCH_NEIGHBOURS_SECONDS is the length of
each fleet's run; with `all` as a third argument more fleets are tried.
"""

import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
# redis-semaphore puts mutex: before its key. A name with a hash tag, which must stay as it is.
NAME = "{order}:1"
KEY = f"mutex:{NAME}"
SOON = 30
# Which of several pollers comes first is chance: four of redis-py by themselves wait up to 2 s in 20 s.
LONGEST_WAIT_OF_OURS = 3.0
LONGEST_WAIT_OF_OTHERS = 6.0
SECONDS = float(os.environ.get("POLYLATCH_NEIGHBOURS_SECONDS", "7"))

USUAL = ["ours 1 redis-py 3", "ours 2 redis-py 2", "ours 3 redis-py 1", "ours 2 redlock 2", "ours 1 redis-semaphore 3"]
MORE = ["ours 1 redlock 3", "ours 3 redlock 1", "ours 2 redis-semaphore 2", "ours 3 redis-semaphore 1"]


class Worker:
    def __init__(self, library, number, port, program, node_folder):
        self.library, self.name = library, f"{library} {number}"
        offset = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        url = f"redis://127.0.0.1:{port}?lock_key=mutex:{{name}}"
        command = {
            "ours": [program, url, NAME],
            "redis-py": [sys.executable, HERE / "redis_py.py", str(port), KEY],
        }.get(library) or ["node", HERE / "node.mjs", library, str(port), KEY, str(offset)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, cwd=node_folder, **pipes)
        self.sections = []
        if self.process.stdout.readline() != "ready\n":
            raise SystemExit(f"{self.name} did not start")

    def begin(self):
        self.process.stdin.write("begin\n")
        self.process.stdin.flush()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.sections.append(tuple(map(int, line.split())))

    def end(self):
        self.process.stdin.close()
        try:
            failed = self.process.wait(SOON) != 0
        except subprocess.TimeoutExpired:
            raise SystemExit(f"{self.name} still waits, {SOON} s after the others have ended") from None
        if failed:
            raise SystemExit(f"{self.name} failed")
        self.reader.join(SOON)


def run(fleet, port, program, node_folder):
    words = fleet.split()
    workers = []
    try:
        for library, count in zip(words[::2], words[1::2]):
            workers += [Worker(library, at + 1, port, program, node_folder) for at in range(int(count))]
        for worker in workers:
            worker.begin()
        began = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        time.sleep(SECONDS)
        ended = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        for worker in workers:
            worker.end()
    finally:
        for worker in workers:
            if worker.process.poll() is None:
                worker.process.kill()
                worker.process.wait()
    return judge(fleet, workers, began, ended)


def judge(fleet, workers, began, ended):
    # What follows the end is a fleet that dissolves, but still excludes.
    everything = sorted((entered, left, worker.name) for worker in workers for _, entered, left in worker.sections)
    counted = [sum(entered < ended for _, entered, _ in worker.sections) for worker in workers]
    # A wait that began before the end and has no end yet counts until then.
    waits = [
        max([min(entered, ended) - asked for asked, entered, _ in worker.sections if asked < ended], default=ended - began)
        / 1e9
        for worker in workers
    ]
    faults = []
    for (_, left, one), (entered, _, other) in zip(everything, everything[1:]):
        if entered < left:
            faults.append(f"{one} and {other} held it at once for {(left - entered) / 1e6:.3f} ms")
    fair = sum(counted) / len(workers)
    for worker, count, wait in zip(workers, counted, waits):
        if count < 0.25 * fair:
            faults.append(f"{worker.name} had {count} sections, less than a quarter of an equal share of {fair:.0f}")
        if wait > (LONGEST_WAIT_OF_OURS if worker.library == "ours" else LONGEST_WAIT_OF_OTHERS):
            faults.append(f"{worker.name} waited {wait:.1f} s")
    each = ", ".join(
        f"{worker.name}: {count} ({wait:.1f} s)" for worker, count, wait in zip(workers, counted, waits)
    )
    print(f"{fleet}, sections (longest wait): {each}; {len(everything)} in all", flush=True)
    for fault in faults:
        print(f"  FAULT: {fault}", flush=True)
    return not faults


def main():
    program, node_folder, *more = sys.argv[1:]
    fleets = USUAL + (MORE if more == ["all"] else [])
    with socket.socket() as free, tempfile.TemporaryDirectory() as folder:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder]
        server = subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL)
        try:
            wait_for(port)
            passed = [run(fleet, port, program, node_folder) for fleet in fleets]
        finally:
            server.terminate()
            server.wait(SOON)
    if not all(passed):
        raise SystemExit(1)


def wait_for(port):
    end = time.monotonic() + SOON
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if time.monotonic() > end:
                raise SystemExit("redis-server did not start") from None
            time.sleep(0.02)


main()
