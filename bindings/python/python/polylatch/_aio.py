"""The asyncio twin: the same locks, with ``await`` where a call may wait.

Every call leaves when it is first awaited, and the event loop's own thread carries it out. Cancelling
the awaiting task undoes what the call may have done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator, Iterable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Callable, Optional, TypeVar, Union, cast

from . import _polylatch as native
from ._decorate import decorate_async

if TYPE_CHECKING:
    from ._polylatch import BreakResult, Capability, FenceQuality, Mode, Seconds, Snapshot

_F = TypeVar("_F", bound=Callable[..., Awaitable[Any]])


async def _carry_out(started: tuple[Any, Optional[native.UnderWayCall]]) -> Any:
    value, under_way = started
    del started
    if under_way is None:
        return value
    try:
        return await value
    except BaseException:
        # Nothing if it is the call's own failure; the undoing of the call if its task was cancelled.
        under_way.cancel()
        # A guard that came at the last moment is given back now, not when this traceback is forgotten.
        del value
        raise


class _Entered:
    """What the tasks that share a context manager have entered."""

    __slots__ = ("_entered",)

    def __init__(self) -> None:
        self._entered: "list[tuple[Optional[asyncio.Task[Any]], Any]]" = []

    def push(self, guard: Any) -> None:
        self._entered.append((asyncio.current_task(), guard))

    def pop(self) -> Any:
        me = asyncio.current_task()
        for at in range(len(self._entered) - 1, -1, -1):
            if self._entered[at][0] is me:
                return self._entered.pop(at)[1]
        raise RuntimeError("this task has not entered this lock")


async def _leave(guard: Union[AsyncGuard, AsyncGuardSet], *, raised: bool) -> None:
    """Releases at the end of a block. What the block raised is not replaced by a failed release."""
    try:
        await guard.release()
    except Exception:
        if not raised:
            raise


class AsyncLost:
    """Tells that a lease is lost, like an :class:`asyncio.Event` that is set then and never cleared."""

    __slots__ = ("_native",)

    def __init__(self, lost: native.Lost) -> None:
        self._native = lost

    def is_set(self) -> bool:
        """Returns whether the lease is lost, by the clock, now. False after a release."""
        return self._native.is_set()

    @property
    def reason(self) -> Optional[str]:
        """Why it is lost, such as ``"expired"``; ``None`` if it is not."""
        return self._native.reason

    async def wait(self) -> bool:
        """Waits until the lease is lost. Returns whether it is; False at once when it was given back."""
        return await _carry_out(self._native._start_wait()) is not None

    def __repr__(self) -> str:
        return repr(self._native).replace("Lost", "AsyncLost", 1)


class AsyncGuard:
    """A held lock: proof of a lease, and the way to give it back; see :class:`polylatch.Guard`."""

    __slots__ = ("__weakref__", "_native")

    def __init__(self, guard: native.Guard) -> None:
        self._native = guard

    @property
    def name(self) -> str:
        """The lock's name."""
        return self._native.name

    @property
    def fencing_token(self) -> int:
        """The number to hand to the protected resource: larger than any given out before."""
        return self._native.fencing_token

    @property
    def fence_quality(self) -> FenceQuality:
        """How far the order of fencing tokens can be relied on."""
        return self._native.fence_quality

    @property
    def sequencer(self) -> str:
        """The lock's name, its holder and its fencing token as one printable value."""
        return self._native.sequencer

    @property
    def valid_until(self) -> float:
        """Until when the lease may be relied on, on the clock that goes on while the machine sleeps."""
        return self._native.valid_until

    @property
    def remaining(self) -> float:
        """For how many seconds the lease may be relied on from now; 0.0 once it is over."""
        return self._native.remaining

    @property
    def is_held(self) -> bool:
        """Whether the lock is still held, by the clock, now. Costs no request."""
        return self._native.is_held

    @property
    def renewals(self) -> int:
        """How often the lease was renewed."""
        return self._native.renewals

    @property
    def mode(self) -> Mode:
        """In which way the lock is held."""
        return self._native.mode

    def check(self) -> None:
        """Raises :class:`LeaseLost` unless the lock is still held, by the clock, now."""
        self._native.check()

    @property
    def lost(self) -> AsyncLost:
        """Tells that the lease is lost, like an :class:`asyncio.Event`."""
        return AsyncLost(self._native.lost)

    def on_lost(self, callback: Callable[[str], object]) -> None:
        """Calls ``callback(reason)`` on the running loop when the lease is lost."""
        if not callable(callback):
            raise TypeError("callback must be callable with the reason")
        loop = asyncio.get_running_loop()

        def tell(reason: str) -> None:
            # A closed loop has nobody left to tell.
            if not loop.is_closed():
                loop.call_soon_threadsafe(callback, reason)

        self._native.on_lost(tell)

    def beat(self) -> None:
        """Says that the protected work moves on; matters only with ``beat_every``."""
        self._native.beat()

    async def release(self) -> None:
        """Gives the lock back and waits until the store knows; see :meth:`polylatch.Guard.release`.

        If the awaiting task is cancelled, the background finishes the release.
        """
        await _carry_out(self._native._start_release())

    async def downgrade(self) -> None:
        """Steps down from writing to reading without letting a writer in between."""
        await _carry_out(self._native._start_downgrade())

    async def try_upgrade(self) -> bool:
        """Steps up from reading to writing if nobody else reads; see :meth:`polylatch.Guard.try_upgrade`."""
        return cast("bool", await _carry_out(self._native._start_try_upgrade()))

    async def __aenter__(self) -> "AsyncGuard":
        return self

    async def __aexit__(self, kind: object, value: object, traceback: object) -> None:
        await _leave(self, raised=kind is not None)

    def __repr__(self) -> str:
        return repr(self._native).replace("Guard", "AsyncGuard", 1)


class AsyncGuardSet:
    """Several held locks; see :class:`polylatch.GuardSet`."""

    __slots__ = ("__weakref__", "_native")

    def __init__(self, guards: native.GuardSet) -> None:
        self._native = guards

    @property
    def fencing_tokens(self) -> "dict[str, int]":
        """The fencing token of each lock, by name."""
        return self._native.fencing_tokens

    @property
    def is_held(self) -> bool:
        """Whether all of them are still held, by the clock, now."""
        return self._native.is_held

    @property
    def remaining(self) -> float:
        """For how many seconds all of them may be relied on from now; 0.0 once one is over."""
        return self._native.remaining

    def check(self) -> None:
        """Raises :class:`LeaseLost` unless all of them are still held."""
        self._native.check()

    @property
    def lost(self) -> AsyncLost:
        """Tells that one of the leases is lost, like an :class:`asyncio.Event`."""
        return AsyncLost(self._native.lost)

    def beat(self) -> None:
        """Says that the protected work moves on; matters only with ``beat_every``."""
        self._native.beat()

    async def release(self) -> None:
        """Gives them all back and waits until the store knows."""
        await _carry_out(self._native._start_release())

    def __len__(self) -> int:
        return len(self._native)

    async def __aenter__(self) -> "AsyncGuardSet":
        return self

    async def __aexit__(self, kind: object, value: object, traceback: object) -> None:
        await _leave(self, raised=kind is not None)

    def __repr__(self) -> str:
        return repr(self._native).replace("GuardSet", "AsyncGuardSet", 1)


class AsyncLock:
    """A lock to acquire: ``async with lock as guard:``, or a decorator of coroutine functions.

    One object may be used by many tasks.
    """

    __slots__ = ("_entered", "_native")

    def __init__(self, lock: native.Lock) -> None:
        self._native = lock
        self._entered = _Entered()

    @property
    def name(self) -> str:
        """The lock's name, as it was given."""
        return self._native.name

    async def acquire(self) -> AsyncGuard:
        """Acquires the lock, waiting as long as the options say; see :meth:`polylatch.Lock.acquire`.

        If the awaiting task is cancelled, what it may have acquired is given back.
        """
        return AsyncGuard(await _carry_out(self._native._start_acquire()))

    async def try_acquire(self) -> Optional[AsyncGuard]:
        """Acquires the lock if it is free and nobody stands in line; ``None`` if not."""
        guard = await _carry_out(self._native._start_try_acquire())
        return None if guard is None else AsyncGuard(guard)

    async def __aenter__(self) -> AsyncGuard:
        guard = await self.acquire()
        self._entered.push(guard)
        return guard

    async def __aexit__(self, kind: object, value: object, traceback: object) -> None:
        await _leave(self._entered.pop(), raised=kind is not None)

    def __call__(self, function: _F) -> _F:
        return cast("_F", decorate_async(self, function))

    def __repr__(self) -> str:
        return repr(self._native).replace("Lock", "AsyncLock", 1)


class AsyncRwLock:
    """A lock that many may read or one may write; see :class:`polylatch.RwLock`."""

    __slots__ = ("_native",)

    def __init__(self, lock: native.RwLock) -> None:
        self._native = lock

    @property
    def name(self) -> str:
        """The lock's name, as it was given."""
        return self._native.name

    def read(self) -> AsyncLock:
        """The lock beside other readers."""
        return AsyncLock(self._native.read())

    def write(self) -> AsyncLock:
        """The lock alone."""
        return AsyncLock(self._native.write())

    def __repr__(self) -> str:
        return repr(self._native).replace("RwLock", "AsyncRwLock", 1)


class AsyncSemaphore:
    """A lock with a number of permits, each of which is a lease."""

    __slots__ = ("_native",)

    def __init__(self, semaphore: native.Semaphore) -> None:
        self._native = semaphore

    @property
    def name(self) -> str:
        """The semaphore's name, as it was given."""
        return self._native.name

    def permits(self, count: int = 1) -> AsyncLock:
        """Some of the permits as a lock: all or none, under one lease."""
        return AsyncLock(self._native.permits(count))

    async def acquire(self, count: int = 1) -> AsyncGuard:
        """Acquires some of the permits; see :meth:`AsyncLock.acquire`."""
        return await self.permits(count).acquire()

    async def try_acquire(self, count: int = 1) -> Optional[AsyncGuard]:
        """Acquires some of the permits if they can be had at once."""
        return await self.permits(count).try_acquire()

    def __repr__(self) -> str:
        return repr(self._native).replace("Semaphore", "AsyncSemaphore", 1)


class AsyncLockAll:
    """Several locks that are had all together or not at all; see :class:`polylatch.LockAll`."""

    __slots__ = ("_entered", "_native")

    def __init__(self, locks: native.LockAll) -> None:
        self._native = locks
        self._entered = _Entered()

    @property
    def names(self) -> "list[str]":
        """The locks' names, as they were given."""
        return self._native.names

    async def acquire(self) -> AsyncGuardSet:
        """Acquires them all, or none; see :meth:`polylatch.LockAll.acquire`."""
        return AsyncGuardSet(await _carry_out(self._native._start_acquire()))

    async def try_acquire(self) -> Optional[AsyncGuardSet]:
        """Acquires them all without waiting; ``None`` if one is held by somebody else."""
        guards = await _carry_out(self._native._start_try_acquire())
        return None if guards is None else AsyncGuardSet(guards)

    async def __aenter__(self) -> AsyncGuardSet:
        guards = await self.acquire()
        self._entered.push(guards)
        return guards

    async def __aexit__(self, kind: object, value: object, traceback: object) -> None:
        await _leave(self._entered.pop(), raised=kind is not None)

    def __call__(self, function: _F) -> _F:
        return cast("_F", decorate_async(self, function))

    def __repr__(self) -> str:
        return repr(self._native).replace("LockAll", "AsyncLockAll", 1)


class AsyncClient:
    """One client of one store of locks, for asyncio; see :class:`polylatch.Client`.

    Made by :func:`polylatch.connect_async`. It may be used from several event loops.
    """

    __slots__ = ("__weakref__", "_native")

    def __init__(self, client: native.Client) -> None:
        self._native = client

    def lock(
        self,
        name: str,
        *,
        lease: Optional[Seconds] = None,
        wait: Optional[Seconds] = None,
        label: Optional[str] = None,
        owner: Optional[str] = None,
        max_hold: Optional[Seconds] = None,
        beat_every: Optional[Seconds] = None,
        fifo: Optional[bool] = None,
        renew: Optional[bool] = None,
    ) -> AsyncLock:
        """Names a lock, with how it is to be acquired; see :meth:`polylatch.Client.lock`."""
        return AsyncLock(
            self._native.lock(
                name,
                lease=lease,
                wait=wait,
                label=label,
                owner=owner,
                max_hold=max_hold,
                beat_every=beat_every,
                fifo=fifo,
                renew=renew,
            )
        )

    def rw_lock(
        self,
        name: str,
        *,
        lease: Optional[Seconds] = None,
        wait: Optional[Seconds] = None,
        label: Optional[str] = None,
        owner: Optional[str] = None,
        max_hold: Optional[Seconds] = None,
        beat_every: Optional[Seconds] = None,
        fifo: Optional[bool] = None,
        renew: Optional[bool] = None,
    ) -> AsyncRwLock:
        """Names a lock that many may read or one may write; the options are those of :meth:`lock`."""
        return AsyncRwLock(
            self._native.rw_lock(
                name,
                lease=lease,
                wait=wait,
                label=label,
                owner=owner,
                max_hold=max_hold,
                beat_every=beat_every,
                fifo=fifo,
                renew=renew,
            )
        )

    def semaphore(
        self,
        name: str,
        permits: int,
        *,
        lease: Optional[Seconds] = None,
        wait: Optional[Seconds] = None,
        label: Optional[str] = None,
        owner: Optional[str] = None,
        max_hold: Optional[Seconds] = None,
        beat_every: Optional[Seconds] = None,
        fifo: Optional[bool] = None,
        renew: Optional[bool] = None,
    ) -> AsyncSemaphore:
        """Names a lock with this many permits; the options are those of :meth:`lock`."""
        return AsyncSemaphore(
            self._native.semaphore(
                name,
                permits,
                lease=lease,
                wait=wait,
                label=label,
                owner=owner,
                max_hold=max_hold,
                beat_every=beat_every,
                fifo=fifo,
                renew=renew,
            )
        )

    def lock_all(
        self,
        names: Iterable[str],
        *,
        lease: Optional[Seconds] = None,
        wait: Optional[Seconds] = None,
        label: Optional[str] = None,
        owner: Optional[str] = None,
        max_hold: Optional[Seconds] = None,
        beat_every: Optional[Seconds] = None,
        fifo: Optional[bool] = None,
        renew: Optional[bool] = None,
    ) -> AsyncLockAll:
        """Names several locks that are had all together or not at all; ``wait`` is for all together."""
        return AsyncLockAll(
            self._native.lock_all(
                names,
                lease=lease,
                wait=wait,
                label=label,
                owner=owner,
                max_hold=max_hold,
                beat_every=beat_every,
                fifo=fifo,
                renew=renew,
            )
        )

    async def inspect(
        self, name: Optional[str] = None, *, prefix: Optional[str] = None, limit: Optional[int] = None
    ) -> Snapshot:
        """Reads who holds and who waits, as plain dicts and lists."""
        return cast("Snapshot", await _carry_out(self._native._start_inspect(name, prefix, limit)))

    async def break_lease(self, name: str, *, fencing_token: int, by: str, reason: str) -> BreakResult:
        """Ends somebody's lease, if it still has the expected fencing token."""
        started = self._native._start_break_lease(name, fencing_token, by, reason)
        return cast("BreakResult", await _carry_out(started))

    async def close(self) -> None:
        """Ends waiting, releases what is held, and waits (at most 5 s) until the store knows."""
        await _carry_out(self._native._start_close())

    @property
    def id(self) -> str:
        """The id under which this client stands in the store."""
        return self._native.id

    @property
    def url(self) -> str:
        """The store's URL without its secrets."""
        return self._native.url

    @property
    def capability(self) -> Capability:
        """What this store, as configured, can do."""
        return self._native.capability

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._native.closed

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, kind: object, value: object, traceback: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return repr(self._native).replace("Client", "AsyncClient", 1)


class _Connecting(AbstractAsyncContextManager["AsyncClient"], Awaitable["AsyncClient"]):
    """``await connect_async(…)`` or ``async with connect_async(…) as client:``."""

    __slots__ = ("_client", "_given")

    def __init__(self, url: Optional[str], program: Optional[str], options: "dict[str, Any]") -> None:
        self._given = (url, program, options)
        self._client: Optional[AsyncClient] = None

    async def _connect(self) -> AsyncClient:
        return AsyncClient(await _carry_out(native._start_connect(*self._given)))

    def __await__(self) -> Generator[Any, None, AsyncClient]:
        return self._connect().__await__()

    async def __aenter__(self) -> AsyncClient:
        self._client = await self._connect()
        return self._client

    async def __aexit__(self, kind: object, value: object, traceback: object) -> None:
        if self._client is not None:
            await self._client.close()


def connect_async(
    url: Optional[str] = None,
    *,
    program: Optional[str] = None,
    **options: "Union[str, bool, Seconds, None]",
) -> _Connecting:
    """Connects to a store of locks: the asyncio twin of :func:`polylatch.connect`.

    Use it as ``client = await connect_async(…)`` or as ``async with connect_async(…) as client:``.
    """
    return _Connecting(url, program, options)
