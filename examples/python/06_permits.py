"""At most three at a time: a semaphore, each of whose permits is a lease."""

import asyncio
import os

import polylatch

AT_ONCE = 3


async def main() -> None:
    async with polylatch.connect_async(os.environ.get("POLYLATCH_URL", "memory:")) as client:
        downloads = client.semaphore("downloads", AT_ONCE, wait=30)
        running = most = 0

        async def download(number: int) -> None:
            nonlocal running, most
            async with downloads.permits() as guard:
                running += 1
                most = max(most, running)
                await asyncio.sleep(0.02)
                guard.check()
                running -= 1

        await asyncio.gather(*(download(number) for number in range(10)))
        print(f"ten downloads, never more than {most} at once")
        assert most == AT_ONCE


asyncio.run(main())
