"""ACP, version 1: the events of one run as the updates of an ACP session.

Theory of operation. An `AcpEncoder` takes the events of a run in order, from sequence 1 on. First it replays: what has
happened becomes whole messages and calls, as an editor reads them that loads the session; `live` ends that, and each
event then becomes its updates immediately. So a text that was discarded is not seen in a replay, and is taken back with
a notice in a live stream, where the protocol has nothing to remove a text with.

| event | update |
|---|---|
| run.created, when replayed | user_message_chunk |
| run.input.received | user_message_chunk |
| run.message.delta, run.message.completed | agent_message_chunk; a text that reads otherwise: notice, then all of it |
| run.reasoning.delta | agent_thought_chunk |
| run.message.discarded | notice, if a part of the text was shown |
| run.tool.call | tool_call (pending); a nested call has its parent call in `_meta` |
| run.tool.edited, run.tool.resumed with arguments | tool_call_update with rawInput |
| run.tool.started, run.tool.suspended | tool_call_update (in_progress, pending) |
| run.tool.progress, run.tool.output.delta, a message of a body | tool_call_update with the end of the output |
| run.tool.result | tool_call_update (completed, failed) |
| run.approval.requested, run.approval.resolved | `TicketOpened`, `TicketClosed`; without a call also as a call |
| run.waiting | `Rested` |
| run.completed, run.failed, run.cancelled | `Ended` |
| run.degraded, run.guardrail.tripped, runtime.*, schema.validation_failed | notice |
| all others | nothing |

A client that does not show notices gets those about texts as a message of the agent, and no others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal

import attrs
import msgspec

from greenroom.actors.contract.casing import from_wire
from greenroom.actors.contract.codec import parse
from greenroom.actors.contract.decisions import Ticket
from greenroom.actors.contract.envelope import Event, timestamp
from greenroom.actors.contract.failures import advice
from greenroom.actors.contract.plain import JSONObject

from ..terminal import text_format
from .updates import (
    Ended,
    Out,
    Rested,
    StopReason,
    TicketClosed,
    TicketOpened,
    Update,
    chunk,
    content_of,
    title_of,
    title_of_run,
)

Severity = Literal["info", "warning", "error"]
TAIL: Final = 8 * 1024
"""Most characters of a call's output in one update: an update replaces what the editor shows of the call."""
PARENT: Final = "greenroom/parentToolCallId"

_KINDS: Final[Mapping[str, str]] = {
    "read": "read",
    "write": "edit",
    "patch": "edit",
    "shell": "execute",
    "network": "fetch",
}
"""Effect of a tool -> kind of a call; all others are "other"."""


_json = msgspec.json.Encoder().encode


@attrs.define
class _Message:
    """A message or its reasoning, as far as it has grown; `sent` counts the pieces that the editor has."""

    pieces: list[str] = attrs.field(factory=list)
    sent: int = 0


@attrs.define
class _Call:
    """A call: the end of its output, the message that its body is saying, and its progress."""

    tail: str = ""
    message: str = ""
    progress: str = ""
    status: str = "pending"


@attrs.define(eq=False)
class AcpEncoder:
    """The updates of one run. Pure; for one reader.

    Attributes:
        run_id: The run.
        notices: The editor shows notices.
        last: The sequence of the newest event.
    """

    run_id: str
    notices: bool = True
    last: int = 0
    _replaying: bool = True
    _messages: dict[str, _Message] = attrs.field(factory=dict)
    _thoughts: dict[str, _Message] = attrs.field(factory=dict)
    _calls: dict[str, _Call] = attrs.field(factory=dict)

    def __repr__(self) -> str:
        return f"<AcpEncoder of {self.run_id} after {self.last}>"

    def take(self, event: Event) -> list[Out]:
        """Return what the next event comes to."""
        self.last = event.sequence
        if event.type == "run.approval.requested":
            return list(self._asked(event))
        if event.payload.get("callId") is not None and event.type in _SPOKEN:
            return list(self._spoken(event.type, event.payload))
        handler = _ON.get(event.type)
        return [] if handler is None else list(handler(self, event.payload))

    def live(self) -> list[Out]:
        """End the replay, and return what it has of unfinished messages and calls."""
        if not self._replaying:
            return []
        self._replaying = False
        updates: list[Out] = []
        for name, thought in self._thoughts.items():
            updates += self._rest("agent_thought_chunk", f"{name}:reasoning", thought)
        for name, message in self._messages.items():
            updates += self._rest("agent_message_chunk", name, message)
        for call_id, call in self._calls.items():
            if call.tail or call.message or call.progress:
                updates.append(self._shown(call_id, call))
        return updates

    def call_name(self, call_id: str) -> str:
        """Return the id of a call, which is unique in a session."""
        return f"{self.run_id}:{call_id}"

    # --- messages ----------------------------------------------------------------------------------------------------

    def _created(self, payload: JSONObject) -> Iterator[Out]:
        if not self._replaying:
            return
        attachments = [f"[{text_format.attached(part)}]" for part in payload.get("attachments", ())]
        for text in filter(None, (payload["input"], *attachments)):
            yield chunk("user_message_chunk", f"{self.run_id}:input", text)

    def _input(self, payload: JSONObject) -> Iterator[Out]:
        yield chunk("user_message_chunk", payload["messageId"], payload["text"])

    def _grew(self, kind: str, grown: dict[str, _Message], payload: JSONObject, name: str) -> Iterator[Out]:
        message = grown.setdefault(payload["messageId"], _Message())
        message.pieces.append(payload["text"])
        if not self._replaying:
            yield from self._rest(kind, name, message)

    def _text(self, payload: JSONObject) -> Iterator[Out]:
        yield from self._grew("agent_message_chunk", self._messages, payload, payload["messageId"])

    def _reasoning(self, payload: JSONObject) -> Iterator[Out]:
        name = f"{payload['messageId']}:reasoning"
        yield from self._grew("agent_thought_chunk", self._thoughts, payload, name)

    def _answered(self, payload: JSONObject) -> Iterator[Out]:
        thought = self._thoughts.pop(payload["messageId"], None)
        if thought is not None:
            yield from self._rest("agent_thought_chunk", f"{payload['messageId']}:reasoning", thought)

    def _completed(self, payload: JSONObject) -> Iterator[Out]:
        name, whole = payload["messageId"], payload["text"]
        yield from self._answered(payload)
        message = self._messages.pop(name, None) or _Message()
        grown, shown = "".join(message.pieces), "".join(message.pieces[: message.sent])
        if payload.get("large") and grown:
            whole = grown  # `text` is an excerpt; the deltas have the full text
        if not whole.startswith(shown):
            yield from self._notice("warning", "The message above reads otherwise; this is all of it:", name)
            name, shown = f"{name}:whole", ""
        if len(whole) > len(shown):
            yield chunk("agent_message_chunk", name, whole[len(shown) :])

    def _discarded(self, payload: JSONObject) -> Iterator[Out]:
        name = payload["messageId"]
        self._thoughts.pop(name, None)
        message = self._messages.pop(name, None)
        if message is not None and message.sent:
            reason = text_format.one_line(payload["reason"], 200)
            yield from self._notice("warning", f"The message above was discarded: {reason}", name)

    def _rest(self, kind: str, name: str, message: _Message) -> Iterator[Out]:
        text = "".join(message.pieces[message.sent :])
        message.sent = len(message.pieces)
        if text:
            yield chunk(kind, name, text)

    def _notice(self, severity: Severity, text: str, about: str | None = None) -> Iterator[Out]:
        """Yield a notice; `about`: the message that it takes back, so that every editor gets it."""
        if self.notices and not self._replaying:
            yield Update({"sessionUpdate": "notice", "severity": severity, "title": text})
        elif about is not None:
            yield chunk("agent_message_chunk", f"{about}:notice", f"[{text}]")

    # --- calls -------------------------------------------------------------------------------------------------------

    def _called(self, payload: JSONObject) -> Iterator[Out]:
        call_id, parent = payload["callId"], payload.get("parentCallId")
        self._calls[call_id] = _Call()
        tool, effect, arguments = payload["tool"], payload["effect"], payload["arguments"]
        yield Update(
            {
                "sessionUpdate": "tool_call",
                "toolCallId": self.call_name(call_id),
                "title": title_of(tool, effect, arguments),
                "name": tool,
                "kind": _KINDS.get(effect, "other"),
                "status": "pending",
                "rawInput": arguments,
                **({} if parent is None else {"_meta": {PARENT: self.call_name(parent)}}),
            }
        )

    def _status(self, payload: JSONObject, status: str) -> Iterator[Out]:
        call = self._calls.get(payload["callId"])
        if call is not None and call.status != status:
            call.status = status
            yield self._update(payload["callId"], status=status)

    def _started(self, payload: JSONObject) -> Iterator[Out]:
        yield from self._status(payload, "in_progress")

    def _suspended(self, payload: JSONObject) -> Iterator[Out]:
        yield from self._status(payload, "pending")

    def _edited(self, payload: JSONObject) -> Iterator[Out]:
        if payload.get("arguments") is not None and payload["callId"] in self._calls:
            yield self._update(payload["callId"], rawInput=payload["arguments"])

    def _progress(self, payload: JSONObject) -> Iterator[Out]:
        call = self._calls.get(payload["callId"])
        if call is not None:
            call.progress = f"{payload['fraction']:.0%} {payload.get('text', '')}".rstrip()
            yield from self._output(payload, "")

    def _printed(self, payload: JSONObject) -> Iterator[Out]:
        yield from self._output(payload, payload["text"])

    def _spoken(self, kind: str, payload: JSONObject) -> Iterator[Out]:
        """Yield what a body says of its work: its messages are part of the call's output, its reasoning is not."""
        call = self._calls.get(payload["callId"])
        if call is None or kind == "run.reasoning.delta":
            return
        is_delta, is_whole = kind == "run.message.delta", kind == "run.message.completed"
        call.message = (call.message + payload["text"])[-TAIL:] if is_delta else ""
        yield from self._output(payload, f"{payload['text']}\n" if is_whole else "")

    def _output(self, payload: JSONObject, text: str) -> Iterator[Out]:
        call = self._calls.get(payload["callId"])
        if call is None:
            return
        call.tail = (call.tail + text)[-TAIL:]
        if not self._replaying:
            yield self._shown(payload["callId"], call)

    def _shown(self, call_id: str, call: _Call) -> Update:
        output = (call.tail + call.message)[-TAIL:].removesuffix("\n")
        text = "\n".join(filter(None, (output, call.progress)))
        return self._update(call_id, content=content_of(text))

    def _result(self, payload: JSONObject) -> Iterator[Out]:
        if self._calls.pop(payload["callId"], None) is None:
            return
        result, code = payload.get("result"), payload.get("code")
        text = result if isinstance(result, str) else "" if result is None else _json(result).decode()
        if payload["status"] == "succeeded":
            yield self._update(payload["callId"], status="completed", content=content_of(text), rawOutput=result)
            return
        text = ": ".join(filter(None, (code or payload["status"], text)))
        yield self._update(payload["callId"], status="failed", content=content_of(text), rawOutput=result)

    def _update(self, call_id: str, **fields: Any) -> Update:
        present = {name: value for name, value in fields.items() if value not in (None, [])}
        return Update({"sessionUpdate": "tool_call_update", "toolCallId": self.call_name(call_id), **present})

    # --- the run -----------------------------------------------------------------------------------------------------

    def _asked(self, event: Event) -> Iterator[Out]:
        fields = from_wire(Ticket, event.payload) | {"run_id": self.run_id, "requested_at": timestamp(event.timestamp)}
        ticket = parse(Ticket, fields)
        if ticket.call_id is None:  # the protocol knows questions about calls only
            self._calls[ticket.ticket_id] = _Call()
            name, title = self.call_name(ticket.ticket_id), title_of_run(ticket)
            fields = {"toolCallId": name, "title": title, "kind": "other", "status": "pending"}
            yield Update({"sessionUpdate": "tool_call", **fields})
        yield TicketOpened(ticket)

    def _settled(self, payload: JSONObject) -> Iterator[Out]:
        ticket_id = payload["ticketId"]
        yield TicketClosed(ticket_id)
        if self._calls.pop(ticket_id, None) is not None:
            done = payload["resolution"] == "approved"
            yield self._update(ticket_id, status="completed" if done else "failed")

    def _waiting(self, _: JSONObject) -> Iterator[Out]:
        yield Rested()

    def _degraded(self, payload: JSONObject) -> Iterator[Out]:
        facts = (payload.get(name) for name in ("reason", "guardrail", "runtime", "which", "source", "rule", "detail"))
        yield from self._notice("warning", text_format.one_line(": ".join(str(fact) for fact in facts if fact), 300))

    def _ended(self, payload: JSONObject) -> Iterator[Out]:
        output = payload.get("output")
        meta: dict[str, Any] = {"greenroom/run": self.run_id}
        if output is not None and not isinstance(output, str):
            meta["greenroom/output"] = output
        yield Ended(stop=_stop_of(payload), meta=meta, failure=_failure_of(payload, self.run_id))


_STOPPED: Final[Mapping[str, StopReason]] = {"max_rounds": "max_turn_requests", "token_budget": "max_tokens"}
"""Stop condition -> stopReason; all others are "end_turn"."""


def _stop_of(payload: JSONObject) -> StopReason | None:
    match payload["to"], payload.get("code"):
        case "completed", code:
            return _STOPPED.get(code or "", "end_turn")
        case "cancelled", _:
            return "cancelled"
        case _, "model_refusal":
            return "refusal"
        case _:
            return None


def _failure_of(payload: JSONObject, run_id: str) -> JSONObject | None:
    if payload["to"] != "failed" or payload["code"] == "model_refusal":
        return None
    code, message = payload["code"], payload["message"]
    recovery = advice(code, message)
    return {"code": code, "message": message, "recovery": recovery[0] if recovery else "", "runId": run_id}


_SPOKEN: Final = frozenset(
    ("run.message.delta", "run.reasoning.delta", "run.message.completed", "run.message.discarded")
)
"""Events that a body may cause, too; then they have a callId, and are no messages of the conversation."""

_ON: Final[Mapping[str, Callable[[AcpEncoder, JSONObject], Iterator[Out]]]] = {
    "run.created": AcpEncoder._created,
    "run.input.received": AcpEncoder._input,
    "run.message.delta": AcpEncoder._text,
    "run.reasoning.delta": AcpEncoder._reasoning,
    "run.inference.completed": AcpEncoder._answered,
    "run.message.completed": AcpEncoder._completed,
    "run.message.discarded": AcpEncoder._discarded,
    "run.tool.call": AcpEncoder._called,
    "run.tool.edited": AcpEncoder._edited,
    "run.tool.started": AcpEncoder._started,
    "run.tool.suspended": AcpEncoder._suspended,
    "run.tool.resumed": AcpEncoder._edited,
    "run.tool.progress": AcpEncoder._progress,
    "run.tool.output.delta": AcpEncoder._printed,
    "run.tool.result": AcpEncoder._result,
    "run.approval.resolved": AcpEncoder._settled,
    "run.waiting": AcpEncoder._waiting,
    "run.degraded": AcpEncoder._degraded,
    "run.guardrail.tripped": AcpEncoder._degraded,
    "runtime.unavailable": AcpEncoder._degraded,
    "runtime.timeout": AcpEncoder._degraded,
    "schema.validation_failed": AcpEncoder._degraded,
    "run.completed": AcpEncoder._ended,
    "run.failed": AcpEncoder._ended,
    "run.cancelled": AcpEncoder._ended,
}
