"""`greenroom runs` and `greenroom show`: looking at a database, also while another process works in it."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import attrs
import trio

import greenroom as gr
from greenroom.actors.abc import RunQuery, RunSummary, Store
from greenroom.actors.contract.decisions import InboxItem
from greenroom.actors.contract.envelope import decode_event
from greenroom.actors.contract.messages import Message
from greenroom.actors.contract.redaction import Redactor
from greenroom.actors.contract.rows import RunInfo, RunRecord
from greenroom.actors.stores.sqlite import owner_of
from greenroom.supervision.nursery import open_collapsing_nursery
from greenroom.transport.terminal.screen import open_screen

from . import exits, places, story

MANY: Final = 1000
"""Runs that are counted when several begin with what was written."""


class _Deaf:
    """Hooks of a store that only reads: nothing is ever posted."""

    def posted(self, run_id: str, item: InboxItem) -> None: ...

    def committed(self, run_id: str, last: int, frames: Sequence[bytes]) -> None: ...

    def unavailable(self, error: Exception | None) -> None: ...


@asynccontextmanager
async def reading(database: Path) -> AsyncIterator[gr.SQLiteStore]:
    """The database, to look at only.

    Raises:
        StoreOpenError: it can not be read.
    """
    store = gr.SQLiteStore(database, read_only=True)
    async with open_collapsing_nursery() as nursery:
        await nursery.start(store.run, _Deaf())
        yield store
        nursery.cancel_scope.cancel()


async def newest_unfinished(database: Path, agent: str) -> str:
    """The id of the agent's newest run that is not done.

    Raises:
        UsageError: there is none. StoreOpenError: the database can not be read.
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


async def info_of(database: Path, wanted: str) -> RunInfo:
    """What a run was started with; the beginning of its id is enough.

    Raises:
        UsageError: several runs begin like this. UnknownRun: none does. StoreOpenError: the database can not be read.
    """
    async with reading(database) as store:
        record = await store.load(await whole_id(store, wanted))
    if record is None:
        raise gr.UnknownRun(wanted)
    return record.info


# --- runs ------------------------------------------------------------------------------------------------------------


def runs(given: argparse.Namespace) -> int:
    """List runs.

    Raises:
        GreenroomError: it can not be done; the message says why.
    """
    database = places.database(given.db)
    status = None if given.status is None else gr.RunStatus(given.status)
    query = RunQuery(status=status, agent=given.agent, limit=given.limit)
    page = trio.run(_page, database, query)
    screen = open_screen(machine=given.json)
    now = datetime.now(UTC)
    for summary in page.runs:
        screen.outcome(_plain(summary))
    for text, style in story.listing(page.runs, now, more=page.cursor is not None):
        screen.row(text, style)
    return exits.COMPLETED


async def _page(database: Path, query: RunQuery) -> gr.RunPage:
    async with reading(database) as store:
        return await store.runs(query)


def _plain(summary: RunSummary) -> dict[str, Any]:
    info, row = summary.info, summary.row
    return {
        "runId": info.run_id,
        "agent": info.agent,
        "status": row.status,
        "stage": row.stage,
        "createdAt": info.created_at,
        "step": row.step,
        "lastSequence": row.last_sequence,
        "usage": attrs.asdict(row.usage),
        "pending": summary.pending,
    }


# --- show ------------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Known:
    """All that a database knows of a run."""

    record: RunRecord
    thread: tuple[Message, ...]
    events: tuple[gr.Event, ...]


def show(given: argparse.Namespace) -> int:
    """Tell about one run.

    Raises:
        GreenroomError: it can not be done; the message says why.
    """
    database = places.database(given.db)
    known = trio.run(_known, database, given.run_id)
    screen = open_screen(machine=given.json)
    owner = owner_of(database)
    told = story.Story(known.record, known.thread, known.events, Redactor(), database=database, owner=owner)
    screen.outcome(told.plain(events=given.events))
    told.tell(screen, now=datetime.now(UTC), events=given.events)
    return exits.COMPLETED


async def _known(database: Path, wanted: str) -> Known:
    async with reading(database) as store:
        run_id = await whole_id(store, wanted)
        record = await store.load(run_id, calls="all")
        if record is None:
            raise gr.UnknownRun(wanted)
        thread = tuple(await store.messages(record.info.thread_id))
        return Known(record=record, thread=thread, events=await _events(store, run_id))


async def whole_id(store: Store, wanted: str) -> str:
    """The id that begins like this; the wanted one itself if it is whole, or if none does.

    Raises:
        UsageError: several runs begin like this.
    """
    if await store.load(wanted) is not None:
        return wanted
    page = await store.runs(RunQuery(prefix=wanted, limit=MANY))
    found = [summary.info.run_id for summary in page.runs]
    return only(found, wanted) if found else wanted


def only(found: Sequence[str], wanted: str) -> str:
    """The one id of those that begin like this.

    Raises:
        UsageError: there are several. UnknownRun: there is none.
    """
    if not found:
        raise gr.UnknownRun(wanted)
    if len(found) > 1:
        count = "Many" if len(found) >= MANY else len(found)
        raise gr.UsageError(f"{count} runs begin with {wanted!r}, such as {found[0]} and {found[1]}; write more of it")
    return found[0]


async def _events(store: gr.SQLiteStore, run_id: str) -> tuple[gr.Event, ...]:
    found: list[gr.Event] = []
    frames: Sequence[bytes] = await store.events(run_id)
    while frames:
        found += map(decode_event, frames)
        frames = await store.events(run_id, after=len(found))
    return tuple(found)
