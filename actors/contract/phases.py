"""The nine phases of a run, in their fixed order.

    run_start -> [ step_start -> before_inference -> model -> after_inference
                   -> [per call: tool_gate] -> [per allowed call: before_tool_execute -> tool -> after_tool_execute]
                   -> step_end ]* -> run_end

A phase without hooks is a table lookup: no task, no commit, no event.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


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

    `tools` covers the three per-call phases; each call has its own `CallPosition`. Three positions wait for guardrails:
    `guards_first` before the model request, `guards_answer` with an answer, `guards_output` with an output. Two
    positions are between steps: `tasks`, when the model has finished and background tasks are alive, and `paused` (also
    before the first step), while a ticket of the run itself is open.
    """

    ADMISSION = "admission"
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

LEAVING: Final = (RunPosition.STOPPING, RunPosition.RUN_END, RunPosition.ENDED)
"""The positions of a run that is ending: its termination is final."""
BETWEEN_STEPS: Final = (RunPosition.ADMISSION, RunPosition.TASKS, RunPosition.PAUSED)
"""The positions outside a step, in which a run waits for its slot, its thread, its tasks or people."""

PHASE_OF: Final[Mapping[RunPosition, Phase]] = {
    RunPosition.RUN_START: Phase.RUN_START,
    RunPosition.STEP_START: Phase.STEP_START,
    RunPosition.BEFORE_INFERENCE: Phase.BEFORE_INFERENCE,
    RunPosition.AFTER_INFERENCE: Phase.AFTER_INFERENCE,
    RunPosition.STEP_END: Phase.STEP_END,
    RunPosition.RUN_END: Phase.RUN_END,
}
"""The run-level phases; entering one of these positions runs its hooks, if there are any."""
