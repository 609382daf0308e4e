"""Ask guardrails: user code that judges, within its time limit, at the supervision boundary.

Theory of operation. A guardrail either gives a verdict in time or has failed; there is no third outcome, and a failed
guardrail lets nothing pass. Guardrails of a tool are asked one after the other, and none after the first that does not
allow. The values that they judge are copies: changing them changes nothing.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import trio

from greenroom.supervision.border import failure_of, failure_of_call
from greenroom.supervision.nursery import open_collapsing_nursery

from ..contract.decisions import Allow, Reject, Trip
from ..contract.guardrails import Tripped
from ..plugins.contexts import PhaseContext
from ..plugins.guardrails import Guardrail
from ..services.error_log import PLUGIN, ErrorLog
from ..services.sanitize import InvalidValue, data_of, text_of
from ..state.values import shown
from ..tools.invoke import shown_text
from .hook_deadlines import UNWATCHED, HookDeadlines
from .hooks import HookFailed


async def in_order(
    guardrails: Iterable[Guardrail],
    ctx: PhaseContext,
    value: Callable[[], Any],
    watch: HookDeadlines = UNWATCHED,
) -> Tripped | None:
    """Ask guardrails one after the other, up to the first that does not allow; return its report.

    Args:
        guardrails: in order.
        ctx: their context.
        value: makes a copy of what is judged.
        watch: notes which guardrail is running, and until when.

    Raises:
        HookFailed: a guardrail gave no verdict.
        trio.Cancelled: cancelled.
    """
    for guardrail in guardrails:
        tripped = await judge(guardrail, ctx, value, watch)
        if tripped is not None:
            return tripped
    return None


async def judge(
    guardrail: Guardrail, ctx: PhaseContext, value: Callable[[], Any], watch: HookDeadlines = UNWATCHED
) -> Tripped | None:
    """Ask one guardrail; arguments and errors as of `in_order`. A verdict after the time limit does not count."""
    late, key = f"{where(guardrail)}: it did not answer within {guardrail.timeout:g} s", watched_as(guardrail)
    if key in watch.given_up:
        raise HookFailed(f"{late}, and did not obey either", level=logging.WARNING)
    with watch.over(key, guardrail.timeout), trio.move_on_after(guardrail.timeout) as time:
        try:
            answer: object = guardrail.function(ctx, value())
            if inspect.isawaitable(answer):
                answer = await answer
        except BaseException as error:  # noqa: BLE001 - a guardrail is user code, which may raise anything
            real = failure_of(error)
            raise HookFailed(f"{where(guardrail)}: {shown_text(real)}") from real  # noqa: ASYNC104 - the border has raised what passes
        if not time.cancel_called:
            return _read(guardrail, answer)
    raise HookFailed(late, level=logging.WARNING)


def _read(guardrail: Guardrail, answer: object) -> Tripped | None:
    """Read a verdict. Its values are the program's objects, and reading them may run any code."""
    named, rejects = where(guardrail), guardrail.kind in ("tool_input", "tool_output")
    try:
        match answer:
            case None | Allow():
                return None
            case Trip():
                return Tripped(guardrail=guardrail.name, verdict="trip", info=data_of(answer.info, "the info"))
            case Reject(text=str()) if rejects:
                return Tripped(guardrail=guardrail.name, verdict="reject", info=text_of(answer.text))
    except InvalidValue as error:
        raise HookFailed(f"{named}: its verdict cannot be stored: {error}") from error
    except BaseException as error:  # noqa: BLE001 - the values of a verdict are the program's
        failure = failure_of_call(error)
        raise HookFailed(f"{named}: its verdict cannot be read: {shown_text(failure)}") from failure  # noqa: ASYNC104 - the border has raised what passes
    way = "gr.Trip, gr.Reject, gr.Allow or None" if rejects else "gr.Trip, gr.Allow or None"
    raise HookFailed(f"{named}: it returned {shown(answer)}; return {way}")


async def together(
    guardrails: Sequence[Guardrail], ctx: PhaseContext, value: Callable[[], Any], watch: HookDeadlines
) -> Tripped | None:
    """Ask guardrails at once; the first that does not allow, in time, cancels the others and is returned.

    Arguments and errors are those of `in_order`. No guardrail is alive when this returns or raises.
    """
    if len(guardrails) < 2:  # the usual case needs no task
        return await in_order(guardrails, ctx, value, watch)
    found: list[Tripped | HookFailed] = []

    async def ask_one(guardrail: Guardrail) -> None:
        try:
            tripped: Tripped | HookFailed | None = await judge(guardrail, ctx, value, watch)
        except HookFailed as failure:
            tripped = failure
        if tripped is not None:
            found.append(tripped)
            nursery.cancel_scope.cancel("a guardrail did not allow")

    async with open_collapsing_nursery() as nursery:
        for guardrail in guardrails:
            nursery.start_soon(ask_one, guardrail)
    first = found[0] if found else None
    if isinstance(first, HookFailed):
        raise first
    return first


def log_failure(log: ErrorLog, run_id: str, failure: HookFailed, **fields: Any) -> None:
    """Log the failure of a guardrail, with the traceback if it raised."""
    what, cause = f"run {run_id}: {failure}", failure.__cause__
    if cause is None:
        log.note(PLUGIN, failure.level, what, code="plugin_error", run_id=run_id, **fields)
    else:
        log.bug(PLUGIN, what, cause, code="plugin_error", run_id=run_id, **fields)


def where(guardrail: Guardrail) -> str:
    """Return the name of a guardrail for the message of a failure."""
    return f"guardrail {guardrail.name} ({guardrail.kind})"


def watched_as(guardrail: Guardrail) -> str:
    """Return the name under which `HookDeadlines` knows a guardrail; no plugin has such a name."""
    return f"guardrail {guardrail.name}"
