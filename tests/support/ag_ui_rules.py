"""What an AG-UI 1.0 stream must keep, and what a client makes of it. Written from the protocol, without its packages.

`check` holds a stream to three kinds of rules and raises `Broken` with the name of the first one that it breaks:

- form: each event has the fields of its type, in camelCase, of the right kinds, and no nulls;
- order: what the protocol's own verifier (1.0.0) refuses: what is opened twice or never, what is open at the end, who
  owns what;
- promises that no one else checks: one RUN_STARTED first and one terminal event last, both with the client's ids;
  results for known calls alone, once; a call is not begun again; snapshots right before an interrupt.

`Client` applies a stream to messages and state as the protocol's own client does.
"""

import copy
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Event = Mapping[str, Any]

TEXT, NUMBER, FLAG, LIST, OBJECT, ANY = "text", "number", "flag", "list", "object", "any"
_BASE = {"timestamp": NUMBER, "rawEvent": ANY, "metadata": OBJECT}
_OWNED = {**_BASE, "subagentRunId": TEXT}
_MESSAGE = {"messageId": TEXT}
_CALL = {"toolCallId": TEXT}
_RUN = {"threadId": TEXT, "runId": TEXT}
_SUBAGENT = {"subagentRunId": TEXT}

# type -> (required fields, fields that may be there)
FIELDS: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "RUN_STARTED": (_RUN, {**_BASE, "protocolVersion": TEXT, "parentRunId": TEXT, "input": OBJECT}),
    "RUN_FINISHED": (_RUN, {**_BASE, "result": ANY, "outcome": OBJECT, "usage": LIST}),
    "RUN_ERROR": ({"message": TEXT}, {**_BASE, "code": TEXT, "usage": LIST}),
    "STEP_STARTED": ({"stepName": TEXT}, _OWNED),
    "STEP_FINISHED": ({"stepName": TEXT}, _OWNED),
    "TEXT_MESSAGE_START": (_MESSAGE, {**_OWNED, "role": TEXT, "name": TEXT}),
    "TEXT_MESSAGE_CONTENT": ({**_MESSAGE, "delta": TEXT}, _OWNED),
    "TEXT_MESSAGE_END": (_MESSAGE, _OWNED),
    "TOOL_CALL_START": ({**_CALL, "toolCallName": TEXT}, {**_OWNED, "parentMessageId": TEXT}),
    "TOOL_CALL_ARGS": ({**_CALL, "delta": TEXT}, _OWNED),
    "TOOL_CALL_END": (_CALL, _OWNED),
    "TOOL_CALL_RESULT": ({**_MESSAGE, **_CALL, "content": TEXT}, {**_OWNED, "role": TEXT}),
    "STATE_SNAPSHOT": ({"snapshot": ANY}, _OWNED),
    "STATE_DELTA": ({"delta": LIST}, _OWNED),
    "MESSAGES_SNAPSHOT": ({"messages": LIST}, _BASE),
    "ACTIVITY_SNAPSHOT": ({**_MESSAGE, "activityType": TEXT, "content": OBJECT}, {**_OWNED, "replace": FLAG}),
    "ACTIVITY_DELTA": ({**_MESSAGE, "activityType": TEXT, "patch": LIST}, _OWNED),
    "CUSTOM": ({"name": TEXT, "value": ANY}, _OWNED),
    "REASONING_START": (_MESSAGE, _OWNED),
    "REASONING_END": (_MESSAGE, _OWNED),
    "REASONING_MESSAGE_START": ({**_MESSAGE, "role": TEXT}, _OWNED),
    "REASONING_MESSAGE_CONTENT": ({**_MESSAGE, "delta": TEXT}, _OWNED),
    "REASONING_MESSAGE_END": (_MESSAGE, _OWNED),
    "REASONING_ENCRYPTED_VALUE": ({"subtype": TEXT, "entityId": TEXT, "encryptedValue": TEXT}, _OWNED),
    "SUBAGENT_STARTED": ({**_SUBAGENT, "name": TEXT}, {**_BASE, "parentSubagentRunId": TEXT, "description": TEXT}),
    "SUBAGENT_FINISHED": (_SUBAGENT, {**_BASE, "result": ANY, "outcome": OBJECT}),
    "SUBAGENT_ERROR": ({**_SUBAGENT, "message": TEXT}, {**_BASE, "code": TEXT}),
}
# type -> field -> what may stand in it
_VALUES: dict[str, dict[str, tuple[str, ...]]] = {
    "TEXT_MESSAGE_START": {"role": ("developer", "system", "assistant", "user")},
    "REASONING_MESSAGE_START": {"role": ("reasoning",)},
    "TOOL_CALL_RESULT": {"role": ("tool",)},
    "REASONING_ENCRYPTED_VALUE": {"subtype": ("tool-call", "message")},
}
_MESSAGE_FIELDS = {
    "user": ({"content"}, set()),
    "assistant": (set(), {"content", "toolCalls"}),
    "tool": ({"content", "toolCallId"}, {"error"}),
    "reasoning": ({"content"}, set()),
    "developer": ({"content"}, set()),
    "system": ({"content"}, set()),
}
_MESSAGE_BASE = {"id", "role", "name", "encryptedValue", "metadata", "subagentRunId"}
_INTERRUPT = {
    "id": TEXT,
    "reason": TEXT,
    "message": TEXT,
    "toolCallId": TEXT,
    "responseSchema": OBJECT,
    "expiresAt": TEXT,
    "metadata": OBJECT,
}
_USAGE = {"provider", "model"}
_COUNTS = {
    *("inputTokens", "outputTokens", "totalTokens", "reasoningTokens", "cachedInputTokens"),
    "cacheWriteInputTokens",
}
_POINTER = re.compile(r"(?:/(?:[^/~]|~[01])*)*")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


class Broken(AssertionError):
    """A rule is broken; `rule` names it."""

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule


def need(holds: Any, rule: str, text: object = "") -> None:
    if not holds:
        raise Broken(rule, str(text))


def check(
    events: Sequence[Event],
    *,
    thread_id: str | None = None,
    run_id: str | None = None,
    known: Iterable[Event] = (),
) -> None:
    """Hold a whole stream to all rules. `known`: the messages that the client had sent."""
    for event in events:
        check_form(event)
    verify(events)
    _check_promises(events, thread_id, run_id, known)


# --- form ------------------------------------------------------------------------------------------------------------


def _is(value: Any, kind: str) -> bool:
    match kind:
        case "text":
            return isinstance(value, str)
        case "number":
            return type(value) is int and abs(value) < 2**53
        case "flag":
            return isinstance(value, bool)
        case "list":
            return isinstance(value, list | tuple)
        case "object":
            return isinstance(value, Mapping)
        case _:
            return True


def check_form(event: Event) -> None:
    kind = event.get("type")
    need(kind in FIELDS, "known type", event)
    required, optional = FIELDS[str(kind)]
    _fields(event, {"type": TEXT, **required}, optional)
    for field, values in _VALUES.get(str(kind), {}).items():
        need(event.get(field, values[0]) in values, "field's value", event)
    for message in event["messages"] if kind == "MESSAGES_SNAPSHOT" else ():
        _message(message)
    for operation in event.get("delta" if kind == "STATE_DELTA" else "patch", ()):
        need(_POINTER.fullmatch(operation["path"]), "pointer", operation)
    if kind == "RUN_FINISHED":
        _outcome(event)
    for entry in event.get("usage", ()):
        _usage(entry)


def _fields(value: Event, required: Mapping[str, str], optional: Mapping[str, str]) -> None:
    kinds = {**optional, **required}
    for name, found in value.items():
        need(name in kinds, "known field", f"{name} in {value}")
        need(found is not None, "no nulls", f"{name} in {value}")
        need(_is(found, kinds[name]), "field's kind", f"{name} in {value}")
    need(required.keys() <= value.keys(), "required field", f"{sorted(required.keys() - value.keys())} in {value}")


def _message(message: Event) -> None:
    need(isinstance(message.get("id"), str) and message.get("role") in _MESSAGE_FIELDS, "message", message)
    required, optional = _MESSAGE_FIELDS[message["role"]]
    need(required <= message.keys() <= required | optional | _MESSAGE_BASE, "message", message)
    need(None not in message.values(), "no nulls", message)
    for call in message.get("toolCalls", ()):
        need(call.keys() == {"id", "type", "function"}, "message", call)
        need(all(isinstance(call["function"][name], str) for name in ("name", "arguments")), "message", call)


def _outcome(event: Event) -> None:
    outcome = event.get("outcome", {"type": "success"})
    need(outcome.get("type") in ("success", "cancelled", "interrupt"), "outcome", outcome)
    if outcome["type"] != "interrupt":
        need(outcome.keys() <= {"type", "pendingToolCallIds"}, "outcome", outcome)
        return
    need(outcome.keys() == {"type", "interrupts"} and outcome["interrupts"], "outcome", outcome)
    for interrupt in outcome["interrupts"]:
        _fields(interrupt, {"id": TEXT, "reason": TEXT}, _INTERRUPT)
        need(interrupt["reason"] != "tool_call" or "toolCallId" in interrupt, "interrupt", interrupt)
        need(_MOMENT.fullmatch(interrupt.get("expiresAt", "2026-01-01T00:00:00.000Z")), "interrupt", interrupt)


def _usage(entry: Event) -> None:
    need(entry.keys() <= _USAGE | _COUNTS, "usage", entry)
    counts = {name: entry.get(name, 0) for name in _COUNTS}
    need(all(_is(count, NUMBER) and count >= 0 for count in counts.values()), "usage", entry)
    need(counts["totalTokens"] == counts["inputTokens"] + counts["outputTokens"], "usage", entry)
    need(counts["cachedInputTokens"] + counts["cacheWriteInputTokens"] <= counts["inputTokens"], "usage", entry)
    need(counts["reasoningTokens"] <= counts["outputTokens"], "usage", entry)


# --- order -----------------------------------------------------------------------------------------------------------

# type -> (kind of thing, the field that names it, what the event does to it)
_LIFES = {
    "TEXT_MESSAGE_START": ("message", "messageId", "open"),
    "TEXT_MESSAGE_CONTENT": ("message", "messageId", "use"),
    "TEXT_MESSAGE_END": ("message", "messageId", "close"),
    "TOOL_CALL_START": ("call", "toolCallId", "open"),
    "TOOL_CALL_ARGS": ("call", "toolCallId", "use"),
    "TOOL_CALL_END": ("call", "toolCallId", "close"),
    "REASONING_START": ("span", "messageId", "open"),
    "REASONING_END": ("span", "messageId", "close"),
    "REASONING_MESSAGE_START": ("reasoning", "messageId", "open"),
    "REASONING_MESSAGE_CONTENT": ("reasoning", "messageId", "use"),
    "REASONING_MESSAGE_END": ("reasoning", "messageId", "close"),
}
_BUCKET = {"span": "reasoning"}
"""A span and the messages in it belong to the same owner."""


class _Run:
    """What is open in one run of a stream, and who owns what."""

    def __init__(self) -> None:
        self.open: set[tuple[str, str]] = set()
        self.owners: dict[tuple[str, str], str | None] = {}
        self.steps: set[tuple[str | None, str]] = set()
        self.subagents: set[str] = set()
        self.gone: set[str] = set()

    def take(self, event: Event) -> None:
        kind, owner = event["type"], event.get("subagentRunId")
        if kind in _LIFES:
            self._life(event, owner)
        elif kind.startswith("STEP_"):
            self._step(event, owner)
        elif kind.startswith("SUBAGENT_"):
            self._subagent(event)
        elif kind == "TOOL_CALL_RESULT":
            self.owners["message", event["messageId"]] = owner
        elif kind == "ACTIVITY_SNAPSHOT":
            if event.get("replace", True) or ("activity", event["messageId"]) not in self.owners:
                self.owners["activity", event["messageId"]] = owner
        elif kind == "ACTIVITY_DELTA":
            self._agrees(("activity", event["messageId"]), owner, event)
        elif kind == "REASONING_ENCRYPTED_VALUE":
            bucket = "call" if event["subtype"] == "tool-call" else "message"
            key = (bucket, event["entityId"])
            self._agrees(key if key in self.owners else ("reasoning", event["entityId"]), owner, event)
        elif kind == "MESSAGES_SNAPSHOT":
            self._seed(event["messages"])

    def _life(self, event: Event, owner: str | None) -> None:
        what, field, deed = _LIFES[event["type"]]
        key = (what, event[field])
        owned = (_BUCKET.get(what, what), event[field])
        parent = ("message", event.get("parentMessageId", ""))
        if what == "call" and deed == "open" and parent in self.owners:
            self._agrees(parent, owner, event)
            inherited = self.owners[parent]
            need(owned not in self.owners or owner or inherited == self.owners[owned], "owner", event)
            owner = owner or inherited
        self._agrees(owned, owner, event)
        if deed == "open":
            need(key not in self.open, "opened twice", event)
            self.open.add(key)
            self.owners.setdefault(owned, owner)
        else:
            need(key in self.open, "not open", event)
        if deed == "close":
            self.open.remove(key)

    def _agrees(self, key: tuple[str, str], owner: str | None, event: Event) -> None:
        need(owner is None or key not in self.owners or self.owners[key] == owner, "owner", event)

    def _step(self, event: Event, owner: str | None) -> None:
        key = (owner, event["stepName"])
        if event["type"] == "STEP_STARTED":
            need(key not in self.steps, "opened twice", event)
            self.steps.add(key)
        else:
            need(key in self.steps, "not open", event)
            self.steps.remove(key)

    def _subagent(self, event: Event) -> None:
        name, parent = event["subagentRunId"], event.get("parentSubagentRunId")
        if event["type"] == "SUBAGENT_STARTED":
            need(name not in self.subagents | self.gone, "opened twice", event)
            need(parent is None or parent in self.subagents | self.gone, "not open", event)
            self.subagents.add(name)
        else:
            need(name in self.subagents, "not open", event)
            self.subagents.remove(name)
            self.gone.add(name)

    def _seed(self, messages: Sequence[Event]) -> None:
        for message in messages:
            bucket = message["role"] if message["role"] in ("reasoning", "activity") else "message"
            self.owners[bucket, message["id"]] = message.get("subagentRunId")
            for call in message.get("toolCalls", ()):
                self.owners["call", call["id"]] = message.get("subagentRunId")

    def closed(self) -> bool:
        return not (self.open or self.steps or self.subagents)


def verify(events: Sequence[Event]) -> None:
    """The rules of order; several runs in one stream are legal here."""
    run: _Run | None = None
    ended = ""
    for number, event in enumerate(events):
        kind = event["type"]
        need(number or kind in ("RUN_STARTED", "RUN_ERROR"), "first event", event)
        need(ended != "RUN_ERROR" or kind == "RUN_STARTED", "after the end", event)
        need(ended != "RUN_FINISHED" or kind in ("RUN_STARTED", "RUN_ERROR"), "after the end", event)
        if kind == "RUN_STARTED":
            need(run is None, "run in a run", event)
            run, ended = _Run(), ""
        elif kind == "RUN_ERROR":
            run, ended = None, kind
        elif kind == "RUN_FINISHED":
            need(run is not None and run.closed(), "open at the end", event)
            run, ended = None, kind
        elif run is not None:
            run.take(event)


# --- promises --------------------------------------------------------------------------------------------------------


def _check_promises(events: Sequence[Event], thread_id: str | None, run_id: str | None, known: Iterable[Event]) -> None:
    need(events, "one start", "nothing was sent")
    kinds = [event["type"] for event in events]
    need(kinds[0] == "RUN_STARTED" and kinds.count("RUN_STARTED") == 1, "one start", kinds)
    terminal = [kind for kind in kinds if kind in ("RUN_FINISHED", "RUN_ERROR")]
    need(len(terminal) == 1 and kinds[-1] == terminal[0], "one end", kinds)
    for event in (events[0], events[-1]):
        for name, wanted in (("threadId", thread_id), ("runId", run_id)):
            need(name not in event or wanted is None or event[name] == wanted, "echo", event)
    need(events[0].get("protocolVersion") == "1.0", "protocol version", events[0])
    moments = [event["timestamp"] for event in events if "timestamp" in event]
    need(moments == sorted(moments), "time", moments)
    _check_error(events)
    _check_calls(events, known)
    _check_interrupt(events)


def _check_error(events: Sequence[Event]) -> None:
    """The verifier lets an error cut everything off; we close first."""
    if events[-1]["type"] == "RUN_ERROR":
        run = _Run()
        for event in events[1:-1]:
            run.take(event)
        need(run.closed(), "open at the end", events[-1])
        need("code" in events[-1], "code", events[-1])


def _check_calls(events: Sequence[Event], known: Iterable[Event]) -> None:
    started: set[str] = set()
    answered: set[str] = set()

    def learn(messages: Iterable[Event]) -> None:
        for message in messages:
            started.update(call["id"] for call in message.get("toolCalls", ()))
            answered.update([message["toolCallId"]] if message["role"] == "tool" else [])

    learn(known)
    for event in events:
        match event["type"]:
            case "MESSAGES_SNAPSHOT":
                started.clear()
                answered.clear()
                learn(event["messages"])
            case "TOOL_CALL_START":
                need(event["toolCallId"] not in started, "call begun again", event)
                started.add(event["toolCallId"])
            case "TOOL_CALL_RESULT":
                need(event["toolCallId"] in started, "result without call", event)
                need(event["toolCallId"] not in answered, "second result", event)
                answered.add(event["toolCallId"])
    for interrupt in events[-1].get("outcome", {}).get("interrupts", ()):
        call = interrupt.get("toolCallId")
        need(call is None or (call in started and call not in answered), "interrupt of no open call", interrupt)
    if events[-1]["type"] == "RUN_FINISHED" and events[-1]["outcome"]["type"] != "interrupt":
        need(started <= answered, "call without result", started - answered)


def _check_interrupt(events: Sequence[Event]) -> None:
    interrupts = events[-1].get("outcome", {}).get("interrupts")
    if interrupts:
        before = [event["type"] for event in events[-3:-1]]
        need(before == ["STATE_SNAPSHOT", "MESSAGES_SNAPSHOT"], "snapshots before an interrupt", before)
        ids = [interrupt["id"] for interrupt in interrupts]
        need(len(set(ids)) == len(ids), "interrupt told twice", ids)


# --- a client --------------------------------------------------------------------------------------------------------


class Client:
    """Messages and state as the protocol's own client has them after a stream."""

    def __init__(self, messages: Iterable[Event] = (), state: Any = None) -> None:
        self.messages: list[dict[str, Any]] = [copy.deepcopy(dict(message)) for message in messages]
        self.state = copy.deepcopy(state)
        self.interrupts: list[Event] = []
        self.outcome: str | None = None

    def input(self) -> list[dict[str, Any]]:
        """What it sends along: all but the activities."""
        return [copy.deepcopy(message) for message in self.messages if message["role"] != "activity"]

    def take(self, events: Iterable[Event]) -> "Client":
        for event in events:
            handler = getattr(self, f"_{event['type'].lower()}", None)
            if handler is not None:
                handler(event)
        return self

    def find(self, name: str) -> dict[str, Any] | None:
        return next((message for message in self.messages if message["id"] == name), None)

    def _text_message_start(self, event: Event) -> None:
        if self.find(event["messageId"]) is None:
            self.messages.append({"id": event["messageId"], "role": event.get("role", "assistant"), "content": ""})

    def _text_message_content(self, event: Event) -> None:
        message = self.find(event["messageId"])
        assert message is not None
        message["content"] = message.get("content", "") + event["delta"]

    def _reasoning_message_start(self, event: Event) -> None:
        self._text_message_start({**event, "role": "reasoning"})

    _reasoning_message_content = _text_message_content

    def _tool_call_start(self, event: Event) -> None:
        message = self.find(event["parentMessageId"])
        if message is None:
            message = {"id": event["parentMessageId"], "role": "assistant"}
            self.messages.append(message)
        called = {"name": event["toolCallName"], "arguments": ""}
        message.setdefault("toolCalls", []).append({"id": event["toolCallId"], "type": "function", "function": called})

    def _tool_call_args(self, event: Event) -> None:
        _, call = self._call(event["toolCallId"])
        call["function"]["arguments"] += event["delta"]

    def _call(self, name: str) -> tuple[int, dict[str, Any]]:
        return next(
            (at, call)
            for at, message in enumerate(self.messages)
            for call in message.get("toolCalls", ())
            if call["id"] == name
        )

    def _tool_call_result(self, event: Event) -> None:
        message = {"id": event["messageId"], "role": "tool", "content": event["content"]}
        message["toolCallId"] = event["toolCallId"]
        if "metadata" in event:
            message["metadata"] = event["metadata"]
        at = self._call(event["toolCallId"])[0] + 1
        while at < len(self.messages) and self.messages[at]["role"] == "tool":
            at += 1
        self.messages.insert(at, message)

    def _messages_snapshot(self, event: Event) -> None:
        reported = {message["id"]: copy.deepcopy(dict(message)) for message in event["messages"]}
        reasons = any(message["role"] == "reasoning" for message in reported.values())
        kept = [
            reported.get(message["id"], message)
            for message in self.messages
            if message["id"] in reported
            or message["role"] == "activity"
            or (message["role"] == "reasoning" and not reasons)
        ]
        there = {message["id"] for message in kept}
        self.messages = kept + [one for name, one in reported.items() if name not in there]

    def _activity_snapshot(self, event: Event) -> None:
        message = self.find(event["messageId"])
        if message is None:
            message = {"id": event["messageId"], "role": "activity"}
            self.messages.append(message)
        message |= {"activityType": event["activityType"], "content": copy.deepcopy(event["content"])}

    def _activity_delta(self, event: Event) -> None:
        message = self.find(event["messageId"])
        assert message is not None
        for operation in event["patch"]:
            *parents, last = operation["path"].split("/")[1:]
            where = message["content"]
            for name in parents:
                where = where[name]
            if last == "-":
                where.append(operation["value"])
            else:
                where[last] = operation["value"]

    def _state_snapshot(self, event: Event) -> None:
        self.state = copy.deepcopy(event["snapshot"])

    def _run_finished(self, event: Event) -> None:
        self.outcome = event["outcome"]["type"]
        self.interrupts = list(event["outcome"].get("interrupts", ()))

    def _run_error(self, event: Event) -> None:
        self.outcome = "error"
