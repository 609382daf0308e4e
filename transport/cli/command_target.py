"""The runs of a command: behind a gateway, or in a database that this process opens for the command.

Both are a `RunAccess`. At a database without an owner a command is checked and stored as elsewhere, and acts when the
run is resumed; submitting a command executes no run.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import attrs
import trio

import greenroom as gr

from ..client import ConnectionState, connect
from . import paths
from .inspect import MANY, only
from .one_run import OneRunStore
from .owner import PATIENCE, PAUSE, Found, ServedBy, Shared, Unowned
from .places import Place
from .run_report import how_to_resume


@attrs.frozen
class CommandTarget:
    """Access to the runs of a place. `runtime` and `place` are set for a database, which this process has open."""

    access: gr.RunAccess
    runtime: gr.Runtime | None = None
    place: Place | None = None

    async def whole_id(self, wanted: str) -> str:
        """Return the complete id for the beginning of an id.

        Raises:
            UsageError: Several ids have this prefix.
            UnknownRun: No id has this prefix.
        """
        try:
            return (await self.access.view(wanted)).run_id
        except gr.UnknownRun:
            page = await self.access.runs(prefix=wanted, limit=MANY)
        return only([line.run_id for line in page.runs], wanted)

    async def later(self, run_id: str) -> str | None:
        """Return the step after which an accepted command acts; None if no further step is needed."""
        if self.runtime is None or self.place is None:
            try:
                degraded = (await self.access.view(run_id)).degraded
            except gr.GreenroomError:
                return None  # the command is accepted in any case; the server may have stopped after its last run
            return None if degraded is None else f"restart the server with the agent of {run_id} ({degraded})"
        info = await self.runtime.reader.info(run_id)
        if info is None or info.agent in await self.runtime.store.agents():
            return None
        return how_to_resume(info, self.place)


@asynccontextmanager
async def open_target(
    place: Found, *, patient: bool = False, on_change: Callable[[ConnectionState], None] | None = None
) -> AsyncIterator[CommandTarget]:
    """Open the runs of a place. `patient`: wait for a gateway or a store that does not answer.

    Raises:
        ConnectError: The gateway does not answer, or refuses.
        StoreOpenError: The database cannot be opened.
    """
    if isinstance(place, ServedBy):
        async with connect(place.url, token=place.token, patient=patient, on_change=on_change) as client:
            yield CommandTarget(client)
        return
    async with AsyncExitStack() as stack:
        if isinstance(place, Shared):
            store = place.store.opened(patience=None) if patient else place.store.opened()
            runtime = await stack.enter_async_context(gr.open_runtime(store, secrets=place.secrets))
            where: Place = place.store
        else:
            runtime, where = await _open_file(stack, place), place.database
        yield CommandTarget(runtime.as_principal(paths.user()), runtime, where)


async def _open_file(stack: AsyncExitStack, place: Unowned) -> gr.Runtime:
    """Open a database; waits for other commands that have it open at the same time."""
    until = trio.current_time() + PATIENCE
    while True:
        try:
            return await stack.enter_async_context(gr.open_runtime(OneRunStore(place.database), secrets=place.secrets))
        except gr.StoreOpenError as error:
            if not isinstance(error.__cause__, BlockingIOError) or trio.current_time() >= until:
                raise
        await trio.sleep(PAUSE)
