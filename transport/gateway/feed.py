"""The live lists of runs and of open tickets.

Changes are collected for a moment, read once for all watches, and sent to them.

A change only marks its run: a run that changes a hundred times in a round is read once. A watch receives whole rows,
and an unwritten row is replaced by the next row of the same run. A watch with too many unwritten bytes, or a round with
too many changes, falls back to the first page of the list. Without watches no run is marked.

Changes by other processes to the runs of a shared store mark no run here. While there are watches, the runtime asks for
a sweep every few seconds, and the feed compares the first page of each list with the rows that it has sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import attrs
import trio

import greenroom as gr
from greenroom.actors.contract.envelope import event_type
from greenroom.actors.contract.lifecycle import RunStatus
from greenroom.actors.contract.ticket_lists import LARGEST_PAGE, ListedTicket, TicketQuery

from ..protocol import down
from ..protocol.codes import INTERNAL
from ..protocol.lines import Counts, ListedTicketLine, RunLine
from .access import Principal, SeesFailed, everything
from .listing import counted, row_of, visible_counts, visible_open, visible_page
from .ticket_listing import is_listed, visible_tickets
from .ticket_listing import row_of as ticket_row_of
from .watches import COUNTS, PAGE, ListWatch, Reason, Watcher

MOST: Final = 1_000
"""Maximum number of changed runs that a round sends one by one; beyond it each watch receives its first page again."""
AT_ONCE: Final = 100
"""Runs per read: a store's reader is occupied for this long."""
SHARE: Final = 9
"""The pause after a round, as a multiple of the round's duration: the feed uses at most a tenth of the time."""
RETRY: Final = 0.5
"""Seconds before a store that does not answer is retried."""
QUIET: Final = frozenset(
    {"run.message.delta", "run.reasoning.delta"}
    | {f"run.{kind}.{what}" for kind in ("tool", "task") for what in ("progress", "output.delta")}
)
"""Events that do not change a run's line in a list."""


class RunListFeed:
    """All watches of a gateway, and the one task that serves them while there are any."""

    def __init__(
        self,
        reader: gr.RunReader,
        watch_seconds: float,
        log_failure: Callable[[object, BaseException], None],
        *,
        shared: bool = False,
    ) -> None:
        """Collect changes for `watch_seconds`.

        `log_failure(what, error)` is called when a predicate of the server raises. `shared`: other processes change
        runs of the store, too.
        """
        self._reader = reader
        self._shared = shared
        self._compare = False
        self._watch_seconds = watch_seconds
        self._log_failure = log_failure
        self._watches: dict[ListWatch, None] = {}
        self._changed: dict[str, None] = {}
        self._flood = False
        self._lot = trio.lowlevel.ParkingLot()
        self._open: dict[str, dict[str, RunStatus]] = {}  # principal -> its visible, unfinished runs
        self._told: dict[Watcher, Counts] = {}
        self._end_calls: Callable[[], None] = lambda: None

    def __repr__(self) -> str:
        return f"<RunListFeed to {len(self._watches)} watches>"

    # --- watches
    # ---------------------------------------------------------------------------------------------------------

    def join(self, watch: ListWatch) -> None:
        """Add a watch; it begins with its first page."""
        if not self._watches:
            self._end_calls = self._reader.on_change(self.committed, self.swept)
        self._watches[watch] = None
        self.wake()

    def leave(self, watch: ListWatch) -> None:
        """Remove a watch; repeated calls have no effect."""
        self._watches.pop(watch, None)
        conversation = watch.conversation
        others = [other for other in self._watches if other.conversation is conversation]
        if not others:
            self._told.pop(conversation, None)
        elif watch.holds_counts and conversation in self._told:  # only one watch of a connection receives the counts
            others[0].put(COUNTS, down.CountsChanged(counts=self._told[conversation]))
        if not self._watches:
            self._end_calls()
            self._changed.clear()
            self._open.clear()
            self._flood = self._compare = False

    def wake(self) -> None:
        """Wake the feed's task."""
        self._lot.unpark_all()

    def committed(self, run_id: str, frames: Sequence[bytes]) -> None:
        """Mark a run after a durable change. Called inside the commit's synchronous stretch, so it must be short."""
        if self._flood or run_id in self._changed:
            return
        if frames and all(event_type(frame) in QUIET for frame in frames):
            return
        self._changed[run_id] = None
        if len(self._changed) > MOST:
            self.begin_again()
        self.wake()

    def swept(self) -> None:
        """Look for changes that marked no run: runs were deleted, or (shared stores) changed in other processes."""
        if self._shared:
            self._compare = True
            self.wake()
        else:
            self.begin_again()

    def begin_again(self) -> None:
        """Send each watch its first page again: too many runs have changed, or any row may be invalid."""
        self._flood = True
        self._changed.clear()
        self.wake()

    # --- rounds ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Make rounds until cancelled, or until the runtime is closed."""
        while True:
            await trio.lowlevel.checkpoint()
            while not (self._changed or self._flood or self._compare or any(watch.ready for watch in self._watches)):
                await self._lot.park()
            if not any(watch.ready for watch in self._watches):
                await trio.sleep(self._watch_seconds)
            began = trio.current_time()
            try:
                await self._round()
                await self._rest(min(5.0, SHARE * (trio.current_time() - began)))
            except gr.StoreUnavailable:
                await trio.sleep(RETRY)
            except (gr.RuntimeClosed, gr.StoreDown):
                return  # each connection notices the end on its own

    async def _rest(self, seconds: float) -> None:
        """Pause. A list requested meanwhile receives its first page immediately, because a person is waiting."""
        until = trio.current_time() + seconds
        while trio.current_time() < until:
            requests = [watch for watch in self._watches if watch.ready and watch.wants == "asked"]
            for watch in requests:
                await self._give_page(watch)
            if not requests:  # else another list may have been requested while these were read
                with trio.move_on_at(until):
                    await self._lot.park()

    async def _round(self) -> None:
        changes, flood, compare = tuple(self._changed), self._flood, self._compare
        self._changed, self._flood, self._compare = {}, False, False
        try:
            if flood:
                self._open.clear()
                for watch in self._watches:
                    watch.begin_again()
            for start in range(0, len(changes), AT_ONCE):
                await self._tell_changes(changes[start : start + AT_ONCE])
            if compare and not flood:
                self._open.clear()
                for watch in [candidate for candidate in self._watches if candidate.wants is None]:
                    await self._compare_page(watch)
            for watch in [candidate for candidate in self._watches if candidate.ready]:
                await self._give_page(watch)
            if changes or flood or compare:
                await self._tell_counts()
        except gr.StoreUnavailable:
            self._changed = dict.fromkeys(changes) | self._changed
            self._flood = self._flood or flood
            self._compare = self._compare or compare
            raise

    async def _tell_changes(self, run_ids: Sequence[str]) -> None:
        reader = self._reader
        told = list[tuple[ListWatch, TicketQuery, gr.RunSummary]]()
        hits = await self._deep_hits(run_ids)
        for line in (await reader.summaries(run_ids)).runs:
            info, status = line.info, line.row.status
            row: RunLine | None = None
            seen: dict[str, bool] = {}
            for watch in tuple(self._watches):
                who = watch.conversation.who
                if who.name not in seen:
                    seen[who.name] = self._sees(who, line)
                    self._note(who, info.run_id, status, seen=seen[who.name])
                if not seen[who.name] or watch.wants is not None:
                    continue
                if isinstance(watch.query, TicketQuery):
                    told.append((watch, watch.query, line))
                    continue
                matches = watch.query.matches(line) and (watch not in hits or info.run_id in hits[watch])
                if matches and row is None:
                    row, _ = row_of(line, reader)
                self._put(watch, info.run_id, row if matches else None)
        if told:
            await self._tell_tickets(told)

    async def _tell_tickets(self, told: Sequence[tuple[ListWatch, TicketQuery, gr.RunSummary]]) -> None:
        """Send each watch the open tickets of a run, as far as they are in its list."""
        asked = dict.fromkeys(line.run_id for *_, line in told if line.asked_count)
        tickets: dict[str, list[ListedTicket]] = {run_id: [] for run_id in asked}
        query = TicketQuery(run_ids=tuple(asked), limit=LARGEST_PAGE)
        more = bool(asked)
        while more:
            page = await self._reader.tickets(query)
            for ticket in page.tickets:
                tickets[ticket.info.run_id].append(ticket)
            query, more = attrs.evolve(query, cursor=page.cursor), page.cursor is not None
        for watch, of_watch, line in told:
            rows = await self._listed(watch, of_watch, tickets.get(line.run_id, ()))
            if watch.wants is None and not watch.dropped:
                self._put_tickets(watch, line.run_id, rows)

    async def _listed(
        self, watch: ListWatch, query: TicketQuery, tickets: Sequence[ListedTicket]
    ) -> tuple[ListedTicketLine, ...]:
        reader, who = self._reader, watch.conversation.who
        matching = [line for line in tickets if query.matches(line.info, line.ticket)]
        try:
            return tuple([ticket_row_of(line, reader)[0] for line in matching if await is_listed(reader, who, line)])
        except SeesFailed as error:
            self._log_failure(watch, error)
            return ()

    def _put_tickets(self, watch: ListWatch, run_id: str, rows: tuple[ListedTicketLine, ...]) -> None:
        """Send the present tickets of a run."""
        if self._shared:
            others = {name: row for name, row in watch.shown.items() if row.run_id != run_id}
            watch.shown = others | {row.ticket_id: row for row in rows}
        watch.put(run_id, down.AskedTickets(watch=watch.name, run=run_id, tickets=rows))

    async def _deep_hits(self, run_ids: Sequence[str]) -> dict[ListWatch, set[str]]:
        """Return those of the runs that are in the list of each watch whose query only the store can judge."""
        hits: dict[ListWatch, set[str]] = {}
        for watch in [candidate for candidate in self._watches if candidate.wants is None]:
            if isinstance(watch.query, gr.RunQuery) and watch.query.deep:
                query = attrs.evolve(watch.query, limit=AT_ONCE, cursor=None, counts=False)
                hits[watch] = {line.info.run_id for line in (await self._reader.page(query, among=run_ids)).runs}
        return hits

    def _put(self, watch: ListWatch, run_id: str, row: RunLine | None) -> None:
        """Send the present row of a run, or that the run is not in the list."""
        if self._shared and row is not None:
            watch.shown[run_id] = row
        elif row is None:
            watch.shown.pop(run_id, None)
        watch.put(run_id, down.RunChanged(watch=watch.name, run=run_id, matches=row is not None, row=row))

    async def _compare_page(self, watch: ListWatch) -> None:
        """Send the rows of the first page that differ from the rows that the watch has."""
        who, query = watch.conversation.who, watch.query
        try:
            if isinstance(query, TicketQuery):
                tickets = await visible_tickets(self._reader, who, query)
                await self._tell_all(watch, watch.differing(tickets.rows))
                watch.shown = {row.ticket_id: row for row in tickets.rows}
                return
            page = await visible_page(self._reader, who, query)
        except SeesFailed as error:
            self._log_failure(watch, error)
            return
        rows = {row.run_id: row for row in page.rows}
        before, gone = watch.shown, [run_id for run_id in watch.shown if run_id not in rows]
        for run_id, row in rows.items():
            if before.get(run_id) != row and watch.wants is None:
                self._put(watch, run_id, row)
        await self._tell_all(watch, gone)  # they left the list, were deleted, or newer rows precede them
        watch.shown = {**rows}

    async def _tell_all(self, watch: ListWatch, run_ids: Sequence[str]) -> None:
        """Send the watches the changes of runs, and this watch that runs were deleted."""
        for start in range(0, len(run_ids), AT_ONCE):
            part = run_ids[start : start + AT_ONCE]
            found = {line.info.run_id for line in (await self._reader.summaries(part)).runs}
            await self._tell_changes([run_id for run_id in part if run_id in found])
            for run_id in [one for one in part if one not in found and watch.wants is None]:
                if isinstance(watch.query, TicketQuery):
                    self._put_tickets(watch, run_id, ())
                else:
                    self._put(watch, run_id, None)

    def _sees(self, who: Principal, line: gr.RunSummary) -> bool:
        try:
            return bool(who.sees(line.info))
        except Exception as error:  # noqa: BLE001 - the server's own predicate failed: the run is hidden
            self._log_failure(f"sees of {who.name}", error)
            return False

    def _note(self, who: Principal, run_id: str, status: RunStatus, *, seen: bool) -> None:
        known = self._open.get(who.name)
        if known is None:
            return
        if seen and status is not RunStatus.DONE:
            known[run_id] = status
        else:
            known.pop(run_id, None)

    async def _give_page(self, watch: ListWatch) -> None:
        reason = watch.wants or "asked"
        watch.wants = None  # changes from here on follow the page
        try:
            frame = await self._first_page(watch, reason)
        except gr.StoreUnavailable:
            watch.wants = reason
            raise
        except SeesFailed as error:
            self._log_failure(watch, error)
            watch.conversation.end_list(watch)
            return
        except Exception as error:  # noqa: BLE001 - a bug: only this connection ends
            self._log_failure(watch, error)
            watch.conversation.leave(INTERNAL)
            return
        if not watch.dropped:
            if isinstance(frame, down.Runs):
                self._told[watch.conversation] = frame.counts
            watch.put(PAGE, frame)

    async def _first_page(self, watch: ListWatch, reason: Reason) -> down.Runs | down.Tickets:
        who, query = watch.conversation.who, watch.query
        if isinstance(query, TicketQuery):
            tickets = await visible_tickets(self._reader, who, query)
            watch.shown = {row.ticket_id: row for row in tickets.rows} if self._shared else {}
            return down.Tickets(watch=watch.name, reason=reason, tickets=tickets.rows, cursor=tickets.cursor)
        page = await visible_page(self._reader, who, query)
        watch.shown = {row.run_id: row for row in page.rows} if self._shared else {}
        counts = await self._counts(who)
        return down.Runs(watch=watch.name, reason=reason, runs=page.rows, cursor=page.cursor, counts=counts)

    async def _counts(self, who: Principal) -> Counts:
        if who.sees is everything:
            return await visible_counts(self._reader, who)
        if who.name not in self._open:
            self._open[who.name] = await visible_open(self._reader, who)
        return counted(self._open[who.name])

    async def _tell_counts(self) -> None:
        counts_of: dict[str, Counts] = {}
        first: dict[Watcher, ListWatch] = {}
        for watch in self._watches:
            if watch.wants is None:  # otherwise a page, which has the counts, follows
                first.setdefault(watch.conversation, watch)
        for conversation, watch in first.items():
            who = conversation.who
            if who.name not in counts_of:
                counts_of[who.name] = await self._counts(who)
            if watch.wants is None and not watch.dropped and self._told.get(conversation) != counts_of[who.name]:
                self._told[conversation] = counts_of[who.name]
                watch.put(COUNTS, down.CountsChanged(counts=counts_of[who.name]))
