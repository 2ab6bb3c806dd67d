"""A lock on three servers: the story that is told of it, and what is true when servers are gone."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import RedisServer

import polylatch

STORY = Path(__file__).resolve().parents[3] / "examples" / "python" / "05_quorum.py"


@pytest.fixture
def servers(tmp_path):
    servers = [RedisServer(tmp_path) for _ in range(3)]
    yield servers
    for server in servers:
        server.stop()


@pytest.fixture
def quorum(servers):
    return "redlock://" + ",".join(f"127.0.0.1:{server.port}" for server in servers)


def test_the_story_of_the_examples(quorum):
    told = subprocess.run(
        [sys.executable, "-W", "error", STORY],
        env={**os.environ, "POLYLATCH_URL": quorum},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert told.startswith("redlock: fencing tokens are strict\nheld with token ")


def test_two_want_one_lock(quorum, name):
    with polylatch.connect(quorum) as one, polylatch.connect(quorum) as other:
        first = one.lock(name).acquire()
        assert other.lock(name).try_acquire() is None
        first.release()
        with other.lock(name, wait=30) as second:
            assert second.fencing_token > first.fencing_token


def test_many_tasks_want_many_locks(quorum, name):
    async def main():
        async with polylatch.connect_async(quorum) as client:

            async def one(number):
                async with client.lock(f"{name}/{number % 10}", wait=60) as guard:
                    guard.check()

            await asyncio.gather(*map(one, range(50)))

    asyncio.run(main())


def test_one_server_may_be_gone_and_two_may_not(quorum, servers, name):
    with polylatch.connect(quorum) as client:
        # A new store begins at once only while all of its servers answer.
        client.lock(name).acquire().release()
        servers[0].stop()
        with client.lock(name, wait=20) as guard:
            assert guard.is_held
        servers[1].stop()
        with pytest.raises((polylatch.QuorumUnreachable, polylatch.BackendUnavailable)):
            client.lock(name).try_acquire()
