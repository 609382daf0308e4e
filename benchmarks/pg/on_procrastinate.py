"""Procrastinate: empty jobs, 20 at once in one worker."""

import asyncio  # noqa: TID251 - the library knows no other loop
import contextlib
import logging

import procrastinate
from spending import COUNT, Spent, say, url

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url()))
done = asyncio.Event()
queue = [None] * COUNT


@app.task(name="job")
async def job() -> None:
    """Nothing."""
    queue.pop()
    if not queue:
        done.set()


async def main() -> None:
    """Work them off."""
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        await job.batch_defer_async(*[{} for _ in range(COUNT)])
        with Spent() as cost:
            options = {"concurrency": 20, "install_signal_handlers": False, "listen_notify": True}
            worker = asyncio.create_task(app.run_worker_async(**options))
            await done.wait()
        say(jobs_per_second=COUNT / cost.wall)
        worker.cancel()
        with contextlib.suppress(BaseException):
            await worker


logging.disable(logging.CRITICAL)
asyncio.run(main())
