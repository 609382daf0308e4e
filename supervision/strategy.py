"""The restart decision, one_for_one: a pure function of the child's spec, its exit, the window and the time.

| exit | permanent | transient | temporary |
|---|---|---|---|
| Normal | restart | stop | stop |
| Crashed | restart | restart | stop |
| Shutdown, ActorCancelled, GaveUp, Unresponsive | stop | stop | stop |

A restart that the window does not allow is an escalation. The supervisor's policy decides whether an escalation is only
reported or ends the supervisor.
"""

from __future__ import annotations

from typing import Any, TypeAlias, assert_never

from attrs import frozen

from .exits import ActorCancelled, Crashed, Exit, GaveUp, Normal, Shutdown, Unresponsive
from .intensity import Window
from .spec import ChildSpec


@frozen(kw_only=True)
class Restart:
    """Start the next incarnation `after` seconds from now; `window` replaces the window passed to `decide`."""

    after: float
    window: Window


@frozen(kw_only=True)
class Stop:
    """The child has ended with this exit."""

    exit: Exit


@frozen(kw_only=True)
class Escalate:
    """The child has ended because a further restart would exceed the intensity."""

    exit: GaveUp


Decision: TypeAlias = Restart | Stop | Escalate


def wants_restart(spec: ChildSpec[Any], exit_: Exit) -> bool:
    """Return True if the table above has "restart" for this exit."""
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
    """Return the decision after `exit_`.

    Args:
        spec: Specification of the child.
        exit_: How the incarnation ended.
        window: The restarts that count against the intensity (the child's own, or the supervisor's).
        now: Seconds, on the clock of `window`.
        restarts: Number of earlier restarts of this child, for the report.
        chance: In [0, 1): the random part of a backoff.
    """
    if not wants_restart(spec, exit_):
        return Stop(exit=exit_)
    if not window.allows(now):
        error = exit_.error if isinstance(exit_, Crashed) else None
        return Escalate(exit=GaveUp(error=error, restarts=restarts))
    after_crash = window.record(now)
    after = 0.0 if spec.backoff is None else spec.backoff.delay(len(after_crash.times), chance)
    return Restart(after=after, window=after_crash)
