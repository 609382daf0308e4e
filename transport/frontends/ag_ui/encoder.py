"""AG-UI 1.0: the events of one run as the events of an AG-UI run.

Theory of operation. AG-UI ends its run at an interrupt, and the answers arrive with a new AG-UI run; so one Greenroom
run is several AG-UI runs of a thread, one after the other. `begin` creates the state of one of them, `step` folds one
event and returns the events for the client, `finish` closes all open elements when the events end without a terminal
one. The events are always fed from sequence 1 on; those that the client received in an earlier AG-UI run are folded
silently. The beginning and the end of an AG-UI run derive from the log and from the interrupts that the client answers,
so the same request yields the same events at any later time.

A text that the end of the run has cut has `metadata.greenroom.cut` in its TEXT_MESSAGE_END.

Everything that was opened is closed before RUN_FINISHED and RUN_ERROR, in every case, and no event follows those.
Timestamps are those of the events.

| event | AG-UI |
|---|---|
| (the first that is sent) | RUN_STARTED; if the client has seen the run before: MESSAGES_SNAPSHOT, STEP_STARTED |
| run.created, if the client has not sent the input | TEXT_MESSAGE_START, -CONTENT and -END of a user |
| run.step.started, run.step.finished | STEP_STARTED, STEP_FINISHED |
| run.message.delta | TEXT_MESSAGE_START if it is not open, TEXT_MESSAGE_CONTENT |
| run.reasoning.delta | REASONING_START and REASONING_MESSAGE_START if they are not open, REASONING_MESSAGE_CONTENT |
| run.message.completed | the missing part of the text, TEXT_MESSAGE_END; if the text differs, MESSAGES_SNAPSHOT |
| run.message.discarded | open elements are closed; MESSAGES_SNAPSHOT without the message |
| run.inference.completed | the reasoning is closed; its tokens are counted for `usage` |
| run.inference.retried | CUSTOM; its tokens are counted, under no model |
| run.usage.spent, run.inference.cut | its tokens are counted, under no model |
| these four of a body (with `callId`) | CUSTOM: they are no messages of the conversation |
| run.tool.call | TOOL_CALL_START, TOOL_CALL_ARGS, TOOL_CALL_END |
| run.tool.result | TOOL_CALL_RESULT; a failure is in `metadata.greenroom` |
| run.tool.progress, run.tool.output.delta | ACTIVITY_SNAPSHOT of type greenroom.tool, then ACTIVITY_DELTA |
| run.input.received | TEXT_MESSAGE_START, -CONTENT and -END of a user, unless the client sent the message |
| events of interest to a front end without an AG-UI equivalent (`CUSTOM`) | CUSTOM `greenroom.<type>`: the payload |
| run.waiting, except for tickets that are being answered | STATE_SNAPSHOT, MESSAGES_SNAPSHOT, RUN_FINISHED interrupt |
| run.completed | STATE_SNAPSHOT, RUN_FINISHED success with the output as `result` |
| run.cancelled | STATE_SNAPSHOT, RUN_FINISHED cancelled (a client before version 1.0: RUN_ERROR `cancelled`) |
| run.failed | RUN_ERROR with the failure's code |
| all others | nothing |

A client before version 1.0 knows the outcomes success and interrupt only, and lets nothing pass an interrupt that has
expired. It gets RUN_ERROR with code `cancelled` for a cancelled run, the time of expiry in `metadata.greenroom`, and
RUN_FINISHED before the RUN_ERROR of a run that it resumed.

`STATE_SNAPSHOT` returns the client's own state, with `greenroom` added: run, agent, stage, step and open tickets.
`ag_ui_history` defines the ids of messages, `ag_ui_interrupts` the form of interrupts and answers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import attrs
import msgspec

from greenroom.actors.contract.catalogue import TERMINAL_EVENTS
from greenroom.actors.contract.envelope import Event
from greenroom.actors.contract.ids import message_id
from greenroom.actors.contract.messages import Usage

from .builder import AgUiBuilder, AgUiState, Payload, Sent
from .history import RunHistory, call_name, failure_of, fold, is_spoken, messages, reasoning_id, result_id, result_text

ACTIVITY: Final = "greenroom.tool"
"""activityType of a running tool's activity: toolCallId, attempt, fraction, text and output (a list of pieces)."""
CUT: Final = ("interrupted", "The stream ended before the run did; the run continues. Send the same request again.")
"""Default code and message of RUN_ERROR."""

_encode = msgspec.json.Encoder().encode


def begin(
    *,
    thread_id: str,
    run_id: str,
    parent_run_id: str | None = None,
    versioned: bool = True,
    known: Sequence[Payload] = (),
    agreed: int | None = None,
    shared: object = None,
    start_message: str | None = None,
    sent: Mapping[str, str] | None = None,
    answered: Collection[str] = (),
    after: int | None = None,
) -> AgUiState:
    """Create the state of an AG-UI run before the first event.

    Args:
        thread_id: As sent by the client.
        run_id: As sent by the client; not the id of the Greenroom run.
        parent_run_id: As sent by the client.
        versioned: The client has named its version of the protocol; those before 1.0 name none.
        known: The messages that the client has sent, as plain data without nulls.
        agreed: Length of the prefix of `known` that the client has sent; the rest is sent to the client first. None:
            all.
        shared: The state that the client has sent; None for none.
        start_message: Id of the message in `known` that started the run.
        sent: Command id -> id of the message in `known` that this command carried to the run.
        answered: The interrupts that this AG-UI run answers; it begins with the first of these decisions.
        after: Alternatively, the sequence of the last event that the client has received.
    """
    return AgUiState(
        thread_id=thread_id,
        run_id=run_id,
        parent_run_id=parent_run_id,
        versioned=versioned,
        known=tuple(known),
        agreed=agreed,
        shared=shared,
        answered=frozenset(answered),
        after=0 if after is None and not answered else after,
        history=RunHistory(start_message=start_message, sent={} if sent is None else sent),
    )


def step(state: AgUiState, event: Event) -> tuple[AgUiState, tuple[Sent, ...]]:
    """Fold the next event; return the state and the events for the client. No event follows a terminal one."""
    if state.ended:
        return state, ()
    before, after = state.history, fold(state.history, event)
    state = attrs.evolve(state, history=after)
    if not state.started and _known(state, event):
        return state, ()
    draft = AgUiBuilder(state)
    if not state.started:
        draft.open(before)
    spoken = is_spoken(event)
    handler = None if spoken else _ON.get(event.type)
    if handler is not None:
        handler(draft, before, event.payload)
    elif spoken or event.type in CUSTOM:
        draft.put("CUSTOM", name=f"greenroom.{event.type.removeprefix('run.')}", value=event.payload)
    elif event.type in TERMINAL_EVENTS:
        draft.end()
    return draft.build(), tuple(draft.events)


def finish(state: AgUiState, *, code: str | None = None, message: str = "") -> tuple[AgUiState, tuple[Sent, ...]]:
    """Close the AG-UI run at the end of the events, unless it is closed.

    Args:
        state: After the last event, or before the first.
        code: Why no more events follow. None derives the end from the run's state, and uses `CUT` for a working run.
        message: A sentence for the code.
    """
    if state.ended:
        return state, ()
    draft = AgUiBuilder(state)
    if not state.started:
        draft.open(state.history)
    if code is not None:
        draft.fail(code, message)
    elif state.history.end is not None:
        draft.end()
    elif state.history.tickets:
        draft.interrupt(tuple(state.history.tickets))
    else:
        draft.fail(*CUT)
    return draft.build(), tuple(draft.events)


def snapshot(state: AgUiState) -> list[Payload]:
    """Return the present messages of the conversation, in order."""
    return messages(state.history, state.known)


def frame(events: Sequence[Sent]) -> bytes:
    """Encode events for the client as server-sent events."""
    return b"".join(b"data: %b\n\n" % _encode(event) for event in events)


def _known(state: AgUiState, event: Event) -> bool:
    """Return True if the client has received this event before: it precedes the effects of the client's answers."""
    if state.after is not None:
        return event.sequence <= state.after
    if event.type == "run.approval.resolved":
        return event.payload["ticketId"] not in state.answered
    return event.type not in TERMINAL_EVENTS


# --- what an event comes to ------------------------------------------------------------------------------------------


def _created(draft: AgUiBuilder, _: RunHistory, payload: Payload) -> None:
    if draft.history.start_message is None:
        draft.put_user_message(message_id(draft.history.run, 1), payload["input"])


def _step_started(draft: AgUiBuilder, _: RunHistory, payload: Payload) -> None:
    draft.open_step(payload["step"])


def _step_finished(draft: AgUiBuilder, _: RunHistory, __: Payload) -> None:
    draft.close_step()


def _text(draft: AgUiBuilder, _: RunHistory, payload: Payload) -> None:
    draft.close_reasoning()
    draft.open_text(payload["messageId"])
    draft.put("TEXT_MESSAGE_CONTENT", messageId=payload["messageId"], delta=payload["text"])


def _reasoning(draft: AgUiBuilder, _: RunHistory, payload: Payload) -> None:
    name = reasoning_id(payload["messageId"])
    draft.open_reasoning(name)
    draft.put("REASONING_MESSAGE_CONTENT", messageId=name, delta=payload["text"])


def _answered(draft: AgUiBuilder, _: RunHistory, payload: Payload) -> None:
    draft.close_reasoning()
    draft.spend(payload["model"], Usage(**payload["usage"]))


def _retried(draft: AgUiBuilder, _: RunHistory, payload: Payload) -> None:
    draft.spend("", Usage(**payload.get("usage") or {}))
    draft.put("CUSTOM", name="greenroom.inference.retried", value=payload)


def _spent(draft: AgUiBuilder, _: RunHistory, payload: Payload) -> None:
    draft.spend("", Usage(**payload["usage"]))


def _completed(draft: AgUiBuilder, before: RunHistory, payload: Payload) -> None:
    name, text = payload["messageId"], payload["text"]
    streamed = before.growing.get(name)
    if streamed and payload.get("large"):
        text = streamed  # `text` is an excerpt; the deltas have the full text
    draft.close_reasoning()
    if streamed is None or text.startswith(streamed):
        rest = text[len(streamed or "") :]
        if rest or streamed is None:
            draft.open_text(name)
        if rest:
            draft.put("TEXT_MESSAGE_CONTENT", messageId=name, delta=rest)
        draft.close_text(is_cut=payload.get("cut", False))
    else:
        draft.close_text()
        draft.snapshot()


def _discarded(draft: AgUiBuilder, _: RunHistory, __: Payload) -> None:
    draft.close_reasoning()
    draft.close_text()
    draft.snapshot()


def _called(draft: AgUiBuilder, _: RunHistory, payload: Payload) -> None:
    name, owner = call_name(draft.history, payload["callId"]), draft.history.owners[payload["callId"]]
    draft.close_reasoning()
    draft.close_text()
    draft.put("TOOL_CALL_START", toolCallId=name, toolCallName=payload["tool"], parentMessageId=owner)
    draft.put("TOOL_CALL_ARGS", toolCallId=name, delta=_encode(payload["arguments"]).decode())
    draft.put("TOOL_CALL_END", toolCallId=name)


def _result(draft: AgUiBuilder, _: RunHistory, payload: Payload) -> None:
    call_id, is_failure = payload["callId"], failure_of(payload)
    draft.put(
        "TOOL_CALL_RESULT",
        messageId=result_id(draft.history, call_id),
        toolCallId=call_name(draft.history, call_id),
        content=result_text(payload),
        role="tool",
        metadata=None if is_failure is None else {"greenroom": is_failure},
    )


def _progress(draft: AgUiBuilder, _: RunHistory, payload: Payload) -> None:
    events = {"fraction": payload["fraction"], "text": payload.get("text", "")}
    patch = [{"op": "add", "path": f"/{name}", "value": value} for name, value in events.items()]
    _activity(draft, payload, {**events, "output": []}, patch)


def _printed(draft: AgUiBuilder, _: RunHistory, payload: Payload) -> None:
    patch = [{"op": "add", "path": "/output/-", "value": payload["text"]}]
    _activity(draft, payload, {"output": [payload["text"]]}, patch)


def _activity(draft: AgUiBuilder, payload: Payload, content: dict[str, Any], patch: list[dict[str, Any]]) -> None:
    """Send an activity: the first of an attempt replaces that of the previous attempt; later ones are appended."""
    attempt = (payload["callId"], payload["attempt"])
    name = f"{result_id(draft.history, payload['callId'])}:activity"
    if attempt in draft.activities:
        draft.put("ACTIVITY_DELTA", messageId=name, activityType=ACTIVITY, patch=patch)
        return
    draft.activities |= {attempt}
    content = {"toolCallId": call_name(draft.history, attempt[0]), "attempt": attempt[1], **content}
    draft.put("ACTIVITY_SNAPSHOT", messageId=name, activityType=ACTIVITY, content=content, replace=True)


def _steered(draft: AgUiBuilder, _: RunHistory, payload: Payload) -> None:
    if payload["commandId"] not in draft.history.sent:
        draft.put_user_message(payload["messageId"], payload["text"])


def _waiting(draft: AgUiBuilder, _: RunHistory, payload: Payload) -> None:
    """End the AG-UI run, unless the run waits for answers that have not reached it yet."""
    if draft.state.answered.isdisjoint(payload["tickets"]):
        draft.interrupt(payload["tickets"])


_ON: Final[Mapping[str, Callable[[AgUiBuilder, RunHistory, Payload], None]]] = {
    "run.created": _created,
    "run.step.started": _step_started,
    "run.step.finished": _step_finished,
    "run.message.delta": _text,
    "run.reasoning.delta": _reasoning,
    "run.inference.completed": _answered,
    "run.inference.retried": _retried,
    "run.usage.spent": _spent,
    "run.inference.cut": _spent,
    "run.message.completed": _completed,
    "run.message.discarded": _discarded,
    "run.tool.call": _called,
    "run.tool.result": _result,
    "run.tool.progress": _progress,
    "run.tool.output.delta": _printed,
    "run.input.received": _steered,
    "run.waiting": _waiting,
}
CUSTOM: Final = frozenset(
    {
        "run.applying",
        "run.resumed",
        "run.degraded",
        "run.context.trimmed",
        "run.cancel.requested",
        "run.pause.requested",
        "run.decision.refused",
        "run.cleanup.overrun",
        "run.guardrail.tripped",
        "run.task.started",
        "run.task.progress",
        "run.task.output.delta",
        "run.task.finished",
        "run.child.started",
        "run.child.finished",
        "run.handoff",
        "run.approval.requested",
        "run.approval.resolved",
        "run.plan.changed",
        "runtime.unavailable",
        "runtime.timeout",
        "schema.validation_failed",
    }
)
"""Events without an AG-UI equivalent that a front end may show."""
