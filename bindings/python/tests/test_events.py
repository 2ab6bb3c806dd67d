"""What a program is told of its locks: the logger ``polylatch``, and callbacks."""

import asyncio
import logging
import threading

import pytest
from conftest import wait_until

import polylatch


class Heard(list):
    """Records of the logger, as they come."""

    def of(self, event):
        return [record for record in self if record.polylatch["event"] == event]


@pytest.fixture
def heard():
    records = Heard()
    handler = logging.Handler()
    handler.emit = records.append
    logger = logging.getLogger("polylatch")
    logger.addHandler(handler)
    yield records
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


def lose(client, name):
    guard = client.lock(name, lease=0.2, renew=False).acquire()
    assert guard.lost.wait(60)
    return guard


def test_a_lost_lease_is_logged_as_an_error(redis_url, name, heard):
    with polylatch.connect(redis_url) as client:
        guard = lose(client, name)
        wait_until(lambda: heard.of("lost"), "the loss is logged")
    (record,) = heard.of("lost")
    assert record.levelno == logging.ERROR
    assert record.name == "polylatch"
    assert name in record.getMessage()
    assert record.polylatch["reason"] == "expired"
    assert record.polylatch["fencing_token"] == guard.fencing_token
    assert not heard.of("acquired"), "nobody asked for these"


def test_every_acquisition_is_logged_where_the_logger_wants_it(redis_url, name, heard):
    logging.getLogger("polylatch").setLevel(logging.DEBUG)
    with polylatch.connect(redis_url) as client:
        client.lock(name).acquire().release()
        wait_until(lambda: heard.of("released"), "the release is logged")
        (record,) = heard.of("acquired")
        assert record.levelno == logging.DEBUG
        assert record.polylatch["client"] == client.id


def test_an_evicting_server_is_warned_of(redis, heard):
    redis.send("CONFIG", "SET", "maxmemory", "100mb")
    redis.send("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    with polylatch.connect(redis.url):
        wait_until(lambda: heard.of("setup_warning"), "it is logged")
    (record,) = heard.of("setup_warning")
    assert record.levelno == logging.WARNING
    assert "maxmemory-policy=allkeys-lru" in record.getMessage()


def test_an_unbounded_wait_says_that_the_store_is_away_and_when_it_is_back(redis, name, heard):
    logging.getLogger("polylatch").setLevel(logging.INFO)
    with polylatch.connect(redis.url, timeout=0.3, poll=0.1) as client:
        redis.pause()
        got = []
        waiting = threading.Thread(target=lambda: got.append(client.lock(name).acquire()))
        waiting.start()
        wait_until(lambda: heard.of("store_unreachable"), "it is logged")
        assert heard.of("store_unreachable")[0].levelno == logging.WARNING
        redis.resume()
        waiting.join()
        got.pop().release()
        wait_until(lambda: heard.of("store_reachable"), "it is logged")
        assert len(heard.of("store_unreachable")) == 1


def test_a_callback_hears_its_own_client_only_and_may_fail(url, name, heard):
    events = []

    def on_event(event):
        events.append(event)
        raise ZeroDivisionError

    loud = polylatch.connect(url, on_event=on_event, level="debug")
    with loud as client, polylatch.connect("memory:") as other:
        other.lock(name).acquire().release()
        client.lock(name).acquire().release()
        lose(client, name)
        wait_until(lambda: any(event["event"] == "lost" for event in events), "the loss is told")
        assert {event["client"] for event in events} == {client.id}
    wait_until(lambda: any(record.exc_info for record in heard if not hasattr(record, "polylatch")), "told")


def heard_at(url, name, **level):
    """What a callback hears of a lock that is free, one that is waited for, and one that is lost."""
    events = []

    def on_event(event):
        events.append(f"{event['level']} {event['event']}")

    with polylatch.connect(url, on_event=on_event, **level) as client, polylatch.connect(url) as other:
        client.lock(name).acquire().release()
        held = other.lock(name).acquire()
        got = []
        waiting = threading.Thread(target=lambda: got.append(client.lock(name).acquire()))
        waiting.start()
        wait_until(lambda: client.stats()["waiting"] == 1, "it waits")
        held.release()
        waiting.join()
        got.pop().release()
        lose(client, name)
        wait_until(lambda: "error lost" in events, "the loss is told")
    return events


def test_a_callback_hears_its_level_and_above(redis_url, name):
    usual = ["info waiting", "info acquired", "error lost"]
    assert heard_at(redis_url, name) == usual
    assert heard_at(redis_url, name, level="info") == usual
    assert heard_at(redis_url, name, level="error") == ["error lost"]
    assert heard_at(redis_url, name, level="debug")[:2] == ["debug acquired", "debug released"]
    with pytest.raises(polylatch.InvalidConfig, match="must be one of error, warn, info, debug"):
        polylatch.connect("memory:", on_event=print, level="loud")


def test_what_the_logger_takes_does_not_change_what_a_callback_hears(redis_url, name, heard):
    logging.getLogger("polylatch").setLevel(logging.DEBUG)
    assert heard_at(redis_url, name) == ["info waiting", "info acquired", "error lost"]
    assert heard.of("released")


def test_a_coroutine_program_hears_them_too(url, name):
    events = []

    async def main():
        async with polylatch.connect_async(url, on_event=events.append, level="debug") as client:
            async with client.lock(name):
                pass

    asyncio.run(main())
    wait_until(lambda: any(event["event"] == "released" for event in events), "the release is told")


def test_a_callback_is_let_go_of_with_its_client():
    import weakref

    class Program:
        def __init__(self):
            self.client = polylatch.connect("memory:", on_event=self.heard)

        def heard(self, event):
            pass

    program = Program()
    gone = weakref.ref(program)
    program.client.close()
    del program
    wait_until(lambda: gone() is None, "it is let go of")


def test_what_is_told_at_the_end_of_a_program_is_logged(script, redis, name):
    program = script(
        """
        import sys, polylatch, time
        client = polylatch.connect(sys.argv[1], timeout=0.3)
        guard = client.lock(sys.argv[2], lease=0.3, renew=False).acquire()
        time.sleep(0.5)
        """,
        redis.url,
        name,
    )
    _, errors, status = program.end()
    assert status == 0
    assert "lost" in errors and name in errors


def test_what_cannot_be_called_is_no_callback():
    with pytest.raises(TypeError, match="on_event must be callable"):
        polylatch.connect("memory:", on_event=7)
