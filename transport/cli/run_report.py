"""The reports about runs: a list of runs, and the history of one run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final

import attrs

import greenroom as gr
from greenroom.actors.contract import casing
from greenroom.actors.contract.rows import RunInfo, RunRecord
from greenroom.actors.contract.run_lists import RunSummary
from greenroom.actors.contract.secrets.redaction import Redactor
from greenroom.actors.engine.initial_row import shown_workspace
from greenroom.actors.run.view import RunView
from greenroom.actors.stores.sqlite.store import Owner

from ..demo.census import KEY as DEMO
from ..terminal import text_format
from ..terminal.screen import Screen, Style, wire
from ..terminal.ticket_text import EXPIRIES, LIVE, NO_WORDS, Row, details
from ..terminal.timeline import Timeline
from . import paths
from .outcome_output import plain_ticket, shown_output
from .places import Place, SharedStore, options

_STYLES: Final[dict[gr.Stage, Style]] = {
    gr.Stage.COMPLETED: "good",
    gr.Stage.FAILED: "bad",
    gr.Stage.CANCELLED: "dim",
    gr.Stage.NEEDS_APPROVAL: "warn",
}


def listing(runs: Sequence[RunSummary], now: datetime, *, width: int | None = None) -> Iterator[Row]:
    """Yield a list of runs with a head: one line per run, and one for its open ticket.

    `width` is that of the terminal.
    """
    if not runs:
        yield "no runs", "dim"
        return
    longest = max(len(summary.info.run_id) for summary in runs)
    agents = max(5, *(text_format.columns(text_format.one_line(summary.info.agent, 24)) for summary in runs))
    head = f"{'run':<{longest}}  {'agent':<{agents}}  {'stage':<14}  {'started':<14}  "
    narrow = width is not None and width < len(head) + 20
    yield (f"{'run':<{longest}}  stage" if narrow else f"{head}title"), "dim"
    for summary in runs:
        info, row = summary.info, summary.row
        style = _STYLES.get(row.stage, "")
        ago, title = _ago(info.created_at, now), text_format.one_line(summary.title, 80)
        if narrow:
            yield f"{info.run_id:<{longest}}  {row.stage.value}, {ago}", style
            yield text_format.cut(f"  {title}", width or 80), style
        else:
            agent = text_format.padded(text_format.one_line(info.agent, 24), agents)
            line = f"{info.run_id:<{longest}}  {agent}  {row.stage.value:<14}  {ago:<14}  {title}"
            yield (line if width is None else text_format.cut(line, width)), style
        yield from _asks(summary, now)


def _asks(summary: RunSummary, now: datetime) -> Iterator[Row]:
    """Yield what the run asks and waits for."""
    if summary.dead is not None:
        yield f"    dead letter: {text_format.one_line(summary.dead, 200)}", "bad"
    if summary.held:
        yield "    waits until another run has left its thread", "dim"
    if not summary.asked:
        return
    first = summary.asked[0]
    parts = [f"{_REASONS[first.reason]}: {text_format.subject(first.tool, 40)}"]
    parts += [text_format.one_line(first.message, 120)] if first.message and first.message != NO_WORDS else []
    parts.append(f"for {text_format.duration(max(1.0, (now - first.requested_at).total_seconds()))}")
    parts += [LIVE] if first.live else []
    if first.expires_at is not None:
        parts.append(f"until {first.expires_at:%Y-%m-%d %H:%M:%S} UTC, then {EXPIRIES[first.on_expiry]}")
    if first.reviewers:
        parts.append(f"decided by {text_format.one_line(' or '.join(first.reviewers), 80)}")
    if summary.asked_count > 1:
        parts.append(f"and {summary.asked_count - 1:,} more")
    yield f"    {' · '.join(parts)}", "warn"


_REASONS: Final = {
    "tool_permission": "asks for approval",
    "user_input": "asks a question",
    "outcome_unknown": "asks whether it took effect",
    "manual_pause": "is paused",
    "external_event": "is held",
    "child_approval": "asks in a child run",
}


def _ago(moment: datetime, now: datetime) -> str:
    return f"{text_format.duration(max(1.0, (now - moment).total_seconds()))} ago"


@attrs.define(eq=False, repr=False)
class RunReport:
    """A report of one run of a place; `owner` has a file open, `summary` is the run's line in a shared store."""

    _record: RunRecord
    _view: RunView
    _events: Sequence[gr.Event]
    _redactor: Redactor
    _place: Place
    _owner: Owner | None
    _summary: RunSummary | None

    def __repr__(self) -> str:
        return f"<RunReport of {self._view.run_id}>"

    def plain(self, *, events: bool) -> dict[str, Any]:
        """Return the report for programs: one object."""
        view, info = self._view, self._record.info
        waits = view.waiting_for
        data: dict[str, Any] = {
            **casing.wire_of(view, ("run_id", "agent", "active_agent", "by", "title", "status", "stage")),
            "createdAt": info.created_at,
            "workspace": shown_workspace(info.workspace),
            **casing.wire_of(view, ("step", "last_sequence", "usage")),
            "calls": dict(view.calls),
            "tickets": [plain_ticket(ticket) for ticket in view.tickets],
            "tasks": {name: casing.wire(task) for name, task in view.tasks.items()},
            "pending": view.pending,
            "waitingFor": None if waits is None else casing.wire_of(waits, ("kind", "detail", "run_id")),
            "termination": casing.wire(view.termination),
            "output": self._redactor.value(self._record.row.output),
            "resume": None if view.status is gr.RunStatus.DONE else how_to_resume(info, self._place),
        }
        if self._summary is not None:
            data |= casing.wire_of(self._summary, ("queue", "owner", "dead"))
        return data | ({"events": [wire(event) for event in self._events]} if events else {})

    def tell(self, screen: Screen, *, now: datetime, events: bool) -> None:
        """Print the report for people: run, history, open tickets, end, next command."""
        self._head(screen, now)
        timeline = Timeline()
        for event in self._events:
            if events:
                payload, time = text_format.arguments(event.payload, 160), f"{event.timestamp:%H:%M:%S.%f}"[:-3]
                screen.row(f"{event.sequence:>5}  {time}  {event.type:<24}  {payload}")
                continue
            for line in timeline.tell(event):
                screen.line(line)
        self._open_tickets(screen)
        self._end(screen)

    def _head(self, screen: Screen, now: datetime) -> None:
        view, info = self._view, self._record.info
        agents = dict.fromkeys((view.agent, view.active_agent))
        names = " → ".join(map(text_format.clean, agents))
        screen.row(f"{view.run_id}  {names}  {view.stage.value}", "strong")
        workspace, by = shown_workspace(info.workspace), text_format.clean(view.by)
        origin = f"started {info.created_at:%Y-%m-%d %H:%M:%S} UTC ({_ago(info.created_at, now)}) by {by}"
        screen.row(f"{origin} in {text_format.clean(workspace)}" if workspace else origin, "dim")
        first = self._events[0].payload if self._events else {}
        screen.row(f"asked: {text_format.one_line(first.get('input', ''), 500)}")
        for part in first.get("attachments", ()):
            screen.row(f"with:  {text_format.attached(part)}")
        usage = view.usage
        counts = [
            text_format.plural(view.step, "step"),
            text_format.plural(len(view.calls), "call"),
            text_format.plural(view.last_sequence, "event"),
            text_format.plural(usage.requests, "model request"),
            text_format.tokens(usage) + (" as far as reported" if usage.incomplete else ""),
        ]
        screen.row(" · ".join(counts), "dim")
        screen.row()

    def _open_tickets(self, screen: Screen) -> None:
        for ticket in self._view.tickets:
            about = f"{text_format.subject(ticket.tool)} ({ticket.reason}, {ticket.ticket_id})"
            screen.row()
            screen.row(f"waits for a decision: {about}", "warn")
            for text, style in details(ticket, whole=True):
                screen.row(text, style)

    def _end(self, screen: Screen) -> None:
        view, row = self._view, self._record.row
        screen.row()
        if view.termination is None:
            waits = view.waiting_for
            if waits is not None and waits.kind == "thread":
                front = f": {waits.run_id}" if waits.run_id else ""
                screen.row(f"{waits.detail}{front}; this one begins when that one is done", "warn")
            if waits is not None and waits.kind == "queue":
                screen.row(text_format.clean(waits.detail), "warn")
            if view.pending:
                screen.row(f"{text_format.plural(view.pending, 'accepted command')} not acted on yet", "dim")
            screen.row(self._further())
            return
        end = view.termination
        text = " · ".join(text_format.clean(part) for part in (end.code, end.detail, end.by and f"by {end.by}") if part)
        screen.row(f"{view.stage.value} ({end.kind.value}){f': {text}' if text else ''}", _STYLES.get(view.stage, ""))
        if row.output is not None:
            screen.row(shown_output(self._redactor.value(row.output)))

    def _further(self) -> str:
        """Return the next command: while a process owns the run, no other process may resume it."""
        summary, owner = self._summary, self._owner
        if summary is not None and summary.dead is not None:
            why = text_format.one_line(self._redactor.text(summary.dead), 300)
            return f"a dead letter ({why}): {self._command('runs', 'revive')} lets it be claimed again"
        if summary is not None:  # any process may work on the run of a shared store
            who = "no process works on it now" if summary.owner is None else f"process {summary.owner} works on it"
            return f"{who}; follow it: {self._command('follow')}"
        if owner is None:
            return f"continue with: {how_to_resume(self._record.info, self._place)}"
        if owner.url is None:
            who = f"process {owner.pid}" if owner.pid else "another process"
            return f"{who} has it open: what it asks is answered there"
        return f"follow it: {self._command('follow')}"

    def _command(self, *words: str) -> str:
        return paths.typed(*words, self._view.run_id, *options(self._place))


def how_to_resume(info: RunInfo, place: Place) -> str:
    """Return the command that resumes a run, or starts a process that works on it."""
    if isinstance(place, SharedStore):
        return paths.typed("serve", "FILE.py:AGENT", *options(place))
    if info.agent == DEMO and info.workspace is not None:
        return paths.typed("demo", "--resume", info.run_id, *options(place))
    return paths.typed("run", "FILE.py:AGENT", "--resume", info.run_id, *options(place))
