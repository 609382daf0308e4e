"""The phases of a run in their fixed order, and its positions as a table.

    run_start -> [ step_start -> before_inference -> model -> after_inference
                   -> [per call: tool_gate] -> [per allowed call: before_tool_execute -> tool -> after_tool_execute]
                   -> step_end ]* -> run_end

Theory of operation. A phase is a place for hooks; a phase without hooks costs no task, no commit and no event. The
position says where the run is: in a run-level phase, in the work between two of them, in one of the waits, or at the
end. `RUN_POSITIONS` has one row per position, with the positions that may follow and the facts that hold there.
`StepBuilder.enter` of the engine is the only place that moves a run, and checks each move against the table; one input
may make several moves. `forced_end.py` alone writes `ended` over any position, because the rows of such a run cannot be
trusted. The calls of a step move inside `tools`: `calls.py` has their table.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import attrs

from .lifecycle import IllegalTransition


class Phase(StrEnum):
    """The places at which hooks run."""

    RUN_START = "run_start"
    STEP_START = "step_start"
    BEFORE_INFERENCE = "before_inference"
    AFTER_INFERENCE = "after_inference"
    TOOL_GATE = "tool_gate"
    BEFORE_TOOL_EXECUTE = "before_tool_execute"
    AFTER_TOOL_EXECUTE = "after_tool_execute"
    STEP_END = "step_end"
    RUN_END = "run_end"


class RunPosition(StrEnum):
    """The position of the machine: the run-level phases, the stretches between them, and the end.

    `preparing` comes before the first phase, for a run in a workspace or with a tool that prepares itself. `tools`
    covers the three per-call phases; each call has its own `CallPosition`. Three positions wait for guardrails:
    `guards_first` before the model request, `guards_answer` with an answer, `guards_output` with an output. Two
    positions are between steps: `tasks`, when the model has finished and background tasks are alive, and `paused` (also
    before the first step), while a ticket of the run itself is open.

    Attributes:
        rule: the row of the table.
    """

    rule: RunRule

    ADMISSION = "admission"
    PREPARING = "preparing"
    RUN_START = "run_start"
    STEP_START = "step_start"
    BEFORE_INFERENCE = "before_inference"
    GUARDS_FIRST = "guards_first"
    INFERENCE = "inference"
    AFTER_INFERENCE = "after_inference"
    GUARDS_ANSWER = "guards_answer"
    TOOLS = "tools"
    GUARDS_OUTPUT = "guards_output"
    TASKS = "tasks"
    STEP_END = "step_end"
    PAUSED = "paused"
    STOPPING = "stopping"
    RUN_END = "run_end"
    ENDED = "ended"


ADMISSION: Final[RunPosition] = RunPosition.ADMISSION
STEP_START: Final[RunPosition] = RunPosition.STEP_START
BEFORE_INFERENCE: Final[RunPosition] = RunPosition.BEFORE_INFERENCE
INFERENCE: Final[RunPosition] = RunPosition.INFERENCE
AFTER_INFERENCE: Final[RunPosition] = RunPosition.AFTER_INFERENCE
TOOLS: Final[RunPosition] = RunPosition.TOOLS
TASKS: Final[RunPosition] = RunPosition.TASKS
STEP_END: Final[RunPosition] = RunPosition.STEP_END
ENDED: Final[RunPosition] = RunPosition.ENDED
"""The positions that every run passes or is asked about, as constants.

Calls of a step move in TOOLS only: not before, not at the end. Before Python 3.12 the lookup of an enum member costs
some thirty times as much as the lookup of a global.
"""


@attrs.frozen(kw_only=True)
class RunRule:
    """A row of the table.

    Attributes:
        to: the positions that may follow. A position that follows itself is entered again.
        hooks: the phase whose hooks run here.
        guardrails: open guardrails have been asked, and may answer; at other positions they are only named.
        between_steps: the run is outside a step, and waits for its slot and thread, for its preparation, for its tasks
            or for people.
        leaving: the run is ending, and its termination is final.
    """

    to: frozenset[RunPosition]
    hooks: Phase | None = None
    guardrails: bool = False
    between_steps: bool = False
    leaving: bool = False


_AT = RunPosition


def _to(*positions: RunPosition) -> frozenset[RunPosition]:
    return frozenset(positions)


RUN_POSITIONS: Final[Mapping[RunPosition, RunRule]] = {
    _AT.ADMISSION: RunRule(to=_to(_AT.PREPARING, _AT.RUN_START, _AT.STOPPING), between_steps=True),
    _AT.PREPARING: RunRule(to=_to(_AT.RUN_START, _AT.STOPPING), between_steps=True),
    _AT.RUN_START: RunRule(to=_to(_AT.STEP_START, _AT.PAUSED, _AT.STOPPING), hooks=Phase.RUN_START),
    _AT.STEP_START: RunRule(to=_to(_AT.BEFORE_INFERENCE, _AT.GUARDS_FIRST, _AT.STOPPING), hooks=Phase.STEP_START),
    _AT.BEFORE_INFERENCE: RunRule(to=_to(_AT.INFERENCE, _AT.STOPPING), hooks=Phase.BEFORE_INFERENCE),
    _AT.GUARDS_FIRST: RunRule(to=_to(_AT.BEFORE_INFERENCE, _AT.STOPPING), guardrails=True),
    _AT.INFERENCE: RunRule(
        # another request; the hooks ask again for a new owner; the answer
        to=_to(_AT.INFERENCE, _AT.BEFORE_INFERENCE, _AT.AFTER_INFERENCE, _AT.STOPPING),
        guardrails=True,
    ),
    _AT.AFTER_INFERENCE: RunRule(
        # the rest of a truncated answer; a wait for guardrails; the answer's calls; an answer without calls
        to=_to(_AT.INFERENCE, _AT.GUARDS_ANSWER, _AT.TOOLS, _AT.GUARDS_OUTPUT, _AT.STEP_END, _AT.STOPPING),
        hooks=Phase.AFTER_INFERENCE,
        guardrails=True,
    ),
    _AT.GUARDS_ANSWER: RunRule(to=_to(_AT.TOOLS, _AT.GUARDS_OUTPUT, _AT.STEP_END, _AT.STOPPING), guardrails=True),
    _AT.TOOLS: RunRule(to=_to(_AT.GUARDS_OUTPUT, _AT.STEP_END, _AT.STOPPING)),
    _AT.GUARDS_OUTPUT: RunRule(
        # run_end: the run was stopping already
        to=_to(_AT.STEP_END, _AT.STOPPING, _AT.RUN_END),
        guardrails=True,
    ),
    _AT.TASKS: RunRule(to=_to(_AT.STEP_START, _AT.STOPPING), between_steps=True),
    _AT.STEP_END: RunRule(to=_to(_AT.STEP_START, _AT.TASKS, _AT.PAUSED, _AT.STOPPING), hooks=Phase.STEP_END),
    _AT.PAUSED: RunRule(to=_to(_AT.STEP_START, _AT.STOPPING), between_steps=True),
    # stopping again: the owner gives up while the work stops
    _AT.STOPPING: RunRule(to=_to(_AT.STOPPING, _AT.GUARDS_OUTPUT, _AT.RUN_END), leaving=True),
    _AT.RUN_END: RunRule(to=_to(_AT.STOPPING, _AT.ENDED), hooks=Phase.RUN_END, leaving=True),
    _AT.ENDED: RunRule(to=_to(), leaving=True),
}
"""The table: each position, the positions that may follow, and the facts that hold there. A run begins at `admission`.

Entering a position with `hooks` runs them, if there are any.
"""

for _position, _rule in RUN_POSITIONS.items():
    _position.rule = _rule  # an attribute is found faster than a row, and the engine asks for columns with each input


def illegal_move(run_id: str, source: RunPosition, target: RunPosition) -> IllegalTransition:
    """Return the error for a move that the table does not have."""
    return IllegalTransition(f"position of run {run_id}", source, target, source.rule.to)
