"""The asyncio twin, on every store, and on uvloop too where it is installed."""

import asyncio
import gc
import time

import pytest
from conftest import PATIENCE, wait_until

import polylatch

try:
    import uvloop
except ImportError:  # not for every platform
    uvloop = None

LOOPS = {"asyncio": asyncio.new_event_loop, **({"uvloop": uvloop.new_event_loop} if uvloop else {})}


@pytest.fixture(params=LOOPS)
def run(request):
    """Runs a coroutine function on a loop of each kind."""

    def run(main):
        loop = LOOPS[request.param]()
        try:
            return loop.run_until_complete(asyncio.wait_for(main(), 2 * PATIENCE))
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    return run


async def waiters(client, name):
    return sum(len(lock["waiters"]) for lock in (await client.inspect(name))["locks"])


async def holders(client, name):
    return [holder for lock in (await client.inspect(name))["locks"] for holder in lock["holders"]]


async def until(condition, what):
    deadline = time.monotonic() + PATIENCE
    while not await condition():
        assert time.monotonic() < deadline, f"not in time: {what}"
        await asyncio.sleep(0.005)


def test_what_is_not_held_runs_no_block(run, url, name):
    async def main():
        async with polylatch.connect_async(url) as client:
            guards = await client.lock_all([name + "/2"]).acquire()
            for held in [await client.lock(name).acquire(), guards]:
                async with held:
                    pass
                with pytest.raises(polylatch.InvalidArgument, match="was released"):
                    async with held:
                        pytest.fail("the block runs without its lock")

    run(main)


def test_a_lock_is_held_inside_the_block_and_free_afterwards(run, url, name):
    async def main():
        async with polylatch.connect_async(url) as client:
            async with client.lock(name, lease=30, wait=5, label="testing") as guard:
                assert guard.is_held
                guard.check()
                assert (await holders(client, name))[0]["fencing_token"] == guard.fencing_token
                assert await client.lock(name).try_acquire() is None
            assert not guard.is_held
            assert await holders(client, name) == []
        assert client.closed

    run(main)


def test_waiting_tasks_enter_one_after_the_other_in_order(run, url, name):
    async def main():
        client = await polylatch.connect_async(url)
        order, lock = [], client.lock(name)

        async def work(number):
            async with lock as guard:
                order.append(number)
                guard.check()

        async with client.lock(name):
            tasks = []
            for number in range(10):
                tasks.append(asyncio.create_task(work(number)))

                async def stands_in_line(number=number):
                    return await waiters(client, name) == number + 1

                await until(stands_in_line, "it stands in line")
        await asyncio.gather(*tasks)
        assert order == list(range(10))
        await client.close()

    run(main)


def test_many_tasks_with_locks_of_their_own(run, url, name):
    async def main():
        async with polylatch.connect_async(url) as client:

            async def work(number):
                for _ in range(5):
                    async with client.lock(f"{name}/{number}", wait=PATIENCE) as guard:
                        guard.check()

            await asyncio.gather(*(work(number) for number in range(64)))

    run(main)


def test_cancelling_a_waiting_task_takes_it_out_of_the_line(run, url, name):
    async def main():
        async with polylatch.connect_async(url) as client:
            async with client.lock(name):
                task = asyncio.create_task(client.lock(name).acquire())

                async def in_line():
                    return await waiters(client, name) == 1

                await until(in_line, "it stands in line")
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task

                async def gone():
                    return await waiters(client, name) == 0

                await until(gone, "it has left the line")
            await (await client.lock(name, wait=PATIENCE).acquire()).release()

    run(main)


def test_cancelling_at_any_moment_leaves_no_lock_behind(run, url, name):
    async def main():
        async with polylatch.connect_async(url) as client:
            lock = client.lock(name, wait=PATIENCE)
            for moment in range(60):
                held = await lock.acquire()
                task = asyncio.create_task(lock.acquire())
                release = asyncio.create_task(held.release())
                for _ in range(moment % 12):
                    await asyncio.sleep(0)
                task.cancel()
                await release
                try:
                    await (await task).release()
                except asyncio.CancelledError:
                    pass

            async def free():
                return await holders(client, name) == []

            await until(free, "nobody holds it")

    run(main)


def test_a_cancelled_release_goes_on_in_the_background(run, url, name):
    async def main():
        async with polylatch.connect_async(url) as client:
            guard = await client.lock(name).acquire()
            task = asyncio.create_task(guard.release())
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await (await client.lock(name, wait=PATIENCE).acquire()).release()

    run(main)


def test_wait_for_limits_a_wait_as_asyncio_users_expect(run, client, url, name):
    async def main():
        async with polylatch.connect_async(url) as twin:
            with client.lock(name):
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(twin.lock(name).acquire(), 0.05)
                with pytest.raises(polylatch.WaitTimeout):
                    await twin.lock(name, wait=0.05).acquire()

    run(main)


def test_a_loss_is_told_to_whoever_waits_for_it(run, url, name):
    async def main():
        async with polylatch.connect_async(url) as client:
            guard = await client.lock(name).acquire()
            told = []
            guard.on_lost(told.append)
            waiting = asyncio.create_task(guard.lost.wait())
            await asyncio.sleep(0)
            assert not guard.lost.is_set()
            token = guard.fencing_token
            done = await client.break_lease(name, fencing_token=token, by="me", reason="a test")
            assert done["outcome"] == "broken"
            assert await waiting is True
            assert guard.lost.reason in ("broken", "superseded")

            async def called():
                return bool(told)

            await until(called, "the callback is called on the loop")
            with pytest.raises(polylatch.LeaseLost):
                guard.check()

    run(main)


def test_waiting_for_a_loss_ends_with_the_release(run, client, url, name):
    async def main():
        async with polylatch.connect_async(url) as client:
            guard = await client.lock(name).acquire()
            waiting = asyncio.create_task(guard.lost.wait())
            await asyncio.sleep(0)
            await guard.release()
            assert await waiting is False

    run(main)


def test_a_decorated_coroutine_function_holds_the_lock_while_it_runs(run, url, name):
    async def main():
        async with polylatch.connect_async(url) as client:

            @client.lock(name, wait=PATIENCE)
            async def work(one, *, two):
                return one + two, len(await holders(client, name))

            assert await asyncio.gather(work(1, two=2), work(3, two=4)) == [(3, 1), (7, 1)]
            assert work.__name__ == "work"

    run(main)


def test_one_lock_object_serves_many_tasks(run, url, name):
    async def main():
        async with polylatch.connect_async(url) as client:
            lock, inside, most = client.lock(name), [0], [0]

            async def work():
                async with lock:
                    inside[0] += 1
                    most[0] = max(most[0], inside[0])
                    await asyncio.sleep(0)
                    inside[0] -= 1

            await asyncio.gather(*(work() for _ in range(10)))
            assert most[0] == 1

    run(main)


def test_the_family_of_locks(run, url, name):
    async def main():
        async with polylatch.connect_async(url) as client:
            rw = client.rw_lock(f"{name}/rw")
            async with rw.read() as one, rw.read():
                assert await rw.write().try_acquire() is None
                assert await one.try_upgrade() is False
            async with rw.write() as guard:
                token = guard.fencing_token
                await guard.downgrade()
                assert guard.mode == "read"
                assert await guard.try_upgrade() is True
                assert guard.fencing_token > token
                if client.capability["backend"] != "consul":
                    assert await guard.extend(60) == guard.valid_until
                    assert guard.remaining > 40
            semaphore = client.semaphore(f"{name}/permits", 2)
            async with semaphore.permits(2):
                assert await semaphore.try_acquire() is None
            async with client.lock_all([f"{name}/b", f"{name}/a"], wait=PATIENCE) as guards:
                assert list(guards.fencing_tokens) == [f"{name}/a", f"{name}/b"]
                assert len(guards) == 2
                guards.check()
                assert await client.lock_all([f"{name}/b"]).try_acquire() is None

    run(main)


def test_an_exception_inside_the_block_comes_out_and_leaves_no_lock(run, url, name):
    async def main():
        async with polylatch.connect_async(url) as client:
            with pytest.raises(KeyError):
                async with client.lock(name):
                    raise KeyError("the body's own")
            assert await holders(client, name) == []

    run(main)


def test_the_loop_runs_other_tasks_while_one_waits(run, url, name):
    async def main():
        async with polylatch.connect_async(url) as client:
            async with client.lock(name):
                waiting = asyncio.create_task(client.lock(name).acquire())
                turns = 0
                while turns < 100:
                    await asyncio.sleep(0)
                    turns += 1
                assert not waiting.done()
            await (await waiting).release()

    run(main)


def test_one_client_serves_several_loops_and_they_leave_nothing_open(url, name):
    async def connect():
        return await polylatch.connect_async(url)

    client = asyncio.run(connect())

    async def work():
        async with client.lock(name, wait=PATIENCE) as guard:
            guard.check()

    for _ in range(3):
        asyncio.run(work())
    open_files = count_open_files()
    for _ in range(20):
        asyncio.run(work())
    gc.collect()
    wait_until(lambda: count_open_files() <= open_files, "the loops' files are closed")
    asyncio.run(client.close())


def test_a_loop_that_is_closed_over_a_waiting_call_takes_it_along(url, name):
    with polylatch.connect(url) as other:
        held = other.lock(name).acquire()
        loop = asyncio.new_event_loop()
        client = loop.run_until_complete(connected(url))
        task = loop.create_task(client.lock(name).acquire())

        async def in_line():
            return bool(await waiters(client, name))

        loop.run_until_complete(until(in_line, "it stands in line"))
        loop.close()
        task._log_destroy_pending = False
        wait_until(
            lambda: not any(lock["waiters"] for lock in other.inspect(name)["locks"]), "it has left the line"
        )
        held.release()


async def connected(url):
    return await polylatch.connect_async(url)


def test_a_task_that_nobody_keeps_is_not_forgotten_while_it_waits(run, url, name):
    async def main():
        async with polylatch.connect_async(url) as client:
            held = await client.lock(name).acquire()
            entered = []

            async def work():
                async with client.lock(name):
                    entered.append(True)

            asyncio.ensure_future(work())

            async def in_line():
                return await waiters(client, name) == 1

            await until(in_line, "it stands in line")
            gc.collect()
            await held.release()

            async def did():
                return bool(entered)

            await until(did, "it enters")

    run(main)


def test_outside_a_loop_it_says_so():
    coroutine = connected("memory:")
    with pytest.raises(RuntimeError, match="no running event loop"):
        coroutine.send(None)


def count_open_files():
    import os

    return len(os.listdir("/proc/self/fd"))
