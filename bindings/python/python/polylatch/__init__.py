"""Distributed locks whose holder always knows, conservatively, whether it still holds them.

    import polylatch

    with polylatch.connect("memory:") as client:
        with client.lock("orders/42", lease=30, wait=5) as guard:
            print(guard.fencing_token)  # the resource refuses older ones
            guard.check()               # still mine? costs no request

:func:`connect` returns a client for threads, :func:`connect_async` its asyncio twin. Every error is
a :class:`polylatch.Error` with ``code``, ``retry``, ``effect``, ``hint`` and ``context``.
"""

from importlib import import_module

from . import _exit, _fork
from ._errors import (
    BackendRejected,
    BackendUnavailable,
    Canceled,
    Error,
    Internal,
    InvalidArgument,
    InvalidConfig,
    LeaseLost,
    NameConflict,
    QuorumUnreachable,
    StaleToken,
    Unsupported,
    WaitTimeout,
)
from ._polylatch import (
    Client,
    FencedUpdate,
    Guard,
    GuardSet,
    Lock,
    LockAll,
    Lost,
    RwLock,
    Semaphore,
    Sequencer,
    TokenGate,
    __version__,
    connect,
)

# As `typing` has it, which takes longer to import than everything here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._aio import (
        AsyncClient,
        AsyncLock,
        AsyncLockAll,
        AsyncRwLock,
        AsyncSemaphore,
        connect_async,
    )
    from ._aio_held import AsyncGuard, AsyncGuardSet, AsyncLost

__all__ = [
    "AsyncClient",
    "AsyncGuard",
    "AsyncGuardSet",
    "AsyncLock",
    "AsyncLockAll",
    "AsyncLost",
    "AsyncRwLock",
    "AsyncSemaphore",
    "BackendRejected",
    "BackendUnavailable",
    "Canceled",
    "Client",
    "Error",
    "FencedUpdate",
    "Guard",
    "GuardSet",
    "Internal",
    "InvalidArgument",
    "InvalidConfig",
    "LeaseLost",
    "Lock",
    "LockAll",
    "Lost",
    "NameConflict",
    "QuorumUnreachable",
    "RwLock",
    "Semaphore",
    "Sequencer",
    "StaleToken",
    "TokenGate",
    "Unsupported",
    "WaitTimeout",
    "__version__",
    "connect",
    "connect_async",
]

_exit.arrange()
_fork.arrange()

# Loaded when first used: asyncio takes ten times as long to import as everything else here.
_LATER = {
    **dict.fromkeys(("AsyncGuard", "AsyncGuardSet", "AsyncLost"), "_aio_held"),
    **dict.fromkeys(
        ("AsyncClient", "AsyncLock", "AsyncLockAll", "AsyncRwLock", "AsyncSemaphore", "connect_async"), "_aio"
    ),
}


def __getattr__(name: str) -> object:
    if name not in _LATER:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    value = getattr(import_module(f".{_LATER[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> "list[str]":
    return sorted({*globals(), *__all__})
