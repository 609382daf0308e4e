"""The requests to a store: a closed set, and how each is settled.

A request is created in the trio thread, executed where the store writes, and settled in the trio thread, exactly once.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Generic, TypeVar

import attrs
import trio

from ...contract.claims import Claim
from ...contract.commits import Commit, Created, Deliver, NewRun, Receipt
from ...contract.decisions import Command, CommandResult, InboxItem
from ...contract.rows import Judge
from ...errors import StoreDown, UsageError
from ...processes import Ability, ReadyRun, Taken
from ...store_events import CommandPosted, Report, RunCommitted, RunsPruned
from ...stored_values import ValueWrite

T = TypeVar("T")


@attrs.frozen
class Result(Generic[T]):
    """The result of a request whose task waits: a value, or the error for that task."""

    value: T | None = None
    error: Exception | None = None


@attrs.define(eq=False)
class CommitRequest:
    """A run's commit. `blobs` is its encoded form, `error` the failure of encoding (reported in the commit's turn)."""

    claim: Claim
    commit: Commit
    frames: Sequence[bytes]
    deliver: Deliver
    blobs: object = None
    error: Exception | None = None

    @property
    def size(self) -> int:
        """Bytes that the request carries; 0 if it is not encoded."""
        return getattr(self.blobs, "size", 0)

    def settle(self, result: Receipt, report: Report) -> None:
        """Report the durable events to the runtime, then deliver the receipt."""
        try:
            if result.kind == "committed":
                report(RunCommitted(self.commit.run_id, result.last, self.frames))
        finally:
            self.deliver(result)

    def lose(self, error: StoreDown, report: Report) -> None:
        """Settle the request as down."""
        self.settle(Receipt(kind="down", error=error), report)


@attrs.define(eq=False)
class PendingRequest(Generic[T]):
    """A request whose task waits for the result."""

    result: Result[T] | None = attrs.field(default=None, init=False)
    _waiter: trio.lowlevel.Task | None = attrs.field(default=None, init=False)

    @property
    def size(self) -> int:
        """Bytes that the request carries; 0 if they are few."""
        return 0

    def settle(self, result: Result[T], report: Report) -> None:
        """Store the result and wake the task if it waits already."""
        self.result = result
        if self._waiter is not None:
            trio.lowlevel.reschedule(self._waiter)

    def lose(self, error: StoreDown, report: Report) -> None:
        """Settle the request as down."""
        self.settle(Result(error=error), report)

    async def wait(self) -> T:
        """Wait for the result, shielded, because a queued request gets written. The store's end bounds the wait.

        Raises:
            StoreDown: unknown whether the request was written.
            Exception: the error with which the request was refused.
        """
        if self.result is None:
            self._waiter = trio.lowlevel.current_task()
            # a wait that no cancel ends, without the price of a shielded scope
            await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED)
        else:
            await trio.lowlevel.cancel_shielded_checkpoint()
        assert self.result is not None  # noqa: S101 - settle() set it before it woke the task
        if self.result.error is not None:
            raise self.result.error
        return self.result.value  # type: ignore[return-value]  # T may itself be Optional, so None is a valid value


@attrs.define(eq=False)
class CreateRequest(PendingRequest[Created]):
    """A new run with its first event. `claimed`: its creator becomes its owner."""

    new: NewRun
    frame: bytes
    blobs: object = None
    claimed: bool = True

    @property
    def size(self) -> int:
        """Bytes that the request carries; 0 if it is not encoded."""
        return getattr(self.blobs, "size", 0)

    def settle(self, result: Result[Created], report: Report) -> None:
        """Report the durable event to the runtime, then wake the creator."""
        try:
            created = result.value
            if created is not None and (created.claim is not None or created.unclaimed):
                report(RunCommitted(self.new.info.run_id, 1, (self.frame,)))
        finally:
            PendingRequest.settle(self, result, report)


@attrs.define(eq=False)
class ClaimRequest(PendingRequest[Claim | Taken | None]):
    """A request for a new fencing token of a run."""

    run_id: str


@attrs.define(eq=False)
class ReadyRequest(PendingRequest[Sequence[ReadyRun]]):
    """Claim ready runs. See `Claims.claim_ready`."""

    room: int
    ability: Ability
    now: datetime


@attrs.define(eq=False)
class DueRequest(PendingRequest[Sequence[ReadyRun]]):
    """Claim runs whose timer fired. See `Claims.claim_due`."""

    now: datetime
    ability: Ability
    limit: int


@attrs.define(eq=False)
class ReleaseRequest(PendingRequest[Sequence[str]]):
    """Give up runs at rest. See `Claims.release`."""

    claims: Sequence[Claim]


@attrs.define(eq=False)
class GiveBackRequest(PendingRequest[None]):
    """Give up runs that are not at rest. See `Claims.give_back`."""

    claims: Sequence[Claim]
    ready_at: datetime | None


@attrs.define(eq=False)
class QueueRequest(PendingRequest[None]):
    """Limit or pause a queue. See `Claims.set_queue`."""

    name: str
    max_running: int | None
    paused: bool

    def check(self) -> None:
        """Check the limit.

        Raises:
            UsageError: it is less than 1.
        """
        most = self.max_running
        if most is not None and (type(most) is not int or most < 1):
            way = "give an int of at least 1, or None; paused=True stops a queue"
            raise UsageError(f"max_running={most!r:.100}: {way}")


@attrs.define(eq=False)
class ReviveRequest(PendingRequest[bool]):
    """Let a dead letter be claimed again. See `Claims.revive_run`."""

    run_id: str


@attrs.frozen
class PostResult:
    """A judged command; `item` is set if it was journaled, `elsewhere` if another process owns the run."""

    reply: CommandResult
    item: InboxItem | None = None
    elsewhere: bool = False


@attrs.define(eq=False)
class PostRequest(PendingRequest[PostResult]):
    """A command to judge and, if accepted, to journal."""

    run_id: str
    command: Command
    judge: Judge

    @property
    def size(self) -> int:
        """Bytes of the command's text and parts."""
        return len(self.command.text) + sum(part.size for part in self.command.parts)

    def settle(self, result: Result[PostResult], report: Report) -> None:
        """Report the journaled command to the runtime, then wake the caller of `post`."""
        try:
            posted = result.value
            if posted is not None and posted.item is not None and not posted.elsewhere:
                report(CommandPosted(self.run_id, posted.item))
        finally:
            PendingRequest.settle(self, result, report)


@attrs.frozen
class PruneSlice:
    """The result of one slice of a prune; `more`: another slice is needed."""

    runs: int = 0
    messages: int = 0
    more: bool = True


@attrs.define(eq=False)
class PruneRequest(PendingRequest[PruneSlice]):
    """One slice of a prune: delete some done runs that ended before a time (UTC milliseconds)."""

    before: int

    def settle(self, result: Result[PruneSlice], report: Report) -> None:
        """Report the deletion to the runtime, then wake the pruning task."""
        try:
            if result.value is not None and result.value.runs:
                report(RunsPruned())
        finally:
            PendingRequest.settle(self, result, report)


@attrs.define(eq=False)
class SetValuesRequest(PendingRequest[bool]):
    """Write values beside the runs, all or none. See `ValueStore.set_values`."""

    writes: Sequence[ValueWrite]

    @property
    def size(self) -> int:
        """Bytes of the values."""
        return sum(len(write.value or b"") for write in self.writes)


OwnerRequest = (
    ClaimRequest | ReadyRequest | DueRequest | ReleaseRequest | GiveBackRequest | QueueRequest | ReviveRequest
)
"""Changes only which process owns a run, or may own it."""
Request = CommitRequest | CreateRequest | OwnerRequest | PostRequest | PruneRequest | SetValuesRequest
