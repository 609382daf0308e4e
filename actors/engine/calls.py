"""The calls of one step: gated, decided, run and settled, as far as they can go at the moment."""

from __future__ import annotations

from collections.abc import Iterable

from ..contract.calls import CallPosition, CallStatus
from ..contract.lifecycle import APPLYING_EFFECTS, Stage
from ..contract.phases import RunPosition
from ..contract.rows import CallRow
from .decisions import cancelled, early_decisions, release_held, supersede
from .gates import ask_again, ask_gates, gate_new, outdated
from .run_tickets import open_pause, rest
from .state import StepBuilder
from .state_merge import merge_held
from .termination import end
from .tool_bodies import start, startable


def advance_calls(builder: StepBuilder) -> bool:
    """Let the calls of the step move; called after everything that may let one move. True if all are settled.

    Gates what has no verdict, lets early and held decisions act, withdraws what new input supersedes, asks provisional
    verdicts again, starts what may start, and says where the run stands.
    """
    if not builder.in_tools:
        return False
    while _advance(builder):
        pass
    update_stage(builder)
    return builder.in_tools and all(call.at is CallPosition.SETTLED for call in builder.calls.values())


def _advance(builder: StepBuilder) -> bool:
    """True if others may move now: a call has ended by being started (in the background), or by a merge."""
    gated = gate_new(builder)
    early_decisions(builder)
    supersede(builder)
    release_held(builder)
    if not gated or not builder.in_tools:
        return False
    if not any(call.position.executing for call in builder.calls.values()) and merge_held(builder):
        return True  # a decided call may have waited for its turn
    ask_again(builder)
    started = startable(builder.calls.values(), builder.mode, builder.spec.tools, builder.spec.max_bodies)
    for call in started:
        if builder.row.cursor is not RunPosition.TOOLS:  # the one before it has ended the run
            break
        if outdated(builder, call):
            ask_gates(builder, call)
        else:
            start(builder, call)
    if builder.in_tools and not any(call.position.executing for call in builder.calls.values()):
        ask_again(builder, quiet=True)
    return builder.in_tools and any(builder.calls[call.call_id].settled for call in started)


def update_stage(builder: StepBuilder) -> None:
    """Move the run to the stage that its calls say: applying, running or needs_approval.

    A run that is to be cancelled after the step does not come to rest: it would wait for a decision that means nothing.
    """
    target = derive_stage(builder.calls.values())
    if target is builder.row.stage or not builder.in_tools:
        return
    if target is Stage.NEEDS_APPROVAL and builder.row.cancel is not None:
        end(builder, cancelled(builder.row.cancel))
    elif target is Stage.NEEDS_APPROVAL:
        open_pause(builder)
        rest(builder)
    else:
        builder.move(target)


def derive_stage(calls: Iterable[CallRow]) -> Stage:
    """By precedence: an executing call of an applying class; what else moves; a suspended call; else running."""
    suspended = moving = False
    for call in calls:
        if call.at is CallPosition.BODY and call.effect in APPLYING_EFFECTS:
            return Stage.APPLYING
        if call.position.executing or call.status in (CallStatus.RUNNING, CallStatus.RESUMING):
            moving = True
        elif call.status is CallStatus.SUSPENDED:
            suspended = True
    return Stage.NEEDS_APPROVAL if suspended and not moving else Stage.RUNNING
