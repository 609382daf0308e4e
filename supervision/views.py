"""What a supervisor is told and what it shows: frozen values, no behaviour."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Literal

from attrs import field, frozen
from attrs.validators import optional

from .exits import Exit, Unresponsive
from .fields import at_least
from .intensity import Intensity
from .ref import AnyRef, Ref
from .registry import Registry
from .spec import OnGiveUp

OnExit = Callable[[AnyRef, Exit], None]
OnRestart = Callable[[AnyRef, Exit, int], None]
OnStubborn = Callable[[AnyRef, Unresponsive], None]

ChildState = Literal["booting", "running", "stopping", "stubborn"]


@frozen(kw_only=True)
class Options:
    """What `open_supervisor` was told; see there."""

    intensity: Intensity
    stop_budget: float = field(validator=at_least(0))
    slice_size: int = field(validator=at_least(1))
    max_children: int | None = field(validator=optional(at_least(0)))
    on_give_up: OnGiveUp | None
    registry: Registry | None
    rng: random.Random
    on_exit: OnExit | None
    on_restart: OnRestart | None
    on_stubborn: OnStubborn | None


@frozen(kw_only=True)
class ChildInfo:
    """One live child, as it is now.

    Attributes:
        state: booting until `ready` in `start_child_ready`; stopping once asked to end; stubborn once over its budget.
        restarts: Incarnations before this one.
        depth: Messages in its mailbox.
        oldest_age: Seconds the oldest of them has waited.
        last_exit: How the incarnation before ended.
    """

    id: str
    ref: Ref[object]
    kind: Literal["static", "dynamic"]
    state: ChildState
    restarts: int
    depth: int
    oldest_age: float
    last_exit: Exit | None


@frozen(kw_only=True)
class ChildCount:
    """Live children by kind; stubborn ones are counted in their kind, too."""

    static: int
    dynamic: int
    stubborn: int

    @property
    def total(self) -> int:
        """All live children."""
        return self.static + self.dynamic


@frozen(kw_only=True)
class SupervisorStatistics:
    """Counters since the start, and what is alive now.

    Attributes:
        stubborn: Ids of the live children that have overrun their budgets; the block can not be left before they end.
        dead_letters: Messages that were in mailboxes at their actors' exits.
    """

    started: int = 0
    ended: int = 0
    crashes: int = 0
    restarts: int = 0
    gave_up: int = 0
    overruns: int = 0
    dead_letters: int = 0
    live: ChildCount = ChildCount(static=0, dynamic=0, stubborn=0)
    stubborn: tuple[str, ...] = ()
    stopping: bool = False
