"""`greenroom runs` and `greenroom show`: read a database, also while another process uses it."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import trio

import greenroom as gr
from greenroom.actors.abc import Store
from greenroom.actors.contract.casing import wire
from greenroom.actors.contract.envelope import decode_event
from greenroom.actors.contract.messages import Message
from greenroom.actors.contract.rows import RunInfo, RunRecord
from greenroom.actors.contract.run_lists import RunQuery, RunSummary, listed
from greenroom.actors.contract.secrets.redaction import Redactor
from greenroom.actors.runtime.listing import shown_page
from greenroom.actors.runtime.wait_reasons import stored_wait
from greenroom.actors.store_events import ignore
from greenroom.actors.stores.sqlite.store import owner_of
from greenroom.supervision.nursery import open_collapsing_nursery

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
    async with opened(store):
        yield store


@asynccontextmanager
async def opened(store: Store) -> AsyncIterator[Store]:
    """Open a store without a runtime for the block.

    Raises:
        StoreOpenError: The store cannot be opened.
    """
    ready = trio.Event()

    class StoreStarted:
        def started(self, _: object = None) -> None:
            ready.set()

    # not `nursery.start`, which makes an internal error of Ctrl-C and a store that fails at the same time
    async with open_collapsing_nursery() as nursery:
        nursery.start_soon(partial(store.run, ignore, task_status=StoreStarted()))
        await ready.wait()
        yield store
        nursery.cancel_scope.cancel()


async def newest_unfinished(database: Path, agent: str) -> str:
    """Return the id of the agent's newest unfinished run.

    Raises:
        UsageError: There is none.
        StoreOpenError: The database cannot be read.
    """
    async with reading(database) as store:
        cursor = None
        while True:
            page = await store.runs(RunQuery(agent=agent, limit=1000, cursor=cursor))
            for summary in page.runs:
                if summary.row.status is not gr.RunStatus.DONE:
                    return summary.info.run_id
            cursor = page.cursor
            if cursor is None:
                raise gr.UsageError(f"no run of {agent!r} in {database} is unfinished; start one with greenroom demo")


async def info_of(place: Place, wanted: str) -> RunInfo:
    """Return the constant facts of a run; the beginning of its id is sufficient.

    Raises:
        UsageError: Several ids have this prefix.
        UnknownRun: No id has this prefix.
        StoreOpenError: The database cannot be read.
    """
    async with reading(place) as store:
        record = await store.load(await whole_id(store, wanted))
    if record is None:
        raise gr.UnknownRun(wanted)
    return record.info


# --- runs ------------------------------------------------------------------------------------------------------------


def runs(given: argparse.Namespace) -> int:
    """List runs.

    Raises:
        GreenroomError: The command failed; the message says why.
    """
    place, hidden = places.kept(given), hidden_values(given)
    status = None if given.status is None else listed(given.status)
    waiting = status is gr.RunStatus.WAITING
    query = RunQuery(
        status=status,
        agent=given.agent,
        by=given.by,
        text=given.text,
        since=given.since,
        until=given.until,
        order=given.order or ("waiting_longest" if waiting else "newest"),
        limit=given.limit,
        cursor=given.cursor,
    )
    page = shown_page(trio.run(_page, place, query), Redactor(hidden))
    screen = open_screen(machine=given.json, secrets=hidden)
    now = datetime.now(UTC)
    for summary in page.runs:
        last = summary is page.runs[-1] and page.cursor is not None
        screen.outcome(_plain(summary) | ({"cursor": page.cursor} if last else {}))
    for text, style in run_report.listing(page.runs, now, width=screen.width):
        screen.row(text, style)
    if page.cursor is not None:
        screen.row(f"more: the same with --cursor {page.cursor}", "dim")
    return exits.COMPLETED


async def _page(place: Place, query: RunQuery) -> gr.RunPage:
    async with reading(place) as store:
        return await store.runs(query)


def _plain(summary: RunSummary) -> dict[str, Any]:
    info, row = summary.info, summary.row
    return {
        "runId": info.run_id,
        "agent": info.agent,
        "by": info.by,
        "title": summary.title,
        "status": row.status,
        "stage": row.stage,
        "createdAt": info.created_at,
        "endedAt": summary.ended_at,
        "waitingSince": summary.waiting_since,
        "asked": wire(summary.asked),
        "askedCount": summary.asked_count,
        "held": summary.held,
        "step": row.step,
        "lastSequence": row.last_sequence,
        "usage": wire(row.usage),
        "pending": summary.pending,
        "queue": summary.queue,
        "owner": summary.owner,
        "dead": summary.dead,
    }


# --- show ------------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class RunSnapshot:
    """All stored data of a run."""

    record: RunRecord
    thread: tuple[Message, ...]
    events: tuple[gr.Event, ...]
    waiting_for: gr.WaitingFor | None = None
    summary: RunSummary | None = None


def show(given: argparse.Namespace) -> int:
    """Show one run.

    Raises:
        GreenroomError: The command failed; the message says why.
    """
    place = places.kept(given)
    redactor = Redactor(hidden_values(given))
    known = trio.run(_known, place, given.run_id)
    screen = open_screen(machine=given.json, secrets=hidden_values(given))
    report = run_report.RunReport(
        known.record,
        known.thread,
        known.events,
        redactor,
        place=place,
        owner=owner_of(place) if isinstance(place, Path) else None,
        summary=known.summary,
        waiting_for=known.waiting_for,
    )
    screen.outcome(report.plain(events=given.events))
    report.tell(screen, now=datetime.now(UTC), events=given.events)
    return exits.COMPLETED


async def _known(place: Place, wanted: str) -> RunSnapshot:
    async with reading(place) as store:
        run_id = await whole_id(store, wanted)
        record = await store.load(run_id, calls="all")
        if record is None:
            raise gr.UnknownRun(wanted)
        thread = tuple(await store.messages(record.info.thread_id))
        waits = stored_wait(record, await store.outline(run_id), datetime.now(UTC))
        lines = (await store.summaries([run_id])).runs if store.shared else ()
        return RunSnapshot(
            record=record,
            thread=thread,
            events=await _events(store, run_id),
            waiting_for=waits,
            summary=lines[0] if lines else None,
        )


async def whole_id(store: Store, wanted: str) -> str:
    """Return the id with this prefix; the given text itself if it is a complete id, or if no id has the prefix.

    Raises:
        UsageError: Several ids have this prefix.
    """
    if await store.outline(wanted) is not None:
        return wanted
    page = await store.runs(RunQuery(prefix=wanted, limit=MANY))
    names = [summary.info.run_id for summary in page.runs]
    return only(names, wanted) if names else wanted


def only(candidates: Sequence[str], wanted: str) -> str:
    """Return the only id of those with the prefix.

    Raises:
        UsageError: There are several.
        UnknownRun: There is none.
    """
    if not candidates:
        raise gr.UnknownRun(wanted)
    if len(candidates) > 1:
        count = "Many" if len(candidates) >= MANY else len(candidates)
        raise gr.UsageError(
            f"{count} runs begin with {wanted!r}, such as {candidates[0]} and {candidates[1]}; write more of it"
        )
    return candidates[0]


async def _events(store: Store, run_id: str) -> tuple[gr.Event, ...]:
    events: list[gr.Event] = []
    frames: Sequence[bytes] = await store.events(run_id)
    while frames:
        events += map(decode_event, frames)
        frames = await store.events(run_id, after=len(events))
    return tuple(events)
