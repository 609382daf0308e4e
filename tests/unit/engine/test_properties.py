"""What holds for every life of a run, whatever answers, commands and accidents come, in whatever order.

The promises are checked by the simulated owner after each input (`world.py`) and by the fold of the events (`fold.py`).
Lengthen the search with GREENROOM_CHAOS=full; a failing example names spec, seed and number of moves, and can be played
again with them.
"""

import random
from typing import Any

import attrs
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from greenroom.actors.contract import stop
from greenroom.actors.contract.phases import Phase
from greenroom.actors.contract.spec import MODES, AgentSpec

from .chaos import HANDOFFS, PREPARED_TOOLS, TOOLS, Chaos
from .world import OWN, World
from .writers import KEYS

pytestmark = pytest.mark.no_cover

STOPS = (
    stop.MaxRounds(4),
    stop.MaxRounds(None),
    stop.Timeout(60.0),
    stop.TokenBudget(150),
    stop.ConsecutiveErrors(2),
    stop.StopOnTool("write"),
    stop.ContentMatch("final"),
    stop.LoopDetection(2),
)


def checked(text: str) -> tuple[Any, str | None]:
    return (None, "$: say more") if text in ("", "hm") else ({"said": text}, None)


specs = st.builds(
    AgentSpec,
    key=st.just("a"),
    tools=st.sampled_from((TOOLS, PREPARED_TOOLS)),
    stop=st.lists(st.sampled_from(STOPS), max_size=3).map(tuple),
    hooked=st.one_of(
        st.just(frozenset()), st.frozensets(st.sampled_from(list(Phase))), st.just(frozenset({Phase.TOOL_GATE}))
    ),
    tool_use=st.sampled_from(("run_model_again", "stop_on_first_tool", frozenset({"read", "pay"}))),
    on_deny=st.sampled_from(("continue", "cancel_run")),
    on_new_input=st.sampled_from(("queue", "supersede")),
    on_unknown_tool=st.sampled_from(("return", "return", "raise")),
    check_output=st.sampled_from((lambda text: (text, None), checked)),
    keys=st.sampled_from((KEYS, {})),
    max_bodies=st.sampled_from((1, 2, 16)),
    max_tasks=st.sampled_from((1, 2, 16)),
    input_guardrails=st.sampled_from(((), (), ("i",), ("i", "j"))),
    blocking_guardrails=st.sampled_from(((), (), ("b",))),
    output_guardrails=st.sampled_from(((), (), ("o",))),
)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [*MODES, OWN], ids=[*MODES, "own"])
@settings(max_examples=settings.default.max_examples * 3)
@given(
    spec=specs,
    seed=st.integers(0, 2**32 - 1),
    moves=st.integers(0, 150),
    deadline=st.sampled_from((None, None, 600.0)),
    admitted=st.booleans(),
    lazy=st.booleans(),
)
def test_every_life_of_a_run_keeps_every_promise(
    mode: Any, spec: AgentSpec, seed: int, moves: int, deadline: float | None, admitted: bool, lazy: bool
) -> None:
    world = World(spec, execution=mode, deadline=deadline, admitted=admitted, lazy=lazy)
    try:
        Chaos(world, seed).play(moves)
    except BaseException:
        note("\n".join(world.trace))
        raise


def joined(first: AgentSpec, seed: int) -> AgentSpec:
    """The first of three agents that hand their runs over to each other; the others differ from it by lot."""
    rng, graph = random.Random(seed), dict[str, AgentSpec]()
    for key in "abc":
        own = attrs.evolve(first, key=key, tools={**TOOLS, **HANDOFFS}, handoffs=True)
        if key != "a":
            hooked = frozenset(rng.sample(list(Phase), rng.randrange(len(Phase))))
            judges = rng.choice(((), ("o",)))
            own = attrs.evolve(own, hooked=hooked, output_guardrails=judges, tool_use="run_model_again", stop=())
        graph[key] = attrs.evolve(own.within(first, first.keys), graph=graph)
    return graph["a"]


@pytest.mark.slow
@pytest.mark.parametrize("mode", [*MODES, OWN], ids=[*MODES, "own"])
@settings(max_examples=max(settings.default.max_examples // 2, 1))
@given(
    spec=specs,
    seed=st.integers(0, 2**32 - 1),
    moves=st.integers(0, 150),
    deadline=st.sampled_from((None, None, 600.0)),
    lazy=st.booleans(),
)
def test_every_life_of_a_run_that_is_handed_over_keeps_every_promise(
    mode: Any, spec: AgentSpec, seed: int, moves: int, deadline: float | None, lazy: bool
) -> None:
    world = World(joined(spec, seed), execution=mode, deadline=deadline, lazy=lazy)
    try:
        Chaos(world, seed).play(moves)
    except BaseException:
        note("\n".join(world.trace))
        raise
    events = world.store.events[1:]  # the first is no draft: run.created
    handed = [event.payload for event in events if event.type == "run.handoff"]
    agents = ["a", *(payload.to_agent for payload in handed)]
    assert [payload.from_agent for payload in handed] == agents[:-1]
    for payload in handed:
        ended = [
            event.payload.status
            for event in events
            if event.type == "run.tool.result" and event.payload.call_id == payload.call_id
        ]
        assert ended == ["succeeded"]
    over = iter(agents)
    active = next(over)
    waiting = False
    for event in events:
        if event.type == "run.handoff":
            assert not waiting
            waiting = True
        elif event.type == "run.step.started":
            active, waiting = (next(over), False) if waiting else (active, False)
            assert event.payload.agent == (None if active == "a" else active)
