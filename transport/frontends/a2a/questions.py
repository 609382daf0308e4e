"""Open tickets as the message of an INPUT_REQUIRED status: a text for people, and a data part for each ticket.

The answer to a ticket is a data part, too (`SentDecision`). A text never approves: it is the result of a ticket that
takes a text as result, or further input.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from greenroom.actors.backends.a2a_codec import TICKET_TYPE
from greenroom.actors.backends.a2a_values import A2APart
from greenroom.actors.contract.plain import JSONObject

_FIELDS: Final = (
    *("ticketId", "callId", "tool", "arguments", "action", "reason", "message", "parameters", "fingerprint"),
    *("responseSchema", "expiresAt", "reviewers"),
)


def question(tickets: Iterable[JSONObject]) -> tuple[A2APart, ...]:
    """Return the parts of the message that asks for decisions.

    Args:
        tickets: The payloads of run.approval.requested of the open tickets.
    """
    asked = tuple(tickets)
    lines = "\n".join(_line(ticket) for ticket in asked)
    parts = (A2APart(data=_data(ticket), media_type=TICKET_TYPE) for ticket in asked)
    return (A2APart(text=lines or "The run waits."), *parts)


def _line(ticket: JSONObject) -> str:
    """Return a ticket as a line for people."""
    about = ticket["tool"] or "the run"
    return ticket["message"] if ticket.get("message") else f"{about} waits for a decision ({ticket['reason']})."


def _data(ticket: JSONObject) -> dict[str, Any]:
    return {name: ticket[name] for name in _FIELDS if ticket.get(name) not in (None, "", [], {})}
