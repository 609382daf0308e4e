"""`greenroom runs` and `greenroom show`: read a database, also while another process uses it."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

import attrs
import trio

import greenroom as gr
from greenroom.actors.abc import Store
from greenroom.actors.contract.casing import wire_of
from greenroom.actors.contract.envelope import decode_event
from greenroom.actors.contract.rows import RunInfo, RunRecord
from greenroom.actors.contract.run_lists import RunFilters, RunQuery, RunSummary
from greenroom.actors.contract.secrets.redaction import Redactor
from greenroom.actors.contract.stepwise import drained
from greenroom.actors.run.view import view_steps
from greenroom.actors.runtime.listing import query_of, shown_page
from greenroom.actors.runtime.wait_reasons import stored_wait
from greenroom.actors.stores.sqlite.store import owner_of

from ..server.open_store import open_store
from ..terminal.open_screen import open_screen
from . import exits, places, run_report
from .hidden import hidden_values
from .places import Place

MANY: Final = 1000
"""Maximum number of runs that are counted when several ids have the given prefix."""


@asynccontextmanager
async def reading(place: Place) -> AsyncIterator[Store]:
    """Open a file read-only, or a shared store.

    Raises:
        StoreOpenError: The file or the store cannot be read.
    """
    store = gr.SQLiteStore(place, read_only=True) if isinstance(place, Path) else place.opened()
    async with open_store(store):
        yield store


async def newest_unfinished(place: Place, agent: str, command: str, *, workspace: str | None = None) -> str:
    """Return the id of the agent's newest unfinished run, in any workspace or in one; `command` starts such runs.

    Raises:
        UsageError: There is none.
        StoreOpenError: The database cannot be read.
    """
    async with reading(place) as store:
        for run_id, _ in reversed(await store.open_runs()):
            outline = await store.outline(run_id)
            if outline is None or outline.info.agent != agent:
                continue
            if workspace in (None, outline.info.workspace):
                return run_id
    raise gr.UsageError(f"no run of {agent!r} in {place} is unfinished; start one with greenroom {command}")


async def info_of(place: Place, prefix: str) -> RunInfo:
    """Return the constant facts of a run; the beginning of its id is sufficient.

    Raises:
        UsageError: Several ids have this prefix.
        UnknownRun: No id has this prefix.
        StoreOpenError: The database cannot be read.
    """
    async with reading(place) as store:
        return (await record_of(store, prefix)).info


async def record_of(store: Store, prefix: str, *, calls: Literal["step", "all"] = "step") -> RunRecord:
    """Return the rows of a run; the beginning of its id is sufficient.

    Raises:
        UsageError: Several ids have this prefix.
        UnknownRun: No id has this prefix.
    """
    record = await store.load(await whole_id(store, prefix), calls=calls)
    if record is None:
        raise gr.UnknownRun(prefix)
    return record


# --- runs ------------------------------------------------------------------------------------------------------------


def runs(args: argparse.Namespace) -> int:
    """List runs."""
    place, hidden = places.kept(args), hidden_values(args)
    filters = {name: value for name in RunFilters.__annotations__ if (value := getattr(args, name, None)) is not None}
    if args.status == gr.RunStatus.WAITING:
        filters.setdefault("order", "waiting_longest")
    redactor = Redactor(hidden)
    page = shown_page(trio.run(_page, place, query_of(**filters), redactor), redactor)
    screen = open_screen(machine=args.json, secrets=hidden)
    now = datetime.now(UTC)
    for summary in page.runs:
        last = summary is page.runs[-1] and page.cursor is not None
        screen.outcome(_plain(summary) | ({"cursor": page.cursor} if last else {}))
    for text, style in run_report.listing(page.runs, now, width=screen.width):
        screen.row(text, style)
    if page.cursor is not None:
        screen.row(f"more: the same with --cursor {page.cursor}", "dim")
    return exits.COMPLETED


async def _page(place: Place, query: RunQuery, redactor: Redactor) -> gr.RunPage:
    """Return a page with as many runs as asked for, if there are as many: a page of a search may be short."""
    async with reading(place) as store:
        page = await store.runs(query, shown=redactor.text)
        while page.cursor is not None and len(page.runs) < query.limit:
            rest = attrs.evolve(query, limit=query.limit - len(page.runs), cursor=page.cursor, counts=False)
            more = await store.runs(rest, shown=redactor.text)
            page = attrs.evolve(more, runs=page.runs + more.runs, counts=page.counts)
        return page


def _plain(summary: RunSummary) -> dict[str, Any]:
    return (
        wire_of(summary.info, ("run_id", "agent", "by"))
        | wire_of(summary, ("title", "status", "stage"))
        | wire_of(summary.info, ("created_at",))
        | wire_of(summary, ("ended_at", "waiting_since", "asked", "asked_count", "held"))
        | wire_of(summary.row, ("step", "last_sequence", "usage"))
        | wire_of(summary, ("pending", "queue", "owner", "dead"))
    )


# --- show ------------------------------------------------------------------------------------------------------------


def show(args: argparse.Namespace) -> int:
    """Show one run."""
    place, hidden = places.kept(args), hidden_values(args)
    report = trio.run(_report, place, args.run_id, Redactor(hidden))
    screen = open_screen(machine=args.json, secrets=hidden)
    screen.outcome(report.plain(events=args.events))
    report.tell(screen, now=datetime.now(UTC), events=args.events)
    return exits.COMPLETED


async def _report(place: Place, prefix: str, redactor: Redactor) -> run_report.RunReport:
    async with reading(place) as store:
        record = await record_of(store, prefix, calls="all")
        run_id, redactor = record.info.run_id, redactor.within(record.info.workspace)
        lines = (await store.summaries([run_id])).runs if store.shared else ()
        thread = tuple(await store.messages(record.info.thread_id))
        waits = stored_wait(record, await store.outline(run_id), datetime.now(UTC))
        view = drained(view_steps(record, thread, redactor, None, waits))
        owner = owner_of(place) if isinstance(place, Path) else None
        events = await _events(store, run_id)
        return run_report.RunReport(record, view, events, redactor, place, owner, lines[0] if lines else None)


async def whole_id(store: Store, prefix: str) -> str:
    """Return the id with this prefix; the given text itself if it is a complete id, or if no id has the prefix.

    Raises:
        UsageError: Several ids have this prefix.
    """
    if await store.outline(prefix) is not None:
        return prefix
    page = await store.runs(RunQuery(prefix=prefix, limit=MANY))
    names = [summary.info.run_id for summary in page.runs]
    return only(names, prefix) if names else prefix


def only(candidates: Sequence[str], prefix: str) -> str:
    """Return the only id of those with the prefix.

    Raises:
        UsageError: There are several.
        UnknownRun: There is none.
    """
    if not candidates:
        raise gr.UnknownRun(prefix)
    if len(candidates) > 1:
        count = "Many" if len(candidates) >= MANY else len(candidates)
        examples = f"{candidates[0]} and {candidates[1]}"
        raise gr.UsageError(f"{count} runs begin with {prefix!r}, such as {examples}; write more of it")
    return candidates[0]


async def _events(store: Store, run_id: str) -> tuple[gr.Event, ...]:
    events: list[gr.Event] = []
    frames: Sequence[bytes] = await store.events(run_id)
    while frames:
        events += map(decode_event, frames)
        frames = await store.events(run_id, after=len(events))
    return tuple(events)
