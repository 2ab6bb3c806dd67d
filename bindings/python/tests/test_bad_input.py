"""Whatever is asked: the language's own kind of error, before anything is sent."""

import asyncio
import threading

import pytest
from conftest import holders, wait_until

import polylatch

HUGE = 10**400


@pytest.fixture
def client():
    with polylatch.connect("memory:") as client:
        yield client


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"lease": -1}, "lease is -1 seconds; it must be zero or more"),
        ({"lease": float("nan")}, "lease is NaN seconds; it must be a finite number"),
        ({"lease": float("inf")}, "finite"),
        ({"lease": HUGE}, "finite"),
        ({"lease": 1e300}, "at most a hundred years"),
        ({"lease": 0}, "lease is 0ns; it must be between 100ms and 86400s"),
        ({"lease": 1e6}, "between 100ms and 86400s"),
        ({"wait": -0.001}, "wait is -0.001 seconds"),
        ({"wait": 1e9}, "wait is 1000000000s; it must be between 0ns and"),
        ({"max_hold": 0.01}, "max_hold is 10ms; it must be between"),
        ({"beat_every": 0.01}, "beat_every is 10ms"),
        ({"max_hold": 1, "renew": False}, "max_hold limits renewals, but renew is off"),
        ({"keep_idle": 0.01}, "keep_idle is 10ms; it must be between 100ms and 86400s"),
        ({"keep_idle": 1, "owner": "me"}, "owner is about a single one"),
        ({"label": "x" * 257}, "256"),
        ({"label": "a\nb"}, "control"),
        ({"owner": ""}, "1 to 128"),
        ({"owner": "x" * 129}, "1 to 128"),
    ],
)
def test_a_wrong_value_is_named_with_its_rule(client, name, options, says):
    with pytest.raises(polylatch.InvalidArgument) as caught:
        client.lock(name, **options).acquire()
    assert says in str(caught.value)
    assert isinstance(caught.value, ValueError)
    assert caught.value.effect == "none"
    assert holders(client, name) == []


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"lease": "30"}, "lease must be a number of seconds or a timedelta, not str"),
        ({"lease": True}, "not bool"),
        ({"wait": [1]}, "wait must be a number of seconds or a timedelta, not list"),
        ({"label": 7}, "label must be a str, not int"),
        ({"owner": b"me"}, "owner must be a str, not bytes"),
        ({"fifo": 1}, "fifo must be a bool, not int"),
        ({"renew": "no"}, "renew must be a bool, not str"),
        ({"leese": 30}, "unexpected keyword argument 'leese'; it takes lease, wait, label"),
        ({"wait_secs": 30}, "unexpected keyword argument 'wait_secs'"),
    ],
)
@pytest.mark.parametrize("kind", ["lock", "rw_lock", "semaphore", "lock_all"])
def test_a_wrong_type_or_name_is_a_type_error(client, name, kind, options, says):
    make = {
        "lock": lambda: client.lock(name, **options),
        "rw_lock": lambda: client.rw_lock(name, **options),
        "semaphore": lambda: client.semaphore(name, 2, **options),
        "lock_all": lambda: client.lock_all([name], **options),
    }[kind]
    with pytest.raises(TypeError) as caught:
        make()
    assert says in str(caught.value)


@pytest.mark.parametrize("bad", ["", "x" * 513, "a\0b", "a\nb"])
def test_an_impossible_name_is_refused(client, bad):
    with pytest.raises(polylatch.InvalidArgument):
        client.lock(bad).acquire()


def test_what_is_no_name_is_a_type_error(client):
    for bad in (None, 7, b"a", ["a"]):
        with pytest.raises(TypeError):
            client.lock(bad)
    with pytest.raises(TypeError, match="not one str"):
        client.lock_all("abc")
    with pytest.raises(TypeError):
        client.lock_all([1])
    with pytest.raises(TypeError):
        client.lock_all(7)
    with pytest.raises(polylatch.InvalidArgument, match="at least one"):
        client.lock_all([]).acquire()


def test_a_name_that_is_not_unicode_is_refused(client):
    with pytest.raises(UnicodeEncodeError):
        client.lock("\ud800")
    with pytest.raises(UnicodeEncodeError):
        client.lock("a", label="\ud800")


@pytest.mark.parametrize("permits", [0, -1, 1001, HUGE, -HUGE])
def test_an_impossible_number_of_permits_is_refused(client, name, permits):
    with pytest.raises(polylatch.InvalidArgument, match="1000"):
        client.semaphore(name, permits).acquire()


def test_permits_are_counted_in_whole_numbers(client, name):
    for bad in (1.5, "2", None, True):
        with pytest.raises(TypeError):
            client.semaphore(name, bad)
    with pytest.raises(polylatch.InvalidArgument):
        client.semaphore(name, 2).acquire(3)
    with pytest.raises(polylatch.InvalidArgument):
        client.semaphore(name, 2).acquire(0)


@pytest.mark.parametrize(
    ("url", "options", "says"),
    [
        ("memory:?leese=5s", {}, "leese"),
        ("memory:", {"leese": 5}, "leese"),
        ("memory:", {"lease": 0.001}, "must be between 100ms and 86400s"),
        ("memory:?lease=5s", {"lease": 5}, "given twice"),
        ("memory:?lease=5", {}, "no unit"),
        ("memory:", {"push": "perhaps"}, "must be one of enter, hint"),
        ("memory:", {"push": float("nan")}, "finite"),
        ("nonsense://host", {}, 'scheme "nonsense" is unknown'),
        ("", {}, "no scheme"),
        ("a\nb:", {}, ""),
        ("sqlite:", {}, "no path"),
    ],
)
def test_a_wrong_url_or_option_is_named_with_its_rule(url, options, says):
    with pytest.raises(polylatch.InvalidConfig) as caught:
        polylatch.connect(url, **options)
    assert says in str(caught.value)


def test_options_of_a_wrong_type_are_type_errors():
    for options in ({"lease": "x y".split()}, {"lease": True}, {"push": object()}):
        with pytest.raises((TypeError, polylatch.InvalidConfig)):
            polylatch.connect("memory:", **options)
    for url in (7, b"memory:", ["memory:"]):
        with pytest.raises(TypeError):
            polylatch.connect(url)
    with pytest.raises(TypeError):
        polylatch.connect("memory:", program=7)
    with pytest.raises(TypeError):
        polylatch.connect("memory:", "more")


def test_options_reach_the_store(name):
    with polylatch.connect("memory:", lease=7.5, push="hint", program="my program") as client:
        with client.lock(name):
            # It introduces itself in the background.
            wait_until(lambda: client.inspect(name)["clients"], "the client says who it is")
            snapshot = client.inspect(name)
    assert snapshot["locks"][0]["holders"][0]["lease_ms"] == 7_500
    assert snapshot["clients"][0]["program"] == "my program"


def test_yes_and_no_are_pythons(tmp_path):
    url = f"sqlite:{tmp_path / 'locks.sqlite'}"
    polylatch.connect(url, allow_network_file_system=True).close()
    with pytest.raises(polylatch.InvalidConfig, match="must be one of yes, no"):
        polylatch.connect(url, allow_network_file_system="perhaps")


def test_native_classes_are_not_made_by_hand():
    for kind in (polylatch.Client, polylatch.Lock, polylatch.Guard, polylatch.GuardSet, polylatch.Lost):
        with pytest.raises(TypeError):
            kind()


def test_leaving_what_was_not_entered_says_so(client, name):
    lock = client.lock(name)
    with pytest.raises(RuntimeError, match="not entered"):
        lock.__exit__(None, None, None)
    seen = []

    def leave():
        try:
            lock.__exit__(None, None, None)
        except RuntimeError as error:
            seen.append(error)

    with lock:
        thread = threading.Thread(target=leave)
        thread.start()
        thread.join()
    assert seen


def test_decorating_what_cannot_hold_the_lock_is_a_type_error(client, name):
    async def coroutine():
        pass

    def generator():
        yield

    lock = client.lock(name)
    for bad, says in ((coroutine, "connect_async"), (generator, "generator"), (7, "int")):
        with pytest.raises(TypeError, match=says):
            lock(bad)

    async def main():
        async with polylatch.connect_async("memory:") as client:
            for bad, says in ((lambda: 1, "connect"), (generator, "generator"), (7, "int")):
                with pytest.raises(TypeError, match=says):
                    client.lock(name)(bad)

    asyncio.run(main())


def test_a_limit_for_waiting_is_checked(client, name):
    with client.lock(name) as guard:
        for bad in (-1, float("nan")):
            with pytest.raises(polylatch.InvalidArgument, match="timeout"):
                guard.lost.wait(bad)
        with pytest.raises(TypeError):
            guard.lost.wait("long")
        with pytest.raises(TypeError):
            guard.on_lost(7)
        assert guard.lost.wait(0) is False


def test_breaking_checks_its_arguments(client, name):
    for token in (-1, 2**53, HUGE):
        with pytest.raises(polylatch.InvalidArgument, match="2\\*\\*53"):
            client.break_lease(name, fencing_token=token, by="me", reason="a test")
    with pytest.raises(TypeError):
        client.break_lease(name, fencing_token="1", by="me", reason="a test")
    with pytest.raises(polylatch.InvalidArgument, match="reason"):
        client.break_lease(name, fencing_token=1, by="me", reason=" ")
    assert client.break_lease(name, fencing_token=1, by="me", reason="a test") == {"outcome": "free"}


def test_a_gate_refuses_older_tokens():
    gate = polylatch.TokenGate()
    assert gate.largest is None
    gate.admit(5)
    gate.admit(5)
    with pytest.raises(polylatch.StaleToken) as caught:
        gate.admit(4)
    assert "4" in str(caught.value) and "5" in str(caught.value)
    assert polylatch.TokenGate(9).largest == 9
    for bad in (-1, 2**53):
        with pytest.raises(polylatch.InvalidArgument):
            gate.admit(bad)
    for bad in ("5", 5.0, None, True):
        with pytest.raises(TypeError):
            gate.admit(bad)


def test_a_sequencer_is_read_as_it_is_printed(client):
    with client.lock("orders/42") as guard:
        sequencer = polylatch.Sequencer(guard.sequencer)
        assert (sequencer.name, sequencer.fencing_token) == ("orders/42", guard.fencing_token)
        assert sequencer.holder == client.id
        assert str(sequencer) == guard.sequencer
        assert sequencer == polylatch.Sequencer(guard.sequencer)
        assert len({sequencer, polylatch.Sequencer(guard.sequencer)}) == 1
    for bad in ("", "orders/42", "name=a; token=034", "name=a;token=1"):
        with pytest.raises(polylatch.InvalidArgument):
            polylatch.Sequencer(bad)


def test_what_other_locks_have_is_answered_with_what_to_use(client, name):
    lock = client.lock(name)
    for arguments in (((), {"blocking": False}), ((False,), {}), ((), {"timeout": 3})):
        with pytest.raises(TypeError, match=r"try_acquire\(\).*wait=SECONDS"):
            lock.acquire(*arguments[0], **arguments[1])
    with pytest.raises(AttributeError, match=r"guard\.release\(\)"):
        lock.release()
    with pytest.raises(AttributeError, match=r"client\.inspect\(lock\.name\)"):
        lock.locked()
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'$"):
        lock.nonsense  # noqa: B018
    assert not hasattr(lock, "nonsense")


def test_an_asyncio_lock_answers_so_too(name):
    async def main():
        async with polylatch.connect_async("memory:") as client:
            with pytest.raises(AttributeError, match=r"guard\.release\(\)"):
                client.lock(name).release()

    asyncio.run(main())


def test_an_infinite_wait_is_no_limit(client, name):
    client.lock(name, wait=float("inf")).acquire().release()


def test_a_name_with_half_a_character_is_refused(client):
    with pytest.raises(ValueError, match="surrogates not allowed"):
        client.lock("a\ud800")
