"""The store in PostgreSQL: durable, for any number of processes that open the same database."""

from __future__ import annotations

import logging
import math
import os
import platform
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from importlib import metadata
from typing import Concatenate, Final, Literal, ParamSpec, TypeVar

import attrs
import trio
from typing_extensions import override

from ...abc import Pruned, StoreStatistics
from ...contract.run_lists import RunProgress
from ...errors import StoreDown, StoreOpenError, UsageError
from ...options import unknown_value
from ...processes import NO_PLACES, ProcessInfo, QueueInfo
from ...store_events import OutageChanged, Report, StoreEvent
from ..common._gathering_queue import GatheringQueue
from ..common._inline_writer import InlineWriter
from ..common._leases import LEASE, MARGIN, TURN, LeaseTimes
from ..common._outages import NoThread
from ..common._query_store import QueryStore
from ..common._requests import CommitRequest
from ..common._restarts import Restarts
from ..common._thread_writer import ThreadWriter
from ..common._timestamps import milliseconds
from ..common._write_queue import Execute, R, WriteQueue, Writer, closed, pauses
from ..common.faults import FOLLOW_UP, OPEN, Faults, Outage
from . import _claims as _pg_claims
from . import _lists as _pg_lists
from . import _prune as _pg_prune
from . import _reads as _pg_reads
from . import _thread_reads as _pg_threads
from ._asks import AskRequest, AskWriter
from ._connect import ANSWER, Again, Link, hopeless
from ._driver import psycopg
from ._indexes import IndexMaker, may_make_indexes, missing_indexes
from ._peers import BuryRequest, PgPeers
from ._reads import ReadLinks
from ._schema import LEVEL, PG_MIGRATIONS, PgMigration, lacking_rights, migrate
from ._sql import COMMIT_SETTINGS, SETTINGS
from ._target import PgTarget, session_name
from ._threads import free_threads
from ._turn import PgProfile, boot_time
from ._write import MOST, ClaimBook, CommitWriter

__all__ = ["PostgresStore"]

logger = logging.getLogger("greenroom.store")

T = TypeVar("T")
P = ParamSpec("P")

PATIENCE: Final = 300.0
"""Seconds of retries while the server is unavailable: a failover takes one or two minutes."""

_OPENING: Final = 10.0
"""Seconds (of the patience) of retries for an opening, because a person may be waiting."""
_CLOSING: Final = 60.0
"""Seconds for giving the runs back and closing the connections."""
_LONGEST_NAME: Final = 200
"""Most characters of a process's name."""
_READERS: Final = 4
"""Concurrent reads; each has a connection."""
_SEVERAL: Final[frozenset[Callable[..., object]]] = frozenset(
    {
        *(_pg_reads.thread, _pg_reads.state_at, _pg_reads.record, _pg_lists.page, _pg_lists.tickets),
        *(_pg_threads.page, _pg_threads.history),
    }
)
"""Queries of several statements, which see one state of the database."""


class _MergedOutages:
    """The receiver of both desks' outages: an outage is reported once, whichever desk meets it."""

    def __init__(self, report: Report, answers: Callable[[], None]) -> None:
        """`answers`: called when the server answers a desk again."""
        self._report, self._answers = report, answers
        self._stalled = 0

    def __call__(self, event: StoreEvent) -> None:
        """Pass on the first report of an outage, and the end of the last one."""
        if isinstance(event, OutageChanged):
            before = self._stalled
            self._stalled += 1 if event.error is not None else -1
            if event.error is None:
                self._answers()
            if 0 in (before, self._stalled):
                self._report(event)


class _AskQueue(WriteQueue[AskRequest]):
    """The queue of the desk that is asked; refuses also while the other desk is stalled."""

    other: WriteQueue[CommitRequest]

    def refusal(self) -> Exception | None:
        """Return why requests are refused now."""
        return self.outage or self.other.outage


class PostgresStore(QueryStore[Link]):
    """Runs in a schema of a PostgreSQL database, shared by all processes that open it.

    Two connections write, each with a queue and a thread: one commits, the other serves what is asked (new
    runs, claims, commands, prunes), so that a commit never waits for a judge. Every write is one statement, so no lock
    is held while a process thinks, and a process that is stopped holds up no other one. Reads run in up to 4 threads.

    A statement whose answer is lost is sent again: commits have numbers under their claim, new runs and commands are
    found by what was drawn for them, so nothing is written twice.

    An error of the whole server (refused, restarting, disk full, read-only) is retried for `patience` seconds while
    receipts wait and commands raise StoreUnavailable; then the store is down.
    """

    shared = True
    _queries = _pg_reads
    _lists = _pg_lists
    _threads = _pg_threads

    def __init__(
        self,
        url: str,
        *,
        name: str | None = None,
        lease: float = LEASE,
        turn: float = TURN,
        margin: float = MARGIN,
        answer: float = ANSWER,
        patience: float = PATIENCE,
        writer: Literal["thread", "inline"] = "thread",
        faults: Faults | None = None,
        migrations: Sequence[PgMigration] = PG_MIGRATIONS,
    ) -> None:
        """Prepare a store; nothing is opened before `run`.

        Args:
            url: a URL or key=value text of libpq, with the fields schema (default greenroom), pooled and listen.
            name: The name of this process, unique, printable, at most 200 characters; default: host, process id and a
                random part.
            lease: seconds after which the runs of a process that gives no sign of life are free.
            turn: seconds between two signs of life.
            margin: seconds before the end of the lease at which this process ends its own work.
            answer: seconds after which a connection that gives no answer is cut.
            patience: seconds of retries while the server is unavailable.
            writer: "thread", or "inline": all statements are executed in the calling task, by the same code without
                threads. For tests under virtual time, which waits for no server.
            faults: called at each of `faults.POINTS`; raises to make the store fail there.
            migrations: The migrations to apply; for tests of migrations.

        Raises:
            StoreOpenError: the address cannot be read.
            UsageError: the three times of the lease do not fit together, or another argument is invalid.
        """
        _check(name, answer, patience)
        if writer not in ("thread", "inline"):
            raise unknown_value("writer", writer, ("thread", "inline"))
        self.threaded = writer == "thread"
        self.target = PgTarget.parse(url)
        self.times = LeaseTimes(lease, turn, margin)
        self._release = metadata.version("greenroom")
        self.name = name or f"{platform.node()}.{os.getpid()}.{secrets.token_hex(4)}"
        self._answer, self._patience, self._faults, self._migrations = answer, patience, faults, migrations
        self._limiter = trio.CapacityLimiter(_READERS)
        self._epoch = ""
        self._level = LEVEL
        self._peers: PgPeers | None = None
        self._published: tuple[Mapping[str, str], Mapping[str, str], int | None] | None = None
        self._book = ClaimBook()
        self._links: list[Link] = []
        self._indexes: IndexMaker | None = None
        self._readers: ReadLinks | None = None
        self._committer: CommitWriter | None = None
        self._asker: AskWriter | None = None
        self._commits: GatheringQueue[CommitRequest] = GatheringQueue(self._commits_writer)
        self._queue: _AskQueue = _AskQueue(self._asks_writer)
        self._queue.other = self._commits

    def __repr__(self) -> str:
        """Return the target without a password, and whether the store is open."""
        return f"<PostgresStore {self.target.text}: {'closed' if self._readers is None else 'open'}>"

    @property
    @override
    def secrets(self) -> Sequence[str]:
        """The passwords of the address, the service file and the environment."""
        direct = self.target.direct()
        return self.target.secrets if direct is None else direct.secrets

    @property
    @override
    def epoch(self) -> str:
        """The identity of the logs; kept in the schema."""
        return self._epoch if self._peers is None else self._peers.lease.machine.epoch

    # --- opening and closing -----------------------------------------------------------------------------------------

    @override
    async def run(self, report: Report, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Open the store and serve until cancelled; then write the queues, give the runs back, and re-raise Cancelled.

        Raises:
            StoreOpenError: the store cannot be opened (before started); the message has the reason and what to do.
            StoreDown: the store failed for good; every pending and later receipt is "down".
        """
        if self._readers is not None:
            raise StoreOpenError(f"{self.target.text} is open already by this store; one runtime at a time")
        self._book = ClaimBook()
        profile = PgProfile(
            name=self.name,
            release=self._release,
            times=self.times,
            answer=self._answer,
            level=self._level,
            schema_version=len(self._migrations),
            threaded=self.threaded,
        )
        peers = self._peers = PgPeers(self.target, self._book, profile, faults=self._faults)
        try:
            async with peers.watching(self._all_links):
                async with peers.interruptible(self._all_links):
                    await self._opened(peers)
                async with peers.serving(report, self._all_links):
                    merged = _MergedOutages(report, self._readers_may_ask)
                    self._commits.open(report, merged)
                    self._queue.open(report, merged)
                    if self._published is not None:
                        peers.keeper.publish(*self._published)
                    task_status.started()
                    with self._commits.gathering() if self.threaded else nullcontext():
                        await self._serve()
        finally:
            self._epoch, self._peers = self.epoch, None
            with trio.move_on_after(_CLOSING, shield=True):
                try:
                    await self._aside(self._close)
                except NoThread:  # closing in the trio thread blocks for a moment, but open connections stay longer
                    self._close()

    async def _serve(self) -> None:
        """Let both desks write until cancelled.

        Raises:
            StoreDown: one of them has failed for good.
        """
        failure: StoreDown | None = None
        async with trio.open_nursery() as nursery:

            async def serve(queue: WriteQueue[R]) -> None:
                nonlocal failure
                try:
                    await queue.serve()
                except StoreDown as down:
                    failure = failure or down
                    nursery.cancel_scope.cancel()

            if self._indexes is not None:
                Restarts(self._queue.report).start(nursery, "the maker of indexes", self._indexes.serve)
            nursery.start_soon(serve, self._queue, name="the desk that is asked")
            nursery.start_soon(serve, self._commits, name="the desk that commits")
        if failure is not None:
            self._commits.shut(failure)
            self._queue.shut(failure)
            raise StoreDown(str(failure)) from failure.__cause__

    async def _opened(self, peers: PgPeers) -> None:
        """Open the connections; temporary errors are retried.

        Raises:
            StoreOpenError: the store cannot be opened.
        """
        until = trio.current_time() + min(self._patience, _OPENING)
        for pause in pauses():
            try:
                await self._aside(self._open, peers)
                return await peers.lease.open()
            except (Outage, Again) as error:
                await trio.lowlevel.checkpoint_if_cancelled()  # noqa: ASYNC120 - a cancel has cut the connection
                trouble = error.error
                if hopeless(trouble) or trio.current_time() >= until:
                    raise StoreOpenError(f"{self.target.text} cannot be opened: {trouble}") from trouble
            except NoThread as error:
                if trio.current_time() >= until:
                    raise StoreOpenError(f"{self.target.text} cannot be opened: {error}") from error
            except StoreDown as error:
                raise StoreOpenError(f"{self.target.text} cannot be opened: {error}") from error
            except psycopg.Error as error:
                text = self.target.hidden(str(error))
                raise StoreOpenError(f"{self.target.text} cannot be opened: {text}") from error
            await trio.sleep(min(pause, until - trio.current_time()))
        raise AssertionError("pauses() never ends")

    def _open(self, peers: PgPeers) -> None:
        if self._faults is not None:
            try:
                self._faults(OPEN)
            except (OSError, MemoryError) as error:
                raise Outage(error) from error
        self._close()
        commits, asks = self._links = [self._link("commits", COMMIT_SETTINGS), self._link("asks", SETTINGS)]
        migrate(asks, self.target.schema, self._migrations, make_epoch=lambda: secrets.token_hex(8))
        self._check_rights(asks)
        self._indexes = self._index_maker(asks)
        self._readers = ReadLinks(lambda: self._link("reads"), faults=self._faults)
        self._committer = CommitWriter(
            commits, self._book, free_threads=self._free_threads, wrote=peers.wrote, faults=self._faults
        )
        self._asker = AskWriter(asks, self._book, peers=peers, faults=self._faults)

    def _check_rights(self, link: Link) -> None:
        lacking = lacking_rights(link, self.target.schema)
        if lacking:
            raise StoreDown(f"the role lacks {', '.join(lacking[:4])}; let the owner of the schema grant them")

    def _index_maker(self, link: Link) -> IndexMaker | None:
        """Return what makes missing indexes; None if no index is missing, or if this process cannot make them."""
        missing = missing_indexes(link, self.target.schema, self._migrations)
        direct = self.target.direct()
        if missing and direct is not None and may_make_indexes(link, self.target.schema):
            return IndexMaker(Link(direct, session_name(self._release, self.name, "indexes")), self._migrations)
        if missing:
            names = ", ".join(index.name for index, _ in missing)
            logger.warning("some statements are slow without the index %s: run `greenroom db migrate`", names)
        return None

    def _link(self, purpose: str, settings: Sequence[str] = ()) -> Link:
        return Link(self.target, session_name(self._release, self.name, purpose), settings)

    def _readers_may_ask(self) -> None:
        if self._readers is not None:
            self._readers.may_ask()

    def _all_links(self) -> Sequence[Link]:
        readers = self._readers
        return [*self._links, *(readers.links if readers is not None else ())]

    def _close(self) -> None:
        readers, self._readers = self._readers, None
        links, self._links = self._links, []
        for link in links:
            link.close()
        if readers is not None:
            readers.close()

    # --- writing -----------------------------------------------------------------------------------------------------

    def _commits_writer(self, queue: WriteQueue[CommitRequest]) -> Writer:
        if self._committer is None:
            raise closed()
        return self._make_writer(queue, self._committer.execute, 0)

    def _asks_writer(self, queue: WriteQueue[AskRequest]) -> Writer:
        if self._asker is None:
            raise closed()
        return self._make_writer(queue, self._asker.execute, 1)

    def _make_writer(self, queue: WriteQueue[R], execute: Execute[R], desk: int) -> Writer:
        def renew() -> None:
            self._links[desk].close()  # what was on its way is sent again over another connection

        if not self.threaded:
            return InlineWriter(queue, execute, patience=self._patience, batch=MOST, renew=renew)
        return ThreadWriter(queue, execute, patience=self._patience, renew=renew, most=MOST)

    def _free_threads(self, threads: Sequence[int]) -> Mapping[int, tuple[int, str]]:
        """Called in the thread that commits, after runs have ended in these threads."""
        peers, mine = self._peers, dict[int, tuple[int, str]]()
        try:
            if self._faults is not None:
                self._faults(FOLLOW_UP)
        except Outage:  # the turn of a process repairs it
            return mine
        for run in free_threads(self._links[0], threads):
            if peers is None:
                continue
            if run.owner == peers.process:
                mine[run.thread] = (run.number, run.run_id)
            if run.freed:
                peers.thread_freed(run.number, run.owner, run.agent)
        return mine

    @override
    def statistics(self) -> StoreStatistics:
        counts = StoreStatistics() if self._committer is None else self._committer.statistics
        ask_counts = StoreStatistics() if self._asker is None else self._asker.statistics
        counts = attrs.evolve(
            counts,
            posts=ask_counts.posts,
            transactions=counts.transactions + ask_counts.transactions,
            repeated=self._repeated(),
            queued=self._queue.unsettled + self._commits.unsettled,
        )
        return counts if self._peers is None else self._peers.statistics(counts, self._all_links())

    def _repeated(self) -> int:
        desks = sum(desk.repeated for desk in (self._committer, self._asker) if desk is not None)
        return desks + sum(link.repeated for link in self._links)

    # --- other processes ---------------------------------------------------------------------------------------------

    @property
    def process(self) -> str:
        """The name of this process, while the store is open; another one than given if the name is in use."""
        return "" if self._peers is None else self._peers.lease.name

    @property
    @override
    def good_until(self) -> float:
        return -math.inf if self._peers is None else self._peers.lease.good_until

    @property
    @override
    def offset(self) -> float:
        return 0.0 if self._peers is None else self._peers.lease.offset

    @property
    @override
    def unready(self) -> str | None:
        return "the store is not open" if self._peers is None else self._peers.lease.machine.unready(boot_time())

    @override
    def watch(self, run_id: str) -> AbstractContextManager[None]:
        return nullcontext() if self._peers is None else self._peers.watch(run_id)

    @override
    def publish(self, agents: Mapping[str, str], *, places: Mapping[str, str] = NO_PLACES, room: int | None) -> None:
        self._published = (agents, places, room)
        if self._peers is not None:
            self._peers.keeper.publish(agents, places, room)

    @override
    async def agents(self) -> Mapping[str, frozenset[str]]:
        return await self._read(_pg_claims.agents)

    @override
    async def progress(self, run_ids: Sequence[str]) -> Mapping[str, RunProgress]:
        return await self._read(_pg_lists.progress, tuple(run_ids))

    @override
    async def processes(self) -> Sequence[ProcessInfo]:
        return await self._read(_pg_claims.processes)

    @override
    async def bury(self, process: str) -> bool:
        return await self._queue.ask(BuryRequest(process))

    @override
    async def queues(self) -> Sequence[QueueInfo]:
        return await self._read(_pg_claims.queues)

    # --- reading -----------------------------------------------------------------------------------------------------

    async def _read(self, query: Callable[Concatenate[Link, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a query in a thread. Raises as `ReadLinks.read`."""
        readers = self._readers
        if readers is None:
            raise StoreDown(str(self._queue.down or "the store is not open"))
        return await self._aside(lambda: readers.read(query, query in _SEVERAL, *args, **kwargs))

    async def _sizes(self) -> tuple[int, int]:
        return await self._read(_pg_prune.size), 0

    async def _forecast(self, before: datetime) -> Pruned:
        return await self._read(_pg_prune.forecast, milliseconds(before))


def _check(name: object, answer: object, patience: object) -> None:
    """Check arguments that go to the server, where a NUL character would cut the address of the database off.

    Raises:
        UsageError: one of them is invalid.
    """
    if name is not None and not (isinstance(name, str) and name.isprintable() and len(name) <= _LONGEST_NAME):
        raise UsageError(f"name={name!r:.200}: give at most {_LONGEST_NAME} printable characters")
    for option, value in (("answer", answer), ("patience", patience)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
            raise UsageError(f"{option}={value!r:.100}: give seconds")
    if answer == 0:
        raise UsageError("answer=0: give seconds, more than 0")
