"""The last way to end a run: one terminal commit that carries nothing but the end.

Theory of operation. The ordinary ways go through the machine, which loads the run's rows and writes everything that the
run still has to write: messages, calls and tickets. If the rows are unreadable, or that commit fails, the run could
neither continue nor end, and its thread would be held without bound. This commit needs only the run's outline and
appends nothing to the thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from ..contract import events as ev
from ..contract.commits import Commit, EventDraft
from ..contract.decisions import Command
from ..contract.lifecycle import TERMINATION_STAGE, Termination, TerminationKind
from ..contract.phases import RunPosition
from ..contract.rows import RunOutline, RunRow
from .state import ENGINE
from .termination import ending_event


def termination_of(commands: Iterable[Command], why: str) -> Termination:
    """Return cancelled if an unread cancel is among the commands, else failed(internal_error)."""
    for command in commands:
        if command.kind == "cancel":
            return Termination(kind=TerminationKind.CANCELLED, detail=command.reason, by=command.by)
    return Termination(kind=TerminationKind.ERROR, code="internal_error", detail=why)


def forced_commit(outline: RunOutline, commands: Iterable[Command], why: str, now: datetime) -> Commit:
    """Return the commit that ends a run regardless of the state of its rows.

    Args:
        outline: The outline of the run as it is now.
        commands: accepted and not consumed, as far as readable. Decisions and pauses among them are refused with an
            event.
        why: for people; the detail of failed(internal_error).
        now: UTC.
    """
    commands = tuple(commands)
    termination = termination_of(commands, why)
    events = [
        EventDraft(
            "run.decision.refused",
            ev.DecisionRefused(
                command_id=command.command_id,
                target=command.command_id if command.decision is None else command.decision.target,
                code="run_done",
                detail="the run could not be worked on",
            ),
        )
        for command in commands
        if command.kind in ("decide", "pause")
    ]
    last = outline.last_sequence + len(events) + 1
    old = outline.row or RunRow(step=outline.step)  # an unreadable row may be the reason why the run was given up
    common: dict[str, Any] = {
        "source": outline.stage,
        "to": TERMINATION_STAGE[termination.kind],
        "by": termination.by or ENGINE,
        "termination": termination.kind,
        "usage": old.usage,
        "active_seconds": old.counters.active_ms / 1000,
        "steps": old.counters.rounds,
        "stubborn": old.stubborn,
        "last_sequence": last,
    }
    events.append(ending_event(termination, common))
    row = replace(
        old,
        stage=TERMINATION_STAGE[termination.kind],
        position=RunPosition.ENDED,
        last_sequence=last,
        inbox=outline.posted,
        termination=termination,
        output=None,
        draft=None,
        pending_input=(),
        unread_input_by=None,
        early={},
        inference=None,
        open_guardrails=None,
        tasks=(),
        pause=None,
        run_tickets=(),
        mirrored=0,
        nested=0,
        mirrors=(),
        next_due=None,
    )
    return Commit(
        run_id=outline.info.run_id,
        expected_last=outline.last_sequence,
        at=now,
        events=tuple(events),
        row=row,
        consumed=outline.posted,
    )
