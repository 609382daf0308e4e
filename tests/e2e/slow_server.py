"""A gateway in a process of its own whose memory can be asked for, with a run that is as long as it is ordered to be.

    python slow_server.py DATABASE TOKEN FANOUT STALL_SECONDS

prints the port. Reads numbers, one a line: so many megabytes of events are written into the run `r`, then a line is
printed: the highest resident memory of the process so far, in bytes.
"""

import resource
import sys
from functools import partial

import trio

import greenroom as gr
from greenroom.testing import ScriptedModel
from greenroom.transport import Limits, serve

sys.path.insert(0, str(__import__("pathlib").Path(__file__).resolve().parents[2]))
from tests.support.event_writer import Author

SIZE = 8_000
"""Bytes of an event's text, about."""


async def main(database: str, token: str, stall: str) -> None:
    agent = gr.Agent("helper", model=ScriptedModel(["done"] * 100))
    async with gr.open_runtime(database, agents=[agent]) as runtime, trio.open_nursery() as nursery:
        options = {"port": 0, "token": token, "limits": Limits(stall_seconds=float(stall))}
        address = await nursery.start(partial(serve, runtime, **options))
        author = await Author.create(runtime, agent, "r")
        print(address.port, flush=True)  # noqa: T201
        orders = trio.wrap_file(sys.stdin)
        while megabytes := (await orders.readline()).strip():
            for _ in range(int(megabytes) * 1_000_000 // SIZE // 10):
                await author.write(["x" * SIZE] * 10)
            print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, author.head, flush=True)  # noqa: T201
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
