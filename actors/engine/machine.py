"""The run machine: `step(spec, state, input, now) -> Step(state', commit, effects)`.

Theory of operation. The machine owns every decision about a run and does nothing. Its owner (`run/`) feeds it one
input at a time, submits the commit, and performs the effects; the answers come back as inputs. The same state, input
and time give the same result, so a run can be replayed, and a run that has lost its owner goes on from its rows:
there is no other resume path.

Inputs never fail a run by being late: an answer to something that is no longer asked is ignored and writes nothing.
"""

from __future__ import annotations

from datetime import datetime
from typing import assert_never

from ..contract import events as ev
from ..contract.calls import CallStatus
from ..contract.decisions import Ticket
from ..contract.lifecycle import Termination, TerminationKind
from ..contract.phases import PHASE_OF, CallAt, Cursor, Phase
from ..contract.rows import CallRow
from ..contract.spec import AgentSpec
from .bodies import body_said, start_body
from .calls import drive
from .commands import cancel_unowned, command_arrived
from .ending import abandon, end, fail, overran, work_stopped
from .gates import gate_answered
from .inference import model_answered, model_failed, model_streamed
from .inputs import (
    Abandon,
    Activate,
    Admit,
    CallPrinted,
    CallProgressed,
    CallRaised,
    CallReturned,
    CallSuspended,
    CancelUnowned,
    CommandArrived,
    DeadlinePassed,
    Input,
    ModelAnswered,
    ModelFailed,
    ModelStreamed,
    Overran,
    PhaseDone,
    WorkStopped,
)
from .recovery import activate
from .state import Draft, RunState, Step
from .steps import admit, arrive, leave, tools_done


def step(spec: AgentSpec, state: RunState, message: Input, now: datetime) -> Step:
    """Take one input.

    Args:
        spec: of the run's agent.
        state: is not changed.
        message: what happened.
        now: when, UTC.

    Raises:
        IllegalTransition: a bug: the tables do not allow what the engine wants.
    """
    draft = Draft(spec, state, now)
    if state.row.cursor is not Cursor.ENDED:
        _take(draft, message)
    return draft.build()


def _take(d: Draft, message: Input) -> None:  # noqa: C901, PLR0912 - one row per input
    match message:
        case ModelStreamed():
            model_streamed(d, message)
        case CallProgressed() | CallPrinted():
            body_said(d, message)
        case ModelAnswered():
            if model_answered(d, message):
                arrive(d, Cursor.AFTER_INFERENCE)
        case CallSuspended() | CallReturned() | CallRaised():
            body_said(d, message)
            _go_on(d)
        case CommandArrived():
            command_arrived(d, message.item)
            _go_on(d)
        case PhaseDone():
            _phase_done(d, message)
        case ModelFailed():
            model_failed(d, message)
        case Activate():
            activate(d, message)
        case Admit():
            admit(d)
        case CancelUnowned():
            cancel_unowned(d, message.items)
        case DeadlinePassed():
            fail(d, "run_timeout", "the run's deadline passed")
        case Overran():
            overran(d, message.item)
        case WorkStopped():
            work_stopped(d, message.stubborn)
        case Abandon():
            abandon(d, message.detail)
        case _ as never:
            assert_never(never)


def _go_on(d: Draft) -> None:
    if d.cursor is Cursor.TOOLS and drive(d):
        tools_done(d)


# --- hooks -----------------------------------------------------------------------------------------------------------


def _phase_done(d: Draft, message: PhaseDone) -> None:
    call = None if message.call_id is None else d.calls.get(message.call_id)
    if not _asked(d, message, call):
        return
    if d.cursor is Cursor.RUN_END:
        fault = message.failure or message.tripped
        if fault is not None:
            d.emit("run.degraded", ev.RunDegraded(reason="plugin_error", detail=fault))
        leave(d)
        return
    d.phase_open = d.phase_open and call is not None
    if call is not None and (message.failure or message.tripped or message.end):
        call = d.put(call, at=CallAt.SETTLED if call.settled else CallAt.NEW)  # nothing of it is in flight
    if message.failure is not None:
        fail(d, "plugin_error", message.failure)
    elif message.tripped is not None:
        fail(d, "guardrail_tripped", message.tripped)
    elif message.end is not None:
        d.output = d.output if d.termination is not None else d.answer
        end(d, Termination(kind=TerminationKind.BEHAVIOR_REQUESTED, detail=message.end))
    elif call is None:
        leave(d)
    else:
        _call_phase_done(d, call, message)
        _go_on(d)


_CALL_PHASES = {
    Phase.TOOL_GATE: CallAt.GATING,
    Phase.BEFORE_TOOL_EXECUTE: CallAt.BEFORE,
    Phase.AFTER_TOOL_EXECUTE: CallAt.AFTER,
}


def _asked(d: Draft, message: PhaseDone, call: CallRow | None) -> bool:
    """True if the machine waits for exactly this answer."""
    if message.step != d.step:
        return False
    if message.phase in _CALL_PHASES:
        return d.cursor is Cursor.TOOLS and call is not None and call.at is _CALL_PHASES[message.phase]
    return d.phase_open and PHASE_OF.get(d.cursor) is message.phase


def _call_phase_done(d: Draft, call: CallRow, message: PhaseDone) -> None:
    match call.at:
        case CallAt.GATING:
            gate_answered(d, call, message.verdict)
        case CallAt.BEFORE:
            start_body(d, call)
        case _:
            d.put(call, at=CallAt.SETTLED)


def due(state: RunState, now: datetime) -> tuple[bool, tuple[str, ...]]:
    """What the clock has brought: whether the deadline has passed, and the tickets that have expired."""
    deadline = state.info.deadline
    late = deadline is not None and now >= deadline and state.row.termination is None
    expired = (ticket for ticket in timed(state) if ticket.expires_at is not None and now >= ticket.expires_at)
    return late, tuple(ticket.ticket_id for ticket in expired)


def timed(state: RunState) -> tuple[Ticket, ...]:
    """The open tickets that expire at some time: of calls, and of the run itself."""
    parked = (
        call.ticket for call in state.calls.values() if call.at is CallAt.PARKED and call.status is CallStatus.SUSPENDED
    )
    return tuple(
        ticket
        for ticket in (*parked, *state.row.holds)
        if ticket is not None and ticket.status == "open" and ticket.expires_at is not None
    )
