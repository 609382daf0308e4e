"""One inference: asking the model, and what it says.

An inference is asked again (under a new message id) when it failed in a way that may pass, or was interrupted; what was
seen of the first answer is discarded with an event.
"""

from __future__ import annotations

from datetime import timedelta

import attrs

from ..contract import events as ev
from ..contract.excerpt import LargeText, is_large
from ..contract.ids import error_id, fingerprint, is_reserved
from ..contract.lifecycle import Termination, TerminationKind
from ..contract.messages import CallRequest, Message, ModelResponse, Producer, Usage
from ..contract.phases import Cursor
from ..contract.rows import CallRow, Inference
from .effects import CallModel
from .ending import discard_inference, end, fail
from .inputs import BUG, ONE_REQUEST, ModelAnswered, ModelFailed, ModelStreamed
from .state import Draft, milliseconds
from .stops import too_many_errors


def ask_model(d: Draft, *, attempt: int = 1, delay_ms: int = 0, failures: int = 0) -> None:
    """Ask for an answer under a new message id, so many milliseconds from now."""
    d.cursor, d.changed = Cursor.INFERENCE, True
    d.inference = Inference(
        message_id=d.new_message_id(), attempt=attempt, started_at=d.now, failures=failures, delay_ms=delay_ms
    )
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
            changes=d.request,
            delay=delay_ms / 1000,
        )
    )


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
    """The model could not answer: ask again if that may help, else the run fails.

    What the request has cost counts. Each failure counts as a failed step in a row, and one that may pass can so meet a
    ConsecutiveErrors: the run is then stopped in place of asking again, also where it would not be asked again anyway.
    """
    flight = d.inference
    if d.cursor is not Cursor.INFERENCE or flight is None or flight.message_id != message.message_id:
        return
    d.answers += 1
    d.errors += 1
    d.usage += message.usage
    detail, name = f"{message.kind}: {message.text}", error_id(d.info.run_id, flight.message_id)
    stopped = message.retryable and too_many_errors(d.spec.stop, d.errors)
    policy, failures = d.spec.policies.retry, flight.failures + 1
    too_long = message.retryable and message.delay_ms is None and policy.too_long(message.retry_after)
    if too_long:
        detail += f" (asked to wait {message.retry_after:,.0f} s, more than retry_after_cap={policy.retry_after_cap:g})"
    if stopped or too_long or not message.retryable or failures >= policy.attempts:
        discard_inference(d, "the model failed")
        d.cursor = Cursor.AFTER_INFERENCE  # the model is not in flight any more
        if stopped:
            text = f"{d.errors} failed steps; the last one: {detail}"
            end(d, Termination(kind=TerminationKind.STOPPED, code="consecutive_errors", detail=text))
        else:
            code = "model_bug" if message.kind == BUG else "model_error"
            fail(d, code, detail, error_id=name)
        return
    delay = message.delay_ms
    if delay is None:
        delay = round(policy.wait(failures, message.jitter, message.retry_after) * 1000)
    _repeat(d, flight, failures, code=message.kind, detail=detail, delay_ms=delay, usage=message.usage, error_id=name)


def ask_anew(d: Draft, *, counts: bool) -> None:
    """The process ended that asked the model: ask again; that is no failure. What is left of a wait is waited for.

    `counts`: the request that was made, if one was, counts as one.
    """
    flight = d.inference
    if flight is None:
        ask_model(d)
        return
    left = min(flight.asked_at - d.now, timedelta(seconds=d.spec.policies.retry.most))  # the clock may have jumped
    waits = left > timedelta()
    usage = ONE_REQUEST if counts and not waits else Usage()
    d.usage += usage
    _repeat(
        d,
        flight,
        flight.failures,
        code="interrupted",
        detail=f"the process that {'waited to ask' if waits else 'asked'} the model ended",
        delay_ms=left // timedelta(milliseconds=1) if waits else 0,
        usage=usage,
    )


def _repeat(
    d: Draft,
    flight: Inference,
    failures: int,
    *,
    code: str,
    detail: str,
    delay_ms: int,
    usage: Usage,
    error_id: str | None = None,
) -> None:
    """Ask again. The text of the answer that did not come is discarded."""
    discard_inference(d, "the inference is repeated")
    d.emit(
        "run.inference.retried",
        ev.InferenceRetried(
            step=d.step,
            message_id=flight.message_id,
            code=code,
            detail=detail,
            delay_ms=delay_ms,
            usage=usage if usage != Usage() else None,
            error_id=error_id,
        ),
    )
    ask_model(d, attempt=flight.attempt + 1, delay_ms=delay_ms, failures=failures)


def model_answered(d: Draft, message: ModelAnswered) -> bool:
    """The answer is here: note it. True if it is one to go on with."""
    flight, response = d.inference, message.response
    if d.cursor is not Cursor.INFERENCE or flight is None or flight.message_id != message.message_id:
        return False
    usage = response.usage if response.usage.requests else response.usage + ONE_REQUEST
    d.usage = d.usage + usage
    d.answers += 1
    d.finish_reason = response.finish
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
            duration_ms=milliseconds(flight.asked_at, d.now),
            finish=response.finish,
        ),
    )
    if response.refusal is not None and not response.text and not response.calls:
        discard_inference(d, "the model refused")
        fail(d, "model_refusal", response.refusal)
        return False
    if isinstance(requests, str):
        discard_inference(d, "the answer can not be used")
        fail(d, "model_behavior_error", requests)
        return False
    _note_answer(d, flight, response, requests)
    return True


def _requests(d: Draft, response: ModelResponse) -> tuple[CallRequest, ...] | str:
    """The response's calls under ids that are unique in the run, or why they can not be used."""
    seen: dict[str, CallRequest] = {}
    out: list[CallRequest] = []
    new = {task.task_id for task in d.tasks}
    for call in response.calls:
        known = seen.get(call.call_id) if call.call_id else None
        if known is not None:
            if (known.tool, known.arguments, known.fault) != (call.tool, call.arguments, call.fault):
                return f"two different calls came under one id {call.call_id!r}"
            continue
        seen[call.call_id] = call
        name = _free_id(call.call_id, d.info.run_id, d.used, new)
        new.add(name)
        if name != call.call_id:
            call = attrs.evolve(call, call_id=name, provider_id=call.provider_id or call.call_id or None)  # noqa: PLW2901
        out.append(call)
    return tuple(out)


def _free_id(wish: str, run_id: str, used: frozenset[str], new: set[str]) -> str:
    """The id itself if no call of the run has it, and no ticket or task can have it, else `<id>#<n>`."""
    name, number = wish, 2 if wish else len(used) + len(new) + 1
    while not name or name in used or name in new or is_reserved(run_id, name):
        name, number = f"{wish or 'call'}#{number}", number + 1
    return name


def _note_answer(d: Draft, flight: Inference, response: ModelResponse, requests: tuple[CallRequest, ...]) -> None:
    text = "".join(response.text)
    if text or not requests:
        large = is_large(text)
        shown = LargeText(text) if large else text
        d.emit(
            "run.message.completed",
            ev.MessageCompleted(message_id=flight.message_id, role="assistant", text=shown, large=large),
        )
    elif flight.text_index:
        d.emit(
            "run.message.discarded", ev.MessageDiscarded(message_id=flight.message_id, reason="the answer has no text")
        )
    d.answer = text
    d.answer_at = len(text) - len(response.text[-1]) if response.text else 0
    producer = Producer(run_id=d.info.run_id, step=d.step)
    d.draft = Message(
        id=flight.message_id,
        role="assistant",
        content=text,
        calls=requests,
        producer=producer,
        final_at=d.answer_at,
    )
    for index, request in enumerate(requests):
        _note_call(d, index, request)
    if requests:
        d.used = d.used.union(request.call_id for request in requests)


def _note_call(d: Draft, index: int, request: CallRequest) -> None:
    tool = d.spec.tools.get(request.tool)
    effect = "read" if tool is None else tool.effect
    definition = d.spec.definition(request.tool, request.call_id)
    row = CallRow(
        call_id=request.call_id,
        index=index,
        step=d.step,
        tool=request.tool,
        arguments=request.arguments,
        fingerprint=fingerprint(d.spec.key, request.tool, request.arguments, definition),
        definition=definition,
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
