"""SQLite over a fork: where nothing is held, the child goes on with its parent's client; otherwise it is told."""

import asyncio
import os
import sys
import threading
import time

import pytest
from conftest import PATIENCE, holders, waiters, wait_until
from forking import answers_of_gunicorn, in_a_child

import polylatch

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows does not fork")

HELD = "held or waited for a lock"
SECTIONS = 2_000
CHILDREN = 4


@pytest.fixture
def url(tmp_path):
    return f"sqlite:{tmp_path / 'locks.sqlite'}"


def test_a_child_goes_on_with_a_client_that_held_nothing(client, name):
    with client.lock(name) as guard:
        before = guard.fencing_token
    me = client.id

    def child():
        assert client.id != me
        with client.lock(name, wait=PATIENCE) as guard:
            assert guard.fencing_token > before
            assert holders(client, name)[0]["client"] == client.id
        # Its own children are children like others.
        in_a_child(lambda: client.lock(name, wait=PATIENCE).acquire().release())

    for _ in range(3):
        in_a_child(child)
        with client.lock(name, wait=PATIENCE) as guard:
            assert client.id == me
            guard.check()


def test_several_clients_of_several_files_go_on(tmp_path, name):
    urls = [f"sqlite:{tmp_path / file}" for file in ("one", "one", "two")]
    clients = [polylatch.connect(url) for url in urls]

    def use():
        for client in clients:
            client.lock(name, wait=PATIENCE).acquire().release()
        polylatch.connect(urls[0]).lock(name, wait=PATIENCE).acquire().release()

    use()
    in_a_child(use)
    use()
    for client in clients:
        client.close()


def test_a_parent_that_holds_keeps_its_lock_and_its_child_is_told(url, client, name):
    def child():
        for use in (
            lambda: client.lock(name).acquire(),
            lambda: polylatch.connect(url),
            lambda: client.inspect(),
        ):
            with pytest.raises(polylatch.Unsupported, match=HELD):
                use()

    with polylatch.connect(url) as other:
        with client.lock(name, lease=1) as guard:
            in_a_child(child)
            renewals = guard.renewals
            wait_until(lambda: guard.renewals > renewals + 3, "it is renewed for longer than its lease")
            guard.check()
            assert other.lock(name).try_acquire() is None
        # Nothing is held any more.
        in_a_child(lambda: client.lock(name, wait=PATIENCE).acquire().release())


def test_a_parent_that_waits_keeps_its_place_and_its_child_is_told(url, client, name, script):
    holder = script(
        """
        import sys
        import polylatch
        guard = polylatch.connect(sys.argv[1]).lock(sys.argv[2]).acquire()
        print("held", flush=True)
        sys.stdin.readline()
        guard.release()
        """,
        url,
        name,
    )
    assert holder.line() == "held"
    entered = []
    waiting = threading.Thread(target=lambda: entered.append(client.lock(name, wait=PATIENCE).acquire()))
    waiting.start()
    with polylatch.connect(url) as looks:
        wait_until(lambda: waiters(looks, name) == 1, "it waits")

    def child():
        with pytest.raises(polylatch.Unsupported, match=HELD):
            client.lock(f"{name}/other").acquire()

    in_a_child(child)
    holder.tell()
    waiting.join(PATIENCE)
    entered[0].check()
    entered[0].release()


def test_parent_and_children_contend_without_overlaps(tmp_path, client, name):
    client.lock(name).acquire().release()
    inside, log = tmp_path / "inside", tmp_path / "log"
    starts, go = os.pipe()

    def sections():
        with log.open("ab", buffering=0) as tokens:
            for _ in range(SECTIONS // (CHILDREN + 1)):
                with client.lock(name, wait=PATIENCE) as guard:
                    # Fails where another is inside.
                    os.close(os.open(inside, os.O_CREAT | os.O_EXCL))
                    tokens.write(b"%d\n" % guard.fencing_token)
                    inside.unlink()

    def child():
        os.close(go)
        os.read(starts, 1)
        sections()

    children = []
    for _ in range(CHILDREN):
        pid = os.fork()
        if pid == 0:
            try:
                child()
                os._exit(0)
            except BaseException:
                import traceback

                traceback.print_exc()
            os._exit(1)
        children.append(pid)
    os.close(go)
    os.close(starts)
    sections()
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children] == [0] * CHILDREN
    tokens = [int(line) for line in log.read_bytes().split()]
    assert len(tokens) == SECTIONS
    assert tokens == sorted(set(tokens))


def test_forking_while_threads_use_the_file_gives_a_working_child_or_the_error(url, client, name):
    stop = threading.Event()
    counts = [0, 0]

    def work(at):
        while not stop.is_set():
            with client.lock(f"{name}/{at}", wait=PATIENCE):
                counts[at] += 1

    threads = [threading.Thread(target=work, args=(at,)) for at in range(2)]
    for thread in threads:
        thread.start()

    def child():
        try:
            client.lock(name, wait=PATIENCE).acquire().release()
        except polylatch.Unsupported as error:
            assert "forked" in str(error)

    try:
        for _ in range(20):
            before = list(counts)
            in_a_child(child)
            wait_until(
                lambda before=before: all(new > old for new, old in zip(counts, before)), "the threads go on"
            )
    finally:
        stop.set()
        for thread in threads:
            thread.join(PATIENCE)
    in_a_child(lambda: client.lock(name, wait=PATIENCE).acquire().release())


def test_a_fork_is_held_up_for_a_second_at_most_while_the_file_is_blocked(tmp_path, url, name, script):
    async def main():
        async with polylatch.connect_async(url, busy_timeout=30, timeout=30) as client:
            await (await client.lock(name).acquire()).release()
            blocker = script(
                """
                import sqlite3, sys
                connection = sqlite3.connect(sys.argv[1], isolation_level=None)
                connection.execute("BEGIN IMMEDIATE")
                print("blocked", flush=True)
                sys.stdin.readline()
                """,
                tmp_path / "locks.sqlite",
            )
            assert blocker.line() == "blocked"
            # Its request has left after one turn of the loop, and cannot be finished.
            asking = asyncio.create_task(client.lock(name).acquire())
            await asyncio.sleep(0)
            begun = time.monotonic()

            def child():
                assert 0.9 < time.monotonic() - begun < 20
                with pytest.raises(polylatch.Unsupported, match="request .* under way"):
                    polylatch.connect(url)

            in_a_child(child)
            blocker.tell()
            await (await asking).release()

    asyncio.run(main())


def test_asyncio_goes_on_in_parent_and_child(url, name):
    async def connect():
        return await polylatch.connect_async(url)

    client = asyncio.run(connect())

    async def work():
        async with client.lock(name, wait=PATIENCE) as guard:
            guard.check()

    asyncio.run(work())
    in_a_child(lambda: asyncio.run(work()))
    asyncio.run(work())
    asyncio.run(client.close())


PROGRAM = """
import os
import polylatch

client = polylatch.connect(os.environ["TEST_URL"])
with client.lock(os.environ["TEST_LOCK"]):
    pass  # As a program does that sets something up when it is loaded.

def app(environ, start_response):
    with client.lock(os.environ["TEST_LOCK"], wait=60) as guard:
        guard.check()
        body = f"{os.getpid()} {guard.fencing_token}"
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [body.encode()]
"""


def test_gunicorn_workers_use_the_client_of_the_loaded_program(url, name, tmp_path, script):
    replies, server = answers_of_gunicorn(PROGRAM, url, name, tmp_path, script)
    assert len({int(token) for _, token in replies}) == len(replies)
    server.signal(15)
    assert server.end()[2] == 0
