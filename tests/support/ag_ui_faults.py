"""Faults in an AG-UI stream, each with the rule that it breaks: what the checker has to find."""

import copy
from collections.abc import Callable
from typing import Any, Final

from ..unit.engine.world import call
from .ag_ui_lives import kinds, says, scripted, streams

Out = list[dict[str, Any]]


def at(out: Out, kind: str) -> int:
    return kinds(out).index(kind)


def drop(kind: str) -> Callable[[Out], Any]:
    return lambda out: out.pop(at(out, kind))


def double(kind: str) -> Callable[[Out], Any]:
    return lambda out: out.insert(at(out, kind), copy.deepcopy(out[at(out, kind)]))


def change(kind: str, **fields: Any) -> Callable[[Out], Any]:
    return lambda out: out[at(out, kind)].update(fields)


def drop_call(out: Out) -> None:
    out[:] = [event for event in out if event["type"] not in ("TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END")]


PLANTED = [
    ("first event", drop("RUN_STARTED")),
    ("run in a run", double("RUN_STARTED")),
    ("one end", lambda out: out.pop()),
    ("after the end", double("RUN_FINISHED")),
    ("after the end", lambda out: out.append({"type": "STEP_STARTED", "stepName": "late"})),
    ("not open", drop("STEP_STARTED")),
    ("open at the end", drop("STEP_FINISHED")),
    ("opened twice", double("STEP_STARTED")),
    ("not open", drop("TEXT_MESSAGE_START")),
    ("open at the end", drop("TEXT_MESSAGE_END")),
    ("opened twice", double("TEXT_MESSAGE_START")),
    ("not open", drop("REASONING_START")),
    ("open at the end", drop("REASONING_END")),
    ("not open", drop("REASONING_MESSAGE_START")),
    ("open at the end", drop("REASONING_MESSAGE_END")),
    ("not open", drop("TOOL_CALL_START")),
    ("open at the end", drop("TOOL_CALL_END")),
    ("second result", double("TOOL_CALL_RESULT")),
    ("result without call", drop_call),
    ("snapshots before an interrupt", drop("STATE_SNAPSHOT")),
    ("snapshots before an interrupt", drop("MESSAGES_SNAPSHOT")),
    ("no nulls", change("TEXT_MESSAGE_START", role=None)),
    ("known field", change("RUN_STARTED", thread_id="th")),
    ("known type", change("STATE_SNAPSHOT", type="STATE")),
    ("field's kind", change("TEXT_MESSAGE_END", timestamp=1.5)),
    ("field's kind", change("RUN_FINISHED", outcome="interrupt")),
    ("required field", lambda out: out[0].pop("runId")),
    ("echo", change("RUN_STARTED", runId="y")),
    ("echo", change("RUN_FINISHED", threadId="y")),
    ("outcome", change("RUN_FINISHED", outcome={"type": "interrupt", "interrupts": []})),
    ("protocol version", lambda out: out[0].pop("protocolVersion")),
    ("time", change("RUN_STARTED", timestamp=2**52)),
    ("owner", change("TEXT_MESSAGE_END", subagentRunId="s")),
    ("owner", change("TOOL_CALL_END", subagentRunId="s")),
    ("usage", lambda out: out[-1]["usage"][0].update(totalTokens=1)),
    ("interrupt", lambda out: out[-1]["outcome"]["interrupts"][0].pop("toolCallId")),
    ("interrupt of no open call", lambda out: out[-1]["outcome"]["interrupts"][0].update(toolCallId="r:c1")),
    ("field's value", change("REASONING_MESSAGE_START", role="assistant")),
    ("message", lambda out: out[at(out, "MESSAGES_SNAPSHOT")]["messages"][0].pop("role")),
    ("call begun again", lambda out: out.extend([*out[at(out, "TOOL_CALL_START") :][:3], out.pop()])),
]

FOUND_BY_ALL: Final = frozenset(
    {
        *("first event", "run in a run", "after the end", "not open", "open at the end", "opened twice", "owner"),
        *("no nulls", "field's kind", "field's value", "required field", "outcome"),
    }
)
"""Rules that the protocol's own client keeps, too. The others are promises that no one else looks at."""


def sound() -> Out:
    """A stream with everything in it, up to an interrupt."""
    steps = [streams("Pa", "hm"), says("Pay?", calls=[call("c1", "read"), call("c2", "pay")])]
    return copy.deepcopy(scripted(*steps, lambda world: world.returns("c1")))
