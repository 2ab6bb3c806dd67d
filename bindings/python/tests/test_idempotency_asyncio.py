"""Idempotent work for asyncio, and for ASGI applications."""

import asyncio

import pytest
from conftest import PATIENCE

import polylatch
from polylatch.asgi import IdempotencyMiddleware


def run(main):
    return asyncio.run(asyncio.wait_for(main, PATIENCE))


async def never(claim):
    raise AssertionError("it was done again")


def test_two_tasks_get_one_answer(url):
    async def main():
        async with polylatch.connect_async(url) as client:
            keys = client.idempotency("orders/customer-7")
            calls = []

            async def work(claim):
                calls.append(claim.fencing_token)
                assert claim.is_held
                assert claim.remaining > 0
                await asyncio.sleep(0.05)
                return {"order": len(calls)}

            outcomes = await asyncio.gather(*(keys.run("k", work) for _ in range(8)))
            assert len(calls) == 1
            assert [outcome.value for outcome in outcomes] == [{"order": 1}] * 8
            assert sorted(outcome.replayed for outcome in outcomes) == [False] + [True] * 7
            with pytest.raises(polylatch.PayloadMismatch):
                await keys.run("k", never, payload="another")
            assert (await keys.show("k"))["state"] == "done"
            assert await keys.forget("k") == "forgotten"
            token = await keys.issue(60)
            answers = await asyncio.gather(*(keys.consume(token) for _ in range(4)))
            assert sorted(answers) == ["duplicate"] * 3 + ["first"]

    run(main())


def test_a_block_and_its_failures(url):
    async def main():
        async with polylatch.connect_async(url) as client:
            keys = client.idempotency("s")
            async with keys.begin("k") as attempt:
                with pytest.raises(polylatch.InProgress):
                    await keys.run("k", never, wait=0)
                assert await attempt.complete("x") == "x"
                assert await attempt.claim.wait_lost() is None
            assert (await keys.begin("k")).value == "x"
            with pytest.raises(ValueError, match="no card"):
                async with keys.begin("l"):
                    raise ValueError("no card")
            with pytest.raises(polylatch.WorkFailed) as caught:
                await keys.run("l", never)
            assert caught.value.answer == {"error": "ValueError", "message": "no card"}
            with pytest.raises(polylatch.InvalidArgument, match="without complete"):
                async with keys.begin("m"):
                    pass

    run(main())


def test_a_cancelled_task_stores_nothing_and_its_key_is_free_with_the_lease(url):
    async def main():
        async with polylatch.connect_async(url) as client:
            keys, working = client.idempotency("s"), asyncio.Event()

            async def work(claim):
                working.set()
                await asyncio.Event().wait()

            task = asyncio.create_task(keys.run("k", work, lease=0.5))
            await working.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

            async def again(claim):
                return claim.runs

            assert await keys.run("k", again) == polylatch.Outcome(2, replayed=False)

    run(main())


def test_a_decorated_coroutine_function_is_called_once_for_each_key(url):
    async def main():
        async with polylatch.connect_async(url) as client:
            calls = []

            @polylatch.idempotent(client, scope=lambda user, key: f"orders/{user}", key=lambda user, key: key)
            async def place(user, key):
                calls.append(key)
                return len(calls)

            assert await asyncio.gather(place("a", "1"), place("a", "1"), place("a", "1")) == [1, 1, 1]
            assert await place("b", "1") == 2
            with pytest.raises(TypeError, match="this client is for asyncio"):
                polylatch.idempotent(client, scope=lambda: "s", key=lambda: "k")(lambda: None)

    run(main())


class Web:
    """Sends requests to an ASGI application."""

    def __init__(self, app):
        self.app = app

    async def post(
        self, key=None, body=b"order", user="alice", path="/orders", method="POST", header="Idempotency-Key"
    ):
        headers = [] if key is None else [(header.lower().encode(), key.encode())]
        sent = []
        half = len(body) // 2
        parts = [
            {"type": "http.request", "body": body[:half], "more_body": True},
            {"type": "http.request", "body": body[half:], "more_body": False},
        ]

        async def receive():
            return parts.pop(0) if parts else {"type": "http.disconnect"}

        async def send(message):
            sent.append(message)

        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "headers": headers,
            "query_string": b"",
            "user": user,
        }
        await self.app(scope, receive, send)
        start, *bodies = sent
        headers = {name.decode(): value.decode() for name, value in start["headers"]}
        return start["status"], headers, b"".join(part.get("body", b"") for part in bodies)


class Shop:
    """An application that makes an order for each request that reaches it."""

    def __init__(self):
        self.orders = 0
        self.status = 201
        self.gate = None
        self.raises = None
        self.size = 0

    async def __call__(self, scope, receive, send):
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message["body"], message["more_body"]
        assert body == b"order"
        self.orders += 1
        number = self.orders
        if self.gate is not None:
            entered, gate = self.gate
            entered.set()
            await gate.wait()
        if self.raises is not None:
            raise self.raises
        headers = [(b"x-order", str(number).encode()), (b"set-cookie", b"a=b"), (b"date", b"now")]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"order \xff ", "more_body": True})
        await send({"type": "http.response.body", "body": str(number).encode() + b"." * self.size})


def web(**options):
    """An application with the middleware, on a store of its own; runs the test's coroutine function."""

    def decorate(story):
        def test(url):
            async def main():
                async with polylatch.connect_async(url) as client:
                    shop = Shop()
                    app = IdempotencyMiddleware(shop, client, caller=lambda scope: scope["user"], **options)
                    await story(shop, Web(app), client)

            run(main())

        test.__name__ = story.__name__
        return test

    return decorate


@web()
async def test_a_repeated_request_gets_the_stored_response(shop, web, client):
    first = await web.post("k1")
    again = await web.post('"k1"')
    assert shop.orders == 1
    assert first == (201, {"x-order": "1", "set-cookie": "a=b", "date": "now"}, b"order \xff 1")
    # What is of one connection, moment or browser is not repeated.
    assert again == (201, {"x-order": "1", "idempotency-replayed": "true"}, b"order \xff 1")
    assert (await web.post("k2"))[2] == b"order \xff 2"
    assert (await web.post())[2] == b"order \xff 3"
    assert (await web.post("k1", method="GET"))[2] == b"order \xff 4"


@web()
async def test_another_callers_key_gets_nothing_of_the_response(shop, web, client):
    assert (await web.post("k", user="alice"))[2] == b"order \xff 1"
    assert (await web.post("k", user="bob"))[2] == b"order \xff 2"
    assert "idempotency-replayed" not in (await web.post("k", user=None))[1]


@web(required=True)
async def test_bad_keys_and_other_requests_are_refused(shop, web, client):
    status, headers, body = await web.post()
    assert (status, headers["content-type"]) == (400, "application/problem+json")
    assert b"this request needs the header idempotency-key" in body
    assert (await web.post("x" * 256))[0] == 400
    assert (await web.post("k"))[0] == 201
    for other in ({"body": b"other"}, {"path": "/refunds"}, {"method": "PATCH"}):
        status, _, body = await web.post("k", **other)
        assert status == 422
        assert b"another payload" in body
    assert (await web.post("k", body=b"x" * (1 << 20) + b"x"))[0] == 413
    assert shop.orders == 1


@web()
async def test_a_request_in_progress_is_409(shop, web, client):
    shop.gate = entered, gate = asyncio.Event(), asyncio.Event()
    first = asyncio.create_task(web.post("k"))
    await entered.wait()
    status, headers, _ = await web.post("k")
    assert (status, headers["retry-after"]) == (409, "1")
    gate.set()
    assert (await first)[0] == 201
    assert (await web.post("k"))[1]["idempotency-replayed"] == "true"
    assert shop.orders == 1


@web()
async def test_a_server_error_is_not_stored(shop, web, client):
    shop.status = 503
    assert (await web.post("k"))[0] == 503
    shop.raises = ValueError("broken")
    with pytest.raises(ValueError, match="broken"):
        await web.post("k")
    shop.status, shop.raises = 404, None
    assert (await web.post("k"))[0] == 404
    assert (await web.post("k"))[1]["idempotency-replayed"] == "true"
    assert shop.orders == 3


@web(store_server_errors=True)
async def test_a_server_error_is_stored_by_choice(shop, web, client):
    shop.status = 503
    assert [(await web.post("k"))[0] for _ in range(2)] == [503, 503]
    shop.raises = ValueError("broken")
    with pytest.raises(ValueError, match="broken"):
        await web.post("l")
    assert (await web.post("l"))[0] == 500
    assert shop.orders == 2


@web()
async def test_a_response_that_is_too_large_is_sent_once_and_not_made_again(shop, web, client):
    shop.size = 1 << 20
    assert len((await web.post("k"))[2]) > shop.size
    status, _, body = await web.post("k")
    assert status == 409
    assert b"is done" in body
    assert shop.orders == 1


@web(wait=PATIENCE)
async def test_a_repetition_may_wait_for_the_response(shop, web, client):
    shop.gate = entered, gate = asyncio.Event(), asyncio.Event()
    first = asyncio.create_task(web.post("k"))
    await entered.wait()
    second = asyncio.create_task(web.post("k"))
    await asyncio.sleep(0)
    gate.set()
    assert (await first)[2] == (await second)[2]
    assert shop.orders == 1


@web()
async def test_a_request_that_was_cut_off_is_not_handled(shop, web, client):
    sent, parts = (
        [],
        [{"type": "http.request", "body": b"or", "more_body": True}, {"type": "http.disconnect"}],
    )

    async def receive():
        return parts.pop(0)

    headers = [(b"idempotency-key", b"k")]
    scope = {"type": "http", "method": "POST", "path": "/orders", "headers": headers, "user": "alice"}
    await web.app(scope, receive, sent.append)
    assert (sent, shop.orders) == ([], 0)


def test_the_middleware_needs_to_know_the_caller():
    with pytest.raises(TypeError, match="caller"):
        IdempotencyMiddleware(None, None)
    with pytest.raises(TypeError, match="caller must be a function"):
        IdempotencyMiddleware(None, None, caller="alice")
