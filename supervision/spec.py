"""The specification of a child: values only."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Generic, Literal, TypeVar

from attrs import field, frozen
from attrs.validators import optional

from .context import ActorContext
from .errors import InvalidSpec
from .fields import a_text, at_least, did_you_mean, more_than, one_of
from .intensity import Intensity
from .mailbox import CAPACITY

M = TypeVar("M")

RestartKind = Literal["permanent", "transient", "temporary"]
OnGiveUp = Literal["report", "escalate"]
Brutal = Literal["brutal"]

SHUTDOWN = 5.0
"""Seconds between a stop request and the report of the child as unresponsive; OTP's default for workers."""


@frozen(kw_only=True)
class Backoff:
    """The delay before the n-th restart within the window: `initial * factor ** (n - 1)`, capped, with jitter.

    The delay resets without an explicit action: restarts that have left the intensity window are not counted.

    Attributes:
        initial: Seconds before the first restart.
        factor: Growth per restart.
        maximum: Upper bound in seconds, before jitter.
        jitter: Random share of the delay; 0.1 means +-10 %.

    Raises:
        InvalidSpec: A field has an invalid value.
    """

    initial: float = field(default=0.1, validator=at_least(0))
    factor: float = field(default=2.0, validator=at_least(1))
    maximum: float = field(default=30.0, validator=at_least(0))
    jitter: float = field(default=0.1, validator=at_least(0))

    def delay(self, nth: int, chance: float = 0.5) -> float:
        """Return the seconds before the `nth` restart (1, 2, ...); `chance` in [0, 1) selects a point in the jitter."""
        # 64 doublings exceed any sensible maximum; without the cap, a large `nth` would overflow the float
        base = min(self.maximum, self.initial * self.factor ** min(nth - 1, 64))
        return base * (1.0 + self.jitter * (2.0 * chance - 1.0))


def _shutdown_is_valid(_: object, __: object, value: object) -> None:
    if value != "brutal" and not (isinstance(value, int | float) and value >= 0):
        near = did_you_mean(value, ("brutal",))
        raise InvalidSpec(f"shutdown={value!r:.100}: {near}give seconds >= 0, math.inf for a supervisor, or 'brutal'")


@frozen(kw_only=True)
class ChildSpec(Generic[M]):
    """The specification of one child.

    Attributes:
        id: Unique among the live children of the supervisor.
        start: The body, `async def start(ctx)`. Called once per incarnation; rebuilds its state each time.
        name: Name in the registry and of the task; default `<supervisor>/<id>`.
        restart: permanent: always restarted; transient: restarted after a crash; temporary: never restarted. A child
            that was asked to end is never restarted.
        shutdown: Seconds between the cancellation of the child and its report as unresponsive. "brutal": clean-up
            helpers get no time; math.inf: for supervisors, whose own children have budgets.
        max_restarts: With `within`, a restart intensity of the child's own instead of the supervisor's. math.inf: the
            child is never given up; a `backoff` is then required, because a crash loop would take all the time.
        within: Seconds.
        backoff: Delay before restarts; None restarts immediately.
        capacity: Capacity of the mailbox, in messages.
        on_give_up: Reaction when the intensity is exceeded. report: only this child ends, with `GaveUp`; escalate: the
            supervisor ends too. None: escalate for static children, report for dynamic ones.

    Raises:
        InvalidSpec: A field has an invalid value.
    """

    id: str = field(validator=a_text)
    start: Callable[[ActorContext[M]], Awaitable[object]]
    name: str | None = None
    restart: RestartKind = field(default="permanent", validator=one_of("permanent", "transient", "temporary"))
    shutdown: float | Brutal = field(default=SHUTDOWN, validator=_shutdown_is_valid)
    max_restarts: float | None = field(default=None, validator=optional(at_least(0)))
    within: float | None = field(default=None, validator=optional(more_than(0)))
    backoff: Backoff | None = None
    capacity: int = field(default=CAPACITY, validator=at_least(1))
    on_give_up: OnGiveUp | None = field(default=None, validator=optional(one_of("report", "escalate")))

    def __attrs_post_init__(self) -> None:
        if self.max_restarts == math.inf and (self.backoff is None or not self.backoff.initial):
            raise InvalidSpec(f"max_restarts=inf of child {self.id!r}: give a backoff with initial > 0")

    @property
    def has_own_intensity(self) -> bool:
        """True if the child does not share the supervisor's intensity."""
        return self.max_restarts is not None or self.within is not None

    def intensity(self, default: Intensity) -> Intensity:
        """Return the child's intensity; unset fields are taken from `default`."""
        if not self.has_own_intensity:
            return default
        return Intensity(
            max_restarts=default.max_restarts if self.max_restarts is None else self.max_restarts,
            within=default.within if self.within is None else self.within,
        )
