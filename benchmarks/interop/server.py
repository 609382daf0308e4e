"""A gateway for the benchmark of doors: python -m benchmarks.interop.server [DATABASE]

Prints its port; the token is TOKEN. The agent `quiet` answers immediately, `slow` never, `asking` after an approval.
"""

from __future__ import annotations

import sys
from functools import partial

import trio

import greenroom as gr
from greenroom.transport import serve

from ..workload import QuietModel

TOKEN = "a-token-for-the-benchmark"  # noqa: S105 - of a server that lives for a moment


@gr.tool(needs_approval=True)
async def ask(a: int, b: int) -> int:
    """Add two numbers if a person agrees."""
    return a + b


def agents() -> list[gr.Agent[str]]:
    """Return the agents."""
    return [
        gr.Agent("quiet", model=QuietModel(steps=0), description="Answers."),
        gr.Agent("slow", model=QuietModel(steps=0, delay=10_000.0), description="Works."),
        gr.Agent("asking", model=QuietModel(tool="ask"), tools=[ask], description="Asks."),
    ]


async def main(store: str | None) -> None:
    """Serve until killed."""
    async with gr.open_runtime(store, agents=agents(), drain=0) as runtime, trio.open_nursery() as nursery:
        address = await nursery.start(partial(serve, runtime, port=0, token=TOKEN))
        sys.stdout.write(f"{address.port}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if len(sys.argv) > 1 else None)
