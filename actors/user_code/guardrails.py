"""Ask guardrails: user code that judges, within its time limit, at the supervision boundary.

Theory of operation. A guardrail either gives a verdict in time or has failed; there is no third outcome, and a failed
guardrail lets nothing pass. Guardrails of a tool are asked one after the other, and none after the first that does not
allow. The values that they judge are copies: changing them changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..contract.decisions import Allow, Reject, Trip
from ..contract.guardrails import Tripped
from ..plugins.contexts import PhaseContext
from ..plugins.guardrails import Guardrail
from ..services.error_log import PLUGIN, ErrorLog
from ..services.sanitize import data_of, text_of
from ..state.values import shown
from .calls import HookFailed, answer_of, call_user, read_answer, together
from .hook_deadlines import HookDeadlines


async def in_order(
    guardrails: Iterable[Guardrail],
    ctx: PhaseContext,
    value: Callable[[], Any],
    watch: HookDeadlines | None = None,
) -> Tripped | None:
    """Ask guardrails one after the other, up to the first that does not allow; return its report.

    Args:
        guardrails: The guardrails, in the order of the questions.
        ctx: their context.
        value: A function that returns a copy of the judged value.
        watch: notes which guardrail is running, and until when.

    Raises:
        HookFailed: a guardrail gave no verdict.
        trio.Cancelled: cancelled.
    """
    for guardrail in guardrails:
        trip = await judge(guardrail, ctx, value, watch)
        if trip is not None:
            return trip
    return None


async def judge(
    guardrail: Guardrail, ctx: PhaseContext, value: Callable[[], Any], watch: HookDeadlines | None = None
) -> Tripped | None:
    """Ask one guardrail; arguments and errors as of `in_order`. A verdict after the time limit does not count."""
    name = where(guardrail)
    outcome = await call_user(
        lambda: guardrail.function(ctx, value()), name=watched_as(guardrail), limit=guardrail.timeout, watch=watch
    )
    answer = answer_of(outcome, name, f"{name}: it did not answer")
    return read_answer(name, "verdict", lambda: _verdict(guardrail, answer))


def _verdict(guardrail: Guardrail, answer: object) -> Tripped | None:
    rejects = guardrail.kind in ("tool_input", "tool_output")
    match answer:
        case None | Allow():
            return None
        case Trip():
            return Tripped(guardrail=guardrail.name, verdict="trip", info=data_of(answer.info, "the info"))
        case Reject(text=str()) if rejects:
            return Tripped(guardrail=guardrail.name, verdict="reject", info=text_of(answer.text))
    way = "gr.Trip, gr.Reject, gr.Allow or None" if rejects else "gr.Trip, gr.Allow or None"
    raise HookFailed(f"{where(guardrail)}: it returned {shown(answer)}; return {way}")


async def ask_all(
    guardrails: Sequence[Guardrail], ctx: PhaseContext, value: Callable[[], Any], watch: HookDeadlines
) -> Tripped | None:
    """Ask guardrails concurrently; the first that does not allow, in time, cancels the others and is returned.

    Arguments and errors are those of `in_order`. No guardrail is alive when this returns or raises.
    """
    answers = await together(
        guardrails, lambda guardrail: judge(guardrail, ctx, value, watch), ends=lambda report: report is not None
    )
    return next(filter(None, answers), None)


def log_failure(log: ErrorLog, run_id: str, failure: HookFailed) -> None:
    """Log the failure of a guardrail, with the traceback if it raised."""
    what = f"run {run_id}: {failure}"
    log.fault(PLUGIN, what, failure.__cause__, level=failure.level, code="plugin_error")


def where(guardrail: Guardrail) -> str:
    """Return the name of a guardrail for the message of a failure."""
    return f"guardrail {guardrail.name} ({guardrail.kind})"


def watched_as(guardrail: Guardrail) -> str:
    """Return the name under which `HookDeadlines` knows a guardrail; no plugin has such a name."""
    return f"guardrail {guardrail.name}"
