"""pgqueuer with asyncpg: empty jobs in batches of 20."""

import asyncio  # noqa: TID251 - the library knows no other loop
import logging
from datetime import timedelta

import asyncpg
from pgqueuer import PgQueuer, Queries
from pgqueuer.db import AsyncpgDriver
from spending import COUNT, Spent, say, url


async def main() -> None:
    """Work them off."""
    driver = AsyncpgDriver(await asyncpg.connect(url()))
    queries = Queries(driver)
    await queries.install()
    queuer = PgQueuer(driver)
    remaining, done = COUNT, asyncio.Event()

    @queuer.entrypoint("job")
    async def job(_: object) -> None:
        nonlocal remaining
        remaining -= 1
        if not remaining:
            done.set()

    await queries.enqueue(["job"] * COUNT, [b"0"] * COUNT, [0] * COUNT)
    with Spent() as cost:
        worker = asyncio.create_task(queuer.run(batch_size=20, dequeue_timeout=timedelta(seconds=1)))
        await done.wait()
    say(jobs_per_second=COUNT / cost.wall)
    queuer.shutdown.set()
    await asyncio.wait_for(worker, 10)


logging.disable(logging.CRITICAL)
asyncio.run(main())
