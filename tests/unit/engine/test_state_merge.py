"""What calls write to state: merged in the model's order or dropped with a report, and never lost."""

import operator
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from greenroom.actors.contract import events as ev
from greenroom.actors.contract.calls import CallPosition
from greenroom.actors.contract.messages import CallRequest
from greenroom.actors.contract.spec import MODES, AgentSpec, ToolSpec
from greenroom.actors.contract.state import KeyId, KeySpec
from greenroom.actors.engine.state import Transition
from greenroom.actors.state.access import WritableState
from greenroom.actors.state.keys import StateKey, commutative

from .world import World, call


def plus(value: list[str], more: list[str]) -> list[str]:
    if "burst" in more:
        raise RuntimeError("too much")
    return [*value, *more]


LAST = StateKey("last", str, default="")
OTHER = StateKey("other", str, default="")
TOTAL = StateKey("total", int, default=0, merge=commutative(operator.add))
SEEN = StateKey("seen", list[str], default=[], merge=commutative(plus), scope="thread")
KEYS = {key.id: key.spec for key in (LAST, OTHER, TOTAL, SEEN)}
TOOLS = (
    ToolSpec(name="keep", replay_safe=True),
    ToolSpec(name="once"),
    ToolSpec(name="retry", replay_safe=True, on_conflict="retry"),
    ToolSpec(name="alone", replay_safe=True, concurrency="exclusive"),
    ToolSpec(name="order", replay_safe=True, concurrency="ordered"),
    ToolSpec(name="sign", gate="always"),
    ToolSpec(name="swear", gate="always", concurrency="exclusive"),
    ToolSpec(name="fatal", fatal=True),
)


def world(*tools: str, mode: str = "parallel_streaming", **more: Any) -> World:
    """A run whose model has called these tools, as A, B, C, ..."""
    more = {"keys": KEYS, **more}
    w = World(AgentSpec(key="a", tools={tool.name: tool for tool in TOOLS}, **more), execution=mode)  # type: ignore[arg-type]
    w.says(calls=[call(chr(ord("A") + number), tool) for number, tool in enumerate(tools)])
    return w


Act = Callable[[WritableState], None]


def put(key: StateKey[Any], value: Any) -> Act:
    return lambda state: state.set(key, value)


def more(key: StateKey[Any], value: Any) -> Act:
    return lambda state: state.update(key, value)


def wrote(w: World, call_id: str, *acts: Act, keys: Any = None) -> Transition:
    """The call's body does this on the state that it was given, and returns."""
    state = WritableState(w.running(call_id).state)
    for act in acts:
        act(state)
    return w.returns(call_id, batch=state.batch(), keys=keys or {})


def values(w: World) -> dict[str, Any]:
    return {str(key): cell.value for key, cell in w.state.snapshot.cells.items()}


def merged(w: World) -> list[str]:
    """Whose batches were merged, in order."""
    return [event.payload.by for event in w.store.events[1:] if event.type == "run.state.changed"]


def conflicts(w: World) -> list[ev.StateConflict]:
    return [event.payload for event in w.store.events[1:] if event.type == "run.state.conflict"]


def results(w: World, call_id: str) -> list[ev.ToolResult]:
    found = (event.payload for event in w.store.events[1:] if event.type == "run.tool.result")
    return [one for one in found if one.call_id == call_id]


# --- cost -----------------------------------------------------------------------------------------------------------


class OneByOne(dict[KeyId, KeySpec]):
    """Keys of which not all are read."""

    def keys(self) -> Any:
        raise AssertionError("all declared keys were looked through")

    __iter__ = items = values = keys


def test_the_cost_of_a_merge_depends_on_the_written_keys_only() -> None:
    w = world("keep", "keep", keys=OneByOne(KEYS))
    wrote(w, "A", more(TOTAL, 1), put(LAST, "a"), keys={KEYS[TOTAL.id].key: KEYS[TOTAL.id]})
    wrote(w, "B", more(TOTAL, 2))
    assert (values(w), dict(w.state.keys)) == ({"total": 3, "last": "a"}, {})


# --- everything at once ----------------------------------------------------------------------------------------------


class Author:
    """Bodies that write at random, and what they wrote, read and received.

    Attributes:
        made: call -> what its newest body that has returned wrote: key -> (value before, token).
    """

    def __init__(self, w: World, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self.w, self.draw = w, draw
        self.made: dict[str, dict[str, tuple[Any, str]]] = {}

    def returns(self, call_id: str) -> None:
        start = self.w.running(call_id)
        state, made = WritableState(start.state), {}
        for key in self.draw(st.sets(st.sampled_from([LAST, OTHER, TOTAL, SEEN]))):
            token = f"{call_id}{start.attempt}"
            made[str(key.id)] = (state[key], token)
            match key.name:
                case "total":
                    state.update(TOTAL, 1)
                case "seen":
                    state.update(SEEN, [token])
                case _:
                    state.set(key, token)
        self.made[call_id] = made
        self.w.returns(call_id, batch=state.batch())

    def act(self) -> None:
        """One thing happens."""
        w = self.w
        calls = [key[1] for key in w.outstanding if key[0] == "call"]
        tickets = [c.call_id for c in w.state.calls.values() if c.at is CallPosition.PARKED]
        kinds = ["returns"] * 4 * bool(calls) + ["raises", "suspends"] * bool(calls) + ["decides"] * 2 * bool(tickets)
        match self.draw(st.sampled_from([*kinds, "crash"])):
            case "returns":
                self.returns(self.draw(st.sampled_from(calls)))
            case "raises":
                w.raises(self.draw(st.sampled_from(calls)))
            case "suspends":
                w.suspends(self.draw(st.sampled_from(calls)))
            case "decides":
                w.decide(self.draw(st.sampled_from(tickets)))
            case _:
                w.crash()


def finish(author: Author, w: World, cancel_at: int | None) -> None:
    for number in range(60):
        if w.ended or any(key[0] == "model" for key in w.outstanding):
            break
        if number == cancel_at:
            w.cancel()
            w.stopped()
            break
        author.act()
    else:
        w.cancel()
        w.stopped()
    if not w.ended:
        w.says("done")
    w.check_end()


@pytest.mark.slow
@settings(max_examples=settings.default.max_examples * 3)
@given(
    tools=st.lists(st.sampled_from(["keep", "retry", "alone", "order", "once", "sign"]), min_size=1, max_size=5),
    mode=st.sampled_from(list(MODES)),
    cancel_at=st.one_of(st.none(), st.integers(0, 12)),
    data=st.data(),
)
def test_every_write_is_in_the_state_or_reported(tools: list[str], mode: str, cancel_at: int | None, data: Any) -> None:
    w = world(*tools, mode=mode)
    author = Author(w, data.draw)
    finish(author, w, cancel_at)
    succeeded = {name for name, status in w.statuses().items() if status == "succeeded"}
    reported, texts = merged(w), w.tool_texts()
    dropped = [conflict.writer for conflict in conflicts(w) if not conflict.retried]
    assert len(reported) == len(set(reported)), "a batch was merged twice"
    assert not set(reported) & set(dropped)
    for name in succeeded:
        wrote_something = bool(author.made[name])
        assert wrote_something == (name in reported or name in dropped)
        assert (name in dropped) == ("state_conflict" in texts[name])
        assert len(results(w, name)) == 1
    assert set(reported) | set(dropped) <= succeeded
    expected: dict[str, Any] = {}
    for name in reported:
        for key, (before, token) in author.made[name].items():
            if key == "total":
                expected[key] = expected.get(key, 0) + 1
            elif key == "thread:seen":
                expected[key] = [*expected.get(key, []), token]
            else:
                assert before == expected.get(key, ""), "a write was overwritten by somebody who had not seen it"
                expected[key] = token
    assert values(w) == expected
    assert {str(key): write.value for key, write in w.store.state.items()} == expected
    if mode == "sequential":
        assert dropped == []


def requests(*names: str) -> list[CallRequest]:
    return [call(name, "keep") for name in names]


def test_more_batches_than_a_snapshot_remembers_are_stored_all() -> None:
    spec = AgentSpec(key="a", tools={tool.name: tool for tool in TOOLS}, keys=KEYS, max_bodies=100)
    w = World(spec, execution="parallel_streaming")
    names = [f"c{number}" for number in range(90)]
    w.says(calls=requests(*names))
    for name in names:
        key = StateKey(name, int)
        wrote(w, name, put(key, 1))
    assert len(w.store.state) == 90
