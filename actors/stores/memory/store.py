"""The store in memory: the full contract without a file. For tests and short-lived runs."""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from typing import Any, Final, Self

import trio
from typing_extensions import override

from ...abc import Pruned, StoreStatistics
from ...contract.codec import SCHEMA_VERSION
from ...contract.commits import Receipt
from ...contract.run_lists import RunProgress
from ...errors import StoreDown, StoreOpenError, UsageError
from ...processes import NO_PLACES, ProcessInfo, QueueInfo
from ...store_events import Report
from ..common._inline_writer import InlineWriter
from ..common._leases import LeaseTimes
from ..common._requests import (
    ClaimRequest,
    CommitRequest,
    CreateRequest,
    DueRequest,
    GiveBackRequest,
    OwnerRequest,
    PostRequest,
    PruneRequest,
    QueueRequest,
    ReadyRequest,
    ReleaseRequest,
    Request,
    Result,
    ReviveRequest,
    SetValuesRequest,
)
from ..common._requests_api import RequestStore
from ..common._timestamps import milliseconds
from ..common._write_queue import PATIENCE, WriteQueue
from ..common.faults import Faults, meet
from ._hub import HintPolicy, Hub, StoreTime
from ._peers import Peer
from ._reads import TableReads
from ._tables import MemoryTables

PRUNE_SLICE: Final = 1_000
"""Runs per slice of a prune: other requests wait for some milliseconds."""


class MemoryStore(TableReads, RequestStore):
    """Runs in memory, for one process, as long as this object lives.

    Objects are kept as they are, without a codec. A commit is applied inside `submit`: its receipt is delivered before
    `submit` returns (except in an outage made by `faults`). The object can be opened again and keeps its data, like a
    file after a crash: earlier claims are void. Safe under virtual time. Bounded by memory only; `prune` frees space.

    `peer` makes it a shared store, with several handles that are open together: the many processes of a test.
    """

    times: LeaseTimes = LeaseTimes()
    """Of the leases and turns of a shared store."""

    def __init__(self, *, patience: float = PATIENCE, faults: Faults | None = None) -> None:
        """Make an empty store.

        Args:
            patience: seconds of retries while the store fails.
            faults: called at "before_commit" and "after_commit" of each write; raises to make the store fail there.
        """
        self._ledger = MemoryTables()
        self._epoch = secrets.token_hex(8)
        self._faults, self._patience = faults, patience
        self._queue: WriteQueue[Request] = WriteQueue(self._make_writer)
        self._serving = False
        self._commits = self._events = self._posts = 0
        self._hub: Hub | None = None
        self._peer: Peer | None = None
        self._name, self._level, self._offset = "process", SCHEMA_VERSION, 0.0
        self._answered: tuple[Request, Any] | None = None

    def peer(
        self,
        *,
        name: str = "process",
        level: int = SCHEMA_VERSION,
        offset: float = 0.0,
        faults: Faults | None = None,
    ) -> Self:
        """Return another handle on the same runs, as another process would have it; from now on the store is shared.

        Each handle that runs has a process row, a lease, and a turn every few seconds (`times`). A process that ends by
        an error, or frozen, gives nothing back: it has died, and the others notice when its lease ends.

        Args:
            name: beginning of the name of the process.
            level: newest version of rows that the process reads.
            offset: The offset of the storage's clock; see `Claims.offset`.
            faults: The faults of the handle; a write that fails after it was written is repeated, and has its first
                result.

        Raises:
            UsageError: the store is open, and is not shared yet.
        """
        if self._hub is None:
            if self._serving:
                raise UsageError("this store is open and not shared; make its peers before it is opened")
            self._hub, self._ledger.shared, self.shared = Hub(self._ledger, self.times, self._epoch), True, True
        other = type(self)(patience=self._patience, faults=faults)
        other._ledger, other._hub, other.shared = self._ledger, self._hub, True
        other._name, other._level, other._offset = name, level, offset
        return other

    def __repr__(self) -> str:
        """Return the number of runs, and whether the store is open."""
        return f"<MemoryStore: {len(self._ledger.runs)} runs, {'open' if self._queue.down is None else 'closed'}>"

    @property
    @override
    def epoch(self) -> str:
        return self._epoch if self._hub is None else self._hub.epoch

    @property
    @override
    def good_until(self) -> float:
        return math.inf if self._peer is None else self._peer.machine.good_until

    @property
    @override
    def unready(self) -> str | None:
        return None if self._peer is None else self._peer.machine.unready(trio.current_time())

    @property
    @override
    def offset(self) -> float:
        """The offset that `peer` was given."""
        return self._offset

    @property
    def process(self) -> str:
        """The name of this handle's process, while the handle is open; "" in a store that is not shared."""
        return "" if self._peer is None else self._peer.name

    @property
    def hints(self) -> HintPolicy | None:
        """The policy of hints between handles, the same for all of them; None: each hint arrives immediately.

        Called with the kind of a hint ("posted", "work", "thread_freed", "moved") and the name of the receiving
        process; returns seconds of delay, or None to lose the hint. With the kind "follow_up" it is called before the
        second half of a terminal commit, which frees the thread: None leaves it out, as a crash may.
        """
        return None if self._hub is None else self._hub.policy

    @hints.setter
    def hints(self, policy: HintPolicy | None) -> None:
        self._shared().policy = policy

    def freeze(self) -> None:
        """Let this open handle neither beat, nor hear, nor answer, until `thaw`. Left while frozen, it has died."""
        self._opened().freeze()

    def thaw(self) -> None:
        """Execute the requests that wait since `freeze`, and go on."""
        self._opened().thaw()

    def renew_epoch(self) -> None:
        """Give the logs another identity, as a failover does; each open handle reports it within a turn."""
        self._shared().rename()

    def _shared(self) -> Hub:
        if self._hub is None:
            raise UsageError("this store is not shared; `peer` returns another handle on it")
        return self._hub

    def _opened(self) -> Peer:
        if self._peer is None:
            raise UsageError("this store is not shared, or not open; `peer` returns another handle on it")
        return self._peer

    @override
    async def run(self, report: Report, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Open, serve until cancelled, and re-raise Cancelled. The data stays for the next `run`.

        Raises:
            StoreOpenError: this store is open already.
        """
        if self._serving:
            raise StoreOpenError("this store is open already; one runtime at a time")
        self._serving = True
        self._commits = self._events = self._posts = 0
        hub = self._hub
        self._time = StoreTime() if hub is None else hub.time()
        if hub is None:
            self._ledger.void_claims()
        self._queue.open(report)
        try:
            if hub is None:
                task_status.started()
                await self._queue.serve()
            else:
                name, level = self._name, self._level
                self._peer = Peer(hub, self._ledger, report, self._queue, self._writer, name=name, level=level)
                task_status.started()
                await self._peer.serve()
        finally:
            self._serving, self._peer = False, None

    def _make_writer(self, queue: WriteQueue[Request]) -> InlineWriter[Request]:
        self._writer = InlineWriter(queue, self._execute, patience=self._patience, batch=1)
        return self._writer

    def _execute(self, batch: Sequence[Request]) -> Sequence[Any]:
        faults = self._faults
        if faults is None:
            return [self._apply(batch[0])]
        if self._answered is not None and self._answered[0] is batch[0]:  # written, but the answer was lost
            return [self._answered[1]]
        meet(faults, "before_commit")
        result = self._apply(batch[0])
        self._answered = batch[0], result
        faults("after_commit")
        return [result]

    def _apply(self, request: Request) -> Receipt | Result[Any]:
        if isinstance(request, CommitRequest):
            if self._peer is None:
                receipt = self._ledger.commit(request.claim, request.commit, request.frames)
            else:
                receipt = self._peer.commit(request)
            if receipt.kind == "committed":
                self._commits += 1
                self._events += len(request.frames)
            return receipt
        try:
            return Result(self._asked(request))
        except Exception as error:  # noqa: BLE001 - a judge may raise anything: only the caller of its post gets the exception
            return Result(error=error)

    def _asked(self, request: CreateRequest | OwnerRequest | PostRequest | PruneRequest | SetValuesRequest) -> Any:
        ledger, peer = self._ledger, self._peer
        match request:
            case CreateRequest():
                owner = "" if request.claimed else None
                return ledger.create(request.new, request.frame, owner) if peer is None else peer.create(request)
            case PostRequest(run_id=run_id, command=command, judge=judge):
                posted = ledger.post(run_id, command, judge) if peer is None else peer.post(request)
                self._posts += posted.item is not None
                return posted
            case PruneRequest(before=before):
                return ledger.prune(before, PRUNE_SLICE)
            case SetValuesRequest(writes=writes):
                return ledger.values.set(writes)
            case _:
                return self._owned(request) if peer is None else peer.owners(request)

    def _owned(self, request: OwnerRequest) -> Any:
        """Execute a request about owners in a store that is not shared."""
        ledger = self._ledger
        match request:
            case ClaimRequest(run_id=run_id):
                return ledger.claim(run_id)
            case ReadyRequest(room=room, ability=ability, now=now):
                return ledger.claim_ready(room, ability, now)
            case DueRequest(now=now, ability=ability, limit=limit):
                return ledger.claim_due(now, ability, limit)
            case ReleaseRequest():  # the one process owns every run
                return ()
            case GiveBackRequest():
                return None
            case QueueRequest():
                return ledger.limit(request)
            case ReviveRequest(run_id=run_id):
                return ledger.revive(run_id, self._time.now()) is not None

    async def _read(self) -> MemoryTables:
        """Return the tables, for one synchronous read."""
        await trio.lowlevel.checkpoint()
        if self._peer is not None:
            await self._peer.thawed()
        if self._queue.down is not None:
            raise StoreDown(str(self._queue.down))
        return self._ledger

    @override
    async def queues(self) -> Sequence[QueueInfo]:
        return (await self._read()).queues(self._time.now())

    @override
    def watch(self, run_id: str) -> AbstractContextManager[None]:
        return nullcontext() if self._peer is None else self._peer.watch(run_id)

    @override
    def publish(self, agents: Mapping[str, str], *, places: Mapping[str, str] = NO_PLACES, room: int | None) -> None:
        if self._peer is not None:
            self._peer.publish(agents, places, room)

    @override
    async def agents(self) -> Mapping[str, frozenset[str]]:
        await self._read()
        return {} if self._hub is None else self._hub.agents()

    @override
    async def processes(self) -> Sequence[ProcessInfo]:
        await self._read()
        return () if self._hub is None else tuple(self._hub.infos())

    @override
    async def bury(self, process: str) -> bool:
        await self._read()
        return self._peer is not None and self._peer.bury(process)

    async def _sizes(self) -> tuple[int, int]:
        await self._read()
        return 0, 0

    async def _forecast(self, before: datetime) -> Pruned:
        return (await self._read()).forecast(milliseconds(before))

    @override
    async def progress(self, run_ids: Sequence[str]) -> Mapping[str, RunProgress]:
        runs = (await self._read()).runs if self.shared else {}
        return {name: runs[name].summary().progress for name in run_ids if name in runs}

    @override
    def statistics(self) -> StoreStatistics:
        return StoreStatistics(
            commits=self._commits,
            transactions=self._commits,
            events=self._events,
            posts=self._posts,
            queued=self._queue.unsettled,
        )
