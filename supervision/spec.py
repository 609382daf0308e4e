"""What a supervisor is told about a child: values only."""

from __future__ import annotations

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
"""Seconds between a stop request and the report that a child is stubborn; OTP's default for workers."""


@frozen(kw_only=True)
class Backoff:
    """How long to wait before the n-th restart within the window: `initial * factor ** (n - 1)`, capped, with jitter.

    It resets by itself: restarts that have left the intensity window are not counted.

    Attributes:
        initial: Seconds before the first restart.
        factor: Growth per restart.
        maximum: Upper bound in seconds, before jitter.
        jitter: Share of the delay that is random; 0.1 means +-10 %.

    Raises:
        InvalidSpec: A field has an invalid value.
    """

    initial: float = field(default=0.1, validator=at_least(0))
    factor: float = field(default=2.0, validator=at_least(1))
    maximum: float = field(default=30.0, validator=at_least(0))
    jitter: float = field(default=0.1, validator=at_least(0))

    def delay(self, nth: int, chance: float = 0.5) -> float:
        """Seconds before the `nth` restart (1, 2, ...); `chance` in [0, 1) chooses within the jitter."""
        # 64 doublings pass any maximum; the cap keeps the power a float
        base = min(self.maximum, self.initial * self.factor ** min(nth - 1, 64))
        return base * (1.0 + self.jitter * (2.0 * chance - 1.0))


def _shutdown_is_valid(_: object, __: object, value: object) -> None:
    if value != "brutal" and not (isinstance(value, int | float) and value >= 0):
        near = did_you_mean(value, ("brutal",))
        raise InvalidSpec(f"shutdown={value!r:.100}: {near}give seconds >= 0, math.inf for a supervisor, or 'brutal'")


@frozen(kw_only=True)
class ChildSpec(Generic[M]):
    """One child.

    Attributes:
        id: Unique among the live children of the supervisor.
        start: The body: `async def start(ctx)`. It is called once per incarnation and rebuilds its state each time.
        name: Name in the registry and of the task; default `<supervisor>/<id>`.
        restart: permanent: always, transient: after a crash, temporary: never. Who was asked to end is never restarted.
        shutdown: Seconds it gets to end once it is cancelled; "brutal": its clean-up helpers get none; math.inf: for
            supervisors, whose own children have budgets.
        max_restarts: With `within`: a restart intensity of its own instead of the supervisor's.
        within: Seconds.
        backoff: Wait before restarts; None: restart at once.
        capacity: Messages its mailbox holds.
        on_give_up: What exceeding the intensity means: report: this child ends with `GaveUp`; escalate: the
            supervisor ends too. None: escalate for static children, report for dynamic ones.

    Raises:
        InvalidSpec: A field has an invalid value.
    """

    id: str = field(validator=a_text)
    start: Callable[[ActorContext[M]], Awaitable[object]]
    name: str | None = None
    restart: RestartKind = field(default="permanent", validator=one_of("permanent", "transient", "temporary"))
    shutdown: float | Brutal = field(default=SHUTDOWN, validator=_shutdown_is_valid)
    max_restarts: int | None = field(default=None, validator=optional(at_least(0)))
    within: float | None = field(default=None, validator=optional(more_than(0)))
    backoff: Backoff | None = None
    capacity: int = field(default=CAPACITY, validator=at_least(1))
    on_give_up: OnGiveUp | None = field(default=None, validator=optional(one_of("report", "escalate")))

    @property
    def has_own_intensity(self) -> bool:
        """True if the child does not share its supervisor's intensity."""
        return self.max_restarts is not None or self.within is not None

    def intensity(self, default: Intensity) -> Intensity:
        """Its intensity, with what it leaves open taken from `default`."""
        if not self.has_own_intensity:
            return default
        return Intensity(
            max_restarts=default.max_restarts if self.max_restarts is None else self.max_restarts,
            within=default.within if self.within is None else self.within,
        )
