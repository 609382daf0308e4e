"""The options and the views of a supervisor: frozen values, no behaviour."""

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
    """The arguments of `open_supervisor`; documented there."""

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
    tracebacks: bool = True


@frozen(kw_only=True)
class ChildInfo:
    """A snapshot of one live child.

    Attributes:
        state: booting until `ready` in `start_child_ready`; stopping after a request to end; stubborn after its budget.
        restarts: Number of incarnations before this one.
        depth: Messages in the mailbox.
        oldest_age: Seconds since the delivery of the oldest message.
        last_exit: Exit of the previous incarnation.
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
    """Numbers of live children by kind; stubborn children are also counted in their kind."""

    static: int
    dynamic: int
    stubborn: int

    @property
    def total(self) -> int:
        """Number of all live children."""
        return self.static + self.dynamic


@frozen(kw_only=True)
class SupervisorStatistics:
    """Counters since the start, and the children that are alive now.

    Attributes:
        stubborn: Ids of the live children that have overrun their budgets; the supervisor's block cannot end before
            them.
        dead_letters: Messages that were in mailboxes at the exits of their actors.
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
