"""What a message with a taskId does to its run: decisions, a result in words, or further input. All of it acts once.

The ids of commands follow from the message, so a message that is sent again is a duplicate, also after the run's end.
A text is the result of a ticket only if one single ticket is open, which asks a person for a value, and a text fits. An
approval is never a text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from greenroom.actors.backends.a2a_codec import A2AFault
from greenroom.actors.backends.a2a_values import A2AMessage
from greenroom.actors.contract.decisions import Ticket
from greenroom.actors.contract.json_schema.faults import schema_fault
from greenroom.actors.contract.rows import RunRecord

from ...gateway.access import Principal
from ...protocol.codes import Refused
from ...protocol.up import Decide
from .errors import fault_of
from .input import MessageContent, decisions_of, send_of

if TYPE_CHECKING:
    from ...gateway.gateway import Gateway

_ASKS_A_PERSON: Final = ("user_input", "external_event")
_CLOSED: Final = 100
"""Newest closed tickets among which the one is searched that a repeated text has answered."""


async def tell(
    gateway: Gateway, who: Principal, run_id: str, message: A2AMessage, said: MessageContent
) -> list[dict[str, Any]]:
    """Post the commands of a message; return the decisions that were refused, if others acted.

    Raises:
        Refused: the input is refused, or the same request may succeed later.
        A2AFault: every decision was refused; the fault has the code and the ticket of the first.
    """
    if not said.answers:
        await _say(gateway, who, run_id, message, said)
        return []
    has_words = bool(said.text.strip() or said.attachments)
    if has_words:
        await gateway.api.command(who, send_of(run_id, message, said))
    refused = list[tuple[str, Refused]]()
    for decision in decisions_of(run_id, message, said.answers):
        try:
            await gateway.api.command(who, decision)
        except Refused as refusal:
            if refusal.error.retry:
                raise
            refused.append((decision.target, refusal))
    if len(refused) == len(said.answers) and not has_words:
        raise _all_refused(refused)
    return [{"ticketId": name, "code": one.error.code, "message": one.message} for name, one in refused]


def _all_refused(refused: list[tuple[str, Refused]]) -> A2AFault:
    ticket_id, first = refused[0]
    fault = fault_of(first)
    text = "; ".join(f"ticket {name!r:.100}: {refusal.error.code}, {refusal.message}" for name, refusal in refused[:10])
    return A2AFault(fault.error, text, metadata={**fault.metadata, "ticketId": ticket_id})


async def _say(gateway: Gateway, who: Principal, run_id: str, message: A2AMessage, said: MessageContent) -> None:
    """Post a text as the result of the ticket that asks for one, else as input for the run."""
    order = send_of(run_id, message, said)
    record = None if said.attachments or not said.text else await gateway.runtime.reader.record(run_id, calls="all")
    if record is None:
        await gateway.api.command(who, order)
        return
    ticket = await _asking(gateway, who, record, said.text)
    if ticket is not None and await _is_new(gateway, who, _result(order.id, ticket, said.text)):
        return
    if await _is_new(gateway, who, order):
        return
    for closed in [one for one in reversed(record.tickets) if one.decided_by == who.name][:_CLOSED]:
        if await _is_new(gateway, who, _result(order.id, closed, said.text)):
            return
    text = f"the message id {message.message_id!r:.200} was used for another message; take a new one"
    raise Refused("decision_id_conflict", text)


async def _is_new(gateway: Gateway, who: Principal, command: Any) -> bool:
    """Post a command; return False if its id was used for another one."""
    try:
        await gateway.api.command(who, command)
    except Refused as refusal:
        if refusal.error.code != "decision_id_conflict":
            raise
        return False
    return True


def _result(command_id: str, ticket: Ticket, text: str) -> Decide:
    return Decide(
        id=command_id,
        run=ticket.run_id,
        target=ticket.ticket_id,
        action="resume",
        result=text,
        fingerprint=ticket.fingerprint,
    )


async def _asking(gateway: Gateway, who: Principal, record: RunRecord, text: str) -> Ticket | None:
    """Return the single open ticket of a run, if a person may answer it with this text."""
    open_tickets = [ticket for ticket in record.tickets if ticket.status == "open"]
    open_tickets += [ticket for ticket in record.open_mirrors if ticket not in open_tickets]
    if len(open_tickets) != 1:
        return None
    (ticket,) = open_tickets
    origin: Ticket | None = ticket
    while origin is not None and origin.child_run_id is not None:
        origin = await gateway.runtime.reader.ticket(origin.child_run_id, origin.child_ticket_id or "")
    if origin is None or origin.reason not in _ASKS_A_PERSON or (ticket.reviewers and who.name not in ticket.reviewers):
        return None
    schema, mode = ticket.response_schema, ticket.resume_mode
    if schema is None:
        return ticket if mode == "use_decision_as_tool_result" else None
    return ticket if mode != "pass_decision_to_tool" and schema_fault(schema, text) is None else None
