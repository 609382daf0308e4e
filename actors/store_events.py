"""The reports of a store to its runtime: a closed union, and one callable that receives it.

A report is made synchronously, in the trio thread, in commit order. The receiver notes the fact and wakes tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from .contract.decisions import InboxItem


class RunCommitted(msgspec.Struct, frozen=True, gc=False):
    """Events of a run are durable: `frames`, the newest of which has sequence `last`.

    Reported for every commit and for a new run, before the receipt is delivered and before the creator resumes.
    """

    run_id: str
    last: int
    frames: Sequence[bytes]


class CommandPosted(msgspec.Struct, frozen=True, gc=False):
    """A command is durable; reported in the process that owns the run, or in the poster's if no process owns the run.

    In the poster's own process it is reported before the caller of `post` resumes. An item may be reported twice.
    """

    run_id: str
    item: InboxItem


class RunsPruned(msgspec.Struct, frozen=True, gc=False):
    """Done runs were deleted; reported after each slice of a prune that deleted some."""


class OutageChanged(msgspec.Struct, frozen=True, gc=False):
    """The whole store stopped answering (an error) or answers again (None)."""

    error: Exception | None


class PartCrashed(msgspec.Struct, frozen=True, gc=False):
    """A part of the store has crashed and begins again. No request is lost."""

    part: str
    error: Exception


class ChangedElsewhere(msgspec.Struct, frozen=True, gc=False):
    """A watched run of another process has durable events up to sequence `last`, or changed otherwise."""

    run_id: str
    last: int


class WorkFound(msgspec.Struct, frozen=True, gc=False):
    """There may be runs to claim; see `Claims.claim_ready`."""


class ThreadFreed(msgspec.Struct, frozen=True, gc=False):
    """A run that this process owns is not held by its thread any more."""

    run_id: str


class ClaimsVoided(msgspec.Struct, frozen=True, gc=False):
    """Every claim of this process is void: `good_until` has passed, or the process was declared dead.

    The store gives the runs back, and serves new claims.
    """


class LogsRenamed(msgspec.Struct, frozen=True, gc=False):
    """The logs have another identity: sequences that were returned before mean nothing now."""

    epoch: str


PeerEvent = ChangedElsewhere | WorkFound | ThreadFreed | ClaimsVoided | LogsRenamed
"""The actions of other processes. Only shared stores report them; each is a hint: it may be lost, late or repeated."""

StoreEvent = RunCommitted | CommandPosted | RunsPruned | OutageChanged | PartCrashed | PeerEvent

Report = Callable[[StoreEvent], None]
"""Receives the reports of a store. A receiver that raises ends the store."""


def ignore(event: StoreEvent) -> None:
    """Receive a report of a store that has no runtime."""
