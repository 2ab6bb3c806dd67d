"""Idempotent requests of an ASGI application (Starlette, FastAPI, Quart, Django and others).

    app = IdempotencyMiddleware(app, client, caller=lambda scope: scope["user"].identity)

A client makes a key, such as a UUID, and sends it as the header ``Idempotency-Key`` with every repetition of
one request. The application handles the request once, and every repetition gets the stored response, marked
with the header ``Idempotency-Replayed: true``. The header is that of the IETF draft
draft-ietf-httpapi-idempotency-key-header.

| response | when |
| --- | --- |
| 400 | the key breaks a rule, or is missing where it is required |
| 409 | the request with this key is being handled, or its response was too large to be stored |
| 413 | the body is larger than ``max_body`` |
| 422 | the key was used for another request |

Of a response, the status, the body and the headers are stored, except ``Set-Cookie``, ``Date`` and those of
one connection; at most 1 MiB in all. A response of 500 or more is not stored.
"""

from __future__ import annotations

import base64
import inspect
import json
import logging
from collections.abc import Awaitable, Iterable, MutableMapping
from typing import TYPE_CHECKING, Any, Callable, Optional, Union

from ._errors import Error, InProgress, InvalidArgument, PayloadMismatch, ResultTooLarge

if TYPE_CHECKING:
    from ._aio import AsyncClient
    from ._aio_idempotency import AsyncAttempt
    from ._polylatch import Seconds

_Scope = MutableMapping[str, Any]
_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]
_App = Callable[[_Scope, _Receive, _Send], Awaitable[None]]
_Caller = Callable[[_Scope], Union[Optional[str], Awaitable[Optional[str]]]]
_Headers = "list[tuple[bytes, bytes]]"

_LOG = logging.getLogger("polylatch")

_SERVER_ERROR = 500

# Of one connection (RFC 9110, 7.6.1), of one moment, or of one browser.
_NOT_STORED = frozenset(
    (
        b"connection",
        b"date",
        b"keep-alive",
        b"proxy-connection",
        b"set-cookie",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    )
)


class _TooLargeError(Exception):
    pass


class IdempotencyMiddleware:
    """Handles each request that has a key once; see the module.

    ``client``: of :func:`polylatch.connect_async`. ``caller``: a function of the ASGI scope that returns who
    sent the request, by an identity that was checked before (put this middleware inside of that of
    authentication). Two callers never get each other's responses. If it returns ``None``, the request is
    anonymous: the application gets it as if it had no key. ``methods``: which requests may have a key.
    ``required``: without a key, such a request is refused. ``retention``, ``lease``: as of
    :meth:`polylatch.Idempotency.run`. ``wait``: how long a repetition waits for the response of the first
    request before it gets 409; not at all by default. ``max_body``: the largest body of a request, in bytes.

    A response of 500 or more, and an exception of the application, free the key, and the next repetition is
    handled again. That is right only if what failed had no effect: with ``store_server_errors`` they are
    stored, too.
    """

    def __init__(
        self,
        app: _App,
        client: AsyncClient,
        *,
        caller: _Caller,
        methods: Iterable[str] = ("POST", "PATCH"),
        header: str = "idempotency-key",
        required: bool = False,
        retention: Optional[Seconds] = None,
        lease: Optional[Seconds] = None,
        wait: Optional[Seconds] = 0,
        max_body: int = 1024 * 1024,
        store_server_errors: bool = False,
    ) -> None:
        if not callable(caller):
            raise TypeError("caller must be a function of the ASGI scope that returns who sent the request")
        self._app = app
        self._client = client
        self._caller = caller
        self._methods = frozenset(method.upper() for method in methods)
        self._header = header.lower().encode("latin-1")
        self._required = required
        self._options: "dict[str, Any]" = {"retention": retention, "lease": lease, "wait": wait}
        self._max_body = max_body
        self._store_server_errors = store_server_errors

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Handles one connection, as ASGI has it."""
        if scope["type"] != "http" or scope["method"] not in self._methods:
            await self._app(scope, receive, send)
            return
        key = self._key(scope)
        if key is None and self._required:
            await _refuse(
                send, 400, f"this request needs the header {self._header.decode()}, a key made by its client"
            )
            return
        caller = None if key is None else self._caller(scope)
        if inspect.isawaitable(caller):
            caller = await caller
        if key is None or caller is None:
            await self._app(scope, receive, send)
            return
        await self._handle(key, caller, scope, receive, send)

    def _key(self, scope: _Scope) -> Optional[str]:
        for name, value in scope["headers"]:
            if name.lower() == self._header:
                text: str = value.decode("latin-1").strip()
                # A string of structured fields (RFC 9651), or as most clients send it.
                return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text
        return None

    async def _handle(self, key: str, caller: str, scope: _Scope, receive: _Receive, send: _Send) -> None:
        try:
            body = await self._body(receive)
        except _TooLargeError:
            await _refuse(send, 413, f"the body of a request with a key has at most {self._max_body} bytes")
            return
        if body is None:
            return
        keys = self._client.idempotency(f"http/{caller}", encoding="bytes")
        asked = [scope["method"], scope["path"], scope.get("query_string", b"").decode("latin-1")]
        payload = json.dumps(asked).encode() + b"\0" + body
        try:
            attempt = await keys.begin(key, payload=payload, **self._options)
        except (InvalidArgument, InProgress, PayloadMismatch, ResultTooLarge) as error:
            await _refuse(send, _STATUS[type(error)], str(error), retry_after=isinstance(error, InProgress))
            return
        if attempt.replayed:
            await _replay(send, attempt.value)
            return
        await self._first(attempt, scope, _received(body, receive), send)

    async def _body(self, receive: _Receive) -> Optional[bytes]:
        """Reads the body; ``None`` if the client has gone, so that this is not all of it."""
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            if len(body) > self._max_body:
                raise _TooLargeError
            if not message.get("more_body", False):
                return bytes(body)

    async def _first(
        self, attempt: AsyncAttempt[bytes], scope: _Scope, receive: _Receive, send: _Send
    ) -> None:
        start: _Message = {}
        body = bytearray()

        async def keep(message: _Message) -> None:
            if message["type"] == "http.response.start":
                start.update(message)
            elif message["type"] == "http.response.body":
                body.extend(message.get("body", b""))

        fate = "store" if self._store_server_errors else "free"
        try:
            await self._app(scope, receive, keep)
        except Exception as error:
            if self._store_server_errors:
                await _record(attempt.complete(_stored(_SERVER_ERROR, [], b"")))
            else:
                await _record(attempt.fail(error, on_failure="free"))
            raise
        except BaseException:
            # Cancelled: what it did is not known.
            attempt.abandon()
            raise
        if not start:
            await _record(attempt.fail(RuntimeError("the application sent no response"), on_failure="free"))
            return
        status = start["status"]
        if status >= _SERVER_ERROR and fate == "free":
            await _record(attempt.fail(RuntimeError(f"status {status}"), on_failure="free"))
        else:
            await _record(attempt.complete(_stored(status, start.get("headers", []), bytes(body))))
        # Not before it is stored: a client that got a response and repeats the request gets the same one.
        await send(start)
        await send({"type": "http.response.body", "body": bytes(body)})


_STATUS: "dict[type[Error], int]" = {
    InvalidArgument: 400,
    InProgress: 409,
    ResultTooLarge: 409,
    PayloadMismatch: 422,
}


async def _record(storing: Awaitable[object]) -> None:
    """The response is sent whether it is stored or not: the work is done."""
    try:
        await storing
    except Error as error:
        _LOG.warning("the response to a request with a key is not stored: %s", error)


def _stored(status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> bytes:
    kept = [
        [bytes(name).decode("latin-1"), bytes(value).decode("latin-1")]
        for name, value in headers
        if bytes(name).lower() not in _NOT_STORED
    ]
    response = {"status": status, "headers": kept, "body": base64.b64encode(body).decode("ascii")}
    return json.dumps(response, separators=(",", ":")).encode()


async def _replay(send: _Send, stored: bytes) -> None:
    response = json.loads(stored)
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in response["headers"]]
    headers.append((b"idempotency-replayed", b"true"))
    await send({"type": "http.response.start", "status": response["status"], "headers": headers})
    await send({"type": "http.response.body", "body": base64.b64decode(response["body"])})


async def _refuse(send: _Send, status: int, detail: str, *, retry_after: bool = False) -> None:
    """Answers with problem details (RFC 9457)."""
    body = json.dumps({"type": "about:blank", "status": status, "detail": detail}).encode()
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", str(len(body)).encode()),
    ]
    if retry_after:
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _received(body: bytes, receive: _Receive) -> _Receive:
    """Gives the application the body that was read, and then what comes."""
    given = False

    async def again() -> _Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
