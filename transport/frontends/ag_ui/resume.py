"""`resume`: the answers to a run's open interrupts, all checked before the first one acts.

An invalid answer (unknown, expired, decided otherwise, a value that does not fit, a missing answer) is refused before
any effect. The decisions derive from the rows alone: an interrupt's id is the id of its ticket, which contains the id
of the run, and a decision's id is derived from the interrupt and the answer. The same answers may therefore be repeated
after a crash of either side, and act at most once.

A ticket that is already closed (decided elsewhere, expired) can still be answered: with the same answer as before, or
with `cancelled`, which then only confirms that the client knows. Otherwise the ticket would block the client's thread
for ever.

A ticket of the run itself need not be answered with the others: the run may have been paused after the client received
its interrupts. Its answer is required when no other ticket holds the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import attrs

from greenroom.actors.contract.decisions import Ticket
from greenroom.actors.contract.ids import content_digest
from greenroom.actors.contract.rows import RunRecord

from ...gateway.access import Principal
from ...gateway.api import decision_by
from ...protocol.codes import Refused
from ...protocol.up import Decide, Send
from .input import ResumeEntry
from .interrupts import decision_draft

if TYPE_CHECKING:
    from ...gateway.gateway import Gateway

OPEN: Final = "interrupts_open"
"""Code of RUN_ERROR if the request lacks answers that the thread waits for."""


class ResumeRefused(Exception):
    """The request is answered with RUN_ERROR, the protocol's only form for this refusal.

    Attributes:
        code: One of the gateway's error codes, or `OPEN`.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


@attrs.frozen(kw_only=True)
class InterruptAnswer:
    """An answer and its ticket.

    Attributes:
        command: The decision that the answer asks for.
        closed: True if the ticket is decided or expired; then only the same decision may be repeated.
    """

    ticket: Ticket
    command: Decide
    closed: bool


async def find(gateway: Gateway, who: Principal, thread_id: str, entries: Sequence[ResumeEntry]) -> RunRecord:
    """Return the run whose interrupts these answers name.

    Raises:
        ResumeRefused: The answers name no run of this thread that the principal may see, or several runs.
        Refused: not_allowed.
    """
    ids = [entry.interruptId for entry in entries]
    if len(set(ids)) != len(ids):
        raise ResumeRefused("bad_message", "resume answers an interrupt twice")
    runs = {name.rpartition(".t")[0] for name in ids}  # inverse of `contract.ids.ticket_id`
    if len(runs) != 1:
        raise ResumeRefused("unknown_target", f"resume names interrupts of {len(runs)} runs: {', '.join(ids)[:200]}")
    unknown = ResumeRefused("unknown_target", f"this thread has no interrupt {ids[0]!r:.200}")
    try:
        info = await gateway.api.info(who, runs.pop())
    except Refused as refused:
        if refused.error.code != "unknown_run":
            raise
        raise unknown from refused
    record = await load(gateway, info.run_id)
    if record is None or info.thread_id != thread_id:
        raise unknown
    return record


async def load(gateway: Gateway, run_id: str) -> RunRecord | None:
    """Return a run with all its calls and tickets."""
    return await gateway.runtime.reader.record(run_id, calls="all")


def open_tickets(record: RunRecord) -> list[Ticket]:
    """Return the tickets of a run that have no decision yet."""
    decided = _decided(record)
    return [
        ticket
        for ticket in record.tickets
        if ticket.status == "open" and not decided & {ticket.ticket_id, ticket.call_id}
    ]


def _decided(record: RunRecord) -> set[str | None]:
    """Return the targets of accepted decisions that have not acted yet."""
    return {item.command.decision.target for item in record.inbox if item.command.decision is not None}


async def decide(
    gateway: Gateway, who: Principal, record: RunRecord, entries: Sequence[ResumeEntry], sends: Sequence[Send]
) -> None:
    """Check all answers, then post them together with the new messages.

    Raises:
        ResumeRefused: An answer does not fit. Nothing had an effect, unless the text says otherwise.
    """
    answers = _read(gateway, record, entries)
    for answer in answers:
        if answer.closed:
            await _again(gateway, who, answer)
    fresh = [answer for answer in answers if not answer.closed]
    ids = {entry.interruptId for entry in entries}
    owed = [ticket for ticket in open_tickets(record) if ticket.call_id is not None]
    open_ids = [ticket.ticket_id for ticket in owed if ticket.ticket_id not in ids]
    if fresh and open_ids:
        raise ResumeRefused(
            OPEN, f"resume must answer every open interrupt of the thread; these are left: {', '.join(open_ids)}"
        )
    # a new input would close the open tickets; this asks the other processes, too, before the judge needs their tools
    supersedes = await gateway.runtime.commands.supersedes(record.info.agent)
    _judge(gateway, who, record, fresh)
    decisions = [answer.command for answer in fresh]
    await _post(gateway, who, [*decisions, *sends] if supersedes else [*sends, *decisions])


def _read(gateway: Gateway, record: RunRecord, entries: Iterable[ResumeEntry]) -> list[InterruptAnswer]:
    """Return the answers, without those that only confirm a closed ticket."""
    tickets = {ticket.ticket_id: ticket for ticket in record.tickets}
    decided, now = _decided(record), gateway.runtime.clock.now()
    answers = []
    for entry in entries:
        ticket = tickets.get(entry.interruptId)
        if ticket is None:
            raise ResumeRefused("unknown_target", f"this thread has no interrupt {entry.interruptId!r:.200}")
        is_done = ticket.status != "open" or bool(decided & {ticket.ticket_id, ticket.call_id})
        late = ticket.expires_at is not None and now >= ticket.expires_at
        if entry.status == "cancelled" and (is_done or late):
            continue
        answers.append(InterruptAnswer(ticket=ticket, command=_command(record, ticket, entry), closed=is_done))
    return answers


def _command(record: RunRecord, ticket: Ticket, entry: ResumeEntry) -> Decide:
    try:
        draft = decision_draft(ticket.resume_mode, entry.status, entry.payload)
    except ValueError as error:
        raise ResumeRefused("bad_message", f"{ticket.ticket_id}: {error}") from error
    return Decide(
        id=content_digest(["ag-ui", ticket.ticket_id, entry.status, entry.payload]),
        run=record.info.run_id,
        target=ticket.ticket_id,
        action=draft.action,
        result=draft.result,
        edited_arguments=draft.edited_arguments,
        reason=draft.reason,
        fingerprint=draft.fingerprint or ticket.fingerprint,
    )


async def _again(gateway: Gateway, who: Principal, answer: InterruptAnswer) -> None:
    """Repeat a decision about a closed ticket, or raise the refusal that says how the ticket was decided."""
    if answer.ticket.status == "expired":
        raise ResumeRefused("expired", f"{answer.ticket.ticket_id} has expired; cancel it to continue")
    try:
        await gateway.api.command(who, answer.command)
    except Refused as refused:
        raise ResumeRefused(refused.error.code, f"{answer.ticket.ticket_id}: {refused.message}") from refused


def _judge(gateway: Gateway, who: Principal, record: RunRecord, answers: Iterable[InterruptAnswer]) -> None:
    """Make the store's checks for each answer before the first one acts."""
    for answer in answers:
        command, ticket = answer.command, answer.ticket
        verdict = gateway.runtime.commands.check(record, decision_by(who, command))
        if not verdict.ok:
            raise ResumeRefused(verdict.code or "internal", f"{ticket.ticket_id}: {verdict.detail}")


async def _post(gateway: Gateway, who: Principal, commands: Sequence[Decide | Send]) -> None:
    for number, command in enumerate(commands):
        try:
            await gateway.api.command(who, command)
        except Refused as refused:
            before = f" ({number} of {len(commands)} had been accepted: send the same request again)" if number else ""
            raise ResumeRefused(refused.error.code, f"{refused.message}{before}") from refused
