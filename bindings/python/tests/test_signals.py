"""Ctrl-C ends a wait and leaves nothing behind; so do other signals whose handler raises."""

import signal
import time

from conftest import PATIENCE, holders, wait_until, waiters

import polylatch

WAITER = """
    import sys, polylatch
    client = polylatch.connect(sys.argv[1])
    print("ready", flush=True)
    try:
        client.lock(sys.argv[2]).acquire()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    # It goes on as if nothing had been.
    sys.stdin.readline()
    with client.lock(sys.argv[2], wait=60) as guard:
        print(guard.fencing_token, flush=True)
"""


def test_ctrl_c_ends_a_blocked_acquire_at_once_and_leaves_no_lock_behind(shared_url, name, script):
    with polylatch.connect(shared_url) as client:
        held = client.lock(name).acquire()
        waiter = script(WAITER, shared_url, name)
        assert waiter.line() == "ready"
        wait_until(lambda: waiters(client, name) == 1, "it stands in line")
        sent = time.monotonic()
        waiter.signal(signal.SIGINT)
        assert waiter.line() == "interrupted"
        # A twentieth of a second on a machine at rest.
        assert time.monotonic() - sent < 5
        wait_until(lambda: waiters(client, name) == 0, "it has left the line")
        assert holders(client, name)[0]["fencing_token"] == held.fencing_token
        held.release()
        with client.lock(name, wait=PATIENCE):
            pass
        waiter.tell()
        assert int(waiter.line()) > held.fencing_token
        assert waiter.end()[2] == 0


def test_ctrl_c_at_any_moment_leaves_no_lock_behind(shared_url, name, script):
    busy = script(
        """
        import sys, polylatch
        client = polylatch.connect(sys.argv[1])
        lock = client.lock(sys.argv[2], wait=60)
        print("ready", flush=True)
        interrupted = 0
        while interrupted < 20:
            try:
                print("again", flush=True)
                while True:
                    with lock as guard:
                        guard.check()
            except KeyboardInterrupt:
                interrupted += 1
                print("interrupted", flush=True)
        sys.stdin.readline()
        """,
        shared_url,
        name,
    )
    with polylatch.connect(shared_url) as client:
        assert busy.line() == "ready"
        for _ in range(20):
            # Inside its `try`, so that no signal comes while it speaks of the one before.
            assert busy.line() == "again"
            with client.lock(name, wait=PATIENCE):
                pass
            busy.signal(signal.SIGINT)
            assert busy.line() == "interrupted"
        # The process lives, so nothing but its own giving back frees the lock so soon.
        with client.lock(name, wait=PATIENCE, lease=30):
            pass
        busy.tell()
        assert busy.end()[2] == 0


def test_ctrl_c_ends_a_wait_for_a_loss(script):
    waiter = script(
        """
        import sys, polylatch
        client = polylatch.connect("memory:")
        with client.lock("a") as guard:
            print("ready", flush=True)
            try:
                guard.lost.wait()
            except KeyboardInterrupt:
                print(guard.is_held, flush=True)
        """
    )
    assert waiter.line() == "ready"
    time.sleep(0.1)
    waiter.signal(signal.SIGINT)
    assert waiter.line() == "True"
    assert waiter.end()[2] == 0


def test_ctrl_c_ends_an_asyncio_program_and_leaves_no_lock_behind(shared_url, name, script):
    waiter = script(
        """
        import asyncio, sys, polylatch

        async def main():
            async with polylatch.connect_async(sys.argv[1]) as client:
                print("ready", flush=True)
                await client.lock(sys.argv[2]).acquire()

        try:
            asyncio.run(main())
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        """,
        shared_url,
        name,
    )
    with polylatch.connect(shared_url) as client:
        with client.lock(name):
            assert waiter.line() == "ready"
            wait_until(lambda: waiters(client, name) == 1, "it stands in line")
            waiter.signal(signal.SIGINT)
            assert waiter.line() == "interrupted"
            wait_until(lambda: waiters(client, name) == 0, "it has left the line")
        assert waiter.end()[2] == 0
