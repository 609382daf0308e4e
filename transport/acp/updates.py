"""What a run comes to in an ACP session: updates, tickets, rests and the end. Pure."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import attrs

from greenroom.actors.contract.decisions import Ticket
from greenroom.actors.contract.plain import JSONObject
from greenroom.actors.permission.subject import subject_of

from ..terminal import text_format

StopReason = Literal["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"]
TITLE: Final = 120
"""Most columns of the title of a call."""


@attrs.frozen
class Update:
    """An update of the session."""

    fields: JSONObject


@attrs.frozen
class TicketOpened:
    """A ticket is open."""

    ticket: Ticket


@attrs.frozen
class TicketClosed:
    """A ticket is closed: decided here or elsewhere, expired or withdrawn."""

    ticket_id: str


@attrs.frozen
class Rested:
    """The run waits: for the decisions that are open, or for its background tasks."""


@attrs.frozen(kw_only=True)
class Ended:
    """The run has ended: as a prompt with a reason, or with an error.

    Attributes:
        stop: Why the prompt stops; None for a failed run.
        meta: The run and an output that is not a text.
        failure: The code of a failure, its message and its recovery.
    """

    stop: StopReason | None
    meta: JSONObject
    failure: JSONObject | None = None


Out: TypeAlias = Update | TicketOpened | TicketClosed | Rested | Ended


def title_of(tool: str, effect: str, arguments: JSONObject) -> str:
    """Return the title of a call: its tool, and its command, path or address, otherwise its arguments."""
    headline = subject_of(tool, effect, arguments).headline or text_format.arguments(arguments, TITLE)
    return text_format.one_line(f"{tool}: {headline}" if headline else tool, TITLE)


def title_of_run(ticket: Ticket) -> str:
    """Return the title of a ticket that holds the run itself."""
    return text_format.one_line(ticket.message, TITLE) or "The run is held. May it continue?"


def chunk(kind: str, message_id: str, text: str) -> Update:
    """Return a piece of a message as an update."""
    return Update({"sessionUpdate": kind, "messageId": message_id, "content": {"type": "text", "text": text}})


def content_of(text: str) -> list[JSONObject]:
    """Return a text as the content of a call."""
    return [{"type": "content", "content": {"type": "text", "text": text}}] if text else []
