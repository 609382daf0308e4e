"""Answers of an AI SDK client as decisions: matched against stored tickets only, and equal for every repetition.

| answer | to a ticket that wants an approval | to a ticket that wants a value |
|---|---|---|
| approved | resume | refused: there is no value |
| denied | cancel | cancel |
| output | outcome_unknown: resume with the output; else refused | resume with the output |
| failed | outcome_unknown: resume with `{"error": ...}`; else cancel | as the result, resume with that; else cancel |

The id of a decision is derived from ticket and answer, so that a request may be repeated after any failure. The
fingerprint is the stored ticket's; the client's tool and input are not used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs

from greenroom.actors.contract.decisions import Ticket, asks_outcome
from greenroom.actors.contract.ids import content_digest
from greenroom.actors.contract.rows import RunRecord

from ...gateway.access import Principal
from ...protocol.codes import Refused
from ...protocol.up import Decide
from .encoder import answer_of
from .request import TicketAnswer

if TYPE_CHECKING:
    from ...gateway.gateway import Gateway

_TOO_LATE: Final = ("already_decided", "decision_id_conflict", "run_done", "unknown_target")
"""Refusals of an answer that came too late; the events show the actual decision."""
_MISFITS: Final = ("invalid_result", "invalid_arguments")


@attrs.frozen(kw_only=True)
class AnswerResults:
    """The results of a request's answers.

    Attributes:
        accepted: Number of durable answers, now or before.
        refused: Ticket id -> refusal of an answer to an open ticket; the ticket remains open.
    """

    accepted: int = 0
    refused: dict[str, Refused] = attrs.field(factory=dict)


async def decide(gateway: Gateway, who: Principal, record: RunRecord, answers: Iterable[TicketAnswer]) -> AnswerResults:
    """Post the answers to open tickets of the run; other answers are ignored.

    Raises:
        Refused: The same request may succeed later (store_unavailable, busy, closing). Accepted answers remain
            accepted.
    """
    tickets = {ticket.ticket_id: ticket for ticket in record.tickets if ticket.status == "open"}
    accepted, refusals = 0, dict[str, Refused]()
    for answer in answers:
        ticket = tickets.get(answer.ticket_id)
        if ticket is None:
            continue
        try:
            accepted += await _first_that_fits(gateway, who, ticket, answer)
        except Refused as error:
            if error.error.retry:
                raise
            if error.error.code not in _TOO_LATE:
                refusals[ticket.ticket_id] = error
    return AnswerResults(accepted=accepted, refused=refusals)


async def _first_that_fits(gateway: Gateway, who: Principal, ticket: Ticket, answer: TicketAnswer) -> int:
    """Post the answer's decision, or the next one if its value does not fit the ticket."""
    wishes = decisions_of(ticket, answer)
    for decision in wishes[:-1]:
        try:
            await gateway.api.command(who, decision)
        except Refused as error:
            if error.error.code not in _MISFITS:
                raise
        else:
            return 1
    await gateway.api.command(who, wishes[-1])
    return 1


def decisions_of(ticket: Ticket, answer: TicketAnswer) -> Sequence[Decide]:
    """Return the decisions that an answer maps to, the best first; the last one fits if any does.

    Raises:
        Refused: unprocessable: the ticket wants another kind of answer.
    """
    unknown = asks_outcome(ticket.reason, ticket.action)
    value = unknown or answer_of(ticket.reason, ticket.resume_mode, ticket.response_schema) == "output"
    match answer.kind:
        case "approved" if value and not unknown:
            raise _misfit(ticket, "wants a value and not an approval: answer with addToolOutput")
        case "output" if not value:
            raise _misfit(ticket, "wants an approval and not an output: answer with addToolApprovalResponse")
        case "output" if unknown and answer.value is None:
            raise _misfit(ticket, "asks what the call has come to: the output must not be null; or approve, or deny")
        case "approved":
            return (_decision(ticket, answer, "resume"),)
        case "output":
            return (_decision(ticket, answer, "resume", answer.value),)
        case "failed" if unknown or ticket.resume_mode == "use_decision_as_tool_result":
            error = {"error": answer.reason or "the client's tool has failed"}
            return (_decision(ticket, answer, "resume", error), _decision(ticket, answer, "cancel"))
    return (_decision(ticket, answer, "cancel"),)


def _decision(ticket: Ticket, answer: TicketAnswer, action: Any, result: Any = None) -> Decide:
    return Decide(
        id=content_digest(["ai-sdk", ticket.ticket_id, action, result, answer.reason]),
        run=ticket.run_id,
        target=ticket.ticket_id,
        action=action,
        result=result,
        reason=answer.reason,
        fingerprint=ticket.fingerprint,
    )


def _misfit(ticket: Ticket, what: str) -> Refused:
    return Refused("unprocessable", f"{ticket.ticket_id} {what}")
