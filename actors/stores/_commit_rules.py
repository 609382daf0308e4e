"""What every store decides alike: is a commit in order, and what may be journaled."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from ..contract.decisions import Command, CommandResult
from ..contract.rows import CommandContext, Commit, Judge, NewRun
from ..errors import StoreError, ThreadBusy


class InvalidCommit(StoreError):
    """This commit can not be written as it is; others are unharmed."""


def fault(commit: Commit, frames: Sequence[bytes]) -> InvalidCommit | None:
    """What is wrong with a commit in itself; None if nothing is."""
    if len(frames) != len(commit.events):
        return InvalidCommit(f"run {commit.run_id}: {len(frames)} frames for {len(commit.events)} events")
    if commit.row.last_sequence != commit.last:
        return InvalidCommit(
            f"run {commit.run_id}: row.last_sequence is {commit.row.last_sequence}, the newest event is {commit.last}"
        )
    return None


def birth_fault(new: NewRun) -> InvalidCommit | None:
    """What is wrong with a new run in itself; None if nothing is."""
    if new.row.last_sequence != 1:
        return InvalidCommit(
            f"run {new.info.run_id}: row.last_sequence is {new.row.last_sequence}, a new run has one event"
        )
    return None


def judged(judge: Judge, facts: CommandContext, command: Command) -> CommandResult:
    """The judge's answer; what he accepts in spite of a known id or a taken target is refused here.

    The judge decides, and the store's unique ids are the backstop: two decisions for one ticket are never both
    journaled.
    """
    answer = judge(facts, command)
    if answer.status != "accepted":
        return answer
    if facts.known is not None:
        text = f"the id {command.command_id!r} was used before; take a new one"
        return CommandResult(status="rejected", code="decision_id_conflict", detail=text, command_id=command.command_id)
    if facts.prior is not None:
        text = f"decided by {facts.prior.by or 'somebody'}"
        return CommandResult(status="rejected", code="already_decided", detail=text, command_id=command.command_id)
    return answer if answer.command_id else attrs.evolve(answer, command_id=command.command_id)


def journaled(facts: CommandContext, command: Command, answer: CommandResult) -> Command:
    """An accepted command as its run reads it: an early decision is for the call as it is now, not as it may become."""
    decision, call = command.decision, facts.call
    if answer.code != "early" or decision is None or call is None:
        return command
    bound = attrs.evolve(decision, fingerprint=decision.fingerprint or call.fingerprint)
    return attrs.evolve(command, decision=bound, early=True)


def target_key(facts: CommandContext, command: Command) -> str | None:
    """What an accepted command occupies, so that no other decision can."""
    return facts.target_key if command.decision is not None else None


def repeated(thread_id: str, message_id: str | None) -> InvalidCommit | None:
    """Messages of a thread have unique ids."""
    if message_id is None:
        return None
    return InvalidCommit(
        f"thread {thread_id}: the message id {message_id!r} is taken; messages are appended once and never change"
    )


def stale_text(run_id: str, token: int) -> str:
    """Why a commit with an old claim is refused."""
    return (
        f"run {run_id}: claim {token} is not the newest, or one of its commits could not be written;"
        " claim the run and load it again"
    )


def gap_text(run_id: str, expected: int, last: int) -> str:
    """Why a commit that does not follow the newest event is refused."""
    return f"run {run_id}: the commit follows event {expected}, but the newest is {last}; load the run again"


def done_text(run_id: str) -> str:
    """Why nothing is written to a run that has ended."""
    return f"run {run_id} is done; nothing follows its terminal event"


def busy(thread_id: str, active: str) -> ThreadBusy:
    """Why a run is not started."""
    text = f"thread {thread_id!r} is busy with run {active!r}; wait for its end, or start with on_busy='queue'"
    return ThreadBusy(text, active=active)
