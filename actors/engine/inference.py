"""The model's answer: its streamed text, its message and its calls.

Theory of operation. `RunRow.inference` is the request in flight (`asking.py` makes the requests). An answer to another
request is late and ignored. A text that continues the text of a broken stream is one message with it.
"""

from __future__ import annotations

from msgspec.structs import replace

from ..contract import events as ev
from ..contract.calls import CallStatus
from ..contract.excerpt import LargeText, is_large
from ..contract.ids import fingerprint, is_reserved
from ..contract.inference import Inference
from ..contract.lifecycle import Termination, TerminationKind
from ..contract.messages import CallRequest, Message, ModelResponse, Producer
from ..contract.phases import AFTER_INFERENCE, INFERENCE
from ..contract.rows import CallRow
from ..contract.spec import OfferedTool
from .asking import continue_truncated, is_truncated
from .budgets import spend_on_request
from .inputs import ONE_REQUEST, ModelAnswered, ModelCut, ModelStreamed
from .judging import wait_with
from .state import StepBuilder, milliseconds
from .termination import discard_inference, end


def model_streamed(builder: StepBuilder, message: ModelStreamed) -> None:
    """Emit more streamed text of the answer."""
    flight = builder.row.inference
    if builder.row.position is not INFERENCE or flight is None or flight.message_id != message.message_id:
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


def model_answered(builder: StepBuilder, message: ModelAnswered) -> bool:
    """Record the answer. Returns True if the step continues with it."""
    flight, response = builder.row.inference, message.response
    if builder.row.position is not INFERENCE or flight is None or flight.message_id != message.message_id:
        return False
    usage = response.usage if response.usage.requests else response.usage + ONE_REQUEST
    spend_on_request(builder, usage, flight.model)
    builder.counters.model_attempts += 1
    builder.row.finish = response.finish
    builder.enter(AFTER_INFERENCE)
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
        _unusable(builder, "model_refusal", response.refusal)
        return False
    if isinstance(requests, str):
        _unusable(builder, "model_behavior_error", requests)
        return False
    if response.finish == "length" and is_truncated(builder.spec, flight, response):
        continue_truncated(builder, flight, response)
        return False
    _draft_answer(builder, flight, response, requests)
    if builder.row.open_guardrails is not None or (builder.spec.output_guardrails and not requests):
        builder.row.inference = replace(flight, unsure=True)
    else:
        complete_message(builder)
    offered_tools = {tool.name: tool for tool in message.offered if tool.name not in builder.spec.tools}
    for index, request in enumerate(requests):
        _note_call(builder, index, request, offered_tools.get(request.tool))
    builder.spec = builder.calls.joined(builder.spec)
    return True


def model_cut(builder: StepBuilder, message: ModelCut) -> None:
    """Count the request that the end of the run has stopped, and keep what had arrived of its answer, marked as cut.

    The calls of the answer never run, and nothing is left of them and of the reasoning: both may be incomplete, and
    providers refuse incomplete ones. A text that guardrails had to judge is discarded, as at every end.
    """
    flight = builder.row.inference
    if flight is None or not flight.stopped or flight.message_id != message.message_id:
        return
    builder.row.inference, builder.changed = replace(flight, stopped=False), True
    if message.usage.requests:
        spend_on_request(builder, message.usage, flight.model)
        cut = ev.InferenceCut(step=builder.row.step, message_id=flight.message_id, usage=message.usage)
        builder.emit("run.inference.cut", cut)
    text = flight.prefix + (message.text or "")
    unjudged = flight.unsure or bool(builder.spec.output_guardrails)
    if message.text is None or not text.strip() or unjudged:  # providers refuse a message of white space
        discard_inference(builder, "the run ended")
        return
    index = flight.text_index
    for at, piece in enumerate(message.rest):
        builder.emit("run.message.delta", ev.MessageDelta(message_id=flight.message_id, index=index + at, text=piece))
    builder.row.answer, builder.row.answer_at = text, 0
    producer = Producer(run_id=builder.info.run_id, step=builder.row.step)
    builder.row.draft = Message(id=flight.message_id, role="assistant", content=text, producer=producer, cut=True)
    complete_message(builder)


def _unusable(builder: StepBuilder, code: str, detail: str) -> None:
    """End the run for an answer that cannot be used, as soon as the input guardrails have passed."""
    ends = Termination(kind=TerminationKind.ERROR, code=code, detail=detail)
    if not wait_with(builder, ends):
        discard_unusable(builder, ends)
        end(builder, ends)


def discard_unusable(builder: StepBuilder, ends: Termination) -> None:
    """Discard the streamed part of an answer that ends the run."""
    discard_inference(builder, "the model refused" if ends.code == "model_refusal" else "the answer cannot be used")


def _requests(builder: StepBuilder, response: ModelResponse) -> tuple[CallRequest, ...] | str:
    """Return the answer's calls under ids that are unique in the run, or why they are unusable."""
    by_id: dict[str, CallRequest] = {}
    out: list[CallRequest] = []
    new = {*builder.tasks}
    for call in response.calls:
        earlier = by_id.get(call.call_id) if call.call_id else None
        if earlier is not None:
            if (earlier.tool, earlier.arguments, earlier.fault) != (call.tool, call.arguments, call.fault):
                return f"two different calls came under one id {call.call_id!r}"
            continue
        by_id[call.call_id] = call
        # an id that the run has used, or that a ticket or task may get, becomes <id>#<n>; the number of an unnamed call
        # begins after the known ids, because a search from 1 would try every unnamed call of the run again
        name, number = call.call_id, 2 if call.call_id else len(builder.call_ids) + len(new) + 1
        while not name or name in builder.call_ids or name in new or is_reserved(builder.info.run_id, name):
            name, number = f"{call.call_id or 'call'}#{number}", number + 1
        new.add(name)
        if name != call.call_id:
            call = replace(call, call_id=name, provider_id=call.provider_id or call.call_id or None)  # noqa: PLW2901
        out.append(call)
    return tuple(out)


def _draft_answer(
    builder: StepBuilder, flight: Inference, response: ModelResponse, requests: tuple[CallRequest, ...]
) -> None:
    """Make the step's assistant message. All texts of the answer are one message; the last one is the final text.

    A text that continues the text of a broken stream is one message, and one final text, with it.
    """
    text, last = flight.prefix + "".join(response.text), response.text[-1:]
    builder.row.answer = text
    builder.row.answer_at = 0 if flight.prefix and len(response.text) < 2 else len(text) - len("".join(last))
    builder.row.draft = Message(
        id=flight.message_id,
        role="assistant",
        content=text,
        calls=requests,
        producer=Producer(run_id=builder.info.run_id, step=builder.row.step),
        final_at=builder.row.answer_at,
        provider=response.provider if response.items and not flight.prefix else "",
        items=() if flight.prefix else response.items,  # they describe the rest of the answer only
    )
    if requests:
        builder.call_ids = builder.call_ids.union(request.call_id for request in requests)


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
        text = LargeText(draft.content) if large else draft.content
        builder.emit(
            "run.message.completed",
            ev.MessageCompleted(message_id=draft.id, role="assistant", text=text, large=large, cut=draft.cut),
        )
    elif flight is not None and flight.text_index:
        builder.emit("run.message.discarded", ev.MessageDiscarded(message_id=draft.id, reason="the answer has no text"))


def confirm_message(builder: StepBuilder) -> None:
    """Report that the message is complete, if that waited for guardrails."""
    flight = builder.row.inference
    if flight is not None and flight.unsure:
        complete_message(builder)
        builder.row.inference = replace(flight, unsure=False)


def _note_call(builder: StepBuilder, index: int, request: CallRequest, offered_tool: OfferedTool | None) -> None:
    tool = builder.spec.tools.get(request.tool) or offered_tool
    effect = "read" if tool is None else tool.effect
    definition = builder.spec.definition(request.tool, request.call_id)
    if offered_tool is not None:
        definition = offered_tool.definition
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
        offered=offered_tool,
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
