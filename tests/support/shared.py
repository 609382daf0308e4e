"""Several runtimes on one shared store, in one program and in virtual time: each is a process of its own."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import trio

import greenroom as gr
from greenroom.actors.run.clock import Clock

from .runs import home

LONGEST = 5_000.0
"""Virtual seconds of a test. Processes that share a store never sleep long, so each of these seconds costs time."""
LEASE = 30.0
MARGIN = 8.0
TURN = 3.0
"""As the default `LeaseTimes` of a shared store."""


class Cluster:
    """Processes on one ledger. `open` opens one for as long as the cluster lasts."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self.first = gr.MemoryStore()
        self.clock = Clock()
        """Of all processes: a clock that is made later would begin at the real time of then."""
        self.stores: list[gr.MemoryStore] = []
        self.lost: set[str] = set()
        self.first.peer()  # from now on the ledger is shared
        self.first.hints = self._policy

    def _policy(self, kind: str, _: str) -> float | None:
        return None if kind in self.lost else 0.0

    def store(self, **options: Any) -> gr.MemoryStore:
        """A handle of another process."""
        self.stores.append(store := self.first.peer(**options))
        return store

    async def open(self, *agents: gr.Agent[Any], store: gr.MemoryStore | None = None, **options: Any) -> gr.Runtime:
        """A process with these agents."""
        options = {"clock": self.clock, **options}
        return await self._stack.enter_async_context(home(store or self.store(), agents=agents, **options))


@asynccontextmanager
async def cluster() -> AsyncIterator[Cluster]:
    """A shared store and its processes, which end in the opposite order of their beginning."""
    with trio.fail_after(LONGEST):
        async with AsyncExitStack() as stack:
            yield Cluster(stack)


async def owner_of(runtime: gr.Runtime, run_id: str) -> str | None:
    """The name of the process that owns a run."""
    (line,) = (await runtime.store.summaries([run_id])).runs
    return line.owner


async def until(condition: Callable[[], Any], seconds: float = 60.0) -> None:
    """Wait until a condition holds, async or not."""
    with trio.fail_after(seconds):
        while True:
            met = condition()
            if hasattr(met, "__await__"):
                met = await met
            if met:
                return
            await trio.sleep(0.05)


def live(runtime: gr.Runtime) -> int:
    """How many runs have an actor in a process."""
    return len(runtime._parts.roster)
