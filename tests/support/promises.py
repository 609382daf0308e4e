"""What every life of a run keeps, whatever happens in it: as data, one sentence per broken promise."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

import greenroom as gr
from greenroom.actors.contract.calls import CallPosition, CallStatus
from greenroom.actors.contract.catalogue import CATALOGUE, TERMINAL_EVENTS
from greenroom.actors.contract.commits import Commit, EventDraft
from greenroom.actors.contract.lifecycle import STAGES, RunStatus, Stage
from greenroom.actors.contract.phases import RunPosition
from greenroom.actors.contract.rows import CallRow, RunRecord

from ..unit.engine.fold import Fold


def broken_promises(frames: Sequence[bytes], record: RunRecord, log: Sequence[Commit]) -> Iterator[str]:
    """One sentence per broken promise: the log in itself, the log against the rows, each commit by itself."""
    fold = Fold()
    try:
        yield from _broken_log(frames, fold)
    except AssertionError as error:
        yield f"event {fold.sequence} cannot be: {error}"
        return
    row = record.row
    folded = (fold.stage, fold.steps, fold.sequence, fold.usage, fold.status)
    rows = (row.stage, row.counters.rounds, row.last_sequence, row.usage, {c.call_id: c.status for c in record.calls})
    if folded != rows:
        yield f"the events say {folded}, the rows {rows}"
    if fold.tickets != {ticket.ticket_id: ticket.status for ticket in record.tickets}:
        yield f"the events have the tickets {fold.tickets}, the rows {record.tickets}"
    done = row.status is RunStatus.DONE
    if done is not (fold.terminal is not None):
        yield f"the run is {row.stage}, its last event {frames[-1]!r}"
    if done and not all(call.settled for call in record.calls):
        yield f"the run has ended, its calls have not: {fold.status}"
    if done and "open" in fold.tickets.values():
        yield f"the run has ended with open tickets: {fold.tickets}"
    admitted = any(b'"run.accepted"' in frame for frame in frames)  # else its question waits for its turn in the thread
    kept = (
        admitted and row.pending_input,
        row.draft,
        row.inference,
        row.tasks,
        row.run_tickets,
        row.pause,
        dict(row.early),
    )
    if done and any(kept):
        yield f"the run has ended and keeps back what is of its thread or of nobody: {kept}"
    yield from _broken_commits([commit for commit in log if commit.run_id == record.info.run_id])


def _broken_log(frames: Sequence[bytes], fold: Fold) -> Iterator[str]:
    """The fold takes all events but the first: it begins with a run that is created."""
    for number, frame in enumerate(frames, 1):
        event = msgspec.json.decode(frame)
        if event["sequence"] != number:
            yield f"event {number} has the sequence {event['sequence']}"
        if "to" in event["payload"] and not event["payload"].get("by"):
            yield f"{event['type']} does not say by whom"
        if number == 1:
            fold.sequence = 1
        else:
            fold.take(EventDraft(event["type"], msgspec.convert(event["payload"], CATALOGUE[event["type"]])))


def _broken_commits(log: Sequence[Commit]) -> Iterator[str]:
    """A move is one event in the commit that writes the row, and the row's status is what its calls say."""
    rows: dict[str, CallRow] = {}
    stage, last = Stage.CREATED, 1
    for commit in log:
        if commit.expected_last != last:
            yield f"a commit follows event {commit.expected_last}, the one before it ended with {last}"
        last = commit.last
        moves = [draft.payload for draft in commit.events if hasattr(draft.payload, "to")]
        for move in moves:
            if move.source is not stage or move.to not in STAGES[stage]:
                yield f"commit at {last}: a move from {move.source} to {move.to} when the run is {stage}"
            stage = move.to
        if commit.row.stage is not stage:
            yield f"commit at {last}: the row says {commit.row.stage}, the events {stage}"
        rows |= {call.call_id: call for call in commit.calls}
        yield from _broken_status(commit, [call for call in rows.values() if call.step == commit.row.step])
        terminal = [draft.type for draft in commit.events if draft.type in TERMINAL_EVENTS]
        if terminal and commit.events[-1].type != terminal[0]:
            yield f"commit at {last}: something follows {terminal[0]}"


def derive_run_status(calls: Iterable[CallStatus]) -> RunStatus:
    """Return one step's status: any call running or resuming -> running; else any suspended -> waiting; else done."""
    waiting = False
    for status in calls:
        if status is CallStatus.RUNNING or status is CallStatus.RESUMING:
            return RunStatus.RUNNING
        waiting = waiting or status is CallStatus.SUSPENDED
    return RunStatus.WAITING if waiting else RunStatus.DONE


def _broken_status(commit: Commit, calls: Sequence[CallRow]) -> Iterator[str]:
    """The run's status is the projection of its step's calls, while they move and no hook is being asked.

    An allowed call behind a body that waits for people does not move.
    """
    if commit.row.position is not RunPosition.TOOLS or any(call.position.phase for call in calls):
        return
    waits = {call.parent for call in calls if call.parent is not None and call.status is CallStatus.SUSPENDED}
    moving = [c for c in calls if c.call_id not in waits and not (waits and c.at is CallPosition.ALLOWED)]
    derived = derive_run_status(call.status for call in moving)
    status = commit.row.status
    if status is not derived and (derived is not RunStatus.DONE or status is RunStatus.WAITING):
        reported = {call.call_id: call.status.value for call in calls}
        yield f"commit at {commit.last}: the run is {status}, its calls are {reported}"


def broken_history(messages: Sequence[gr.Message], where: str) -> Iterator[str]:
    """What every provider demands: each call is answered once, at once, in the model's order, before anything else."""
    owed: list[str] = []
    for message in messages:
        if message.role == "tool":
            if not owed or message.call_id != owed[0]:
                yield f"{where}: a tool message of {message.call_id!r}, but {owed} are owed"
            owed = owed[1:]
        elif owed:
            yield f"{where}: {message.role} speaks before {owed} are answered"
            owed = []
        if message.role == "assistant":
            owed = [call.call_id for call in message.calls]
    if owed:
        yield f"{where}: {owed} are never answered"
    ids = [message.id for message in messages]
    if len(ids) != len(set(ids)):
        yield f"{where}: message ids come twice: {ids}"
