"""The reads of a store whose rows are in tables in memory."""

from __future__ import annotations

import abc
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from operator import itemgetter
from typing import Literal

from typing_extensions import override

from ...abc import RunStore, ValueStore
from ...contract.decisions import InboxItem, Ticket
from ...contract.lifecycle import STATUS, RunStatus, Stage
from ...contract.messages import Message
from ...contract.recording import RecordDelta
from ...contract.rows import RunOutline, RunRecord, ThreadInfo
from ...contract.run_lists import Backlog, EndedRuns, RunPage, RunQuery, code_of
from ...contract.state import StateWrite
from ...contract.threads.lists import HistoryPage, HistoryQuery, ThreadPage, ThreadQuery
from ...contract.ticket_lists import ListedTicket, TicketPage, TicketQuery
from ...errors import UnknownRun
from ...stored_values import StoredValue, check_page
from ..common import _paging, _thread_pages
from ..common._run_pages import HOUR, Line, ended_of, page_of
from ..common._text_search import Shown, TextSearch
from ..common._ticket_pages import line_of
from ..common._timestamps import milliseconds
from ._rows import RunTables
from ._tables import MemoryTables
from ._threads import history_of, thread_lines


class TableReads(RunStore, ValueStore):
    """The methods of `RunStore` and `ValueStore` that read, and the timers."""

    @abc.abstractmethod
    async def _read(self) -> MemoryTables:
        """Return the tables, for one synchronous read.

        Raises:
            StoreDown: the store is not open.
        """

    @override
    async def open_runs(self) -> Sequence[tuple[str, bool]]:
        ledger = await self._read()
        return tuple((name, run.held) for name, run in ledger.runs.items() if run.ended is None)

    @override
    async def load(self, run_id: str, *, calls: Literal["step", "all"] = "step") -> RunRecord | None:
        run = (await self._read()).runs.get(run_id)
        if run is None:
            return None
        rows = [call for call in run.calls.values() if calls == "all" or call.step == run.row.step]
        rows.sort(key=lambda call: (call.step, call.index))
        call_ids = {call.call_id for call in rows}
        return RunRecord(
            info=run.info,
            row=run.row,
            calls=tuple(rows),
            tickets=tuple(
                ticket
                for ticket in run.tickets.values()
                if calls == "all" or ticket.status == "open" or ticket.call_id in call_ids
            ),
            inbox=run.unconsumed(),
            call_ids=frozenset(run.calls),
            state=run.state_now(),
        )

    @override
    async def outline(self, run_id: str) -> RunOutline | None:
        ledger = await self._read()
        run = ledger.runs.get(run_id)
        return None if run is None else run.outline(ledger.place(run))

    @override
    async def ticket(self, run_id: str, target: str) -> Ticket | None:
        run = (await self._read()).runs.get(run_id)
        return None if run is None else run.ticket(target)

    @override
    async def thread(self, thread_id: str) -> ThreadInfo | None:
        return (await self._read()).thread(thread_id)

    @override
    async def state_at(self, run_id: str, step: int) -> Sequence[StateWrite]:
        run = (await self._read()).runs.get(run_id)
        if run is None:
            raise UnknownRun(run_id)
        return run.state_at(step)

    @override
    async def events(
        self, run_id: str, *, after: int = 0, limit: int = 1000, max_bytes: int | None = None
    ) -> Sequence[bytes]:
        run = (await self._read()).runs.get(run_id)
        return () if run is None else _paging.page(run.frames[after : after + limit], max_bytes)

    @override
    async def commands(self, run_id: str) -> Sequence[InboxItem]:
        run = (await self._read()).runs.get(run_id)
        return () if run is None else run.journal(0)

    @override
    async def record(self, run_id: str, *, after: int = 0, limit: int = 1000) -> Sequence[RecordDelta]:
        run = (await self._read()).runs.get(run_id)
        return () if run is None else tuple(run.record[after : after + limit])

    @override
    async def messages(self, thread_id: str) -> Sequence[Message]:
        thread = (await self._read()).threads.get(thread_id)
        return () if thread is None else tuple(thread.messages)

    @override
    async def history(self, thread_id: str, query: HistoryQuery) -> HistoryPage | None:
        query.check()
        ledger = await self._read()
        thread = ledger.threads.get(thread_id)
        return None if thread is None else history_of(ledger, thread, query)

    @override
    async def threads(self, query: ThreadQuery) -> ThreadPage:
        behind = _paging.thread_start(query)
        return _thread_pages.page_of(query, thread_lines(await self._read(), query, behind))

    @override
    async def parts(self, thread_id: str, digests: Sequence[str]) -> Mapping[str, bytes]:
        thread = (await self._read()).threads.get(thread_id)
        return {} if thread is None else {name: thread.parts[name] for name in digests if name in thread.parts}

    @override
    async def values(self, space: str, *, after: str = "", limit: int = 100) -> Sequence[StoredValue]:
        check_page(space, after, limit)
        return (await self._read()).values.page(space, after, limit)

    @override
    async def runs(self, query: RunQuery, *, among: Sequence[str] | None = None, shown: Shown | None = None) -> RunPage:
        behind = _paging.start(query)
        ledger = await self._read()
        search = TextSearch.of(query.text, shown)
        lines = _listed(ledger, query, behind, None if among is None else frozenset(among))
        counts = ledger.counts() if query.counts else None
        return page_of(query, (_line(position, run, search) for position, run in lines), counts)

    @override
    async def throughput(self, since: datetime) -> Sequence[EndedRuns]:
        least = milliseconds(since)
        runs = (await self._read()).runs.values()
        ends = ((at, run.row) for run in runs if (at := run.ended) is not None and at >= least)
        counts = Counter((at // HOUR, row.stage.value, code_of(row) is not None) for at, row in ends)
        return ended_of((*key, count) for key, count in counts.items())

    @override
    async def backlog(self) -> Backlog:
        ledger = await self._read()
        runs = ledger.open.values()
        times = [ticket.requested_at for run in runs for ticket in run.open_tickets.values()]
        return Backlog(
            runs=ledger.counts(),
            threads=len({run.info.thread_id for run in runs}),
            tickets=len(times),
            oldest_ticket=min(times, default=None),
        )

    @override
    async def summaries(self, run_ids: Sequence[str], *, counts: bool = False) -> RunPage:
        ledger = await self._read()
        tables = (ledger.runs.get(name) for name in run_ids)
        lines = tuple(run.summary() for run in tables if run is not None)
        return RunPage(runs=lines, cursor=None, counts=ledger.counts() if counts else None)

    @override
    async def tickets(self, query: TicketQuery) -> TicketPage:
        behind = _paging.start_tickets(query)
        lines = list(islice(_open_tickets(await self._read(), query, behind), query.limit + 1))
        page = tuple(lines[: query.limit])
        return TicketPage(tickets=page, cursor=page[-1].cursor if len(lines) > len(page) else None)

    async def next_due(self) -> datetime | None:
        """Return when the earliest timer fires. See `Claims.next_due`."""
        ledger = await self._read()
        return min((moment for moment, _ in ledger.timers()), default=None)


def _open_tickets(ledger: MemoryTables, query: TicketQuery, behind: _paging.Position | None) -> Iterator[ListedTicket]:
    """The tickets of a list, in its order, behind a position."""
    runs = ledger.open.values() if query.run_ids is None else map(ledger.open.get, dict.fromkeys(query.run_ids))
    lines = [
        ((milliseconds(ticket.requested_at), run.ticket_numbers[ticket.ticket_id]), run.info, ticket)
        for run in runs
        if run is not None
        for ticket in run.open_tickets.values()
        if query.matches(run.info, ticket)
    ]
    newest = query.order == "newest"
    lines.sort(key=itemgetter(0), reverse=newest)
    for position, info, ticket in lines:
        if behind is None or (position < behind if newest else position > behind):
            yield line_of(query, info, ticket, position)


def _line(position: _paging.Position, run: RunTables, search: TextSearch | None) -> Line:
    """Return a run's line, or None without the text."""
    if search is None:
        return position, run.summary(), 0
    first, last = run.frames[0], run.frames[-1] if run.ended is not None else None
    is_hit = search.finds(run.info.run_id, first, last)
    return position, run.summary() if is_hit else None, len(first) + len(last or b"")


def _listed(
    ledger: MemoryTables, query: RunQuery, behind: _paging.Position | None, among: frozenset[str] | None
) -> Iterator[tuple[_paging.Position, RunTables]]:
    """The runs of a list, in its order, behind a position, whatever their text."""
    longest = query.order == "waiting_longest"
    status = STATUS[query.status] if isinstance(query.status, Stage) else query.status
    pool = ledger.runs if status in (None, RunStatus.DONE) and not longest else ledger.open
    runs: Iterable[RunTables] = reversed(pool.values())
    if longest:
        runs = sorted(pool.values(), key=lambda run: (run.since or 0, run.number))
    for run in runs:
        position = (run.since or 0, run.number) if longest else (0, run.number)
        if behind is not None and (position <= behind if longest else run.number >= behind[1]):
            continue
        if status is not None and run.row.status is not status:
            continue  # the cheapest filter first: only the remaining runs become lines
        if query.tool is not None and query.tool not in run.tools:
            continue
        if (among is None or run.info.run_id in among) and query.matches(run.summary()):
            yield position, run
