"""The writes of a run's owner to a store, and the store's answers.

A commit is one transaction: events, run row, changed calls and tickets, thread messages, state keys, consumed commands.
Its cost is the size of the change, not of the run.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Literal

import msgspec

from .artifacts import Artifact
from .claims import Claim
from .decisions import Ticket
from .messages import Message
from .parts import Part
from .recording import RecordEntry
from .row_forms import Value
from .rows import CallRow, RunInfo, RunRow
from .state import StateWrite


class EventDraft(msgspec.Struct, frozen=True, gc=False):
    """An event before numbering and encoding: its type and its payload object. A struct is cheap to create."""

    type: str
    payload: Any


class Commit(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """All changes of one input, as one transaction.

    Attributes:
        run_id: the run.
        expected_last: sequence of the newest event before this commit; the store refuses the commit if it differs.
        at: UTC time of all its events.
        events: in order; number i gets sequence expected_last + 1 + i.
        row: the run row after the commit.
        calls, tickets: the changed ones.
        messages: appended to the thread.
        state: written keys, at `state_step`.
        state_step: the step of the writes; None: `row.step`. A commit that ends a step may begin the next. Writes of
            run_end belong to a step that never comes: a fork of the last step has none of them.
        consumed: position of the newest inbox item that it consumes (0: none).
        taken: the machine's inputs since the previous commit, for the record; added by the run's owner.
        parts: with their bytes, which join the thread with this commit. Rows and messages refer to them by digest.
            Also published artifacts.
    """

    run_id: str
    expected_last: int
    at: datetime
    events: tuple[EventDraft, ...] = ()
    row: RunRow
    calls: tuple[CallRow, ...] = ()
    tickets: tuple[Ticket, ...] = ()
    messages: tuple[Message, ...] = ()
    state: tuple[StateWrite, ...] = ()
    state_step: int | None = None
    consumed: int = 0
    taken: tuple[RecordEntry, ...] = ()
    parts: tuple[Part | Artifact, ...] = ()

    @property
    def written_at(self) -> int:
        """The step that the written state keys belong to."""
        return self.row.step if self.state_step is None else self.state_step

    @property
    def last(self) -> int:
        """Sequence of the newest event after the commit."""
        return self.expected_last + len(self.events)


class NewRun(Value, frozen=True, kw_only=True):
    """A run to be created: its info, the thread messages that it starts with, and its first event.

    Attributes:
        info: the constant facts.
        row: the initial row, with last_sequence 1.
        messages: appended to the thread (for a fork, the copied history).
        created: the run.created event.
        on_busy: if the thread has an active run: hold the new run (queue) or refuse it.
        state: the state keys that a fork begins with.
        thread_parent: (thread, position): a fork's thread begins as a copy of that thread up to there.
        thread_runs: create the run only if exactly this many runs were ever created in its thread (0: the thread is
            new); None: regardless. `ThreadInfo.runs` has the number.
        taken: the beginning of the run's record; empty if it is not recorded.
        parts: with their bytes, which join the thread with the run. Those of a fork's history have no bytes here: the
            store copies them from the thread that `thread_parent` names.
        queue: where the run waits for an owner; "" for the queue of its agent's key.
        ready_at: the run is not claimed before this time; None: immediately.
        priority: -100 to 100; each step counts like ten seconds of waiting, and a higher one is claimed earlier.
        dedupe: at most one open run has this key; None: any number.
    """

    info: RunInfo
    row: RunRow
    messages: tuple[Message, ...]
    created: EventDraft
    on_busy: Literal["queue", "refuse"] = "queue"
    state: tuple[StateWrite, ...] = ()
    thread_parent: tuple[str, int] | None = None
    thread_runs: int | None = None
    taken: tuple[RecordEntry, ...] = ()
    parts: tuple[Part | Artifact, ...] = ()
    queue: str = ""
    ready_at: datetime | None = None
    priority: int = 0
    dedupe: str | None = None


ReceiptKind = Literal["committed", "lease_lost", "inbox_ahead", "failed", "down"]


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a submitted commit. Receipts of one run arrive in the order of its commits.

    Attributes:
        kind: the outcome.
            committed: durable.
            lease_lost: a newer claim exists, or `expected_last` does not match; nothing written.
            inbox_ahead: a terminal commit met unconsumed inbox items; nothing written, consume them first.
            failed: this commit cannot be written; other runs are unaffected.
            down: the store has failed for good.
        last: sequence of the run's newest durable event (for committed).
        error: the failure.
        next_in_thread: the run that was held because its thread was busy, and may work now; None if there is none, or
            if another process owns that run.
        posted: position of the run's newest accepted command, so that the owner learns of a command whose hint was
            lost; 0 if every accepted command is hinted (a store that is not shared).
    """

    kind: ReceiptKind
    last: int = 0
    error: Exception | None = None
    next_in_thread: str | None = None
    posted: int = 0


Deliver = Callable[[Receipt], None]
"""Called in the trio thread exactly once per submitted commit, possibly before `submit` returns.

Must not raise or wait.
"""


class Created(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of create_run: a new run with its claim, or why nothing was created.

    Attributes:
        claim: The claim of the new run; None if nothing was written, and then one of the last four fields says why;
            also None if the run was written and no claim was asked for (`unclaimed`).
        held: the thread has an active run; `Receipt.next_in_thread` of that run's end names this run.
        behind: that active run, if the new run is held.
        unclaimed: the run was written without a claim, as asked.
        existing: the run that has this id.
        deduplicated: an open run has the same `NewRun.dedupe`; it is `existing`.
        pruned: a run had this id and was pruned: its `RunInfo.content`, or "" if unknown.
        thread_changed: the thread differs from `NewRun.thread_runs`.
    """

    claim: Claim | None
    held: bool = False
    behind: str | None = None
    unclaimed: bool = False
    existing: RunInfo | None = None
    deduplicated: bool = False
    pruned: str | None = None
    thread_changed: bool = False
