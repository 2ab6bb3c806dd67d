"""What a user writes, for the type checkers: it is checked, and run by `test_package.py` too."""

import asyncio
from datetime import timedelta
from typing import Literal, Optional

import polylatch
from polylatch.metrics import PrometheusCollector


def threads() -> int:
    with polylatch.connect("memory:", lease=30, push="hint", timeout=timedelta(seconds=2)) as client:
        with client.lock("a", lease=30, wait=timedelta(seconds=5), label="x", fifo=False) as guard:
            token: int = guard.fencing_token
            remaining: float = guard.remaining
            quality: Literal["none", "time-floored", "strict"] = guard.fence_quality
            lost: bool = guard.lost.wait(0)
            numbers: int = client.stats()["wait"]["count"] + len(client.prometheus({"service": "shop"}))
            PrometheusCollector(client)
            reason: Optional[str] = guard.lost.reason
            guard.on_lost(print)
            guard.check()
        maybe: Optional[polylatch.Guard] = client.lock("a").try_acquire()
        if maybe is not None:
            maybe.release()
        with client.rw_lock("b").read() as reader:
            upgraded: bool = reader.try_upgrade()
        with client.semaphore("c", 3).permits(2) as permits:
            permits.beat()
        with client.lock_all(["d", "e"]) as guards:
            tokens: "dict[str, int]" = guards.fencing_tokens

        @client.lock("f")
        def work(one: int, *, two: str) -> str:
            return two * one

        text: str = work(2, two="x")
        snapshot = client.inspect("a")
        holders: int = sum(len(lock["holders"]) for lock in snapshot["locks"])
        result = client.break_lease("a", fencing_token=token, by="me", reason="a test")
        if result["outcome"] == "broken":
            print(result["holder"])
        gate = polylatch.TokenGate()
        gate.admit(token)
        sequencer = polylatch.Sequencer(f"name=a; token={token}")
        write = polylatch.FencedUpdate.upsert("postgres %s", "account", "fence", ["balance"], ["id"])
        why: Literal["missing", "changed_meanwhile"] = write.why_unchanged(token, None)
        taken: list[str] = polylatch.TransactionLock("mysql %s", "a").take_values
        sold = polylatch.ConditionalUpdate.update(
            "sqlite ?", "item", [("stock", "-")], [("stock", ">=")], ["id"]
        )
        print(
            write.parameters,
            why,
            taken,
            sold.sql,
            numbers,
            remaining,
            quality,
            lost,
            reason,
            upgraded,
            tokens,
            text,
            holders,
            sequencer.fencing_token,
        )
    return token


async def tasks() -> None:
    client = await polylatch.connect_async("memory:")
    async with client.lock("a", wait=5) as guard:
        lost = asyncio.create_task(guard.lost.wait())
        token: int = guard.fencing_token
    told: bool = await lost
    maybe: Optional[polylatch.AsyncGuard] = await client.lock("a").try_acquire()

    @client.lock("b")
    async def work(one: int) -> int:
        return one + token

    number: int = await work(1)
    print(told, maybe, number)
    await client.close()
    async with polylatch.connect_async() as other:
        await other.close()


def idempotent(client: polylatch.Client) -> int:
    orders = client.idempotency("orders/customer-7")

    def place(claim: polylatch.Claim) -> int:
        claim.check()
        return claim.fencing_token

    outcome: polylatch.Outcome[int] = orders.run("k", place, payload=b"order", retention=60)
    with orders.begin("l", on_failure="free") as run:
        if not run.replayed:
            run.complete({"order": 1})

    def named(order: str) -> str:
        return f"orders/{order}"

    @polylatch.idempotent(client, scope=named, key=named)
    def decorated(order: str) -> int:
        return len(order)

    number: int = decorated("m")
    return outcome.value + number


async def idempotent_tasks(client: polylatch.AsyncClient) -> int:
    orders = client.idempotency("orders/customer-7", encoding="json")

    async def place(claim: polylatch.AsyncClaim) -> int:
        return claim.fencing_token

    outcome = await orders.run("k", place)
    async with orders.begin("l") as run:
        if not run.replayed:
            await run.complete(1)
    return outcome.value


def errors(client: polylatch.Client) -> str:
    try:
        client.lock("a", wait=0.1).acquire()
    except polylatch.LeaseLost as error:
        return error.reason or error.code
    except polylatch.Error as error:
        lock = error.context["lock"]
        return f"{error.code} {error.retry} {error.effect} {error.hint} {lock}"
    except TimeoutError:
        return "also"
    return "nothing"
