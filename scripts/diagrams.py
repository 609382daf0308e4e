"""Mermaid diagrams of the machines, drawn from the tables that the program runs on.

Each function returns one Markdown document; `scripts/generate.py` writes them to docs/diagrams.
"""

import runpy
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, TypeVar

from greenroom.actors.contract.calls import CALLS, POSITIONS, SETTLED, CallPosition, CallRule, CallStatus
from greenroom.actors.contract.lifecycle import STAGES, STATUS, TERMINAL, RunStatus, Stage
from greenroom.actors.contract.phases import RUN_POSITIONS, Phase, RunPosition

State = TypeVar("State", bound=StrEnum)
TABLES = "tests/support/timeline.py"

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
    diagram = _document("The run", "STAGES and STATUS in actors/contract/lifecycle.py", "stateDiagram-v2", lines)
    return diagram + "\n" + "\n".join(table) + "\n"


def call_diagram() -> str:
    """The statuses of one tool call."""
    lines = [f"[*] --> {CallStatus.NEW.value}", *_moves(CALLS, SETTLED)]
    return _document("The tool call", "POSITIONS in actors/contract/calls.py", "stateDiagram-v2", lines)


CALL_COLOURS = {
    "waiting": "fill:#fff3d1,color:#4a3500",
    "executing": "fill:#e3f6e8,color:#12391f",
    "ended": "fill:#ececec,color:#222222",
}
"""What is drawn of a position by its colour; the others have none."""
FLAGS = ("executing", "body", "writes", "undecided", "merges", "alive", "ended")


def position_diagram() -> str:
    """The positions of a call, as the engine moves it, and the columns of their table."""
    moves = {at: row.to for at, row in POSITIONS.items()}
    lines = [
        f"[*] --> {CallPosition.NEW.value}",
        *_moves(moves, [at for at, following in moves.items() if not following]),
    ]
    for kind, colour in CALL_COLOURS.items():
        positions = ",".join(at.value for at, row in POSITIONS.items() if _kind(row) == kind)
        lines += [f"classDef call_{kind} {colour}", f"class {positions} call_{kind}"]
    heads = ["position", "status", "hooks", *FLAGS, "may end as"]
    rows = [[at.value, *_columns(row)] for at, row in POSITIONS.items()]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in [heads, ["---"] * len(heads), *rows])
    diagram = _document("The positions of a call", "POSITIONS in actors/contract/calls.py", "stateDiagram-v2", lines)
    return f"{diagram}\n{table}\n"


def _kind(row: CallRule) -> str:
    if row.ended:
        return "ended"
    return "executing" if row.executing else "waiting" if row.alive else ""


def _columns(row: CallRule) -> list[str]:
    flags = ["yes" if getattr(row, flag) else "" for flag in FLAGS]
    outcomes = ", ".join(status.value for status in CallStatus if status in row.outcomes)
    return [row.status.value if row.status else "", row.phase.value if row.phase else "", *flags, outcomes]


RUN_COLOURS = {
    "between_steps": "fill:#fff3d1,color:#4a3500",
    "leaving": "fill:#ececec,color:#222222",
}
"""Column -> how its positions of a run are drawn; the others have no colour."""
RUN_FLAGS = ("guardrails", "between_steps", "leaving")


def run_position_diagram() -> str:
    """The positions of a run, as the engine moves it, and the columns of their table."""
    moves = {at: row.to for at, row in RUN_POSITIONS.items()}
    lines = [f"[*] --> {RunPosition.ADMISSION.value}", *_moves(moves, [RunPosition.ENDED])]
    for column, colour in RUN_COLOURS.items():
        positions = ",".join(at.value for at, row in RUN_POSITIONS.items() if getattr(row, column))
        lines += [f"classDef run_{column} {colour}", f"class {positions} run_{column}"]
    heads = ["position", "hooks", *RUN_FLAGS]
    rows = [
        [at.value, row.hooks.value if row.hooks else "", *("yes" if getattr(row, flag) else "" for flag in RUN_FLAGS)]
        for at, row in RUN_POSITIONS.items()
    ]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in [heads, ["---"] * len(heads), *rows])
    source = "RUN_POSITIONS in actors/contract/phases.py"
    return f"{_document('The positions of a run', source, 'stateDiagram-v2', lines)}\n{table}\n"


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


BARS = {
    "suspended": "crit, ",
    "waiting": "crit, ",
    "resuming": "active, ",
    "running": "active, ",
    "succeeded": "done, ",
    "done": "done, ",
}
"""Status -> how its bar is drawn: what waits for people, what moves, what is over."""
AFTERWARDS = 5
"""Seconds that are drawn after the end."""


def timeline_diagram() -> str:
    """The three calls and the run over time, in each mode, as bars; and the tables that the tests hold it to."""
    tables: Mapping[str, Any] = runpy.run_path(str(Path(__file__).resolve().parent.parent / TABLES))
    timelines, end = tables["TIMELINES"], tables["END"]
    alike = groupby(timelines, key=lambda mode: timelines[mode])
    parts = [
        _timeline(" and ".join(modes), moments, tables["CALLS"], end)
        for moments, modes in [(moments, list(modes)) for moments, modes in alike]
    ]
    return f"# The timeline\n\nGenerated from {TABLES} by `python scripts/generate.py`.\n\n" + "\n\n".join(parts) + "\n"


def _timeline(title: str, moments: Sequence[Any], calls: Sequence[str], end: int) -> str:
    lines = ["---", "displayMode: compact", "---", "gantt", f"    title {title}, in seconds"]
    lines += ["    dateFormat HH:mm:ss", "    axisFormat %M:%S"]  # dateFormat X takes starts for milliseconds
    for number, name in enumerate(calls):
        lines += [f"    section {name}", *_bars([(moment.at, moment.calls[number]) for moment in moments], end)]
    lines += ["    section run", *_bars([*((moment.at, moment.run) for moment in moments), (end, "done")], end)]
    diagram = "\n".join(lines)
    heads = ["", "second", "what happens", *calls, "run"]
    rows = [[moment.name, str(moment.at), moment.what, *moment.calls, moment.run] for moment in moments]
    table = "\n".join(f"| {' | '.join(row)} |" for row in [heads, ["---"] * len(heads), *rows])
    return f"```mermaid\n{diagram}\n```\n\n{table}"


def _bars(points: Sequence[tuple[int, str]], end: int) -> list[str]:
    """One bar per status that lasts: those of no length are in the table only."""
    last = {at: status for at, status in points}  # noqa: C416 - the last one of each second
    times = [*sorted(last), end + AFTERWARDS]
    spans = [(last[start], start, stop) for start, stop in pairwise(times)]
    bars = [(status, list(same)) for status, same in groupby(spans, key=lambda span: span[0])]
    return [f"    {status} : {BARS[status]}{_clock(same[0][1])}, {_clock(same[-1][2])}" for status, same in bars]


def _clock(seconds: int) -> str:
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


DIAGRAMS: Mapping[str, Callable[[], str]] = {
    "run": run_diagram,
    "call": call_diagram,
    "positions": position_diagram,
    "run-positions": run_position_diagram,
    "phases": phase_diagram,
    "timeline": timeline_diagram,
}
"""Name of the file in docs/diagrams -> what draws it."""


def _moves(table: Mapping[State, frozenset[State]], final: Iterable[State]) -> list[str]:
    order = list(table)
    moves = [f"{a.value} --> {b.value}" for a in order for b in sorted(table[a], key=order.index)]
    return moves + [f"{last.value} --> [*]" for last in order if last in final]


def _document(title: str, source: str, kind: str, lines: Iterable[str]) -> str:
    diagram = "\n".join(f"    {line}" for line in lines)
    return (
        f"# {title}\n\nGenerated from {source} by `python scripts/generate.py`.\n\n```mermaid\n{kind}\n{diagram}\n```\n"
    )
