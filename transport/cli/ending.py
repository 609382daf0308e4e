"""How a run's end is told: to people in a few lines, to programs as one object, to the shell as an exit code."""

from __future__ import annotations

from typing import Any, Final

import attrs

import greenroom as gr
from greenroom.actors.contract.codec import parse
from greenroom.actors.contract.failures import advice
from greenroom.actors.engine.state import ENGINE

from ..terminal import words
from ..terminal.screen import Screen
from . import exits

End = gr.Completed[Any] | gr.Failed | gr.Cancelled


@attrs.frozen(kw_only=True)
class Told:
    """What programs learn of an end: the status, the exit code, and what belongs to it."""

    status: str
    exit: int
    more: dict[str, Any]


def tell(end: End, screen: Screen) -> Told:
    """Tell people, and return what programs are told."""
    screen.status("")
    screen.row()
    match end:
        case gr.Failed():
            screen.row(f"Failed ({end.code}): {words.clean(end.message)}", "bad")
            found, error_id = advice(end.code, end.message), end.termination.error_id
            screen.row("" if found is None else found[0], "dim")
            if error_id is not None:
                where = f"error_id: {words.clean(error_id)} (greenroom --debug ... shows the traceback)"
                screen.row(where, "dim")
            more: dict[str, Any] = {"code": end.code, "message": end.message}
            if error_id is not None:
                more["error_id"] = error_id
            return Told(status="failed", exit=exits.FAILED, more=more)
        case gr.Cancelled():
            by = f" by {words.clean(end.by)}" if end.by else ""
            screen.row(f"Cancelled{by}{f': {words.clean(end.reason)}' if end.reason else ''}", "warn")
            more = {"code": end.code, "reason": end.reason, "by": end.by}
            return Told(status="cancelled", exit=exits.CANCELLED, more=more)
        case _:
            return _completed(end, screen)


_CUT: Final = {
    "length": "The answer is cut: the model had reached its limit of tokens.",
    "content_filter": "The answer is cut: a filter of the provider stopped it.",
}
"""Why an answer may not be whole -> what is said below it."""


def _completed(end: gr.Completed[Any], screen: Screen) -> Told:
    stopped = {"stopped": end.code, "detail": end.detail} if isinstance(end, gr.Stopped) else {}
    cut = _CUT.get(end.finish or "")
    if stopped:
        screen.row(f"Stopped by a condition ({stopped['stopped']}): {words.clean(stopped['detail'] or '')}", "warn")
    if end.output is not None:
        screen.row(shown_output(end.output))
    if cut is not None:
        screen.row(cut, "warn")
    usage = end.usage
    screen.row()
    tokens = f"{usage.input:,} tokens in, {usage.output:,} out"
    screen.row(f"completed · {words.plural(usage.requests, 'model request')} · {tokens}", "dim")
    finish = {} if end.finish is None else {"finish": end.finish}
    more = {"output": end.output, "usage": attrs.asdict(usage), **finish, **stopped}
    return Told(status="completed", exit=exits.COMPLETED, more=more)


def end_of(event: gr.Event) -> End:
    """The end that a run's terminal event tells."""
    told = event.payload
    by = told.get("by") if told.get("by") != ENGINE else None
    termination = gr.Termination(
        kind=gr.TerminationKind(told["termination"]),
        code=told.get("code"),
        detail=told.get("detail") or told.get("message") or told.get("reason"),
        by=by,
        error_id=told.get("error_id"),
    )
    if event.type == "run.failed":
        return gr.Failed(code=told["code"], message=told["message"], termination=termination)
    if event.type == "run.cancelled":
        return gr.Cancelled(reason=told.get("reason"), by=by, code=told.get("code"))
    common: dict[str, Any] = {
        "output": told.get("output"),
        "usage": parse(gr.Usage, told["usage"]),
        "termination": termination,
        "finish": told.get("finish"),
    }
    if termination.kind is not gr.TerminationKind.STOPPED:
        return gr.Completed(**common)
    return gr.Stopped(**common, code=termination.code or "stopped", detail=termination.detail)


def shown_output(output: Any) -> str:
    """A run's output for people."""
    if isinstance(output, str):
        return words.clean(output)
    return words.clean(words.value(output, int(1e9)))


def plain_ticket(ticket: gr.Ticket) -> dict[str, Any]:
    """A ticket as plain data: what a program needs to decide it."""
    names = ("ticket_id", "call_id", "tool", "arguments", "fingerprint", "reason", "action", "message", "parameters")
    more = ("response_schema", "resume_mode", "requested_at", "expires_at")
    return {name: getattr(ticket, name) for name in (*names, *more)}
