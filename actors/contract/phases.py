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
    """Where hooks may run."""

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
    """Where the machine stands: the run-level phases, the stretches between them, and the way out.

    `tools` covers the three per-call phases; each call has its own `CallPosition`. Two lie between the steps:
    `tasks`, when the model has nothing more to say and background tasks live, and `paused` (also before the first
    step), while a ticket of the run itself is open.
    """

    ADMISSION = "admission"
    RUN_START = "run_start"
    STEP_START = "step_start"
    BEFORE_INFERENCE = "before_inference"
    INFERENCE = "inference"
    AFTER_INFERENCE = "after_inference"
    TOOLS = "tools"
    TASKS = "tasks"
    STEP_END = "step_end"
    PAUSED = "paused"
    STOPPING = "stopping"
    RUN_END = "run_end"
    ENDED = "ended"


LEAVING: Final = (RunPosition.STOPPING, RunPosition.RUN_END, RunPosition.ENDED)
"""Where a run is on its way out: its termination is settled."""
BETWEEN_STEPS: Final = (RunPosition.ADMISSION, RunPosition.TASKS, RunPosition.PAUSED)
"""Where no step is under way, and a run waits for its turn, for its tasks or for people."""

PHASE_OF: Final[Mapping[RunPosition, Phase]] = {
    RunPosition.RUN_START: Phase.RUN_START,
    RunPosition.STEP_START: Phase.STEP_START,
    RunPosition.BEFORE_INFERENCE: Phase.BEFORE_INFERENCE,
    RunPosition.AFTER_INFERENCE: Phase.AFTER_INFERENCE,
    RunPosition.STEP_END: Phase.STEP_END,
    RunPosition.RUN_END: Phase.RUN_END,
}
"""The run-level phases; entering one of these cursors runs its hooks, if there are any."""
