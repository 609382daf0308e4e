"""What the run machine itself costs: microseconds of process time per run, medians of 5 samples of 2,000 runs.

    python benchmarks/bench_engine.py

The last line is the time of a fixed loop of plain Python on the same core in the same minute: compare figures of two
machines, or of a busy and an idle hour, by their ratio to it.
"""

import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime

from greenroom.actors.contract.decisions import Command, Decision, InboxItem
from greenroom.actors.contract.messages import CallRequest, ModelResponse, Usage
from greenroom.actors.contract.phases import Cursor
from greenroom.actors.contract.rows import RunInfo, RunRow
from greenroom.actors.contract.spec import AgentSpec, ToolSpec
from greenroom.actors.engine import inputs as inp
from greenroom.actors.engine.machine import step
from greenroom.actors.engine.state import RunState

RUNS = 2_000
SAMPLES = 5
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
    return AgentSpec(key="a", digest="d", tools={"t": ToolSpec(name="t", effect="write", gate=gate)})


def play(agent: AgentSpec, messages: tuple[inp.Input, ...]) -> RunState:
    state = RunState(info=INFO, row=RunRow(last_sequence=1))
    for message in messages:
        state = step(agent, state, message, NOW).state
    return state


def plain_python() -> int:
    total = 0
    for number in range(1_000):
        total += number
    return total


def microseconds(act: Callable[[], object]) -> float:
    samples = []
    for _ in range(SAMPLES):
        start = time.process_time()
        for _ in range(RUNS):
            act()
        samples.append((time.process_time() - start) / RUNS * 1e6)
    return statistics.median(samples)


def main() -> None:
    free, gated = spec("never"), spec("always")
    cases = (
        ("a run with one tool, 5 inputs", lambda: play(free, (*OPENING, *ENDING))),
        ("a run with one tool and one approval, 6 inputs", lambda: play(gated, (*OPENING, *APPROVAL, *ENDING))),
    )
    for name, act in cases:
        assert act().row.cursor is Cursor.ENDED, name
        print(f"{name:50} {microseconds(act):8.1f} us")
    print(f"{'1,000 additions in a loop of plain Python':50} {microseconds(plain_python):8.1f} us")


if __name__ == "__main__":
    main()
