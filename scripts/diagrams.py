"""Mermaid diagrams of the machines, drawn from the tables that the program runs on.

Each function returns one Markdown document; `scripts/generate.py` writes them to docs/diagrams.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from itertools import pairwise
from typing import TypeVar

from greenroom.actors.contract.calls import CALLS, SETTLED, CallStatus
from greenroom.actors.contract.lifecycle import STAGES, STATUS, TERMINAL, RunStatus, Stage
from greenroom.actors.contract.phases import Phase

State = TypeVar("State", bound=StrEnum)

PER_CALL = (Phase.TOOL_GATE, Phase.BEFORE_TOOL_EXECUTE, Phase.AFTER_TOOL_EXECUTE)
WORK_AFTER = {Phase.BEFORE_INFERENCE: "model", Phase.BEFORE_TOOL_EXECUTE: "tool"}
"""What is done between a phase and the next one."""

COLOURS = {
    RunStatus.CREATED: "fill:#e8eefc,color:#1b2a4a",
    RunStatus.RUNNING: "fill:#e3f6e8,color:#12391f",
    RunStatus.WAITING: "fill:#fff3d1,color:#4a3500",
    RunStatus.DONE: "fill:#ececec,color:#222222",
}
"""Status -> how its stages are drawn. Mermaid has no moves between the insides of two composite states."""


def run_diagram() -> str:
    """The run's stages; the colour is the status that programs see."""
    lines = [f"[*] --> {Stage.CREATED.value}", *_moves(STAGES, TERMINAL)]
    for status, colour in COLOURS.items():
        stages = ",".join(stage.value for stage in Stage if STATUS[stage] is status)
        lines += [f"classDef status_{status.value} {colour}", f"class {stages} status_{status.value}"]
    table = ["| stage | status |", "|---|---|", *(f"| {stage.value} | {STATUS[stage].value} |" for stage in Stage)]
    drawn = _document("The run", "STAGES and STATUS in actors/contract/lifecycle.py", "stateDiagram-v2", lines)
    return drawn + "\n" + "\n".join(table) + "\n"


def call_diagram() -> str:
    """The statuses of one tool call."""
    lines = [f"[*] --> {CallStatus.NEW.value}", *_moves(CALLS, SETTLED)]
    return _document("The tool call", "CALLS in actors/contract/calls.py", "stateDiagram-v2", lines)


def phase_diagram() -> str:
    """The nine phases in their order, with the two loops."""
    step = [phase for phase in Phase if phase not in (Phase.RUN_START, Phase.RUN_END)]
    path = [Phase.RUN_START.value]
    for phase in step:
        path += [phase.value, *([WORK_AFTER[phase]] if phase in WORK_AFTER else [])]
    path.append(Phase.RUN_END.value)
    lines = [f"{work}([{work}])" for work in WORK_AFTER.values()]
    lines += [f"{one} --> {following}" for one, following in pairwise(path)]
    lines += [
        f"{Phase.STEP_END.value} -->|next step| {Phase.STEP_START.value}",
        f"{Phase.AFTER_INFERENCE.value} -->|no calls| {Phase.STEP_END.value}",
        f"{Phase.TOOL_GATE.value} -->|a result is set| {Phase.AFTER_TOOL_EXECUTE.value}",
        f"{Phase.AFTER_TOOL_EXECUTE.value} -->|next call| {Phase.TOOL_GATE.value}",
        "subgraph calls [for each call]",
        *(f"    {phase.value}" for phase in PER_CALL),
        "    tool",
        "end",
    ]
    return _document("The phases", "Phase in actors/contract/phases.py", "flowchart TD", lines)


DIAGRAMS: Mapping[str, Callable[[], str]] = {"run": run_diagram, "call": call_diagram, "phases": phase_diagram}
"""Name of the file in docs/diagrams -> what draws it."""


def _moves(table: Mapping[State, frozenset[State]], final: Iterable[State]) -> list[str]:
    order = list(table)
    moves = [f"{a.value} --> {b.value}" for a in order for b in sorted(table[a], key=order.index)]
    return moves + [f"{last.value} --> [*]" for last in order if last in final]


def _document(title: str, source: str, kind: str, lines: Iterable[str]) -> str:
    drawn = "\n".join(f"    {line}" for line in lines)
    return (
        f"# {title}\n\nGenerated from {source} by `python scripts/generate.py`.\n\n```mermaid\n{kind}\n{drawn}\n```\n"
    )
