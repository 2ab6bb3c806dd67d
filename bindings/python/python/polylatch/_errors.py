"""The exceptions: one tree, with what a program needs to decide what to do."""

from __future__ import annotations

# As `typing` has it, which takes longer to import than everything here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal, Optional, TypedDict

    class ErrorContext(TypedDict):
        """Where an error happened; what is not known is ``None``."""

        backend: Optional[str]
        operation: Optional[str]
        lock: Optional[str]
        attempt: Optional[int]
        elapsed: Optional[float]


class Error(Exception):
    """The parent of every error of this package.

    ``code`` is the same in every language. ``retry`` says whether the same call may help if it is made
    again: ``"never"``, ``"caller_decides"``, ``"after_backoff"`` or ``"acquire_anew"``. ``effect`` says
    whether the failed request may have changed the store: ``"none"`` or ``"maybe"``. ``hint`` says what
    to do about it, and ``context`` where it happened.
    """

    code: str = "internal"
    retry: str = "never"
    effect: str = "none"
    hint: str = ""
    context: ErrorContext

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.context = {"backend": None, "operation": None, "lock": None, "attempt": None, "elapsed": None}

    def __reduce__(self) -> Any:
        # The usual way would lose the attributes on the way to another process.
        return (_restore, (type(self), str(self), self.__dict__))


class InvalidConfig(Error, ValueError):
    """A URL, option or environment variable is wrong. Nothing was sent."""

    code = "invalid_config"


class InvalidArgument(Error, ValueError):
    """An argument of a call is wrong. Nothing was sent."""

    code = "invalid_argument"


class Unsupported(Error):
    """The store cannot do what was asked; its capability says so."""

    code = "unsupported"


class WaitTimeout(Error, TimeoutError):
    """Another client still held the lock when the wait was over."""

    code = "wait_timeout"
    retry = "caller_decides"

    def __str__(self) -> str:
        return Exception.__str__(self)


class Canceled(Error):
    """The closing of the client ended the wait, or forbids a new one."""

    code = "canceled"


class LeaseLost(Error):
    """The lease is over; ``reason`` says why, such as ``"expired"``."""

    code = "lease_lost"
    retry = "acquire_anew"
    reason: Optional[str] = None


class StaleToken(Error):
    """A guarded resource has seen a newer fencing token."""

    code = "stale_token"


class NameConflict(Error):
    """The name holds data that is not ours; it was left as it is."""

    code = "name_conflict"


class QuorumUnreachable(Error):
    """Too many nodes failed to decide."""

    code = "quorum_unreachable"
    retry = "after_backoff"


class BackendUnavailable(Error, ConnectionError):
    """The store refused the connection, did not answer in time, or is not ready."""

    code = "backend_unavailable"
    retry = "after_backoff"

    def __str__(self) -> str:
        return Exception.__str__(self)


class BackendRejected(Error):
    """The store refused for good: credentials, permission, schema, read-only."""

    code = "backend_rejected"


class InProgress(Error):
    """Another run of the same key is under way, and the caller does not wait for it, or no longer."""

    code = "in_progress"
    retry = "caller_decides"


class PayloadMismatch(Error):
    """The key belongs to another payload. Nothing was done."""

    code = "payload_mismatch"


class WorkFailed(Error):
    """The work of a key has failed.

    Work may raise it to choose what repetitions get (``answer``, the message unless it is given) and what
    becomes of the key (``on_failure``: ``"store"`` or ``"free"``; ``None``: as the options of the run say).
    A repetition of a stored failure raises it with that ``answer`` and with ``replayed``.
    """

    code = "failed"
    answer: Any
    replayed: bool

    def __init__(
        self,
        message: str = "the work has failed",
        *,
        answer: Any = None,
        on_failure: Optional[Literal["store", "free"]] = None,
    ) -> None:
        super().__init__(message)
        self.answer = message if answer is None else answer
        self.on_failure = on_failure
        self.replayed = False


class ResultTooLarge(Error):
    """The work is done, and its result is larger than 1 MiB, so it is not stored. It is not repeated."""

    code = "result_too_large"


class NotRecorded(Error):
    """The work is done, and what came of it is not stored: another run may do it again, or has."""

    code = "not_recorded"
    retry = "caller_decides"


class Internal(Error):
    """A bug in this package; please report it."""

    code = "internal"


_BY_CODE: "dict[str, type[Error]]" = {
    kind.code: kind
    for kind in (
        InvalidConfig,
        InvalidArgument,
        Unsupported,
        WaitTimeout,
        Canceled,
        LeaseLost,
        StaleToken,
        NameConflict,
        QuorumUnreachable,
        BackendUnavailable,
        BackendRejected,
        InProgress,
        PayloadMismatch,
        WorkFailed,
        ResultTooLarge,
        NotRecorded,
        Internal,
    )
}

# Tracebacks and pickles name them where programs find them.
for _kind in (Error, *_BY_CODE.values()):
    _kind.__module__ = "polylatch"


def make(
    code: str,
    message: str,
    retry: str,
    effect: str,
    hint: str,
    lost_reason: Optional[str],
    context: ErrorContext,
) -> Error:
    """Makes the exception for a code; for one that is not known here, the parent of all."""
    kind = _BY_CODE.get(code, Error)
    error = kind(message)
    error.code = code
    error.retry = retry
    error.effect = effect
    error.hint = hint
    error.context = context
    if isinstance(error, LeaseLost):
        error.reason = lost_reason
    return error


def _restore(kind: "type[Error]", message: str, state: "dict[str, Any]") -> Error:
    error = kind(message)
    error.__dict__.update(state)
    return error
