"""Stores, runtimes and small observers that the runtime's tests share."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import trio

import greenroom as gr
from greenroom.actors.stores.common._leases import LEASE, MARGIN, TURN
from greenroom.actors.stores.postgres._connect import ANSWER
from greenroom.actors.stores.postgres.store import PostgresStore
from greenroom.testing import ScriptedModel

from .paced_clock import PACE

KINDS = ("memory", "sqlite")
PEERS = "peers"
"""A process among others on one store in memory."""
SERVED = "postgres"
"""A kind that needs a server: the lifecycle suite has it, too."""
LIVE = "postgres-live"
"""The same in real time: with the threads of production, and a clock that runs (`paced_clock.py`)."""
NEVER = 1_000_000.0
"""Virtual seconds after which a test that waits for something is informed that it never comes."""


class Shelf:
    """A place of storage that is kept while a test lasts: `open()` gives a store on it, again after every closing.

    All kinds but one are safe under virtual time: memory, SQLite or PostgreSQL that write in the calling task, and
    peers: each opening is another process on a shared memory store. PostgreSQL live writes in threads.

    Attributes:
        url: of the schema, for the kinds postgres and postgres-live.
    """

    url = ""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.path = kind, folder / "runs.db"
        self._memory: gr.MemoryStore | None = None
        self._ledger: gr.MemoryStore | None = None

    def __repr__(self) -> str:
        return f"<Shelf {self.kind}>"

    def open(self, **options: Any) -> gr.Store:
        if self.kind in (SERVED, LIVE):
            return PostgresStore(self.url, **served(self.kind, options))
        if self.kind == "sqlite":
            return gr.SQLiteStore(self.path, writer="inline", **options)
        if self.kind == PEERS:
            self._ledger = self._ledger or gr.MemoryStore()
            return self._ledger.peer(**options)
        if self._memory is None:
            self._memory = gr.MemoryStore(**options)
        return self._memory


def served(kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a store on the server: in the calling task, or with threads and the lease of an unhurried clock."""
    if kind == SERVED:
        return {"writer": "inline", **options}
    times = {name: seconds * PACE for name, seconds in (("lease", LEASE), ("turn", TURN), ("margin", MARGIN))}
    return {**times, "answer": ANSWER * PACE, **options}


opener: Callable[..., AbstractAsyncContextManager[gr.Runtime]] = gr.open_runtime
"""How a home opens its runtime; `killing.py` puts another way in its place, in which processes die."""


@asynccontextmanager
async def home(place: Shelf | gr.Store | Path | None = None, /, **options: Any) -> AsyncIterator[gr.Runtime]:
    """A runtime under virtual time; a task that waits in it for what never comes receives TooSlowError."""
    store = place.open() if isinstance(place, Shelf) else place
    with trio.fail_after(NEVER):
        async with opener(store, **options) as runtime:
            yield runtime


def agent(*steps: Any, key: str = "helper", **options: Any) -> gr.Agent[Any]:
    """An agent whose model plays a script."""
    return gr.Agent(key, model=ScriptedModel(list(steps) or ["done"]), **options)


async def events_of(run: gr.Run[Any], *, until: Literal["end", "rest"] = "end", after: int = 0) -> list[gr.Event]:
    """All events up to the run's end or rest."""
    async with run.events(after=after, until=until) as events:
        return [event async for event in events]


def payloads(events: list[gr.Event], *names: str) -> list[Mapping[str, Any]]:
    """The payloads of the events of these types (without the prefix `run.`)."""
    return [event.payload for event in events if event.type.removeprefix("run.") in names]


def types(events: list[gr.Event]) -> list[str]:
    """The types of events, without the prefix `run.`."""
    return [event.type.removeprefix("run.") for event in events]


async def frames_of(runtime: gr.Runtime, run_id: str) -> bytes:
    """Every byte that the store holds of a run's events."""
    return b"\n".join(await runtime.store.events(run_id, limit=100_000))


class Outages:
    """A faults port: while `error` is set the whole store does not answer."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.hits = 0

    def __call__(self, point: str) -> None:
        if self.error is not None and point in ("begin", "before_commit"):
            self.hits += 1
            raise self.error
