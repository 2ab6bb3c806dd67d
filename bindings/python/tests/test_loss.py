"""A holder knows, by its own clock, whatever the interpreter or the store does."""

import asyncio
import time

import pytest
from conftest import PATIENCE, holders, wait_until

import polylatch


def hold_the_interpreter(seconds):
    """Sleeps without letting any other Python thread run."""
    import ctypes

    ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))


def test_a_held_interpreter_does_not_lose_a_lock(client, name):
    with client.lock(name, lease=1) as guard:
        token = guard.fencing_token
        hold_the_interpreter(3.2)
        guard.check()
        assert guard.renewals > 0
        assert holders(client, name)[0]["fencing_token"] == token


def test_a_blocked_event_loop_does_not_lose_a_lock(url, name):
    async def main():
        async with polylatch.connect_async(url) as client:
            async with client.lock(name, lease=1) as guard:
                time.sleep(3.2)
                guard.check()
                assert guard.renewals > 0

    asyncio.run(main())


def test_a_held_interpreter_past_the_hold_limit_loses_it_and_is_told(client, name):
    told = []
    guard = client.lock(name, lease=1, max_hold=0.5).acquire()
    guard.on_lost(told.append)
    hold_the_interpreter(1)
    assert not guard.is_held
    assert guard.lost.is_set()
    assert guard.lost.reason == "hold_limit"
    with pytest.raises(polylatch.LeaseLost) as caught:
        guard.check()
    assert caught.value.reason == "hold_limit"
    wait_until(lambda: told == ["hold_limit"], "the callback is called")
    # Meanwhile the lock went on to whoever wanted it.
    client.lock(name, wait=PATIENCE).acquire().release()


def test_who_listens_is_told_of_a_loss_after_a_step_between_reading_and_writing(client, name):
    told = []
    guard = client.rw_lock(name, max_hold=0.5).write().acquire()
    guard.on_lost(told.append)
    guard.downgrade()
    assert guard.lost.wait(PATIENCE)
    assert guard.lost.reason == "hold_limit"
    wait_until(lambda: told == ["hold_limit"], "the callback is called")


def test_work_that_stops_beating_loses_its_lock(client, name):
    guard = client.lock(name, lease=1.5, beat_every=1).acquire()
    started = time.monotonic()
    while time.monotonic() < started + 1.5:
        guard.beat()
        time.sleep(0.05)
    guard.check()
    assert guard.lost.wait(PATIENCE)
    assert guard.lost.reason == "no_progress"


def test_a_lease_that_is_not_renewed_ends(client, name):
    guard = client.lock(name, lease=0.3, renew=False).acquire()
    assert guard.remaining <= 0.3
    assert guard.lost.wait(PATIENCE)
    assert guard.lost.reason == "expired"
    assert guard.remaining == 0
    with pytest.raises(polylatch.LeaseLost):
        guard.release()


def test_a_silent_store_costs_the_lease_and_the_holder_knows(redis, name):
    with polylatch.connect(redis.url, timeout=0.5, provisional=1, poll=0.4) as client:
        guard = client.lock(name, lease=1).acquire()
        redis.pause()
        assert guard.lost.wait(PATIENCE)
        assert guard.lost.reason == "expired"
        redis.resume()


def test_a_silent_store_is_told_to_asyncio_too(redis, name):
    async def main():
        client = await polylatch.connect_async(redis.url, timeout=0.5, provisional=1, poll=0.4)
        guard = await client.lock(name, lease=1).acquire()
        redis.pause()
        assert await asyncio.wait_for(guard.lost.wait(), PATIENCE)
        with pytest.raises(polylatch.BackendUnavailable) as caught:
            await client.lock(f"{name}/other").try_acquire()
        assert caught.value.retry == "after_backoff"
        redis.resume()
        await client.close()

    asyncio.run(main())


def test_the_deadline_is_counted_on_the_clock_that_sleep_does_not_stop(client, name):
    if not hasattr(time, "CLOCK_BOOTTIME"):
        pytest.skip("this system has no such clock for Python")
    with client.lock(name, lease=20, renew=False) as guard:
        left = guard.valid_until - time.clock_gettime(time.CLOCK_BOOTTIME)
        assert left == pytest.approx(guard.remaining, abs=1)
        assert 0 < left <= 20


def test_a_callback_that_fails_is_reported_and_harms_nobody(client, name, monkeypatch):
    import sys

    reported = []
    monkeypatch.setattr(sys, "unraisablehook", lambda report: reported.append(report.exc_type))
    guard = client.lock(name, lease=0.3, renew=False).acquire()
    guard.on_lost(lambda reason: 1 / 0)
    wait_until(lambda: reported == [ZeroDivisionError], "the failure is reported")


def test_a_callback_is_not_called_after_a_release(client, name):
    told = []
    with client.lock(name, lease=0.3) as guard:
        guard.on_lost(told.append)
    # The next holder's loss is told on the same thread, after whatever was wrong before.
    other = client.lock(name, lease=0.3, renew=False).acquire()
    other.on_lost(lambda reason: told.append("the other's"))
    wait_until(lambda: told, "the other's loss is told")
    assert told == ["the other's"]
