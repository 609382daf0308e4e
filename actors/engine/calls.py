"""Advance the calls of one step: gate, decide, start and settle them as far as possible at the moment.

Theory of operation. Every input that may let a call move ends in `advance_calls`, which repeats one pass until nothing
moves: ask gates, apply early and waiting decisions, withdraw what new input supersedes, merge waiting state, re-ask
provisional verdicts, start what the execution mode allows. Then the run's stage is derived from the calls. Because the
pass looks at all calls, no handler has to know which other calls its change may release.
"""

from __future__ import annotations

from typing import Final

from ..contract.calls import CallPosition, CallStatus, marks_where
from ..contract.lifecycle import NEEDS_APPROVAL, Stage
from ..contract.phases import TOOLS
from .decisions import early_decisions, release_held, supersede
from .gates import UNGATED, ask_again, gate_new
from .nested import waiting_parents
from .state import StepBuilder
from .state_merge import merge_pending
from .step_calls import BATCH, BEGUN, RESUMED, StepCalls
from .tool_bodies import start, startable_now


def advance_calls(builder: StepBuilder) -> Stage | None:
    """Advance the calls of the step as far as possible. Returns the stage that they imply; None if the run is ending.

    Called after every change that may let a call move. Also moves the run to a stage of moving calls, applying or
    running; whether the run comes to rest is decided with the next step.
    """
    while builder.row.position is TOOLS and _advance(builder):
        pass
    if builder.row.position is not TOOLS:
        return None
    target = derive_stage(builder.calls)
    if target is not builder.row.stage and target is not NEEDS_APPROVAL:
        builder.move(target)
    return target


_RUNNING: Final = Stage.RUNNING
_BODY: Final = CallPosition.BODY.mark
_DECIDED: Final = CallPosition.DECIDED.mark
_PROVISIONAL: Final = CallPosition.PROVISIONAL.mark
_ALLOWED: Final = CallPosition.ALLOWED.mark
_EXECUTING: Final = marks_where(lambda rule: rule.executing)
_MOVING: Final = marks_where(lambda rule: rule.executing or rule.status is CallStatus.RUNNING)
"""Positions at which code runs for the call, or the call is running as clients see it."""
_BY_FACTS: Final = marks_where(lambda rule: rule.status is None and not rule.ended)
"""Positions whose calls are running or resuming only if a body has begun, or a decision has resumed them."""
_SUSPENDED: Final = marks_where(lambda rule: rule.status is CallStatus.SUSPENDED)


def _advance(builder: StepBuilder) -> bool:
    """Make one pass over the calls. Returns True if another pass may move more calls.

    That is so if a call ended by being started (in the background), or a merge let a call settle.
    """
    any_gated = not builder.calls.present & UNGATED or gate_new(builder)
    if builder.row.early:
        early_decisions(builder)
    if builder.row.unread_input_by is not None and builder.spec.on_new_input == "supersede":
        supersede(builder)
    if builder.calls.present & _DECIDED:
        release_held(builder)
    if not any_gated or builder.row.position is not TOOLS:
        return False
    calls = builder.calls
    if calls.present & BATCH and not calls.present & _EXECUTING and merge_pending(builder):
        return True  # a merge may have released a decided call
    provisional = builder.calls.present & _PROVISIONAL
    if provisional:
        ask_again(builder)
    ready = startable_now(builder) if builder.calls.present & _ALLOWED else ()
    for call in ready:
        if builder.row.position is TOOLS:  # else starting the previous call has ended the run
            start(builder, call)
    if provisional and builder.row.position is TOOLS and not builder.calls.present & _EXECUTING:
        ask_again(builder, quiet=True)
    return builder.row.position is TOOLS and any(builder.calls.rows[call.call_id].outcome is not None for call in ready)


def derive_stage(calls: StepCalls) -> Stage:
    """Return the stage, by precedence: an executing applying body, another moving call, a suspended call.

    A call whose body waits for a decision about a nested call does not move, and neither does an allowed call that
    such a body holds back.
    """
    waits = waiting_parents(calls) if calls.nested else 0
    if calls.applying and calls.marked(_BODY) & calls.applying & ~waits:
        return Stage.APPLYING
    if not calls.present & _SUSPENDED:
        return _RUNNING
    resting = calls.marked(_ALLOWED) if waits else 0  # what could start has started
    moving = calls.marked(_MOVING) & ~waits or calls.marked(_BY_FACTS) & ~resting & calls.marked(BEGUN | RESUMED)
    return _RUNNING if moving else NEEDS_APPROVAL
