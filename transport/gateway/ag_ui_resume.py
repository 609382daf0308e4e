"""`resume`: the answers to a run's open interrupts, checked all together before the first of them acts.

Whatever is wrong with one of them (unknown, expired, decided otherwise, a value that does not fit, one that is missing)
is said before anything has happened. What they come to is derived from the rows alone: an interrupt's id is its
ticket's, which names its run, and a decision's id is made of the interrupt and the answer. So the same answers may come
again, after a crash of either side, and act once.

A ticket that is closed already (decided elsewhere, expired) can still be answered: with the same answer as before, or
with `cancelled`, which then only says that the client knows. Otherwise it would block the client's thread for ever.

A ticket of the run itself need not be answered with the others: somebody may have paused the run after the client was
told what it waits for. It is asked for when nothing else holds the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import attrs

from greenroom.actors.contract.decisions import Decision, Ticket
from greenroom.actors.contract.ids import content_digest
from greenroom.actors.contract.rows import RunRecord

from ..encoders.ag_ui_interrupts import decision_draft
from ..protocol.codes import Refused
from ..protocol.up import Decide, Send
from .access import Principal
from .ag_ui_input import ResumeEntry

if TYPE_CHECKING:
    from .gateway import Gateway

OPEN: Final = "interrupts_open"
"""Code of RUN_ERROR if the thread waits for answers that the request does not hold."""


class ResumeRefused(Exception):
    """The request is answered with RUN_ERROR: the protocol has no other form for it.

    Attributes:
        code: one of the gateway's error codes, or `OPEN`.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


@attrs.frozen(kw_only=True)
class InterruptAnswer:
    """One answer and the ticket that it is for.

    Attributes:
        command: the decision that it asks for.
        closed: the ticket is decided or late: only the same decision again may be asked for.
    """

    ticket: Ticket
    command: Decide
    closed: bool


async def find(gateway: Gateway, who: Principal, thread_id: str, entries: Sequence[ResumeEntry]) -> RunRecord:
    """The run whose interrupts these answers name.

    Raises:
        Declined: they name no run of this thread that the principal may see, or several.
        Refused: not_allowed.
    """
    ids = [entry.interruptId for entry in entries]
    if len(set(ids)) != len(ids):
        raise ResumeRefused("bad_message", "resume answers an interrupt twice")
    runs = {name.rpartition(".t")[0] for name in ids}  # as `contract.ids.ticket_id` makes them
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
    """A run with all its calls and tickets."""
    return await gateway.runtime.reader.record(run_id, calls="all")


def open_tickets(record: RunRecord) -> list[Ticket]:
    """The tickets of a run that nobody has decided yet."""
    decided = _decided(record)
    return [one for one in record.tickets if one.status == "open" and not decided & {one.ticket_id, one.call_id}]


def _decided(record: RunRecord) -> set[str | None]:
    """What accepted decisions that have not acted yet are about."""
    return {item.command.decision.target for item in record.inbox if item.command.decision is not None}


async def decide(
    gateway: Gateway, who: Principal, record: RunRecord, entries: Sequence[ResumeEntry], sends: Sequence[Send]
) -> None:
    """Check all answers, then let them act, with the new messages that come along.

    Raises:
        Declined: something does not fit. Nothing has happened, unless the text says that something has.
    """
    answers = _read(gateway, record, entries)
    for answer in answers:
        if answer.closed:
            await _again(gateway, who, answer)
    fresh = [answer for answer in answers if not answer.closed]
    named = {entry.interruptId for entry in entries}
    owed = [ticket for ticket in open_tickets(record) if ticket.call_id is not None]
    left = [ticket.ticket_id for ticket in owed if ticket.ticket_id not in named]
    if fresh and left:
        raise ResumeRefused(
            OPEN, f"resume must answer every open interrupt of the thread; these are left: {', '.join(left)}"
        )
    _judge(gateway, who, record, fresh)
    decisions = [answer.command for answer in fresh]
    agent = gateway.runtime.agents.get(record.info.agent)
    supersedes = agent is not None and agent.spec.on_new_input == "supersede"  # it would close the open tickets
    await _post(gateway, who, [*decisions, *sends] if supersedes else [*sends, *decisions])


def _read(gateway: Gateway, record: RunRecord, entries: Iterable[ResumeEntry]) -> list[InterruptAnswer]:
    """The answers; those that only say that a closed ticket is known are left out."""
    tickets = {ticket.ticket_id: ticket for ticket in record.tickets}
    decided, now = _decided(record), gateway.runtime.clock.now()
    answers = []
    for entry in entries:
        ticket = tickets.get(entry.interruptId)
        if ticket is None:
            raise ResumeRefused("unknown_target", f"this thread has no interrupt {entry.interruptId!r:.200}")
        done = ticket.status != "open" or bool(decided & {ticket.ticket_id, ticket.call_id})
        late = ticket.expires_at is not None and now >= ticket.expires_at
        if entry.status == "cancelled" and (done or late):
            continue
        answers.append(InterruptAnswer(ticket=ticket, command=_command(record, ticket, entry), closed=done))
    return answers


def _command(record: RunRecord, ticket: Ticket, entry: ResumeEntry) -> Decide:
    try:
        wish = decision_draft(ticket.resume_mode, entry.status, entry.payload)
    except ValueError as error:
        raise ResumeRefused("bad_message", f"{ticket.ticket_id}: {error}") from error
    return Decide(
        id=f"ag-ui.{content_digest([ticket.ticket_id, entry.status, entry.payload])}",
        run=record.info.run_id,
        target=ticket.ticket_id,
        action=wish.action,
        result=wish.result,
        edited_arguments=wish.edited_arguments,
        reason=wish.reason,
        fingerprint=wish.fingerprint or ticket.fingerprint,
    )


async def _again(gateway: Gateway, who: Principal, answer: InterruptAnswer) -> None:
    """The ticket is closed, so this can not act: it is the decision that was made, or it is told how that was."""
    if answer.ticket.status == "expired":
        raise ResumeRefused("expired", f"{answer.ticket.ticket_id} has expired; cancel it to go on")
    try:
        await gateway.api.command(who, answer.command)
    except Refused as refused:
        raise ResumeRefused(refused.error.code, f"{answer.ticket.ticket_id}: {refused.message}") from refused


def _judge(gateway: Gateway, who: Principal, record: RunRecord, answers: Iterable[InterruptAnswer]) -> None:
    """Ask of each what the store's judge will ask, before the first one acts."""
    for answer in answers:
        asked, ticket = answer.command, answer.ticket
        decision = Decision(
            target=asked.target,
            action=asked.action,
            decision_id=asked.id,
            result=asked.result,
            edited_arguments=asked.edited_arguments,
            reason=asked.reason,
            fingerprint=asked.fingerprint,
            decided_by=who.name,
        )
        verdict = gateway.runtime.commands.check(record, decision)
        if not verdict.ok:
            raise ResumeRefused(verdict.code or "internal", f"{ticket.ticket_id}: {verdict.detail}")


async def _post(gateway: Gateway, who: Principal, commands: Sequence[Decide | Send]) -> None:
    for number, command in enumerate(commands):
        try:
            await gateway.api.command(who, command)
        except Refused as refused:
            before = f" ({number} of {len(commands)} had been accepted: send the same request again)" if number else ""
            raise ResumeRefused(refused.error.code, f"{refused.message}{before}") from refused
