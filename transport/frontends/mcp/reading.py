"""Reads of a run for MCP: the open tickets, and the result of an ended run with its images and files."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import attrs

import greenroom as gr
from greenroom.actors.contract.decisions import Ticket
from greenroom.actors.contract.envelope import decode_event
from greenroom.actors.contract.lifecycle import RunStatus
from greenroom.actors.contract.outcomes import Completed, Waiting
from greenroom.actors.contract.plain import JSONObject
from greenroom.actors.contract.rows import RunInfo, RunRecord
from greenroom.actors.contract.secrets.redaction import Redactor
from greenroom.actors.contract.stepwise import Steps
from greenroom.actors.run.view import outcome_steps, shown_artifact, ticket_steps
from greenroom.actors.services.stepping import in_steps

from ...gateway.access import Principal
from .messages import McpCapabilities
from .results import EMBEDDED, ResultPart, result_of

if TYPE_CHECKING:
    from ...gateway.gateway import Gateway

MOST: Final = 100
"""Most images and files that a result names."""


async def open_tickets(gateway: Gateway, record: RunRecord) -> tuple[Ticket, ...]:
    """Return the redacted open tickets of a run without those whose accepted decision has not acted yet."""
    if record.row.status is RunStatus.DONE:
        return ()
    decisions = (item.command.decision for item in record.inbox)
    decided = {decision.target for decision in decisions if decision is not None}
    tickets = await in_steps(ticket_steps(record, gateway.runtime.reader.redactor))
    return tuple(ticket for ticket in tickets if not decided & {ticket.ticket_id, ticket.call_id})


def askable(who: Principal, capabilities: McpCapabilities, ticket: Ticket) -> bool:
    """Return True if the client can show a form, and its principal may decide the ticket."""
    reviews = not ticket.reviewers or who.name in ticket.reviewers
    return capabilities.forms and reviews and who.may("decide")


def may_read(who: Principal, info: RunInfo) -> bool:
    """Return True if a principal may read the result of a run: its own, or one that it may follow and see."""
    return info.by == who.name or (who.may("follow") and who.sees(info))


async def newest_at(gateway: Gateway, record: RunRecord) -> datetime:
    """Return the time of the newest event of a run."""
    return await time_of(gateway, record.info.run_id, record.row.last_sequence) or record.info.created_at


async def time_of(gateway: Gateway, run_id: str, sequence: int) -> datetime | None:
    """Return the time of an event; None if the log does not have the event."""
    frames = await gateway.runtime.reader.events(run_id, after=max(0, sequence - 1), limit=1)
    return decode_event(frames[0]).timestamp if frames else None


async def ended_result(gateway: Gateway, run_id: str, *, structured: bool) -> JSONObject | None:
    """Return the result of a run that is done; None if the run is not done, or was pruned meanwhile.

    Args:
        gateway: The gateway.
        run_id: The run.
        structured: The tool has an output schema.
    """
    record = await gateway.runtime.reader.record(run_id, calls="all")
    if record is None or record.row.status is not RunStatus.DONE:
        return None
    redactor = gateway.runtime.reader.redactor
    outcome = await in_steps(outcome_steps(record, None, redactor))
    if isinstance(outcome, Waiting):
        return None
    redactor = redactor.within(record.info.workspace)
    output: Any = await in_steps(redactor.steps(outcome.output)) if isinstance(outcome, Completed) else None
    attachments = await _with_bytes(gateway, run_id, await in_steps(_attachments(record, redactor)))
    return result_of(run_id, outcome, output, attachments, structured=structured)


def _attachments(record: RunRecord, redactor: Redactor) -> Steps[list[ResultPart]]:
    """Return the images and files of a run's results, then its artifacts, each once and without bytes, in steps."""
    by_uri: dict[str, ResultPart] = {}
    base = f"greenroom://runs/{record.info.run_id}"
    for call in record.calls:
        for part in call.parts if call.parent is None else ():
            yield
            uri = redactor.text(part.url) or f"{base}/parts/{part.sha256}"
            by_uri[uri] = ResultPart(
                line=redactor.text(part.line()),
                media_type=part.media_type,
                uri=uri,
                size=part.size,
                sha256=part.sha256,
            )
    for artifact in (artifact for call in record.calls for artifact in call.artifacts):
        shown = yield from shown_artifact(artifact, redactor)
        uri = shown.url or f"{base}/artifacts/{shown.artifact_id}"
        by_uri[uri] = ResultPart(
            line=shown.line(),
            media_type=shown.media_type,
            uri=uri,
            size=shown.size,
            sha256=shown.sha256 if artifact.stored else "",
        )
    return list(by_uri.values())[:MOST]


async def _with_bytes(gateway: Gateway, run_id: str, attachments: Sequence[ResultPart]) -> list[ResultPart]:
    """Return the attachments, those with bytes that fit into the result."""
    loaded, room = list[ResultPart](), EMBEDDED
    for one in attachments:
        data = None
        if one.sha256 and one.size <= room:
            try:
                data = await gateway.runtime.reader.part(run_id, one.sha256)
            except gr.UsageError:
                data = None  # pruned meanwhile
            else:
                room -= len(data)
        loaded.append(attrs.evolve(one, data=data))
    return loaded
