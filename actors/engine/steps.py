"""The walk through the phases: run_start, then steps of inference and tools, then the end.

Theory of operation. `arrive` enters a phase. With hooks the walk stops until they answer; without hooks it continues at
once with the row of `_AFTER`. `leave` continues after the hooks. Every walk ends in an effect (hooks, a model request,
bodies), in a rest, or in the terminal event, so a walk never recurses past one model request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ..contract import events as ev
from ..contract.calls import CallStatus
from ..contract.lifecycle import Stage, Termination, TerminationKind
from ..contract.messages import Message, Producer
from ..contract.phases import PHASE_OF, RunPosition
from ..state.snapshot import StateSnapshot
from .calls import advance_calls
from .decisions import cancelled
from .effects import RunPhase
from .inference import ask_model
from .inputs import Admit
from .run_tickets import open_pause, rest
from .state import StepBuilder
from .stop_conditions import count_step, first_stop
from .termination import append_input, append_step, end, fail, terminal


def admit(builder: StepBuilder, message: Admit | None = None) -> None:
    """Let the run work: planned -> accepted -> preparing -> running, then run_start."""
    if builder.row.cursor is not RunPosition.ADMISSION or builder.row.stage is not Stage.PLANNED:
        return
    if message is not None and message.state is not None:
        builder.snapshot = StateSnapshot.restored(builder.snapshot.revision, message.state)
    builder.move(Stage.ACCEPTED)
    builder.move(Stage.PREPARING)
    builder.move(Stage.RUNNING)
    builder.row.hooks_started = True
    arrive(builder, RunPosition.RUN_START)


def arrive(builder: StepBuilder, cursor: RunPosition) -> None:
    """Enter a run-level phase."""
    builder.row.cursor = cursor
    if builder.spec.hooked and PHASE_OF[cursor] in builder.spec.hooked:
        builder.phase_open = True
        builder.do(RunPhase(phase=PHASE_OF[cursor], step=builder.row.step, state=builder.snapshot))
    else:
        _AFTER[cursor](builder)


def leave(builder: StepBuilder) -> None:
    """Continue after the phase at the cursor."""
    builder.phase_open = False
    _AFTER[builder.row.cursor](builder)


def next_step(builder: StepBuilder) -> None:
    """Begin another step; pending input joins the thread first.

    If a ticket holds the run, or a pause is pending, the run rests between two steps instead.
    A run with a pending cancel after the step ends here; this also covers the first step, before which no step can end.
    """
    if builder.row.cancel is not None:
        end(builder, cancelled(builder.row.cancel))
        return
    if builder.row.pause is not None:
        open_pause(builder)
    if builder.row.run_tickets:
        _hold(builder, RunPosition.PAUSED)
        return
    builder.next_step()
    builder.row.inference = builder.row.request = None
    append_input(builder)
    builder.emit("run.step.started", ev.StepStarted(step=builder.row.step))
    arrive(builder, RunPosition.STEP_START)


def step_started(builder: StepBuilder) -> None:
    """Continue with the inference, unless a hook holds the run."""
    if builder.row.run_tickets:
        _hold(builder, RunPosition.STEP_START)
    else:
        arrive(builder, RunPosition.BEFORE_INFERENCE)


def _hold(builder: StepBuilder, cursor: RunPosition) -> None:
    """Let a run that is held by a ticket come to rest here; a pending cancel after the step ends it instead."""
    if builder.row.cancel is not None:
        end(builder, cancelled(builder.row.cancel))
        return
    builder.row.cursor = cursor
    rest(builder)


def use_answer(builder: StepBuilder) -> None:
    """Run the answer's calls; an answer without calls is the final output."""
    if builder.calls:
        builder.row.cursor = RunPosition.TOOLS
        continue_tools(builder)
        return
    value, fault = builder.spec.check_output(builder.final)
    if fault is None:
        builder.row.output = value
        builder.row.termination = Termination(kind=TerminationKind.NATURAL_END)
    elif builder.counters.output_retries >= builder.spec.output_retries:
        append_step(builder)
        fail(builder, "model_behavior_error", f"the final answer does not have the demanded form: {fault}")
        return
    else:
        builder.counters.output_retries += 1
        where = "" if "`$" in fault else " - at `$`"
        note = f"Your answer does not have the demanded form: {fault}{where}. Answer again with the JSON value alone."
        message = Message(
            id=builder.new_message_id(),
            role="user",
            content=note,
            producer=Producer(run_id=builder.info.run_id, step=builder.row.step),
        )
        builder.row.pending_input = (message, *builder.row.pending_input)
    append_step(builder)
    arrive(builder, RunPosition.STEP_END)


def continue_tools(builder: StepBuilder) -> None:
    """Advance the step's calls. Once all are settled, append them to the history and enter step_end."""
    if not advance_calls(builder):
        return
    append_step(builder)
    rule = builder.spec.tool_use
    if rule != "run_model_again":
        for call in builder.calls.values():
            tool = builder.spec.tools.get(call.tool)
            counts = call.status is CallStatus.SUCCEEDED and (tool is None or tool.output)
            if counts and (rule == "stop_on_first_tool" or call.tool in rule):
                builder.row.output = call.result
                builder.row.termination = Termination(kind=TerminationKind.NATURAL_END)
                break
    arrive(builder, RunPosition.STEP_END)


def step_over(builder: StepBuilder) -> None:
    """Count the step and choose what follows: the end, a stop, live tasks, or another step."""
    count_step(builder)
    builder.account_active_time(True)
    builder.emit("run.step.finished", ev.StepFinished(step=builder.row.step, usage=builder.row.usage))
    if builder.row.cancel is not None:
        builder.row.termination = None
        end(builder, cancelled(builder.row.cancel))
        return
    final, builder.row.termination = builder.row.termination, None
    ended_by_hook = final is not None and final.kind is TerminationKind.BEHAVIOR_REQUESTED
    # results of live tasks must reach the model before its answer is final
    waits = bool(builder.row.tasks) and not builder.calls
    if final is not None and (ended_by_hook or not (builder.row.pending_input or waits)):
        end(builder, final)
    elif not _stopped(builder, answered=final is not None):
        builder.row.output = None
        if final is not None and not builder.row.pending_input:
            builder.row.cursor = RunPosition.TASKS
            open_pause(builder)
            if builder.row.run_tickets:
                _hold(builder, RunPosition.TASKS)
        else:
            next_step(builder)


def _stopped(builder: StepBuilder, *, answered: bool) -> bool:
    """Return True if a stop condition ends the run here. `answered`: its output is the model's final answer already."""
    met = first_stop(builder)
    if met is None:
        return False
    if not answered:
        value, fault = builder.spec.check_output(builder.final)
        builder.row.output = value if builder.final and fault is None else None
    end(builder, Termination(kind=TerminationKind.STOPPED, code=met[0], detail=met[1]))
    return True


def wake(builder: StepBuilder) -> None:
    """Continue a run that waits for its tasks, once a message waits for the model and no ticket holds the run."""
    if builder.row.cursor is not RunPosition.TASKS or not builder.row.pending_input or builder.row.run_tickets:
        return
    builder.account_active_time(True)
    if not _stopped(builder, answered=False):
        next_step(builder)


_AFTER: Final[Mapping[RunPosition, Callable[[StepBuilder], None]]] = {
    RunPosition.RUN_START: next_step,
    RunPosition.STEP_START: step_started,
    RunPosition.BEFORE_INFERENCE: ask_model,
    RunPosition.AFTER_INFERENCE: use_answer,
    RunPosition.STEP_END: step_over,
    RunPosition.RUN_END: terminal,
}
"""What follows each run-level phase."""
