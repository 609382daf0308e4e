"""The one place that moves a call refuses what the table does not have, and the property test finds who asks for it."""

from collections.abc import Callable
from itertools import product
from typing import Any

import attrs
import msgspec
import pytest

from greenroom.actors.contract.calls import POSITIONS, CallStatus
from greenroom.actors.contract.lifecycle import IllegalTransition
from greenroom.actors.contract.messages import CallRequest
from greenroom.actors.contract.phases import CallAt, Phase
from greenroom.actors.contract.rows import CallRow
from greenroom.actors.contract.spec import AgentSpec
from greenroom.actors.engine import bodies, calls, decisions, ending, gates
from greenroom.actors.engine.state import StepBuilder

from .chaos import TOOLS, Chaos
from .world import World
from .writers import KEYS

REQUEST = CallRequest(call_id="c", tool="read", arguments={})
ROW = CallRow(call_id="c", index=0, step=0, tool="read", arguments={}, fingerprint="f", requested=REQUEST)


def outcome_at(at: CallAt, source: CallAt) -> CallStatus | None:
    """An outcome that fits both positions, if the call has ended at the first."""
    both = POSITIONS[source].outcomes & POSITIONS[at].outcomes
    return min(both) if POSITIONS[at].ended and both else None


@pytest.mark.parametrize(("source", "target"), [*product(CallAt, CallAt)], ids=lambda at: at.value)
def test_a_call_row_is_moved_as_the_table_says(source: CallAt, target: CallAt) -> None:
    """Staying is no move; what moved in this input already is refused no less."""
    w = World(AgentSpec(key="a", tools=TOOLS))
    row = attrs.evolve(ROW, at=source, outcome=outcome_at(source, source))
    state = msgspec.structs.replace(w.state, calls={"c": row})
    outcome = row.outcome if source is target else outcome_at(target, source)
    for touched in (False, True):
        builder = StepBuilder(w.spec, state, w.now)
        known = builder.put(row, shown="seen") if touched else row
        if source is target or target in POSITIONS[source].to:
            assert builder.put(known, at=target, outcome=outcome).at is target
        else:
            with pytest.raises(IllegalTransition, match=f"call c: {source} -> {target}"):
                builder.put(known, at=target, outcome=outcome)
            assert builder.calls["c"].at is source
    assert row.at is source


def test_an_outcome_does_not_change() -> None:
    w = World(AgentSpec(key="a", tools=TOOLS))
    row = attrs.evolve(ROW, at=CallAt.SETTLED, outcome=CallStatus.FAILED)
    builder = StepBuilder(w.spec, msgspec.structs.replace(w.state, calls={"c": row}), w.now)
    with pytest.raises(IllegalTransition):
        builder.put(row, outcome=CallStatus.SUCCEEDED)


def test_a_call_that_is_not_there_begins_new() -> None:
    w = World(AgentSpec(key="a", tools=TOOLS))
    with pytest.raises(IllegalTransition, match="call c: nothing -> body"):
        StepBuilder(w.spec, w.state, w.now).put(attrs.evolve(ROW, at=CallAt.BODY))


# --- planted ---------------------------------------------------------------------------------------------------------


def _begun_at_once(builder: StepBuilder, call: CallRow) -> None:
    """A call that needs no gate skips the question whether it may start now."""
    builder.put(call, at=CallAt.BODY, attempts=call.attempts + 1)


def _let_go(builder: StepBuilder, call: CallRow, decision: object) -> None:
    """An approved call is allowed without its gates."""
    builder.put(call, at=CallAt.ALLOWED)


def _opened_again(builder: StepBuilder, *, again: bool = True, before: CallRow | None = None) -> bool:
    """A call that has ended runs again."""
    for call in builder.calls.values():
        if call.settled:
            builder.put(call, at=CallAt.ALLOWED, outcome=None)
    return False


PLANTED: dict[str, tuple[list[Any], str, Callable[..., Any]]] = {
    "new -> body": ([gates], "_allow", _begun_at_once),
    "held -> allowed": ([decisions], "_resume", _let_go),
    "settled -> allowed": ([calls, ending, gates], "merge_held", _opened_again),
    "allowed -> merging": ([bodies], "start_body", lambda builder, call: builder.put(call, at=CallAt.MERGING)),
}


def lives(spec: AgentSpec) -> None:
    """Some of the lives that the property test plays."""
    for seed in range(200):
        Chaos(World(spec, execution="parallel_streaming"), seed).play(60)


@pytest.mark.parametrize("move", PLANTED)
def test_a_planted_illegal_move_is_found_by_the_property_test(monkeypatch: pytest.MonkeyPatch, move: str) -> None:
    modules, name, bug = PLANTED[move]
    for module in modules:
        monkeypatch.setattr(module, name, bug)
    spec = AgentSpec(key="a", tools=TOOLS, hooked=frozenset({Phase.STEP_END}), keys=KEYS)
    with pytest.raises(IllegalTransition, match=f"call .*: {move} is not in the table"):
        lives(spec)
