"""The rules that all stores share: whether a commit is valid, and which commands may be journaled."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from ...contract.commits import Commit, NewRun
from ...contract.decisions import Command, CommandResult
from ...contract.parts import light
from ...contract.rows import CommandContext, Judge
from ...contract.sizes import COMMIT_LIMIT, too_large
from ...errors import StoreError, ThreadBusy


class InvalidCommit(StoreError):
    """A commit cannot be written as it is; other runs are unaffected."""


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
    shown = call.fingerprint if facts.ticket is None else facts.ticket.fingerprint
    bound = attrs.evolve(decision, fingerprint=decision.fingerprint or shown)
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


def stale_text(run_id: str, token: int) -> str:
    """Return why a commit with an old claim is refused."""
    return (
        f"run {run_id}: claim {token} is not the newest, or one of its commits could not be written;"
        " claim the run and load it again"
    )


def gap_text(run_id: str, expected: int, last: int) -> str:
    """Return why a commit that does not follow the newest event is refused."""
    return f"run {run_id}: the commit follows event {expected}, but the newest is {last}; load the run again"


def done_text(run_id: str) -> str:
    """Return why a run that has ended takes no commit."""
    return f"run {run_id} is done; nothing follows its terminal event"


def busy(thread_id: str, active: str) -> ThreadBusy:
    """Return the error of a start that the thread's active run prevents."""
    text = f"thread {thread_id!r} is busy with run {active!r}; wait for its end, or start with on_busy='queue'"
    return ThreadBusy(text, active=active)
