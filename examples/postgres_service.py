"""A service on PostgreSQL: three workers, two gateways, and a run that passes through all of them.

    python examples/postgres_service.py postgresql://me@127.0.0.1/runs

The run is started at the first gateway, followed and approved at the second one, and worked on by one of the workers;
the example kills a worker meanwhile. docs/postgres.md describes the service.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from greenroom.transport import connect

AGENTS = Path(__file__).with_name("approval.py")
COMMAND = (sys.executable, "-m", "greenroom.transport.cli", "serve")


@asynccontextmanager
async def served(*options: str, store: str, token: Path) -> AsyncGenerator[dict[str, Any], None]:
    """Run `greenroom serve` for the block; yields what it says once it serves."""
    process = await trio.lowlevel.open_process(
        [*COMMAND, *options, "--port", "0", "--token-file", str(token), "--json"],
        env={**os.environ, "GREENROOM_STORE": store},
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None  # noqa: S101 - for the type checker
    try:
        line = b""
        while not line.endswith(b"\n"):
            part = await process.stdout.receive_some(65_536)
            if not part:
                raise SystemExit(f"greenroom serve ended with code {await process.wait()}")
            line += part
        yield json.loads(line)
    finally:
        process.send_signal(signal.SIGTERM)  # its runs are given back, and continue where another process serves
        with trio.CancelScope(shield=True):
            await process.wait()
    if process.returncode:
        raise SystemExit(f"greenroom serve ended with code {process.returncode}")


async def main(store: str) -> None:
    """Start the service, play a run, and stop the service."""
    async with AsyncExitStack() as stack:
        token = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "token"
        workers = await stack.enter_async_context(served(str(AGENTS), "--workers", "3", store=store, token=token))
        gateways = [await stack.enter_async_context(served(store=store, token=token)) for _ in range(2)]
        print(f"{len(workers['workers'])} workers, {len(gateways)} gateways")
        secret = token.read_text().strip()
        first, second = [await stack.enter_async_context(connect(one["url"], token=secret)) for one in gateways]
        run = (await first.start("refunds", "refund 4200 cents of order 7")).run_id
        async with second.follow(run) as events:
            async for event in events:
                print(f"{event.sequence:3} {event.type}")
                if event.type == "run.approval.requested":
                    os.kill(workers["workers"][0], signal.SIGKILL)
                    answer = await second.decide(run, event.payload["ticketId"], "approve", reason="a good customer")
                    print(f"    {answer.status}")
        await trio.sleep(1.0)  # the worker that was killed is replaced before the service is stopped
        print((await first.view(run)).stage.value)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: postgres_service.py postgresql://USER@HOST/DATABASE")
    trio.run(main, sys.argv[1])
