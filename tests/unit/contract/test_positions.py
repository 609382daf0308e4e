"""The call table: what may follow what, what holds where, and the status that clients see."""

from itertools import pairwise, product

import pytest

from greenroom.actors.contract.calls import (
    CALLS,
    POSITIONS,
    SETTLED,
    CallPosition,
    CallStatus,
    check_move,
)
from greenroom.actors.contract.lifecycle import IllegalTransition
from greenroom.actors.contract.messages import CallRequest
from greenroom.actors.contract.phases import Phase
from greenroom.actors.contract.rows import CallRow

# position | may go to
MOVES_TABLE = """
new         | gating, allowed, parked, after, settled
gating      | new, provisional, allowed, parked, after, settled
provisional | gating, settled
allowed     | new, gating, before, body, parked, after, settled
before      | new, allowed, body, parked, after, settled
body        | allowed, merging, parked, child, after, settled
merging     | allowed, after, settled
parked      | new, decided, settled
child       | allowed, settled
decided     | new, parked, settled
after       | settled
settled     |
"""
# position | status (* if other facts decide it) | hooks that are asked | what holds | outcomes
COLUMNS_TABLE = """
new         | *         |                     | undecided                     | succeeded, failed, cancelled
gating      | *         | tool_gate           | executing, undecided          | succeeded, failed, cancelled
provisional | *         |                     |                               | cancelled
allowed     | *         |                     | writes                        | succeeded, failed, cancelled
before      | *         | before_tool_execute | executing, body, writes       | succeeded, failed, cancelled
body        | running   |                     | executing, body, writes       | succeeded, failed, cancelled
merging     | running   |                     | writes, merges                | succeeded, failed, cancelled
parked      | suspended |                     | undecided                     | cancelled
child       | suspended |                     | undecided                     | cancelled
decided     | suspended |                     |                               | cancelled
after       | *         | after_tool_execute  | executing, body, writes, ended | succeeded, failed
settled     | *         |                     | merges, ended                 | succeeded, failed, cancelled
"""
FLAGS = ("executing", "body", "writes", "undecided", "merges", "ended")


def rows(text):
    return [[cell.strip() for cell in line.split("|")] for line in text.strip().splitlines()]


def names(cell):
    return {name.strip() for name in cell.split(",") if name.strip()}


MOVES = {name: names(following) for name, following in rows(MOVES_TABLE)}


def outcomes(source, target):
    """The outcomes with which the move is made; None where the call has not ended."""
    if not POSITIONS[target].ended:
        return {None}
    return POSITIONS[source].outcomes & POSITIONS[target].outcomes


@pytest.mark.parametrize(("source", "target"), [*product(CallPosition, CallPosition)], ids=lambda at: at.value)
def test_a_call_moves_where_the_table_lets_it_and_nowhere_else(source, target):
    for outcome in (None, *CallStatus):
        if target.value in MOVES[source.value] and outcome in outcomes(source, target):
            check_move("c", source, target, outcome)
        else:
            with pytest.raises(IllegalTransition, match=f"call c: {source} -> {target}.* is not in the table"):
                check_move("c", source, target, outcome)


@pytest.mark.parametrize("target", CallPosition)
def test_a_call_begins_new(target):
    if target is CallPosition.NEW:
        check_move("c", None, target, None)
    else:
        with pytest.raises(IllegalTransition, match=f"call c: nothing -> {target}"):
            check_move("c", None, target, None)


def test_every_position_has_its_columns():
    assert (
        [name for name, *_ in rows(COLUMNS_TABLE)]
        == [at.value for at in POSITIONS]
        == [at.value for at in CallPosition]
    )
    for name, status, phase, flags, ends in rows(COLUMNS_TABLE):
        row = POSITIONS[CallPosition(name)]
        assert (row.status or "*", row.phase or "") == (status, phase), name
        assert {flag for flag in FLAGS if getattr(row, flag)} == names(flags), name
        assert {outcome.value for outcome in row.outcomes} == names(ends), name
        assert row.alive == (row.executing or name in ("parked", "child", "decided")), name


def test_every_position_is_reached_and_left_for_the_end():
    def reach(start):
        seen, todo = {start}, [start]
        while todo:
            found = POSITIONS[todo.pop()].to - seen
            seen |= found
            todo += found
        return seen

    assert reach(CallPosition.NEW) == set(CallPosition)
    assert all(CallPosition.SETTLED in reach(at) for at in CallPosition)
    assert POSITIONS[CallPosition.SETTLED].to == set()
    assert all(CallPosition.SETTLED in POSITIONS[at].to for at in CallPosition if at is not CallPosition.SETTLED)


def test_hooks_of_each_phase_of_a_call_are_asked_in_one_position():
    asked = [row.phase for row in POSITIONS.values() if row.phase is not None]
    assert asked == [Phase.TOOL_GATE, Phase.BEFORE_TOOL_EXECUTE, Phase.AFTER_TOOL_EXECUTE]


def row_at(at, **more):
    request = CallRequest(call_id="c", tool="t", arguments={})
    return CallRow(
        call_id="c", index=0, step=1, tool="t", arguments={}, fingerprint="f", requested=request, at=at, **more
    )


@pytest.mark.parametrize("at", CallPosition)
def test_a_call_has_an_outcome_where_the_table_says_that_it_has_ended(at):
    for outcome in POSITIONS[at].outcomes if POSITIONS[at].ended else (None,):
        call = row_at(at, outcome=outcome)
        assert call.settled == POSITIONS[at].ended == (call.status in SETTLED)
        assert call.position is POSITIONS[at]


@pytest.mark.parametrize("at", [at for at in CallPosition if POSITIONS[at].status is None and not POSITIONS[at].ended])
def test_where_the_position_does_not_say_the_status_the_newest_event_of_the_call_does(at):
    """new until a body or a decision; resuming from a decision until the next body begins."""
    reported = {
        (0, None): CallStatus.NEW,
        (0, 0): CallStatus.RESUMING,
        (1, 0): CallStatus.RUNNING,
        (1, None): CallStatus.RUNNING,
        (1, 1): CallStatus.RESUMING,
        (2, 1): CallStatus.RUNNING,
    }
    for (attempts, resumed_at), status in reported.items():
        assert row_at(at, attempts=attempts, resumed_at=resumed_at).status is status


def test_the_status_moves_as_a_client_may_expect():
    """Along a path with a suspension, a lost body and a batch that clashed."""
    path = [
        (CallPosition.NEW, 0, None, None),
        (CallPosition.ALLOWED, 0, None, None),
        (CallPosition.BODY, 1, None, None),
        (CallPosition.PARKED, 1, None, None),
        (CallPosition.DECIDED, 1, None, None),
        (CallPosition.NEW, 1, 1, None),
        (CallPosition.GATING, 1, 1, None),
        (CallPosition.ALLOWED, 1, 1, None),
        (CallPosition.BODY, 2, 1, None),
        (CallPosition.MERGING, 2, 1, None),
        (CallPosition.ALLOWED, 2, 1, None),
        (CallPosition.BODY, 3, 1, None),
        (CallPosition.AFTER, 3, 1, CallStatus.SUCCEEDED),
        (CallPosition.SETTLED, 3, 1, CallStatus.SUCCEEDED),
    ]
    names = ("at", "attempts", "resumed_at", "outcome")
    statuses = [row_at(**dict(zip(names, place, strict=True))).status for place in path]
    assert statuses == [
        "new",
        "new",
        "running",
        "suspended",
        "suspended",
        *["resuming"] * 3,
        *["running"] * 4,
        *["succeeded"] * 2,
    ]
    for (source, *_), (target, *_, outcome) in pairwise(path):
        check_move("c", source, target, outcome)
    for old, new in pairwise(statuses):
        assert old is new or new in CALLS[old]
