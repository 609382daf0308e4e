"""What the AI SDK encoder keeps of a stream, and the parts that it says. `ai_sdk.py` tells when it says which."""

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


@attrs.frozen(kw_only=True)
class ToolPart:
    """What the reader has of a call.

    Attributes:
        state: of the client's tool part; None if it has none.
        provider: the part is marked as executed by the provider, so it is not the client's to run.
        approval: id of the approval that the part holds. approved: how it was answered, None if it was not.
    """

    state: str | None = None
    provider: bool = True
    approval: str | None = None
    approved: bool | None = None


@attrs.frozen(kw_only=True)
class StreamedCall:
    """A call of the current step: what was asked for, what the reader has of it, and what its newest ticket wants."""

    tool: str
    arguments: JSONObject
    part: ToolPart = attrs.field(factory=ToolPart)
    ticket: str | None = None
    wants: Literal["nothing", "approval", "output"] = "nothing"
    message: str = ""


@attrs.frozen(kw_only=True)
class OpenMessage:
    """The message that is being given: its streamed text, the ids of its blocks, and the kind of the open one."""

    id: str
    text: str = ""
    blocks: tuple[str, ...] = ()
    open: Literal["text", "reasoning"] | None = None


@attrs.frozen(kw_only=True)
class StreamEnd:
    """How a stream ends: status and facts for `data-run`, finishReason, and the part before `finish`, if any."""

    status: str
    reason: str
    last: tuple[Part, ...] = ()
    facts: JSONObject = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class AiSdkState:
    """One stream, between two events. Made by `begin`; what is in it is nobody else's.

    Attributes:
        version, run_id, after, reader: as given to `begin`.
        sequence: of the newest event.
        opened, ended: `start` and `finish` have been told.
        in_step: `start-step` has been told and `finish-step` has not.
        waiting: the run stands still for people. end: it is done, and nobody has been told yet.
        answering: the message of the inference in flight.
        calls: of the current step, by call id. tickets: the open ones, by id.
        kept: data parts told since the step began; `reset-step` takes them away with the text.
        thread_id, agent_id: of the run.
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
    """A state that may be changed, and the parts that have been said meanwhile."""

    def __init__(self, state: AiSdkState) -> None:
        self.before = state
        self.v7 = state.version == "v7"
        self.parts: list[Part] = []
        self.sequence, self.end = state.sequence, state.end
        self.opened, self.ended, self.in_step, self.waiting = state.opened, state.ended, state.in_step, state.waiting
        self.answering, self.thread_id, self.agent_id = state.answering, state.thread_id, state.agent_id
        self.calls, self.tickets, self.kept = state.calls, state.tickets, state.kept

    def build(self) -> AiSdkState:
        """The state as it is now."""
        names = ("sequence", "end", "opened", "ended", "in_step", "waiting", "answering", "calls", "tickets", "kept")
        changes = {name: getattr(self, name) for name in (*names, "thread_id", "agent_id")}
        return attrs.evolve(self.before, **changes)

    def say(self, kind: str, **fields: object) -> None:
        """One part. Fields that are None are left out: clients refuse them."""
        self.parts.append({"type": kind, **{name: value for name, value in fields.items() if value is not None}})

    def data(self, name: str, part_id: str, data: object) -> None:
        """A data part that stays in the message, in place of the one with the same id."""
        part = {"type": f"data-{name}", "id": part_id, "data": data}
        self.kept = {**self.kept, (name, part_id): part}
        self.parts.append(part)

    def notice(self, event: Event) -> None:
        """Something that a reader may want to know, and that is no part of the message."""
        data = {name: value for name, value in event.payload.items() if name != "stack"}
        self.say("data-notice", data={"event": event.type, **data}, transient=True)

    def open(self) -> None:
        """The first live part: nothing of this stream is open, whatever was in the reader's earlier one."""
        self.opened, self.in_step = True, False
        if self.answering is not None:
            self.answering = attrs.evolve(self.answering, open=None)
        self.calls = {call_id: self._as_read(call_id, call) for call_id, call in self.calls.items()}
        self.say("start", messageId=self.before.run_id)
        self.data("run", self.before.run_id, self.facts("running", self.before.after))

    def _as_read(self, call_id: str, call: StreamedCall) -> StreamedCall:
        """The call with the part that the reader says it has."""
        reader = self.before.reader
        if reader is not None:
            return attrs.evolve(call, part=reader.get(call_id, ToolPart()))
        return requested(call) if self.waiting else call

    def facts(self, status: str, sequence: int) -> dict[str, Any]:
        """What `data-run` holds: how the run stands, and up to where the message tells of it."""
        where = {"run_id": self.before.run_id, "thread_id": self.thread_id, "agent_id": self.agent_id}
        return {**where, "status": status, "sequence": sequence}

    def close(self, end: StreamEnd) -> None:
        """End the stream: whatever is open, then how the run stands, then the end itself."""
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

    def end_block(self) -> None:
        """Close the open block, if there is one."""
        now = self.answering
        if now is not None and now.open is not None:
            self.say(f"{now.open}-end", id=now.blocks[-1])
            self.answering = attrs.evolve(now, open=None)

    def more(self, kind: Literal["text", "reasoning"], message_id: str, text: str) -> None:
        """More of a message: in the open block if it has this kind, else in a new one."""
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
            data = {"greenroom": {"messageId": message_id, "blockId": block}}
            self.say(f"{kind}-start", id=block, providerMetadata=data)
        self.say(f"{kind}-delta", id=now.blocks[-1], delta=text)
        self.answering = attrs.evolve(now, text=now.text + text) if kind == "text" else now

    def take_back(self, message_id: str, reason: str) -> None:
        """What was shown of a message is none of the history: remove it, or say so where nothing can be removed."""
        now = self.answering
        self.end_block()
        if now is None or now.id != message_id or not now.blocks:
            return
        self.answering = OpenMessage(id=message_id, blocks=now.blocks)  # numbers of blocks are not used again
        if self.v7:
            self.say("reset-step")
            self.parts += self.kept.values()
        else:
            self.data("discarded", message_id, {"message_id": message_id, "blocks": list(now.blocks), "reason": reason})

    # --- its calls ---------------------------------------------------------------------------------------------------

    def put(self, call_id: str, **changes: Any) -> StreamedCall:
        """Change what is known of a call."""
        call = attrs.evolve(self.calls[call_id], **changes)
        self.calls = {**self.calls, call_id: call}
        return call

    def show(self, call_id: str, *, ticket: str | None = None) -> None:
        """The call's tool part: made, or set back to its input. With a ticket it is the client's to give an output."""
        call = self.calls[call_id]
        fields = {"toolCallId": call_id, "toolName": call.tool, "input": dict(call.arguments)}
        data = None if ticket is None else {"greenroom": {"ticketId": ticket}}
        self.say("tool-input-available", **fields, providerExecuted=ticket is None, providerMetadata=data)
        self.put(call_id, part=attrs.evolve(call.part, state="input-available", provider=ticket is None))

    def ask(self, call_id: str, ticket_id: str) -> None:
        """Ask for an approval."""
        call = self.calls[call_id]
        said = call.message or None if self.v7 else None
        self.say("tool-approval-request", approvalId=ticket_id, toolCallId=call_id, reason=said)
        self.put(call_id, part=asked(call.part, ticket_id))

    def respond(self, call_id: str, approved: bool, reason: str | None) -> None:
        """Say how the approval of a part was answered (v7), unless the part says so itself."""
        part = self.calls[call_id].part
        if not self.v7 or part.approval is None or part.approved is approved:
            return
        self.say("tool-approval-response", approvalId=part.approval, approved=approved, reason=reason or None)
        self.put(call_id, part=attrs.evolve(part, state="approval-responded", approved=approved))


def asked(part: ToolPart, ticket_id: str) -> ToolPart:
    """The part with a request for an approval."""
    return attrs.evolve(part, state="approval-requested", approval=ticket_id, approved=None)


def requested(call: StreamedCall) -> StreamedCall:
    """The call as the end of an earlier stream has left it."""
    if call.ticket is None or call.wants == "nothing":
        return call
    if call.wants == "approval" or call.part.approval is not None:
        return attrs.evolve(call, part=asked(call.part, call.ticket))
    return attrs.evolve(call, part=attrs.evolve(call.part, state="input-available", provider=False))
