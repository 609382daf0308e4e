"""Advance the calls of one step: gate, decide, start and settle them as far as possible at the moment.

Theory of operation. Every input that may let a call move ends in `advance_calls`, which repeats one pass until nothing
moves: ask gates, apply early and waiting decisions, withdraw what new input supersedes, merge waiting state, re-ask
provisional verdicts, start what the execution mode allows. Then the run's stage is derived from the calls. Because the
pass looks at all calls, no handler has to know which other calls its change may release.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ..contract.calls import EXECUTING, CallPosition, CallStatus
from ..contract.lifecycle import APPLYING_EFFECTS, NEEDS_APPROVAL, Stage
from ..contract.phases import TOOLS
from ..contract.rows import CallRow
from .decisions import early_decisions, release_held, supersede
from .gates import ask_again, gate_new
from .handoffs import in_turn
from .state import StepBuilder
from .state_merge import merge_pending
from .tool_bodies import start, startable


def advance_calls(builder: StepBuilder) -> Stage | None:
    """Advance the calls of the step as far as possible. Returns the stage that they imply; None if the run is ending.

    Called after every change that may let a call move. Also moves the run to a stage of moving calls, applying or
    running; whether the run comes to rest is decided with the next step.
    """
    while builder.row.cursor is TOOLS and _advance(builder):
        pass
    if builder.row.cursor is not TOOLS:
        return None
    target = derive_stage(builder.calls.values())
    if target is not builder.row.stage and target is not NEEDS_APPROVAL:
        builder.move(target)
    return target


_RUNNING: Final = Stage.RUNNING
_BODY: Final = CallPosition.BODY
_SETTLED: Final = CallPosition.SETTLED
_DECIDED: Final = CallPosition.DECIDED
_PROVISIONAL: Final = CallPosition.PROVISIONAL
_ALLOWED: Final = CallPosition.ALLOWED


def _positions(builder: StepBuilder) -> set[CallPosition]:
    """Return the positions that the step's calls have now."""
    return {call.at for call in builder.calls.values()}


def _advance(builder: StepBuilder) -> bool:
    """Make one pass over the calls. Returns True if another pass may move more calls.

    That is so if a call ended by being started (in the background), or a merge let a call settle.
    """
    gated = gate_new(builder)
    if builder.row.early:
        early_decisions(builder)
    if builder.row.unread_input_by is not None and builder.spec.on_new_input == "supersede":
        supersede(builder)
    if _DECIDED in _positions(builder):
        release_held(builder)
    if not gated or builder.row.cursor is not TOOLS:
        return False
    at = _positions(builder)
    if EXECUTING.isdisjoint(at) and merge_pending(builder):
        return True  # a merge may have released a decided call
    if _PROVISIONAL in at:
        ask_again(builder)
    calls, spec = builder.calls.values(), builder.spec
    ready = in_turn(calls) if spec.handoffs else calls
    started = startable(ready, builder.mode, spec.tools, spec.max_bodies) if _ALLOWED in at else ()
    for call in started:
        if builder.row.cursor is TOOLS:  # else starting the previous call has ended the run
            start(builder, call)
    if _PROVISIONAL in at and builder.row.cursor is TOOLS and EXECUTING.isdisjoint(_positions(builder)):
        ask_again(builder, quiet=True)
    return builder.row.cursor is TOOLS and any(builder.calls[call.call_id].settled for call in started)


def derive_stage(calls: Iterable[CallRow]) -> Stage:
    """Return the stage, by precedence: an executing applying body, another moving call, a suspended call."""
    suspended = moving = False
    for call in calls:
        if call.at is _BODY and call.effect in APPLYING_EFFECTS:
            return Stage.APPLYING
        if call.at is _SETTLED:
            continue
        if call.at in EXECUTING or call.status in (CallStatus.RUNNING, CallStatus.RESUMING):
            moving = True
        elif call.status is CallStatus.SUSPENDED:
            suspended = True
    return NEEDS_APPROVAL if suspended and not moving else _RUNNING
