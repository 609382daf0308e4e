"""The walk through the phases: run_start, then steps of inference and tools, then a stop condition or the end.

Theory of operation. `arrive` enters a phase and calls its hooks. With hooks the walk stops until they answer; without
hooks, and after them, it continues with the row of `AFTER_HOOKS`. Every walk ends in an effect (hooks, a model request,
bodies), in a rest, or in the terminal event, so a walk never recurses past one model request.

Stop conditions are evaluated once per step, after its step_end hooks, in the order of the agent's list; the first
condition that is met names the end. All facts are in the run's row, so a restart evaluates alike. Loop detection keeps
digests of the newest steps only: with `LoopDetection(window=3)` three equal entries in `Counters.trail` end the run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from typing import Final, assert_never

from ..contract import events as ev
from ..contract.calls import CallStatus
from ..contract.codec import failure_text
from ..contract.facts import FinalOutput
from ..contract.ids import content_digest
from ..contract.lifecycle import NEEDS_APPROVAL, Termination, TerminationKind
from ..contract.messages import Message, Producer
from ..contract.phases import BEFORE_INFERENCE, STEP_END, STEP_START, TASKS, TOOLS, RunPosition
from ..contract.rows import Handover
from ..contract.spec import HANDOFF
from ..contract.stop import (
    ConsecutiveErrors,
    ContentMatch,
    LoopDetection,
    MaxRounds,
    StopOnTool,
    Timeout,
    TokenBudget,
)
from .asking import ask_model
from .calls import advance_calls
from .decisions import cancelled
from .effects import RunPhase
from .handoffs import active_agent, announce_handoff, take_over
from .inference import confirm_message
from .judging import blocks, judge_output, open_input
from .next_step import Interruption, NextStep, RunAgain, ToolUseFailed, ToolUseInvalid, choose_next
from .run_tickets import open_pause, rest
from .state import StepBuilder
from .termination import append_input, append_step, end, fail, fail_by_tool_use, terminal


def arrive(builder: StepBuilder, position: RunPosition) -> None:
    """Enter a run-level phase, and run its hooks."""
    builder.enter(position)
    run_hooks(builder)


def run_hooks(builder: StepBuilder) -> None:
    """Run the hooks of the phase at the run's position; without hooks the run continues."""
    phase = builder.row.position.rule.hooks
    if phase is not None and phase in builder.spec.hooked:
        builder.phase_open = True
        builder.do(RunPhase(phase=phase, step=builder.row.step, state=builder.snapshot))
    else:
        AFTER_HOOKS[builder.row.position](builder)


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
        builder.enter(RunPosition.PAUSED)
        rest(builder)
        return
    spec = builder.spec
    if spec.input_guardrails or spec.blocking_guardrails or builder.row.open_guardrails is not None:
        open_input(builder)
    builder.next_step()
    builder.row.inference = builder.row.request = None
    if builder.row.handoff is not None:
        take_over(builder, builder.row.handoff)
    if builder.row.pending_input:
        append_input(builder)
    agent = None if builder.row.agent is None else active_agent(builder)
    builder.emit("run.step.started", ev.StepStarted(step=builder.row.step, agent=agent))
    arrive(builder, STEP_START)


def step_started(builder: StepBuilder) -> None:
    """Continue with the inference, unless a hook holds the run.

    A run that a hook holds rests here; a pending cancel after the step ends it instead.
    """
    if builder.row.run_tickets and builder.row.cancel is not None:
        end(builder, cancelled(builder.row.cancel))
    elif builder.row.run_tickets:
        rest(builder)
    elif builder.row.open_guardrails is None or not blocks(builder, builder.row.open_guardrails):
        arrive(builder, BEFORE_INFERENCE)


def use_answer(builder: StepBuilder) -> None:
    """Run the answer's calls; an answer without calls is the final output."""
    if builder.row.open_guardrails is not None:
        builder.enter(RunPosition.GUARDS_ANSWER)
    elif builder.calls.all:
        builder.enter(TOOLS)
        continue_run(builder)
    else:
        _follow(builder, choose_next(builder.spec, builder.calls, builder.row.stage, builder.final))


def continue_run(builder: StepBuilder) -> None:
    """Let a run move that an input may have released: advance its calls, or end the wait for its tasks.

    Once all calls of the step are settled, they join the history, and the run enters step_end. A run that waits for its
    tasks continues once a message waits for the model and no ticket holds the run.
    """
    if builder.row.position is TASKS:
        if builder.row.pending_input and not builder.row.run_tickets:
            builder.account_active_time(True)
            if not _stopped(builder, answered=False):
                next_step(builder)
        return
    stage = advance_calls(builder)
    if stage is None or stage is NEEDS_APPROVAL is builder.row.stage:
        return  # the run is ending, or rests already
    if stage is not NEEDS_APPROVAL and builder.calls.open:
        return  # its calls still move
    _follow(builder, choose_next(builder.spec, builder.calls, stage, builder.final, handoff=builder.row.handoff))


def _follow(builder: StepBuilder, choice: NextStep | None) -> None:
    """Act on what the step comes to."""
    match choice:
        case None:
            pass
        case RunAgain() | Handover():
            if type(choice) is Handover:
                announce_handoff(builder, choice)
            if builder.spec.output_guardrails and builder.final and _stop_judged(builder):
                return  # the guardrails decide what the thread gets
            append_step(builder)
            arrive(builder, STEP_END)
        case Interruption():
            if builder.row.cancel is not None:
                # the cancel waits for the end of the step, and no decision would have an effect
                end(builder, cancelled(builder.row.cancel))
            else:
                open_pause(builder)
                rest(builder, choice.tickets)
        case FinalOutput(text) if not builder.calls.all:
            _answer(builder, text)
        case FinalOutput(value):
            builder.row.output = value
            _end_naturally(builder)
        case ToolUseFailed(error):
            append_step(builder)
            why = str(error) if isinstance(error, ToolUseInvalid) else failure_text(error)
            fail_by_tool_use(builder, error, why)
        case _ as never:
            assert_never(never)


def _answer(builder: StepBuilder, text: str) -> None:
    """End the step with a text as the final answer; an answer of the wrong form is asked for again."""
    value, fault = builder.spec.check_output(text)
    if fault is None:
        builder.row.output = value
        _end_naturally(builder)
        return
    confirm_message(builder)
    if builder.counters.output_retries >= builder.spec.output_retries:
        append_step(builder)
        fail(builder, "model_behavior_error", f"the final answer does not have the demanded form: {fault}")
        return
    builder.counters.output_retries += 1
    note = f"Your answer does not have the demanded form: {fault}. Answer again with the JSON value alone."
    message = Message(
        id=builder.new_message_id(),
        role="user",
        content=note,
        producer=Producer(run_id=builder.info.run_id, step=builder.row.step),
    )
    builder.row.pending_input = (message, *builder.row.pending_input)
    append_step(builder)
    arrive(builder, STEP_END)


def _end_naturally(builder: StepBuilder) -> None:
    """End the step with the final output; output guardrails judge it first."""
    builder.row.termination = Termination(kind=TerminationKind.NATURAL_END)
    if builder.spec.output_guardrails:
        judge_output(builder)
    else:
        append_step(builder)
        arrive(builder, STEP_END)


def _stop_judged(builder: StepBuilder) -> bool:
    """Let output guardrails judge the output of a stop condition that will end the run after this step.

    The step's messages can still be withheld now. A hook of step_end may change what follows. Returns False if nothing
    is to be judged.
    """
    counters, builder.counters = builder.counters, copy(builder.counters)
    count_step(builder)
    builder.account_active_time(True)
    condition = first_stop(builder)
    builder.counters = counters
    value, fault = builder.spec.check_output(builder.final)
    if condition is None or fault is not None:
        return False
    builder.row.output = value
    judge_output(builder)
    return True


def step_over(builder: StepBuilder) -> None:
    """Count the step and choose what follows: the end, a stop, live tasks, or another step."""
    count_step(builder)
    builder.account_active_time(True)
    builder.emit("run.step.finished", ev.StepFinished(step=builder.row.step, usage=builder.row.usage))
    if builder.row.cancel is not None:
        # a cancel that was accepted during the step wins over its final answer: else the run would end as completed
        builder.row.termination = None
        end(builder, cancelled(builder.row.cancel))
        return
    final, builder.row.termination = builder.row.termination, None
    ended_by_hook = final is not None and final.kind is TerminationKind.BEHAVIOR_REQUESTED
    # results of live tasks must reach the model before its answer is final
    waits = bool(builder.tasks) and not builder.calls.all
    if final is not None and (ended_by_hook or not (builder.row.pending_input or waits)):
        end(builder, final)
    elif not _stopped(builder, answered=final is not None):
        builder.row.output = None
        if final is not None and not builder.row.pending_input:
            builder.enter(TASKS)
            open_pause(builder)
            if builder.row.run_tickets:
                rest(builder)
        else:
            next_step(builder)


def count_step(builder: StepBuilder) -> None:
    """Count a finished step, and note that the agent has used a tool. A step fails if all of its calls failed.

    Loop detection compares digests of the newest steps: of the calls with their arguments, or of the text without
    calls.
    """
    calls, counters, spec = builder.calls.of_model(), builder.counters, builder.spec
    resets = spec.tool_choice not in ("auto", "none") and spec.reset_tool_choice
    if resets and any(
        call.effect != HANDOFF and call.code not in ("unknown_tool", "invalid_arguments") for call in calls
    ):
        builder.row.tool_users = (*(key for key in builder.row.tool_users if key != spec.key), spec.key)
    counters.rounds += 1
    counters.errors = counters.errors + 1 if calls and all(call.outcome is CallStatus.FAILED for call in calls) else 0
    window = 0
    for condition in spec.stop:
        if isinstance(condition, LoopDetection):
            window = max(window, condition.window or 0)
    if window:
        requests = [[call.requested.tool, call.requested.arguments] for call in calls]
        counters.trail = (*counters.trail, content_digest(requests or builder.row.answer or ""))[-window:]
    else:
        counters.trail = ()


def _stopped(builder: StepBuilder, *, answered: bool) -> bool:
    """Return True if a stop condition ends the run here. `answered`: its output is the model's final answer already."""
    condition = first_stop(builder)
    if condition is None:
        return False
    if not answered:
        value, fault = builder.spec.check_output(builder.final)
        builder.row.output = value if builder.final and fault is None else None
    end(builder, Termination(kind=TerminationKind.STOPPED, code=condition[0], detail=condition[1]))
    return True


def first_stop(builder: StepBuilder) -> tuple[str, str] | None:
    """Return code and detail of the first condition met, in list order; None if none is."""
    counters, stop = builder.counters, None
    for condition in builder.spec.stop:
        match condition:
            case MaxRounds(n):
                stop = ("max_rounds", f"{counters.rounds} steps") if n and counters.rounds >= n else None
            case Timeout(seconds):
                active = counters.active_ms / 1000
                stop = ("timeout", f"{active:.1f} s of active time") if seconds and active > seconds else None
            case TokenBudget(total):
                tokens = builder.row.usage.total
                stop = ("token_budget", f"{tokens} tokens") if total and tokens > total else None
            case ConsecutiveErrors(n):
                errors = f"{counters.errors} failed steps"
                stop = ("consecutive_errors", errors) if n and counters.errors >= n else None
            case StopOnTool(name):
                ran = any(call.tool == name and call.attempts for call in builder.calls.of_model())
                stop = ("stop_on_tool", name) if ran else None
            case ContentMatch(pattern):
                stop = ("content_match", pattern) if condition.met(builder.row.answer or "") else None
            case LoopDetection(window):
                same = window and len(counters.trail) >= window and len(set(counters.trail[-window:])) == 1
                stop = ("loop_detection", f"{window} equal steps") if same else None
            case _ as never:
                assert_never(never)
        if stop is not None:
            return stop
    return None


AFTER_HOOKS: Final[Mapping[RunPosition, Callable[[StepBuilder], None]]] = {
    RunPosition.RUN_START: next_step,
    RunPosition.STEP_START: step_started,
    RunPosition.BEFORE_INFERENCE: ask_model,
    RunPosition.AFTER_INFERENCE: use_answer,
    RunPosition.STEP_END: step_over,
    RunPosition.RUN_END: terminal,
}
"""What follows the hooks of each run-level phase; the table has the positions."""
