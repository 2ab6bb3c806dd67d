"""Idempotent work inside the caller's own transactions, by any DB-API driver or by SQLAlchemy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Generic, Optional, TypeVar, cast

from ._idem_values import (
    Begun,
    Encoding,
    Outcome,
    checked_encoding,
    decode,
    encode,
    failure_bytes,
    payload_bytes,
    replayed_failure,
)
from ._polylatch import SqlRun, SqlRuns, SqlTalk, TransactionClaim

if TYPE_CHECKING:
    from ._polylatch import Dialect, Seconds

_T = TypeVar("_T")


def rows_of(connection: Any, sql: str, values: tuple[Any, ...]) -> list[Any]:
    """Executes a statement on the caller's connection. Returns its rows."""
    if hasattr(connection, "exec_driver_sql"):
        # Of SQLAlchemy.
        result = connection.exec_driver_sql(sql, values or None)
        return list(result.fetchall()) if result.returns_rows else []
    if not hasattr(connection, "cursor"):
        # A session of SQLAlchemy.
        return rows_of(connection.connection(), sql, values)
    cursor = connection.cursor()
    try:
        cursor.execute(sql, values)
        return list(cursor.fetchall()) if cursor.description else []
    finally:
        cursor.close()


def carry_out(connection: Any, talk: SqlTalk) -> tuple[Any, Any, Any, int]:
    """Executes what is asked for, until it is over."""
    rows: list[Any] = []
    while True:
        asked = talk.next(rows)
        if asked is None:
            return talk.end()
        rows = rows_of(connection, *asked)


def code_of(error: Exception) -> str:
    """The number of a database's error; SQLAlchemy has that of its driver inside."""
    cause = getattr(error, "orig", None) or error
    return str(cause.args[0]) if cause.args else ""


class TransactionAttempt(Begun[TransactionClaim, _T]):
    """The work of one key in the caller's transaction: claimed, or its stored answer."""

    __slots__ = ("_connection",)

    def __init__(
        self, connection: Any, claim: Optional[TransactionClaim], value: Any, encoding: Encoding
    ) -> None:
        super().__init__(claim, value, encoding)
        self._connection = connection

    def complete(self, value: _T) -> _T:
        """Records the result: the last call before the commit. Returns it as it is read back.

        Raises: :class:`InvalidArgument` for a result of more than 1 MiB, ``TypeError`` or ``ValueError`` for
        what the encoding cannot write, :class:`StaleToken` if the claim is not the present one. Roll back
        after each of them: nothing is done then.
        """
        stored = encode(self._encoding, value)
        carry_out(self._connection, self.claim._complete(stored))
        self._value = decode(self._encoding, stored)
        return cast("_T", self._value)

    def fail(self, error: Exception) -> None:
        """Records a failure that every repetition gets. What the transaction changed is committed with it."""
        carry_out(self._connection, self.claim._fail(failure_bytes(self._encoding, error)))

    def __repr__(self) -> str:
        state = "replayed" if self.replayed else "claimed"
        return f"<polylatch.TransactionAttempt, {state}>"


class StepsAttempt(Begun[TransactionClaim, _T]):
    """The work of one key in several transactions, as it was when the last call about it was committed.

    Each call that records something returns the next one. After a rollback go on with the one before.
    """

    __slots__ = ("_finished",)

    def __init__(self, claim: Optional[TransactionClaim], value: Any, encoding: Encoding) -> None:
        super().__init__(claim, value, encoding)
        found = [] if claim is None else claim._finished()
        self._finished: dict[str, Any] = {name: decode(encoding, stored) for name, stored in found}

    @property
    def finished(self) -> dict[str, Any]:
        """Names and values of the finished steps, in their order."""
        return self._finished

    def step(self, connection: Any, name: str, value: Any = None) -> StepsAttempt[_T]:
        """Records that a step is finished, and renews the lease: the last call before the step's commit.

        ``name``: 1 to 100 bytes. Raises: :class:`StaleToken` if another client has taken the work over (roll
        back: the step was not done by this one), :class:`InvalidArgument` for a step that is finished already
        and for values of more than 1 MiB in all.
        """
        return self._next(connection, self.claim._step(name, encode(self._encoding, value)))

    def renew(self, connection: Any) -> StepsAttempt[_T]:
        """Renews the lease; commit it. Raises: :class:`StaleToken`."""
        return self._next(connection, self.claim._renew())

    def release(self, connection: Any) -> None:
        """Ends the claim without an answer, so that another client goes on at once; commit it."""
        carry_out(connection, self.claim._release())

    def complete(self, connection: Any, value: _T) -> _T:
        """Records the result of all: the last call before the last commit.

        Raises: as :meth:`TransactionAttempt.complete`.
        """
        stored = encode(self._encoding, value)
        carry_out(connection, self.claim._complete(stored))
        return cast("_T", decode(self._encoding, stored))

    def fail(self, connection: Any, error: Exception) -> None:
        """Records a failure that every repetition gets. What finished steps have done remains."""
        carry_out(connection, self.claim._fail(failure_bytes(self._encoding, error)))

    def _next(self, connection: Any, talk: SqlTalk) -> StepsAttempt[_T]:
        return StepsAttempt(carry_out(connection, talk)[0], None, self._encoding)

    def __repr__(self) -> str:
        state = "replayed" if self.replayed else f"{len(self.finished)} steps finished"
        return f"<polylatch.StepsAttempt, {state}>"


class TransactionSteps(Generic[_T]):
    """Work in several transactions; see :meth:`TransactionRuns.steps`."""

    __slots__ = ("_encoding", "_run")

    def __init__(self, run: SqlRun, encoding: Encoding) -> None:
        self._run = run
        self._encoding: Encoding = encoding

    def claim(self, connection: Any) -> StepsAttempt[_T]:
        """Claims the work with its finished steps, or finds its answer. Commit it at once.

        If the answer to a commit is lost, claim again with the same object: it says whether the step was
        committed.

        Raises: :class:`InProgress` while another client works on it, :class:`PayloadMismatch`,
        :class:`WorkFailed`, :class:`ResultTooLarge`, :class:`BackendUnavailable`.
        """
        claim, value, failure, _ = carry_out(connection, self._run.claim())
        if failure is not None:
            raise replayed_failure(self._encoding, failure, value)
        return StepsAttempt(claim, None if value is None else decode(self._encoding, value), self._encoding)


class TransactionRuns:
    """Idempotent work whose record is committed by the caller's own transaction: both, or neither.

        runs = polylatch.TransactionRuns("postgres %s")
        with psycopg.connect(...) as connection:  # commits, or rolls back
            outcome = runs.run(connection, "orders/customer-7", key, lambda claim: order(connection))

    Nothing is sent but the statements on the connection that is given: one of a DB-API driver, or a
    ``Connection`` or ``Session`` of SQLAlchemy. Its rows are tuples. The caller begins (SQLite: ``BEGIN
    IMMEDIATE``), commits and rolls back; without a transaction nothing of this holds.

    ``dialect``: the database and the sign of its driver, as of :class:`FencedUpdate`: ``"sqlite ?"``,
    ``"postgres %s"``, ``"mysql %s"`` (MariaDB too) and so on. ``schema``: that of the store on PostgreSQL.
    ``encoding``: how results are stored, ``"json"`` or ``"bytes"``.

    On PostgreSQL, MySQL and MariaDB the record is the one that :meth:`Client.idempotency` keeps in that
    database. On SQLite it is in a table of its own, which :attr:`schema_sql` makes.

    Raises: :class:`InvalidArgument`, :class:`InvalidConfig` for an impossible schema.
    """

    __slots__ = ("_encoding", "_runs")

    def __init__(self, dialect: Dialect, schema: Optional[str] = None, *, encoding: str = "json") -> None:
        self._encoding: Encoding = checked_encoding(encoding)
        self._runs = SqlRuns(dialect, schema)

    @property
    def schema_sql(self) -> str:
        """The script that makes the tables. Run again, it changes nothing."""
        return self._runs.schema_sql()

    def run(
        self,
        connection: Any,
        scope: str,
        key: str,
        work: Callable[[TransactionClaim], _T],
        *,
        payload: Any = None,
        fingerprint: Optional[str] = None,
        retention: Optional[Seconds] = None,
        no_wait: bool = False,
    ) -> Outcome[_T]:
        """Does ``work(claim)`` in the caller's transaction, unless it was done: then returns its answer.

        It waits for another transaction with the same key. With ``no_wait`` it raises :class:`InProgress`
        instead (PostgreSQL, MariaDB). What the work raises is raised on: roll back, and nothing was done.
        The other options are those of :meth:`Idempotency.run`.

        Raises: :class:`InProgress`, :class:`PayloadMismatch`, :class:`WorkFailed`, :class:`ResultTooLarge`,
        those of :meth:`TransactionAttempt.complete`, and what the driver raises. Roll back after each.
        """
        attempt: TransactionAttempt[_T] = self.begin(
            connection,
            scope,
            key,
            payload=payload,
            fingerprint=fingerprint,
            retention=retention,
            no_wait=no_wait,
        )
        if attempt.replayed:
            return Outcome(attempt.value, replayed=True)
        return Outcome(attempt.complete(work(attempt.claim)), replayed=False)

    def begin(
        self,
        connection: Any,
        scope: str,
        key: str,
        *,
        payload: Any = None,
        fingerprint: Optional[str] = None,
        retention: Optional[Seconds] = None,
        no_wait: bool = False,
    ) -> TransactionAttempt[Any]:
        """Claims a key, or finds its answer: the first half of :meth:`run`, for work that is no function."""
        options = native(payload, fingerprint, retention, no_wait=no_wait)
        run = self._runs.run(scope, key, options)
        try:
            claim, value, failure, _ = carry_out(connection, run.claim())
        except Exception as error:
            if no_wait and self._runs.says_in_progress(code_of(error)):
                raise run.in_progress() from error
            raise
        if failure is not None:
            raise replayed_failure(self._encoding, failure, value)
        return TransactionAttempt(
            connection, claim, None if value is None else decode(self._encoding, value), self._encoding
        )

    def steps(
        self,
        scope: str,
        key: str,
        *,
        payload: Any = None,
        fingerprint: Optional[str] = None,
        retention: Optional[Seconds] = None,
        lease: Optional[Seconds] = None,
    ) -> TransactionSteps[Any]:
        """Names work in several transactions: a repetition goes on after the last step that was committed.

        ``lease``: 0.1 s to a day, 15 s by default; each step renews it, and if the client dies, another one
        goes on when it ends.
        """
        options = native(payload, fingerprint, retention, lease=lease)
        return TransactionSteps(self._runs.steps(scope, key, options), self._encoding)

    def purge(self, connection: Any, most: int = 1000) -> int:
        """Deletes records whose retention is over, at most so many (1 to 100 000); commit it."""
        return carry_out(connection, self._runs.purge(most))[3]

    def __repr__(self) -> str:
        return "<polylatch.TransactionRuns>"


def native(payload: Any, fingerprint: Optional[str], retention: Any, **more: Any) -> dict[str, Any]:
    """Returns what the part in Rust takes; it checks it."""
    return {
        "payload": None if payload is None else payload_bytes(payload),
        "fingerprint": fingerprint,
        "retention": retention,
        **more,
    }
