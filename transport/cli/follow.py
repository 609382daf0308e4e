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
from ..terminal.interrupts import Interrupts
from ..terminal.open_screen import open_screen
from ..terminal.screen import Screen
from ..terminal.timeline import Timeline
from . import exits, outcome_output, paths
from .command_target import open_target
from .inspect import reading, record_of
from .owner import Owner, ServedBy, Stored, find, where
from .run_report import how_to_resume
from .session import FRAME

SETTLED: Final = 5
"""Ticks without an event after which a waiting run is reported as waiting; a replay shows the answer before."""

LOOK: Final = 0.5
"""Seconds between two searches for another server of the database, while there is no connection."""


def follow(args: argparse.Namespace) -> int:
    """Run the command."""
    owner, screen = find(args), open_screen(machine=args.json)
    try:
        return trio.run(Follow(args, screen).run, owner)
    finally:
        screen.close()


class Follow:
    """The session that follows one run on one screen."""

    def __init__(self, args: argparse.Namespace, screen: Screen) -> None:
        self._given, self._screen = args, screen
        self._timeline = Timeline(last=args.after)
        self._run_id: str = args.run_id
        self._trouble = ""
        self._asked: gr.Event | None = None  # set while the run waits and the command that answers has not been shown
        self._quiet = 0

    def __repr__(self) -> str:
        return f"<Follow of {self._run_id} at {self._timeline.last}>"

    async def run(self, owner: Owner) -> int:
        """Follow the run until its end or an interrupt; show the stored events of a run without an owner."""
        if isinstance(owner, Stored) and isinstance(owner.place, Path):
            return await self._stored(owner.place)
        stop = Interrupts("")
        async with stop.listening(self._screen):
            with stop.gently:
                return await self._through(owner)
        command = paths.typed("follow", self._run_id, "--after", self._timeline.last, *where(self._given))
        self._screen.row()
        self._screen.row(f"continue with: {command}")
        return self._told("interrupted", exits.INTERRUPTED, resume=command)

    # --- live --------------------------------------------------------------------------------------------------------

    async def _through(self, owner: Owner) -> int:
        """Follow the run in a shared store, or at successive servers of a file; in the file once the run has ended."""
        patient = isinstance(owner, Stored)
        while True:
            await trio.lowlevel.checkpoint()
            try:
                result = await self._at(owner, patient=patient)
            except ConnectError:
                result = find(self._given)  # a new server may have a new token
                if result == owner:
                    raise
            if isinstance(result, int):
                return result
            if isinstance(result, Stored) and isinstance(result.place, Path):
                return await self._stored(result.place)
            owner, patient = result, True

    async def _at(self, owner: Owner, *, patient: bool) -> int | Owner:
        """Follow the run at one place; return the exit code, or the place to continue."""
        here, next_owners = trio.CancelScope(), list[Owner]()
        place = read_endpoint(owner.url).url if isinstance(owner, ServedBy) else owner.place
        async with open_target(owner, patient=patient, on_change=self._connection) as target:
            self._run_id = await target.whole_id(self._run_id)
            where_it_is = f"at {place}" if isinstance(owner, ServedBy) else f"in {text_format.clean(str(place))}"
            self._screen.row(f"run {self._run_id} {where_it_is}", "dim")
            async with open_collapsing_nursery() as nursery:
                nursery.start_soon(self._tick)
                if isinstance(owner, ServedBy) and owner.database is not None:
                    nursery.start_soon(self._look_around, owner, next_owners, here)
                code: int | None = None
                with here:
                    code = await self._events(target.access)
                nursery.cancel_scope.cancel()
        return next_owners[0] if code is None else code

    async def _look_around(self, owner: ServedBy, next_owners: list[Owner], here: trio.CancelScope) -> None:
        """Search, while there is no connection, for another server, or for the end of the run in the file."""
        while True:
            await trio.sleep(LOOK)
            next_owner = await self._elsewhere(owner) if self._trouble else None
            if next_owner is not None:
                next_owners.append(next_owner)
                here.cancel()

    async def _elsewhere(self, owner: ServedBy) -> Owner | None:
        try:
            now = find(self._given)
        except gr.GreenroomError:
            return None  # a server that is starting, or one without a gateway
        if isinstance(now, ServedBy):
            return None if now == owner else now
        async with reading(now.place) as store:
            record = await store.load(self._run_id)
        return now if record is not None and record.row.status is gr.RunStatus.DONE else None

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

    # --- in a file ---------------------------------------------------------------------------------------------------

    async def _stored(self, database: Path) -> int:
        """Show the stored events of a run without an owner."""
        async with reading(database) as store:
            record = await record_of(store, self._run_id)
            self._run_id = record.info.run_id
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
        waiting = record.row.status is gr.RunStatus.WAITING
        if waiting:
            self._feed_command()
        self._screen.row()
        self._screen.row(f"No process works on the run now; its stage is {record.row.stage.value}.", "warn")
        self._screen.row(f"continue with:  {again}")
        return self._told("waiting" if waiting else "interrupted", exits.WAITING, resume=again)

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

    def _told(self, status: str, code: int, /, **more: object) -> int:
        report = {"type": "outcome", "runId": self._run_id, "status": status, "exit": code}
        self._screen.outcome({**report, "after": self._timeline.last, **more})
        return code
