"""A forked child: what it inherited is lost there, what it does itself works, its parent is not harmed."""

import asyncio
import multiprocessing
import sys
import time

import pytest
from conftest import PATIENCE, holders
from forking import answers_of_gunicorn, in_a_child

import polylatch

# Windows has no fork, so there is nothing to test. Everywhere else this runs, or fails for want of it.
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows does not fork")

# What is held over the fork keeps SQLite from the child; see test_fork_sqlite.py.
STORES = pytest.mark.parametrize("url", ["memory", "redis"], indirect=True)


@pytest.fixture
def url(request):
    from conftest import url_of

    return url_of(getattr(request, "param", "redis"), request)


@STORES
def test_an_inherited_guard_is_lost_in_the_child_and_held_in_the_parent(client, name):
    with client.lock(name, lease=1) as guard:
        token = guard.fencing_token

        def child():
            assert not guard.is_held
            assert guard.remaining == 0
            assert guard.fencing_token == token
            assert guard.lost.is_set()
            assert guard.lost.wait() is True
            for use in (guard.check, guard.release, guard.beat):
                with pytest.raises(polylatch.LeaseLost, match="forked child"):
                    use()
            # What the interpreter drops here is still its parent's.
            kept.clear()

        # After a release, that of a guard which is dropped leaves at once.
        client.lock(f"{name}/kept").acquire().release()
        kept = [client.lock(f"{name}/kept", lease=1).acquire()]
        in_a_child(child)
        # Three leases later its parent has it still.
        time.sleep(3)
        guard.check()
        kept[0].check()
        assert holders(client, name)[0]["fencing_token"] == token


@STORES
def test_a_child_goes_on_with_an_inherited_client(client, name):
    me = client.id
    with client.lock(f"{name}/held"):

        def child():
            assert client.id != me
            with client.lock(name, wait=PATIENCE) as guard:
                guard.check()
                assert holders(client, name)[0]["client"] == client.id

        in_a_child(child)
        in_a_child(child)
        with client.lock(name, wait=PATIENCE):
            pass


def test_a_kept_lease_stays_with_the_parent_until_the_child_asks_for_the_lock(client, name):
    lock = client.lock(name, lease=1, keep_idle=60, wait=PATIENCE)
    with lock as guard:
        token = guard.fencing_token
    assert [holder["fencing_token"] for holder in holders(client, name)] == [token]

    def child():
        with lock as guard:
            guard.check()
            # Entered by a grant of the store, not under what the parent keeps.
            assert [holder["client"] for holder in holders(client, name)] == [client.id]
            assert holders(client, name)[0]["fencing_token"] == guard.fencing_token > token

    in_a_child(child)
    with lock as guard:
        assert guard.fencing_token > token


def test_parent_and_child_exclude_each_other(client, name):
    held = client.lock(name).acquire()

    def child():
        assert client.lock(name).try_acquire() is None
        with pytest.raises(polylatch.WaitTimeout):
            client.lock(name, wait=0.05).acquire()

    in_a_child(child)
    held.release()


def test_a_child_runs_asyncio_with_an_inherited_client(url, name):
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


def test_a_fork_inside_a_running_loop_harms_neither(url, name):
    async def main():
        async with polylatch.connect_async(url) as client:
            async with client.lock(name) as guard:
                waiting = asyncio.create_task(client.lock(name).acquire())
                await asyncio.sleep(0)

                def child():
                    assert not guard.is_held
                    waiting.cancel()

                in_a_child(child)
                guard.check()
            await (await waiting).release()

    asyncio.run(main())


def test_forking_again_and_again_while_threads_work(client, name):
    import threading

    stop = threading.Event()

    def work():
        while not stop.is_set():
            with client.lock(f"{name}/busy", wait=PATIENCE):
                pass

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            in_a_child(lambda: client.lock(name, wait=PATIENCE).acquire().release())
    finally:
        stop.set()
        for thread in threads:
            thread.join(PATIENCE)


def test_a_client_closed_before_the_fork_stays_closed(url, name):
    client = polylatch.connect(url)
    client.close()

    def child():
        with pytest.raises(polylatch.Canceled):
            client.lock(name).acquire()

    in_a_child(child)


def pool_worker(name):
    with CLIENT.lock(name, wait=PATIENCE) as guard:
        guard.check()
        return guard.fencing_token


CLIENT = None


@pytest.mark.parametrize("url", ["redis", "sqlite"], indirect=True)
@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_worker_processes_of_every_kind_take_turns(url, name, method):
    global CLIENT
    CLIENT = polylatch.connect(url)
    try:
        context = multiprocessing.get_context(method)
        with context.Pool(3, initializer=connect_worker, initargs=(url, method)) as pool:
            tokens = pool.map(pool_worker, [name] * 12, chunksize=1)
        assert len(set(tokens)) == 12
    finally:
        CLIENT.close()
        CLIENT = None


def connect_worker(url, method):
    # A forked worker goes on with its parent's client; the others have none.
    global CLIENT
    if method != "fork":
        CLIENT = polylatch.connect(url)


def hold_and_end(url, name):
    client = polylatch.connect(url, provisional=30)
    global KEPT
    KEPT = client.lock(f"{name}/kept", lease=60).acquire()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_worker_process_that_ends_gives_its_locks_back(client, url, name, method):
    worker = multiprocessing.get_context(method).Process(target=hold_and_end, args=(url, name))
    worker.start()
    worker.join(PATIENCE)
    assert worker.exitcode == 0
    assert holders(client, f"{name}/kept") == []


PROGRAM = """
import os
import polylatch

client = polylatch.connect(os.environ["TEST_URL"])
kept = client.lock(os.environ["TEST_LOCK"] + "/master", lease=1).acquire()

def app(environ, start_response):
    with client.lock(os.environ["TEST_LOCK"], wait=60) as guard:
        guard.check()
        body = f"{os.getpid()} {guard.fencing_token} {kept.is_held}"
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [body.encode()]
"""


def test_gunicorn_workers_that_were_forked_from_a_loaded_program(url, name, tmp_path, script):
    replies, server = answers_of_gunicorn(PROGRAM, url, name, tmp_path, script)
    assert len({int(token) for _, token, _ in replies}) == len(replies)
    # What the master holds is its own: lost in the workers, renewed beyond its lease in the master.
    assert {held for _, _, held in replies} == {"False"}
    with polylatch.connect(url) as other:
        assert holders(other, f"{name}/master")
        server.signal(15)
        assert server.end()[2] == 0
        assert holders(other, f"{name}/master") == []
