"""The public methods that write, the same for every store with requests: check, queue, wait shielded."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from datetime import datetime

import trio

from ..abc import Created, Deliver, Pruned, Store
from ..contract.decisions import Command, CommandResult
from ..contract.rows import Claim, Commit, Judge, NewRun
from ..errors import UsageError
from ._requests import ClaimRequest, CommitRequest, CreateRequest, PostRequest, PruneRequest, Request
from ._timestamps import milliseconds


class RequestStore(Store):
    """A store whose writes are requests.

    Cancellation: a method either raises Cancelled before its request is queued, or waits (shielded) and returns the
    result.
    """

    @abc.abstractmethod
    def _put(self, request: Request) -> None:
        """Queue a request; it is settled exactly once, possibly before this returns."""

    @abc.abstractmethod
    def _refuse(self) -> None:
        """Raise StoreUnavailable or StoreDown if the caller would have to wait for the end of an outage."""

    async def create_run(self, new: NewRun, frame: bytes) -> Created:
        """Write a run and claim it; durable on return. See `Store.create_run`."""
        await trio.lowlevel.checkpoint_if_cancelled()
        self._refuse()
        request = CreateRequest(new, frame)
        self._put(request)
        return await request.wait()

    async def claim(self, run_id: str) -> Claim | None:
        """Claim a run with a new fencing token. See `Store.claim`."""
        await trio.lowlevel.checkpoint_if_cancelled()
        self._refuse()
        request = ClaimRequest(run_id)
        self._put(request)
        return await request.wait()

    def submit(self, claim: Claim, commit: Commit, frames: Sequence[bytes], deliver: Deliver) -> None:
        """Queue a commit; never waits, and never raises for failures of the store. See `Store.submit`."""
        self._put(CommitRequest(claim, commit, frames, deliver))

    async def post(self, run_id: str, command: Command, judge: Judge) -> CommandResult:
        """Judge a command and journal it if accepted; durable on return. See `Store.post`."""
        await trio.lowlevel.checkpoint_if_cancelled()
        self._refuse()
        request = PostRequest(run_id, command, judge)
        self._put(request)
        return (await request.wait()).reply

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
            await trio.lowlevel.checkpoint_if_cancelled()
            self._refuse()
            request = PruneRequest(milliseconds(before))
            self._put(request)
            swept = await request.wait()
            runs, messages = runs + swept.runs, messages + swept.messages
            if not swept.more:
                left, reusable = await self._sizes()
                return Pruned(runs=runs, messages=messages, freed=max(0, size - left), reusable=reusable)
