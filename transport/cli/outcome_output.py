"""The report of a run's end: a few lines for people, one object for programs, an exit code for the shell."""

from __future__ import annotations

from typing import Any, Final

import attrs

import greenroom as gr
from greenroom.actors.contract.casing import wire, wire_of
from greenroom.actors.contract.codec import normalise, parse
from greenroom.actors.contract.failures import advice
from greenroom.actors.engine.state import ENGINE

from ..terminal import text_format
from ..terminal.screen import Screen
from . import exits

End = gr.Completed[object] | gr.Failed | gr.Cancelled


@attrs.frozen
class ExitReport:
    """The end of a run for programs: status, exit code, and further fields."""

    status: str
    exit: int
    more: dict[str, Any]


def print_outcome(end: End, screen: Screen) -> ExitReport:
    """Print the end for people, and return the report for programs."""
    screen.status("")
    screen.row()
    match end:
        case gr.Failed():
            screen.row(f"Failed ({end.code}): {text_format.clean(end.message)}", "bad")
            hint, error_id = advice(end.code, end.message), end.termination.error_id
            screen.row("" if hint is None else hint[0], "dim")
            more = {"code": end.code, "message": end.message}
            if error_id is not None:
                line = f"error_id: {text_format.clean(error_id)} (greenroom --debug ... shows the traceback)"
                screen.row(line, "dim")
                more["errorId"] = error_id
            return ExitReport("failed", exits.FAILED, more)
        case gr.Cancelled():
            by = f" by {text_format.clean(end.by)}" if end.by else ""
            screen.row(f"Cancelled{by}{f': {text_format.clean(end.reason)}' if end.reason else ''}", "warn")
            return ExitReport("cancelled", exits.CANCELLED, {"code": end.code, "reason": end.reason, "by": end.by})
        case _:
            return _completed(end, screen)


_CUT: Final = {
    "length": "The answer is cut: the model had reached its limit of tokens.",
    "content_filter": "The answer is cut: a filter of the provider stopped it.",
}
"""Finish reason of a truncated answer -> text shown below it."""


def _completed(end: gr.Completed[object], screen: Screen) -> ExitReport:
    output, _ = normalise(end.output)  # an instance of `output_type`: as JSON, as in the run's last event
    usage = end.usage
    more: dict[str, Any] = {"output": output, "usage": wire(usage)}
    if end.finish is not None:
        more["finish"] = end.finish
    if isinstance(end, gr.Stopped):
        more |= {"stopped": end.code, "detail": end.detail}
        screen.row(f"Stopped by a condition ({end.code}): {text_format.clean(end.detail or '')}", "warn")
    if output is not None:
        screen.row(shown_output(output))
    if (notice := _CUT.get(end.finish or "")) is not None:
        screen.row(notice, "warn")
    screen.row()
    counts = f"{text_format.plural(usage.requests, 'model request')} · {text_format.tokens(usage)}"
    screen.row(f"completed · {counts}", "dim")
    return ExitReport("completed", exits.COMPLETED, more)


def exit_report(event: gr.Event) -> End:
    """Return the end from a run's terminal event."""
    payload = event.payload
    by = payload.get("by") if payload.get("by") != ENGINE else None
    termination = gr.Termination(
        kind=gr.TerminationKind(payload["termination"]),
        code=payload.get("code"),
        detail=payload.get("detail") or payload.get("message") or payload.get("reason"),
        by=by,
        error_id=payload.get("errorId"),
    )
    if event.type == "run.failed":
        return gr.Failed(code=payload["code"], message=payload["message"], termination=termination)
    if event.type == "run.cancelled":
        return gr.Cancelled(reason=payload.get("reason"), by=by, code=payload.get("code"))
    common: dict[str, Any] = {
        "output": payload.get("output"),
        "usage": parse(gr.Usage, payload["usage"]),
        "termination": termination,
        "finish": payload.get("finish"),
    }
    if termination.kind is not gr.TerminationKind.STOPPED:
        return gr.Completed(**common)
    return gr.Stopped(**common, code=termination.code or "stopped", detail=termination.detail)


def shown_output(output: object) -> str:
    """Return a run's output as text for people."""
    if isinstance(output, str):
        return text_format.clean(output)
    return text_format.clean(text_format.value(output, int(1e9)))


def plain_ticket(ticket: gr.Ticket) -> dict[str, Any]:
    """Return a ticket as plain data: what a program needs to decide it."""
    names = ("ticket_id", "call_id", "tool", "arguments", "fingerprint", "reason", "action", "message", "parameters")
    more = ("response_schema", "resume_mode", "requested_at", "expires_at")
    return wire_of(ticket, (*names, *more))
