"""The model requests of a step: the first one, its retries, and what they continue.

Theory of operation. `RunRow.inference` is the request in flight. After a failure that may pass, `next_try` chooses from
the agent's policies alone whether another request is made, when, and what it continues, so the choice is the same in a
replay. An answer begins again under a new message id, and its streamed part is discarded with an event; or it continues
the text that was shown, under the same message id. A request never repeats the messages of a stream that had begun a
call: the next one names that call as not run, so that the model decides again.

A process that ends is not a failure: the answer begins again.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Final, Literal

import attrs
from msgspec.structs import replace

from ..contract import events as ev
from ..contract.ids import error_id
from ..contract.inference import Inference
from ..contract.lifecycle import Termination, TerminationKind
from ..contract.messages import ModelResponse, Usage
from ..contract.phases import INFERENCE
from ..contract.rows import RunRow
from ..contract.spec import AgentSpec
from ..contract.stop import too_many_errors
from .budgets import BUDGET_EXHAUSTED, asked_model, over_budget, spend_on_request
from .effects import CallModel
from .handoffs import active_agent
from .inputs import BUG, ONE_REQUEST, UNAVAILABLE, ModelAnswered, ModelFailed
from .judging import ask_guardrails
from .state import StepBuilder
from .termination import discard_inference, end, fail

Ask = Callable[[StepBuilder, Inference], None]
"""Makes a request."""

# --- the choice ------------------------------------------------------------------------------------------------------


@attrs.frozen
class NextTry:
    """Another request of the step.

    Attributes:
        delay_ms: milliseconds to wait first.
        failures: failed requests so far.
        prefix: the text that the answer continues; "": the answer begins again.
        cut_calls: names of the tools whose calls had begun in streams that broke.
        recovered: requests so far that continued a text.
        model: 0: the step's own model; else the number of a fallback, from 1.
    """

    delay_ms: int
    failures: int
    prefix: str = ""
    cut_calls: tuple[str, ...] = ()
    recovered: int = 0
    model: int = 0

    @property
    def mode(self) -> Literal["restart", "continue"]:
        """Whether the answer begins again."""
        return "continue" if self.prefix else "restart"


@attrs.frozen
class NoTry:
    """The step makes no other request: the run ends, as stopped by ConsecutiveErrors or as failed."""

    detail: str
    stopped: bool = False


def next_try(spec: AgentSpec, flight: Inference, errors: int, message: ModelFailed) -> NextTry | NoTry:
    """Choose what follows a failed request.

    Args:
        spec: The spec of the agent.
        flight: the request.
        errors: failed steps and requests in a row, this failure included.
        message: the failure.
    """
    detail = f"{message.kind}: {message.text}"
    policy, failures = spec.policies.retry, flight.failures + 1
    if message.retryable and too_many_errors(spec.stop, errors):
        return NoTry(f"{errors} failed steps; the last one: {detail}", stopped=True)
    too_long = message.retryable and policy.too_long(message.retry_after)
    again = message.retryable and not too_long and failures < policy.attempts
    fallback = spec.policies.fallback
    if (
        fallback is not None
        and message.kind in fallback.on
        and flight.model < len(fallback.models)
        and (message.refused or not again)
    ):
        return _following(spec, flight, message, NextTry(0, 0, model=flight.model + 1))
    if again:
        delay = round(policy.wait(failures, message.jitter, message.retry_after) * 1000)
        return _following(spec, flight, message, NextTry(delay, failures, model=flight.model))
    if too_long:
        cap = f"more than retry_after_cap={policy.retry_after_cap:g}"
        detail += f" (asked to wait {message.retry_after:,.0f} s, {cap})"
    return NoTry(detail)


def _following(spec: AgentSpec, flight: Inference, message: ModelFailed, next_request: NextTry) -> NextTry:
    """Return the try with what it continues."""
    text, cut = flight.prefix + message.received, (*flight.cut_calls, *message.cut_calls)
    has_text = bool(text.strip())  # providers refuse a message of white space
    if has_text and not spec.structured and flight.recovered < spec.policies.recovery.times:
        return attrs.evolve(next_request, prefix=text, cut_calls=cut, recovered=flight.recovered + 1)
    return attrs.evolve(next_request, cut_calls=cut, recovered=flight.recovered)


def is_continued(spec: AgentSpec, row: RunRow, message: ModelFailed | ModelAnswered) -> bool:
    """Return True if the text of a broken or truncated answer will be continued under its message id.

    `spec`: The spec of the run's first agent.
    """
    flight = row.inference
    if flight is None or flight.message_id != message.message_id:
        return False
    if isinstance(message, ModelAnswered):
        return message.response.finish == "length" and is_truncated(spec.acting(row.agent), flight, message.response)
    spec = spec.acting(row.agent)
    next_request = next_try(spec, flight, row.counters.errors + (not message.refused), message)
    return isinstance(next_request, NextTry) and bool(next_request.prefix)


def is_truncated(spec: AgentSpec, flight: Inference, response: ModelResponse) -> bool:
    """Return True if an answer that its token limit has cut is a text that another request may continue."""
    policy = spec.policies.truncation
    if policy is None or response.calls or spec.structured:
        return False
    return flight.truncated < policy.times and bool("".join((flight.prefix, *response.text)).strip())


# --- requests --------------------------------------------------------------------------------------------------------


def ask_model(builder: StepBuilder) -> None:
    """Make the first request of a step; input guardrails that do not block it are asked with it."""
    _ask(builder, Inference(message_id=builder.new_message_id(), attempt=1, started_at=builder.now))
    if builder.row.open_guardrails is not None:
        ask_guardrails(builder)


def continue_truncated(builder: StepBuilder, flight: Inference, response: ModelResponse) -> None:
    """Ask for the rest of a truncated answer, immediately and under the same message id."""
    prefix = "".join((flight.prefix, *response.text))
    again = replace(flight, attempt=flight.attempt + 1, started_at=builder.now, delay_ms=0, failures=0, prefix=prefix)
    _ask(builder, replace(again, truncated=flight.truncated + 1))


def _ask(builder: StepBuilder, flight: Inference) -> None:
    """Make a request, after the milliseconds that it names; a used-up budget ends the run instead."""
    spec, budget, fallback = builder.spec, builder.spec.policies.budget, flight.model
    budget_fault = None if budget is None else over_budget(builder, budget, asked_model(spec, builder.row, fallback))
    if budget_fault is not None:
        discard_inference(builder, "the budget is used up")
        fail(builder, BUDGET_EXHAUSTED, budget_fault)
        return
    builder.enter(INFERENCE)
    builder.row.inference, builder.changed = flight, True
    builder.emit(
        "run.inference.started",
        ev.InferenceStarted(
            step=builder.row.step,
            message_id=flight.message_id,
            attempt=flight.attempt,
            model=_fallback(spec, flight.model) if flight.model else None,
            agent=None if builder.row.agent is None else active_agent(builder),
        ),
    )
    builder.do(
        CallModel(
            message_id=flight.message_id,
            step=builder.row.step,
            attempt=flight.attempt,
            model_attempts=builder.counters.model_attempts,
            changes=builder.row.request,
            delay=flight.delay_ms / 1000,
            prefix=flight.prefix,
            cut_calls=flight.cut_calls,
            model=flight.model,
            tool_choice="auto" if spec.key in builder.row.tool_users else spec.tool_choice,
        )
    )


def _fallback(spec: AgentSpec, model: int) -> str | None:
    """Return the name of a fallback; None for the step's own model."""
    policy = spec.policies.fallback
    return policy.models[model - 1] if policy is not None and model else None


_CODES: Final = {BUG: "model_bug", UNAVAILABLE: "runtime_unavailable"}
"""Kind of a failure that is not the provider's -> failure code of the run."""


def model_failed(builder: StepBuilder, message: ModelFailed) -> None:
    """Make another request if that may help, else end the run.

    The usage of the failed request counts. Each failure counts as a failed step in a row, so a failure that may pass
    can meet a ConsecutiveErrors condition: the run is then stopped, also if it would not be retried anyway. A refusal
    by a circuit breaker is not a request, and counts for neither.
    """
    flight = builder.row.inference
    if builder.row.position is not INFERENCE or flight is None or flight.message_id != message.message_id:
        return
    if not message.refused:
        builder.counters.model_attempts += 1
        builder.counters.errors += 1
    spend_on_request(builder, message.usage, flight.model)
    next_request = next_try(builder.spec, flight, builder.counters.errors, message)
    name = error_id(builder.info.run_id, flight.message_id)
    if isinstance(next_request, NextTry):
        detail = f"{message.kind}: {message.text}"
        _repeat(builder, flight, next_request, code=message.kind, detail=detail, usage=message.usage, error_id=name)
        return
    discard_inference(builder, "the model failed")
    if next_request.stopped:
        end(builder, Termination(kind=TerminationKind.STOPPED, code="consecutive_errors", detail=next_request.detail))
    else:
        code = _CODES.get(message.kind, "model_error")
        fail(builder, code, next_request.detail, error_id=name)


def ask_anew(builder: StepBuilder, ask: Ask | None = None) -> None:
    """Repeat the request of a process that ended; this is not a failure. The rest of a back-off is waited out.

    The interrupted request counts as one request, if it was made. Its answer begins again. `ask` makes the request;
    default: as it was.
    """
    flight = builder.row.inference
    if flight is None:
        ask_model(builder)
        return
    remaining = min(
        flight.asked_at - builder.now, timedelta(seconds=builder.spec.policies.retry.most)
    )  # bounded, because the clock may have jumped
    waits = remaining > timedelta()
    usage = Usage() if waits else ONE_REQUEST
    policy = builder.spec.policies.fallback  # a release may have taken models away
    model = min(flight.model, 0 if policy is None else len(policy.models))
    spend_on_request(builder, usage, model)
    delay = remaining // timedelta(milliseconds=1) if waits else 0
    _repeat(
        builder,
        flight,
        NextTry(delay, flight.failures, cut_calls=flight.cut_calls, recovered=flight.recovered, model=model),
        code="interrupted",
        detail=f"the process that {'waited to ask' if waits else 'asked'} the model ended",
        usage=usage,
        ask=ask,
    )


def _repeat(
    builder: StepBuilder,
    flight: Inference,
    next_request: NextTry,
    *,
    code: str,
    detail: str,
    usage: Usage,
    error_id: str | None = None,
    ask: Ask | None = None,
) -> None:
    """Make another request; the streamed text of the missing answer is discarded unless the answer continues it."""
    if not next_request.prefix:
        discard_inference(builder, "the inference is repeated")
    builder.emit(
        "run.inference.retried",
        ev.InferenceRetried(
            step=builder.row.step,
            message_id=flight.message_id,
            code=code,
            detail=detail,
            delay_ms=next_request.delay_ms,
            usage=usage if usage != Usage() else None,
            error_id=error_id,
            mode=next_request.mode,
            model=None if next_request.model == flight.model else _fallback(builder.spec, next_request.model),
        ),
    )
    (ask or _ask)(
        builder,
        Inference(
            message_id=flight.message_id if next_request.prefix else builder.new_message_id(),
            attempt=flight.attempt + 1,
            started_at=builder.now,
            text_index=flight.text_index if next_request.prefix else 0,
            reasoning_index=flight.reasoning_index if next_request.prefix else 0,
            failures=next_request.failures,
            delay_ms=next_request.delay_ms,
            prefix=next_request.prefix,
            cut_calls=next_request.cut_calls,
            recovered=next_request.recovered,
            model=next_request.model,
            truncated=flight.truncated,
        ),
    )
