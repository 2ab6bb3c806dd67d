"""Functions whose calls are idempotent."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, Callable, Optional, TypeVar, Union, cast

from ._polylatch import Client

if TYPE_CHECKING:
    from ._aio import AsyncClient
    from ._idem_values import OnFailure
    from ._polylatch import Seconds

_F = TypeVar("_F", bound=Callable[..., Any])
_Function = Callable[..., Any]
_Named = Callable[..., "tuple[str, str, dict[str, Any]]"]


def idempotent(
    client: Union[Client, AsyncClient],
    *,
    scope: Callable[..., str],
    key: Callable[..., str],
    payload: Optional[Callable[..., Any]] = None,
    encoding: str = "json",
    retention: Optional[Seconds] = None,
    lease: Optional[Seconds] = None,
    wait: Optional[Seconds] = None,
    on_failure: Optional[OnFailure] = None,
) -> Callable[[_F], _F]:
    """Decorates a function, or a coroutine function: each key is worked for once.

    ``scope``, ``key`` and ``payload`` are called with the arguments of each call. The scope has to name the
    operation and the caller, by an identity that was checked: two callers with one scope get each other's
    answers. A call returns the stored value, which is read back from its ``encoding``, or raises what
    :meth:`Idempotency.run` raises. The other options are those of ``run``. With an :class:`AsyncClient` the
    function must be a coroutine function, otherwise an ordinary one.
    """
    for what, given in (("scope", scope), ("key", key)):
        if not callable(given):
            raise TypeError(
                f"{what} must be a function of the arguments of each call, not {type(given).__name__}"
            )
    options: "dict[str, Any]" = {
        "retention": retention,
        "lease": lease,
        "wait": wait,
        "on_failure": on_failure,
    }

    def named(*args: Any, **kwargs: Any) -> "tuple[str, str, dict[str, Any]]":
        asked = {} if payload is None else {"payload": payload(*args, **kwargs)}
        return scope(*args, **kwargs), key(*args, **kwargs), {**options, **asked}

    def decorate(function: _F) -> _F:
        _check(function)
        if isinstance(client, Client):
            return cast("_F", _for_threads(client, encoding, named, function))
        return cast("_F", _for_tasks(client, encoding, named, function))

    return decorate


def _for_threads(client: Client, encoding: str, named: _Named, function: _Function) -> _Function:
    if inspect.iscoroutinefunction(function):
        raise TypeError("this client is for threads; for a coroutine function use one of connect_async()")

    @functools.wraps(function)
    def once(*args: Any, **kwargs: Any) -> Any:
        scope, key, options = named(*args, **kwargs)
        keys = client.idempotency(scope, encoding=encoding)
        return keys.run(key, lambda _claim: function(*args, **kwargs), **options).value

    return once


def _for_tasks(client: AsyncClient, encoding: str, named: _Named, function: _Function) -> _Function:
    if not inspect.iscoroutinefunction(function):
        raise TypeError("this client is for asyncio; for an ordinary function use one of connect()")

    @functools.wraps(function)
    async def once(*args: Any, **kwargs: Any) -> Any:
        scope, key, options = named(*args, **kwargs)
        keys = client.idempotency(scope, encoding=encoding)
        return (await keys.run(key, lambda _claim: function(*args, **kwargs), **options)).value

    return once


def _check(function: Callable[..., Any]) -> None:
    if not callable(function):
        raise TypeError(f"idempotent decorates a function, not {type(function).__name__}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError("a generator function returns before its body runs, so it has no result to store")
