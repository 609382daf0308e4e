"""Calls whose work is a child run: what the parent's machine makes of the child as it is seen.

Theory of operation. A call of an agent's tool starts a run of that agent, whose id is derived from parent and call, so
that every attempt in every process means the same run. The call's actor reports the child run as a state (`ChildSeen`):
whether it works, waits or has ended, with its open tickets. The machine compares that state with its own rows, so a
report may be lost, late or repeated. The call is in its body while the child run works, and suspended (`CHILD`) while
the child run waits for people. The usage of the child run is added when the call ends, which happens once.

    StartCall(child_run)     the child run is started, or found
    ChildSeen(waiting)       body -> child: suspended, with a mirror of each open ticket
    decision about a mirror  child -> body, and ForwardDecision
    ChildSeen(outcome)       the call ends as the child run has ended
"""

from __future__ import annotations

import attrs

from ..contract import events as ev
from ..contract.calls import CallPosition, CallStatus
from ..contract.decisions import Decision, Ticket
from ..contract.lifecycle import RunStatus
from ..contract.phases import TOOLS
from ..contract.rows import CallRow, Mirror
from .effects import CancelChild, ForwardDecision, StartCall
from .inputs import ChildOutcome, ChildSeen
from .mirrors import (
    announce_mirrors,
    close_as,
    drop,
    find_mirror,
    mark_decided,
    new_mirror,
    of_call,
    refuse_forwarded,
    withdraw_mirrors,
)
from .state import ENGINE, StepBuilder
from .termination import CANCELLED_TEXT, fail_by_call
from .tickets import close_call

UNWATCHED = "its parent run could not watch it"
SUPERSEDED = "superseded by new input to its parent run"


def watch_child(builder: StepBuilder, call: CallRow) -> None:
    """Watch the child run of a call again after a restart, and forward what the child run may not have."""
    mirrors = of_call(builder, call.call_id)
    builder.do(
        StartCall(
            call_id=call.call_id,
            attempt=call.attempts,
            tool=call.tool,
            arguments=call.arguments,
            child_run=call.child_run,
            known_tickets=tuple(mirror.ticket.child_ticket_id or "" for mirror in mirrors),
        )
    )
    for mirror in mirrors:
        if mirror.decision is not None:
            _forward(builder, call, mirror.decision)


def _forward(builder: StepBuilder, call: CallRow, decision: Decision) -> None:
    builder.do(ForwardDecision(call_id=call.call_id, child_run=call.child_run or "", decision=decision))


def decide_mirror(builder: StepBuilder, decision: Decision) -> bool:
    """Apply a decision about an open mirror: the same decision, under the same id, goes to the child run.

    Returns False if the decision is about no open mirror.
    """
    mirror = find_mirror(builder, decision.target)
    if mirror is None:
        return False
    theirs = attrs.evolve(decision, target=mirror.ticket.child_ticket_id or "")
    mark_decided(builder, mirror, theirs)
    call = builder.calls[mirror.ticket.call_id or ""]
    _forward(builder, call, theirs)
    _wake(builder, call, mirror.ticket)
    return True


def supersede_child(builder: StepBuilder, call: CallRow, *, by: str | None) -> None:
    """Withdraw the questions of a child run and cancel the run, because new input waits for the next step."""
    ticket = of_call(builder, call.call_id)[-1].ticket
    withdraw_mirrors(builder, call.call_id, by=by, reason="superseded by new input")
    call = _wake(builder, builder.calls[call.call_id], ticket)
    builder.do(
        CancelChild(
            call_id=call.call_id, child_run=call.child_run or "", tool=call.tool, reason=SUPERSEDED, by=by, durable=True
        )
    )


def unwatched(builder: StepBuilder, call: CallRow) -> CallRow | None:
    """Return the call whose child run cannot be watched, in its body again, so that it can end; None if it has ended.

    The child run, which may exist, is cancelled.
    """
    if call.at not in (CallPosition.BODY, CallPosition.CHILD) or builder.row.position is not TOOLS:
        return None
    mirrors = of_call(builder, call.call_id)
    if mirrors:
        withdraw_mirrors(builder, call.call_id, by=ENGINE, reason="the child run could not be watched")
        call = _wake(builder, builder.calls[call.call_id], mirrors[-1].ticket)
    builder.do(
        CancelChild(
            call_id=call.call_id, child_run=call.child_run or "", tool=call.tool, reason=UNWATCHED, durable=True
        )
    )
    return call


def child_seen(builder: StepBuilder, report: ChildSeen) -> None:
    """Compare a child run as it was seen with the rows of its call, and move the call accordingly."""
    call = builder.calls.get(report.call_id)
    if call is None or call.child_run is None or call.at not in (CallPosition.BODY, CallPosition.CHILD):
        return
    if not call.child_started:
        call = builder.put(call, child_started=True)
        event = ev.ChildStarted(call_id=call.call_id, child_run_id=call.child_run or "", agent=report.agent)
        builder.emit("run.child.started", event)
        drop_early(builder, call)
    before = of_call(builder, call.call_id)
    _close_mirrors(builder, before, report)
    call = builder.calls[call.call_id]
    if report.outcome is not None:
        _finish(builder, call, report, report.outcome, before)
    elif builder.row.position is TOOLS:
        _follow(builder, call, report, before)


def drop_early(builder: StepBuilder, call: CallRow) -> None:
    """Refuse an early decision about a call whose child run has begun: it would block decisions about mirrors."""
    decision = builder.row.early.get(call.call_id)
    if decision is None or not call.child_started:
        return
    builder.row.early = {name: early for name, early in builder.row.early.items() if name != call.call_id}
    builder.emit(
        "run.decision.refused",
        ev.DecisionRefused(
            command_id=decision.decision_id,
            target=decision.target,
            code="unused",
            detail="the call works as a child run; decide the tickets of that run, or their mirrors",
        ),
    )


def _close_mirrors(builder: StepBuilder, mirrors: tuple[Mirror, ...], report: ChildSeen) -> None:
    """Close the mirrors whose tickets the child run has closed, and drop those whose decision it has taken."""
    theirs = {ticket.ticket_id: ticket for ticket in report.tickets}
    for mirror in mirrors:
        ticket, decision = theirs.get(mirror.ticket.child_ticket_id or ""), mirror.decision
        still_open = ticket is not None and ticket.status == "open" and report.outcome is None
        if decision is None:
            if not still_open:
                close_as(builder, mirror, ticket)
        elif report.refused is not None and report.refused.decision_id == decision.decision_id:
            refuse_forwarded(builder, mirror, report.refused.code, report.refused.detail)
        elif not still_open:
            how = "denied" if decision.action == "cancel" else "approved"
            if ticket is None or (ticket.status, ticket.decided_by) == (how, decision.decided_by):
                drop(builder, mirror)
            else:
                by = "" if ticket.decided_by is None else f" by {ticket.decided_by}"
                text = f"{ticket.ticket_id} of the child run was {ticket.status}{by} before the decision arrived"
                refuse_forwarded(builder, mirror, "already_decided", text)


def _follow(builder: StepBuilder, call: CallRow, report: ChildSeen, before: tuple[Mirror, ...]) -> None:
    """Mirror the open tickets of a child run that has not ended; suspend its call, or let the call continue."""
    mirrors = of_call(builder, call.call_id)
    mirrored_ids = {mirror.ticket.child_ticket_id for mirror in mirrors}
    replaced_ids = {mirror.ticket.child_ticket_id: mirror.ticket.ticket_id for mirror in before}
    fresh = tuple(
        new_mirror(builder, call, ticket, replaced_ids.get(ticket.ticket_id) or replaced_ids.get(ticket.replaces))
        for ticket in report.tickets
        if ticket.status == "open" and ticket.ticket_id not in mirrored_ids
    )
    call = builder.calls[call.call_id]
    mirrors = call.mirrors
    open_tickets = tuple(mirror.ticket for mirror in mirrors if mirror.decision is None)
    rests = report.status is RunStatus.WAITING and len(open_tickets) == len(mirrors) > 0
    if rests and call.at is CallPosition.BODY:
        call = builder.put(call, at=CallPosition.CHILD)
        ticket_id = open_tickets[-1].ticket_id
        event = ev.ToolSuspended(call_id=call.call_id, status=call.status, ticket_id=ticket_id)
        builder.emit("run.tool.suspended", event)
    elif not rests and call.at is CallPosition.CHILD:
        _wake(builder, call, (open_tickets or tuple(mirror.ticket for mirror in before))[-1])
    announce_mirrors(builder, fresh)


def _wake(builder: StepBuilder, call: CallRow, ticket: Ticket) -> CallRow:
    """Let a suspended call continue: its child run works again. No gate and no hook is asked: the work has begun."""
    if call.at is not CallPosition.CHILD:
        return call
    call = builder.put(call, at=CallPosition.ALLOWED, resumed_at=call.attempts)
    builder.emit(
        "run.tool.resumed",
        ev.ToolResumed(call_id=call.call_id, status=call.status, ticket_id=ticket.ticket_id, mode=ticket.resume_mode),
    )
    call = builder.put(call, at=CallPosition.BODY, attempts=call.attempts + 1, started_at=builder.now)
    builder.emit(
        "run.tool.started", ev.ToolStarted(call_id=call.call_id, status=CallStatus.RUNNING, attempt=call.attempts)
    )
    return call


def _finish(
    builder: StepBuilder, call: CallRow, report: ChildSeen, outcome: ChildOutcome, before: tuple[Mirror, ...]
) -> None:
    """End a call as its child run has ended. Its usage is added here: the call ends once."""
    stopping = builder.row.position is not TOOLS
    if call.at is CallPosition.CHILD and not stopping and before:
        call = _wake(builder, call, before[-1].ticket)
    builder.row.usage += report.usage
    event = ev.ChildFinished(
        call_id=call.call_id,
        child_run_id=call.child_run or "",
        stage=outcome.stage,
        code=outcome.code,
        usage=report.usage,
    )
    builder.emit("run.child.finished", event)
    if call.at is CallPosition.CHILD or (stopping and outcome.status is CallStatus.CANCELLED):
        close_call(builder, call, CallStatus.CANCELLED, result=None, shown=CANCELLED_TEXT, code="cancelled")
        return
    if outcome.parts:
        call = builder.put(call, parts=builder.bring(outcome.parts))
    close_call(
        builder,
        call,
        outcome.status,
        result=outcome.result,
        shown=outcome.shown,
        code=outcome.call_code,
        large=outcome.large,
    )
    if outcome.fatal:
        fail_by_call(builder, call, outcome.shown)
