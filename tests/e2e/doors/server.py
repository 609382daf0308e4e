"""Gateways on a shared store, each with the agent of the doors, in processes that can be killed.

    python -m tests.e2e.doors.server URL      # each line of stdin is `PORT TOKEN`: one life, forked with all imports

A life says `ready PID` when its gateway answers. Its lease is short, and a run whose owner was killed is taken up after
it.
"""

import os
import signal
import sys
from functools import partial

import trio

import greenroom as gr
from greenroom.actors.stores.postgres.store import PostgresStore
from greenroom.transport import serve

from .agents import desk

LEASE = {"lease": 3.0, "turn": 0.5, "margin": 1.0}
"""Seconds; a process of a loaded machine does not lose such a lease."""


async def main(url: str, port: int, token: str) -> None:
    """One life."""
    store = PostgresStore(url, **LEASE)
    async with gr.open_runtime(store, agents=[desk]) as runtime, trio.open_nursery() as nursery:
        await nursery.start(partial(serve, runtime, port=port, token=token))
        os.write(1, f"ready {os.getpid()}\n".encode())
        await trio.sleep_forever()


if __name__ == "__main__":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            trio.run(main, sys.argv[1], *map(lambda of, word: of(word), (int, str), line.split()))
            os._exit(0)
