"""Locks for threads, on every store."""

import gc
import threading
import time
from datetime import timedelta

import pytest
from conftest import PATIENCE, holders, wait_until, waiters

import polylatch


def test_a_lock_is_held_inside_the_block_and_free_afterwards(client, name):
    with client.lock(name, lease=30, label="testing") as guard:
        assert guard.name == name
        assert guard.is_held
        assert 0 < guard.remaining <= 30
        assert guard.mode == "mutex"
        guard.check()
        (holder,) = holders(client, name)
        assert holder["label"] == "testing"
        assert holder["fencing_token"] == guard.fencing_token
        assert client.lock(name).try_acquire() is None
    assert not guard.is_held
    assert holders(client, name) == []


def test_fencing_tokens_grow_with_every_grant(client, name):
    tokens = []
    for _ in range(5):
        with client.lock(name) as guard:
            tokens.append(guard.fencing_token)
    assert tokens == sorted(set(tokens))
    assert all(0 < token < 2**53 for token in tokens)


def test_a_kept_lock_is_entered_again_and_released_for_another_client(url, name):
    with polylatch.connect(url) as client, polylatch.connect(url) as other:
        lock = client.lock(name, keep_idle=timedelta(minutes=1))
        if client.capability["backend"] not in ("memory", "redis"):
            with pytest.raises(polylatch.Unsupported, match="cannot keep a lease after its release"):
                lock.acquire()
            return
        tokens = []
        for _ in range(5):
            with lock as guard:
                tokens.append(guard.fencing_token)
                assert guard.is_held
            assert not guard.is_held
            with pytest.raises(polylatch.InvalidArgument):
                guard.check()
            assert [holder["fencing_token"] for holder in holders(other, name)] == tokens[:1]
        assert tokens == sorted(set(tokens))
        with other.lock(name, wait=PATIENCE) as guard:
            assert guard.fencing_token > tokens[-1]
            assert lock.try_acquire() is None


def test_a_waiter_gets_the_lock_when_it_is_released(client, name):
    held = client.lock(name).acquire()
    got = []

    def wait():
        with client.lock(name, wait=PATIENCE) as guard:
            got.append(guard.fencing_token)

    thread = threading.Thread(target=wait)
    thread.start()
    wait_until(lambda: waiters(client, name) == 1, "it stands in line")
    assert got == []
    held.release()
    thread.join(PATIENCE)
    assert got[0] > held.fencing_token


def test_a_wait_that_runs_out_says_who_holds_the_lock(client, name):
    with client.lock(name, label="the nightly report"):
        with pytest.raises(polylatch.WaitTimeout) as caught:
            client.lock(name, wait=0.05).acquire()
    error = caught.value
    assert isinstance(error, TimeoutError)
    assert isinstance(error, polylatch.Error)
    assert (error.code, error.retry, error.effect) == ("wait_timeout", "caller_decides", "none")
    assert "the nightly report" in str(error)
    assert error.context["lock"] == name
    assert error.context["operation"] == "acquire"
    assert "polylatch show" in error.hint


def test_lengths_of_time_may_be_timedeltas(client, name):
    with client.lock(name, lease=timedelta(seconds=20), wait=timedelta(milliseconds=50)) as guard:
        (holder,) = holders(client, name)
        assert holder["lease_ms"] == 20_000
        started = time.monotonic()
        with pytest.raises(polylatch.WaitTimeout):
            client.lock(name, wait=timedelta(milliseconds=50)).acquire()
        assert time.monotonic() - started >= 0.05
        assert not guard.lost.wait(timedelta(milliseconds=1))


def test_one_lock_object_serves_many_threads(client, name):
    lock = client.lock(name, wait=PATIENCE)
    inside, most, done = [0], [0], []

    def work():
        for _ in range(10):
            with lock as guard:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                guard.check()
                inside[0] -= 1
        done.append(True)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert (len(done), most[0]) == (4, 1)


def test_other_threads_run_while_one_waits(client, name):
    with client.lock(name):
        thread = threading.Thread(target=lambda: client.lock(name, wait=PATIENCE).acquire().release())
        thread.start()
        wait_until(lambda: waiters(client, name) == 1, "it stands in line")
        # If the waiting thread held the interpreter, this one would not come here.
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_an_owner_enters_again_and_the_last_guard_releases(client, name):
    with client.lock(name, owner="me") as outer:
        with client.lock(name, owner="me") as inner:
            assert inner.fencing_token == outer.fencing_token
        assert outer.is_held
        assert client.lock(name).try_acquire() is None
    assert client.lock(name).try_acquire() is not None


def test_a_decorated_function_holds_the_lock_while_it_runs(client, name):
    @client.lock(name, wait=PATIENCE)
    def work(one, *, two):
        """What it does."""
        return one + two, len(holders(client, name))

    assert work(1, two=2) == (3, 1)
    assert work.__name__ == "work"
    assert work.__doc__ == "What it does."
    assert holders(client, name) == []


def test_an_exception_inside_the_block_comes_out_and_leaves_no_lock(client, name):
    with pytest.raises(KeyError):
        with client.lock(name):
            raise KeyError("the body's own")
    assert holders(client, name) == []


def test_releasing_twice_is_fine_and_a_released_guard_says_so(client, name):
    guard = client.lock(name).acquire()
    guard.release()
    guard.release()
    assert not guard.is_held
    assert guard.remaining == 0
    assert not guard.lost.is_set()
    assert guard.lost.wait() is False
    with pytest.raises(polylatch.InvalidArgument, match="was released"):
        guard.check()


def test_what_is_not_held_runs_no_block(client, name):
    for held in [client.lock(name).acquire(), client.lock_all([name + "/2"]).acquire()]:
        with held:
            pass
        with pytest.raises(polylatch.InvalidArgument, match="was released"):
            with held:
                pytest.fail("the block runs without its lock")
    lost = client.lock(name, max_hold=0.2).acquire()
    assert lost.lost.wait(PATIENCE)
    with pytest.raises(polylatch.LeaseLost):
        with lost:
            pytest.fail("the block runs without its lock")


def test_a_guard_may_be_released_inside_its_block(client, name):
    with client.lock(name) as guard:
        guard.release()
        with client.lock(name, wait=PATIENCE):
            pass


def test_a_forgotten_guard_gives_its_lock_back(client, name):
    guard = client.lock(name).acquire()
    del guard
    client.lock(name, wait=PATIENCE).acquire().release()


def test_a_forgotten_guard_whose_callback_leads_back_to_it_gives_its_lock_back(client, name):
    class Work:
        def __init__(self):
            self.guard = client.lock(name).acquire()
            self.guard.on_lost(self.stop)

        def stop(self, reason):
            pass

    Work()
    gc.collect()
    wait_until(lambda: holders(client, name) == [], "it is given back")


def test_a_guard_is_a_context_manager_too(client, name):
    with client.lock(name).try_acquire() as guard:
        assert guard.is_held
    assert not guard.is_held


def test_many_read_or_one_writes(client, name):
    lock = client.rw_lock(name, lease=20)
    with lock.read() as one, lock.read() as other:
        assert (one.mode, other.mode) == ("read", "read")
        assert lock.write().try_acquire() is None
        assert one.try_upgrade() is False
        assert one.is_held
    with lock.write() as guard:
        assert guard.mode == "write"
        assert lock.read().try_acquire() is None


def test_a_guard_steps_down_to_reading_and_up_again(client, name):
    lock = client.rw_lock(name)
    with lock.write() as guard:
        token = guard.fencing_token
        lost = guard.lost
        guard.downgrade()
        assert (guard.mode, guard.fencing_token) == ("read", token)
        lock.read().acquire().release()
        assert guard.try_upgrade() is True
        assert guard.mode == "write"
        assert guard.fencing_token > token
        assert not lost.is_set()
        with pytest.raises(polylatch.InvalidArgument, match="held by write, not by read"):
            guard.try_upgrade()
        assert guard.is_held
    assert holders(client, name) == []


def test_a_held_lease_gets_another_length(client, name):
    guard = client.lock(name, lease=3, renew=False).acquire()
    if client.capability["backend"] == "consul":
        with pytest.raises(polylatch.Unsupported, match="lease=60s"):
            guard.extend(60)
        assert guard.extend(3) == guard.valid_until
        guard.release()
        return
    assert guard.extend(timedelta(seconds=60)) == guard.valid_until
    assert 40 < guard.remaining <= 60
    deadline = guard.valid_until
    assert guard.extend(5) == deadline, "a shorter one takes nothing back"
    with pytest.raises(polylatch.InvalidArgument, match="lease is 1ms"):
        guard.extend(0.001)
    with pytest.raises(TypeError, match="lease must be"):
        guard.extend("60s")
    guard.release()
    with pytest.raises(polylatch.InvalidArgument, match="was released"):
        guard.extend(60)


def test_permits_are_had_up_to_the_number_there_are(client, name):
    semaphore = client.semaphore(name, 3)
    with semaphore.permits(2), semaphore.acquire():
        assert semaphore.try_acquire() is None
    with semaphore.try_acquire(3) as guard:
        assert guard.mode == "permits"
    with semaphore.acquire(), pytest.raises(polylatch.NameConflict):
        client.semaphore(name, 4).acquire()


def test_several_locks_are_all_acquired_or_none(client, name):
    names = [f"{name}/b", f"{name}/a"]
    with client.lock_all(names, wait=PATIENCE) as guards:
        assert list(guards.fencing_tokens) == sorted(names)
        assert len(guards) == 2
        assert guards.is_held
        assert 0 < guards.remaining
        guards.check()
        assert not guards.lost.is_set()
        assert client.lock_all([names[0], f"{name}/c"]).try_acquire() is None
        assert client.lock(f"{name}/c").try_acquire() is not None
    assert holders(client, names[0]) == holders(client, names[1]) == []


def test_an_operator_breaks_a_lease_and_its_holder_is_told(client, name):
    told = []
    guard = client.lock(name).acquire()
    guard.on_lost(told.append)
    wrong = client.break_lease(name, fencing_token=guard.fencing_token - 1, by="me", reason="a test")
    assert wrong == {"outcome": "changed_hands", "present": guard.fencing_token}
    done = client.break_lease(name, fencing_token=guard.fencing_token, by="me", reason="a test")
    assert done["outcome"] == "broken"
    assert done["holder"] == client.id
    assert guard.lost.wait(PATIENCE)
    assert guard.lost.reason in ("broken", "superseded")
    with pytest.raises(polylatch.LeaseLost) as caught:
        guard.check()
    assert caught.value.reason == guard.lost.reason
    assert caught.value.retry == "acquire_anew"
    wait_until(lambda: told, "the callback is called")
    assert told == [guard.lost.reason]
    with pytest.raises(polylatch.LeaseLost):
        guard.release()
    assert client.inspect(name)["audit"][0]["reason"] == "a test"


def test_a_block_whose_lease_was_lost_does_not_end_well(client, name):
    def break_it(guard):
        client.break_lease(name, fencing_token=guard.fencing_token, by="me", reason="a test")
        assert guard.lost.wait(PATIENCE)

    with pytest.raises(polylatch.LeaseLost):
        with client.lock(name) as guard:
            break_it(guard)
    # What the block itself raised says more.
    with pytest.raises(KeyError):
        with client.lock(name) as guard:
            break_it(guard)
            raise KeyError("the body's own")


def test_closing_a_client_releases_what_it_holds(url, name):
    other = polylatch.connect(url)
    client = polylatch.connect(url)
    guard = client.lock(name).acquire()
    client.close()
    assert client.closed
    assert not guard.is_held
    other.lock(name, wait=PATIENCE).acquire().release()
    client.close()
    with pytest.raises(polylatch.Canceled, match="closed"):
        client.lock(name).acquire()
    other.close()


def test_a_client_says_what_it_is(client, name):
    assert client.capability["backend"] in client.url
    assert client.capability["min_lease"] == 100
    assert not client.closed
    with client.lock(name):

        def found():
            clients = client.inspect(prefix="test/", limit=5)["clients"]
            return [one for one in clients if one["id"] == client.id]

        # It introduces itself in the background.
        wait_until(found, "the client says who it is")
        (me,) = found()
    assert me["language"] == "python"
    assert me["version"] == polylatch.__version__
    # Not the interpreter's name: people want to know which program it is.
    assert "python" not in me["program"]
