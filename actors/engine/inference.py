"""One inference: the model request of a step, its retries, and the model's answer.

Theory of operation. `RunRow.inference` is the request in flight. A failure that may pass, or an interruption by a
restart, repeats the request under a new message id after a back-off; the streamed part of the first answer is discarded
with an event. Because each attempt has its own message id, a late answer of an older attempt is recognised and ignored.
"""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from ..contract import events as ev
from ..contract.calls import CallStatus
from ..contract.excerpt import LargeText, is_large
from ..contract.ids import error_id, fingerprint, is_reserved
from ..contract.lifecycle import Termination, TerminationKind
from ..contract.messages import CallRequest, Message, ModelResponse, Producer, Usage
from ..contract.phases import AFTER_INFERENCE, INFERENCE
from ..contract.rows import CallRow, Inference
from ..contract.stop import too_many_errors
from .effects import CallModel
from .inputs import BUG, ONE_REQUEST, ModelAnswered, ModelFailed, ModelStreamed
from .state import StepBuilder, milliseconds
from .termination import discard_inference, end, fail


def ask_model(builder: StepBuilder, *, attempt: int = 1, delay_ms: int = 0, failures: int = 0) -> None:
    """Make a request under a new message id, after this many milliseconds."""
    builder.row.cursor, builder.changed = INFERENCE, True
    builder.row.inference = Inference(
        message_id=builder.new_message_id(),
        attempt=attempt,
        started_at=builder.now,
        failures=failures,
        delay_ms=delay_ms,
    )
    builder.emit(
        "run.inference.started",
        ev.InferenceStarted(step=builder.row.step, message_id=builder.row.inference.message_id, attempt=attempt),
    )
    builder.do(
        CallModel(
            message_id=builder.row.inference.message_id,
            step=builder.row.step,
            attempt=attempt,
            model_attempts=builder.counters.model_attempts,
            changes=builder.row.request,
            delay=delay_ms / 1000,
        )
    )


def model_streamed(builder: StepBuilder, message: ModelStreamed) -> None:
    """Emit more streamed text of the answer."""
    flight = builder.row.inference
    if builder.row.cursor is not INFERENCE or flight is None or flight.message_id != message.message_id:
        return
    text, reasoning = flight.text_index, flight.reasoning_index
    if message.reasoning:
        builder.emit(
            "run.reasoning.delta",
            ev.ReasoningStreamed(message_id=flight.message_id, index=reasoning, text=message.reasoning),
        )
        reasoning += 1
    if message.text:
        builder.emit("run.message.delta", ev.MessageDelta(message_id=flight.message_id, index=text, text=message.text))
        text += 1
    builder.row.inference = replace(flight, text_index=text, reasoning_index=reasoning)


def model_failed(builder: StepBuilder, message: ModelFailed) -> None:
    """Repeat the request if that may help, else fail the run.

    The usage of the failed request counts. Each failure counts as a failed step in a row, so a failure that may pass
    can meet a ConsecutiveErrors condition: the run is then stopped, also if it would not be retried anyway.
    """
    flight = builder.row.inference
    if builder.row.cursor is not INFERENCE or flight is None or flight.message_id != message.message_id:
        return
    builder.counters.model_attempts += 1
    builder.counters.errors += 1
    builder.row.usage += message.usage
    detail, name = f"{message.kind}: {message.text}", error_id(builder.info.run_id, flight.message_id)
    stopped = message.retryable and too_many_errors(builder.spec.stop, builder.counters.errors)
    policy, failures = builder.spec.policies.retry, flight.failures + 1
    too_long = message.retryable and policy.too_long(message.retry_after)
    if too_long:
        detail += f" (asked to wait {message.retry_after:,.0f} s, more than retry_after_cap={policy.retry_after_cap:g})"
    if stopped or too_long or not message.retryable or failures >= policy.attempts:
        discard_inference(builder, "the model failed")
        builder.row.cursor = AFTER_INFERENCE  # no request is in flight now, so `end` does not cancel one
        if stopped:
            text = f"{builder.counters.errors} failed steps; the last one: {detail}"
            end(builder, Termination(kind=TerminationKind.STOPPED, code="consecutive_errors", detail=text))
        else:
            code = "model_bug" if message.kind == BUG else "model_error"
            fail(builder, code, detail, error_id=name)
        return
    delay = round(policy.wait(failures, message.jitter, message.retry_after) * 1000)
    _repeat(
        builder, flight, failures, code=message.kind, detail=detail, delay_ms=delay, usage=message.usage, error_id=name
    )


def ask_anew(builder: StepBuilder) -> None:
    """Repeat the request of a process that ended; this is not a failure. The rest of a back-off is waited out.

    The interrupted request counts as one request, if it was made.
    """
    flight = builder.row.inference
    if flight is None:
        ask_model(builder)
        return
    left = min(
        flight.asked_at - builder.now, timedelta(seconds=builder.spec.policies.retry.most)
    )  # bounded, because the clock may have jumped
    waits = left > timedelta()
    usage = Usage() if waits else ONE_REQUEST
    builder.row.usage += usage
    _repeat(
        builder,
        flight,
        flight.failures,
        code="interrupted",
        detail=f"the process that {'waited to ask' if waits else 'asked'} the model ended",
        delay_ms=left // timedelta(milliseconds=1) if waits else 0,
        usage=usage,
    )


def _repeat(
    builder: StepBuilder,
    flight: Inference,
    failures: int,
    *,
    code: str,
    detail: str,
    delay_ms: int,
    usage: Usage,
    error_id: str | None = None,
) -> None:
    """Repeat the request; the streamed text of the missing answer is discarded."""
    discard_inference(builder, "the inference is repeated")
    builder.emit(
        "run.inference.retried",
        ev.InferenceRetried(
            step=builder.row.step,
            message_id=flight.message_id,
            code=code,
            detail=detail,
            delay_ms=delay_ms,
            usage=usage if usage != Usage() else None,
            error_id=error_id,
        ),
    )
    ask_model(builder, attempt=flight.attempt + 1, delay_ms=delay_ms, failures=failures)


def model_answered(builder: StepBuilder, message: ModelAnswered) -> bool:
    """Record the answer. Returns True if the step continues with it."""
    flight, response = builder.row.inference, message.response
    if builder.row.cursor is not INFERENCE or flight is None or flight.message_id != message.message_id:
        return False
    usage = response.usage if response.usage.requests else response.usage + ONE_REQUEST
    builder.row.usage = builder.row.usage + usage
    builder.counters.model_attempts += 1
    builder.row.finish = response.finish
    builder.row.cursor = AFTER_INFERENCE
    requests = _requests(builder, response)
    builder.emit(
        "run.inference.completed",
        ev.InferenceCompleted(
            step=builder.row.step,
            message_id=flight.message_id,
            model=response.model,
            usage=usage,
            calls=len(response.calls if isinstance(requests, str) else requests),
            duration_ms=milliseconds(flight.asked_at, builder.now),
            finish=response.finish,
        ),
    )
    if response.refusal is not None and not response.text and not response.calls:
        discard_inference(builder, "the model refused")
        fail(builder, "model_refusal", response.refusal)
        return False
    if isinstance(requests, str):
        discard_inference(builder, "the answer cannot be used")
        fail(builder, "model_behavior_error", requests)
        return False
    _draft_answer(builder, flight, response, requests)
    complete_message(builder)
    for index, request in enumerate(requests):
        _note_call(builder, index, request)
    return True


def _requests(builder: StepBuilder, response: ModelResponse) -> tuple[CallRequest, ...] | str:
    """Return the answer's calls under ids that are unique in the run, or why they are unusable."""
    seen: dict[str, CallRequest] = {}
    out: list[CallRequest] = []
    new = {task.task_id for task in builder.row.tasks}
    for call in response.calls:
        known = seen.get(call.call_id) if call.call_id else None
        if known is not None:
            if (known.tool, known.arguments, known.fault) != (call.tool, call.arguments, call.fault):
                return f"two different calls came under one id {call.call_id!r}"
            continue
        seen[call.call_id] = call
        # an id that the run has used, or that a ticket or task may get, becomes <id>#<n>; the number of an unnamed call
        # begins after the known ids, because a search from 1 would try every unnamed call of the run again
        name, number = call.call_id, 2 if call.call_id else len(builder.used) + len(new) + 1
        while not name or name in builder.used or name in new or is_reserved(builder.info.run_id, name):
            name, number = f"{call.call_id or 'call'}#{number}", number + 1
        new.add(name)
        if name != call.call_id:
            call = replace(call, call_id=name, provider_id=call.provider_id or call.call_id or None)  # noqa: PLW2901
        out.append(call)
    return tuple(out)


def _draft_answer(
    builder: StepBuilder, flight: Inference, response: ModelResponse, requests: tuple[CallRequest, ...]
) -> None:
    """Make the step's assistant message. All texts of the answer are one message; the last one is the final text."""
    text = "".join(response.text)
    builder.row.answer = text
    builder.row.answer_at = len(text) - len(response.text[-1]) if response.text else 0
    builder.row.draft = Message(
        id=flight.message_id,
        role="assistant",
        content=text,
        calls=requests,
        producer=Producer(run_id=builder.info.run_id, step=builder.row.step),
        final_at=builder.row.answer_at,
        provider=response.provider if response.items else "",
        items=response.items,
    )
    if requests:
        builder.used = builder.used.union(request.call_id for request in requests)


def complete_message(builder: StepBuilder) -> None:
    """Report that the step's assistant message is complete: it is sure to stay in the thread, whatever follows.

    The only event of the message, apart from its deltas; `discard_inference` reports a message that does not stay, so a
    message whose beginning was shown has one end. A message without text is complete if the answer has no calls, else
    nothing is left of it but its calls, and what was shown of it is discarded.
    """
    draft, flight = builder.row.draft, builder.row.inference
    if draft is None:
        return
    if draft.content or not draft.calls:
        large = is_large(draft.content)
        shown = LargeText(draft.content) if large else draft.content
        builder.emit(
            "run.message.completed",
            ev.MessageCompleted(message_id=draft.id, role="assistant", text=shown, large=large),
        )
    elif flight is not None and flight.text_index:
        builder.emit("run.message.discarded", ev.MessageDiscarded(message_id=draft.id, reason="the answer has no text"))


def _note_call(builder: StepBuilder, index: int, request: CallRequest) -> None:
    tool = builder.spec.tools.get(request.tool)
    effect = "read" if tool is None else tool.effect
    definition = builder.spec.definition(request.tool, request.call_id)
    row = CallRow(
        call_id=request.call_id,
        index=index,
        step=builder.row.step,
        tool=request.tool,
        arguments=request.arguments,
        fingerprint=fingerprint(builder.spec.key, request.tool, request.arguments, definition),
        definition=definition,
        requested=request,
        effect=effect,
    )
    builder.put(row)
    builder.emit(
        "run.tool.call",
        ev.ToolCalled(
            call_id=row.call_id,
            tool=row.tool,
            status=CallStatus.NEW,
            arguments=row.arguments,
            effect=effect,
            step=builder.row.step,
        ),
    )
