"""Idempotent work for threads: done once, answered every time; see :meth:`polylatch.Client.idempotency`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Literal, Optional, TypeVar, cast

from ._errors import Error, InvalidArgument
from ._idem_values import (
    Begun,
    Outcome,
    checked_encoding,
    decode,
    encode,
    failure_bytes,
    fate_of,
    native_options,
    note,
    replayed_failure,
)

if TYPE_CHECKING:
    from types import TracebackType

    from ._idem_values import Encoding, Fate, OnFailure
    from ._polylatch import Claim, RecordView, Scope, Seconds

_T = TypeVar("_T")

NOT_COMPLETED = (
    "the block ended without complete(value), so nothing is stored, and the key is free when its lease ends; "
    "call complete, or raise"
)


class Attempt(Begun["Claim", _T]):
    """A run that has begun: an earlier one's answer, or a claim under which the caller works.

    A context manager: ``with orders.begin(key) as run:``. What the block raises is stored or frees the key,
    as :meth:`Idempotency.run` does it.
    """

    __slots__ = ("_on_failure",)

    def __init__(
        self, claim: Optional[Claim], value: Any, how: Encoding, on_failure: Optional[OnFailure]
    ) -> None:
        super().__init__(claim, value, how)
        self._on_failure: Optional[OnFailure] = on_failure

    def complete(self, value: _T) -> _T:
        """Stores the result, at most 1 MiB, and returns it as every repetition gets it.

        Raises: :class:`ResultTooLarge`, :class:`NotRecorded`; ``TypeError`` or ``ValueError`` for what the
        encoding cannot write: the work is done, so that failure is stored, whatever ``on_failure`` says.
        """
        try:
            stored = encode(self._encoding, value)
        except (TypeError, ValueError) as error:
            self.claim._fail(failure_bytes(self._encoding, error), "store")
            raise
        self.claim._complete(stored)
        self._value = decode(self._encoding, stored)
        return cast("_T", self._value)

    def fail(self, error: Exception, *, on_failure: Optional[Fate] = None) -> None:
        """Stores a failure as the answer, or frees the key. Without ``on_failure`` as the options say.

        Raises: :class:`ResultTooLarge`, :class:`NotRecorded`.
        """
        try:
            fate = on_failure or fate_of(self._on_failure, error)
            answer = failure_bytes(self._encoding, error)
        except BaseException:
            self.abandon()
            raise
        self.claim._fail(answer, fate)

    def abandon(self) -> None:
        """Says nothing of the work, as if the process had died: the key is free when the lease ends."""
        self.claim._abandon()

    def _raised(self, error: BaseException) -> None:
        """Stores what the work raised, which is raised on."""
        if not isinstance(error, Exception):
            # Interrupted, so that nobody knows what was done.
            self.abandon()
            return
        try:
            self.fail(error)
        except Error as unstored:
            note(error, f"this failure is not recorded: {unstored}")

    def __enter__(self) -> "Attempt[_T]":
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        if self._claim is None or not self._claim._under_way:
            return
        if value is not None:
            self._raised(value)
            return
        self.abandon()
        raise InvalidArgument(NOT_COMPLETED)

    def __repr__(self) -> str:
        return "<polylatch.Attempt, replayed>" if self.replayed else f"<polylatch.Attempt {self._claim!r}>"


class Idempotency:
    """The keys and one-time tokens of one scope; see :meth:`polylatch.Client.idempotency`."""

    __slots__ = ("_encoding", "_scope")

    def __init__(self, scope: Scope, how: str = "json") -> None:
        self._scope = scope
        self._encoding: Encoding = checked_encoding(how)

    @property
    def scope(self) -> str:
        """The scope as it was given."""
        return self._scope.name

    def run(
        self,
        key: str,
        work: Callable[[Claim], _T],
        *,
        payload: Any = None,
        fingerprint: Optional[str] = None,
        retention: Optional[Seconds] = None,
        lease: Optional[Seconds] = None,
        wait: Optional[Seconds] = None,
        on_failure: Optional[OnFailure] = None,
    ) -> Outcome[_T]:
        """Does ``work(claim)`` for this key, unless it was done: then its stored answer is returned.

        ``key``: what is unique to one request, 1 to 255 bytes without control characters, made by its
        client, such as a UUID. ``payload``: what the request consists of, as bytes, a text or a JSON value;
        the same key with another one is refused. ``fingerprint``: its digest instead. ``retention``: how
        long the answer is kept, 1 s to 10 years, 24 h by default, ``math.inf`` for ever. ``lease``: how long
        the claim lasts unless renewed; a process that dies blocks its key for so long. ``wait``: how long to
        wait for another run of the key, by default as long as it takes; 0 does not wait. ``on_failure``:
        what becomes of the key if the work raises an ``Exception``: ``"store"`` (the default: every
        repetition gets the failure, because the work may have had an effect), ``"free"`` (the next run does
        the work again), or a function that is given the exception and returns one of them. Lengths of time
        are seconds or a ``timedelta``.

        The value is returned as it is read back, so that first and later answers are equal. What the work
        raises is raised on; repetitions of a stored failure raise :class:`WorkFailed`, whose ``answer`` is
        that of a ``WorkFailed`` that the work raised, or else the exception's type and text. An interruption
        (``KeyboardInterrupt``, ``SystemExit``) stores nothing; the key is free when the lease ends.

        Raises: :class:`InProgress`, :class:`PayloadMismatch`, :class:`WorkFailed`, :class:`ResultTooLarge`,
        :class:`NotRecorded`, :class:`InvalidArgument`, :class:`Unsupported`, :class:`BackendUnavailable`.
        """
        attempt: Attempt[_T] = self.begin(
            key,
            payload=payload,
            fingerprint=fingerprint,
            retention=retention,
            lease=lease,
            wait=wait,
            on_failure=on_failure,
        )
        if attempt.replayed:
            return Outcome(attempt.value, replayed=True)
        try:
            value = work(attempt.claim)
        except BaseException as error:
            attempt._raised(error)
            raise
        return Outcome(attempt.complete(value), replayed=False)

    def begin(
        self,
        key: str,
        *,
        payload: Any = None,
        fingerprint: Optional[str] = None,
        retention: Optional[Seconds] = None,
        lease: Optional[Seconds] = None,
        wait: Optional[Seconds] = None,
        on_failure: Optional[OnFailure] = None,
    ) -> Attempt[Any]:
        """Claims a key, or finds its answer: the first half of :meth:`run`, for work that is no function.

        Options and errors are those of :meth:`run`.
        """
        options = native_options(payload, fingerprint, retention, lease, wait, on_failure)
        claim, value, failure = self._scope.begin(key, options)
        if failure is not None:
            raise replayed_failure(self._encoding, failure, value or b"")
        return Attempt(
            claim, None if value is None else decode(self._encoding, value), self._encoding, on_failure
        )

    def forget(self, key: str) -> Literal["forgotten", "absent", "running"]:
        """Deletes what is stored for a key, unless a client works on it. Its work is done again then."""
        return self._scope.forget(key)

    def show(self, key: str) -> Optional[RecordView]:
        """Reads the record of a key as a dict, without its result; ``None`` if there is none."""
        return self._scope.show(key)

    def issue(self, ttl: Seconds) -> str:
        """Issues a token that can be consumed once within ``ttl``, 1 s to 10 years: 32 hexadecimal digits.

        Every form then costs a request for its token. Where the client can make a key, :meth:`run` needs
        none.
        """
        return self._scope.issue(ttl)

    def consume(self, token: str) -> Literal["first", "duplicate", "unknown"]:
        """Consumes a token. However many calls do so at the same time, one is the first.

        Before the work: work that fails is not done, and its form cannot be sent again. After the work: two
        requests at the same time both do it. With the token as the key of :meth:`run`, neither happens.
        ``"unknown"``: it was never issued in this scope, or its time is over.
        """
        return self._scope.consume(token)

    def __repr__(self) -> str:
        return f"<polylatch.Idempotency {self.scope!r}>"
