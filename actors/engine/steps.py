"""Walking the phases: run_start, then steps of inference and tools, then the way out.

`arrive` enters a phase: with hooks it asks for them and the walk stops until they answer; without hooks it is a table
lookup and the walk goes on. `leave` says what follows. Every walk ends in something asked of the world (hooks, the
model, bodies, a decision) or in the terminal event.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ..contract import events as ev
from ..contract.calls import CallStatus
from ..contract.lifecycle import Stage, Termination, TerminationKind
from ..contract.messages import Message, Producer
from ..contract.phases import PHASE_OF, Cursor
from ..state.snapshot import Snapshot
from .calls import drive
from .decisions import cancelled
from .effects import RunPhase
from .ending import append_input, append_step, end, fail, terminal
from .holds import open_pause, rest
from .inference import ask_model
from .inputs import Admit
from .state import Draft
from .stops import StepFacts, failed_step, first_stop, loop_window, trace


def admit(d: Draft, message: Admit | None = None) -> None:
    """The run may work: planned -> accepted -> preparing -> running, and into run_start."""
    if d.cursor is not Cursor.ADMISSION or d.stage is not Stage.PLANNED:
        return
    if message is not None and message.state is not None:
        d.snapshot = Snapshot.restored(d.snapshot.revision, message.state)
    d.move(Stage.ACCEPTED)
    d.move(Stage.PREPARING)
    d.move(Stage.RUNNING)
    d.begun = True
    arrive(d, Cursor.RUN_START)


def arrive(d: Draft, cursor: Cursor) -> None:
    """Enter a run-level phase."""
    d.cursor = cursor
    if d.spec.hooked and PHASE_OF[cursor] in d.spec.hooked:
        d.phase_open = True
        d.do(RunPhase(phase=PHASE_OF[cursor], step=d.step, state=d.snapshot))
    else:
        _AFTER[cursor](d)


def leave(d: Draft) -> None:
    """The phase at the cursor is through: go on."""
    d.phase_open = False
    _AFTER[d.cursor](d)


def next_step(d: Draft) -> None:
    """Another step, unless a ticket of the run holds it or a pause was asked for: then it stands between two steps.

    The first one is not begun if the run is to be cancelled after the step: there is none that could end.
    """
    if d.cancel is not None:
        end(d, cancelled(d.cancel))
        return
    open_pause(d)
    if not _held(d, Cursor.PAUSED):
        begin_step(d)


def step_started(d: Draft) -> None:
    """On to the inference, unless a hook holds the run."""
    if not _held(d, Cursor.STEP_START):
        arrive(d, Cursor.BEFORE_INFERENCE)


def _held(d: Draft, cursor: Cursor) -> bool:
    """True if the run comes to rest here. One that is to be cancelled after the step ends in place of that."""
    if not d.holds:
        return False
    if d.cancel is not None:
        end(d, cancelled(d.cancel))
        return True
    d.cursor = cursor
    rest(d)
    return True


def begin_step(d: Draft) -> None:
    """A new step: steering messages join the thread first."""
    d.next_step()
    d.inference = d.request = None
    append_input(d)
    d.emit("run.step.started", ev.StepStarted(step=d.step))
    arrive(d, Cursor.STEP_START)


def use_answer(d: Draft) -> None:
    """Calls are run; an answer without calls is the final output."""
    if d.calls:
        d.cursor = Cursor.TOOLS
        if drive(d):
            tools_done(d)
        return
    value, fault = d.spec.check_output(d.final)
    if fault is None:
        d.output = value
        d.termination = Termination(kind=TerminationKind.NATURAL_END)
    elif d.output_retries >= d.spec.output_retries:
        append_step(d)
        fail(d, "model_behavior_error", f"the final answer does not have the demanded form: {fault}")
        return
    else:
        d.output_retries += 1
        where = "" if "`$" in fault else " - at `$`"
        note = f"Your answer does not have the demanded form: {fault}{where}. Answer again with the JSON value alone."
        message = Message(
            id=d.new_message_id(), role="user", content=note, producer=Producer(run_id=d.info.run_id, step=d.step)
        )
        d.pending_input = (message, *d.pending_input)
    append_step(d)
    arrive(d, Cursor.STEP_END)


def tools_done(d: Draft) -> None:
    """All calls of the step are settled: into the history with them, then step_end."""
    append_step(d)
    rule = d.spec.tool_use
    if rule != "run_model_again":
        for call in d.calls.values():
            tool = d.spec.tools.get(call.tool)
            counts = call.status is CallStatus.SUCCEEDED and (tool is None or tool.output)
            if counts and (rule == "stop_on_first_tool" or call.tool in rule):
                d.output = call.result
                d.termination = Termination(kind=TerminationKind.NATURAL_END)
                break
    arrive(d, Cursor.STEP_END)


def step_over(d: Draft) -> None:
    """Count the step and decide what is next: the end, a stop, the tasks that still live, or another step."""
    calls = tuple(d.calls.values())
    text = d.answer or ""
    window = loop_window(d.spec.stop)
    d.rounds += 1
    d.errors = d.errors + 1 if failed_step(calls) else 0
    d.trail = (*d.trail, trace(text, calls))[-window:] if window else ()
    d.clock_in(True)
    d.emit("run.step.finished", ev.StepFinished(step=d.step, usage=d.usage))
    if d.cancel is not None:
        d.termination = None
        end(d, cancelled(d.cancel))
        return
    final, d.termination = d.termination, None
    asked = final is not None and final.kind is TerminationKind.BEHAVIOR_REQUESTED
    waits = bool(d.tasks) and not calls  # the model's last word is not the run's: what its tasks say comes after it
    if final is not None and (asked or not (d.pending_input or waits)):
        end(d, final)
    elif not _stopped(d, answered=final is not None):
        d.output = None
        if final is not None and not d.pending_input:
            d.cursor = Cursor.TASKS
            open_pause(d)
            _held(d, Cursor.TASKS)
        else:
            next_step(d)


def _stopped(d: Draft, *, answered: bool) -> bool:
    """True if a stop condition ends the run here. `answered`: its output is the model's final answer already."""
    calls, text = tuple(d.calls.values()), d.answer or ""
    met = first_stop(d.spec.stop, StepFacts(d.rounds, d.errors, d.trail, d.usage.total, d.active_before, text, calls))
    if met is None:
        return False
    if not answered:
        value, fault = d.spec.check_output(d.final)
        d.output = value if d.final and fault is None else None
    end(d, Termination(kind=TerminationKind.STOPPED, code=met[0], detail=met[1]))
    return True


def wake(d: Draft) -> None:
    """A run that waits for its tasks goes on as soon as there is something to tell the model, and nothing holds it."""
    if d.cursor is not Cursor.TASKS or not d.pending_input or d.holds:
        return
    d.clock_in(True)
    if not _stopped(d, answered=False):
        next_step(d)


_AFTER: Final[Mapping[Cursor, Callable[[Draft], None]]] = {
    Cursor.RUN_START: next_step,
    Cursor.STEP_START: step_started,
    Cursor.BEFORE_INFERENCE: ask_model,
    Cursor.AFTER_INFERENCE: use_answer,
    Cursor.STEP_END: step_over,
    Cursor.RUN_END: terminal,
}
"""What follows a run-level phase."""
