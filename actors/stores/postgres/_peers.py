"""This process among the others on a database: its lease, its hints, its claims, for one opening of a store.

Theory of operation. `serving` keeps three tasks for as long as the store serves, and while it writes its queue at the
end: the turns and the hints that arrive (`PgKeeper`, with `PgLease`), the hints to others (`PgHints`), and the
watchdog, which shuts a connection down whose statement waits too long for its answer. A cancel reaches them after the
desks have ended; then the runs are given back.

The writers call `wrote`, `posted`, `created` and `freed` in their threads, after the statement that is reported; the
hints are sent by the trio thread.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from functools import partial
from typing import Any, Final, TypeVar, assert_never

import attrs
import trio

from greenroom.supervision.nursery import open_collapsing_nursery, raise_bare

from ...abc import StoreStatistics
from ...contract.rows import RunInfo
from ...errors import StoreDown
from ...processes import ReadyRun
from ...store_events import Report, ignore
from ..common._requests import GiveBackRequest, PendingRequest, QueueRequest, ReleaseRequest, ReviveRequest
from ..common._restarts import Restarts
from ..common._write_queue import failed, one_of
from ..common.faults import LEAVE, Faults, Outage
from ._claims import BuryProcess, ClaimDue, ClaimedRun, ClaimReady, GiveRunsBack, ReleaseRuns, ReviveRun, SetQueue
from ._connect import Link
from ._hints import PgHints
from ._keeper import DEAF_POLL, PgKeeper
from ._lease import Book, PgLease
from ._post import Posted
from ._target import PgTarget, session_name
from ._turn import PgProfile, TurnStatements, boot_time

T = TypeVar("T")

_LOOKS: Final = 8
"""Looks of the watchdog in the time of an answer: a statement is ended at most an eighth late."""
_THREADS: Final = 2
"""One for the listener's connection, one for the notifier's."""

_MOMENT: Final = 0.1
"""Seconds that a cancelled opening waits for an answer; a server that answers does so in milliseconds."""
_CONNECTING: Final = 1.0
"""Seconds that opening a connection may take once the store is being closed."""

_CLOSING: Final = 60.0
"""Seconds for closing the connections of a process that leaves; each takes microseconds once there is a thread."""
_LEAVING: Final = 3.0
"""Seconds for giving the runs back at the end."""


@attrs.define(eq=False)
class BuryRequest(PendingRequest[bool]):
    """Declare a process dead. See `Claims.bury`."""

    name: str


PeerRequest = ReleaseRequest | GiveBackRequest | QueueRequest | ReviveRequest | BuryRequest
"""A request that `PgPeers` executes; the desk that is asked executes the others."""


class PgPeers:
    """One process on a database. Made in the trio thread, for one opening of a store.

    Attributes:
        lease: The lease of this process.
        keeper: receives hints.
        level: newest version of rows that this process reads.
        claims: runs that this process has claimed, for statistics.
    """

    def __init__(self, target: PgTarget, book: Book, profile: PgProfile, *, faults: Faults | None = None) -> None:
        """Prepare; nothing is sent. `faults`: called at `faults.HINT` and `faults.LEAVE`."""
        direct = target.direct()
        turns, hints = (session_name(profile.release, profile.name, purpose) for purpose in ("turns", "hints"))
        self._links = [Link(direct or target, turns), Link(target, hints)]
        self._book, self._profile, self._faults = book, profile, faults
        self._token = trio.lowlevel.current_trio_token()
        self._limiter = trio.CapacityLimiter(_THREADS)
        self._statements = TurnStatements(self._links[0], profile, listens=direct is not None)
        poll = {} if direct is not None else {"poll": DEAF_POLL}
        self._hints = PgHints(self._links[1], in_thread=self._in_thread, faults=faults, **poll)
        self.lease = PgLease(self._statements, self._hints, book, profile, self._in_thread)
        self.keeper = PgKeeper(self.lease, self._statements, self._hints, profile, self._in_thread)
        self._report: Report = ignore
        self.level = profile.level
        self.claims = self._freed = self._dead_letters = 0
        self._sent_along = 0  # hints that travelled with commands

    def __repr__(self) -> str:
        """Return the process and its lease."""
        return f"<PgPeers {self.lease!r}>"

    @property
    def process(self) -> int:
        """The number of this process. May be read in any thread."""
        return self._hints.process

    def statistics(self, counts: StoreStatistics, links: Sequence[Link]) -> StoreStatistics:
        """Return the counts of a store, whose connections are `links`, with those of many processes."""
        links, statements, heard = [*self._links, *links], self._statements, self.keeper.heard
        return attrs.evolve(
            counts,
            beat_age=boot_time() - self.lease.machine.beat_sent,
            reconnects=sum(max(0, link.opened - 1) for link in links),
            hints_sent=self._hints.sent + self._sent_along,
            hints_received=heard.received,
            hints_dropped=heard.dropped + self._hints.refused,
            claims=self.claims,
            freed=statements.freed_runs + self._freed,
            dead_letters=statements.dead_letters + self._dead_letters,
        )

    # --- serving -----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def watching(self, links: Callable[[], Sequence[Link]]) -> AsyncIterator[None]:
        """Bound the time of each statement of the block, also while the block is cancelled.

        Args:
            links: returns the connections of the store, beside those of this object.
        """
        # Not `nursery.start`: a shielded task that is started in a cancelled scope would be waited for and never end.
        watched = trio.CancelScope(shield=True)
        async with open_collapsing_nursery() as nursery:
            nursery.start_soon(self._watch_answers, links, watched, name="the watch over answers")
            try:
                yield
            finally:
                watched.cancel()

    @asynccontextmanager
    async def interruptible(
        self, links: Callable[[], Sequence[Link]], *, answer: float = _MOMENT, connecting: float = _MOMENT
    ) -> AsyncIterator[None]:
        """Let a cancelled block end soon, also while a thread waits for the server.

        An answer that a server owes for a moment only is still waited for, so that nothing is torn.

        Args:
            links: see `watching`.
            answer: seconds that an answer may take once the block is cancelled.
            connecting: seconds that opening a connection may take then.
        """
        inside = True

        async def watch() -> None:
            try:
                await trio.sleep_forever()
            except trio.Cancelled:
                while inside:
                    for link in [*self._links, *links()]:
                        link.cut_late(answer, time.monotonic(), connecting=connecting)
                    with trio.CancelScope(shield=True):
                        await trio.sleep(_MOMENT / 5)
                raise

        async with open_collapsing_nursery() as nursery:
            Restarts(self._report).start(nursery, "the watch over a closing store", watch)
            try:
                yield
            finally:
                inside = False
                nursery.cancel_scope.cancel()

    @asynccontextmanager
    async def serving(self, report: Report, links: Callable[[], Sequence[Link]]) -> AsyncIterator[None]:
        """Keep the lease for the time of the block, also while a cancelled block writes its queues; then leave.

        Args:
            report: receives the store's reports.
            links: see `watching`.

        Raises:
            StoreDown: a table or a right is missing.
        """
        self._report = report
        soon = self.interruptible(links, answer=self._profile.answer, connecting=_CONNECTING)
        scope = trio.CancelScope()
        try:
            async with soon, open_collapsing_nursery() as nursery:
                nursery.start_soon(self._keep, scope)  # not `start`: see `watching`
                try:
                    yield
                finally:
                    scope.cancel()
        except BaseExceptionGroup as group:  # the desks meet the same fault while they write their queues
            raise_bare(one_of(group))

    async def _keep(self, scope: trio.CancelScope) -> None:
        with trio.CancelScope(shield=True):
            failure: StoreDown | None = None
            try:
                with scope:
                    async with open_collapsing_nursery() as nursery:
                        keeper = partial(self.keeper.serve, self._report)
                        sender = partial(self._hints.serve, self._report)
                        Restarts(self._report).start(nursery, "the lease of this process", keeper)
                        Restarts(self._report).start(nursery, "the hints to other processes", sender)
            except Exception as error:  # noqa: BLE001 - a supervision boundary: of a hook, or a statement that the server refuses
                failure = failed(error)
            await self.leave()
            if failure is not None:
                raise failure from failure.__cause__

    async def leave(self) -> None:
        """Give the runs back, and close the connections."""
        try:
            if self._faults is not None:
                self._faults(LEAVE)
        except Outage:
            pass
        else:
            async with open_collapsing_nursery() as nursery:
                nursery.start_soon(self._cut_late)
                await self.lease.leave()
                nursery.cancel_scope.cancel()
        finally:
            with trio.move_on_after(_CLOSING, shield=True):
                for link in self._links:
                    with suppress(Outage):
                        await self._in_thread(link.close)

    async def _cut_late(self) -> None:
        """End the leaving: a server that answers does so in milliseconds."""
        while True:
            await trio.sleep(_LEAVING)
            for link in self._links:
                link.cut()

    async def _watch_answers(self, links: Callable[[], Sequence[Link]], watched: trio.CancelScope) -> None:
        """Shut each connection down whose statement waits too long for its answer."""

        async def watch() -> None:
            while True:
                await trio.sleep(self._profile.answer / _LOOKS)
                now = time.monotonic()
                for link in [*self._links, *links()]:
                    link.cut_late(self._profile.answer, now)

        with watched:
            await Restarts(self._report).kept("the watch over answers", watch)

    async def _in_thread(self, function: Callable[[], T]) -> T:
        """Call a function in a thread; user code cannot use up these threads.

        Raises:
            Outage: the system gave no thread.
        """
        if not self._profile.threaded:
            await trio.lowlevel.checkpoint()
            return function()
        started = False

        def called() -> T:
            nonlocal started
            started = True
            return function()

        try:
            return await trio.to_thread.run_sync(called, limiter=self._limiter)
        except (RuntimeError, MemoryError, OSError) as error:
            if started:
                raise
            raise Outage(error) from error

    # --- what the writers report, in their threads -------------------------------------------------------------------

    def wrote(self, moves: Sequence[tuple[int, int]]) -> None:
        """Report runs that have new events: number and newest sequence."""
        if not self._hints.alone:
            self._soon(self._moved, moves)

    def _moved(self, moves: Sequence[tuple[int, int]]) -> None:
        for number, last in moves:
            self._hints.moved(number, last)

    def command_hint(self, owner: int | None, number: int) -> tuple[str, Sequence[Any]] | None:
        """Return the statement that sends a hint about a command of a run to its owner, if that is another process."""
        hint = None if owner is None or owner == self.process else self._hints.command(owner, number)
        self._sent_along += hint is not None
        return hint

    def posted(self, posted: Posted) -> None:
        """Report a journaled command of a run."""
        if posted.owner is None:
            is_served = self.lease.serves(posted.agent, posted.place)
            if not is_served or self.lease.room == 0:
                self._soon(partial(self._hints.work, (posted.agent,), place=posted.place, elsewhere=not is_served))
        elif posted.owner != self.process:
            self._soon(self._hints.posted, posted.owner, posted.number)

    def created(self, info: RunInfo) -> None:
        """Report a new run without an owner."""
        self._soon(partial(self._hints.work, (info.agent,), place=info.place))

    def thread_freed(self, number: int, owner: int | None, agent: str) -> None:
        """Report that a run is not held by its thread any more."""
        if owner is None:
            self._soon(self._hints.work, (agent,))
        elif owner != self.process:
            self._soon(self._hints.freed, owner, number)

    def claimed(self, run_id: str, *, held: bool) -> None:
        """Count a claim. If the run's thread holds it, the turn looks whether it still does."""
        self.claims += 1
        if held:
            self._soon(self.lease.machine.held.add, run_id)

    def _soon(self, function: Callable[..., object], *arguments: object) -> None:
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(function, *arguments)

    # --- requests, in the thread of the desk -------------------------------------------------------------------------

    def action(self, link: Link, request: PeerRequest) -> Callable[[], Any]:
        """Return what executes another request about owners; it may be called again after an Outage."""
        match request:
            case ReleaseRequest(claims=claims):
                return partial(self._release, link, ReleaseRuns(claims))
            case GiveBackRequest(claims=claims, ready_at=ready_at):
                return partial(self._give_back, link, GiveRunsBack(claims, ready_at))
            case QueueRequest(name=name, max_running=most, paused=paused):
                return partial(SetQueue(name, most, paused), link, self.process)
            case ReviveRequest(run_id=run_id):
                return partial(self._revive, link, ReviveRun(run_id))
            case BuryRequest(name=name):
                return partial(self._bury, link, BuryProcess(name))
            case _:
                assert_never(request)

    def claim(self, link: Link, claim: ClaimReady | ClaimDue) -> Sequence[ReadyRun]:
        """Execute a claim of ready or due runs; it may be called again after an Outage.

        Raises:
            StoreUnavailable: see `PgLease.check`.
        """
        if not claim.sent:
            self.lease.check()
        runs = claim(link, self.process)
        if isinstance(claim, ClaimReady) and len(runs) == claim.most:  # there may be more, for another process
            self._soon(partial(self._hints.work, sorted({run.agent for run in runs}), elsewhere=True))
        return self._noted(runs)

    def _noted(self, runs: Sequence[ClaimedRun]) -> Sequence[ReadyRun]:
        for run in runs:
            claim = run.ready.claim
            self._book.note(claim.run_id, run.number, claim.token)
            self.claimed(claim.run_id, held=run.ready.held)
        return [run.ready for run in runs]

    def _release(self, link: Link, release: ReleaseRuns) -> Sequence[str]:
        refused = release(link, self.process)
        for claim in release.claims:
            if claim.run_id not in refused:
                self._book.forget(claim.run_id, claim.token)
        return refused

    def _give_back(self, link: Link, give: GiveRunsBack) -> None:
        agents = give(link, self.process)
        for claim in give.claims:
            self._book.forget(claim.run_id, claim.token)
        if agents and give.ready_at is None:
            self._soon(self._hints.work, agents)

    def _revive(self, link: Link, revive: ReviveRun) -> bool:
        agent = revive(link, self.process)
        if agent is not None:
            self._soon(self._hints.work, (agent,))
        return agent is not None

    def _bury(self, link: Link, bury: BuryProcess) -> bool:
        lived, freed = bury(link, self.process)
        self._freed += freed.count
        self._dead_letters += freed.dead_letters
        if freed.agents:
            self._soon(self._hints.work, sorted(freed.agents))
        return lived

    # --- of the port -------------------------------------------------------------------------------------------------

    def watch(self, run_id: str) -> AbstractContextManager[None]:
        """Report changes of a run for the time of the block. See `Notifier.watch`."""
        return self._hints.watch(run_id)
