"""Idempotent work inside transactions of the program's own, by the drivers of real databases."""

import contextlib
import sqlite3
import threading
import time

import pytest
import sqlalchemy
from conftest import PATIENCE
from databases import Mariadb, Postgres
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

import polylatch


@pytest.fixture(scope="module")
def servers():
    with contextlib.ExitStack() as stack:
        started = {}
        for make in (Postgres, Mariadb):
            server = make()
            stack.callback(server.stop)
            # A client makes the tables.
            polylatch.connect(server.url).close()
            started[server.dialect] = server
        yield started


class Database:
    """A database of a program, with a table of effects."""

    def __init__(self, dialect, connect):
        self.dialect = dialect
        self.connect = connect
        self.runs = polylatch.TransactionRuns(dialect)
        self.begin = "BEGIN IMMEDIATE" if dialect == "sqlite ?" else "BEGIN"
        with self.open() as connection:
            for sql in ("DROP TABLE IF EXISTS effects", "CREATE TABLE effects (work VARCHAR(99))"):
                connection.cursor().execute(sql)
            connection.commit()

    def open(self):
        return contextlib.closing(self.connect())

    @contextlib.contextmanager
    def transaction(self, connection):
        """As a framework has it: commits, or rolls back."""
        connection.cursor().execute(self.begin)
        try:
            yield
        except BaseException:
            connection.rollback()
            raise
        connection.commit()

    def effects(self, work):
        with self.open() as connection:
            cursor = connection.cursor()
            cursor.execute(f"SELECT count(*) FROM effects WHERE work = '{work}'")
            return cursor.fetchone()[0]


def effect(connection, work):
    connection.cursor().execute(f"INSERT INTO effects VALUES ('{work}')")


@pytest.fixture(params=["sqlite ?", "postgres %s", "mysql %s"])
def database(request, tmp_path):
    if request.param == "sqlite ?":
        path = tmp_path / "app.db"

        def connect():
            return sqlite3.connect(path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)

        with contextlib.closing(connect()) as connection:
            for _ in range(2):
                connection.executescript(polylatch.TransactionRuns("sqlite ?").schema_sql)
        return Database(request.param, connect)
    return Database(request.param, request.getfixturevalue("servers")[request.param].connect)


def test_a_repetition_gets_the_answer_of_the_first_transaction(database, name):
    def order(claim):
        assert claim.fencing_token > 0 and claim.runs == 1
        effect(connection, name)
        return {"order": "42 ü"}

    with database.open() as connection:
        for replayed in (False, True):
            with database.transaction(connection):
                outcome = database.runs.run(connection, "orders/7", name, order, payload={"apples": 3})
            assert outcome == polylatch.Outcome({"order": "42 ü"}, replayed=replayed)
        with pytest.raises(polylatch.PayloadMismatch), database.transaction(connection):
            database.runs.run(connection, "orders/7", name, order, payload={"apples": 4})
        with database.transaction(connection):
            other = database.runs.begin(connection, "orders/8", name)
            assert not other.replayed
            assert other.complete([1]) == [1]
    assert database.effects(name) == 1


def test_what_is_raised_after_the_effect_leaves_nothing(database, name):
    def fails(claim):
        effect(connection, name)
        raise KeyError("no card")

    with database.open() as connection:
        with pytest.raises(KeyError), database.transaction(connection):
            database.runs.run(connection, "orders/7", name, fails)
        assert database.effects(name) == 0
        with database.transaction(connection):
            outcome = database.runs.run(connection, "orders/7", name, lambda _: effect(connection, name))
        assert outcome == polylatch.Outcome(None, replayed=False)
    assert database.effects(name) == 1


def test_a_stored_failure_is_raised_for_every_repetition(database, name):
    with database.open() as connection:
        with database.transaction(connection):
            attempt = database.runs.begin(connection, "orders/7", name)
            attempt.fail(polylatch.WorkFailed({"refused": True}))
        with pytest.raises(polylatch.WorkFailed) as failed, database.transaction(connection):
            database.runs.run(connection, "orders/7", name, lambda _: None)
        assert failed.value.answer == {"refused": True}
        assert failed.value.replayed


def test_a_duplicate_waits_for_the_first_transaction(database, name):
    ended = threading.Event()
    found = []

    def second():
        with database.open() as connection, database.transaction(connection):
            found.append(database.runs.run(connection, "orders/7", name, lambda _: "second"))
        ended.set()

    with database.open() as connection:
        with database.transaction(connection):
            database.runs.run(connection, "orders/7", name, lambda _: "first")
            thread = threading.Thread(target=second)
            thread.start()
            assert not ended.wait(0.3)
        assert ended.wait(PATIENCE)
        thread.join()
    assert found == [polylatch.Outcome("first", replayed=True)]


def test_without_waiting_a_duplicate_is_in_progress(database, name):
    if database.dialect == "sqlite ?":
        # There the second transaction cannot begin.
        return
    with database.open() as connection, database.open() as other:
        with database.transaction(connection):
            attempt = database.runs.begin(connection, "orders/7", name)
            begun = time.monotonic()
            with pytest.raises(polylatch.InProgress, match="transaction"), database.transaction(other):
                database.runs.begin(other, "orders/7", name, no_wait=True)
            assert time.monotonic() - begun < 10
            attempt.complete(1)
        with database.transaction(other):
            assert database.runs.begin(other, "orders/7", name, no_wait=True).value == 1


def test_steps_go_on_after_the_last_commit(database, name):
    def steps():
        return database.runs.steps("orders/7", name, lease=600)

    with database.open() as connection:
        with database.transaction(connection):
            attempt = steps().claim(connection)
        with database.transaction(connection):
            effect(connection, f"{name} charge")
            attempt = attempt.step(connection, "charge", {"receipt": 7})
        # The next one is rolled back.
        with pytest.raises(KeyError), database.transaction(connection):
            effect(connection, f"{name} send")
            attempt.step(connection, "send")
            raise KeyError
        with pytest.raises(polylatch.InProgress, match="lease"), database.transaction(connection):
            steps().claim(connection)
        with database.transaction(connection):
            attempt.release(connection)
        with database.transaction(connection):
            other = steps().claim(connection)
        assert other.finished == {"charge": {"receipt": 7}}
        assert other.claim.runs == 2
        # The first one is not the present one any more.
        with pytest.raises(polylatch.StaleToken), database.transaction(connection):
            effect(connection, f"{name} send")
            attempt.step(connection, "send")
        with database.transaction(connection):
            effect(connection, f"{name} send")
            other = other.step(connection, "send")
        with database.transaction(connection):
            assert other.complete(connection, "done") == "done"
        with database.transaction(connection):
            again = steps().claim(connection)
        assert again.replayed
        assert again.value == "done"
    assert [database.effects(f"{name} {step}") for step in ("charge", "send")] == [1, 1]


def test_a_client_sees_the_record_of_a_transaction(servers, name):
    for dialect, server in servers.items():
        runs = polylatch.TransactionRuns(dialect)
        with contextlib.closing(server.connect()) as connection:
            runs.run(connection, "orders/7", name, lambda _: [1, 2])
            connection.commit()
            with polylatch.connect(server.url) as client:
                outcome = client.idempotency("orders/7").run(name, lambda _: pytest.fail("done again"))
            assert outcome == polylatch.Outcome([1, 2], replayed=True)
            cursor = connection.cursor()
            table = "polylatch.idempotency" if dialect == "postgres %s" else "polylatch_idempotency"
            cursor.execute(f"UPDATE {table} SET keep_until_ms = 1")
            connection.commit()
            assert runs.purge(connection, 1000) >= 1
            connection.commit()
            assert runs.purge(connection) == 0
            connection.commit()


def test_sqlalchemy_connections_and_sessions_are_taken(database, name):
    drivers = {
        "sqlite ?": "sqlite://",
        "postgres %s": "postgresql+psycopg://",
        "mysql %s": "mysql+pymysql://",
    }

    def connect():
        connection = database.connect()
        if database.dialect == "postgres %s":
            # The server's own encoding is none, and SQLAlchemy reads texts alone.
            connection.execute("SET client_encoding TO 'UTF8'")
            connection.commit()
        return connection

    engine = sqlalchemy.create_engine(drivers[database.dialect], creator=connect, poolclass=NullPool)
    with engine.begin() as connection:
        outcome = database.runs.run(connection, "orders/7", name, lambda _: 1)
    assert not outcome.replayed
    with Session(engine) as session, session.begin():
        assert database.runs.run(session, "orders/7", name, lambda _: 2) == polylatch.Outcome(
            1, replayed=True
        )


def test_bad_arguments_are_refused_before_anything_is_sent(name):
    for make in (
        lambda: polylatch.TransactionRuns("sqlite"),
        lambda: polylatch.TransactionRuns("mysql %s", "x"),
        lambda: polylatch.TransactionRuns("sqlite ?", encoding="yaml"),
        lambda: polylatch.TransactionRuns("sqlite ?").steps("orders/7", "", lease=1),
        lambda: polylatch.TransactionRuns("sqlite ?").steps("orders/7", name, lease=0.001),
        lambda: polylatch.TransactionRuns("sqlite ?").begin(None, "s", name, payload=b"", fingerprint="f"),
        lambda: polylatch.TransactionRuns("sqlite ?").purge(None, 0),
    ):
        with pytest.raises(polylatch.InvalidArgument):
            make()
