"""The public methods that write, the same for every store with requests: each hands a request to the queue."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from datetime import datetime

from ..abc import Created, Deliver, Pruned, Store, Taken
from ..contract.decisions import Command, CommandResult
from ..contract.rows import Claim, Commit, Judge, NewRun
from ..errors import UsageError
from ._requests import ClaimRequest, CommitRequest, CreateRequest, PostRequest, PruneRequest
from ._timestamps import milliseconds
from ._write_queue import WriteQueue


class RequestStore(Store):
    """A store whose writes are requests to `_queue`, which a subclass sets.

    Refusals and cancellation: see `WriteQueue.ask`.
    """

    _queue: WriteQueue

    async def create_run(self, new: NewRun, frame: bytes, *, claim: bool = True) -> Created:
        """Write a run and claim it; durable on return. See `Store.create_run`."""
        return await self._queue.ask(CreateRequest(new, frame, claimed=claim))

    async def claim(self, run_id: str) -> Claim | Taken | None:
        """Claim a run with a new fencing token. See `Store.claim`."""
        return await self._queue.ask(ClaimRequest(run_id))

    def submit(self, claim: Claim, commit: Commit, frames: Sequence[bytes], deliver: Deliver) -> None:
        """Queue a commit; never waits, and never raises for failures of the store. See `Store.submit`."""
        self._queue.put(CommitRequest(claim, commit, frames, deliver))

    async def post(self, run_id: str, command: Command, judge: Judge) -> CommandResult:
        """Judge a command and journal it if accepted; durable on return. See `Store.post`."""
        posted = await self._queue.ask(PostRequest(run_id, command, judge))
        return posted.reply

    @abc.abstractmethod
    async def _sizes(self) -> tuple[int, int]:
        """Return the bytes of the storage, and how many of them are free."""

    @abc.abstractmethod
    async def _forecast(self, before: datetime) -> Pruned:
        """Return what a prune would delete."""

    async def prune(self, before: datetime, *, dry_run: bool = False) -> Pruned:
        """Delete done runs that ended before a time, in short transactions. See `Store.prune`."""
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
                left, reusable = await self._sizes()
                return Pruned(runs=runs, messages=messages, freed=max(0, size - left), reusable=reusable)
