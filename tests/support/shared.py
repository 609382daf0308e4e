"""Several runtimes on one shared store, in one program and in virtual time: each is a process of its own."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio

import greenroom as gr
from greenroom.actors.services.clock import Clock

from .runs import home

LONGEST = 5_000.0
"""Virtual seconds of a test. Processes that share a store never sleep long, so each of these seconds costs time."""
LEASE = 30.0
MARGIN = 8.0
TURN = 3.0
"""As the default `LeaseTimes` of a shared store."""


@attrs.define(eq=False)
class Process:
    """A process of a cluster: its store, and how it ends."""

    store: gr.MemoryStore
    left: trio.Event = attrs.field(factory=trio.Event)
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    gone: trio.Event = attrs.field(factory=trio.Event)


class Cluster:
    """Processes on one ledger."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._processes: dict[gr.Runtime, Process] = {}
        self.clock = Clock()
        """Of all processes: a clock that is made later would begin at the real time of then."""
        self.lost: set[str] = set()
        """The kinds of hints that are lost."""
        self.first = gr.MemoryStore()
        self.first.peer()  # from now on the ledger is shared
        self.first.hints = lambda kind, _: None if kind in self.lost else 0.0

    def store(self, **options: Any) -> gr.MemoryStore:
        """A handle of another process."""
        return self.first.peer(**options)

    async def open(self, *agents: gr.Agent[Any], store: gr.MemoryStore | None = None, **options: Any) -> gr.Runtime:
        """A process with these agents, which lives until it is ended, or the cluster ends."""
        process = Process(store or self.store())
        runtime: gr.Runtime = await self._nursery.start(
            self._live, process, {"agents": agents, "clock": self.clock, **options}
        )
        return runtime

    async def _live(
        self,
        process: Process,
        options: dict[str, Any],
        *,
        task_status: trio.TaskStatus[gr.Runtime] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        with process.scope:
            async with home(process.store, **options) as runtime:
                self._processes[runtime] = process
                task_status.started(runtime)
                await process.left.wait()
        process.gone.set()

    async def close(self, runtime: gr.Runtime) -> None:
        """The process leaves the block of its runtime."""
        self._processes[runtime].left.set()
        await self._processes[runtime].gone.wait()

    async def kill(self, runtime: gr.Runtime) -> str:
        """The process ends without a word; returns its name."""
        process = self._processes[runtime]
        name = process.store.process
        process.store.freeze()
        process.scope.cancel()
        await process.gone.wait()
        return name

    def end(self) -> None:
        """All processes leave."""
        for process in self._processes.values():
            process.left.set()


@asynccontextmanager
async def cluster() -> AsyncIterator[Cluster]:
    """A shared store and its processes, which leave in order at the end."""
    with trio.fail_after(LONGEST):
        async with trio.open_nursery() as nursery:
            shared = Cluster(nursery)
            yield shared
            shared.end()
            await trio.lowlevel.checkpoint()


async def owner_of(runtime: gr.Runtime, run_id: str) -> str | None:
    """The name of the process that owns a run."""
    (line,) = (await runtime.store.summaries([run_id])).runs
    return line.owner


async def until(condition: Callable[[], Any], seconds: float = 60.0) -> None:
    """Wait until a condition holds."""
    with trio.fail_after(seconds):
        await trio.lowlevel.checkpoint()
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await trio.sleep(0.05)


def live(runtime: gr.Runtime) -> int:
    """How many runs have an actor in a process."""
    return len(runtime._parts.registry)
