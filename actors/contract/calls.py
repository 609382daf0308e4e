"""The lifecycle of a tool call as a table.

Theory of operation. `POSITIONS` has one row per position of a call, with the positions that may follow and the facts
that hold there. `StepBuilder.put` of the engine is the only place that moves a call, and checks each move with
`check_move`. A call is new until its gates have answered; it runs; it may be suspended any number of times, each time
with a new ticket; a decision continues it; it ends exactly once. `CallStatus`, the clients' view, is derived: four
positions imply it, in the others the row decides (`CallRow.status`). `CALLS` is the table as a client sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final, Self

import attrs

from .lifecycle import IllegalTransition
from .phases import Phase


class CallPosition(StrEnum):
    """The position of one call inside `RunPosition.TOOLS`. `POSITIONS` is the table.

    Private to the engine; clients see `CallStatus`.

    Attributes:
        mark: one bit, another one for each position.
    """

    mark: int

    def __new__(cls, value: str) -> Self:
        """Give a member its mark."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.mark = 1 << len(cls.__members__)
        return member

    NEW = "new"  # the gates have not been asked
    GATING = "gating"  # a gate is being asked
    PROVISIONAL = "provisional"  # block, deny or set_result while earlier calls have not run: the gate is asked again
    ALLOWED = "allowed"  # may start as soon as the execution mode lets it
    BEFORE = "before"  # before_tool_execute hooks
    BODY = "body"  # the tool's own code
    MERGING = "merging"  # the body has returned; it runs again if its state writes conflict
    PARKED = "parked"  # suspended, waits for a decision
    CHILD = "child"  # suspended, its child run waits for decisions
    DECIDED = "decided"  # waits for the other decisions of its batch
    AFTER = "after"  # after_tool_execute hooks
    SETTLED = "settled"


class CallStatus(StrEnum):
    """The state of a call as clients see it."""

    NEW = "new"
    RUNNING = "running"
    SUSPENDED = "suspended"
    RESUMING = "resuming"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


@attrs.frozen(kw_only=True)
class CallRule:
    """A row of the table.

    Attributes:
        to: the positions that may follow.
        outcomes: outcomes with which a call may leave this position; for `after` and `settled`, outcomes of calls
            there.
        status: The status of every call here; None: derived from other facts of the call.
        phase: the phase whose hooks run for the call here.
        executing: code runs for the call: hooks, gates, or its body.
        body: the call takes one of the bodies that the execution mode allows to run concurrently.
        writes: the call may still write to state keys without a decision of a person.
        undecided: a batch of decisions waits while a call is here.
        merges: the body's state writes may be merged.
        ended: the outcome is known and final.
    """

    to: frozenset[CallPosition]
    outcomes: frozenset[CallStatus]
    status: CallStatus | None = None
    phase: Phase | None = None
    executing: bool = False
    body: bool = False
    writes: bool = False
    undecided: bool = False
    merges: bool = False
    ended: bool = False

    @property
    def alive(self) -> bool:
        """True if the run has a child for the call that a cancel must stop: running code, or a suspended call."""
        return self.executing or self.status is CallStatus.SUSPENDED


_AT = CallPosition
_CUT: Final = frozenset({CallStatus.CANCELLED})
_RAN: Final = frozenset({CallStatus.SUCCEEDED, CallStatus.FAILED})

SETTLED: Final = _RAN | _CUT
"""The final statuses."""


def _to(*positions: CallPosition) -> frozenset[CallPosition]:
    return frozenset(positions)


POSITIONS: Final[Mapping[CallPosition, CallRule]] = {
    _AT.NEW: CallRule(
        to=_to(_AT.GATING, _AT.ALLOWED, _AT.PARKED, _AT.AFTER, _AT.SETTLED), outcomes=SETTLED, undecided=True
    ),
    _AT.GATING: CallRule(
        to=_to(_AT.NEW, _AT.PROVISIONAL, _AT.ALLOWED, _AT.PARKED, _AT.AFTER, _AT.SETTLED),
        outcomes=SETTLED,
        phase=Phase.TOOL_GATE,
        executing=True,
        undecided=True,
    ),
    _AT.PROVISIONAL: CallRule(to=_to(_AT.GATING, _AT.SETTLED), outcomes=_CUT),
    _AT.ALLOWED: CallRule(
        to=_to(_AT.NEW, _AT.GATING, _AT.BEFORE, _AT.BODY, _AT.PARKED, _AT.AFTER, _AT.SETTLED),
        outcomes=SETTLED,
        writes=True,
    ),
    _AT.BEFORE: CallRule(
        to=_to(_AT.NEW, _AT.ALLOWED, _AT.BODY, _AT.PARKED, _AT.AFTER, _AT.SETTLED),
        outcomes=SETTLED,
        phase=Phase.BEFORE_TOOL_EXECUTE,
        executing=True,
        body=True,
        writes=True,
    ),
    _AT.BODY: CallRule(
        to=_to(_AT.ALLOWED, _AT.MERGING, _AT.PARKED, _AT.CHILD, _AT.AFTER, _AT.SETTLED),
        outcomes=SETTLED,
        status=CallStatus.RUNNING,
        executing=True,
        body=True,
        writes=True,
    ),
    _AT.MERGING: CallRule(
        to=_to(_AT.ALLOWED, _AT.AFTER, _AT.SETTLED),
        outcomes=SETTLED,
        status=CallStatus.RUNNING,
        writes=True,
        merges=True,
    ),
    _AT.PARKED: CallRule(
        to=_to(_AT.NEW, _AT.DECIDED, _AT.SETTLED), outcomes=_CUT, status=CallStatus.SUSPENDED, undecided=True
    ),
    _AT.CHILD: CallRule(to=_to(_AT.ALLOWED, _AT.SETTLED), outcomes=_CUT, status=CallStatus.SUSPENDED, undecided=True),
    _AT.DECIDED: CallRule(to=_to(_AT.NEW, _AT.PARKED, _AT.SETTLED), outcomes=_CUT, status=CallStatus.SUSPENDED),
    _AT.AFTER: CallRule(
        to=_to(_AT.SETTLED),
        outcomes=_RAN,
        phase=Phase.AFTER_TOOL_EXECUTE,
        executing=True,
        body=True,
        writes=True,
        ended=True,
    ),
    _AT.SETTLED: CallRule(to=_to(), outcomes=SETTLED, merges=True, ended=True),
}
"""The table: each position, the positions that may follow, and the facts that hold there. A call begins as `new`."""

SUSPENDED: Final = frozenset(at for at, rule in POSITIONS.items() if rule.status is CallStatus.SUSPENDED)
"""The positions of a suspended call."""


def marks_where(holds: Callable[[CallRule], bool]) -> int:
    """Return the marks of the positions whose row of the table fits: a column of the table as bits."""
    return sum(at.mark for at, rule in POSITIONS.items() if holds(rule))


def check_move(call_id: str, source: CallPosition | None, target: CallPosition, outcome: CallStatus | None) -> None:
    """Return if the table allows the move.

    Args:
        call_id: for the message.
        source: the call's position; None for a call that does not exist yet.
        target: the new position.
        outcome: how the call has ended; None if it has not.

    Raises:
        IllegalTransition: `POSITIONS` does not have the pair, or the outcome does not fit it.
    """
    following = POSITIONS[target]
    if source is None:
        legal = target is _AT.NEW and outcome is None
    elif following.ended:
        row = POSITIONS[source]
        legal = target in row.to and outcome in row.outcomes and outcome in following.outcomes
    else:
        legal = target in POSITIONS[source].to and outcome is None
    if not legal:
        end = target.value if outcome is None else f"{target.value} ({outcome.value})"
        begin, may = ("nothing", _to(_AT.NEW)) if source is None else (source.value, POSITIONS[source].to)
        raise IllegalTransition(f"call {call_id}", begin, end, may)


def _statuses(source: CallPosition, status: CallStatus, target: CallPosition) -> Iterable[CallStatus]:
    """Yield the statuses that a call of this status may have after a move."""
    row, following = POSITIONS[source], POSITIONS[target]
    if following.status is not None:
        return (following.status,)
    if following.ended:
        return (status,) if row.ended else row.outcomes & following.outcomes
    return (CallStatus.RESUMING,) if row.status is CallStatus.SUSPENDED else (status,)


def _status_moves() -> Iterator[tuple[CallStatus, CallStatus]]:
    """Yield each move of a status that a path through the table makes."""
    start = (CallPosition.NEW, CallStatus.NEW)
    reachable, todo = {start}, [start]
    while todo:
        at, status = todo.pop()
        after = {(target, new) for target in POSITIONS[at].to for new in _statuses(at, status, target)}
        yield from ((status, new) for _, new in after if new is not status)
        todo += after - reachable
        reachable |= after


_MOVES: Final = frozenset(_status_moves())

CALLS: Final[Mapping[CallStatus, frozenset[CallStatus]]] = {
    status: frozenset(new for old, new in _MOVES if old is status) for status in CallStatus
}
"""Status -> the statuses that may follow: `POSITIONS` as a client sees it."""
