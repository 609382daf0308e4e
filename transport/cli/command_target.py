"""Targets of commands to runs: a gateway, or a database without an owner.

Both have the same interface. At a database a command is checked and stored as elsewhere, and acts when the run is
resumed; submitting a command executes no run.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Literal, Protocol

import attrs
import trio

import greenroom as gr

from ..client import Client, ConnectionState, connect
from . import paths
from .inspect import MANY, only, whole_id
from .owner import PATIENCE, PAUSE, ServedBy, Shared, Unowned
from .places import Place
from .run_report import how_to_resume
from .session import OneRunStore

Mode = Literal["now", "after_step"]


class CommandTarget(Protocol):
    """Accepts commands to runs, and reads of runs. `id_` is the command's id: a repeated command acts at most once."""

    @property
    def by(self) -> str:
        """The name of the deciding principal."""

    async def whole_id(self, wanted: str) -> str:
        """Return the complete id for the beginning of an id.

        Raises:
            UsageError: Several ids have this prefix.
            UnknownRun: No id has this prefix.
        """

    async def view(self, run_id: str) -> gr.RunView:
        """Return a snapshot of a run."""

    async def decide(self, run_id: str, decision: gr.Decision) -> gr.CommandResult:
        """Decide a ticket."""

    async def cancel(self, run_id: str, mode: Mode, reason: str | None, id_: str | None) -> gr.CommandResult:
        """Ask a run to end."""

    async def pause(self, run_id: str, reason: str | None, id_: str | None) -> gr.CommandResult:
        """Pause a run before its next step."""

    async def send(self, run_id: str, text: str, id_: str | None) -> gr.CommandResult:
        """Give a run more input."""

    async def later(self, run_id: str) -> str | None:
        """Return the shell command that makes an accepted command act; None if no further command is needed."""


class GatewayTarget:
    """A target behind a gateway."""

    @property
    def by(self) -> str:
        """The principal of the token."""
        return self._client.principal

    def __init__(self, client: Client) -> None:
        self._client = client

    def __repr__(self) -> str:
        return f"<GatewayTarget {self._client.url}>"

    async def whole_id(self, wanted: str) -> str:
        """Return the complete id for the beginning of an id."""
        try:
            return (await self._client.view(wanted)).run_id
        except gr.UnknownRun:
            page = await self._client.runs(prefix=wanted, limit=MANY)
        return only([line.run_id for line in page.runs], wanted)

    async def view(self, run_id: str) -> gr.RunView:
        """Return a snapshot of a run."""
        return await self._client.view(run_id)

    async def decide(self, run_id: str, decision: gr.Decision) -> gr.CommandResult:
        """Decide a ticket."""
        return await self._client.decide(run_id, decision)

    async def cancel(self, run_id: str, mode: Mode, reason: str | None, id_: str | None) -> gr.CommandResult:
        """Ask a run to end."""
        return await self._client.cancel(run_id, mode=mode, reason=reason, command_id=id_)

    async def pause(self, run_id: str, reason: str | None, id_: str | None) -> gr.CommandResult:
        """Pause a run before its next step."""
        return await self._client.pause(run_id, reason=reason, command_id=id_)

    async def send(self, run_id: str, text: str, id_: str | None) -> gr.CommandResult:
        """Give a run more input."""
        return await self._client.send(run_id, text, command_id=id_)

    async def later(self, run_id: str) -> str | None:
        """Return None, unless the server lacks the run's agent."""
        try:
            degraded = (await self._client.view(run_id)).degraded
        except gr.GreenroomError:
            return None  # the command is accepted in any case; the server may have stopped after its last run
        return None if degraded is None else f"restart the server with the agent of {run_id} ({degraded})"


class DatabaseTarget:
    """A target in a database without an owner, or in a shared store."""

    @property
    def by(self) -> str:
        """The user of this process."""
        return self._by

    def __init__(self, runtime: gr.Runtime, place: Place) -> None:
        self._runtime, self._store, self._place = runtime, runtime.store, place
        self._by = paths.user()

    def __repr__(self) -> str:
        return f"<DatabaseTarget {self._place}>"

    async def whole_id(self, wanted: str) -> str:
        """Return the complete id for the beginning of an id."""
        return (await self._runtime.get(await whole_id(self._store, wanted))).id

    async def view(self, run_id: str) -> gr.RunView:
        """Return a snapshot of a run."""
        return await (await self._runtime.get(run_id)).view()

    async def decide(self, run_id: str, decision: gr.Decision) -> gr.CommandResult:
        """Decide a ticket."""
        return await self._runtime.commands.decide(run_id, attrs.evolve(decision, decided_by=self._by))

    async def cancel(self, run_id: str, mode: Mode, reason: str | None, id_: str | None) -> gr.CommandResult:
        """Ask a run to end."""
        return await self._runtime.commands.cancel(run_id, mode=mode, reason=reason, by=self._by, command_id=id_)

    async def pause(self, run_id: str, reason: str | None, id_: str | None) -> gr.CommandResult:
        """Pause a run before its next step."""
        return await self._runtime.commands.pause(run_id, reason=reason, by=self._by, command_id=id_)

    async def send(self, run_id: str, text: str, id_: str | None) -> gr.CommandResult:
        """Give a run more input."""
        return await self._runtime.commands.send(run_id, text, by=self._by, command_id=id_)

    async def later(self, run_id: str) -> str | None:
        """Return the command that resumes the run; None if a process of a shared store has its agent."""
        record = await self._store.load(run_id)
        if record is None or record.info.agent in await self._store.agents():
            return None
        return how_to_resume(record.info, self._place)


@asynccontextmanager
async def open_target(
    place: ServedBy | Unowned | Shared, on_change: Callable[[ConnectionState], None] | None = None
) -> AsyncIterator[CommandTarget]:
    """Open the target for commands to the runs of a place.

    Raises:
        ConnectError: The gateway does not answer, or refuses.
        StoreOpenError: The database cannot be opened.
    """
    if isinstance(place, ServedBy):
        async with connect(place.url, token=place.token, on_change=on_change) as client:
            yield GatewayTarget(client)
        return
    if isinstance(place, Shared):
        async with gr.open_runtime(place.store.opened(), secrets=place.secrets) as runtime:
            yield DatabaseTarget(runtime, place.store)
        return
    async with AsyncExitStack() as stack:
        yield await _open_file(stack, place)


async def _open_file(stack: AsyncExitStack, place: Unowned) -> DatabaseTarget:
    """Open a database; waits for other commands that have it open at the same time."""
    until = trio.current_time() + PATIENCE
    while True:
        store = OneRunStore(place.database)
        try:
            runtime = await stack.enter_async_context(gr.open_runtime(store, secrets=place.secrets))
            return DatabaseTarget(runtime, place.database)
        except gr.StoreOpenError as error:
            if not isinstance(error.__cause__, BlockingIOError) or trio.current_time() >= until:
                raise
        await trio.sleep(PAUSE)
