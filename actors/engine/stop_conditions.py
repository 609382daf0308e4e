"""Count a finished step, and evaluate the stop conditions: facts of the step, and of the counters up to it.

Theory of operation. Conditions are evaluated once per step, after its step_end hooks, in the order of the agent's list;
the first condition that is met names the end. All facts are in the run's row, so a restart evaluates alike. Loop
detection keeps digests of the newest steps only: with `LoopDetection(window=3)` three equal entries in
`Counters.trail` end the run, whatever happened before.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from ..contract.calls import CallStatus
from ..contract.ids import content_digest
from ..contract.stop import (
    ConsecutiveErrors,
    ContentMatch,
    LoopDetection,
    MaxRounds,
    StopCondition,
    StopOnTool,
    Timeout,
    TokenBudget,
)
from .state import StepBuilder


def count_step(builder: StepBuilder) -> None:
    """Count a finished step. A step fails if it has calls and all of them failed.

    Loop detection compares digests of the newest steps: of the calls with their arguments, or of the text without
    calls.
    """
    calls, counters = builder.calls.values(), builder.counters
    counters.rounds += 1
    counters.errors = counters.errors + 1 if calls and all(call.outcome is CallStatus.FAILED for call in calls) else 0
    window = max((c.window or 0 for c in builder.spec.stop if isinstance(c, LoopDetection)), default=0)
    if window:
        wanted = [[call.requested.tool, call.requested.arguments] for call in calls]
        counters.trail = (*counters.trail, content_digest(wanted or builder.row.answer or ""))[-window:]
    else:
        counters.trail = ()


def first_stop(builder: StepBuilder) -> tuple[str, str] | None:
    """Return code and detail of the first condition met, in list order; None if none is."""
    counters, met = builder.counters, None
    for condition in builder.spec.stop:
        match condition:
            case MaxRounds(n):
                met = ("max_rounds", f"{counters.rounds} steps") if n and counters.rounds >= n else None
            case Timeout(seconds):
                spent = counters.active_ms / 1000
                met = ("timeout", f"{spent:.1f} s of active time") if seconds and spent > seconds else None
            case TokenBudget(total):
                tokens = builder.row.usage.total
                met = ("token_budget", f"{tokens} tokens") if total and tokens > total else None
            case ConsecutiveErrors(n):
                errors = f"{counters.errors} failed steps"
                met = ("consecutive_errors", errors) if n and counters.errors >= n else None
            case StopOnTool(name):
                ran = any(call.tool == name and call.attempts for call in builder.calls.values())
                met = ("stop_on_tool", name) if ran else None
            case ContentMatch(pattern):
                met = ("content_match", pattern) if condition.met(builder.row.answer or "") else None
            case LoopDetection(window):
                same = window and len(counters.trail) >= window and len(set(counters.trail[-window:])) == 1
                met = ("loop_detection", f"{window} equal steps") if same else None
            case _ as never:
                assert_never(never)
        if met is not None:
            return met
    return None


def too_many_errors(conditions: Iterable[StopCondition], errors: int) -> bool:
    """Return True if this many failed steps in a row meet a ConsecutiveErrors."""
    return any(c.n and errors >= c.n for c in conditions if isinstance(c, ConsecutiveErrors))
