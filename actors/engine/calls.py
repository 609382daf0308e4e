"""Advance the calls of one step: gate, decide, start and settle them as far as possible at the moment.

Theory of operation. Every input that may let a call move ends in `advance_calls`, which repeats one pass until nothing
moves: ask gates, apply early and held decisions, withdraw what new input supersedes, merge held state, re-ask
provisional verdicts, start what the execution mode allows. Then the run's stage is derived from the calls. Because the
pass looks at all calls, no handler has to know which other calls its change may release.
"""

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
    """Advance the calls of the step as far as possible. Returns True if all are settled.

    Called after every change that may let a call move. Also moves the run to the stage that its calls imply.
    """
    if not builder.in_tools:
        return False
    while _advance(builder):
        pass
    update_stage(builder)
    return builder.in_tools and all(call.at is CallPosition.SETTLED for call in builder.calls.values())


def _advance(builder: StepBuilder) -> bool:
    """Make one pass over the calls. Returns True if another pass may move more calls.

    That is so if a call ended by being started (in the background), or a merge let a call settle.
    """
    gated = gate_new(builder)
    early_decisions(builder)
    supersede(builder)
    release_held(builder)
    if not gated or not builder.in_tools:
        return False
    if not any(call.position.executing for call in builder.calls.values()) and merge_held(builder):
        return True  # a merge may have released a decided call
    ask_again(builder)
    started = startable(builder.calls.values(), builder.mode, builder.spec.tools, builder.spec.max_bodies)
    for call in started:
        if builder.row.cursor is not RunPosition.TOOLS:  # starting the previous call has ended the run
            break
        if outdated(builder, call):
            ask_gates(builder, call)
        else:
            start(builder, call)
    if builder.in_tools and not any(call.position.executing for call in builder.calls.values()):
        ask_again(builder, quiet=True)
    return builder.in_tools and any(builder.calls[call.call_id].settled for call in started)


def update_stage(builder: StepBuilder) -> None:
    """Move the run to the stage that its calls imply: applying, running or needs_approval.

    A run with a pending cancel after the step does not come to rest, because its decisions would have no effect: it
    ends.
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
    """Return the stage, by precedence: an executing applying body, another moving call, a suspended call."""
    suspended = moving = False
    for call in calls:
        if call.at is CallPosition.BODY and call.effect in APPLYING_EFFECTS:
            return Stage.APPLYING
        if call.position.executing or call.status in (CallStatus.RUNNING, CallStatus.RESUMING):
            moving = True
        elif call.status is CallStatus.SUSPENDED:
            suspended = True
    return Stage.NEEDS_APPROVAL if suspended and not moving else Stage.RUNNING
