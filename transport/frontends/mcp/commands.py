"""What an MCP client asks a run to do: start, decide, cancel; each is judged as from any other door."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import greenroom as gr
from greenroom.actors.contract.ids import content_digest

from ...gateway.access import Principal
from ...protocol.codes import Refused
from ...protocol.up import Cancel, Decide, Start
from .forms import decision_of
from .messages import INVALID_PARAMS, REFUSED, McpFault, RequestId
from .tools import McpTool

if TYPE_CHECKING:
    from ...gateway.gateway import Gateway

logger = logging.getLogger("greenroom.gateway")

_OF_PARAMS: Final = frozenset(
    {"bad_message", "unprocessable", "run_exists", "run_pruned", "unknown_run", "unknown_agent", "unknown_target"}
)
"""Refusals that say that a parameter is wrong."""
_TOO_LATE: Final = frozenset({"already_decided", "decision_id_conflict", "run_done", "expired", "unknown_target"})
"""Refusals of an answer that came after another one: the run shows what was decided."""


def fault_of(refused: Refused) -> McpFault:
    """Return a refusal of the gateway as the protocol's error."""
    error = refused.error
    code = INVALID_PARAMS if error.code in _OF_PARAMS else REFUSED
    return McpFault(code, refused.message, data={"code": error.code, "retry": error.retry})


def run_of(who: Principal, session: str, request_id: RequestId) -> str:
    """Return the id of the run that a call of a session starts."""
    return f"run_{content_digest(['mcp', who.name, session, request_id])[:16]}"


async def start(gateway: Gateway, who: Principal, tool: McpTool, text: str, run_id: str) -> None:
    """Start the run of a call; the run is durable when this returns. The same call again is the same run.

    Raises:
        McpFault: The start is refused.
    """
    try:
        await gateway.api.start(who, Start(id=content_digest(["mcp", run_id]), agent=tool.key, text=text, run=run_id))
    except Refused as refused:
        raise fault_of(refused) from refused


async def cancel(gateway: Gateway, who: Principal, run_id: str, reason: str) -> None:
    """Cancel the run of a call; a run that is done, unknown or not the client's stays as it is. Never raises."""
    order = Cancel(id=content_digest(["mcp", "cancel", run_id]), run=run_id, reason=reason)
    try:
        await gateway.api.command(who, order)
    except (Refused, gr.GreenroomError) as error:
        logger.info("%s was not cancelled by its client: %s", run_id, error)


async def decide(
    gateway: Gateway, who: Principal, run_id: str, question: tuple[str, str], answer: object, *, lists: bool
) -> str | None:
    """Post the decision that an answer asks for; return the reason if the answer decides nothing, else None.

    Args:
        gateway: The gateway.
        who: The client.
        run_id: The run.
        question: Ticket and fingerprint, as the question had them.
        answer: The result of the elicitation.
        lists: The client's revision knows lists of choices.

    Raises:
        Refused: The same answer may be accepted later.
    """
    ticket_id, fingerprint = question
    ticket = await gateway.runtime.reader.ticket(run_id, ticket_id)
    if ticket is None:
        return "the ticket is gone"
    try:
        decision = decision_of(ticket, answer, lists=lists)
    except ValueError as error:
        return str(error)
    if decision is None:
        return "the question was dismissed"
    content = [ticket_id, decision.action, decision.result, decision.reason]
    order = Decide(
        id=content_digest(["mcp", *content]),
        run=run_id,
        target=ticket_id,
        action=decision.action,
        result=decision.result,
        reason=decision.reason,
        fingerprint=fingerprint,
    )
    try:
        await gateway.api.command(who, order)
    except Refused as refused:
        if refused.error.retry:
            raise
        return None if refused.error.code in _TOO_LATE else refused.message
    return None
