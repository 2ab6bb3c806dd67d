"""Idempotent work: done once, answered every time."""

import math
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import PATIENCE

import polylatch


@pytest.fixture
def keys(client):
    return client.idempotency("orders/customer-7")


def never(claim):
    raise AssertionError("it was done again")


def test_a_repetition_gets_the_first_answer(keys):
    calls = []

    def work(claim):
        calls.append(claim.fencing_token)
        assert claim.is_held
        assert claim.runs == 1
        assert claim.remaining > 0
        return {"order": 42, "items": ("a", "ü")}

    first = keys.run("k", work)
    again = keys.run("k", never)
    # As it is read back, so that both are the same.
    assert first == polylatch.Outcome({"order": 42, "items": ["a", "ü"]}, replayed=False)
    assert again == polylatch.Outcome(first.value, replayed=True)
    assert len(calls) == 1
    assert keys.show("k")["state"] == "done"
    assert keys.forget("k") == "forgotten"
    assert keys.forget("k") == "absent"
    assert keys.show("k") is None
    assert keys.run("k", lambda claim: None) == polylatch.Outcome(None, replayed=False)


def test_bytes_are_stored_as_they_are(client):
    keys = client.idempotency("s", encoding="bytes")
    assert keys.run("k", lambda claim: b"\x00\xff").value == b"\x00\xff"
    assert keys.run("k", never).value == b"\x00\xff"
    with pytest.raises(TypeError, match="must be bytes, not str"):
        keys.run("l", lambda claim: "text")
    with pytest.raises(polylatch.InvalidArgument, match="encoding is 'xml'"):
        client.idempotency("s", encoding="xml")


def test_many_threads_get_one_answer(keys):
    calls, gate = [], threading.Barrier(8)

    def work(claim):
        calls.append(claim)
        return {"order": len(calls)}

    def once(_):
        gate.wait(PATIENCE)
        return keys.run("k", work)

    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(once, range(8)))
    assert len(calls) == 1
    assert [outcome.value for outcome in outcomes] == [{"order": 1}] * 8
    assert sorted(outcome.replayed for outcome in outcomes) == [False] + [True] * 7


def test_a_run_in_progress_is_reported_or_waited_for(keys):
    with keys.begin("k") as run:
        assert not run.replayed
        with pytest.raises(polylatch.InProgress, match="in progress on host") as caught:
            keys.run("k", never, wait=0)
        assert (caught.value.code, caught.value.retry) == ("in_progress", "caller_decides")
        assert keys.forget("k") == "running"
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(keys.run, "k", never)
            assert run.complete([1]) == [1]
            assert waiting.result(PATIENCE) == polylatch.Outcome([1], replayed=True)
    with keys.begin("k") as run:
        assert run.replayed
        assert run.value == [1]
        with pytest.raises(polylatch.InvalidArgument, match="an earlier run did the work"):
            run.claim


def test_the_same_key_with_another_payload_is_refused(keys):
    keys.run("k", lambda claim: 1, payload={"item": "a", "count": 2})
    assert keys.run("k", never, payload={"count": 2, "item": "a"}).replayed
    for other in ({"item": "b", "count": 2}, b"{}", "text", None):
        with pytest.raises(polylatch.PayloadMismatch, match="another payload"):
            keys.run("k", never, payload=other)
    with pytest.raises(polylatch.InvalidArgument, match="give one"):
        keys.run("k", never, payload="a", fingerprint="b")


def test_the_key_of_another_caller_gets_nothing_of_its_answer(client):
    client.idempotency("orders/alice").run("k", lambda claim: "for alice")
    assert client.idempotency("orders/bob").run("k", lambda claim: "for bob").value == "for bob"


class Declined(Exception):
    pass


def fails(error):
    def work(claim):
        raise error

    return work


def test_a_failure_after_the_effect_does_not_free_its_key(keys):
    with pytest.raises(Declined, match="no card"):
        keys.run("k", fails(Declined("no card")))
    with pytest.raises(polylatch.WorkFailed) as caught:
        keys.run("k", never)
    assert caught.value.replayed
    assert caught.value.answer == {"error": "Declined", "message": "no card"}
    assert (caught.value.code, caught.value.effect) == ("failed", "none")


def test_a_failure_frees_its_key_by_choice_and_by_kind(keys):
    with pytest.raises(Declined):
        keys.run("free", fails(Declined()), on_failure="free")
    assert not keys.run("free", lambda claim: 1).replayed

    def kind(error):
        return "free" if isinstance(error, ConnectionError) else "store"

    with pytest.raises(ConnectionError):
        keys.run("kind", fails(ConnectionError()), on_failure=kind)
    with pytest.raises(Declined):
        keys.run("kind", fails(Declined()), on_failure=kind)
    with pytest.raises(polylatch.WorkFailed):
        keys.run("kind", never)
    with pytest.raises(polylatch.WorkFailed) as first:
        keys.run("own", fails(polylatch.WorkFailed("declined", answer={"code": 7})))
    with pytest.raises(polylatch.WorkFailed) as again:
        keys.run("own", never)
    assert (first.value.answer, first.value.replayed) == ({"code": 7}, False)
    assert (again.value.answer, again.value.replayed) == ({"code": 7}, True)
    with pytest.raises(polylatch.WorkFailed):
        keys.run("mine", fails(polylatch.WorkFailed("try again", on_failure="free")))
    assert not keys.run("mine", lambda claim: 1).replayed
    with pytest.raises(polylatch.InvalidArgument, match='on_failure is "drop"'):
        keys.run("k", never, on_failure="drop")


def test_a_result_that_cannot_be_written_does_not_free_its_key(keys):
    with pytest.raises(TypeError, match="not JSON serializable"):
        keys.run("k", lambda claim: object(), on_failure="free")
    with pytest.raises(polylatch.WorkFailed):
        keys.run("k", never)
    with pytest.raises(polylatch.ResultTooLarge):
        keys.run("large", lambda claim: "x" * (1 << 20))
    with pytest.raises(polylatch.ResultTooLarge, match="is done"):
        keys.run("large", never)


def test_an_interruption_stores_nothing_and_its_key_is_free_with_the_lease(keys):
    for interrupted in (KeyboardInterrupt, SystemExit):
        key = interrupted.__name__
        with pytest.raises(interrupted):
            keys.run(key, fails(interrupted()), lease=0.5)
        assert keys.show(key)["state"] in ("running", "abandoned")
        seen = []
        keys.run(key, lambda claim: seen.append(claim.runs), lease=0.5)
        assert seen == [2]


def test_a_block_that_forgets_its_result_is_an_error(keys):
    with pytest.raises(polylatch.InvalidArgument, match="without complete"), keys.begin("k", lease=0.5):
        pass
    with pytest.raises(Declined), keys.begin("k", lease=0.5):
        raise Declined
    with pytest.raises(polylatch.WorkFailed):
        keys.run("k", never)


def test_a_lost_claim_is_reported_and_its_late_answer_is_refused(client, keys):
    reasons, told = [], threading.Event()
    with keys.begin("k", lease=60) as run:
        run.claim.on_lost(lambda reason: (reasons.append(reason), told.set()))
        assert run.claim.wait_lost(timeout=0.01) is None
        run.complete(1)
        assert run.claim.wait_lost() is None
    assert not told.is_set()
    assert not run.claim.is_held
    with pytest.raises(polylatch.InvalidArgument, match="is finished"):
        run.complete(2)


def test_wrong_arguments_are_errors_before_anything_is_sent(client, keys):
    for key in ("", "x" * 256, "a\nb"):
        with pytest.raises(polylatch.InvalidArgument, match="the key"):
            keys.run(key, never)
    with pytest.raises(polylatch.InvalidArgument, match="the scope"):
        client.idempotency("").run("k", never)
    with pytest.raises(polylatch.InvalidArgument, match="retention"):
        keys.run("k", never, retention=0.5)
    with pytest.raises(TypeError, match="wait must be a number of seconds"):
        keys.run("k", never, wait="long")
    with pytest.raises(TypeError, match="unexpected keyword"):
        keys.run("k", never, ttl=5)
    assert keys.run("k", lambda claim: 1, retention=math.inf).value == 1
    assert keys.show("k")["keep_left_ms"] is None


def test_a_token_is_consumed_once(client, keys):
    token = keys.issue(60)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: keys.consume(token), range(8)))
    assert sorted(answers) == ["duplicate"] * 7 + ["first"]
    assert client.idempotency("other").consume(token) == "unknown"


def test_a_decorated_function_is_called_once_for_each_key(client):
    calls = []

    @polylatch.idempotent(
        client,
        scope=lambda user, order: f"orders/{user}",
        key=lambda user, order: order["id"],
        payload=lambda user, order: order,
    )
    def place(user, order):
        calls.append((user, order))
        return len(calls)

    assert [place("a", {"id": "1"}), place("a", {"id": "1"}), place("b", {"id": "1"})] == [1, 1, 2]
    with pytest.raises(polylatch.PayloadMismatch):
        place("a", {"id": "1", "more": True})
    with pytest.raises(TypeError, match="scope must be a function"):
        polylatch.idempotent(client, scope="orders", key=lambda: "k")
    with pytest.raises(TypeError, match="this client is for threads"):

        @polylatch.idempotent(client, scope=lambda: "s", key=lambda: "k")
        async def wrong(): ...


KILLED = """
import sys, time, polylatch
client = polylatch.connect(sys.argv[1])
def work(claim):
    print("working", flush=True)
    time.sleep(600)
client.idempotency("s").run("k", work, lease=1, payload="order")
"""


def test_a_killed_process_is_taken_over_when_its_lease_ends(script, shared_url):
    child = script(KILLED, shared_url)
    assert child.line() == "working"
    with polylatch.connect(shared_url) as client:
        keys = client.idempotency("s")
        with pytest.raises(polylatch.InProgress):
            keys.run("k", never, wait=0, payload="order")
        child.signal(signal.SIGKILL)
        with pytest.raises(polylatch.PayloadMismatch):
            keys.run("k", never, payload="another order")
        seen = []
        taken_over = keys.run(
            "k", lambda claim: seen.append(claim.runs) or "mine", payload="order", wait=PATIENCE
        )
        assert (taken_over.value, taken_over.replayed, seen) == ("mine", False, [2])
        assert keys.run("k", never, payload="order").value == "mine"


STOPPED = """
import sys, polylatch
client = polylatch.connect(sys.argv[1])
run = client.idempotency("s").begin("k", lease=1)
print("working", flush=True)
print(run.claim.wait_lost(60), flush=True)
try:
    run.complete("late")
except polylatch.NotRecorded as error:
    print(error.code, error.effect, flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGSTOP")
def test_a_process_that_was_stopped_is_notified_and_stores_nothing(script, shared_url):
    child = script(STOPPED, shared_url)
    assert child.line() == "working"
    with polylatch.connect(shared_url) as client:
        child.pause()
        taken_over = client.idempotency("s").run("k", lambda claim: "mine", wait=PATIENCE)
        assert not taken_over.replayed
        child.resume()
        assert child.line() in ("expired", "superseded")
        assert child.line() == "not_recorded maybe"
        assert client.idempotency("s").run("k", never).value == "mine"
