"""Idempotent work for asyncio; see `_idempotency.py`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Callable, Literal, Optional, TypeVar, cast

from ._aio_held import carry_out
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
from ._idempotency import NOT_COMPLETED

if TYPE_CHECKING:
    from ._idem_values import Encoding, Fate, OnFailure
    from ._polylatch import Claim, RecordView, Scope, Seconds

_T = TypeVar("_T")


class AsyncClaim:
    """The claim on a key under which idempotent work runs; see :class:`polylatch.Claim`."""

    __slots__ = ("__weakref__", "_native")

    def __init__(self, claim: Claim) -> None:
        self._native = claim

    @property
    def fencing_token(self) -> int:
        """The number of this claim, larger than that of every claim on the same key before."""
        return self._native.fencing_token

    @property
    def runs(self) -> int:
        """How many runs of this key began since it was free, this one counted."""
        return self._native.runs

    @property
    def remaining(self) -> float:
        """For how many seconds the claim may be relied on from now; 0.0 once it is over."""
        return self._native.remaining

    @property
    def is_held(self) -> bool:
        """Whether the key is still claimed, by the clock, now. Costs no request."""
        return self._native.is_held

    def check(self) -> None:
        """Raises :class:`LeaseLost` if the claim was lost. Costs no request."""
        self._native.check()

    def on_lost(self, callback: Callable[[str], object]) -> None:
        """Calls ``callback(reason)`` on the running loop when the claim is lost."""
        if not callable(callback):
            raise TypeError("callback must be callable with the reason")
        loop = asyncio.get_running_loop()

        def tell(reason: str) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(callback, reason)

        self._native.on_lost(tell)

    async def wait_lost(self) -> Optional[str]:
        """Waits until the claim is lost and returns the reason; ``None`` when the work has ended."""
        return cast("Optional[str]", await carry_out(self._native._start_wait_lost()))

    def __repr__(self) -> str:
        return repr(self._native).replace("Claim", "AsyncClaim", 1)


class AsyncAttempt(Begun[AsyncClaim, _T]):
    """A run that has begun; see :class:`polylatch.Attempt`."""

    __slots__ = ("_on_failure",)

    def __init__(
        self, claim: Optional[Claim], value: Any, how: Encoding, on_failure: Optional[OnFailure]
    ) -> None:
        super().__init__(None if claim is None else AsyncClaim(claim), value, how)
        self._on_failure: Optional[OnFailure] = on_failure

    async def complete(self, value: _T) -> _T:
        """Stores the result and returns it as every repetition gets it; see :meth:`Attempt.complete`.

        If the awaiting task is cancelled, whether it is stored is not known.
        """
        native = self.claim._native
        try:
            stored = encode(self._encoding, value)
        except (TypeError, ValueError) as error:
            await carry_out(native._start_fail(failure_bytes(self._encoding, error), "store"))
            raise
        await carry_out(native._start_complete(stored))
        self._value = decode(self._encoding, stored)
        return cast("_T", self._value)

    async def fail(self, error: Exception, *, on_failure: Optional[Fate] = None) -> None:
        """Stores a failure as the answer, or frees the key; see :meth:`Attempt.fail`."""
        try:
            fate = on_failure or fate_of(self._on_failure, error)
            answer = failure_bytes(self._encoding, error)
        except BaseException:
            self.abandon()
            raise
        await carry_out(self.claim._native._start_fail(answer, fate))

    def abandon(self) -> None:
        """Says nothing of the work, as if the process had died: the key is free when the lease ends."""
        self.claim._native._abandon()

    async def _raised(self, error: BaseException) -> None:
        if not isinstance(error, Exception):
            # Interrupted or cancelled, so that nobody knows what was done.
            self.abandon()
            return
        try:
            await self.fail(error)
        except Error as unstored:
            note(error, f"this failure is not recorded: {unstored}")

    async def _leave(self, error: Optional[BaseException]) -> None:
        if self._claim is None or not self._claim._native._under_way:
            return
        if error is not None:
            await self._raised(error)
            return
        self.abandon()
        raise InvalidArgument(NOT_COMPLETED)

    def __repr__(self) -> str:
        if self.replayed:
            return "<polylatch.AsyncAttempt, replayed>"
        return f"<polylatch.AsyncAttempt {self._claim!r}>"


class _Beginning(AbstractAsyncContextManager["AsyncAttempt[Any]"], Awaitable["AsyncAttempt[Any]"]):
    """``await scope.begin(…)`` or ``async with scope.begin(…) as run:``."""

    def __init__(
        self,
        scope: Scope,
        key: str,
        options: "dict[str, Any]",
        how: Encoding,
        on_failure: Optional[OnFailure],
    ) -> None:
        self._given = (scope, key, options, how, on_failure)
        self._attempt: Optional[AsyncAttempt[Any]] = None

    async def _begin(self) -> AsyncAttempt[Any]:
        scope, key, options, how, on_failure = self._given
        claim, value, failure = await carry_out(scope.start_begin(key, options))
        if failure is not None:
            raise replayed_failure(how, failure, value)
        return AsyncAttempt(claim, None if value is None else decode(how, value), how, on_failure)

    def __await__(self) -> Generator[Any, None, AsyncAttempt[Any]]:
        return self._begin().__await__()

    async def __aenter__(self) -> AsyncAttempt[Any]:
        self._attempt = await self._begin()
        return self._attempt

    async def __aexit__(self, kind: object, value: Optional[BaseException], traceback: object) -> None:
        if self._attempt is not None:
            await self._attempt._leave(value)


class AsyncIdempotency:
    """The keys and one-time tokens of one scope; see :class:`polylatch.Idempotency`."""

    __slots__ = ("_encoding", "_scope")

    def __init__(self, scope: Scope, how: str = "json") -> None:
        self._scope = scope
        self._encoding: Encoding = checked_encoding(how)

    @property
    def scope(self) -> str:
        """The scope as it was given."""
        return self._scope.name

    async def run(
        self,
        key: str,
        work: Callable[[AsyncClaim], Awaitable[_T]],
        *,
        payload: Any = None,
        fingerprint: Optional[str] = None,
        retention: Optional[Seconds] = None,
        lease: Optional[Seconds] = None,
        wait: Optional[Seconds] = None,
        on_failure: Optional[OnFailure] = None,
    ) -> Outcome[_T]:
        """Awaits ``work(claim)`` for this key, unless it was done; see :meth:`polylatch.Idempotency.run`.

        If the awaiting task is cancelled while the work runs, nothing is stored: what the work did is not
        known, so the key is free for another run when the lease ends.
        """
        attempt: AsyncAttempt[_T] = await self.begin(
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
            value = await work(attempt.claim)
        except BaseException as error:
            await attempt._raised(error)
            raise
        return Outcome(await attempt.complete(value), replayed=False)

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
    ) -> _Beginning:
        """Claims a key, or finds its answer: ``async with orders.begin(key) as run:``, or ``await`` it.

        Options and errors are those of :meth:`run`.
        """
        options = native_options(payload, fingerprint, retention, lease, wait, on_failure)
        return _Beginning(self._scope, key, options, self._encoding, on_failure)

    async def forget(self, key: str) -> Literal["forgotten", "absent", "running"]:
        """Deletes what is stored for a key, unless a client works on it. Its work is done again then."""
        return cast(
            'Literal["forgotten", "absent", "running"]', await carry_out(self._scope.start_forget(key))
        )

    async def show(self, key: str) -> Optional[RecordView]:
        """Reads the record of a key as a dict, without its result; ``None`` if there is none."""
        return cast("Optional[RecordView]", await carry_out(self._scope.start_show(key)))

    async def issue(self, ttl: Seconds) -> str:
        """Issues a token that can be consumed once; see :meth:`polylatch.Idempotency.issue`."""
        return cast("str", await carry_out(self._scope.start_issue(ttl)))

    async def consume(self, token: str) -> Literal["first", "duplicate", "unknown"]:
        """Consumes a token; see :meth:`polylatch.Idempotency.consume`."""
        return cast(
            'Literal["first", "duplicate", "unknown"]', await carry_out(self._scope.start_consume(token))
        )

    def __repr__(self) -> str:
        return f"<polylatch.AsyncIdempotency {self.scope!r}>"
