"""The public methods that write, the same for every store with requests: each hands a request to the queue."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from datetime import datetime
from typing import Protocol, TypeVar

from typing_extensions import override

from ...abc import Pruned, Store, ValueStore
from ...contract.claims import Claim
from ...contract.commits import Commit, Created, Deliver, NewRun
from ...contract.decisions import Command, CommandResult
from ...contract.rows import Judge
from ...errors import UsageError
from ...processes import Ability, ReadyRun, Taken
from ...stored_values import ValueWrite, check_writes
from ._requests import (
    ClaimRequest,
    CommitRequest,
    CreateRequest,
    DueRequest,
    GiveBackRequest,
    PendingRequest,
    PostRequest,
    PruneRequest,
    QueueRequest,
    ReadyRequest,
    ReleaseRequest,
    ReviveRequest,
    SetValuesRequest,
)
from ._timestamps import milliseconds

T = TypeVar("T")


class RequestQueue(Protocol):
    """The queue of a store; `WriteQueue` satisfies the protocol, whatever requests its writer executes."""

    def put(self, request: CommitRequest) -> None:
        """See `WriteQueue.put`."""

    async def ask(self, request: PendingRequest[T]) -> T:
        """See `WriteQueue.ask`."""


class RequestStore(Store, ValueStore):
    """A store whose writes are requests to `_queue`, which a subclass sets.

    Refusals and cancellation: see `WriteQueue.ask`.
    """

    _queue: RequestQueue

    @override
    async def create_run(self, new: NewRun, frame: bytes, *, claim: bool = True) -> Created:
        return await self._queue.ask(CreateRequest(new, frame, claimed=claim))

    @override
    async def claim(self, run_id: str) -> Claim | Taken | None:
        return await self._queue.ask(ClaimRequest(run_id))

    @override
    async def claim_ready(self, room: int, ability: Ability, now: datetime) -> Sequence[ReadyRun]:
        return await self._queue.ask(ReadyRequest(room, ability, now)) if room > 0 else ()

    @override
    async def claim_due(self, now: datetime, ability: Ability, *, limit: int = 100) -> Sequence[ReadyRun]:
        return await self._queue.ask(DueRequest(now, ability, limit))

    @override
    async def release(self, claims: Sequence[Claim]) -> Sequence[str]:
        return await self._queue.ask(ReleaseRequest(claims)) if claims else ()

    @override
    async def give_back(self, claims: Sequence[Claim], *, ready_at: datetime | None = None) -> None:
        if claims:
            await self._queue.ask(GiveBackRequest(claims, ready_at))

    @override
    async def set_queue(self, name: str, *, max_running: int | None = None, paused: bool = False) -> None:
        request = QueueRequest(name, max_running, paused)
        request.check()
        await self._queue.ask(request)

    @override
    async def revive_run(self, run_id: str) -> bool:
        return await self._queue.ask(ReviveRequest(run_id))

    @override
    def submit(self, claim: Claim, commit: Commit, frames: Sequence[bytes], deliver: Deliver) -> None:
        self._queue.put(CommitRequest(claim, commit, frames, deliver))

    @override
    async def post(self, run_id: str, command: Command, judge: Judge) -> CommandResult:
        posted = await self._queue.ask(PostRequest(run_id, command, judge))
        return posted.reply

    @override
    async def set_values(self, writes: Sequence[ValueWrite | tuple[str, str, bytes | None, int]]) -> bool:
        return await self._queue.ask(SetValuesRequest(check_writes(writes)))

    @abc.abstractmethod
    async def _sizes(self) -> tuple[int, int]:
        """Return the bytes of the storage, and how many of them are free."""

    @abc.abstractmethod
    async def _forecast(self, before: datetime) -> Pruned:
        """Return what a prune would delete."""

    @override
    async def prune(self, before: datetime, *, dry_run: bool = False) -> Pruned:
        if not isinstance(before, datetime) or before.tzinfo is None:
            raise UsageError(
                f"prune(before={before!r}): give a datetime with a timezone, such as datetime.now(UTC) - ..."
            )
        if dry_run:
            return await self._forecast(before)
        size, _ = await self._sizes()
        runs = messages = 0
        while True:
            swept = await self._queue.ask(PruneRequest(milliseconds(before)))
            runs, messages = runs + swept.runs, messages + swept.messages
            if not swept.more:
                remaining_bytes, reusable = await self._sizes()
                return Pruned(runs=runs, messages=messages, freed=max(0, size - remaining_bytes), reusable=reusable)
