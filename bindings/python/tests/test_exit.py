"""What happens to held locks when a program ends."""

import signal

import pytest
from conftest import PATIENCE, holders, wait_until

import polylatch


@pytest.mark.parametrize("ending", ["", "raise SystemExit(3)", "raise KeyError('oops')"])
def test_a_program_that_ends_gives_its_locks_back(shared_url, name, script, ending):
    holder = script(
        f"""
        import sys, polylatch
        client = polylatch.connect(sys.argv[1], provisional=30)
        guard = client.lock(sys.argv[2], lease=60).acquire()
        print(guard.fencing_token, flush=True)
        sys.stdin.readline()
        {ending}
        """,
        shared_url,
        name,
    )
    token = int(holder.line())
    with polylatch.connect(shared_url) as client:
        assert holders(client, name)[0]["fencing_token"] == token
        holder.tell()
        out, errors, status = holder.end()
        assert status == {"": 0, "raise SystemExit(3)": 3}.get(ending, 1)
        assert ("oops" in errors) == ("oops" in ending)
        # It would have lasted for half a minute.
        assert holders(client, name) == []


def test_an_asyncio_program_that_ends_gives_its_locks_back(shared_url, name, script):
    holder = script(
        """
        import asyncio, sys, polylatch

        async def main():
            client = await polylatch.connect_async(sys.argv[1], provisional=30)
            await client.lock(sys.argv[2], lease=60).acquire()
            guard = await client.lock(sys.argv[2] + "/kept", lease=60).acquire()
            return guard

        kept = asyncio.run(main())
        print(kept.fencing_token, flush=True)
        """,
        shared_url,
        name,
    )
    _, errors, status = holder.end()
    assert (status, errors) == (0, "")
    with polylatch.connect(shared_url) as client:
        assert holders(client, name) == holders(client, f"{name}/kept") == []


def test_a_program_ends_while_threads_wait_and_losses_are_told(shared_url, name, script):
    for _ in range(5):
        program = script(
            """
            import contextlib, sys, threading, polylatch

            def wait():
                # The end of the program closes the client, and that ends the wait.
                with contextlib.suppress(polylatch.Canceled):
                    client.lock(sys.argv[2]).acquire()

            client = polylatch.connect(sys.argv[1])
            held = client.lock(sys.argv[2]).acquire()
            for number in range(8):
                other = client.lock(f"{sys.argv[2]}/{number}", lease=1, renew=False).acquire()
                other.on_lost(print)
                threading.Thread(target=wait, daemon=True).start()
                threading.Thread(target=other.lost.wait, daemon=True).start()
            other.lost.wait(0.95)
            """,
            shared_url,
            name,
        )
        _, errors, status = program.end()
        # On a slow machine some leases are lost before the program ends, or while it releases them: Python prints
        # the warnings of that.
        losses = ("the lease is lost (", "released too late (")
        unexpected = [line for line in errors.splitlines() if not line.startswith(losses)]
        assert (status, unexpected) == (0, [])
    with polylatch.connect(shared_url) as client:
        wait_until(lambda: holders(client, name) == [], "nobody holds it")


def test_a_thread_whose_wait_ends_while_python_ends_does_no_harm(script):
    program = script(
        """
        import atexit, os, sys, threading, time

        def late():
            # After the clients of this process are closed: what is registered first runs last.
            client = polylatch.connect("memory:")
            held = client.lock("a").acquire()
            threading.Thread(target=lambda: client.lock("a", wait=0.5).acquire(), daemon=True).start()
            while not client.inspect("a")["locks"][0]["waiters"]:
                time.sleep(0.001)

        class Output:
            \"\"\"Python flushes it once more at a time when no other thread may run any longer.\"\"\"

            def flush(self, ending=sys.is_finalizing, write=os.write, sleep=time.sleep):
                if ending():
                    sleep(1)
                    write(1, b"ended\\n")

        atexit.register(late)
        import polylatch
        sys.stdout = Output()
        """
    )
    assert program.end() == ("ended", "", 0)


def test_the_lock_of_a_killed_program_goes_on_after_its_lease(shared_url, name, script):
    holder = script(
        """
        import sys, polylatch
        client = polylatch.connect(sys.argv[1])
        guard = client.lock(sys.argv[2], lease=2).acquire()
        print(guard.fencing_token, flush=True)
        sys.stdin.readline()
        """,
        shared_url,
        name,
    )
    token = int(holder.line())
    with polylatch.connect(shared_url) as client:
        holder.signal(signal.SIGKILL)
        with client.lock(name, wait=PATIENCE) as guard:
            assert guard.fencing_token > token


def test_a_program_with_a_held_lock_does_not_wait_for_anything_else(script):
    program = script("import polylatch; guard = polylatch.connect('memory:').lock('a').acquire()")
    assert program.end() == ("", "", 0)
