"""Tickets as requests to an editor, and its answers as decisions. Pure.

A ticket that a yes or a no answers is a permission request; one that wants a value is a form. An answer that selects
nothing decides nothing: the ticket stays open for other doors, such as the console.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import attrs

from greenroom.actors.contract.decisions import Decision, Ticket, asks_outcome
from greenroom.actors.contract.plain import JSONObject, JSONValue
from greenroom.actors.permission.remembered import Always, suggested

from ..terminal import text_format
from ..terminal.difference_text import ProposedDifference
from ..terminal.ticket_text import answerable_by_yes, barred, details
from .forms import ElicitationForm, form_of
from .updates import content_of, title_of, title_of_run

ONCE, ALWAYS, NEVER = "allow_once", "allow_always", "reject_once"
"""The kinds of our options, which are also their ids."""
_OF_ALWAYS: Final = {
    "call": "Always allow these arguments in this session",
    "argv": "Always allow this command in this session",
    "tool": "Always allow this tool in this session",
}
TEXT: Final = 20_000
"""Most characters of what an editor shows of a question."""


@attrs.frozen(kw_only=True)
class EditorQuestion:
    """A request to the editor about a ticket.

    Attributes:
        ticket: The ticket.
        method, params: The request.
        form: The form of a question that wants a value; None for a permission.
    """

    ticket: Ticket
    method: str
    params: JSONObject
    form: ElicitationForm | None = None


@attrs.frozen(kw_only=True)
class Unaskable:
    """A ticket that cannot be asked about here, and the reason."""

    ticket: Ticket
    reason: str


@attrs.frozen(kw_only=True)
class EditorAnswer:
    """The answer to a question: a decision, and what of it is to be remembered."""

    decision: Decision
    remember: Always | None = None


Asking: TypeAlias = EditorQuestion | Unaskable


def question_of(
    ticket: Ticket,
    session_id: str,
    call_name: str,
    *,
    principal: str,
    forms: bool,
    change: ProposedDifference | None = None,
    note: str = "",
) -> Asking:
    """Return the request about a ticket.

    Args:
        ticket: An open ticket.
        session_id: The session.
        call_name: The id of the call in the session; of a ticket of the run, the id of its own entry.
        principal: Who decides.
        forms: The editor shows forms.
        change: The difference that the ticket is about, if any.
        note: Why an earlier answer was not accepted.
    """
    refusal = barred(ticket, principal)
    if refusal:
        return Unaskable(ticket=ticket, reason=refusal)
    if answerable_by_yes(ticket) or asks_outcome(ticket.reason, ticket.action):
        params = {"sessionId": session_id, "toolCall": _call(ticket, call_name, change), "options": _options(ticket)}
        return EditorQuestion(ticket=ticket, method="session/request_permission", params=params)
    if not forms:
        return Unaskable(ticket=ticket, reason="The answer needs a form, which this editor does not show.")
    form = form_of(ticket.response_schema)
    message = "\n".join(filter(None, (note, _title(ticket), _shown(ticket, change))))
    params = {"mode": "form", "sessionId": session_id, "toolCallId": call_name}
    params |= {"message": message, "requestedSchema": form.schema}
    return EditorQuestion(ticket=ticket, method="elicitation/create", params=params, form=form)


def verdict_of(question: EditorQuestion, result: JSONValue) -> EditorAnswer | None:
    """Return what an answer decides; None if it decides nothing."""
    ticket, answer = question.ticket, result if isinstance(result, dict) else {}
    if question.form is None:
        outcome = answer.get("outcome")
        match outcome.get("optionId") if isinstance(outcome, dict) and outcome.get("outcome") == "selected" else None:
            case "allow_once":
                return EditorAnswer(decision=ticket.approve())
            case "allow_always" if (always := suggested(ticket)) is not None:
                return EditorAnswer(decision=ticket.approve(), remember=always)
            case "reject_once":
                return EditorAnswer(decision=ticket.deny())
            case _:
                return None
    match answer.get("action"):
        case "accept":
            content = answer.get("content")
            return EditorAnswer(
                decision=ticket.approve(question.form.answer(content if isinstance(content, dict) else {}))
            )
        case "decline":
            return EditorAnswer(decision=ticket.deny())
        case _:
            return None


def _call(ticket: Ticket, call_name: str, change: ProposedDifference | None) -> JSONObject:
    call = {
        "toolCallId": call_name,
        "title": _title(ticket),
        "status": "pending",
        "content": content_of(_shown(ticket, change)),
    }
    return call | ({"name": ticket.tool, "rawInput": ticket.arguments} if ticket.tool else {})


def _title(ticket: Ticket) -> str:
    if asks_outcome(ticket.reason, ticket.action):
        return f"Did {text_format.subject(ticket.tool)} take effect?"
    if ticket.call_id is None:
        return title_of_run(ticket)
    return title_of(ticket.tool, "unknown", ticket.arguments)


def _shown(ticket: Ticket, change: ProposedDifference | None) -> str:
    """Return exactly what would happen, as text."""
    return "\n".join(row for row, _ in details(ticket, change, whole=True))[:TEXT]


def _options(ticket: Ticket) -> list[JSONObject]:
    if asks_outcome(ticket.reason, ticket.action):
        allow, reject = "Run it again", "Cancel the call"
    elif ticket.call_id is None:
        allow, reject = "Continue", "End the run"
    else:
        allow, reject = "Allow", "Reject"
    always = suggested(ticket)
    options = [{"optionId": ONCE, "name": allow, "kind": ONCE}]
    if always is not None:
        options.append({"optionId": ALWAYS, "name": _OF_ALWAYS[always.form], "kind": ALWAYS})
    return [*options, {"optionId": NEVER, "name": reject, "kind": NEVER}]
