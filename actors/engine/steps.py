"""Walking the phases: run_start, then steps of inference and tools, then the way out.

`arrive` enters a phase: with hooks it asks for them and the walk stops until they answer; without hooks it is a table
lookup and the walk goes on. `leave` says what follows. Every walk ends in something asked of the world (hooks, the
model, bodies, a decision) or in the terminal event.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import attrs

from ..contract import events as ev
from ..contract.calls import CallStatus
from ..contract.ids import fingerprint
from ..contract.lifecycle import Stage, Termination, TerminationKind
from ..contract.messages import CallRequest, Message, ModelResponse, Producer, Usage
from ..contract.phases import PHASE_OF, Cursor
from ..contract.rows import CallRow, Inference
from .calls import drive
from .decisions import cancelled
from .effects import CallModel, RunPhase
from .ending import append_input, append_step, discard_inference, end, fail, terminal
from .inputs import ModelAnswered, ModelFailed, ModelStreamed
from .state import Draft, milliseconds
from .stops import StepFacts, failed_step, first_stop, loop_window, trace

MODEL_ATTEMPTS = 3
"""How often one inference is asked before a retryable failure ends the run."""
ONE_REQUEST = Usage(requests=1)
FIRST_DELAY = 0.5
"""Seconds before the second attempt; doubles."""


def admit(d: Draft) -> None:
    """The run may work: planned -> accepted -> preparing -> running, and into run_start."""
    if d.cursor is not Cursor.ADMISSION or d.stage is not Stage.PLANNED:
        return
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
        d.do(RunPhase(phase=PHASE_OF[cursor], step=d.step))
    else:
        _AFTER[cursor](d)


def leave(d: Draft) -> None:
    """The phase at the cursor is through: go on."""
    d.phase_open = False
    _AFTER[d.cursor](d)


def begin_step(d: Draft) -> None:
    """A new step: steering messages join the thread first."""
    d.next_step()
    d.inference = None
    append_input(d)
    d.emit("run.step.started", ev.StepStarted(step=d.step))
    arrive(d, Cursor.STEP_START)


def ask_model(d: Draft, *, attempt: int = 1, delay: float = 0.0) -> None:
    """Ask for an answer under a new message id."""
    d.cursor, d.changed = Cursor.INFERENCE, True
    d.inference = Inference(message_id=d.new_message_id(), attempt=attempt, started_at=d.now)
    d.emit(
        "run.inference.started",
        ev.InferenceStarted(step=d.step, message_id=d.inference.message_id, attempt=attempt),
    )
    d.do(
        CallModel(
            message_id=d.inference.message_id,
            step=d.step,
            attempt=attempt,
            answers=d.answers,
            delay=delay,
        )
    )


# --- what the model says ---------------------------------------------------------------------------------------------


def model_streamed(d: Draft, message: ModelStreamed) -> None:
    """More of the answer."""
    flight = d.inference
    if d.cursor is not Cursor.INFERENCE or flight is None or flight.message_id != message.message_id:
        return
    text, reasoning = flight.text_index, flight.reasoning_index
    if message.reasoning:
        d.emit(
            "run.reasoning.delta",
            ev.ReasoningDelta(message_id=flight.message_id, index=reasoning, text=message.reasoning),
        )
        reasoning += 1
    if message.text:
        d.emit("run.message.delta", ev.MessageDelta(message_id=flight.message_id, index=text, text=message.text))
        text += 1
    d.inference = attrs.evolve(flight, text_index=text, reasoning_index=reasoning)


def model_failed(d: Draft, message: ModelFailed) -> None:
    """The model could not answer: ask again if that may help, else the run fails."""
    flight = d.inference
    if d.cursor is not Cursor.INFERENCE or flight is None or flight.message_id != message.message_id:
        return
    d.answers += 1
    detail = f"{message.kind}: {message.text}"
    if not message.retryable or flight.attempt >= MODEL_ATTEMPTS:
        discard_inference(d, "the model failed")
        d.cursor = Cursor.AFTER_INFERENCE  # the model is not in flight any more
        d.errors += 1
        fail(d, "model_error", detail)
        return
    ask_again(d, message.kind, detail, delay=FIRST_DELAY * 2 ** (flight.attempt - 1))


def ask_again(d: Draft, code: str, detail: str, *, delay: float = 0.0) -> None:
    """Repeat an inference whose answer was not got; its text so far is discarded."""
    flight = d.inference
    attempt = 1 if flight is None else flight.attempt + 1
    if flight is not None:
        discard_inference(d, "the inference is repeated")
        d.emit(
            "run.inference.retried",
            ev.InferenceRetried(step=d.step, message_id=flight.message_id, code=code, detail=detail),
        )
    ask_model(d, attempt=attempt, delay=delay)


def model_answered(d: Draft, message: ModelAnswered) -> None:
    """The answer is here: note it, then after_inference."""
    flight, response = d.inference, message.response
    if d.cursor is not Cursor.INFERENCE or flight is None or flight.message_id != message.message_id:
        return
    usage = response.usage if response.usage.requests else response.usage + ONE_REQUEST
    d.usage = d.usage + usage
    d.answers += 1
    d.cursor = Cursor.AFTER_INFERENCE
    requests = _requests(d, response)
    d.emit(
        "run.inference.completed",
        ev.InferenceCompleted(
            step=d.step,
            message_id=flight.message_id,
            model=response.model,
            usage=usage,
            calls=len(response.calls if isinstance(requests, str) else requests),
            duration_ms=milliseconds(flight.started_at, d.now),
        ),
    )
    if response.refusal is not None and not response.text and not response.calls:
        discard_inference(d, "the model refused")
        fail(d, "model_refusal", response.refusal)
        return
    if isinstance(requests, str):
        discard_inference(d, "the answer can not be used")
        fail(d, "model_behavior_error", requests)
        return
    _note_answer(d, flight, response, requests)
    arrive(d, Cursor.AFTER_INFERENCE)


def _requests(d: Draft, response: ModelResponse) -> tuple[CallRequest, ...] | str:
    """The response's calls under ids that are unique in the run, or why they can not be used."""
    seen: dict[str, CallRequest] = {}
    out: list[CallRequest] = []
    new: set[str] = set()
    for call in response.calls:
        known = seen.get(call.call_id) if call.call_id else None
        if known is not None:
            if (known.tool, known.arguments) != (call.tool, call.arguments):
                return f"two different calls came under one id {call.call_id!r}"
            continue
        seen[call.call_id] = call
        name = _free_id(call.call_id, d.used, new)
        new.add(name)
        if name != call.call_id:
            call = attrs.evolve(call, call_id=name, provider_id=call.provider_id or call.call_id or None)  # noqa: PLW2901
        out.append(call)
    return tuple(out)


def _free_id(wish: str, used: frozenset[str], new: set[str]) -> str:
    """The id itself if no call of the run has it, else `<id>#<n>`."""
    name, number = wish, 2 if wish else len(used) + len(new) + 1
    while not name or name in used or name in new:
        name, number = f"{wish or 'call'}#{number}", number + 1
    return name


def _note_answer(d: Draft, flight: Inference, response: ModelResponse, requests: tuple[CallRequest, ...]) -> None:
    text = "\n\n".join(response.text)
    if text or not requests:
        d.emit("run.message.completed", ev.MessageCompleted(message_id=flight.message_id, role="assistant", text=text))
    elif flight.text_index:
        d.emit(
            "run.message.discarded", ev.MessageDiscarded(message_id=flight.message_id, reason="the answer has no text")
        )
    d.answer = response.text[-1] if response.text else ""
    producer = Producer(run_id=d.info.run_id, step=d.step)
    d.draft = Message(id=flight.message_id, role="assistant", content=text, calls=requests, producer=producer)
    for index, request in enumerate(requests):
        _note_call(d, index, request)
    if requests:
        d.used = d.used.union(request.call_id for request in requests)


def _note_call(d: Draft, index: int, request: CallRequest) -> None:
    tool = d.spec.tools.get(request.tool)
    effect = "read" if tool is None else tool.effect
    row = CallRow(
        call_id=request.call_id,
        index=index,
        step=d.step,
        tool=request.tool,
        arguments=request.arguments,
        fingerprint=fingerprint(d.spec.key, request.tool, request.arguments),
        requested=request,
        effect=effect,
    )
    d.put(row)
    d.emit(
        "run.tool.call",
        ev.ToolCalled(
            call_id=row.call_id, tool=row.tool, status=row.status, arguments=row.arguments, effect=effect, step=d.step
        ),
    )


# --- what follows ----------------------------------------------------------------------------------------------------


def use_answer(d: Draft) -> None:
    """Calls are run; an answer without calls is the final output."""
    if d.calls:
        d.cursor = Cursor.TOOLS
        if drive(d):
            tools_done(d)
        return
    value, fault = d.spec.check_output(d.answer or "")
    if fault is None:
        d.output = value
        d.termination = Termination(kind=TerminationKind.NATURAL_END)
    elif d.output_retries >= d.spec.output_retries:
        append_step(d)
        fail(d, "model_behavior_error", f"the final answer does not have the demanded form: {fault}")
        return
    else:
        d.output_retries += 1
        note = f"Your answer does not have the demanded form: {fault}. Answer again in that form."
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
            if call.status is CallStatus.SUCCEEDED and (rule == "stop_on_first_tool" or call.tool in rule):
                d.output = call.result
                d.termination = Termination(kind=TerminationKind.NATURAL_END)
                break
    arrive(d, Cursor.STEP_END)


def step_over(d: Draft) -> None:
    """Count the step and decide what is next: the end, a stop, or another step."""
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
    if d.termination is not None and not d.pending_input:
        done, d.termination = d.termination, None
        end(d, done)
        return
    final, d.termination = d.termination, None
    met = first_stop(d.spec.stop, StepFacts(d.rounds, d.errors, d.trail, d.usage.total, d.active_before, text, calls))
    if met is not None:
        if final is None:
            value, fault = d.spec.check_output(text)
            d.output = value if text and fault is None else None
        end(d, Termination(kind=TerminationKind.STOPPED, code=met[0], detail=met[1]))
        return
    d.output = None
    begin_step(d)


_AFTER: Final[Mapping[Cursor, Callable[[Draft], None]]] = {
    Cursor.RUN_START: begin_step,
    Cursor.STEP_START: partial(arrive, cursor=Cursor.BEFORE_INFERENCE),
    Cursor.BEFORE_INFERENCE: ask_model,
    Cursor.AFTER_INFERENCE: use_answer,
    Cursor.STEP_END: step_over,
    Cursor.RUN_END: terminal,
}
"""What follows a run-level phase."""
