"""Stores to run against: memory, SQLite, a Redis server of our own, and whatever the environment names.

`POLYLATCH_TEST_URLS` adds stores: URLs separated by spaces.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
import uuid
from pathlib import Path

import pytest

import polylatch

# Longer than anything takes on a machine that does other things too.
PATIENCE = 60


class RedisServer:
    def __init__(self, folder):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}"
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
        self.process = subprocess.Popen(
            [*command, "--dir", str(folder)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_until(self.answers, "the Redis server answers")

    def answers(self):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as wire:
            wire.sendall(b"PING\r\n")
            return wire.recv(7) == b"+PONG\r\n"
        return False

    def send(self, *words):
        """Sends one command and returns its reply as it comes."""
        text = b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in map(str.encode, words))
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE) as wire:
            wire.sendall(b"*%d\r\n" % len(words) + text)
            return wire.recv(65536).decode()

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def stop(self):
        self.process.kill()
        self.process.wait()


def wait_until(condition, what):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.005)


@pytest.fixture(scope="session")
def shared_redis(tmp_path_factory):
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    yield server
    server.stop()


@pytest.fixture
def redis(tmp_path):
    """A Redis server that a test may stop."""
    server = RedisServer(tmp_path)
    yield server
    server.resume()
    server.stop()


# What runs in one process alone cannot be tested with two.
EXTRA = os.environ.get("POLYLATCH_TEST_URLS", "").split()
STORES = ["memory", "sqlite", "redis", *EXTRA]
SHARED_STORES = [store for store in STORES if store != "memory"]


def url_of(store, request):
    if store == "memory":
        return f"memory:{uuid.uuid4().hex}"
    if store == "sqlite":
        return f"sqlite:{request.getfixturevalue('tmp_path') / 'locks.sqlite'}"
    if store == "redis":
        return f"{request.getfixturevalue('shared_redis').url}?prefix=t{uuid.uuid4().hex}"
    return store


@pytest.fixture(params=STORES)
def url(request):
    """A store of every kind."""
    return url_of(request.param, request)


@pytest.fixture(params=SHARED_STORES)
def shared_url(request):
    """A store that several processes share, of every kind."""
    return url_of(request.param, request)


@pytest.fixture
def redis_url(request):
    return url_of("redis", request)


@pytest.fixture
def client(url):
    with polylatch.connect(url) as client:
        yield client


@pytest.fixture
def name():
    """A lock that no other test uses."""
    return f"test/{uuid.uuid4().hex}"


class Script:
    """A Python program in a process of its own, spoken to line by line."""

    def __init__(self, code, *arguments, folder=None):
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", textwrap.dedent(code), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
            cwd=folder,
        )

    def line(self):
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"the program ended: {self.process.stderr.read()}")
        return line.strip()

    def tell(self, line=""):
        self.process.stdin.write(line + "\n")

    def signal(self, number):
        self.process.send_signal(number)

    def pause(self):
        """Stops it (SIGSTOP) between two writes: within one it would keep everybody else out of an SQLite file."""
        while True:
            self.signal(signal.SIGSTOP)
            os.waitpid(self.process.pid, os.WUNTRACED)
            if not self._writes_to_sqlite():
                return
            self.resume()

    def resume(self):
        self.signal(signal.SIGCONT)

    def _writes_to_sqlite(self):
        locks = Path("/proc/locks")
        lines = locks.read_text().splitlines() if locks.exists() else []
        # 1: POSIX  ADVISORY  WRITE 4711 fe:00:262148 120 120; byte 120 is that of writes in WAL mode.
        writes = ["POSIX", "ADVISORY", "WRITE", str(self.process.pid)]
        return any(line.split()[1:5] == writes and line.split()[6] == "120" for line in lines)

    def end(self):
        """Waits until it ends by itself, and returns what it printed last and its status."""
        out, errors = self.process.communicate(timeout=PATIENCE)
        return out.strip(), errors.strip(), self.process.returncode

    def kill(self):
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            pipe.close()


@pytest.fixture
def script(tmp_path):
    """Starts programs, and ends them with the test."""
    started = []

    def start(code, *arguments):
        started.append(Script(code, *arguments, folder=tmp_path))
        return started[-1]

    yield start
    for one in started:
        one.kill()


def waiters(client, name):
    """How many wait for a lock."""
    return sum(len(lock["waiters"]) for lock in client.inspect(name)["locks"])


def holders(client, name):
    """Who holds a lock."""
    return [holder for lock in client.inspect(name)["locks"] for holder in lock["holders"]]


REPOSITORY = Path(__file__).resolve().parents[3]
