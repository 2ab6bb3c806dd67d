"""Work that stops by itself when its lock is lost, in asyncio."""

import asyncio
import os

import polylatch


async def import_everything() -> None:
    await asyncio.sleep(3600)


async def main() -> None:
    async with polylatch.connect_async(os.environ.get("POLYLATCH_URL", "memory:")) as client:
        guard = await client.lock("import", lease=2).acquire()

        # Meanwhile an operator ends the lease, naming the token that was looked at.
        async def operator() -> None:
            await asyncio.sleep(0.2)
            await client.break_lease(
                "import",
                fencing_token=guard.fencing_token,
                by="ann@desk",
                reason="the import runs in the wrong environment",
            )

        breaking = asyncio.create_task(operator())

        # Whichever comes first: the work ends, or the lock is lost.
        work = asyncio.create_task(import_everything())
        lost = asyncio.create_task(guard.lost.wait())
        await asyncio.wait([work, lost], return_when=asyncio.FIRST_COMPLETED)
        work.cancel()
        print(f"stopped the import: the lock is lost ({guard.lost.reason})")
        assert not guard.is_held
        await breaking


asyncio.run(main())
