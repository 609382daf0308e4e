"""The state of an AI SDK stream, and the builder of its parts. `ai_sdk.py` decides when each part is sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import attrs

from greenroom.actors.contract.envelope import Event
from greenroom.actors.contract.plain import JSONObject

Version = Literal["v6", "v7"]
VERSIONS: Final[tuple[Version, ...]] = ("v6", "v7")
Part = dict[str, Any]
Payload = JSONObject

ASKS_AGAIN: Final = "This call asks again, below."
"""The error text of a part that another one of the same call replaces."""


@attrs.frozen(kw_only=True)
class ToolPart:
    """The reader's tool part of a call.

    Attributes:
        state: State of the client's tool part, or None.
        provider: True if the part is marked as executed by the provider, so that the client does not run it.
        approval: Id of the approval in the part.
        approved: The answer to the approval, or None.
        earlier: True if the part is in an earlier step of the message than the newest.
    """

    state: str | None = None
    provider: bool = True
    approval: str | None = None
    approved: bool | None = None
    earlier: bool = False


@attrs.frozen(kw_only=True)
class StreamedCall:
    """A call of the current step: its request, the reader's part of it, and what its newest ticket wants.

    `parent`: the call whose body makes this call (a nested call), or None.
    """

    tool: str
    arguments: JSONObject
    parent: str | None = None
    part: ToolPart = attrs.field(factory=ToolPart)
    ticket: str | None = None
    wants: Literal["nothing", "approval", "output"] = "nothing"
    message: str = ""


@attrs.frozen(kw_only=True)
class OpenMessage:
    """The message that is being streamed: its text, the ids of its blocks, and the kind of the open block."""

    id: str
    text: str = ""
    blocks: tuple[str, ...] = ()
    open: Literal["text", "reasoning"] | None = None


@attrs.frozen(kw_only=True)
class StreamEnd:
    """The end of a stream: status and facts for `data-run`, finishReason, and the parts before `finish`, if any."""

    status: str
    reason: str
    last: tuple[Part, ...] = ()
    facts: JSONObject = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class AiSdkState:
    """The state of one stream between two events. Created by `begin`; opaque to callers.

    Attributes:
        version, run_id, after, reader: As passed to `begin`.
        sequence: Sequence of the newest event.
        opened, ended: True after `start` and `finish` have been sent.
        in_step: True between `start-step` and `finish-step`.
        waiting: True while the run waits for decisions.
        end: The end of the run, if it has not been sent yet.
        answering: The message of the inference in flight.
        calls: The calls of the current step, by call id.
        tickets: The open tickets, by id.
        kept: Data parts since the step began; `reset-step` removes them with the text.
        thread_id, agent_id: The thread and the agent of the run.
    """

    version: Version
    run_id: str
    after: int
    reader: Mapping[str, ToolPart] | None
    sequence: int = 0
    opened: bool = False
    ended: bool = False
    in_step: bool = False
    waiting: bool = False
    end: StreamEnd | None = None
    answering: OpenMessage | None = None
    calls: Mapping[str, StreamedCall] = attrs.field(factory=dict)
    tickets: Mapping[str, Payload] = attrs.field(factory=dict)
    kept: Mapping[tuple[str, str], Part] = attrs.field(factory=dict)
    thread_id: str = ""
    agent_id: str = ""


class AiSdkBuilder:
    """A mutable copy of a state, and the new parts."""

    def __init__(self, state: AiSdkState) -> None:
        self.before = state
        self.v7 = state.version == "v7"
        self.parts: list[Part] = []
        self.sequence, self.end = state.sequence, state.end
        self.opened, self.ended, self.in_step, self.waiting = state.opened, state.ended, state.in_step, state.waiting
        self.answering, self.thread_id, self.agent_id = state.answering, state.thread_id, state.agent_id
        self.calls, self.tickets, self.kept = state.calls, state.tickets, state.kept

    def build(self) -> AiSdkState:
        """Return the resulting state."""
        names = ("sequence", "end", "opened", "ended", "in_step", "waiting", "answering", "calls", "tickets", "kept")
        changes = {name: getattr(self, name) for name in (*names, "thread_id", "agent_id")}
        return attrs.evolve(self.before, **changes)

    def say(self, kind: str, **fields: object) -> None:
        """Append a part. Fields that are None are left out, because clients reject null."""
        self.parts.append({"type": kind, **{name: value for name, value in fields.items() if value is not None}})

    def data(self, name: str, part_id: str, data: object) -> None:
        """Append a data part that stays in the message, replacing the part with the same id."""
        part = {"type": f"data-{name}", "id": part_id, "data": data}
        self.kept = {**self.kept, (name, part_id): part}
        self.parts.append(part)

    def notice(self, event: Event) -> None:
        """Append a transient notice about an event that is not part of the message."""
        data = {name: value for name, value in event.payload.items() if name != "stack"}
        self.say("data-notice", data={"event": event.type, **data}, transient=True)

    def open(self) -> None:
        """Append the first part: no element is open in this stream, whatever was open in the reader's earlier one."""
        self.opened, self.in_step = True, False
        if self.answering is not None:
            self.answering = attrs.evolve(self.answering, open=None)
        self.calls = self._as_read()
        self.say("start", messageId=self.before.run_id)
        self.data("run", self.before.run_id, self.facts("running", self.before.after))

    def _as_read(self) -> Mapping[str, StreamedCall]:
        """Return the calls with the parts that the reader has."""
        reader = self.before.reader
        if reader is not None:
            return {name: attrs.evolve(call, part=reader.get(name, ToolPart())) for name, call in self.calls.items()}
        if not self.waiting:
            return self.calls
        calls = self._answerable() if holds_back_answers(self.calls) else self.calls
        return {name: requested(call) for name, call in calls.items()}

    def facts(self, status: str, sequence: int) -> dict[str, Any]:
        """Return the content of `data-run`: the run's state, and the sequence up to which the message includes it."""
        where = {"runId": self.before.run_id, "threadId": self.thread_id, "agentId": self.agent_id}
        return {**where, "status": status, "sequence": sequence}

    def close(self, end: StreamEnd) -> None:
        """End the stream: close all open elements, then append the state of the run and `finish`."""
        self.end_step()
        self.data("run", self.before.run_id, {**self.facts(end.status, self.sequence), **end.facts})
        self.parts += end.last
        self.say("finish", finishReason=end.reason)
        self.ended, self.end = True, None

    def end_step(self) -> None:
        """Close the open block and the open step."""
        self.end_block()
        if self.in_step:
            self.say("finish-step")
            self.in_step = False

    def let_answer(self) -> None:
        """Keep the parts of calls that only wait for others from holding back the answers to the open requests.

        Such is the parent call of a nested call that asks. A client sends answers by itself once each part of the
        newest step has an answer or an output, and that part has neither. v7: it shows that the call was approved
        automatically. v6 has no part for that: the requests get a step of their own.
        """
        if not holds_back_answers(self.calls):
            return
        if self.v7:
            for call_id in [call_id for call_id, call in self.calls.items() if waits_for_others(call)]:
                self.approve(call_id)
        else:
            self.end_step()
            self.in_step = True
            self.say("start-step")
            self.calls = self._answerable()

    def _answerable(self) -> Mapping[str, StreamedCall]:
        """Return the calls after `let_answer`."""
        return {
            call_id: attrs.evolve(call, part=self._let_answer(call_id, call)) for call_id, call in self.calls.items()
        }

    def _let_answer(self, call_id: str, call: StreamedCall) -> ToolPart:
        if not self.v7:
            return attrs.evolve(call.part, earlier=call.part.state is not None)
        if not waits_for_others(call):
            return call.part
        return approved_automatically(call_id, call.part)

    def end_block(self, *, cut: bool = False) -> None:
        """Close the open block, if any. `cut`: the run ended while the model wrote it; the part keeps that."""
        now = self.answering
        if now is not None and now.open is not None:
            data = _metadata(now.id, now.blocks[-1]) if cut else None
            self.say(
                f"{now.open}-end", id=now.blocks[-1], providerMetadata=data and {"greenroom": {**data, "cut": True}}
            )
            self.answering = attrs.evolve(now, open=None)

    def more(self, kind: Literal["text", "reasoning"], message_id: str, text: str) -> None:
        """Append to a message: to the open block if it has this kind, otherwise to a new one."""
        if self.answering is None or self.answering.id != message_id:
            self.end_block()
            self.answering = OpenMessage(id=message_id)
        if not text:
            return
        now = self.answering
        if now.open != kind:
            self.end_block()
            block = f"{message_id}-{kind}-{len(now.blocks) + 1}"
            now = attrs.evolve(now, open=kind, blocks=(*now.blocks, block))
            self.say(f"{kind}-start", id=block, providerMetadata={"greenroom": _metadata(message_id, block)})
        self.say(f"{kind}-delta", id=now.blocks[-1], delta=text)
        self.answering = attrs.evolve(now, text=now.text + text) if kind == "text" else now

    def take_back(self, message_id: str, reason: str) -> None:
        """Remove a message's text that is not part of the history, or report it where removal is impossible."""
        now = self.answering
        self.end_block()
        if now is None or now.id != message_id or not now.blocks:
            return
        self.answering = OpenMessage(id=message_id, blocks=now.blocks)  # block numbers are not reused
        if self.v7:
            self.say("reset-step")
            self.parts += self.kept.values()
        else:
            self.data("discarded", message_id, {"messageId": message_id, "blocks": list(now.blocks), "reason": reason})

    # --- its calls ---------------------------------------------------------------------------------------------------

    def put(self, call_id: str, **changes: Any) -> StreamedCall:
        """Change the state of a call."""
        call = attrs.evolve(self.calls[call_id], **changes)
        self.calls = {**self.calls, call_id: call}
        return call

    def show(self, call_id: str, *, ticket: str | None = None) -> None:
        """Create the call's tool part, or reset it to its input. With a ticket, the client is to provide the output.

        A part in an earlier step is not reset but settled, and the call gets another one in this step.
        """
        call = self.calls[call_id]
        part = ToolPart() if call.part.earlier else call.part
        if call.part.earlier and not unset(call.part):
            self.say("tool-output-error", toolCallId=call_id, errorText=ASKS_AGAIN, providerExecuted=True)
        fields = {"toolCallId": call_id, "toolName": call.tool, "input": dict(call.arguments)}
        facts = {"ticketId": ticket, "parentCallId": call.parent}
        data = {name: value for name, value in facts.items() if value is not None}
        metadata = {"greenroom": data} if data else None
        self.say("tool-input-available", **fields, providerExecuted=ticket is None, providerMetadata=metadata)
        self.put(call_id, part=attrs.evolve(part, state="input-available", provider=ticket is None))

    def ask(self, call_id: str, ticket_id: str) -> None:
        """Request an approval, in a part of the newest step."""
        part = self.calls[call_id].part
        if unset(part) or part.earlier:
            self.show(call_id)
        call = self.calls[call_id]
        said = call.message or None if self.v7 else None
        self.say("tool-approval-request", approvalId=ticket_id, toolCallId=call_id, reason=said)
        self.put(call_id, part=with_approval_request(call.part, ticket_id))

    def approve(self, call_id: str) -> None:
        """Show a part's call as approved automatically (v7)."""
        self.say("tool-approval-request", approvalId=call_id, toolCallId=call_id, isAutomatic=True)
        self.say("tool-approval-response", approvalId=call_id, approved=True)
        self.put(call_id, part=approved_automatically(call_id, self.calls[call_id].part))

    def respond(self, call_id: str, approved: bool, reason: str | None) -> None:
        """Append the answer to a part's approval (v7), unless the part already shows it."""
        part = self.calls[call_id].part
        if not self.v7 or part.approval is None or part.approved is approved:
            return
        self.say("tool-approval-response", approvalId=part.approval, approved=approved, reason=reason or None)
        self.put(call_id, part=attrs.evolve(part, state="approval-responded", approved=approved))


def unset(part: ToolPart) -> bool:
    """Return True if the part must be created, or reset: it has an output from before the call continued."""
    return part.state is None or part.state.startswith("output-")


def waits_for_others(call: StreamedCall) -> bool:
    """Return True if the part of a call at rest, in the newest step, has neither an output nor a request."""
    part = call.part
    return call.wants == "nothing" and part.state == "input-available" and part.provider and not part.earlier


def holds_back_answers(calls: Mapping[str, StreamedCall]) -> bool:
    """Return True if a part of the newest step would keep the answers to open requests at the client."""
    return any(map(waits_for_others, calls.values())) and any(call.wants != "nothing" for call in calls.values())


def _metadata(message_id: str, block: str) -> dict[str, Any]:
    return {"messageId": message_id, "blockId": block}


def with_approval_request(part: ToolPart, ticket_id: str) -> ToolPart:
    """Return the part with a request for an approval."""
    return attrs.evolve(part, state="approval-requested", approval=ticket_id, approved=None)


def approved_automatically(call_id: str, part: ToolPart) -> ToolPart:
    """Return the part of a call with an approval that asks nobody; its id is that of the call, which no ticket has."""
    return attrs.evolve(part, state="approval-responded", approval=call_id, approved=True)


def requested(call: StreamedCall) -> StreamedCall:
    """Return the call as left by the end of an earlier stream."""
    if call.ticket is None or call.wants == "nothing":
        return call
    part = ToolPart() if call.part.earlier else call.part
    if call.wants == "approval" or part.approval is not None:
        return attrs.evolve(call, part=with_approval_request(part, call.ticket))
    return attrs.evolve(call, part=attrs.evolve(part, state="input-available", provider=False))
