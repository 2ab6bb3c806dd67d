"""Distributed locks whose holder always knows, conservatively, whether it still holds them.

    import polylatch

    with polylatch.connect("memory:") as client:
        with client.lock("orders/42", lease=30, wait=5) as guard:
            print(guard.fencing_token)  # the resource refuses older ones
            guard.check()               # still mine? costs no request

:func:`connect` returns a client for threads, :func:`connect_async` its asyncio twin. Every error is
a :class:`polylatch.Error` with ``code``, ``retry``, ``effect``, ``hint`` and ``context``.
"""

from ._aio import (
    AsyncClient,
    AsyncGuard,
    AsyncGuardSet,
    AsyncLock,
    AsyncLockAll,
    AsyncLost,
    AsyncRwLock,
    AsyncSemaphore,
    connect_async,
)
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

from . import _exit

_exit.arrange()
