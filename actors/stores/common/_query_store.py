"""The public methods of a store in a database: each read is a query in a thread, each write is encoded immediately."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Concatenate, Generic, Literal, ParamSpec, Protocol, TypeVar

import trio
from typing_extensions import override

from ...contract.claims import Claim
from ...contract.commits import Commit, Created, Deliver, NewRun
from ...contract.decisions import InboxItem, Ticket
from ...contract.messages import Message
from ...contract.recording import RecordDelta
from ...contract.rows import RunOutline, RunRecord, ThreadInfo
from ...contract.run_lists import Backlog, EndedRuns, RunPage, RunQuery
from ...contract.state import StateWrite
from ...contract.threads.lists import HistoryPage, HistoryQuery, ThreadPage, ThreadQuery
from ...contract.ticket_lists import TicketPage, TicketQuery
from ...stored_values import StoredValue, check_page
from . import _paging
from ._commit_rules import InvalidCommit
from ._encoding import encode_commit, encode_new
from ._outages import NoThread
from ._requests import CommitRequest, CreateRequest
from ._requests_api import RequestQueue, RequestStore
from ._text_search import Shown
from ._timestamps import milliseconds

T = TypeVar("T")
P = ParamSpec("P")
C = TypeVar("C")
C_contra = TypeVar("C_contra", contravariant=True)


class Queries(Protocol[C_contra]):
    """The module with the queries of a database, for its kind of connection. See the methods of `Store`."""

    def open_runs(self, connection: C_contra, /) -> Sequence[tuple[str, bool]]: ...
    def next_due(self, connection: C_contra, /) -> datetime | None: ...
    def load(self, connection: C_contra, run_id: str, calls: Literal["step", "all"], /) -> RunRecord | None: ...
    def outline(self, connection: C_contra, run_id: str, /) -> RunOutline | None: ...
    def ticket(self, connection: C_contra, run_id: str, target: str, /) -> Ticket | None: ...
    def thread(self, connection: C_contra, thread_id: str, /) -> ThreadInfo | None: ...
    def state_at(self, connection: C_contra, run_id: str, step: int, /) -> Sequence[StateWrite]: ...
    def events(
        self, connection: C_contra, run_id: str, after: int, limit: int, max_bytes: int | None, /
    ) -> Sequence[bytes]: ...
    def commands(self, connection: C_contra, run_id: str, /) -> Sequence[InboxItem]: ...
    def record(self, connection: C_contra, run_id: str, after: int, limit: int, /) -> Sequence[RecordDelta]: ...
    def messages(self, connection: C_contra, thread_id: str, /) -> Sequence[Message]: ...
    def parts(self, connection: C_contra, thread_id: str, digests: Sequence[str], /) -> Mapping[str, bytes]: ...
    def values(self, connection: C_contra, space: str, after: str, limit: int, /) -> Sequence[StoredValue]: ...


class ThreadQueries(Protocol[C_contra]):
    """The module with the queries of threads. See `Store.history` and `Store.threads`."""

    def history(self, connection: C_contra, thread_id: str, query: HistoryQuery, /) -> HistoryPage | None: ...
    def page(self, connection: C_contra, query: ThreadQuery, behind: int | None, /) -> ThreadPage: ...


class ListQueries(Protocol[C_contra]):
    """The module with the queries of lists. See `runs`, `summaries`, `throughput` and `tickets` of `Store`."""

    def page(
        self,
        connection: C_contra,
        query: RunQuery,
        behind: _paging.Position | None,
        among: Sequence[str] | None,
        shown: Shown | None,
        /,
    ) -> RunPage: ...
    def summaries(self, connection: C_contra, run_ids: Sequence[str], counted: bool, /) -> RunPage: ...
    def throughput(self, connection: C_contra, since: int, /) -> Sequence[EndedRuns]: ...
    def backlog(self, connection: C_contra, /) -> Backlog: ...
    def tickets(self, connection: C_contra, query: TicketQuery, behind: _paging.Position | None, /) -> TicketPage: ...


class QueryStore(RequestStore, Generic[C]):
    """A store in a database, whose queries are functions of a connection `C`.

    A subclass sets the queries, `_commits` (the queue that commits; `_queue` takes all other requests) and `_limiter`
    (for concurrent reads).
    """

    _queries: Queries[C]
    _lists: ListQueries[C]
    _threads: ThreadQueries[C]
    _commits: RequestQueue
    _limiter: trio.CapacityLimiter

    @abc.abstractmethod
    async def _read(self, query: Callable[Concatenate[C, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a query on one consistent snapshot, which is released on return."""

    async def _aside(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function that waits for the database: in a thread, or directly where threads are not allowed.

        Raises:
            NoThread: the system gave no thread (or no memory for one); nothing was called.
        """
        if not self.threaded:
            await trio.lowlevel.checkpoint()
            return function(*args, **kwargs)
        started = False

        def called() -> T:
            nonlocal started
            started = True
            return function(*args, **kwargs)

        try:
            return await trio.to_thread.run_sync(called, limiter=self._limiter)
        except (RuntimeError, MemoryError, OSError) as error:
            if started:
                raise
            raise NoThread(f"the system gives no thread to reach the store with ({error}); try again") from error

    # --- writing -----------------------------------------------------------------------------------------------------

    # Rows are encoded immediately, in the trio thread, so that a value that changes later is written as it was.

    @override
    async def create_run(self, new: NewRun, frame: bytes, *, claim: bool = True) -> Created:
        request = CreateRequest(new, frame, claimed=claim)
        try:
            request.blobs = encode_new(new, frame)
        except Exception as error:  # a foreign value may raise anything; only this run fails
            raise InvalidCommit(f"run {new.info.run_id}: cannot be written: {error}") from error
        return await self._queue.ask(request)

    @override
    def submit(self, claim: Claim, commit: Commit, frames: Sequence[bytes], deliver: Deliver) -> None:
        request = CommitRequest(claim, commit, frames, deliver)
        try:
            request.blobs = encode_commit(commit, frames)
        except Exception as error:  # noqa: BLE001 - a foreign value may raise anything; only its commit fails, in its turn
            request.error = error
        self._commits.put(request)

    # --- reading -----------------------------------------------------------------------------------------------------

    @override
    async def open_runs(self) -> Sequence[tuple[str, bool]]:
        return await self._read(self._queries.open_runs)

    @override
    async def next_due(self) -> datetime | None:
        return await self._read(self._queries.next_due)

    @override
    async def load(self, run_id: str, *, calls: Literal["step", "all"] = "step") -> RunRecord | None:
        return await self._read(self._queries.load, run_id, calls)

    @override
    async def outline(self, run_id: str) -> RunOutline | None:
        return await self._read(self._queries.outline, run_id)

    @override
    async def ticket(self, run_id: str, target: str) -> Ticket | None:
        return await self._read(self._queries.ticket, run_id, target)

    @override
    async def thread(self, thread_id: str) -> ThreadInfo | None:
        return await self._read(self._queries.thread, thread_id)

    @override
    async def state_at(self, run_id: str, step: int) -> Sequence[StateWrite]:
        return await self._read(self._queries.state_at, run_id, step)

    @override
    async def events(
        self, run_id: str, *, after: int = 0, limit: int = 1000, max_bytes: int | None = None
    ) -> Sequence[bytes]:
        return await self._read(self._queries.events, run_id, after, limit, max_bytes)

    @override
    async def commands(self, run_id: str) -> Sequence[InboxItem]:
        return await self._read(self._queries.commands, run_id)

    @override
    async def record(self, run_id: str, *, after: int = 0, limit: int = 1000) -> Sequence[RecordDelta]:
        return await self._read(self._queries.record, run_id, after, limit)

    @override
    async def messages(self, thread_id: str) -> Sequence[Message]:
        return await self._read(self._queries.messages, thread_id)

    @override
    async def history(self, thread_id: str, query: HistoryQuery) -> HistoryPage | None:
        query.check()
        return await self._read(self._threads.history, thread_id, query)

    @override
    async def threads(self, query: ThreadQuery) -> ThreadPage:
        return await self._read(self._threads.page, query, _paging.thread_start(query))

    @override
    async def parts(self, thread_id: str, digests: Sequence[str]) -> Mapping[str, bytes]:
        return await self._read(self._queries.parts, thread_id, tuple(digests))

    @override
    async def values(self, space: str, *, after: str = "", limit: int = 100) -> Sequence[StoredValue]:
        check_page(space, after, limit)
        return await self._read(self._queries.values, space, after, limit)

    @override
    async def runs(self, query: RunQuery, *, among: Sequence[str] | None = None, shown: Shown | None = None) -> RunPage:
        return await self._read(self._lists.page, query, _paging.start(query), among, shown)

    @override
    async def throughput(self, since: datetime) -> Sequence[EndedRuns]:
        return await self._read(self._lists.throughput, milliseconds(since))

    @override
    async def backlog(self) -> Backlog:
        return await self._read(self._lists.backlog)

    @override
    async def summaries(self, run_ids: Sequence[str], *, counts: bool = False) -> RunPage:
        return await self._read(self._lists.summaries, tuple(run_ids), counts)

    @override
    async def tickets(self, query: TicketQuery) -> TicketPage:
        return await self._read(self._lists.tickets, query, _paging.start_tickets(query))
