"""A run's events as lines for people: agent or tool, arguments, duration, outcome. Pure.

`Timeline` folds every event in order and returns the resulting lines; between two lines it has the present activity.
The same fold serves the live view of `greenroom run` and the history of `greenroom show`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Final, Literal

import attrs

from greenroom.actors.contract.decisions import asks_outcome
from greenroom.actors.contract.envelope import Event
from greenroom.actors.contract.plain import JSONObject

from . import text_format

Kind = Literal["start", "ok", "bad", "wait", "yes", "no", "text", "output", "note"]
"""The kind of a line; the screen has a sign and a colour for each."""

_ENDS: Final[Mapping[str, Kind]] = {"succeeded": "ok", "failed": "bad", "cancelled": "no"}


@attrs.frozen(kw_only=True)
class Line:
    """One line of the timeline.

    Attributes:
        at: Seconds since the timeline's first event.
        kind: Kind of the line.
        who: The agent, or the tool.
        what: Arguments, or text.
        outcome: The outcome.
        seconds: Duration; None if not applicable.
    """

    at: float
    kind: Kind
    who: str
    what: str = ""
    outcome: str = ""
    seconds: float | None = None


@attrs.define
class _CallLine:
    tool: str
    arguments: str
    since: datetime | None = None
    progress: str = ""
    half_line: str = ""
    allowed: str = ""


@attrs.define(eq=False)
class Timeline:
    """A fold of events into lines.

    Attributes:
        agent: The run's agent, from the first event on.
        last: Sequence of the last folded event.
    """

    agent: str = ""
    last: int = 0
    _origin: datetime | None = None
    _calls: dict[str, _CallLine] = attrs.field(factory=dict)
    _tools: dict[str, str] = attrs.field(factory=dict)  # by call or task, including ended ones
    _tickets: dict[str, str] = attrs.field(factory=dict)
    _refused: set[str] = attrs.field(factory=set)
    _mirrors: set[str] = attrs.field(factory=set)
    _thinking: datetime | None = None
    _said: str = ""
    _active: str = ""

    def __repr__(self) -> str:
        return f"<Timeline of {self.agent or 'nothing'} up to event {self.last}>"

    def tell(self, event: Event) -> tuple[Line, ...]:
        """Fold an event and return its lines; most events have none."""
        self._origin = self._origin or event.timestamp
        self.agent, self.last = self._active or event.agent_id, event.sequence
        at = (event.timestamp - self._origin).total_seconds()
        handler = _HANDLERS.get(event.type)
        return () if handler is None else tuple(handler(self, event, event.payload, at))

    def begin_again(self) -> None:
        """Forget the present activity and keep the calls: another process has resumed the run, and time restarts."""
        self._origin, self._thinking = None, None
        for call in self._calls.values():
            call.since, call.progress = None, ""

    def now(self, moment: datetime) -> str:
        """Return the activity at this moment in one line; empty if there is none."""
        running = [call for call in self._calls.values() if call.since is not None]
        if running:
            first = running[0]
            parts = [f"{first.tool} {first.arguments}".rstrip(), first.progress, _since(first.since, moment)]
            more = f" (and {text_format.plural(len(running) - 1, 'other call')})" if len(running) > 1 else ""
            return " · ".join(part for part in parts if part) + more
        if self._thinking is not None:
            return f"{self.agent} thinks · {_since(self._thinking, moment)}"
        return ""

    # --- one method per event type -----------------------------------------------------------------------------------

    def _asked(self, event: Event, _: JSONObject, __: float) -> Iterator[Line]:
        self._thinking = event.timestamp
        yield from ()

    def _answered(self, _: Event, __: JSONObject, ___: float) -> Iterator[Line]:
        self._thinking = None
        yield from ()

    def _again(self, event: Event, payload: JSONObject, at: float) -> Iterator[Line]:
        self._thinking = event.timestamp
        detail, delay = payload.get("detail") or payload["code"], payload.get("delayMs", 0) / 1000
        when = f" in {text_format.duration(delay)}" if delay else ""
        does = "asks the model to continue" if payload.get("mode") == "continue" else "asks the model again"
        if payload.get("model"):
            does = f"asks the model {text_format.one_line(payload['model'], 60)}"
        yield Line(at=at, kind="note", who=self.agent, what=f"{does}{when}: {text_format.one_line(detail, 120)}")

    def _trimmed(self, _: Event, payload: JSONObject, at: float) -> Iterator[Line]:
        what = f"{text_format.plural(payload['messages'], 'older message')} left out of the request ({payload['by']})"
        yield Line(at=at, kind="note", who=self.agent, what=what)

    def _message(self, _: Event, payload: JSONObject, at: float) -> Iterator[Line]:
        """Keep a text that precedes calls, to become a line with the first call; a final text is the run's output.

        A text that the end of the run has cut is neither. A text of a program that works for a call is a line of it.
        """
        if payload.get("callId") is not None:
            yield Line(
                at=at, kind="text", who=self._call(payload).tool, what=text_format.clean(payload["text"].strip())
            )
            return
        text = payload["text"].strip() if payload["role"] == "assistant" else self._said
        if payload.get("cut"):
            yield Line(at=at, kind="text", who=self.agent, what=text_format.clean(text))
            yield Line(at=at, kind="note", who=self.agent, what="was cut off in this answer: the run ended")
            text = ""
        self._said = text

    def _called(self, _: Event, payload: JSONObject, at: float) -> Iterator[Line]:
        if self._said:
            yield Line(at=at, kind="text", who=self.agent, what=text_format.clean(self._said))
            self._said = ""
        parent = self._tools.get(payload.get("parentCallId", ""))
        name = text_format.one_line(payload["tool"], 40)
        tool = self._tools[payload["callId"]] = name if parent is None else f"{parent} > {name}"
        self._calls[payload["callId"]] = _CallLine(tool, text_format.arguments(payload["arguments"]))

    def _started(self, event: Event, payload: JSONObject, at: float) -> Iterator[Line]:
        call = self._call(payload)
        call.since = event.timestamp
        attempt = payload["attempt"]
        again = f"attempt {attempt}" if attempt > 1 else ""
        outcome = " · ".join(filter(None, (again, call.allowed)))
        yield Line(at=at, kind="start", who=call.tool, what=call.arguments, outcome=outcome)

    def _progress(self, _: Event, payload: JSONObject, __: float) -> Iterator[Line]:
        text = text_format.one_line(payload.get("text", ""), 40)
        self._call(payload).progress = f"{payload['fraction']:.0%} {text}".rstrip()
        yield from ()

    def _output(self, _: Event, payload: JSONObject, at: float) -> Iterator[Line]:
        call = self._call(payload)
        *whole, call.half_line = (call.half_line + payload["text"]).split("\n")
        for text in whole:
            yield Line(at=at, kind="output", who=call.tool, what=text_format.clean(text))

    def _resumed(self, _: Event, payload: JSONObject, __: float) -> Iterator[Line]:
        """Replace the displayed arguments of a call: a decision or a plugin may have changed them."""
        if payload.get("arguments") is not None:
            self._call(payload).arguments = text_format.arguments(payload["arguments"])
        yield from ()

    def _edited(self, event: Event, payload: JSONObject, at: float) -> Iterator[Line]:
        yield from self._resumed(event, payload, at)
        call, by = self._call(payload), text_format.one_line(payload["by"], 40)
        yield Line(at=at, kind="note", who=call.tool, what=f"{by} changed its arguments: {call.arguments}")

    def _result(self, event: Event, payload: JSONObject, at: float) -> Iterator[Line]:
        call = self._call(payload)
        if call.half_line:
            yield Line(at=at, kind="output", who=call.tool, what=text_format.clean(call.half_line))
        self._calls.pop(payload["callId"], None)
        if payload["callId"] in self._refused:
            return  # the decision's line shows this
        code, data = payload.get("code"), payload.get("result")
        outcome = text_format.result(data, 100)
        if code is not None:
            outcome = f"{code}: {outcome}" if outcome else code
        seconds = None if call.since is None else payload["durationMs"] / 1000
        kind = _ENDS[payload["status"]]
        yield Line(at=at, kind=kind, who=call.tool, what=call.arguments, outcome=outcome, seconds=seconds)

    def _task_started(self, event: Event, payload: JSONObject, at: float) -> Iterator[Line]:
        """Show a task like a call, under its own id."""
        tool = self._tools[payload["taskId"]] = text_format.one_line(payload["tool"], 40)
        task = self._calls[payload["taskId"]] = _CallLine(
            tool, text_format.arguments(payload["arguments"]), event.timestamp
        )
        attempt = payload["attempt"]
        how = f"in the background, attempt {attempt}" if attempt > 1 else "in the background"
        yield Line(at=at, kind="start", who=tool, what=task.arguments, outcome=how)

    def _task_progress(self, event: Event, payload: JSONObject, at: float) -> Iterator[Line]:
        yield from self._progress(event, {**payload, "callId": payload["taskId"]}, at)

    def _task_output(self, event: Event, payload: JSONObject, at: float) -> Iterator[Line]:
        yield from self._output(event, {**payload, "callId": payload["taskId"]}, at)

    def _task_finished(self, event: Event, payload: JSONObject, at: float) -> Iterator[Line]:
        yield from self._result(event, {**payload, "callId": payload["taskId"]}, at)

    def _child_started(self, _: Event, payload: JSONObject, at: float) -> Iterator[Line]:
        agent = text_format.one_line(payload["agent"], 40)
        what = f"the agent {agent} works in the child run {payload['childRunId']}"
        yield Line(at=at, kind="note", who=self._call(payload).tool, what=what)

    def _child_finished(self, _: Event, payload: JSONObject, at: float) -> Iterator[Line]:
        code = "" if payload.get("code") is None else f" ({text_format.one_line(payload['code'], 40)})"
        yield Line(at=at, kind="note", who=self._call(payload).tool, what=f"the child run is {payload['stage']}{code}")

    def _handed_over(self, _: Event, payload: JSONObject, at: float) -> Iterator[Line]:
        self._active = payload["toAgent"]
        agent = text_format.one_line(payload["toAgent"], 40)
        yield Line(at=at, kind="note", who=self.agent, what=f"hands the run over to the agent {agent}")

    def _requested(self, _: Event, payload: JSONObject, at: float) -> Iterator[Line]:
        tool = text_format.subject(payload["tool"], 40)
        if payload.get("childRunId") is None:  # the tool of a mirror is that of the child run's call
            tool = self._tools.get(payload.get("callId") or "", tool)
        self._tickets[payload["ticketId"]] = tool
        if payload.get("callId") is None:
            what = text_format.one_line(payload.get("message", ""), 200)
            yield Line(at=at, kind="wait", who=tool, what=what, outcome="is held, and waits for a decision")
            return
        call = self._calls.get(payload.get("callId") or "")
        if call is not None:
            call.since = None
        if payload.get("childRunId") is not None:
            self._mirrors.add(payload["ticketId"])
        unknown = asks_outcome(payload["reason"], payload.get("action", ""))
        why = "it is unknown whether it took effect" if unknown else "waits for a decision"
        yield Line(at=at, kind="wait", who=tool, what=text_format.arguments(payload["arguments"]), outcome=why)

    def _resolved(self, _: Event, payload: JSONObject, at: float) -> Iterator[Line]:
        how, by, reason = payload["resolution"], payload.get("by"), payload.get("reason")
        text = (
            how
            + (f" by {text_format.one_line(by, 40)}" if by else "")
            + (" with edited arguments" if payload.get("edited") else "")
        )
        text += f": {text_format.one_line(reason, 200)}" if reason else ""
        kind: Kind = "yes" if how == "approved" else "no"
        mirror = payload["ticketId"] in self._mirrors  # its denial ends a call of the child run, not this one
        if kind == "no" and payload.get("callId") is not None and not mirror:
            self._refused.add(payload["callId"])
        yield Line(at=at, kind=kind, who=self._tickets.pop(payload["ticketId"], "decision"), outcome=text)

    def _noted(self, event: Event, payload: JSONObject, at: float) -> Iterator[Line]:
        detail = payload.get("detail") or payload.get("reason") or payload.get("text") or payload.get("mode") or ""
        what = f"{_NOTES[event.type]}: {text_format.one_line(str(detail), 200)}" if detail else _NOTES[event.type]
        yield Line(at=at, kind="note", who=self.agent, what=what)

    def _allowed(self, _: Event, payload: JSONObject, at: float) -> Iterator[Line]:
        """Keep why a call passes: the line of its start tells it."""
        plugin, note = text_format.one_line(payload["plugin"], 40), text_format.one_line(payload["note"], 80)
        self._call(payload).allowed = f"{plugin}: {note}"
        yield from ()

    def _planned(self, _: Event, payload: JSONObject, at: float) -> Iterator[Line]:
        entries = [text_format.one_line(f"{one['text']} ({one['status']})", 60) for one in payload["entries"]]
        what = f"plans: {text_format.one_line('; '.join(entries), 200)}"
        yield Line(at=at, kind="note", who=self._call(payload).tool, what=what)

    def _file_read(self, _: Event, payload: JSONObject, at: float) -> Iterator[Line]:
        what = f"has read {text_format.one_line(payload['path'], 160)}"
        yield Line(at=at, kind="note", who=self._call(payload).tool, what=what)

    def _program_failed(self, event: Event, payload: JSONObject, at: float) -> Iterator[Line]:
        who = text_format.one_line(payload.get("runtime") or payload.get("source") or "", 40)
        match event.type:
            case "runtime.unavailable":
                what = f"is not available: {payload['reason']} {payload.get('hint', '')}"
            case "runtime.timeout":
                what = f"did not answer for {text_format.duration(payload['seconds'])} ({payload['which']})"
            case _:
                what = f"broke the rule {payload['rule']} in line {payload['line']}: {payload.get('sample', '')}"
        yield Line(at=at, kind="note", who=who, what=text_format.one_line(what, 200))

    def _published(self, _: Event, payload: JSONObject, at: float) -> Iterator[Line]:
        what = f"published {text_format.published(payload)}"
        yield Line(at=at, kind="note", who=self._call(payload).tool, what=what, outcome=payload["artifactId"])

    def _overruled(self, _: Event, payload: JSONObject, at: float) -> Iterator[Line]:
        plugin, by = text_format.one_line(payload["plugin"], 40), text_format.one_line(payload["by"], 40)
        what = f"the verdict of {plugin} ({payload['verdict']}) gave way to that of {by}"
        yield Line(at=at, kind="note", who=self._call(payload).tool, what=what)

    def _tripped(self, _: Event, payload: JSONObject, at: float) -> Iterator[Line]:
        name, call_id = text_format.one_line(payload["guardrail"], 40), payload.get("callId")
        what = f"the guardrail {name} {_VERDICTS[payload['verdict'], payload['kind']]}"
        info = payload.get("info")
        what += "" if info is None else f": {text_format.result(info, 160)}"
        yield Line(at=at, kind="note", who=self.agent if call_id is None else self._call(payload).tool, what=what)

    def _conflict(self, _: Event, payload: JSONObject, at: float) -> Iterator[Line]:
        """Show a conflict, which follows the result of the writing call, or the hooks of a phase."""
        writer = payload["writer"]
        what = f"what it wrote to state was dropped: {text_format.one_line(payload['detail'], 160)}"
        what += "; it runs again" if payload.get("retried") else ""
        yield Line(at=at, kind="note", who=self._tools.get(writer, text_format.one_line(writer, 40)), what=what)

    def _overrun(self, _: Event, payload: JSONObject, at: float) -> Iterator[Line]:
        grace = text_format.duration(payload["graceSeconds"])
        who = text_format.one_line(payload.get("tool") or self.agent, 40)
        yield Line(
            at=at, kind="note", who=who, what=f"did not end within its grace of {grace}; its late result is dropped"
        )

    def _call(self, payload: JSONObject) -> _CallLine:
        """Return the call of an event; created if the timeline began after the call."""
        tool = text_format.one_line(payload.get("tool") or payload["callId"], 40)
        return self._calls.setdefault(payload["callId"], _CallLine(tool, ""))


def _since(start: datetime | None, moment: datetime) -> str:
    return "" if start is None else text_format.duration(max(0.0, (moment - start).total_seconds()))


_NOTES: Final = {
    "run.degraded": "continues with less than it asked for",
    "run.input.received": "more input",
    "run.cancel.requested": "cancel asked for",
    "run.pause.requested": "pause asked for",
    "run.decision.refused": "a decision did not act",
}

_VERDICTS: Final = {
    ("trip", "input"): "stopped the run for its input",
    ("trip", "output"): "stopped the run for its answer",
    ("trip", "tool_input"): "stopped the run for the arguments of this call",
    ("trip", "tool_output"): "stopped the run for the result of this call",
    ("reject", "tool_input"): "rejected the arguments",
    ("reject", "tool_output"): "replaced the result",
}

_HANDLERS: Final[Mapping[str, Callable[[Timeline, Event, JSONObject, float], Iterator[Line]]]] = {
    "run.inference.started": Timeline._asked,
    "run.inference.completed": Timeline._answered,
    "run.inference.retried": Timeline._again,
    "run.context.trimmed": Timeline._trimmed,
    "run.message.completed": Timeline._message,
    "run.tool.call": Timeline._called,
    "run.tool.started": Timeline._started,
    "run.tool.edited": Timeline._edited,
    "run.tool.resumed": Timeline._resumed,
    "run.tool.progress": Timeline._progress,
    "run.tool.output.delta": Timeline._output,
    "run.tool.result": Timeline._result,
    "run.task.started": Timeline._task_started,
    "run.task.progress": Timeline._task_progress,
    "run.task.output.delta": Timeline._task_output,
    "run.task.finished": Timeline._task_finished,
    "run.child.started": Timeline._child_started,
    "run.child.finished": Timeline._child_finished,
    "run.handoff": Timeline._handed_over,
    "run.approval.requested": Timeline._requested,
    "run.approval.resolved": Timeline._resolved,
    "run.gate.allowed": Timeline._allowed,
    "run.gate.overruled": Timeline._overruled,
    "run.plan.changed": Timeline._planned,
    "run.file.read": Timeline._file_read,
    "runtime.unavailable": Timeline._program_failed,
    "runtime.timeout": Timeline._program_failed,
    "schema.validation_failed": Timeline._program_failed,
    "run.guardrail.tripped": Timeline._tripped,
    "run.state.conflict": Timeline._conflict,
    "run.artifact.ready": Timeline._published,
    "run.preview.ready": Timeline._published,
    "run.cleanup.overrun": Timeline._overrun,
    **dict.fromkeys(_NOTES, Timeline._noted),
}
