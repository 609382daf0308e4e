"""The rules that all stores share: which commits and new runs are written, and which commands may be journaled.

`admit` and `place` decide on facts, which each store reads in its own way: a store of rows asks them first, a store of
statements puts the same conditions into the statement and asks them why it wrote nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import msgspec

from ...contract.claims import Claim
from ...contract.commits import Commit, Created, NewRun, Receipt
from ...contract.decisions import Command, CommandResult
from ...contract.lifecycle import TERMINAL
from ...contract.parts import light
from ...contract.rows import CommandContext, Judge, RunInfo
from ...contract.sizes import COMMIT_LIMIT, too_large
from ...errors import LeaseLost, StoreError, ThreadBusy


class InvalidCommit(StoreError):
    """A commit cannot be written as it is; other runs are unaffected."""


class RunFacts(msgspec.Struct, frozen=True, gc=False):
    """The run that a commit is for, as the store has it.

    Attributes:
        token: The token of the newest claim.
        last: sequence of the newest event.
        posted, consumed: positions of the newest accepted and of the newest consumed command.
        done: the run has ended.
    """

    token: int
    last: int
    posted: int
    consumed: int
    done: bool


def admit(run_facts: RunFacts | None, claim: Claim, commit: Commit, fault: Exception | None = None) -> Receipt | None:
    """Return the receipt that refuses a commit; None if the commit may be written.

    Args:
        run_facts: The run; None if it does not exist, or if a commit under this claim could not be written.
        claim: The claim under which the commit was submitted.
        commit: The commit to write.
        fault: The reason why the commit cannot be written, even in its turn.
    """
    if run_facts is None or claim.token != run_facts.token or claim.run_id != commit.run_id:
        return lease_lost(commit, claim)
    if commit.expected_last != run_facts.last:
        text = (
            f"run {commit.run_id}: the commit follows event {commit.expected_last}, but the newest is {run_facts.last};"
            " load the run again"
        )
        return Receipt(kind="lease_lost", last=run_facts.last, error=LeaseLost(text))
    if run_facts.done:
        fault = InvalidCommit(f"run {commit.run_id} is done; nothing follows its terminal event")
    if fault is not None:
        return Receipt(kind="failed", error=unwritable(commit.run_id, fault))
    if commit.row.stage in TERMINAL and run_facts.posted > max(run_facts.consumed, commit.consumed, commit.row.inbox):
        return Receipt(kind="inbox_ahead", last=run_facts.last)
    return None


def lease_lost(commit: Commit, claim: Claim) -> Receipt:
    """Return the receipt of a commit under an old claim."""
    text = (
        f"run {commit.run_id}: claim {claim.token} is not the newest, or one of its commits could not be written;"
        " claim the run and load it again"
    )
    return Receipt(kind="lease_lost", error=LeaseLost(text))


def unwritable(run_id: str, error: Exception, text: str | None = None) -> StoreError:
    """Return the error of a commit that cannot be written; `text` is what the message says of another error."""
    if isinstance(error, StoreError):
        return error
    fault = InvalidCommit(f"run {run_id}: cannot be written: {error if text is None else text}")
    fault.__cause__ = error
    return fault


class PlaceFacts(msgspec.Struct, frozen=True, gc=False):
    """The facts that a store knows of the id, the key and the thread of a new run.

    Attributes:
        existing: the run that has the id; else, unless the id is that of a pruned run, the open run that has the key.
        held: the thread holds that run.
        pruned: `RunInfo.content` of the pruned run that had the id; None if no pruned run had it.
        runs: The number of runs that were ever created in the thread.
        active: the run that works on the thread.
    """

    existing: RunInfo | None = None
    held: bool = False
    pruned: str | None = None
    runs: int = 0
    active: str | None = None


def place(facts: PlaceFacts, new: NewRun) -> Created | None:
    """Return why a new run is not written; None if it is, behind `facts.active` if there is one.

    Raises:
        InvalidCommit: the run cannot be written.
        ThreadBusy: the thread has an active run and new.on_busy is "refuse".
    """
    existing = facts.existing
    if existing is not None:
        deduplicated = existing.run_id != new.info.run_id
        return Created(claim=None, held=facts.held, existing=existing, deduplicated=deduplicated)
    if facts.pruned is not None:
        return Created(claim=None, pruned=facts.pruned)
    if (fault := birth_fault(new)) is not None:
        raise fault
    if new.thread_runs not in (None, facts.runs):
        return Created(claim=None, thread_changed=True)
    if facts.active is not None and new.on_busy == "refuse":
        thread, active = new.info.thread_id, facts.active
        text = f"thread {thread!r} is busy with run {active!r}; wait for its end, or start with on_busy='queue'"
        raise ThreadBusy(text, active=active)
    return None


def fault(commit: Commit, frames: Sequence[bytes]) -> InvalidCommit | None:
    """Return why a commit is invalid in itself; None if it is valid."""
    if len(frames) != len(commit.events):
        return InvalidCommit(f"run {commit.run_id}: {len(frames)} frames for {len(commit.events)} events")
    if commit.row.last_sequence != commit.last:
        return InvalidCommit(
            f"run {commit.run_id}: row.last_sequence is {commit.row.last_sequence}, the newest event is {commit.last}"
        )
    return None


def size_fault(run_id: str, size: int) -> InvalidCommit:
    """Return why a commit, or a new run, of more than `COMMIT_LIMIT` bytes is not written."""
    error = InvalidCommit(
        f"run {run_id}: a commit of {size:,} bytes, and at most {COMMIT_LIMIT:,} are written together; keep large "
        "results, inputs and state outside, and their names here"
    )
    error.__cause__ = too_large(size, COMMIT_LIMIT)
    return error


def birth_fault(new: NewRun) -> InvalidCommit | None:
    """Return why a new run is invalid in itself; None if it is valid."""
    if new.row.last_sequence != 1:
        return InvalidCommit(
            f"run {new.info.run_id}: row.last_sequence is {new.row.last_sequence}, a new run has one event"
        )
    return None


def judged(judge: Judge, facts: CommandContext, command: Command) -> CommandResult:
    """Return the judge's result, but reject an accepted command with a known id or a taken target.

    The judge decides, and the store's unique ids are the backstop: two decisions about one ticket are never both
    journaled.
    """
    result = judge(facts, command)
    if result.status != "accepted":
        return result
    if facts.known is not None:
        text = f"the id {command.command_id!r} was used before; take a new one"
        return CommandResult(status="rejected", code="decision_id_conflict", detail=text, command_id=command.command_id)
    if facts.prior is not None:
        text = f"decided by {facts.prior.by or 'an unnamed principal'}"
        return CommandResult(status="rejected", code="already_decided", detail=text, command_id=command.command_id)
    return result if result.command_id else attrs.evolve(result, command_id=command.command_id)


def journaled(facts: CommandContext, command: Command, result: CommandResult) -> Command:
    """Return an accepted command as its run reads it.

    A decision by the call's id is bound to the call's present action; images and files are without their bytes.
    """
    decision, call, early = command.decision, facts.call, result.code == "early"
    if command.parts:
        command = attrs.evolve(command, parts=light(command.parts))
    if decision is None or call is None or not (early or decision.target == call.call_id):
        return command
    fingerprint = call.fingerprint if facts.ticket is None else facts.ticket.fingerprint
    bound = attrs.evolve(decision, fingerprint=decision.fingerprint or fingerprint)
    return attrs.evolve(command, decision=bound, early=early or command.early)


def target_key(facts: CommandContext, command: Command) -> str | None:
    """Return what an accepted command occupies, so that no other decision can."""
    return facts.target_key if command.decision is not None else None


def repeated(thread_id: str, message_id: str | None) -> InvalidCommit | None:
    """Return the error for a message id that its thread already has."""
    if message_id is None:
        return None
    return InvalidCommit(
        f"thread {thread_id}: the message id {message_id!r} is taken; messages are appended once and never change"
    )
