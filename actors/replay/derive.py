"""Which inputs may have led to the next recorded event: read from the event, the rows and the commands.

What a child of the run said (a model, a body) stands in the event itself, or in full in the row that it was written
to. What people said stands in the inbox. What is not recorded at all is what the owner did and what leaves no event of
its own: taking the run up, admitting it, its deadline, word that its work has stopped, the answers of hooks and gates.
Those are offered wherever the machine's state lets them matter; the record says which of them happened.

An input is offered with the spec that its owner had: `bare` without the agent, as a run that is cancelled where nobody
could work on it, or that was given up.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import takewhile
from typing import Any, Final, NamedTuple

import attrs

from ..contract.calls import CallStatus
from ..contract.envelope import Event
from ..contract.messages import CallRequest, ModelResponse, Usage
from ..contract.phases import LEAVING, CallAt, Cursor
from ..contract.rows import CallRow, RunRow
from ..contract.spec import MODES
from ..engine.denials import undoubted
from ..engine.inputs import (
    Abandon,
    Activate,
    Admit,
    CallPrinted,
    CallProgressed,
    CallRaised,
    CallReturned,
    CallSuspended,
    CancelUnowned,
    CommandArrived,
    DeadlinePassed,
    Input,
    ModelAnswered,
    ModelFailed,
    ModelStreamed,
    Overran,
    Stubborn,
    WorkStopped,
)
from ..engine.state import RunState
from ..engine.tickets import wish_of
from .index import writer_of
from .record import Record
from .report import Unreplayable
from .tasks import find_task, spawned, task_ended
from .writes import Written, written_by_call


class Offer(NamedTuple):
    """An input that may have come. `bare`: its owner had no agent."""

    message: Input
    bare: bool = False


def offers(record: Record, state: RunState, position: int) -> Iterator[Offer | Unreplayable]:
    """The inputs that may have led to the event at `position` of the log, the likeliest first.

    Answers to the open phases (`hooks.py`) are not among them.
    """
    event = record.events[position]
    for message in _said(record, state, position):
        yield message if isinstance(message, Unreplayable) else Offer(message)
    yield from _commanded(record, state, event)
    for message in _owned(record, state, position):
        yield Offer(message)
    if record.end()[0] == "internal_error":
        yield Offer(Abandon(detail=record.end()[1]), bare=True)


# --- what children said ----------------------------------------------------------------------------------------------


def _said(record: Record, state: RunState, position: int) -> Iterator[Input | Unreplayable]:
    event = record.events[position]
    payload: Any = event.payload
    match event.type:
        case "run.message.delta":
            yield ModelStreamed(message_id=payload.get("message_id"), text=str(payload.get("text", "")))
        case "run.reasoning.delta":
            yield ModelStreamed(message_id=payload.get("message_id"), reasoning=str(payload.get("text", "")))
        case "run.inference.completed":
            yield from _answered(record, state, event)
        case "run.inference.retried" | "run.message.discarded":
            yield from _failed(state, record.events[position : position + 2])
        case "run.tool.suspended" | "run.approval.requested":
            yield from _suspended(record, state, event)
        case "run.state.changed" | "run.state.conflict":
            yield from _ended(record, state, writer_of(event), position)
            yield from _task_ended(record, state, writer_of(event), position)
        case _:
            yield from _bodies_said(record, state, position)
    if record.index.merging and event.type not in _REPORTS:
        yield from _returned_early(record, state, position)


def _bodies_said(record: Record, state: RunState, position: int) -> Iterator[Input | Unreplayable]:
    event = record.events[position]
    match event.type:
        case "run.tool.progress" | "run.tool.output.delta" | "run.task.progress" | "run.task.output.delta":
            yield from _reported(event)
        case "run.tool.result":
            yield from _ended(record, state, str(event.payload.get("call_id")), position)
        case "run.task.started":
            yield from spawned(record, state, event)
        case "run.task.finished":
            yield from _task_ended(record, state, event.payload.get("task_id"), position)
        case _:
            pass


def _answered(record: Record, state: RunState, event: Event) -> Iterator[Input | Unreplayable]:
    flight = state.row.inference
    if flight is None or state.row.cursor is not Cursor.INFERENCE:
        return
    payload: Any = event.payload
    common: dict[str, Any] = {
        "usage": _usage(payload.get("usage")),
        "model": str(payload.get("model", "")),
        "finish": payload.get("finish"),
    }
    message = record.messages.get(flight.message_id)
    if message is not None:
        text: tuple[str, ...] = (message.content,) if message.content else ()
        if message.final_at:
            text = (message.content[: message.final_at], message.content[message.final_at :])
        response = ModelResponse(text=text, calls=message.calls, **common)
        yield ModelAnswered(message_id=flight.message_id, response=response)
        return
    code, detail = record.end()
    if code not in ("model_refusal", "model_behavior_error", "internal_error"):
        text_ = f"the answer {flight.message_id} is not in the thread {record.info.thread_id}"
        yield Unreplayable(sequence=event.sequence, missing="message", text=text_)
        return
    refusal = ModelResponse(refusal=detail, **common)
    unusable = ModelResponse(calls=_clashing(detail, payload.get("calls")), **common)
    for response in (refusal, unusable):
        yield ModelAnswered(message_id=flight.message_id, response=response)


_CLASH: Final = "two different calls came under one id "


def _clashing(detail: str, count: Any) -> tuple[CallRequest, ...]:
    """So many calls, of which two have one id: an answer that can not be used is not stored, only why."""
    name = "?"
    if detail.startswith(_CLASH):
        try:
            name = str(ast.literal_eval(detail.removeprefix(_CLASH)))
        except (ValueError, SyntaxError):
            name = "?"
    more = max(0, (count if isinstance(count, int) else 2) - 1)
    first = CallRequest(call_id=name, tool="", arguments={})
    return (first, *(attrs.evolve(first, arguments={"n": number}) for number in range(min(more, 1024))))


def _usage(data: Any) -> Usage:
    known = {field.name for field in attrs.fields(Usage)}
    given = data if isinstance(data, dict) else {}
    return Usage(**{name: value for name, value in given.items() if name in known and isinstance(value, int)})


def _failed(state: RunState, events: tuple[Event, ...]) -> Iterator[Input]:
    """The model failed in a way that may pass; a discarded text comes with it."""
    flight = state.row.inference
    retried = next((event for event in events if event.type == "run.inference.retried"), None)
    if retried is None or flight is None:
        return
    payload: Any = retried.payload
    code, detail = str(payload.get("code")), str(payload.get("detail"))
    if detail.startswith(f"{code}: "):
        yield ModelFailed(
            message_id=flight.message_id,
            kind=code,
            text=detail.removeprefix(f"{code}: "),
            retryable=True,
            usage=_usage(payload.get("usage")),
            delay_ms=payload.get("delay_ms", 0),
        )


def _reported(event: Event) -> Iterator[Input]:
    payload: Any = event.payload
    name = payload.get("task_id") if event.type.startswith("run.task.") else payload.get("call_id")
    who: dict[str, Any] = {"call_id": name, "attempt": payload.get("attempt")}
    text = payload.get("text", "")
    if event.type.endswith(".progress"):
        yield CallProgressed(**who, fraction=payload.get("fraction"), text=text)
    else:
        yield CallPrinted(**who, index=payload.get("index"), text=text)


def _suspended(record: Record, state: RunState, event: Event) -> Iterator[Input | Unreplayable]:
    """A body has asked for a decision. Without its ticket nobody knows what a body, a gate or a hook asked for."""
    ticket = record.tickets.get(str(event.payload.get("ticket_id")))
    if ticket is None:
        text = f"the ticket {event.payload.get('ticket_id')!r} is not stored"
        yield Unreplayable(sequence=event.sequence, missing="ticket", text=text)
        return
    call = state.calls.get(str(event.payload.get("call_id")))
    if call is not None and call.at is CallAt.BODY and ticket.reason != "outcome_unknown":
        yield CallSuspended(call_id=call.call_id, attempt=call.attempts, suspend=wish_of(ticket))


def _ended(record: Record, state: RunState, name: str, position: int) -> Iterator[Input | Unreplayable]:
    """A body's outcome, in full: whether it was shown as an excerpt, or ended the run, the record says."""
    call, row = state.calls.get(name), record.calls.get(name)
    if call is None or call.at not in (CallAt.BODY, CallAt.GATING):
        return
    found = written_by_call(record, call, position)
    if found.again and call.at is CallAt.BODY:
        yield _returned(call, None, found)
    elif row is None or not row.settled or row.shown is None:
        sequence = record.events[position].sequence
        text = f"what the call {name} came to is not stored"
        yield Unreplayable(sequence=sequence, missing="call", text=text)
    elif call.at is CallAt.BODY:
        yield from _outcomes(call, row, found)


def _outcomes(call: CallRow, row: CallRow, found: Written) -> Iterator[Input]:
    who: dict[str, Any] = {"call_id": call.call_id, "attempt": call.attempts, "shown": row.shown or ""}
    for other in (False, True):
        if row.status is CallStatus.SUCCEEDED:
            yield _returned(call, row, found, large=other)
        elif row.status is CallStatus.FAILED:
            yield CallRaised(**who | {"shown": undoubted(row.shown or "")}, code=row.code or "tool_error", fatal=other)


def _returned(call: CallRow, row: CallRow | None, found: Written, *, large: bool = False) -> CallReturned:
    """With what it wrote; of an attempt that is not the last one, the result is not kept and does not matter."""
    return CallReturned(
        call_id=call.call_id,
        attempt=call.attempts,
        result=None if row is None else row.result,
        shown="" if row is None else found.without_note(row.shown or ""),
        large=large,
        batch=found.batch,
    )


def _returned_early(record: Record, state: RunState, position: int) -> Iterator[Input]:
    """A body that has returned, whose call has not ended before what it wrote is merged: that leaves no event."""
    if MODES[record.info.execution].bodies == 1:
        return  # it is merged at once
    for name in record.index.merging:
        call, row = state.calls.get(name), record.calls.get(name)
        if call is None or call.at is not CallAt.BODY:
            continue
        found = written_by_call(record, call, position)
        if found.again:
            yield _returned(call, None, found)
        elif found.batch is not None and row is not None and row.shown is not None:
            for large in {row.large, False}:
                yield _returned(call, row, found, large=large)


def _task_ended(record: Record, state: RunState, name: Any, position: int) -> Iterator[Input | Unreplayable]:
    task = find_task(state, name)
    if task is not None:
        yield from task_ended(record, state, task, position)


# --- what people and the clock said ----------------------------------------------------------------------------------

_ANNOUNCED: Final = {"cancel": "run.cancel.requested", "send": "run.input.received"}
_REFUSABLE: Final = ("run.cancel.requested", "run.input.received", "run.pause.requested", "run.decision.refused")
"""Commands that always come with this event. Of the others, some are consumed without one."""


def _commanded(record: Record, state: RunState, event: Event) -> Iterator[Offer]:
    waiting = record.commands[state.row.inbox :]
    if not waiting:
        return
    item = waiting[0]
    command, announced = item.command, _ANNOUNCED.get(item.command.kind)
    posted = command.posted_at is None or command.posted_at <= event.timestamp
    decides = event.type in ("run.approval.resolved", "run.decision.refused")
    if event.type == announced or (announced is None and (posted or decides)):
        yield Offer(CommandArrived(item=item))
    if event.type in _REFUSABLE:
        cancels = [number for number, one in enumerate(waiting, 1) if one.command.kind == "cancel"]
        for number in range(cancels[0], len(waiting) + 1) if cancels else ():
            yield Offer(CancelUnowned(items=waiting[:number]), bare=True)


# --- what the owner did ----------------------------------------------------------------------------------------------

_REPORTS: Final = frozenset(
    {
        *("run.message.delta", "run.reasoning.delta", "run.inference.completed"),
        *("run.tool.progress", "run.tool.output.delta", "run.task.progress", "run.task.output.delta"),
    }
)
"""Events before which nothing unseen has to have happened: it may as well have come after them."""
_NEVER_FIRST: Final = _REPORTS | {
    *("run.input.received", "run.cancel.requested", "run.pause.requested", "run.cleanup.overrun")
}
"""Events that an owner who takes a run up does not begin with."""


_TOGETHER: Final = 256
"""Events of one commit that are looked at: a new owner says something of each task before it asks the model again."""
_LAST_ERROR: Final = " failed steps; the last one: "


def _owned(record: Record, state: RunState, position: int) -> Iterator[Input]:
    event, row = record.events[position], state.row
    code, detail = record.end()
    if event.type not in _NEVER_FIRST or row.cursor is Cursor.TOOLS:  # there it may change calls without an event
        digest = _digest(record, event)
        yield Activate(admitted=True, agent_digest=digest, counts=_counted(record, row, position))
        if row.cursor is Cursor.ADMISSION:
            yield Activate(admitted=False, agent_digest=digest)
            yield Admit()
    if event.type == "run.cleanup.overrun":
        yield Overran(item=_stubborn(event))
    if row.cursor is Cursor.STOPPING:
        yield from _stopped(record, row.stubborn, position)
    if row.cursor is Cursor.INFERENCE and row.inference is not None and code in _OF_THE_MODEL:
        passes = code == "consecutive_errors"  # a failure that may pass, and the one too many
        kind, _, text = (detail.partition(_LAST_ERROR)[2] if passes else detail).partition(": ")
        yield ModelFailed(
            message_id=row.inference.message_id,
            kind=kind,
            text=text,
            retryable=passes,
            usage=_more(record.row.usage, row.usage),
        )
    if code in ("run_timeout", "internal_error") and row.cursor not in LEAVING:
        yield DeadlinePassed()
        yield DeadlinePassed(unowned=True)


_OF_THE_MODEL: Final = ("model_error", "model_bug", "consecutive_errors")


def _digest(record: Record, event: Event) -> str:
    """The digest that the owner's spec had: the run's own unless the event says otherwise."""
    started = record.info.agent_digest
    before, detail = f"started with spec {started}, goes on with ", str(event.payload.get("detail"))
    changed = event.type == "run.degraded" and detail.startswith(before)
    return detail.removeprefix(before) if changed else started


def _counted(record: Record, row: RunRow, position: int) -> bool:
    """True if the request that an owner left behind counts as one: the event says so that asks again, in one commit."""
    if row.cursor is not Cursor.INFERENCE:
        return True
    at = record.events[position].timestamp
    together = takewhile(lambda event: event.timestamp == at, record.events[position : position + _TOGETHER])
    retried = next((event for event in together if event.type == "run.inference.retried"), None)
    return retried is not None and "usage" in retried.payload


def _more(usage: Usage, before: Usage) -> Usage:
    """What was used in between."""
    given, known = attrs.astuple(usage), attrs.astuple(before)
    names = [field.name for field in attrs.fields(Usage)]
    return Usage(**{name: max(0, a - b) for name, a, b in zip(names, given, known, strict=True)})


def _stubborn(event: Event) -> Stubborn:
    payload: Any = event.payload
    return Stubborn(
        call_id=payload.get("call_id"),
        tool=payload.get("tool"),
        grace=payload.get("grace_seconds"),
        stack=payload.get("stack") or "",
    )


def _stopped(record: Record, known: tuple[str, ...], position: int) -> Iterator[Input]:
    """Word that the work has stopped, but for what is named: by the terminal event, of that by an earlier one, or here.

    What the terminal event names may overrun its grace after that word.
    """
    told = takewhile(lambda event: event.type == "run.cleanup.overrun", record.events[position:])
    here = {item.call_id: item for item in map(_stubborn, told)}
    last: Any = record.events[-1].payload
    named = last.get("stubborn", ()) if "termination" in last else record.row.stubborn
    lives = tuple(here.get(name) or Stubborn(call_id=name) for name in named)
    before = tuple(item for item in lives if item.call_id in known)
    for found in dict.fromkeys((lives, tuple(here.values()), before)):
        yield WorkStopped(stubborn=found)
