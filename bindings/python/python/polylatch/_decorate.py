"""Functions that hold a lock while they run."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager, AbstractContextManager


def decorate(lock: AbstractContextManager[Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes each call of the function hold the lock."""
    _check(function, "lock")
    if inspect.iscoroutinefunction(function):
        raise TypeError("this lock is for threads; for a coroutine function use one of connect_async()")

    @functools.wraps(function)
    def locked(*args: Any, **kwargs: Any) -> Any:
        with lock:
            return function(*args, **kwargs)

    return locked


def decorate_async(
    lock: AbstractAsyncContextManager[Any], function: Callable[..., Any]
) -> Callable[..., Any]:
    """Makes each call of the coroutine function hold the lock."""
    _check(function, "async lock")
    if not inspect.iscoroutinefunction(function):
        raise TypeError("this lock is for asyncio; for an ordinary function use one of connect()")

    @functools.wraps(function)
    async def locked(*args: Any, **kwargs: Any) -> Any:
        async with lock:
            return await function(*args, **kwargs)

    return locked


def _check(function: Callable[..., Any], what: str) -> None:
    if not callable(function):
        raise TypeError(f"an {what} decorates a function, not {type(function).__name__}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError("a generator function returns before its body runs; use the lock inside it")


def no_such_member(kind: str, name: str) -> str:
    """Says what to use for a member that locks of other libraries have."""
    hint = {
        "release": "the guard has it: guard = lock.acquire(), then guard.release(), or 'with lock as guard:'",
        "locked": "client.inspect(lock.name) says who holds it, and guard.is_held whether you do",
        "owned": "guard.is_held says it",
        "extend": "leases are renewed while they are held; lease= says how long they last",
        "reacquire": "leases are renewed while they are held; guard.check() says whether it is still yours",
    }.get(name)
    said = f"{kind!r} object has no attribute {name!r}"
    return said if hint is None else f"{said}; {hint}"
