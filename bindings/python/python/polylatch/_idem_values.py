"""What both forms of idempotent work share: values as bytes, and what becomes of a failure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Callable, Generic, Literal, Optional, TypeVar, Union, cast

from ._errors import InvalidArgument, WorkFailed

Encoding = Literal["json", "bytes"]
Fate = Literal["store", "free"]
OnFailure = Union[Fate, Callable[[Exception], Optional[Fate]]]

_C = TypeVar("_C")
_T = TypeVar("_T")


@dataclass(frozen=True)
class Outcome(Generic[_T]):
    """The answer to a run: ``value``, and whether an earlier run did the work (``replayed``)."""

    value: _T
    replayed: bool


class Begun(Generic[_C, _T]):
    """The work of a key that has begun: a claim to work under, or the answer of an earlier run."""

    __slots__ = ("_claim", "_encoding", "_value")

    def __init__(self, claim: Optional[_C], value: Any, encoding: Encoding) -> None:
        self._claim = claim
        self._value = value
        self._encoding: Encoding = encoding

    @property
    def replayed(self) -> bool:
        """Whether an earlier run did the work. Then there is nothing to do: :attr:`value` is its answer."""
        return self._claim is None

    @property
    def value(self) -> _T:
        """The answer: of an earlier run, or what `complete` stored."""
        return cast("_T", self._value)

    @property
    def claim(self) -> _C:
        """The claim under which to work. Raises: :class:`InvalidArgument` for a replayed answer."""
        if self._claim is None:
            raise InvalidArgument("an earlier run did the work of this key; its answer is in value")
        return self._claim


def checked_encoding(given: str) -> Encoding:
    """Refuses what is no encoding."""
    if given not in ("json", "bytes"):
        raise InvalidArgument(f"encoding is {given!r}; it must be 'json' or 'bytes'")
    return "json" if given == "json" else "bytes"


def encode(how: Encoding, value: Any) -> bytes:
    """Writes a result as it is stored. TypeError or ValueError for what cannot be written."""
    if how == "json":
        # What `json.loads` of this and `JSON.parse` of others read.
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    raise TypeError(f"a result in the encoding 'bytes' must be bytes, not {type(value).__name__}")


def decode(how: Encoding, stored: bytes) -> Any:
    """Reads a result."""
    return json.loads(stored) if how == "json" else stored


def payload_bytes(payload: Any) -> bytes:
    """Writes a payload so that equal ones are equal bytes, whatever the order of their keys."""
    if isinstance(payload, str):
        return payload.encode()
    if isinstance(payload, (bytes, bytearray)):
        return bytes(payload)
    return json.dumps(payload, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


def failure_bytes(how: Encoding, error: Exception) -> bytes:
    """What repetitions get of work that raised."""
    if isinstance(error, WorkFailed):
        return encode(how, error.answer)
    told = {"error": type(error).__name__, "message": str(error)}
    return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode()


def replayed_failure(how: Encoding, error: WorkFailed, answer: bytes) -> WorkFailed:
    """Completes the error that stands for a stored failure."""
    try:
        error.answer = decode(how, answer)
    except ValueError:
        # Stored by a program with another encoding.
        error.answer = answer
    error.replayed = True
    return error


def native_options(
    payload: Any,
    fingerprint: Optional[str],
    retention: Any,
    lease: Any,
    wait: Any,
    on_failure: Optional[OnFailure],
) -> "dict[str, Any]":
    """Returns what the part in Rust takes; it checks it."""
    return {
        "payload": None if payload is None else payload_bytes(payload),
        "fingerprint": fingerprint,
        "retention": retention,
        "lease": lease,
        "wait": wait,
        # A function is asked when the work has failed.
        "on_failure": None if callable(on_failure) else on_failure,
    }


def fate_of(on_failure: Optional[OnFailure], error: Exception) -> Optional[str]:
    """What becomes of the key; ``None``: as the options of the run say."""
    if isinstance(error, WorkFailed) and error.on_failure is not None:
        return error.on_failure
    return on_failure(error) if callable(on_failure) else None


def note(error: BaseException, text: str) -> None:
    """Says something more with an exception, where Python has that (3.11)."""
    add_note = getattr(error, "add_note", None)
    if add_note is not None:
        add_note(text)
