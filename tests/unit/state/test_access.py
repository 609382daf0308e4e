"""Reading and writing state: own writes are seen, nothing is shared, and what cannot count is an error."""

import operator
from typing import Any

import pytest

import greenroom as gr
from greenroom.actors.contract.state import Batch, KeyId
from greenroom.actors.errors import StateError
from greenroom.actors.state.access import LIMIT, State, WritableState, declared
from greenroom.actors.state.keys import StateKey, commutative
from greenroom.actors.state.snapshot import EMPTY, StateSnapshot

NAME = StateKey("name", str, default="-")
BARE = StateKey("bare", int)
TOTAL = StateKey("total", int, default=0, merge=commutative(operator.add))
NAMES = StateKey("names", list[str], default=[], merge=commutative(lambda value, more: [*value, more], str))
OURS = StateKey("name", str, default="ours", scope="thread")
FRAIL = StateKey("frail", int, default=1, merge=commutative(operator.floordiv))


def after(*batches: Batch | None) -> StateSnapshot:
    """A snapshot with these batches, one after the other."""
    snapshot = EMPTY
    for batch in batches:
        assert batch is not None
        found = snapshot.merge(batch, {}, "somebody")
        assert isinstance(found, StateSnapshot)
        snapshot = found
    return snapshot


def test_assigning_an_attribute_or_item_of_state_is_an_error() -> None:
    state: Any = WritableState()
    with pytest.raises(AttributeError, match="name"):
        state.name = "lost"
    with pytest.raises(TypeError, match="item assignment"):
        state[NAME] = "lost"


@pytest.mark.parametrize(
    "make",
    [
        lambda state: gr.ToolContext(state=state),
        lambda state: gr.SyncToolContext(state=state),
        lambda state: gr.PhaseContext(phase=gr.Phase.RUN_START, state=state),
    ],
)
def test_a_context_that_is_made_by_hand_takes_no_dict_for_state(make: Any) -> None:
    with pytest.raises(
        gr.UsageError, match=r"Context\(state=\{'name': 'x'\}\): make a gr.WritableState\(\) and give it"
    ):
        make({"name": "x"})
    state = WritableState()
    state.set(NAME, "x")
    assert make(state).state[NAME] == "x"


@pytest.mark.rule("S-1")
def test_before_the_first_write_there_is_the_default() -> None:
    state = State()
    assert (state[NAME], state[TOTAL], state[NAMES], NAME in state) == ("-", 0, [], False)
    with pytest.raises(StateError, match="state key 'bare' has not been written and has no default"):
        state[BARE]


def test_a_body_reads_what_it_has_written_and_no_other_body_does() -> None:
    state = WritableState()
    state.set(NAME, "x")
    state.update(TOTAL, 2)
    state.update(TOTAL, 3)
    state.update(NAMES, "a")
    assert (state[NAME], state[TOTAL], state[NAMES], NAME in state) == ("x", 5, ["a"], True)
    assert State(EMPTY)[NAME] == "-"


def test_state_copies_the_values_that_it_takes_and_returns() -> None:
    key = StateKey("k", dict[str, Any])
    state = WritableState()
    given: dict[str, Any] = {"a": [1]}
    state.set(key, given)
    given["a"].append("given")
    state[key]["a"].append("read")
    assert state[key] == {"a": [1]}
    later = State(after(state.batch()))
    later[key]["a"].append("read")
    assert later[key] == {"a": [1]}


def test_a_run_and_its_thread_have_keys_of_one_name() -> None:
    state = WritableState()
    state.set(NAME, "mine")
    assert (state[NAME], state[OURS]) == ("mine", "ours")


def test_nothing_written_is_no_batch() -> None:
    state = WritableState()
    assert state[NAME] == "-"
    assert (state.batch(), dict(state.used)) == (None, {})


def test_a_batch_has_its_base_and_all_writes_in_order() -> None:
    first = WritableState()
    first.set(NAME, "x")
    state = WritableState(after(first.batch()))
    state.update(TOTAL, 2)
    state.update(TOTAL, 3)
    state.set(NAME, "y")
    batch = state.batch()
    assert batch is not None
    assert batch.base == state.revision == 1
    assert [(write.name, write.op, write.value) for write in batch.writes] == [
        ("total", "update", 2),
        ("total", "update", 3),
        ("name", "set", "y"),
    ]
    assert state.used == {KeyId("run", "total"): TOTAL.spec, KeyId("run", "name"): NAME.spec}


def test_of_a_key_that_is_updated_often_only_the_last_result_is_kept() -> None:
    """A list that grows would be in the row in each of its lengths."""
    state = WritableState()
    for _ in range(100):
        state.update(NAMES, "a")
    batch = state.batch()
    assert batch is not None
    assert [write.result for write in batch.writes] == [None] * 99 + [["a"] * 100]
    assert State(after(batch))[NAMES] == ["a"] * 100


def test_a_write_that_is_refused_has_written_nothing() -> None:
    state = WritableState()
    state.set(NAME, "x")
    with pytest.raises(StateError, match="state key 'name': 3 is no str: expected str, not int 3"):
        state.set(NAME, 3)  # type: ignore[misc]
    with pytest.raises(StateError, match="update of state key 'total': 'x' is no int"):
        state.update(TOTAL, "x")
    with pytest.raises(StateError, match="exclusive and takes no updates"):
        state.update(NAME, "x")
    with pytest.raises(ZeroDivisionError):
        state.update(FRAIL, 0)
    with pytest.raises(StateError, match="has not been written and has no default"):
        state.update(StateKey("new", int, merge=commutative(operator.add)), 1)
    batch = state.batch()
    assert batch is not None
    assert len(batch.writes) == 1


def test_there_is_a_limit_to_the_writes_of_one_body() -> None:
    state = WritableState()
    for _ in range(LIMIT):
        state.set(NAME, "x")
    with pytest.raises(StateError, match=f"more than {LIMIT} writes to state at once; write each key once, at the end"):
        state.set(NAME, "y")
    assert state[NAME] == "x"


@pytest.mark.rule("S-10")
@pytest.mark.parametrize("known", [True, False])
def test_two_keys_of_one_name_are_an_error(known: bool) -> None:
    """Also if they are alike: one of them may have another reducer."""
    state = WritableState(EMPTY, declared([NAME], "here") if known else None)
    if not known:
        state.set(NAME, "x")
    twin = StateKey("name", str, default="-")
    for act in (lambda: state[twin], lambda: state.set(twin, "x"), lambda: twin in state):
        with pytest.raises(StateError, match="there are two state keys named 'name'; declare one, import it where it"):
            act()
    assert state[OURS] == "ours"


def test_declaring_two_keys_of_one_name_is_an_error() -> None:
    assert set(declared([NAME, OURS, NAME], "here")) == {NAME.id, OURS.id}
    with pytest.raises(StateError, match="here: two different state keys are named 'name'; rename one"):
        declared([NAME, StateKey("name", int)], "here")
    with pytest.raises(StateError, match="here: 'name' is no state key; make one with"):
        declared(["name"], "here")  # type: ignore[list-item]


def test_an_access_without_a_state_key_is_an_error() -> None:
    with pytest.raises(StateError, match=r"'name' is no state key; make one with gr\.StateKey"):
        State()["name"]  # type: ignore[index]
    with pytest.raises(StateError, match="3 is no state key"):
        WritableState().set(3, 1)  # type: ignore[arg-type]


def test_a_closed_state_is_read_only() -> None:
    state = WritableState()
    state.set(NAME, "x")
    state.close("the body has ended")
    for act in (lambda: state.set(NAME, "y"), lambda: state.update(TOTAL, 1)):
        with pytest.raises(StateError, match="cannot be written: the body has ended"):
            act()
    assert state[NAME] == "x"


def test_a_copy_and_a_view_continue_on_their_own() -> None:
    state = WritableState()
    state.update(TOTAL, 1)
    other, view = state.copy(), state.view()
    other.update(TOTAL, 1)
    state.update(TOTAL, 5)
    assert (state[TOTAL], other[TOTAL], view[TOTAL]) == (6, 2, 1)
    assert not isinstance(view, WritableState)
    found = [batch.writes[-1].result for batch in (state.batch(), other.batch()) if batch is not None]
    assert found == [6, 2]


def test_the_repr_of_a_state_names_its_class_and_content() -> None:
    state = WritableState()
    state.set(NAME, "secret")
    assert repr(State(after(state.batch()))) == "<State at revision 1: 1 keys>"


# --- contexts that a unit test makes ---------------------------------------------------------------------------------


@gr.tool
async def count(ctx: gr.ToolContext, by: int = 1) -> int:
    ctx.state.update(TOTAL, by)
    return ctx.state[TOTAL]


@gr.tool
def count_in_a_thread(ctx: gr.SyncToolContext) -> int:
    ctx.state.update(TOTAL, 1)
    return ctx.state[TOTAL]


@pytest.mark.rule("S-38")
async def test_a_tool_is_tested_with_a_context_of_ones_own() -> None:
    ctx = gr.ToolContext()
    assert [await count(ctx), await count(ctx, 3)] == [1, 4]
    assert ctx.state[TOTAL] == 4
    assert gr.ToolContext().state[TOTAL] == 0


@pytest.mark.rule("S-38")
async def test_and_with_the_state_that_the_test_wants() -> None:
    state = gr.WritableState()
    state.set(TOTAL, 10)
    assert await count(gr.ToolContext(state=state)) == 11
    assert count_in_a_thread(gr.SyncToolContext(state=state)) == 12
