"""Lets the conformance runner drive this package: requests and answers are JSON lines.

The protocol stands in `tests/conformance/README.md`. Run with the interpreter of an environment in
which the package is installed.
"""

import asyncio
import json
import os
import sys
import threading

import polylatch


class Runners(Exception):
    """The runner asks for something that there is not."""


class Shim:
    def __init__(self):
        self.clients = {}
        self.events = {}
        self.named = []
        self.guards = {}
        self.running = {}
        self.waiting = {}

    async def serve(self, request):
        verb = getattr(self, "do_" + request["op"], None)
        if verb is None:
            raise Runners(f"there is no verb {request['op']!r}")
        return await verb(request)

    async def do_connect(self, request):
        events = self.events[request["client"]] = []
        client = await polylatch.connect_async(request["url"], on_event=events.append)
        self.clients[request["client"]] = client
        return {"capability": client.capability}

    async def do_name(self, request):
        self.named.append(self.lock(request))
        return {}

    async def do_acquire(self, request):
        return self.keep(request, await self.lock(request).acquire())

    async def do_try(self, request):
        return self.keep(request, await self.lock(request).try_acquire())

    async def do_lock_all(self, request):
        return self.keep(request, await self.locks(request).acquire())

    async def do_try_all(self, request):
        return self.keep(request, await self.locks(request).try_acquire())

    async def do_release(self, request):
        await self.guard(request).release()
        return {}

    async def do_check(self, request):
        self.guard(request).check()
        return {}

    async def do_beat(self, request):
        self.guard(request).beat()
        return {}

    async def do_extend(self, request):
        await self.guard(request).extend(request["lease_ms"] / 1000)
        return {}

    async def do_lost(self, request):
        lost = self.guard(request).lost
        if not await lost.wait():
            # It was given back: there is nothing left to lose, and nothing to tell.
            await asyncio.Event().wait()
        return {"reason": lost.reason}

    async def do_downgrade(self, request):
        guard = self.guard(request)
        await guard.downgrade()
        return self.keep(request, guard)

    async def do_upgrade(self, request):
        guard = self.guard(request)
        return self.keep(request, guard if await guard.try_upgrade() else None)

    async def do_see(self, request):
        snapshot = await self.client(request).inspect(request["lock"])
        view = next(iter(snapshot["locks"]), {"holders": [], "waiters": []})
        clients = {client["id"]: client for client in snapshot["clients"]}

        def seen(one, *more):
            client = clients.get(one["client"], {})
            told = {key: one[key] for key in ("label", "mode", "permits", *more)}
            return {**told, "pid": client.get("pid"), "language": client.get("language")}

        holders = [
            {**seen(holder, "renewals"), "token": holder["fencing_token"]} for holder in view["holders"]
        ]
        return {"holders": holders, "waiters": [seen(waiter) for waiter in view["waiters"]]}

    async def do_break(self, request):
        result = await self.client(request).break_lease(
            request["lock"], fencing_token=request["token"], by=request["by"], reason=request["reason"]
        )
        return {"outcome": result["outcome"]}

    async def do_told(self, request):
        events = list(self.events[request["client"]])
        told = [f"{one['level']} {one['event']}" for one in events if one.get("lock") == request["lock"]]
        return {"events": told}

    async def do_stats(self, request):
        stats = self.client(request).stats()
        counts = {count: stats[count] for count in ("acquired", "refused", "timed_out", "held", "waiting")}
        return {**counts, "losses": sum(stats["losses"].values())}

    async def do_run(self, request):
        async def work(claim):
            if request["waits"] is not None:
                begun, end = self.gate(request)
                begun.set()
                await end.wait()
            if request["fails"]:
                raise polylatch.WorkFailed("the work fails", answer=request["value"])
            return request["value"]

        keys = self.client(request).idempotency(request["scope"])
        outcome = await keys.run(request["key"], work, payload=request["payload"], **options_of(request))
        return {"value": outcome.value, "replayed": outcome.replayed}

    async def do_end_run(self, request):
        self.gate(request)[1].set()
        return {}

    async def do_working(self, request):
        await self.gate(request)[0].wait()
        return {}

    def gate(self, request):
        return self.waiting.setdefault(request["waits"], (asyncio.Event(), asyncio.Event()))

    async def do_close(self, request):
        await self.client(request).close()
        return {}

    def client(self, request):
        if request["client"] not in self.clients:
            raise Runners(f"there is no client {request['client']!r}")
        return self.clients[request["client"]]

    def guard(self, request):
        if request["guard"] not in self.guards:
            raise Runners(f"there is no guard {request['guard']!r}")
        return self.guards[request["guard"]]

    def lock(self, request):
        client, name, options = self.client(request), request["lock"], options_of(request)
        mode = request.get("mode", {"kind": "mutex"})
        if mode["kind"] == "mutex":
            return client.lock(name, **options)
        if mode["kind"] == "read":
            return client.rw_lock(name, **options).read()
        if mode["kind"] == "write":
            return client.rw_lock(name, **options).write()
        return client.semaphore(name, mode["capacity"], **options).permits(mode["count"])

    def locks(self, request):
        return self.client(request).lock_all(request["locks"], **options_of(request))

    def keep(self, request, guard):
        if guard is None:
            return {"held": False}
        self.guards[request["guard"]] = guard
        if isinstance(guard, polylatch.AsyncGuardSet):
            return {"held": True, "locks": list(guard.fencing_tokens)}
        return {"held": True, "token": guard.fencing_token, "locks": [guard.name]}


def options_of(request):
    """The scenario's options in this language's units."""
    options = {}
    for key, value in request.get("options", {}).items():
        if key.endswith("_ms"):
            options[key.removesuffix("_ms")] = value / 1000
        else:
            options[key] = value
    return options


def told(error):
    return {
        "code": error.code,
        "retry": error.retry,
        "effect": error.effect,
        "reason": getattr(error, "reason", None),
        "message": str(error),
    }


def say(answer):
    # One write for each line, also if the reader is slow.
    os.write(1, (json.dumps(answer) + "\n").encode())


async def answer(shim, request):
    try:
        result = {"ok": await shim.serve(request)}
    except asyncio.CancelledError:
        result = {"canceled": True}
    except polylatch.Error as error:
        result = {"error": told(error)}
    except Exception as error:
        result = {"fault": f"{type(error).__name__}: {error}"}
    shim.running.pop(request["id"], None)
    say({"id": request["id"], **result})


async def main():
    loop, requests = asyncio.get_running_loop(), asyncio.Queue()

    def read():
        for line in sys.stdin:
            loop.call_soon_threadsafe(requests.put_nowait, json.loads(line))
        loop.call_soon_threadsafe(requests.put_nowait, None)

    threading.Thread(target=read, daemon=True).start()
    shim = Shim()
    say(
        {
            "hello": "polylatch",
            "protocol": 1,
            "language": "python",
            "version": polylatch.__version__,
            "can": ["cancel", "idempotency"],
        }
    )
    while (request := await requests.get()) is not None:
        if request["op"] == "cancel":
            task = shim.running.get(request["target"])
            if task is not None:
                task.cancel()
            say({"id": request["id"], "ok": {}})
            continue
        shim.running[request["id"]] = asyncio.create_task(answer(shim, request))


asyncio.run(main())
