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
from ._aio_held import AsyncGuard, AsyncGuardSet, carry_out, leave
from ._decorate import decorate_async, no_such_member

if TYPE_CHECKING:
    from ._aio_idempotency import AsyncIdempotency
    from ._polylatch import BreakResult, Capability, Event, Seconds, Snapshot, Stats

_F = TypeVar("_F", bound=Callable[..., Awaitable[Any]])


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

        If the awaiting task is cancelled, what it may have acquired is released.
        """
        return AsyncGuard(await carry_out(self._native._start_acquire()))

    async def try_acquire(self) -> Optional[AsyncGuard]:
        """Acquires the lock if it is free and no client is queued; ``None`` if not."""
        guard = await carry_out(self._native._start_try_acquire())
        return None if guard is None else AsyncGuard(guard)

    async def __aenter__(self) -> AsyncGuard:
        guard = await self.acquire()
        self._entered.push(guard)
        return guard

    async def __aexit__(self, kind: object, value: object, traceback: object) -> None:
        await leave(self._entered.pop(), raised=kind is not None)

    def __call__(self, function: _F) -> _F:
        return cast("_F", decorate_async(self, function))

    def __repr__(self) -> str:
        return repr(self._native).replace("Lock", "AsyncLock", 1)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            raise AttributeError(no_such_member("AsyncLock", name), name=name, obj=self)


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
        """Acquires some of the permits if they are available at once."""
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
        return AsyncGuardSet(await carry_out(self._native._start_acquire()))

    async def try_acquire(self) -> Optional[AsyncGuardSet]:
        """Acquires them all without waiting; ``None`` if another client holds one."""
        guards = await carry_out(self._native._start_try_acquire())
        return None if guards is None else AsyncGuardSet(guards)

    async def __aenter__(self) -> AsyncGuardSet:
        guards = await self.acquire()
        self._entered.push(guards)
        return guards

    async def __aexit__(self, kind: object, value: object, traceback: object) -> None:
        await leave(self._entered.pop(), raised=kind is not None)

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
        keep_idle: Optional[Seconds] = None,
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
                keep_idle=keep_idle,
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

    def idempotency(self, scope: str, *, encoding: str = "json") -> AsyncIdempotency:
        """Names a scope of idempotent work; see :meth:`polylatch.Client.idempotency`."""
        from ._aio_idempotency import AsyncIdempotency  # noqa: PLC0415

        return AsyncIdempotency(self._native._scope(scope), encoding)

    async def inspect(
        self, name: Optional[str] = None, *, prefix: Optional[str] = None, limit: Optional[int] = None
    ) -> Snapshot:
        """Reads who holds and who waits, as plain dicts and lists."""
        return cast("Snapshot", await carry_out(self._native._start_inspect(name, prefix, limit)))

    async def break_lease(self, name: str, *, fencing_token: int, by: str, reason: str) -> BreakResult:
        """Breaks a lease, if it still has the expected fencing token."""
        started = self._native._start_break_lease(name, fencing_token, by, reason)
        return cast("BreakResult", await carry_out(started))

    async def close(self) -> None:
        """Ends waiting, releases what is held, and waits (at most 5 s) until the store knows."""
        await carry_out(self._native._start_close())

    @property
    def id(self) -> str:
        """The id of this client in the store."""
        return self._native.id

    @property
    def url(self) -> str:
        """The store's URL without its secrets."""
        return self._native.url

    def stats(self) -> Stats:
        """Returns what this client has done, in numbers; see :meth:`polylatch.Client.stats`."""
        return self._native.stats()

    def prometheus(self, labels: Optional[dict[str, str]] = None) -> str:
        """Returns the same as text that Prometheus reads; see :meth:`polylatch.Client.prometheus`."""
        return self._native.prometheus(labels)

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

    def __init__(
        self,
        url: Optional[str],
        program: Optional[str],
        on_event: "Optional[Callable[[Event], object]]",
        options: "dict[str, Any]",
    ) -> None:
        self._given = (url, program, on_event, options)
        self._client: Optional[AsyncClient] = None

    async def _connect(self) -> AsyncClient:
        return AsyncClient(await carry_out(native._start_connect(*self._given)))

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
    on_event: "Optional[Callable[[Event], object]]" = None,
    **options: "Union[str, bool, Seconds, None]",
) -> _Connecting:
    """Connects to a store of locks: the asyncio twin of :func:`polylatch.connect`.

    Use it as ``client = await connect_async(…)`` or as ``async with connect_async(…) as client:``.
    ``on_event`` is called on a thread of its own, not on the event loop's; ``loop.call_soon_threadsafe``
    leads there.
    """
    return _Connecting(url, program, on_event, options)
