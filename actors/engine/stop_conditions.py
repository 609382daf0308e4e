"""Evaluate stop conditions at the end of a step: pure functions of the step and the counters up to it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, assert_never

from ..contract.calls import CallStatus
from ..contract.ids import content_digest
from ..contract.rows import CallRow
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


class StepFacts(NamedTuple):
    """The facts of a finished step.

    Attributes:
        rounds, errors, trail: the run's counters, this step included.
        tokens, active_ms: of the run so far.
        text: the model's text.
        calls: of this step.
    """

    rounds: int
    errors: int
    trail: tuple[str, ...]
    tokens: int
    active_ms: int
    text: str
    calls: tuple[CallRow, ...]


def failed_step(calls: Iterable[CallRow]) -> bool:
    """Return True if the step had calls and all of them failed."""
    statuses = [call.status for call in calls]
    return bool(statuses) and all(status is CallStatus.FAILED for status in statuses)


def trace(text: str, calls: Iterable[CallRow]) -> str:
    """Return what loop detection compares: a digest of the calls with their arguments, or of the text without calls."""
    wanted = [[call.requested.tool, call.requested.arguments] for call in calls]
    return content_digest(wanted or text)


def loop_window(conditions: Iterable[StopCondition]) -> int:
    """Return how many steps loop detection needs; 0 without loop detection."""
    return max((c.window or 0 for c in conditions if isinstance(c, LoopDetection)), default=0)


def first_stop(conditions: Iterable[StopCondition], facts: StepFacts) -> tuple[str, str] | None:
    """Return code and detail of the first condition met, in list order; None if none is."""
    for condition in conditions:
        met = _is_met(condition, facts)
        if met is not None:
            return met
    return None


def too_many_errors(conditions: Iterable[StopCondition], errors: int) -> bool:
    """Return True if this many failed steps in a row meet a ConsecutiveErrors."""
    return any(c.n and errors >= c.n for c in conditions if isinstance(c, ConsecutiveErrors))


def _is_met(condition: StopCondition, facts: StepFacts) -> tuple[str, str] | None:
    match condition:
        case MaxRounds(n):
            return ("max_rounds", f"{facts.rounds} steps") if n and facts.rounds >= n else None
        case Timeout(seconds):
            spent = facts.active_ms / 1000
            return ("timeout", f"{spent:.1f} s of active time") if seconds and spent > seconds else None
        case TokenBudget(total):
            return ("token_budget", f"{facts.tokens} tokens") if total and facts.tokens > total else None
        case ConsecutiveErrors(n):
            return ("consecutive_errors", f"{facts.errors} failed steps") if n and facts.errors >= n else None
        case StopOnTool(name):
            ran = any(call.tool == name and call.attempts for call in facts.calls)
            return ("stop_on_tool", name) if ran else None
        case ContentMatch(pattern):
            return ("content_match", pattern) if condition.met(facts.text) else None
        case LoopDetection(window):
            same = window and len(facts.trail) >= window and len(set(facts.trail[-window:])) == 1
            return ("loop_detection", f"{window} equal steps") if same else None
        case _ as never:
            assert_never(never)
