"""`greenroom follow`: follow a run of another process live, or show a run without an owner."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import trio

import greenroom as gr
from greenroom.actors.contract.catalogue import TERMINAL_EVENTS
from greenroom.actors.contract.envelope import decode_event
from greenroom.supervision.nursery import open_collapsing_nursery

from ..client import ConnectError, ConnectionState, LogReset
from ..client.endpoint import read_endpoint
from ..terminal import text_format
from ..terminal.open_screen import open_screen
from ..terminal.screen import Screen
from ..terminal.timeline import Timeline
from . import exits, outcome_output, owner, paths
from .command_target import open_target
from .inspect import reading, whole_id
from .places import SharedStore
from .run_report import how_to_resume
from .session import FRAME, Interrupts

SETTLED: Final = 5
"""Ticks without an event after which a waiting run is reported as waiting; in a replay the answer follows at once."""

LOOK: Final = 0.5
"""Seconds between two searches for another server of the database, while there is no connection."""


def follow(given: argparse.Namespace) -> int:
    """Run the command."""
    place, screen = owner.find(given), open_screen(machine=given.json)
    try:
        return trio.run(Follow(given, screen).run, place)
    finally:
        screen.close()


Elsewhere = owner.ServedBy | owner.Unowned
"""Another server of the database, or the file without one."""


class Follow:
    """The session that follows one run on one screen."""

    def __init__(self, given: argparse.Namespace, screen: Screen) -> None:
        self._given, self._screen = given, screen
        self._timeline = Timeline(last=given.after)
        self._run_id: str = given.run_id
        self._trouble = ""
        self._asked: gr.Event | None = None  # set while the run waits and the command that answers has not been shown
        self._quiet = 0

    def __repr__(self) -> str:
        return f"<Follow of {self._run_id} at {self._timeline.last}>"

    async def run(self, place: owner.Found) -> int:
        """Follow the run until its end or an interrupt; show the stored events of a run without an owner."""
        if isinstance(place, owner.Unowned):
            return await self._stored(place)
        stop = Interrupts("")
        async with stop.listening(self._screen):
            with stop.gently:
                return await (self._through(place) if isinstance(place, owner.ServedBy) else self._shared(place))
        return self._left()

    # --- at a gateway ------------------------------------------------------------------------------------------------

    async def _through(self, place: owner.ServedBy) -> int:
        """Follow the run at successive servers of the database.

        In the file when there is no server and the run has ended.
        """
        patient = False
        while True:
            await trio.lowlevel.checkpoint()
            try:
                server = await self._at(place, patient=patient)
            except ConnectError:
                server = self._server()  # a new server may have a new token
                if server == place:
                    raise
            if isinstance(server, int):
                return server
            if isinstance(server, owner.Unowned):
                return await self._stored(server)
            place, patient = server, True

    async def _at(self, place: owner.ServedBy, *, patient: bool) -> int | Elsewhere:
        """Follow the run at one server; return the exit code, or the place to continue."""
        here, seen = trio.CancelScope(), list[Elsewhere]()
        async with open_target(place, patient=patient, on_change=self._connection) as target:
            self._run_id = await target.whole_id(self._run_id)
            self._screen.row(f"run {self._run_id} at {read_endpoint(place.url).url}", "dim")
            async with open_collapsing_nursery() as nursery:
                nursery.start_soon(self._tick)
                nursery.start_soon(self._look_around, place, seen, here)
                code: int | None = None
                with here:
                    code = await self._events(target.access)
                nursery.cancel_scope.cancel()
        return seen[0] if code is None else code

    async def _look_around(self, place: owner.ServedBy, seen: list[Elsewhere], here: trio.CancelScope) -> None:
        """Search, while there is no connection, for another server, or for the end of the run in the file."""
        while place.database is not None:
            await trio.sleep(LOOK)
            server = await self._elsewhere(place) if self._trouble else None
            if server is not None:
                seen.append(server)
                here.cancel()

    async def _elsewhere(self, place: owner.ServedBy) -> Elsewhere | None:
        try:
            server = self._server()
        except gr.GreenroomError:
            return None  # a server that is starting, or one without a gateway
        if isinstance(server, owner.ServedBy):
            return None if server == place else server
        async with reading(server.database) as store:
            record = await store.load(self._run_id)
        return server if record is not None and record.row.status is gr.RunStatus.DONE else None

    def _server(self) -> Elsewhere:
        found = owner.find(self._given)
        assert not isinstance(found, owner.Shared)  # noqa: S101 - the options named a server or a file before
        return found

    async def _events(self, runs: gr.RunAccess) -> int:
        """Follow the run to its end; from its first event again if the log of a shared store is replaced."""
        last: gr.Event | None = None
        while True:
            await trio.lowlevel.checkpoint()
            try:
                async with runs.follow(self._run_id, after=self._timeline.last) as events:
                    async for event in events:
                        last = event
                        self._show(event)
                break
            except (gr.LogReplaced, LogReset):
                self._screen.row("The log was replaced, as by a failover; from its beginning:", "warn")
                self._timeline = Timeline()
            except gr.RunDegradedError as error:
                self._screen.row(f"No process works on the run there ({error.reason}).", "warn")
                return self._told("degraded", exits.WAITING, reason=error.reason)
        if last is not None:
            return self._ended(last)
        return self._over((await runs.view(self._run_id)).stage)

    def _connection(self, state: ConnectionState) -> None:
        wait = f"; again in {text_format.duration(state.wait)}" if state.wait else ""
        self._trouble = "" if state.connected else f"no connection ({text_format.one_line(state.reason, 120)}){wait}"

    async def _tick(self) -> None:
        while True:
            self._screen.status(self._trouble or self._timeline.now(datetime.now(UTC)))
            await trio.sleep(FRAME)
            self._quiet += 1
            if self._asked is not None and self._quiet >= SETTLED:
                self._feed_command()

    # --- in a shared store -------------------------------------------------------------------------------------------

    async def _shared(self, place: owner.Shared) -> int:
        """Follow the run in a shared store, whichever process works on it."""
        async with open_target(place, patient=True) as target:
            self._run_id = await target.whole_id(self._run_id)
            self._screen.row(f"run {self._run_id} in {text_format.clean(str(place.store))}", "dim")
            async with open_collapsing_nursery() as nursery:
                nursery.start_soon(self._tick)
                code = await self._events(target.access)
                nursery.cancel_scope.cancel()
            return code

    # --- in a file ---------------------------------------------------------------------------------------------------

    async def _stored(self, place: owner.Unowned) -> int:
        """Show the stored events of a run without an owner."""
        database = place.database
        async with reading(database) as store:
            self._run_id = await whole_id(store, self._run_id)
            record = await store.load(self._run_id)
            if record is None:
                raise gr.UnknownRun(self._run_id)
            self._screen.row(f"run {self._run_id} in {text_format.clean(str(database))}", "dim")
            event: gr.Event | None = None
            while frames := await store.events(self._run_id, after=self._timeline.last):
                for frame in frames:
                    event = decode_event(frame)
                    self._show(event)
            if event is not None and event.type in TERMINAL_EVENTS:
                return self._ended(event)
            if record.row.status is gr.RunStatus.DONE:
                return self._over(record.row.stage)
        again = how_to_resume(record.info, database)
        if record.row.status is gr.RunStatus.WAITING:
            self._feed_command()
        self._screen.row()
        self._screen.row(f"No process works on the run now; its stage is {record.row.stage.value}.", "warn")
        self._screen.row(f"continue with:  {again}")
        status = "waiting" if record.row.status is gr.RunStatus.WAITING else "interrupted"
        return self._told(status, exits.WAITING, resume=again)

    # --- output ------------------------------------------------------------------------------------------------------

    def _show(self, event: gr.Event) -> None:
        self._screen.event(event)
        for line in self._timeline.tell(event):
            self._screen.line(line)
        self._timeline.last, self._quiet = event.sequence, 0
        self._asked = event if event.type == "run.waiting" else None

    def _feed_command(self) -> None:
        self._asked = None
        command = paths.typed("approve", self._run_id, *where(self._given))
        self._screen.row(f"answer it with: {command} (or deny)", "dim")

    def _ended(self, last: gr.Event) -> int:
        report = outcome_output.print_outcome(outcome_output.exit_report(last), self._screen)
        return self._told(report.status, report.exit, **report.more)

    def _over(self, stage: gr.Stage) -> int:
        """Report a run that ended before the first requested event."""
        self._screen.row(f"The run has ended ({stage.value}); no events follow.", "dim")
        codes = {gr.Stage.FAILED: exits.FAILED, gr.Stage.CANCELLED: exits.CANCELLED}
        return self._told(stage.value, codes.get(stage, exits.COMPLETED))

    def _left(self) -> int:
        command = paths.typed("follow", self._run_id, "--after", self._timeline.last, *where(self._given))
        self._screen.row()
        self._screen.row(f"continue with: {command}")
        return self._told("interrupted", exits.INTERRUPTED, resume=command)

    def _told(self, status: str, code: int, /, **more: object) -> int:
        report = {"type": "outcome", "runId": self._run_id, "status": status, "exit": code}
        self._screen.outcome({**report, "after": self._timeline.last, **more})
        return code


def where(given: argparse.Namespace) -> list[str]:
    """Return the options that name the place, as typed, without a token."""
    options: list[tuple[str, Path | str | None]] = [
        ("--db", given.db),
        ("--store", None if given.store is None else str(SharedStore(given.store))),
        ("--url", None if given.url is None else given.url.partition("#")[0]),
        ("--token-file", given.token_file),
    ]
    return [part for name, value in options if value is not None for part in (name, str(value))]
