"""What asyncio programs hold: guards, and the signal that they are lost; see `_aio.py`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Callable, Optional, Union, cast

if TYPE_CHECKING:
    from . import _polylatch as native
    from ._polylatch import FenceQuality, Mode, Seconds


async def carry_out(started: tuple[Any, Optional[native.UnderWayCall]]) -> Any:
    value, under_way = started
    del started
    if under_way is None:
        return value
    try:
        return await value
    except BaseException:
        # Nothing if it is the call's own failure; the undoing of the call if its task was cancelled.
        under_way.cancel()
        # A guard that came at the last moment is released now, not when this traceback is forgotten.
        del value
        raise


async def leave(guard: Union[AsyncGuard, AsyncGuardSet], *, raised: bool) -> None:
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
        """Waits until the lease is lost. Returns whether it is; False at once when it was released."""
        return await carry_out(self._native._start_wait()) is not None

    def __repr__(self) -> str:
        return repr(self._native).replace("Lost", "AsyncLost", 1)


class AsyncGuard:
    """A held lock: proof of a lease, and the means to release it; see :class:`polylatch.Guard`."""

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
        await carry_out(self._native._start_release())

    async def extend(self, lease: Seconds) -> float:
        """Gives the lease another length and returns the deadline; see :meth:`polylatch.Guard.extend`.

        If the awaiting task is cancelled, the request goes on, and what the store confirms counts.
        """
        return cast("float", await carry_out(self._native._start_extend(lease)))

    async def downgrade(self) -> None:
        """Atomically downgrades a write lock to a read lock."""
        await carry_out(self._native._start_downgrade())

    async def try_upgrade(self) -> bool:
        """Upgrades to a write lock if there is no other reader; see :meth:`polylatch.Guard.try_upgrade`."""
        return cast("bool", await carry_out(self._native._start_try_upgrade()))

    async def __aenter__(self) -> "AsyncGuard":
        # What is released or lost must not run a block without its lock.
        self._native.check()
        return self

    async def __aexit__(self, kind: object, value: object, traceback: object) -> None:
        await leave(self, raised=kind is not None)

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
        await carry_out(self._native._start_release())

    def __len__(self) -> int:
        return len(self._native)

    async def __aenter__(self) -> "AsyncGuardSet":
        # What is released or lost must not run a block without its lock.
        self._native.check()
        return self

    async def __aexit__(self, kind: object, value: object, traceback: object) -> None:
        await leave(self, raised=kind is not None)

    def __repr__(self) -> str:
        return repr(self._native).replace("GuardSet", "AsyncGuardSet", 1)
