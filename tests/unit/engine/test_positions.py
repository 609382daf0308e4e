"""The one place that moves a call refuses what the table does not have, and the property test finds who asks for it."""

import random
from collections.abc import Callable
from itertools import product
from typing import Any

import attrs
import msgspec
import pytest
from msgspec.structs import replace

from greenroom.actors.contract.calls import POSITIONS, CallPosition, CallStatus, check_move
from greenroom.actors.contract.decisions import Deny
from greenroom.actors.contract.lifecycle import IllegalTransition
from greenroom.actors.contract.messages import CallRequest
from greenroom.actors.contract.phases import Phase
from greenroom.actors.contract.rows import CallRow
from greenroom.actors.contract.spec import MODES, AgentSpec, ToolSpec
from greenroom.actors.engine import calls, decisions, gates, state, termination, tool_bodies
from greenroom.actors.engine.state import StepBuilder
from greenroom.actors.engine.step_calls import StepCalls

from .chaos import TOOLS, Chaos
from .world import OWN, World, call
from .writers import KEYS

REQUEST = CallRequest(call_id="c", tool="read", arguments={})
ROW = CallRow(call_id="c", index=0, step=0, tool="read", arguments={}, fingerprint="f", requested=REQUEST)


def outcome_at(at: CallPosition, source: CallPosition) -> CallStatus | None:
    """An outcome that fits both positions, if the call has ended at the first."""
    both = POSITIONS[source].outcomes & POSITIONS[at].outcomes
    return min(both) if POSITIONS[at].ended and both else None


@pytest.mark.parametrize(("source", "target"), [*product(CallPosition, CallPosition)], ids=lambda at: at.value)
def test_a_call_row_is_moved_as_the_table_says(source: CallPosition, target: CallPosition) -> None:
    """Staying is no move; what moved in this input already is refused no less."""
    w = World(AgentSpec(key="a", tools=TOOLS))
    row = replace(ROW, at=source, outcome=outcome_at(source, source))
    before = msgspec.structs.replace(w.state, calls=StepCalls([row]))
    outcome = row.outcome if source is target else outcome_at(target, source)
    for touched in (False, True):
        builder = StepBuilder(w.spec, before, w.now)
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
    row = replace(ROW, at=CallPosition.SETTLED, outcome=CallStatus.FAILED)
    builder = StepBuilder(w.spec, msgspec.structs.replace(w.state, calls=StepCalls([row])), w.now)
    with pytest.raises(IllegalTransition):
        builder.put(row, outcome=CallStatus.SUCCEEDED)


def test_a_call_that_is_not_there_begins_new() -> None:
    w = World(AgentSpec(key="a", tools=TOOLS))
    with pytest.raises(IllegalTransition, match="call c: nothing -> body"):
        StepBuilder(w.spec, w.state, w.now).put(replace(ROW, at=CallPosition.BODY))


# --- planted ---------------------------------------------------------------------------------------------------------


def _begun_at_once(builder: StepBuilder, call: CallRow) -> None:
    """A call that needs no gate skips the question whether it may start now."""
    builder.put(call, at=CallPosition.BODY, attempts=call.attempts + 1)


def _let_go(builder: StepBuilder, call: CallRow, ticket: object, decision: object) -> None:
    """An approved call is allowed without its gates."""
    builder.put(call, at=CallPosition.ALLOWED)


def _opened_again(builder: StepBuilder, *, again: bool = True, before: CallRow | None = None) -> bool:
    """A call that has ended runs again."""
    for row in builder.calls.values():
        if row.settled:
            builder.put(row, at=CallPosition.ALLOWED, outcome=None)
    return False


PLANTED: dict[str, tuple[list[Any], str, Callable[..., Any]]] = {
    "new -> body": ([gates], "_allow", _begun_at_once),
    "decided -> allowed": ([decisions], "release", _let_go),
    "settled -> allowed": ([calls, termination, gates], "merge_pending", _opened_again),
    "allowed -> merging": (
        [tool_bodies],
        "start_body",
        lambda builder, call: builder.put(call, at=CallPosition.MERGING),
    ),
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


# --- every move that the table allows is made ------------------------------------------------------------------------

BEFORE, AFTER = Phase.BEFORE_TOOL_EXECUTE, Phase.AFTER_TOOL_EXECUTE
PAY, LOOK, LATER = call("A", "pay"), call("L", "look"), call("M", "look")


def asked(*requests: CallRequest, execution: Any = "sequential", **more: Any) -> World:
    """A run whose model has asked for these calls, of tools that a release may change."""
    tools = (
        ToolSpec(name="look", replay_safe=True, definition="1"),
        ToolSpec(name="pay", effect="publish", gate="always", definition="1"),
        ToolSpec(name="job", background=True),
    )
    w = World(AgentSpec(key="a", tools={tool.name: tool for tool in tools}, **more), execution=execution)
    w.says(calls=requests)
    return w


def released(w: World) -> None:
    """The owner is gone, and the next one has other definitions of the tools."""
    tools = {name: attrs.evolve(tool, definition=tool.definition and "2") for name, tool in w.spec.tools.items()}
    w.spec = attrs.evolve(w.spec, tools=tools)
    w.crash()


def _allowed_new() -> None:
    released(asked(LOOK, LATER))


def _allowed_parked() -> None:
    w = asked(LOOK, PAY)
    w.decide("A")
    released(w)
    assert w.ticket("A").status == "open"


def _before_parked() -> None:
    w = asked(PAY, hooked=frozenset({BEFORE}))
    w.decide("A")
    released(w)
    assert w.ticket("A").status == "open"


def _held_parked() -> None:
    w = asked(PAY, call("B", "pay"), execution="parallel_batch_approval")
    w.decide("A")
    released(w)
    assert w.ticket("A").status == "open"


def test_a_call_whose_question_is_asked_afresh_is_parked_once_and_when_the_question_is_durable() -> None:
    w = asked(PAY)
    before = len(w.trace)
    released(w)
    w.ack_all()
    parked = [line for line in w.trace[before:] if "=> ParkCall(" in line]
    assert len(parked) == 1
    assert "durable=True" in parked[0]


def _without_room(*hooked: Phase) -> World:
    """The run may have one background task, and two are called."""
    return asked(
        call("J", "job"), call("K", "job"), execution="parallel_streaming", hooked=frozenset(hooked), max_tasks=1
    )


def _before_after() -> None:
    w = _without_room(BEFORE, AFTER)
    w.phase(BEFORE, "J")
    w.phase(BEFORE, "K")
    assert w.state.calls["K"].code == "too_many_tasks"


def _allowed_after() -> None:
    w = _without_room(AFTER)
    assert w.state.calls["K"].code == "too_many_tasks"


def _before_new() -> None:
    w = asked(LOOK, hooked=frozenset({BEFORE}))
    w.phase(BEFORE, "L", failure="plugin 'p': no")


def _before_settled() -> None:
    w = asked(LOOK, hooked=frozenset({BEFORE}))
    w.cancel()
    w.stopped()
    w.check_end()


def _provisional_settled() -> None:
    w = asked(LOOK, LATER, hooked=frozenset({Phase.TOOL_GATE}))
    w.phase(Phase.TOOL_GATE, "L")
    w.phase(Phase.TOOL_GATE, "M", verdict=Deny("not yet"))
    w.cancel()
    w.stopped()
    w.check_end()


RARE: dict[tuple[CallPosition, CallPosition], Callable[[], None]] = {
    (CallPosition.ALLOWED, CallPosition.NEW): _allowed_new,
    (CallPosition.ALLOWED, CallPosition.PARKED): _allowed_parked,
    (CallPosition.ALLOWED, CallPosition.AFTER): _allowed_after,
    (CallPosition.BEFORE, CallPosition.NEW): _before_new,
    (CallPosition.BEFORE, CallPosition.PARKED): _before_parked,
    (CallPosition.BEFORE, CallPosition.AFTER): _before_after,
    (CallPosition.BEFORE, CallPosition.SETTLED): _before_settled,
    (CallPosition.DECIDED, CallPosition.PARKED): _held_parked,
    (CallPosition.PROVISIONAL, CallPosition.SETTLED): _provisional_settled,
}
"""Moves that the lives of the property test seldom make."""


@pytest.fixture
def moves(monkeypatch: pytest.MonkeyPatch) -> set[tuple[CallPosition | None, CallPosition]]:
    """The moves that were asked for, and allowed."""
    made: set[tuple[CallPosition | None, CallPosition]] = set()

    def check(call_id: str, source: CallPosition | None, target: CallPosition, outcome: CallStatus | None) -> None:
        check_move(call_id, source, target, outcome)
        made.add((source, target))

    monkeypatch.setattr(state, "check_move", check)
    return made


@pytest.mark.parametrize("move", RARE, ids=" to ".join)
def test_a_rare_move_is_made(
    moves: set[tuple[CallPosition | None, CallPosition]], move: tuple[CallPosition, CallPosition]
) -> None:
    RARE[move]()
    assert move in moves


@pytest.mark.slow
def test_every_move_of_the_table_is_made_by_some_scene(moves: set[tuple[CallPosition | None, CallPosition]]) -> None:
    every = {(at, target) for at, row in POSITIONS.items() for target in row.to} - set(RARE)
    for seed in range(400):
        drawn = random.Random(seed)
        hooked = frozenset(phase for phase in Phase if drawn.random() < 0.5)
        spec = AgentSpec(key="a", tools=TOOLS, hooked=hooked, keys=KEYS)
        Chaos(World(spec, execution=(*MODES, OWN)[seed % (len(MODES) + 1)]), seed).play(100)
        if every <= moves:
            return
    assert every - moves == set()
