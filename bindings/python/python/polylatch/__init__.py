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
    InProgress,
    Internal,
    InvalidArgument,
    InvalidConfig,
    LeaseLost,
    NameConflict,
    NotRecorded,
    PayloadMismatch,
    QuorumUnreachable,
    ResultTooLarge,
    StaleToken,
    Unsupported,
    WaitTimeout,
    WorkFailed,
)
from ._polylatch import (
    Claim,
    Client,
    ConditionalUpdate,
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
    TransactionClaim,
    TransactionLock,
    VersionedUpdate,
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
    from ._aio_idempotency import AsyncAttempt, AsyncClaim, AsyncIdempotency
    from ._idem_values import Outcome
    from ._idempotency import Attempt, Idempotency
    from ._idempotent import idempotent
    from ._transactions import StepsAttempt, TransactionAttempt, TransactionRuns, TransactionSteps

__all__ = [
    "AsyncAttempt",
    "AsyncClaim",
    "AsyncClient",
    "AsyncGuard",
    "AsyncGuardSet",
    "AsyncIdempotency",
    "AsyncLock",
    "AsyncLockAll",
    "AsyncLost",
    "AsyncRwLock",
    "AsyncSemaphore",
    "Attempt",
    "BackendRejected",
    "BackendUnavailable",
    "Canceled",
    "Claim",
    "Client",
    "ConditionalUpdate",
    "Error",
    "FencedUpdate",
    "Guard",
    "GuardSet",
    "Idempotency",
    "InProgress",
    "Internal",
    "InvalidArgument",
    "InvalidConfig",
    "LeaseLost",
    "Lock",
    "LockAll",
    "Lost",
    "NameConflict",
    "NotRecorded",
    "Outcome",
    "PayloadMismatch",
    "QuorumUnreachable",
    "ResultTooLarge",
    "RwLock",
    "Semaphore",
    "Sequencer",
    "StaleToken",
    "StepsAttempt",
    "TokenGate",
    "TransactionAttempt",
    "TransactionClaim",
    "TransactionLock",
    "TransactionRuns",
    "TransactionSteps",
    "Unsupported",
    "VersionedUpdate",
    "WaitTimeout",
    "WorkFailed",
    "__version__",
    "connect",
    "connect_async",
    "idempotent",
]

_exit.arrange()
_fork.arrange()

# Loaded when first used: many programs only lock, and asyncio takes ten times as long to import as everything
# else here.
_LATER = {
    **dict.fromkeys(("AsyncGuard", "AsyncGuardSet", "AsyncLost"), "_aio_held"),
    **dict.fromkeys(("AsyncAttempt", "AsyncClaim", "AsyncIdempotency"), "_aio_idempotency"),
    **dict.fromkeys(("Attempt", "Idempotency"), "_idempotency"),
    **dict.fromkeys(
        ("StepsAttempt", "TransactionAttempt", "TransactionRuns", "TransactionSteps"), "_transactions"
    ),
    "Outcome": "_idem_values",
    "idempotent": "_idempotent",
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
