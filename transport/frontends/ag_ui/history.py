"""The history of a run in AG-UI's terms: messages with stable ids, open tickets, and the state of the run.

A pure fold of the run's events, so a client that connects after a restart receives the same messages. The ids:

    the user's input        the id of the client's own message if the client sent it, else `<run>.m1`
    an assistant's message  the message id of its inference
    its reasoning           `<message id>:reasoning`
    a tool call             `<run>:<call id>`, because a call's own id is unique in its run and not in the thread
    a tool's message        `<message id>:<call id>`
    steering input          the id of the client's own message if the client sent it, else the message id of the event
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

import attrs
import msgspec

from greenroom.actors.contract.catalogue import TERMINAL_EVENTS
from greenroom.actors.contract.envelope import Event
from greenroom.actors.contract.ids import message_id
from greenroom.actors.contract.messages import Usage
from greenroom.actors.contract.plain import JSONObject

_encode = msgspec.json.Encoder().encode
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)

Payload = JSONObject


@attrs.frozen(kw_only=True)
class HistoryEntry:
    """One message of the run, or (`given`) the position of a message that the client itself wrote.

    Attributes:
        text: None for an assistant's message that has only calls.
        calls: (name of the call, tool, arguments as JSON text).
        call: Name of the call that a tool's message answers.
        failed: Status and code of that call, unless it succeeded.
    """

    id: str
    role: Literal["given", "user", "assistant", "tool", "reasoning"]
    text: str | None = None
    calls: tuple[tuple[str, str, str], ...] = ()
    call: str | None = None
    failed: JSONObject | None = None


@attrs.frozen(kw_only=True)
class RunHistory:
    """The fold of the events so far.

    Attributes:
        start_message: Id of the client's message that started the run; None if the client did not send it.
        sent: Command id -> id of the client's message that the command carried.
        run, agent, stage, sequence: The facts of the newest event.
        at: Time of the newest event, milliseconds since 1970.
        step: The open step.
        answer: Message id of the newest inference.
        entries: The run's messages, in the order of the client.
        growing: Message id -> text so far, of incomplete messages.
        owners: Call id -> id of the assistant's message with the call.
        tickets: Ticket id -> payload of run.approval.requested, of open tickets.
        end: Type and payload of the terminal event.
        counted: Tokens of the requests that the log has reported individually.
    """

    start_message: str | None = None
    sent: Mapping[str, str] = attrs.field(factory=dict)
    run: str = ""
    agent: str = ""
    stage: str = ""
    sequence: int = 0
    at: int | None = None
    step: int | None = None
    answer: str = ""
    entries: tuple[HistoryEntry, ...] = ()
    growing: Mapping[str, str] = attrs.field(factory=dict)
    owners: Mapping[str, str] = attrs.field(factory=dict)
    tickets: Mapping[str, Payload] = attrs.field(factory=dict)
    end: tuple[str, Payload] | None = None
    counted: Usage = attrs.field(factory=Usage)


def fold(history: RunHistory, event: Event) -> RunHistory:
    """Return the history with one more event."""
    payload = event.payload
    at = (event.timestamp - _EPOCH) // _MILLISECOND
    history = attrs.evolve(history, run=event.run_id, agent=event.agent_id, sequence=event.sequence, at=at)
    if "to" in payload:
        history = attrs.evolve(history, stage=payload["to"])
    if event.type in TERMINAL_EVENTS:
        return attrs.evolve(history, step=None, end=(event.type, payload))
    take = None if is_spoken(event) else _FOLDS.get(event.type)
    return history if take is None else take(history, payload)


def is_spoken(event: Event) -> bool:
    """Return True if a body says this of its work (`Payload.callId`): it is no message of the conversation."""
    return event.type in _SPOKEN and event.payload.get("callId") is not None


def reasoning_id(answer_id: str) -> str:
    """Return the id of the reasoning of an assistant's message."""
    return f"{answer_id}:reasoning"


def call_name(history: RunHistory, call_id: str) -> str:
    """Return the toolCallId of a call."""
    return f"{history.run}:{call_id}"


def result_id(history: RunHistory, call_id: str) -> str:
    """Return the id of the message that answers a call."""
    return f"{history.owners.get(call_id, history.run)}:{call_id}"


def result_text(payload: Payload) -> str:
    """Return a call's result (payload of run.tool.result) as the text for the model."""
    result = payload.get("result")
    return result if isinstance(result, str) else _encode(result).decode()


def failure_of(payload: Payload) -> dict[str, Any] | None:
    """Return status and code of a call (payload of run.tool.result), unless it succeeded."""
    if payload["status"] == "succeeded":
        return None
    return {name: payload[name] for name in ("status", "code") if payload.get(name) is not None}


# --- the fold --------------------------------------------------------------------------------------------------------


def _created(history: RunHistory, payload: Payload) -> RunHistory:
    if history.start_message is not None:
        return _add(history, HistoryEntry(id=history.start_message, role="given"))
    return _add(history, HistoryEntry(id=message_id(history.run, 1), role="user", text=payload["input"]))


def _step_started(history: RunHistory, payload: Payload) -> RunHistory:
    return attrs.evolve(history, step=payload["step"])


def _step_finished(history: RunHistory, _: Payload) -> RunHistory:
    return attrs.evolve(history, step=None)


def _asked_model(history: RunHistory, payload: Payload) -> RunHistory:
    return attrs.evolve(history, answer=payload["messageId"])


def _answered(history: RunHistory, payload: Payload) -> RunHistory:
    """Complete the answer; its reasoning is kept."""
    return _settle(_retried(history, payload), reasoning_id(payload["messageId"]))


def _retried(history: RunHistory, payload: Payload) -> RunHistory:
    return attrs.evolve(history, counted=history.counted + Usage(**payload.get("usage") or {}))


def _text(history: RunHistory, payload: Payload) -> RunHistory:
    return _grow(history, payload["messageId"], "assistant", payload["text"])


def _reasoning(history: RunHistory, payload: Payload) -> RunHistory:
    return _grow(history, reasoning_id(payload["messageId"]), "reasoning", payload["text"])


def _completed(history: RunHistory, payload: Payload) -> RunHistory:
    name, text = payload["messageId"], payload["text"]
    if payload.get("large"):
        text = history.growing.get(name) or text  # `text` is an excerpt; the deltas have the full text
    history = _settle(history, name)
    index = _index(history.entries, name)
    if index is None:
        return _add(history, HistoryEntry(id=name, role="assistant", text=text))
    return _put(history, index, attrs.evolve(history.entries[index], text=text))


def _discarded(history: RunHistory, payload: Payload) -> RunHistory:
    """Remove the text of a discarded message.

    Its reasoning stays, emptied, because a snapshot cannot delete it at a client.
    """
    discarded = payload["messageId"]
    emptied = reasoning_id(discarded)
    growing = {name: text for name, text in history.growing.items() if name not in (discarded, emptied)}
    entries = (
        attrs.evolve(entry, text="") if entry.id == emptied else entry
        for entry in history.entries
        if entry.id != discarded
    )
    return attrs.evolve(history, entries=tuple(entries), growing=growing)


def _called(history: RunHistory, payload: Payload) -> RunHistory:
    call_id, owner = payload["callId"], history.answer
    call = (call_name(history, call_id), payload["tool"], _encode(payload["arguments"]).decode())
    history = attrs.evolve(history, owners={**history.owners, call_id: owner})
    known = _index(history.entries, owner)
    if known is None:
        return _add(history, HistoryEntry(id=owner, role="assistant", calls=(call,)))
    entry = history.entries[known]
    return _put(history, known, attrs.evolve(entry, calls=(*entry.calls, call)))


def _result(history: RunHistory, payload: Payload) -> RunHistory:
    """Insert the result after the message with the call and the results that already follow that message."""
    call_id = payload["callId"]
    entry = HistoryEntry(
        id=result_id(history, call_id),
        role="tool",
        text=result_text(payload),
        call=call_name(history, call_id),
        failed=failure_of(payload),
    )
    owner = _index(history.entries, history.owners.get(call_id, ""))
    at = len(history.entries) if owner is None else owner + 1
    while at < len(history.entries) and history.entries[at].role == "tool":
        at += 1
    return attrs.evolve(history, entries=(*history.entries[:at], entry, *history.entries[at:]))


def _requested(history: RunHistory, payload: Payload) -> RunHistory:
    return attrs.evolve(history, tickets={**history.tickets, payload["ticketId"]: payload})


def _resolved(history: RunHistory, payload: Payload) -> RunHistory:
    open_ones = {name: ticket for name, ticket in history.tickets.items() if name != payload["ticketId"]}
    return attrs.evolve(history, tickets=open_ones)


def _steered(history: RunHistory, payload: Payload) -> RunHistory:
    message_id = history.sent.get(payload["commandId"])
    if message_id is not None:
        return _add(history, HistoryEntry(id=message_id, role="given"))
    return _add(history, HistoryEntry(id=payload["messageId"], role="user", text=payload["text"]))


_SPOKEN: Final = frozenset(
    {"run.message.delta", "run.reasoning.delta", "run.message.completed", "run.message.discarded"}
)
_FOLDS: Final[Mapping[str, Callable[[RunHistory, Payload], RunHistory]]] = {
    "run.created": _created,
    "run.step.started": _step_started,
    "run.step.finished": _step_finished,
    "run.inference.started": _asked_model,
    "run.inference.completed": _answered,
    "run.inference.cut": _answered,
    "run.inference.retried": _retried,
    "run.usage.spent": _retried,
    "run.message.delta": _text,
    "run.reasoning.delta": _reasoning,
    "run.message.completed": _completed,
    "run.message.discarded": _discarded,
    "run.tool.call": _called,
    "run.tool.result": _result,
    "run.approval.requested": _requested,
    "run.approval.resolved": _resolved,
    "run.input.received": _steered,
}


def _index(entries: Sequence[HistoryEntry], name: str) -> int | None:
    return next((at for at in range(len(entries) - 1, -1, -1) if entries[at].id == name), None)


def _add(history: RunHistory, entry: HistoryEntry) -> RunHistory:
    return attrs.evolve(history, entries=(*history.entries, entry))


def _put(history: RunHistory, at: int, entry: HistoryEntry) -> RunHistory:
    return attrs.evolve(history, entries=(*history.entries[:at], entry, *history.entries[at + 1 :]))


def _grow(history: RunHistory, name: str, role: Literal["assistant", "reasoning"], text: str) -> RunHistory:
    growing = {**history.growing, name: history.growing.get(name, "") + text}
    if name not in history.growing:
        history = _add(history, HistoryEntry(id=name, role=role, text=""))
    return attrs.evolve(history, growing=growing)


def _settle(history: RunHistory, name: str) -> RunHistory:
    """Complete a growing message."""
    at = _index(history.entries, name)
    if at is None or name not in history.growing:
        return history
    history = _put(history, at, attrs.evolve(history.entries[at], text=history.growing[name]))
    return attrs.evolve(history, growing={key: text for key, text in history.growing.items() if key != name})


# --- messages --------------------------------------------------------------------------------------------------------


def messages(history: RunHistory, known: Sequence[Payload]) -> list[Payload]:
    """Return every message of the conversation, in order, for MESSAGES_SNAPSHOT.

    Args:
        history: The history of the run.
        known: The messages that the client has sent. Messages of other origin are kept unchanged; messages of this run
            are replaced by their present form, or left out if they were discarded or do not exist yet. Left out as well
            is a result that a client has made of a call of this run: some write the answer to an interrupt as one.
    """
    own = {entry.id: entry for entry in history.entries}
    placed: list[Payload] = []
    for message in known:
        entry = own.get(message["id"])
        if entry is None and str(message.get("toolCallId", "")).startswith(f"{history.run}:"):
            continue
        if entry is not None and entry.role != "given":
            placed.append(_message(entry, history))
        elif entry is not None or not made_by(history.run, message):
            placed.append(message)
        elif message["role"] == "reasoning":
            placed.append({**message, "content": ""})  # a client would keep it if it were left out
    there = {message["id"] for message in placed}
    behind: dict[str | None, list[Payload]] = {}
    anchor: str | None = None  # no message of the run is placed yet: its messages come last
    for entry in history.entries:
        if entry.id in there:
            anchor = entry.id
        elif entry.role != "given":
            behind.setdefault(anchor, []).append(_message(entry, history))
    whole = [shown for message in placed for shown in (message, *behind.get(message["id"], ()))]
    whole += behind.get(None, ())
    return whole


def made_by(run: str, message: Payload) -> bool:
    """Return True if the message is from this run."""
    return bool(run) and str(message["id"]).startswith(f"{run}.")


def _message(entry: HistoryEntry, history: RunHistory) -> dict[str, Any]:
    text = history.growing.get(entry.id, entry.text)
    message: dict[str, Any] = {"id": entry.id, "role": entry.role}
    if text is not None:
        message["content"] = text
    if entry.calls:
        message["toolCalls"] = [
            {"id": name, "type": "function", "function": {"name": tool, "arguments": arguments}}
            for name, tool, arguments in entry.calls
        ]
    if entry.call is not None:
        message["toolCallId"] = entry.call
    if entry.failed is not None:
        message["metadata"] = {"greenroom": entry.failed}
    return message
