"""The restart decision, one_for_one: a pure function of the child's spec, its exit, the window and the time.

| exit | permanent | transient | temporary |
|---|---|---|---|
| Normal | restart | stop | stop |
| Crashed | restart | restart | stop |
| Shutdown, Cancelled, GaveUp, Stubborn | stop | stop | stop |

A restart that the window does not allow is an escalation; what that means for the supervisor (report, or end itself)
is its policy.
"""

from __future__ import annotations

from typing import Any, TypeAlias, assert_never

from attrs import frozen

from .exits import ActorCancelled, Crashed, Exit, GaveUp, Normal, Shutdown, Unresponsive
from .intensity import Window
from .spec import ChildSpec


@frozen(kw_only=True)
class Restart:
    """Begin the next incarnation `after` seconds; `window` replaces the one that was asked."""

    after: float
    window: Window


@frozen(kw_only=True)
class Stop:
    """The child has ended, with this exit."""

    exit: Exit


@frozen(kw_only=True)
class Escalate:
    """The child has ended because it may not be restarted again."""

    exit: GaveUp


Decision: TypeAlias = Restart | Stop | Escalate


def wants_restart(spec: ChildSpec[Any], exit_: Exit) -> bool:
    """The table above."""
    match exit_:
        case Normal():
            return spec.restart == "permanent"
        case Crashed():
            return spec.restart != "temporary"
        case Shutdown() | ActorCancelled() | GaveUp() | Unresponsive():
            return False
        case _:
            assert_never(exit_)


def decide(
    spec: ChildSpec[Any], exit_: Exit, window: Window, now: float, *, restarts: int = 0, chance: float = 0.5
) -> Decision:
    """What happens after `exit_`.

    Args:
        spec: The child's.
        exit_: How the incarnation ended.
        window: The restarts that count against the intensity (the child's own, or the supervisor's).
        now: Seconds, on the clock of `window`.
        restarts: How often this child has been restarted, for the report.
        chance: In [0, 1): the random part of a backoff.
    """
    if not wants_restart(spec, exit_):
        return Stop(exit=exit_)
    if not window.allows(now):
        error = exit_.error if isinstance(exit_, Crashed) else None
        return Escalate(exit=GaveUp(error=error, restarts=restarts))
    recorded = window.record(now)
    after = 0.0 if spec.backoff is None else spec.backoff.delay(len(recorded.times), chance)
    return Restart(after=after, window=recorded)
