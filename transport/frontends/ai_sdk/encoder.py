"""The AI SDK UI message stream, versions 6 and 7: the events of one run as the parts of one assistant message.

Theory of operation. `begin` creates the state of one stream, `step` folds one event and returns its parts, `finish`
closes the stream when the events end without a terminal one: the run waits for decisions, or the stream is interrupted.
The events of a run are always fed from sequence 1 on; up to `after` they are folded silently, because the reader's
message already includes them. The same events therefore always yield the same parts, for every reader.

A stream is well-formed wherever it ends: `start` first and once, `finish` last and once, every block and step closed
before it, every tool part in a state that the protocol defines. At most one block is open at a time.

| event | parts |
|---|---|
| (the first that is sent) | `start` with the run's id as messageId, `data-run` |
| run.step.started, run.step.finished | `start-step`, `finish-step` |
| run.message.delta, run.reasoning.delta | `text-*`, `reasoning-*`: a new block when the kind changes |
| run.message.completed | the part of the text that was not streamed; `text-end`, with `cut` if the run ended first |
| run.message.discarded | v7: `reset-step` removes the text. v6 cannot: `data-discarded` names message and blocks |
| run.message.completed of a body (with `callId`) | `data-tool-message` |
| the other three of a body | `data-tool-text`, `data-tool-reasoning`, `data-tool-discarded`, transient |
| run.plan.changed | `data-plan` with the call's id, replaced by the next |
| run.tool.call | nothing yet: a part of a call that waits behind an approval would prevent the client from answering |
| run.tool.started | `tool-input-available` |
| run.tool.progress | `data-tool-progress`, replaced by the next |
| run.tool.output.delta | `data-tool-output`, transient: a preliminary output would have another type than the output |
| run.approval.requested | `data-ticket`; `tool-approval-request`, or the part is left to the client (see below) |
| run.approval.resolved | `data-ticket`; v7: `tool-approval-response` |
| run.tool.result | `tool-output-available`, `tool-output-error`, or `tool-output-denied` |
| run.task.started, run.task.progress, run.task.finished | `data-task` with `status`, replaced by the next |
| run.task.output.delta | `data-task-output`, transient |
| run.child.started, run.child.finished | `data-child` with the call's id, replaced by the next |
| run.handoff | `data-handoff` with the call's id |
| run.input.received | `data-input` |
| run.degraded, run.inference.retried, run.context.trimmed | `data-notice` |
| run.cleanup.overrun, run.guardrail.tripped | `data-notice` |
| runtime.unavailable, runtime.timeout, schema.validation_failed | `data-notice` |
| run.cancel.requested, run.pause.requested, run.decision.refused | `data-notice` |
| run.waiting, at the end of the stream | requests that are still open; `finish-step`, `data-run`, `finish` tool-calls |
| (the same, if only the run itself waits: a pause) | `finish-step`, `data-run`, `finish` other |
| run.completed | `finish-step`, `data-run`, `finish` stop, length or other |
| run.failed | `finish-step`, `data-run`, `error`, `finish` error or content-filter |
| run.cancelled | `finish-step`, `data-run`, `abort`, `finish` other |
| (the events end while the run works) | `finish-step`, `data-run` interrupted, `error`, `finish` error |

`answer` in a ticket's `data-ticket` says how the ticket is answered, and the tool part shows it.

| ticket | answer | tool part while it is open |
|---|---|---|
| of a call that would run again (approvals, outcome_unknown) | approval | approval-requested |
| whose decision has a value (another resume mode, a response_schema) | output | input-available: the client runs it |
| of a child run (child_approval) whose decision has a value | command | none: POST /v1/runs/{run}/commands |
| of no call | command | none: POST /v1/runs/{run}/commands |

`addToolApprovalResponse` gives an approval, `addToolOutput` an output; for outcome_unknown an output is the result.

All other calls are marked `providerExecuted`: the client neither runs them nor sends a request when they end. v6 has no
part for the answer to an approval. Its requests are therefore sent at the end of the stream, and only those that are
still open: a replay does not repeat answered requests. The same holds for values in both versions.

A nested call has a part like other calls, with `parentCallId` in `providerMetadata.greenroom`. While it asks, its
parent call has neither an output nor a request, and a client that sends answers by itself (`sendAutomaticallyWhen`)
waits until each part of the newest step has an output or an answer. At the end of the stream the parent's part is
therefore marked as approved automatically (v7), or the open requests get a step of their own (v6).

Data parts have the payload of their event (docs/events.md); `data-ticket` adds status and answer. `data-run` is made
here: the state of the run, and the `sequence` up to which the message includes the run. A client returns this part with
its decision, and receives what is new. Texts and reasonings have `messageId` and `blockId` in
`providerMetadata.greenroom`, parts that wait for an output have `ticketId`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal

from greenroom.actors.contract.decisions import asks_outcome
from greenroom.actors.contract.envelope import Event

from .builder import (
    AiSdkBuilder,
    AiSdkState,
    Part,
    Payload,
    StreamedCall,
    StreamEnd,
    ToolPart,
    Version,
    requested,
    unset,
)

INTERRUPTED: Final = "The stream has ended before the run has. The run continues: resume the stream."
"""Default error text of an interrupted stream."""
_HIDDEN: Final = ("tool", "arguments", "parameters", "responseSchema", "fingerprint")
"""Fields of a ticket that are not repeated when it is closed: they may be large, and the tool part has them."""


def begin(
    run_id: str, *, version: Version = "v7", after: int = 0, reader: Mapping[str, ToolPart] | None = None
) -> AiSdkState:
    """Create the state of a stream before the first event.

    Args:
        run_id: The run, whose id is also the id of the message.
        version: Version of the client. Parts that v6 does not define are never sent to it.
        after: Sequence up to which the reader's message includes the run; later events become parts. 0 makes a complete
            message, which is also how a stream is resumed.
        reader: Call id -> tool part in the reader's message, if known; otherwise the reader is assumed to have the
            whole stream up to `after`.
    """
    return AiSdkState(version=version, run_id=run_id, after=after, reader=reader)


def step(state: AiSdkState, event: Event) -> tuple[AiSdkState, tuple[Part, ...]]:
    """Fold the next event; return the state and its parts. No part follows the terminal event."""
    if state.ended:
        return state, ()
    draft = AiSdkBuilder(state)
    draft.sequence = event.sequence
    if event.type == "run.created":
        draft.thread_id, draft.agent_id = event.payload["threadId"], event.agent_id
    live = event.sequence > state.after
    if live and not state.opened:
        draft.open()
    handler = _ON.get(event.type)
    if handler is not None:
        handler(draft, event.payload)
    elif event.type in _NOTICES:
        draft.notice(event)
    if live and draft.end is not None:
        draft.close(draft.end)
    return draft.build(), tuple(draft.parts) if live else ()


def finish(state: AiSdkState, *, reason: str = INTERRUPTED) -> tuple[AiSdkState, tuple[Part, ...]]:
    """Close the stream at the end of the events, unless a terminal event has closed it.

    Args:
        state: After the last event.
        reason: Error text if the run neither waits nor is done.
    """
    if state.ended:
        return state, ()
    draft = AiSdkBuilder(state)
    if not state.opened:
        draft.open()
    if state.end is not None:
        draft.close(state.end)
    elif state.waiting and state.tickets:  # between two events of one commit, a waiting run may have no ticket yet
        draft.let_answer()
        for call_id in state.calls:
            _request(draft, call_id)
        of_calls = any(ticket["callId"] is not None for ticket in state.tickets.values())
        draft.close(StreamEnd(status="waiting", reason="tool-calls" if of_calls else "other"))
    else:
        error = {"type": "error", "errorText": reason}
        draft.close(StreamEnd(status="interrupted", reason="error", last=(error,)))
    return draft.build(), tuple(draft.parts)


# --- handlers: one per event -----------------------------------------------------------------------------------------


def _started_step(d: AiSdkBuilder, _: Payload) -> None:
    d.end_step()
    d.calls, d.kept, d.answering, d.in_step = {}, {}, None, True
    d.say("start-step")


def _finished_step(d: AiSdkBuilder, _: Payload) -> None:
    d.end_step()


def _text(d: AiSdkBuilder, payload: Payload) -> None:
    if "callId" in payload:
        d.say("data-tool-text", data=payload, transient=True)
        return
    d.more("text", payload["messageId"], payload["text"])


def _reasoning(d: AiSdkBuilder, payload: Payload) -> None:
    if "callId" in payload:
        d.say("data-tool-reasoning", data=payload, transient=True)
        return
    d.more("reasoning", payload["messageId"], payload["text"])


def _completed_message(d: AiSdkBuilder, payload: Payload) -> None:
    if "callId" in payload:
        d.data("tool-message", payload["messageId"], payload)
        return
    message_id, text = payload["messageId"], payload["text"]
    shown = d.answering.text if d.answering is not None and d.answering.id == message_id else ""
    if shown and payload.get("large"):
        text = shown  # `text` is an excerpt; the deltas have the full text
    if not text.startswith(shown):
        d.take_back(message_id, "the message reads otherwise than it was streamed")
        shown = ""
    d.more("text", message_id, text[len(shown) :])
    d.end_block(cut=payload.get("cut", False))


def _discarded(d: AiSdkBuilder, payload: Payload) -> None:
    if "callId" in payload:
        d.say("data-tool-discarded", data=payload, transient=True)
        return
    d.take_back(payload["messageId"], payload["reason"])


def _called(d: AiSdkBuilder, payload: Payload) -> None:
    d.end_block()
    call = StreamedCall(tool=payload["tool"], arguments=payload["arguments"], parent=payload.get("parentCallId"))
    d.calls = {**d.calls, payload["callId"]: call}


def _started_call(d: AiSdkBuilder, payload: Payload) -> None:
    d.waiting = False
    call = d.calls.get(payload["callId"])
    if call is not None and (unset(call.part) or not call.part.provider):
        d.show(payload["callId"])


def _progress(d: AiSdkBuilder, payload: Payload) -> None:
    d.data("tool-progress", payload["callId"], payload)


def _printed(d: AiSdkBuilder, payload: Payload) -> None:
    d.say("data-tool-output", data=payload, transient=True)


def _task(d: AiSdkBuilder, payload: Payload) -> None:
    d.data("task", payload["taskId"], {"status": "running", **payload})


def _planned(d: AiSdkBuilder, payload: Payload) -> None:
    d.data("plan", payload["callId"], payload)


def _child(d: AiSdkBuilder, payload: Payload) -> None:
    d.data("child", payload["callId"], {"stage": "running", **payload})


def _handed_over(d: AiSdkBuilder, payload: Payload) -> None:
    d.data("handoff", payload["callId"], payload)


def _task_printed(d: AiSdkBuilder, payload: Payload) -> None:
    d.say("data-task-output", data=payload, transient=True)


def _opened_ticket(d: AiSdkBuilder, payload: Payload) -> None:
    ticket_id, call_id = payload["ticketId"], payload["callId"]
    in_message = call_id is not None and call_id in d.calls
    wants = _wants(payload)
    in_message = in_message and not (wants == "output" and payload.get("childRunId") is not None)
    answer_kind = wants if in_message else "command"
    d.tickets = {**d.tickets, ticket_id: payload}
    d.data("ticket", ticket_id, {**payload, "status": "open", "answer": answer_kind})
    if not in_message:
        return
    call = d.put(call_id, ticket=ticket_id, wants=wants, message=payload.get("message", ""))
    if not d.v7:
        return
    if unset(call.part):
        d.show(call_id)
    if answer_kind == "approval":
        d.ask(call_id, ticket_id)


def _closed_ticket(d: AiSdkBuilder, payload: Payload) -> None:
    ticket_id, call_id, how = payload["ticketId"], payload["callId"], payload["resolution"]
    opened = {name: value for name, value in d.tickets.get(ticket_id, {}).items() if name not in _HIDDEN}
    d.tickets = {name: ticket for name, ticket in d.tickets.items() if name != ticket_id}
    facts = {name: value for name, value in payload.items() if name not in ("resolution", "reason")}
    if payload.get("reason") is not None:
        facts["decisionReason"] = payload["reason"]
    d.data("ticket", ticket_id, {**opened, **facts, "status": how})
    call = d.calls.get(call_id)
    if call is None or call.ticket != ticket_id:
        return
    call = d.put(call_id, wants="nothing")
    _next_mirror(d, call_id)
    # for other resolutions, the result shows the outcome
    if call.part.approval == ticket_id and how in ("approved", "denied"):
        d.respond(call_id, how == "approved", payload.get("reason"))


def _result(d: AiSdkBuilder, payload: Payload) -> None:
    call_id = payload["callId"]
    call = d.calls.get(call_id)
    if call is None:
        return
    if call.part.state is None:
        d.show(call_id)
    if payload["status"] == "succeeded":
        if d.v7 and d.calls[call_id].part.approved is False:
            d.approve(call_id)  # what was denied was a call of its child run
        _settle_approval(d, call_id, True, None)
        d.parts.append(
            {
                "type": "tool-output-available",
                "toolCallId": call_id,
                "output": payload.get("result"),
                "providerExecuted": True,
            }
        )
    else:
        _failed_call(d, call_id, payload)
    d.calls = {name: other for name, other in d.calls.items() if name != call_id}


def _failed_call(d: AiSdkBuilder, call_id: str, payload: Payload) -> None:
    denied = payload.get("code") == "approval_rejected"
    text = str(payload.get("result") or payload.get("code") or payload["status"])
    call = d.calls[call_id]
    if d.v7 and denied and call.part.approval is None and call.ticket is not None:
        d.ask(call_id, call.ticket)  # a denied request for a value: the protocol has denials only for approvals
    _settle_approval(d, call_id, False, text)
    part = d.calls[call_id].part
    if part.approved is False or (denied and part.approval is not None and part.approved is None):
        d.say("tool-output-denied", toolCallId=call_id)
    else:
        d.say("tool-output-error", toolCallId=call_id, errorText=text, providerExecuted=True)


def _settle_approval(d: AiSdkBuilder, call_id: str, approved: bool, reason: str | None) -> None:
    """Answer an open approval when the result arrives: a terminal part must not have an open request."""
    if d.calls[call_id].part.approved is None:
        d.respond(call_id, approved, reason)


def _input(d: AiSdkBuilder, payload: Payload) -> None:
    d.data("input", payload["messageId"], payload)


def _moved(d: AiSdkBuilder, _: Payload) -> None:
    d.waiting = False


def _waits(d: AiSdkBuilder, _: Payload) -> None:
    d.end_block()
    d.waiting = True


def _ended(d: AiSdkBuilder, payload: Payload) -> None:
    facts = {name: payload[name] for name in ("usage", "steps", "activeSeconds") if name in payload}
    if "output" in payload and not isinstance(payload["output"], str):
        facts["output"] = payload["output"]
    kind, code = payload["termination"], payload.get("code")
    detail = payload.get("detail") or payload.get("message") or payload.get("reason")
    why = {"kind": kind, "code": code, "detail": detail, "by": payload["by"]}
    facts["termination"] = {name: value for name, value in why.items() if value is not None}
    last: list[Part] = []
    match payload["to"]:
        case "failed":
            last = [{"type": "error", "errorText": str(detail or code)}]
            reason = "content-filter" if kind == "blocked" else "error"
        case "cancelled":
            last = [{"type": "abort", "reason": detail} if detail else {"type": "abort"}]
            reason = "other"
        case _:
            reason = _STOPPED.get(code or "", "other") if kind == "stopped" else "stop"
    d.end = StreamEnd(status="done", reason=reason, last=tuple(last), facts=facts)


_STOPPED: Final[Mapping[str, str]] = {"max_rounds": "length", "token_budget": "length", "timeout": "length"}
"""Stop condition -> finishReason; all others are "other"."""

_NOTICES: Final = frozenset(
    {
        *("run.degraded", "run.cancel.requested", "run.pause.requested", "run.decision.refused"),
        *("run.inference.retried", "run.context.trimmed", "run.cleanup.overrun", "run.guardrail.tripped"),
        *("runtime.unavailable", "runtime.timeout", "schema.validation_failed"),
    }
)

_ON: Final[Mapping[str, Callable[[AiSdkBuilder, Payload], None]]] = {
    "run.started": _moved,
    "run.resumed": _moved,
    "run.applying": _moved,
    "run.waiting": _waits,
    "run.step.started": _started_step,
    "run.step.finished": _finished_step,
    "run.message.delta": _text,
    "run.reasoning.delta": _reasoning,
    "run.message.completed": _completed_message,
    "run.message.discarded": _discarded,
    "run.tool.call": _called,
    "run.tool.started": _started_call,
    "run.tool.progress": _progress,
    "run.tool.output.delta": _printed,
    "run.tool.result": _result,
    "run.task.started": _task,
    "run.task.progress": _task,
    "run.task.output.delta": _task_printed,
    "run.task.finished": _task,
    "run.plan.changed": _planned,
    "run.child.started": _child,
    "run.child.finished": _child,
    "run.handoff": _handed_over,
    "run.approval.requested": _opened_ticket,
    "run.approval.resolved": _closed_ticket,
    "run.input.received": _input,
    "run.completed": _ended,
    "run.failed": _ended,
    "run.cancelled": _ended,
}


# --- tool parts ------------------------------------------------------------------------------------------------------


def answer_of(reason: str, resume_mode: str, response_schema: object) -> Literal["approval", "output"]:
    """Return how a ticket of a call is answered; see the module."""
    if reason == "outcome_unknown":
        return "approval"
    return "output" if response_schema is not None or resume_mode != "replay_tool_call" else "approval"


def _wants(ticket: Payload) -> Literal["approval", "output"]:
    unknown = asks_outcome(ticket["reason"], ticket.get("action", ""))
    reason = "outcome_unknown" if unknown else ticket["reason"]
    return answer_of(reason, ticket["resumeMode"], ticket.get("responseSchema"))


def _next_mirror(d: AiSdkBuilder, call_id: str) -> None:
    """Let the call's part ask for another open mirror: a part has one request at a time, a call several mirrors."""
    for ticket_id, ticket in d.tickets.items():
        if ticket["callId"] == call_id and ticket.get("childRunId") is not None and _wants(ticket) == "approval":
            d.put(call_id, ticket=ticket_id, wants="approval", message=ticket.get("message", ""))
            return


def _request(d: AiSdkBuilder, call_id: str) -> None:
    """Request what the call's open ticket wants, at the end of a stream, unless the reader has the request."""
    call = d.calls[call_id]
    part, new_part = call.part, requested(call).part
    if new_part == part or call.ticket is None:
        return
    if new_part.state == "approval-requested":
        d.ask(call_id, call.ticket)
    else:
        d.show(call_id, ticket=call.ticket)
