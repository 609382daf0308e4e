"""What calls write to state: merged in the model's order or dropped with a report, and never lost."""

import operator
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import force_setattr

from greenroom.actors.contract import events as ev
from greenroom.actors.contract.calls import CallPosition
from greenroom.actors.contract.decisions import Allow, Block
from greenroom.actors.contract.lifecycle import Stage
from greenroom.actors.contract.messages import CallRequest
from greenroom.actors.contract.phases import Phase
from greenroom.actors.contract.spec import MODES, AgentSpec, ToolSpec
from greenroom.actors.contract.state import KeyId, KeySpec
from greenroom.actors.engine.inputs import PhaseDone
from greenroom.actors.engine.state import Transition
from greenroom.actors.state.access import WritableState
from greenroom.actors.state.keys import StateKey, commutative
from greenroom.actors.state.snapshot import StateSnapshot

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
PARALLEL = ["parallel_batch_approval", "parallel_streaming"]
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


# --- when, and in which order ----------------------------------------------------------------------------------------


def test_in_sequential_mode_each_body_sees_the_writes_of_earlier_bodies() -> None:
    w = world("keep", "keep", mode="sequential")
    wrote(w, "A", put(LAST, "a"), more(TOTAL, 1))
    state = WritableState(w.running("B").state)
    assert (state[LAST], state[TOTAL]) == ("a", 1)
    wrote(w, "B", put(LAST, "b"), more(TOTAL, 2))
    assert (values(w), conflicts(w), merged(w)) == ({"last": "b", "total": 3}, [], ["A", "B"])


@pytest.mark.parametrize("mode", PARALLEL)
@pytest.mark.parametrize("order", ["ABC", "CBA", "BCA"])
def test_side_by_side_batches_are_held_and_merged_in_the_models_order(mode: str, order: str) -> None:
    w = world("keep", "keep", "keep", mode=mode)
    for call_id in order:
        assert merged(w) == []
        wrote(w, call_id, more(SEEN, [call_id]), more(TOTAL, 1))
    assert values(w) == {"thread:seen": ["A", "B", "C"], "total": 3}
    assert merged(w) == ["A", "B", "C"]


def test_a_result_and_its_batch_are_durable_when_the_body_ends() -> None:
    w = world("keep", "keep")
    wrote(w, "B", put(LAST, "b"))
    (done,) = results(w, "B")
    assert (done.attempts, w.store.calls["B"].batch is not None, values(w)) == (1, True, {})


@pytest.mark.parametrize("mode", PARALLEL)
def test_of_an_exclusive_key_the_later_batch_is_dropped_whole_and_every_writer_is_informed(mode: str) -> None:
    w = world("keep", "keep", mode=mode)
    wrote(w, "B", put(LAST, "b"), put(OTHER, "b"), more(TOTAL, 10))
    wrote(w, "A", put(LAST, "a"), more(TOTAL, 1))
    assert values(w) == {"last": "a", "total": 1}
    (one,) = conflicts(w)
    assert (one.key, one.writer, one.other, one.retried) == ("last", "B", "A", False)
    note = "ok\n(state_conflict: state key 'last' was changed meanwhile by A. What this call wrote to state was dropped"
    assert w.tool_texts()["B"].startswith(note)
    assert (w.tool_texts()["A"], results(w, "B")[0].result) == ("ok", "ok")


def test_a_batch_is_merged_after_an_earlier_batch_conflicted() -> None:
    w = world("keep", "keep", "keep")
    wrote(w, "C", put(OTHER, "c"))
    wrote(w, "B", put(LAST, "b"))
    wrote(w, "A", put(LAST, "a"))
    assert (values(w), merged(w), len(conflicts(w))) == ({"last": "a", "other": "c"}, ["A", "C"], 1)


def test_a_reducer_that_raises_drops_the_batch_and_says_so() -> None:
    w = world("keep", "keep")
    wrote(w, "A", more(SEEN, ["a"]))
    with pytest.raises(RuntimeError, match="too much"):
        wrote(w, "B", more(SEEN, ["burst"]))
    state = WritableState(w.running("B").state)
    state.update(SEEN, ["b"])
    batch = state.batch()
    assert batch is not None
    force_setattr(batch.writes[0], "value", ["burst"])
    w.returns("B", batch=batch)
    assert values(w) == {"thread:seen": ["a"]}
    assert conflicts(w)[0].detail == "the reducer of state key 'thread:seen' failed: RuntimeError: too much"


def test_a_suspended_body_does_not_hold_up_the_merge() -> None:
    w = world("keep", "keep", "keep")
    wrote(w, "A", put(LAST, "a"))
    w.suspends("B")
    assert merged(w) == []
    wrote(w, "C", put(OTHER, "c"))
    assert (merged(w), w.row.stage) == (["A", "C"], Stage.NEEDS_APPROVAL)
    w.decide("B")
    assert WritableState(w.running("B").state)[LAST] == "a"
    wrote(w, "B", put(LAST, "b"))
    assert (values(w)["last"], conflicts(w)) == ("b", [])


@pytest.mark.parametrize("mode", list(MODES))
def test_a_barrier_call_runs_alone_and_sees_all_earlier_writes(mode: str) -> None:
    w = world("keep", "keep", "alone", "keep", mode=mode)
    wrote(w, "A", put(LAST, "a"))
    wrote(w, "B", more(TOTAL, 1))
    seen = WritableState(w.running("C").state)
    assert (seen[LAST], seen[TOTAL]) == ("a", 1)
    wrote(w, "C", put(LAST, "c"))
    assert WritableState(w.running("D").state)[LAST] == "c"


# --- retry -----------------------------------------------------------------------------------------------------------


def test_a_tool_that_retries_runs_again_alone_on_the_merged_state() -> None:
    w = world("keep", "retry", "keep")
    wrote(w, "B", put(LAST, "b"))
    assert (w.state.calls["B"].at, results(w, "B")) == (CallPosition.MERGING, [])
    wrote(w, "C", more(TOTAL, 1))
    wrote(w, "A", put(LAST, "a"))
    again = w.running("B")
    assert (again.attempt, WritableState(again.state)[LAST], values(w)["total"]) == (2, "a", 1)
    wrote(w, "B", put(LAST, "b2"))
    assert values(w)["last"] == "b2"
    assert [one.retried for one in conflicts(w)] == [True]
    assert [(result.attempts, result.result) for result in results(w, "B")] == [(2, "ok")]
    assert w.tool_texts()["B"] == "ok"


def test_of_two_that_retry_each_runs_alone_in_the_models_order() -> None:
    w = world("keep", "retry", "retry")
    for call_id in "CBA":
        wrote(w, call_id, put(LAST, call_id.lower()))
    assert [key[1] for key in w.outstanding] == ["B"]
    wrote(w, "B", put(LAST, "b2"))
    assert WritableState(w.running("C").state)[LAST] == "b2"
    wrote(w, "C", put(LAST, "c2"))
    assert (values(w)["last"], merged(w)) == ("c2", ["A", "B", "C"])


def test_a_retry_may_fail_or_wait_and_has_written_nothing() -> None:
    w = world("keep", "retry", "retry")
    for call_id in "ABC":
        wrote(w, call_id, put(LAST, call_id))
    w.raises("B")
    w.suspends("C")
    assert (values(w), w.row.stage) == ({"last": "A"}, Stage.NEEDS_APPROVAL)
    w.decide("C")
    wrote(w, "C", put(LAST, "C2"))
    assert (values(w), w.statuses()["B"]) == ({"last": "C2"}, "failed")


def test_without_a_clash_a_tool_that_retries_ends_at_the_merge() -> None:
    w = world("keep", "retry")
    wrote(w, "B", more(TOTAL, 1))
    w.now = w.now.replace(second=5)
    wrote(w, "A", more(TOTAL, 1))
    assert (values(w), [result.attempts for result in results(w, "B")]) == ({"total": 2}, [1])


# --- crashes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", PARALLEL)
def test_a_decided_call_continues_when_the_earlier_call_is_merged(mode: str) -> None:
    w = world("retry", "swear", mode=mode)
    w.decide("B")
    wrote(w, "A", put(LAST, "a"))
    assert (w.statuses(), w.running("B").state.revision) == ({"A": "succeeded", "B": "running"}, 1)


@pytest.mark.parametrize("first", ["keep", "retry"])
def test_a_crash_loses_neither_a_held_batch_nor_merges_it_twice(first: str) -> None:
    w = world(first, "keep")
    wrote(w, "A", more(TOTAL, 1), more(SEEN, ["a"]))
    w.crash()
    assert (merged(w), values(w)) == (["A"], {"total": 1, "thread:seen": ["a"]})
    wrote(w, "B", more(TOTAL, 1), more(SEEN, ["b"]))
    assert values(w) == {"total": 2, "thread:seen": ["a", "b"]}
    w.crash()
    assert values(w) == {"total": 2, "thread:seen": ["a", "b"]}


def test_a_clash_is_found_after_a_crash_too() -> None:
    """The other writer is not known any more, if it was merged before the crash."""
    w = world("keep", "keep", "once", keys={})
    wrote(w, "A", put(LAST, "a"))
    wrote(w, "B", put(LAST, "b"))
    w.crash()
    assert (values(w), [(conflict.writer, conflict.other) for conflict in conflicts(w)]) == (
        {"last": "a"},
        [("B", "A")],
    )


def test_a_retry_that_was_cut_off_runs_again_alone() -> None:
    w = world("keep", "retry")
    wrote(w, "B", put(LAST, "b"))
    wrote(w, "A", put(LAST, "a"))
    w.crash()
    assert (w.running("B").attempt, w.state.calls["B"].alone) == (3, True)
    wrote(w, "B", put(LAST, "b3"))
    assert (values(w)["last"], [result.attempts for result in results(w, "B")]) == ("b3", [3])


@pytest.mark.parametrize("declared", [True, False])
def test_updates_of_a_key_that_is_not_declared_cannot_be_merged_after_a_crash(declared: bool) -> None:
    """And the text says what to do about it."""
    spec = KeySpec(key=KeyId("run", "total"), reduce=operator.add)
    w = world("keep", "keep", "once", keys=KEYS if declared else {})
    wrote(w, "A", more(TOTAL, 1), keys={spec.key: spec})
    wrote(w, "B", more(TOTAL, 2), keys={spec.key: spec})
    w.crash()
    if declared:
        assert (values(w), conflicts(w)) == ({"total": 3}, [])
    else:
        assert values(w) == {"total": 1}
        assert conflicts(w)[0].detail.endswith("its reducer is not known here; name the key in Agent(state=[...])")


def test_without_a_crash_the_reducer_comes_with_the_writes() -> None:
    spec = KeySpec(key=KeyId("run", "total"), reduce=operator.add)
    w = world("keep", "keep", keys={})
    wrote(w, "A", more(TOTAL, 1), keys={spec.key: spec})
    wrote(w, "B", more(TOTAL, 2))
    assert values(w) == {"total": 3}


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


# --- the way out -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tool", ["keep", "retry"])
@pytest.mark.parametrize("how", ["cancel", "fail", "crash"])
def test_writes_of_ended_calls_stay_when_the_run_fails_or_is_cancelled(tool: str, how: str) -> None:
    w = world(tool, tool, "fatal")
    wrote(w, "B", put(LAST, "b"), more(TOTAL, 1))
    wrote(w, "A", put(LAST, "a"), more(TOTAL, 1))
    if how == "fail":
        w.raises("C", fatal=True)
    else:
        w.cancel()
    if how == "crash":
        w.crash()
    if how != "fail":  # nothing was in flight any more
        w.stopped()
    w.check_end()
    assert values(w) == {"last": "a", "total": 1}
    assert [(conflict.writer, conflict.retried) for conflict in conflicts(w)] == [("B", False)]
    assert "state_conflict" in w.tool_texts()["B"]
    assert len(results(w, "B")) == 1


def test_writes_of_a_body_that_ends_during_its_cancel_count() -> None:
    w = world("keep", "keep")
    w.cancel()
    w.outstanding |= w.dying
    wrote(w, "A", more(TOTAL, 1))
    del w.outstanding["call", "B"]
    w.stopped()
    assert (w.statuses(), values(w)) == ({"A": "succeeded", "B": "cancelled"}, {"total": 1})


AFTER = frozenset({Phase.AFTER_TOOL_EXECUTE})


@pytest.mark.parametrize("how", ["cancel", "crash"])
def test_a_call_whose_after_hooks_are_cut_off_has_written(how: str) -> None:
    w = world("keep", "keep", hooked=AFTER)
    wrote(w, "A", more(TOTAL, 1))
    assert w.state.calls["A"].at is CallPosition.AFTER
    w.cancel()
    if how == "crash":
        w.crash()
    w.stopped()
    assert (w.statuses()["A"], values(w)) == ("succeeded", {"total": 1})


# --- gates -----------------------------------------------------------------------------------------------------------


def test_a_provisional_gate_is_asked_again_on_the_state_of_the_calls_before_it() -> None:
    """Also if their after_tool_execute hooks take their time."""
    w = world("keep", "keep", "keep", hooked=AFTER | {Phase.TOOL_GATE})
    w.phase(Phase.TOOL_GATE, "A", verdict=Allow())
    w.phase(Phase.TOOL_GATE, "B", verdict=Block("not before A"))
    w.phase(Phase.TOOL_GATE, "C", verdict=Allow())
    assert w.state.calls["B"].at is CallPosition.PROVISIONAL
    wrote(w, "A", put(LAST, "open"))
    assert not any(key[:2] == ("phase", "tool_gate") for key in w.outstanding)
    w.phase(Phase.AFTER_TOOL_EXECUTE, "A")
    asked = next(effect for key, effect in w.outstanding.items() if key[:2] == ("phase", "tool_gate"))
    assert values_of(asked.state) == {"last": "open"}  # type: ignore[union-attr]


def test_a_gate_is_not_final_while_calls_before_it_may_write_or_have_written() -> None:
    before = Phase.BEFORE_TOOL_EXECUTE
    w = world("keep", "keep", "keep", hooked=frozenset({Phase.TOOL_GATE, before}), max_bodies=2)
    for call_id in "ABC":
        w.phase(Phase.TOOL_GATE, call_id, verdict=Allow())
    batch = WritableState()
    batch.set(OTHER, "hook")
    w.phase(before, "A", batch=batch.batch())
    w.phase(before, "B")
    wrote(w, "A", put(LAST, "open"))
    w.phase(Phase.TOOL_GATE, "C", verdict=Block("closed"), revision=1)
    assert (w.state.calls["C"].at, w.ended) == (CallPosition.PROVISIONAL, False)
    wrote(w, "B")
    (asked,) = w.outstanding.values()
    assert values_of(asked.state) == {"other": "hook", "last": "open"}  # type: ignore[union-attr]
    w.phase(Phase.TOOL_GATE, "C", verdict=Allow(), revision=2)
    w.phase(before, "C")
    assert w.running("C").attempt == 1


def test_calls_that_were_allowed_on_an_older_state_are_asked_about_again() -> None:
    w = world("keep", "keep", mode="sequential", hooked=frozenset({Phase.TOOL_GATE}))
    w.phase(Phase.TOOL_GATE, "A", verdict=Allow())
    w.phase(Phase.TOOL_GATE, "B", verdict=Allow())
    wrote(w, "A", put(LAST, "closed"))
    (asked,) = w.outstanding.values()
    assert values_of(asked.state) == {"last": "closed"}  # type: ignore[union-attr]
    w.answer(PhaseDone(phase=Phase.TOOL_GATE, step=1, call_id="B", verdict=Allow(), revision=1))
    assert w.running("B").attempt == 1


def values_of(snapshot: StateSnapshot) -> dict[str, Any]:
    return {str(key): cell.value for key, cell in snapshot.cells.items()}


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
