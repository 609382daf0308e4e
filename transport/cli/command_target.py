"""The runs of a command: behind a gateway, or in a database that this process opens for the command.

Both are a `RunAccess`. At a database without an owner a command is checked and stored as elsewhere, and acts when the
run is resumed; submitting a command executes no run.
"""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import attrs
import trio

import greenroom as gr

from ..client import ConnectionState, connect
from ..server.one_run import OneRunStore
from ..terminal.open_screen import open_screen
from ..terminal.screen import Screen
from . import paths, places
from .hidden import hidden_values
from .inspect import MANY, only
from .owner import PATIENCE, PAUSE, Owner, ServedBy, Stored, find_in_time
from .places import Place
from .run_report import how_to_resume


@attrs.frozen
class CommandTarget:
    """Access to the runs of a place. `runtime` and `place` are set for a database, which this process has open."""

    access: gr.RunAccess
    runtime: gr.Runtime | None = None
    place: Place | None = None

    async def whole_id(self, prefix: str) -> str:
        """Return the complete id for the beginning of an id.

        Raises:
            UsageError: Several ids have this prefix.
            UnknownRun: No id has this prefix.
        """
        try:
            return (await self.access.view(prefix)).run_id
        except gr.UnknownRun:
            page = await self.access.runs(prefix=prefix, limit=MANY)
        return only([line.run_id for line in page.runs], prefix)

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
    owner: Owner, *, patient: bool = False, on_change: Callable[[ConnectionState], None] | None = None
) -> AsyncIterator[CommandTarget]:
    """Open the runs of a place. `patient`: wait for a gateway or a store that does not answer.

    Raises:
        ConnectError: The gateway does not answer, or refuses.
        StoreOpenError: The database cannot be opened.
    """
    async with AsyncExitStack() as stack:
        if isinstance(owner, ServedBy):
            client = connect(owner.url, token=owner.token, patient=patient, on_change=on_change)
            yield CommandTarget(await stack.enter_async_context(client))
            return
        runtime = await _open_runtime(stack, owner, None if patient else places.PATIENCE)
        yield CommandTarget(runtime.as_principal(paths.user()), runtime, owner.place)


async def _open_runtime(stack: AsyncExitStack, owner: Stored, patience: float | None) -> gr.Runtime:
    """Open a store; waits for other commands that have a file open at the same time."""
    until = trio.current_time() + PATIENCE
    while True:
        place = owner.place
        store = OneRunStore(place) if isinstance(place, Path) else place.opened(patience=patience)
        try:
            return await stack.enter_async_context(gr.open_runtime(store, secrets=owner.secrets))
        except gr.StoreOpenError as error:
            if not isinstance(error.__cause__, BlockingIOError) or trio.current_time() >= until:
                raise
        await trio.sleep(PAUSE)


def at_run(args: argparse.Namespace, act: Callable[[CommandTarget, str, Screen], Awaitable[int]]) -> int:
    """Find the run that the options name, call `act` with the target, the run's id and a screen, return its exit code.

    Raises:
        GreenroomError: The run cannot be found or reached; or as `act` does.
    """

    async def perform() -> int:
        owner = await find_in_time(args)
        screen = open_screen(machine=args.json, secrets=hidden_values(args))
        try:
            async with open_target(owner) as target:
                return await act(target, await target.whole_id(args.run_id), screen)
        finally:
            screen.close()

    return trio.run(perform)
