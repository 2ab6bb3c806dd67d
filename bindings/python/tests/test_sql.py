"""Guards for the rows of a table, and locks inside a transaction, by the drivers of real databases."""

import contextlib
import json
import sqlite3

import pytest
from conftest import REPOSITORY
from databases import Mariadb, Postgres

import polylatch
from polylatch import ConditionalUpdate, FencedUpdate, TransactionLock, VersionedUpdate

MAKERS = {
    "fenced_update": FencedUpdate.update,
    "fenced_upsert": FencedUpdate.upsert,
    "versioned_update": VersionedUpdate.update,
    "conditional_update": ConditionalUpdate.update,
    "transaction_lock": TransactionLock,
}
GOLDEN = json.loads((REPOSITORY / "tests/conformance/sql.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def servers():
    with contextlib.ExitStack() as stack:
        started = []
        for make in (Postgres, Mariadb):
            started.append(make())
            stack.callback(started[-1].stop)
        yield {server.dialect: server for server in started}


class Table:
    """A table `account` with one row or none, by the driver of its database."""

    def __init__(self, dialect, connection):
        self.dialect = dialect
        self.connection = connection
        self.execute("DROP TABLE IF EXISTS account")
        self.execute(
            "CREATE TABLE account (id INTEGER PRIMARY KEY, balance BIGINT, fence BIGINT, "
            "version BIGINT NOT NULL DEFAULT 0)"
        )

    def execute(self, sql, values=()):
        cursor = self.connection.cursor()
        cursor.execute(sql, values)
        return cursor

    def write(self, statement, **values):
        """Returns how many rows the driver says were changed."""
        values = {**values, **values.pop("bound", {})}
        return self.execute(statement.sql, [values[name] for name in statement.parameters]).rowcount

    def probe(self, statement, **values):
        return self.execute(
            statement.probe_sql, [values[name] for name in statement.probe_parameters]
        ).fetchone()

    def balance(self):
        return self.execute("SELECT balance FROM account").fetchone()[0]


@pytest.fixture(params=["sqlite ?", "sqlite ?1", "postgres %s", "mysql %s"])
def table(request):
    if request.param.startswith("sqlite"):
        connection = sqlite3.connect(":memory:")
    else:
        connection = request.getfixturevalue("servers")[request.param].connect()
    with contextlib.closing(connection):
        yield Table(request.param, connection)


ORDER = ["dialect", "table", "column", "set", "changes", "conditions", "name", "schema", "keys"]


def arguments(case):
    """What the maker is given, in its order; JSON has no tuples."""
    pairs = ("changes", "conditions")
    return [
        [tuple(pair) for pair in case[name]] if name in pairs else case[name]
        for name in ORDER
        if name in case
    ]


def test_the_texts_are_those_of_every_language():
    assert len(GOLDEN) > 50
    for case in GOLDEN:
        make, given = MAKERS[case["make"]], arguments(case)
        expected = dict(case["expect"])
        if "error" in expected:
            with pytest.raises(polylatch.Error) as caught:
                make(*given)
            assert (caught.value.code, str(caught.value)) == (expected["error"], expected["message"])
            continue
        made = make(*given)
        if case["make"] == "transaction_lock":
            prepare, take, fence = (expected[part] for part in ("prepare", "take", "fence"))
            assert (made.take_sql, made.take_values) == (take["sql"], take["values"])
            prepared = (prepare["sql"], prepare["values"]) if prepare else (None, [])
            assert (made.prepare_sql, made.prepare_values) == prepared
            assert made.fence_sql == (fence and fence["sql"])
            assert made.name == case["name"]
        else:
            if not isinstance(made, FencedUpdate):
                assert expected.pop("rows_tell")
            assert {part: getattr(made, part) for part in expected} == expected


def test_a_table_refuses_older_tokens(table):
    update = FencedUpdate.update(table.dialect, "account", "fence", ["balance"], ["id"])
    upsert = FencedUpdate.upsert(table.dialect, "account", "fence", ["balance"], ["id"])

    def why(token):
        return FencedUpdate.why_unchanged(token, table.probe(update, id=7))

    assert table.write(update, balance=100, fence=33, id=7) == 0
    assert why(33) == "missing"
    assert table.write(upsert, balance=100, fence=33, id=7) == 1
    assert table.write(update, balance=110, fence=33, id=7) == 1
    table.write(upsert, balance=150, fence=34, id=7)
    FencedUpdate.check(34, table.probe(upsert, id=7))

    assert table.write(update, balance=90, fence=33, id=7) == 0
    with pytest.raises(polylatch.StaleToken) as caught:
        why(33)
    assert "33" in str(caught.value) and "34" in str(caught.value)
    changed = table.write(upsert, balance=90, fence=33, id=7)
    # Where the number of rows says nothing, it may be any.
    assert changed == 0 or not upsert.rows_tell
    with pytest.raises(polylatch.StaleToken):
        FencedUpdate.check(33, table.probe(upsert, id=7))
    assert table.balance() == 150
    assert why(35) == "changed_meanwhile"


def test_of_two_writers_that_read_the_same_version_one_writes(table):
    write = VersionedUpdate.update(table.dialect, "account", "version", ["balance"], ["id"])
    table.execute("INSERT INTO account (id, balance) VALUES (7, 100)")
    (version,) = table.probe(write, id=7)
    assert table.write(write, balance=110, id=7, version=version) == 1
    assert table.write(write, balance=90, id=7, version=version) == 0
    row = table.probe(write, id=7)
    assert (VersionedUpdate.why_unchanged(row), row[0], table.balance()) == ("changed", version + 1, 110)
    assert table.write(write, balance=120, id=8, version=0) == 0
    assert VersionedUpdate.why_unchanged(table.probe(write, id=8)) == "missing"


def test_what_is_left_is_not_sold_twice(table):
    take = ConditionalUpdate.update(table.dialect, "account", [("balance", "-")], [("balance", ">=")], ["id"])
    table.execute("INSERT INTO account (id, balance) VALUES (7, 5)")
    three = {"balance -": 3, "id": 7, "balance >=": 3}
    assert table.write(take, bound=three) == 1
    assert table.write(take, bound=three) == 0
    assert table.probe(take, id=7)[0] == table.balance() == 2


@pytest.mark.parametrize("dialect", ["postgres %s", "mysql %s"])
def test_a_transaction_takes_a_lock_that_no_client_holds(servers, dialect, name):
    server = servers[dialect]
    lock = TransactionLock(dialect, name)

    def take(connection):
        """The fencing token, or nothing."""
        cursor = connection.cursor()
        if lock.prepare_sql:
            cursor.execute(lock.prepare_sql, lock.prepare_values)
            connection.commit()
        cursor.execute(lock.take_sql, lock.take_values)
        if lock.fence_sql is None:
            return cursor.fetchone()
        if cursor.rowcount == 0:
            return None
        cursor.execute(lock.fence_sql)
        return cursor.fetchone()

    with polylatch.connect(server.url) as client, contextlib.closing(server.connect()) as connection:
        guard = client.lock(name, lease=30).acquire()
        assert take(connection) is None
        connection.rollback()
        guard.check()
        guard.release()
        (fence,) = take(connection)
        assert fence > guard.fencing_token
        connection.commit()
        with client.lock(name, wait=30) as guard:
            assert guard.fencing_token > fence


@pytest.mark.parametrize("make", [FencedUpdate.update, FencedUpdate.upsert, VersionedUpdate.update])
def test_a_statement_takes_names_and_nothing_else(make):
    for bad in (
        (None, "t", "fence", ["a"], ["k"]),
        ("sqlite ?", "t", "fence", "a", ["k"]),
        ("sqlite ?", "t", "fence", [1], ["k"]),
    ):
        with pytest.raises(TypeError):
            make(*bad)


def test_a_row_is_what_the_probe_found():
    for explain in (FencedUpdate.why_unchanged, FencedUpdate.check):
        with pytest.raises(TypeError):
            explain("7", None)
        with pytest.raises(TypeError):
            explain(7, ("seven",))
    with pytest.raises(TypeError):
        VersionedUpdate.why_unchanged(("seven",))


def test_a_condition_is_a_column_and_an_operator():
    for bad in ([("a",)], [("a", "<", 1)]):
        with pytest.raises(ValueError, match="length 2"):
            ConditionalUpdate.update("sqlite ?", "t", [("a", "=")], bad, ["k"])
    with pytest.raises(TypeError):
        ConditionalUpdate.update("sqlite ?", "t", [("a", 1)], [("a", "<")], ["k"])
