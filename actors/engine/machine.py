"""The run machine: `step(spec, state, input, now) -> Transition(state, commit, effects)`, a pure function.

Theory of operation. The machine makes every decision about a run and performs none. Its owner (`run/`) feeds one input
at a time, submits the commit, and performs the effects; results come back as inputs. Equal state, input and time give
an equal transition, so a run can be replayed, and a run without an owner continues from its rows: there is no other way
to resume. A late input never fails a run: the answer to a superseded question is ignored and writes nothing.

Example, a driver without I/O:

    taken = step(spec, state, ModelAnswered(message_id=..., response=...), now)
    state, commit, effects = taken.state, taken.commit, taken.effects
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from heapq import merge
from itertools import takewhile
from operator import itemgetter
from typing import assert_never

from ..contract.calls import CallPosition
from ..contract.phases import ENDED
from ..contract.spec import AgentSpec
from .artifacts import publish_asked
from .asking import model_failed
from .body_inputs import (
    BodyNoted,
    BodySaved,
    BodySpoke,
    CallPrinted,
    CallProgressed,
    CallRaised,
    CallReturned,
    CallSuspended,
    CancelAsked,
    FromBody,
    NestedCalled,
    NestedDropped,
    NestedEnded,
    PublishAsked,
    ResultRefused,
    SpawnAsked,
    TasksAsked,
    TaskStopped,
)
from .child_runs import child_seen, unwatched
from .commands import cancel_unowned, command_arrived
from .inference import model_answered, model_cut, model_streamed
from .inputs import (
    Activate,
    Admit,
    BodyOverran,
    CancelUnowned,
    ChildSeen,
    CommandArrived,
    DeadlinePassed,
    FailUnrecoverable,
    GuardsDone,
    Input,
    ModelAnswered,
    ModelCut,
    ModelFailed,
    ModelStreamed,
    PhaseDone,
    Prepared,
    WorkStopped,
)
from .judged import guards_done
from .nested import nested_said
from .phases import phase_done
from .preparing import begin
from .recovery import activate
from .reports import body_reported
from .state import RunState, StepBuilder, Transition
from .steps import continue_run, run_hooks
from .task_requests import desk_asked, task_said
from .termination import LATE, abandon, end, end_unowned, overran, work_stopped
from .tool_bodies import body_said


def step(  # noqa: C901, PLR0912, PLR0915 - one row per input
    spec: AgentSpec, state: RunState, message: Input, now: datetime
) -> Transition:
    """Apply one input to a run.

    Args:
        spec: The spec of the run's first agent, with those of all agents that the run may be handed over to (`graph`).
        state: the state before the input; not changed.
        message: the input.
        now: the time of the input, UTC.

    Raises:
        IllegalTransition: a bug of the engine: the tables do not allow the move.
    """
    builder = StepBuilder(state.acting(spec), state, now)
    if state.row.position is ENDED:
        return builder.build()
    match message:  # the most frequent inputs come first
        case ModelStreamed():
            model_streamed(builder, message)
        case ModelAnswered():
            if model_answered(builder, message):
                run_hooks(builder)
        case CallReturned() | CallRaised() | CallSuspended() | ResultRefused():
            _body_said(builder, message)
            continue_run(builder)
        case Activate():
            activate(builder, message)
        case CallProgressed() | CallPrinted():
            _body_said(builder, message)
        case BodySpoke() | BodyNoted() | BodySaved():
            body_reported(builder, message)
        case PhaseDone():
            phase_done(builder, message)
        case CommandArrived():
            command_arrived(builder, message.item)
            continue_run(builder)
        case ChildSeen():
            child_seen(builder, message)
            continue_run(builder)
        case Admit() | Prepared():
            begin(builder, message)
        case GuardsDone():
            guards_done(builder, message)
        case SpawnAsked() | CancelAsked() | TasksAsked() | TaskStopped():
            desk_asked(builder, message)
            continue_run(builder)
        case PublishAsked():
            publish_asked(builder, message)
        case NestedCalled() | NestedDropped() | NestedEnded():
            nested_said(builder, message)
            continue_run(builder)
        case ModelFailed():
            model_failed(builder, message)
        case ModelCut():
            model_cut(builder, message)
        case CancelUnowned():
            cancel_unowned(builder, message.items)
        case DeadlinePassed():
            (end_unowned if message.unowned else end)(builder, LATE)
        case BodyOverran():
            overran(builder, message.item)
        case WorkStopped():
            work_stopped(builder, message.stubborn)
        case FailUnrecoverable():
            abandon(builder, message.detail)
        case _ as never:
            assert_never(never)
    return builder.build()


def _body_said(builder: StepBuilder, message: FromBody) -> None:
    """Hand an input of a body to its task or call; an input of an older attempt is ignored.

    A failure of a call whose work is a child run comes from its watcher, in any attempt.
    """
    task, call = builder.tasks.get(message.call_id), builder.calls.rows.get(message.call_id)
    if task is not None:
        task_said(builder, task, message)
    elif call is not None and call.child_run is not None and isinstance(message, CallRaised):
        if (failed_call := unwatched(builder, call)) is not None:
            body_said(builder, failed_call, message)
    elif call is not None and call.at is CallPosition.BODY and call.attempts == message.attempt:
        body_said(builder, call, message)


def due(state: RunState, now: datetime) -> tuple[bool, tuple[str, ...]]:
    """Return what is due at `now`: whether the deadline passed, and the ids of the expired tickets."""
    late = state.deadline is not None and now >= state.deadline
    due_timers = takewhile(lambda timer: timer[0] <= now, timed(state))
    return late, tuple(ticket_id for _, ticket_id in due_timers)


def timed(state: RunState) -> Iterator[tuple[datetime, str]]:
    """Yield expiry and id of the open tickets that expire, of calls and of the run itself, the earliest first."""
    own = ((ticket.expires_at, ticket.ticket_id) for ticket in state.row.run_tickets if ticket.status == "open")
    return merge(state.calls.timed(), sorted((at, name) for at, name in own if at is not None), key=itemgetter(0))
