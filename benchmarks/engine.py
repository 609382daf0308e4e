"""What the run machine itself costs, without actors, store or events in bytes: microseconds per run."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

from greenroom.actors.contract.decisions import Command, Decision, InboxItem
from greenroom.actors.contract.messages import CallRequest, ModelResponse, Usage
from greenroom.actors.contract.phases import RunPosition
from greenroom.actors.contract.rows import RunInfo, RunRow
from greenroom.actors.contract.spec import AgentSpec, ToolSpec
from greenroom.actors.engine import inputs as inp
from greenroom.actors.engine.machine import step
from greenroom.actors.engine.state import RunState

from .harness import Benchmark, Case, Figure
from .machine import plain_python

RUNS = 2_000
NOW = datetime(2026, 1, 1, tzinfo=UTC)
INFO = RunInfo(run_id="r", thread_id="t", agent="a", agent_digest="d", created_at=NOW, execution="sequential")
USAGE = Usage(requests=1, input=900, output=50)
ASKS = ModelResponse(
    text=("let me see",), calls=(CallRequest(call_id="c1", tool="t", arguments={"path": "a/b", "n": 3}),), usage=USAGE
)
DECISION = Decision(target="r.t1", action="resume", decision_id="d1", decided_by="ann")

OPENING = (
    inp.Activate(admitted=False, agent_digest="d"),
    inp.Admit(),
    inp.ModelAnswered(message_id="r.m1", response=ASKS),
)
APPROVAL = (
    inp.CommandArrived(item=InboxItem(position=1, command=Command(command_id="d1", kind="decide", decision=DECISION))),
)
ENDING = (
    inp.CallReturned(call_id="c1", attempt=1, result="ok", shown="ok"),
    inp.ModelAnswered(message_id="r.m3", response=ModelResponse(text=("done",), usage=USAGE)),
)


def spec(gate: str) -> AgentSpec:
    """An agent with one tool, gated always or never."""
    return AgentSpec(key="a", digest="d", tools={"t": ToolSpec(name="t", effect="write", gate=gate)})


def play(agent: AgentSpec, messages: tuple[inp.Input, ...]) -> RunState:
    """Feed a new run."""
    state = RunState(info=INFO, row=RunRow(last_sequence=1))
    for message in messages:
        state = step(agent, state, message, NOW).state
    return state


FURTHER = 10
"""Calls beside the first one, of the model or of the body of the first one."""


def with_calls(further: int) -> tuple[inp.Input, ...]:
    """The inputs of a run whose model asks for this many calls more, each of which succeeds."""
    requests = tuple(call_request(f"c{number}") for number in range(1, further + 2))
    answer = ModelResponse(text=("let me see",), calls=requests, usage=USAGE)
    ends = [inp.CallReturned(call_id=one.call_id, attempt=1, result="ok", shown="ok") for one in requests]
    return (*OPENING[:2], inp.ModelAnswered(message_id="r.m1", response=answer), *ends, _last(len(ends)))


def with_nested(further: int) -> tuple[inp.Input, ...]:
    """The inputs of a run with one call, whose body makes this many nested calls, one after the other."""
    calls = [
        (
            inp.NestedCalled(ask=number, parent="c1", attempt=1, tool="t", arguments={"path": "a/b", "n": number}),
            inp.NestedEnded(call_id=f"c1.{number}", result="ok", shown="ok"),
        )
        for number in range(1, further + 1)
    ]
    messages = [message for pair in calls for message in pair]
    return (*OPENING, *messages, ENDING[0], _last(1))


def call_request(call_id: str) -> CallRequest:
    """A call as the model asks for it."""
    return CallRequest(call_id=call_id, tool="t", arguments={"path": "a/b", "n": 3})


def _last(calls: int) -> inp.Input:
    response = ModelResponse(text=("done",), usage=USAGE)
    return inp.ModelAnswered(message_id=f"r.m{calls + 2}", response=response)


def _case(key: str, act: Callable[[], object]) -> Case:
    """The median of five blocks, so that a first slow one does not count."""

    def case(quick: bool) -> dict[str, float]:
        runs = 20 if quick else RUNS
        blocks = []
        for _ in range(5):
            began = time.process_time()
            for _ in range(runs):
                act()
            blocks.append((time.process_time() - began) / runs * 1e6)
        return {key: sorted(blocks)[2]}

    return case


def _play_out(agent: AgentSpec, messages: tuple[inp.Input, ...]) -> Callable[[], object]:
    assert play(agent, messages).row.position is RunPosition.ENDED
    return lambda: play(agent, messages)


BENCHMARK = Benchmark(
    name="engine",
    about="the run machine alone, CPU time; beside it, plain Python on the same processor in the same minute",
    cases={
        "tool": _case("tool", _play_out(spec("never"), (*OPENING, *ENDING))),
        "approval": _case("approval", _play_out(spec("always"), (*OPENING, *APPROVAL, *ENDING))),
        "calls": _case("calls", _play_out(spec("never"), with_calls(FURTHER))),
        "nested": _case("nested", _play_out(spec("never"), with_nested(FURTHER))),
        "plain": _case("plain", plain_python),
    },
    derive=lambda values: {
        "per_plain": values["tool"] / values["plain"],
        "per_call": (values["calls"] - values["tool"]) / FURTHER,
        "per_nested": (values["nested"] - values["tool"]) / FURTHER,
        "nested_per_call": (values["nested"] - values["tool"]) / (values["calls"] - values["tool"]),
    },
    figures=(
        Figure(key="tool", what="a run with one tool, 5 inputs", unit="us", digits=1),
        Figure(key="approval", what="a run with one tool and one approval, 6 inputs", unit="us", digits=1),
        Figure(key="per_call", what="each further call of the model", unit="us", digits=1),
        Figure(key="per_nested", what="each nested call of one body", unit="us", digits=1),
        Figure(key="nested_per_call", what="a nested call, in further calls", unit="x", at_most=1.2, digits=2),
        Figure(key="plain", what="1,000 additions in a loop of plain Python", unit="us", digits=1),
        Figure(key="per_plain", what="the run with one tool, in such loops", unit="x", digits=1),
    ),
)
