"""Snapshots of state keys: immutable, cheap to follow up, and nothing is ever overwritten silently."""

import itertools
import tracemalloc
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map
from msgspec.structs import replace

from greenroom.actors.contract.state import Batch, KeyId, Keys, KeySpec, Scope, StateWrite, Write
from greenroom.actors.state.snapshot import EMPTY, REMEMBERED, StateSnapshot, StateValue, WriteConflict

TOTAL, SEEN, LAST = KeyId("run", "total"), KeyId("thread", "seen"), KeyId("run", "last")


def add(value: int | None, update: int) -> int:
    return (value or 0) + update


def join(value: Sequence[int] | None, update: Sequence[int]) -> list[int]:
    return sorted({*(value or ()), *update})


def broken(_value: Any, update: Any) -> Any:
    raise ValueError(f"cannot reduce {update!r}")


KEYS: Keys = {
    TOTAL: KeySpec(key=TOTAL, reduce=add),
    SEEN: KeySpec(key=SEEN, reduce=join),
    LAST: KeySpec(key=LAST),
}


def put(name: str, value: Any, scope: Scope = "run", *, persistent: bool = True) -> Write:
    """Set a key."""
    return Write(name=name, scope=scope, persistent=persistent, value=value, result=value)


def update(snapshot: StateSnapshot, key: KeyId, value: Any, keys: Keys = KEYS) -> Write:
    """Update a key, with the result that the writer saw on that snapshot."""
    spec, cell = keys[key], snapshot.cells.get(key)
    assert spec.reduce is not None
    result = spec.reduce(None if cell is None else cell.value, value)
    return Write(name=key.name, scope=key.scope, op="update", value=value, result=result)


def merged(
    snapshot: StateSnapshot, *writes: Write, base: int | None = None, by: str = "a", keys: Keys = KEYS
) -> StateSnapshot:
    """The next snapshot; the batch must not clash."""
    found = snapshot.merge(Batch(base=snapshot.revision if base is None else base, writes=writes), keys, by)
    assert isinstance(found, StateSnapshot), found
    return found


def clash(snapshot: StateSnapshot, *writes: Write, base: int, by: str = "b", keys: Keys = KEYS) -> WriteConflict:
    """The clash that a batch meets."""
    found = snapshot.merge(Batch(base=base, writes=writes), keys, by)
    assert isinstance(found, WriteConflict), found
    return found


def values(snapshot: StateSnapshot) -> dict[str, Any]:
    return {str(key): cell.value for key, cell in snapshot.cells.items()}


# --- values ----------------------------------------------------------------------------------------------------------


def test_a_reader_never_sees_a_later_write():
    first = merged(EMPTY, put("last", 1), update(EMPTY, TOTAL, 5))
    second = merged(first, put("last", 2), put("new", 0), update(first, TOTAL, 5))
    assert (values(EMPTY), values(first)) == ({}, {"last": 1, "total": 5})
    assert values(second) == {"last": 2, "total": 10, "new": 0}
    assert (EMPTY.revision, first.revision, second.revision) == (0, 1, 2)


def test_a_batch_that_clashes_leaves_no_trace():
    """Also of the writes before the one that clashes: all take effect, or none."""
    first = merged(EMPTY, put("last", 1))
    before = values(first)
    clash(first, put("other", 1), update(first, TOTAL, 1), put("last", 2), base=0)
    assert (values(first), first.revision) == (before, 1)


def test_a_run_and_its_thread_can_have_keys_of_one_name():
    first = merged(EMPTY, put("k", "mine"), put("k", "ours", "thread"))
    assert values(first) == {"k": "mine", "thread:k": "ours"}
    assert values(merged(first, put("k", "theirs", "thread"), base=1)) == {"k": "mine", "thread:k": "theirs"}


def test_the_last_write_of_a_batch_to_a_key_counts():
    assert values(merged(EMPTY, put("last", 1), put("last", 2))) == {"last": 2}


# --- merging ---------------------------------------------------------------------------------------------------------


@pytest.mark.rule("S-22")
def test_a_batch_on_keys_that_are_untouched_is_rebased():
    """However old its base is; a key that was last written at its base, or before, is untouched."""
    first = merged(EMPTY, put("a", 1), put("b", 1))
    later = merged(merged(first, put("c", 1)), put("d", 1))
    assert values(merged(later, put("a", 2), put("b", 2), base=1)) == {"a": 2, "b": 2, "c": 1, "d": 1}


def test_an_exclusive_key_that_was_touched_clashes_and_both_the_key_and_its_writer_are_named():
    first = merged(EMPTY, put("last", 1), by="call c1")
    found = clash(merged(first, put("other", 1), by="call c2"), put("last", 2), base=0)
    assert (found.key, found.by) == (LAST, "call c1")
    assert found.detail == "state key 'last' was changed meanwhile by call c1"


def test_the_key_of_a_thread_is_named_with_its_scope():
    found = clash(merged(EMPTY, put("k", 1, "thread"), by="x"), put("k", 2, "thread"), base=0)
    assert (found.key, "'thread:k'" in found.detail) == (KeyId("thread", "k"), True)


def test_setting_a_commutative_key_that_was_touched_clashes():
    """A set does not commute with anything, also after an update in the same batch."""
    first = merged(EMPTY, update(EMPTY, TOTAL, 1))
    assert clash(first, put("total", 9), base=0).key == TOTAL
    assert clash(first, update(EMPTY, TOTAL, 2), put("total", 9), base=0).key == TOTAL


def test_updates_of_one_batch_are_reduced_one_after_the_other():
    first = merged(EMPTY, update(EMPTY, TOTAL, 100), put("last", 1))
    twice = Write(name="total", op="update", value=2, result=3)
    assert values(merged(first, update(EMPTY, TOTAL, 1), twice, base=0))["total"] == 103


def test_an_unknown_reducer_is_a_clash_only_when_the_key_was_touched():
    first = merged(EMPTY, update(EMPTY, TOTAL, 1), by="x")
    assert values(merged(first, update(first, TOTAL, 1), keys={})) == {"total": 2}
    for known in ({}, {TOTAL: KeySpec(key=TOTAL)}):
        found = clash(first, update(EMPTY, TOTAL, 1), base=0, keys=known)
        assert (found.key, found.by) == (TOTAL, "x")
        assert "its reducer is not known here; name the key in Agent(state=[...])" in found.detail


def test_a_reducer_that_fails_is_a_clash_that_names_the_failure():
    first = merged(EMPTY, update(EMPTY, TOTAL, 1))
    found = clash(first, update(EMPTY, TOTAL, 7), base=0, keys={TOTAL: KeySpec(key=TOTAL, reduce=broken)})
    assert found.key == TOTAL
    assert found.detail == "the reducer of state key 'total' failed: ValueError: cannot reduce 7"


def test_a_reducer_is_asked_only_when_the_key_was_touched():
    failing = {TOTAL: KeySpec(key=TOTAL, reduce=broken)}
    assert values(merged(EMPTY, Write(name="total", op="update", value=1, result=1), keys=failing)) == {"total": 1}


@given(updates=st.lists(st.tuples(st.integers(), st.sets(st.integers(0, 9))), min_size=1, max_size=4))
def test_commutative_updates_come_to_the_same_value_in_any_order(updates):
    """Batches that were all written on one snapshot; also if it has a value already."""
    for start in (EMPTY, merged(EMPTY, update(EMPTY, TOTAL, 1), update(EMPTY, SEEN, [3]))):
        outcomes = set()
        for order in itertools.permutations(updates):
            found = start
            for number, seen in order:
                writes = (update(start, TOTAL, number), update(start, SEEN, sorted(seen)))
                found = merged(found, *writes, base=start.revision)
            outcomes.add((found.cells[TOTAL].value, tuple(found.cells[SEEN].value)))
        assert len(outcomes) == 1


# --- what a store gets, and has --------------------------------------------------------------------------------------


@pytest.mark.rule("S-35")
def test_changes_since_a_revision_are_exactly_the_later_writes():
    first = merged(EMPTY, put("a", 1), put("b", 1))
    second = merged(first, put("b", 2), put("z", 1, "thread"))
    third = merged(second, put("b", 3), put("a", 1, "thread"))
    assert third.changes(second) == (
        StateWrite(key="b", scope="run", value=3, revision=3),
        StateWrite(key="a", scope="thread", value=1, revision=3),
    )
    since_first = [(write.scope, write.key, write.value, write.revision) for write in third.changes(first)]
    assert since_first == [("run", "b", 3, 3), ("thread", "a", 1, 3), ("thread", "z", 1, 2)]
    assert len(third.changes(EMPTY)) == 4
    assert third.changes(third) == second.changes(third) == ()


def test_only_persistent_keys_are_for_the_store():
    first = merged(EMPTY, put("a", 1), put("scratch", 1, persistent=False))
    assert [write.key for write in first.changes(EMPTY)] == ["a"]
    assert first.cells[KeyId("run", "scratch")].value == 1


def test_a_snapshot_restored_from_rows_equals_the_stored_one():
    """But for what is not persistent, and for who wrote it; batches that were on their way merge as they would have."""
    first = merged(EMPTY, put("a", 1), put("scratch", 1, persistent=False), by="x")
    second = merged(first, put("b", 2, "thread"), update(first, TOTAL, 3), by="y")
    again = StateSnapshot.restored(second.revision, second.changes(EMPTY))
    assert (again.revision, values(again)) == (2, {"a": 1, "thread:b": 2, "total": 3})
    assert again.changes(EMPTY) == second.changes(EMPTY)
    assert again.changes(again) == ()
    assert values(merged(again, put("a", 5), update(first, TOTAL, 4), base=1)) == {"a": 5, "thread:b": 2, "total": 7}
    found = clash(again, put("b", 5, "thread"), base=1)
    assert (found.key, found.by) == (KeyId("thread", "b"), "")
    assert found.detail == "state key 'thread:b' was changed meanwhile by an earlier write"


def test_writes_of_another_run_of_the_thread_conflict_with_no_write():
    """It has revision 0: it was there before any batch of this run."""
    snapshot = StateSnapshot.restored(0, [StateWrite(key="last", scope="thread", value=1)])
    assert values(merged(snapshot, put("last", 2, "thread"), base=0)) == {"thread:last": 2}


# --- cost ------------------------------------------------------------------------------------------------------------

MANY = 100_000


@pytest.fixture(scope="module")
def large() -> StateSnapshot:
    return StateSnapshot.restored(0, [StateWrite(key=f"key {n}", scope="run", value=n) for n in range(MANY)])


class Counted:
    """A map that counts the cells that are looked at, and refuses to be listed."""

    def __init__(self, cells: Map[KeyId, StateValue]) -> None:
        self.cells, self.looked = cells, 0

    def get(self, key: KeyId) -> StateValue | None:
        self.looked += 1
        return self.cells.get(key)

    def __getitem__(self, key: KeyId) -> StateValue:
        self.looked += 1
        return self.cells[key]

    def mutate(self) -> Any:
        return self.cells.mutate()

    def keys(self) -> Any:
        raise AssertionError("all keys are listed")


@pytest.mark.slow
def test_merging_one_key_does_not_cost_the_size_of_the_map(large):
    """What is allocated, at most and in the end: a path through the trie, where a copy takes megabytes."""
    batch = Batch(base=0, writes=(put("key 500", "new"),))
    tracemalloc.start()
    try:
        after = large.merge(batch, {}, "x")
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(after, StateSnapshot)
    assert (kept < 10_000, peak < 20_000) == (True, True), (kept, peak)


@pytest.mark.slow
def test_all_other_cells_are_shared(large):
    after = merged(large, put("key 500", "new"))
    assert sum(after.cells[key] is not cell for key, cell in large.cells.items()) == 1


@pytest.mark.slow
def test_merges_and_changes_read_only_the_changed_keys(large):
    cells = Counted(large.cells)
    after = merged(StateSnapshot(0, cells), put("key 1", 0), put("key 2", 0))  # type: ignore[arg-type]
    assert cells.looked == 2
    cells = Counted(after.cells)
    again = StateSnapshot(after.revision, cells, after.recent)  # type: ignore[arg-type]
    assert [write.key for write in again.changes(large)] == ["key 1", "key 2"]
    assert cells.looked == 2


def test_the_history_of_a_snapshot_is_bounded():
    """And what changed before that is still found."""
    snapshots = [EMPTY]
    for n in range(3 * REMEMBERED):
        snapshots.append(merged(snapshots[-1], put(f"k{n}", n)))
    newest = snapshots[-1]
    assert len(newest.recent) == REMEMBERED
    for behind in (1, REMEMBERED - 1, REMEMBERED, REMEMBERED + 1, 3 * REMEMBERED):
        wanted = {f"k{n}" for n in range(3 * REMEMBERED - behind, 3 * REMEMBERED)}
        assert {write.key for write in newest.changes(snapshots[-1 - behind])} == wanted


# --- against a model -------------------------------------------------------------------------------------------------

NAMES = [TOTAL, SEEN, LAST, KeyId("thread", "last"), KeyId("run", "scratch")]
RULES: Keys = {key: KEYS.get(key) or KeySpec(key=key, persistent=key.name != "scratch") for key in NAMES}


@st.composite
def plans(draw: st.DrawFn) -> list[tuple[int, list[tuple[KeyId, str, int]]]]:
    """Batches: how many revisions behind each one is, and what it writes."""
    write = st.tuples(st.sampled_from(NAMES), st.sampled_from(["set", "update"]), st.integers(0, 9))
    return draw(st.lists(st.tuples(st.integers(0, 3), st.lists(write, max_size=4)), max_size=12))


def written(state: Mapping[KeyId, Any], plan: Sequence[tuple[KeyId, str, int]]) -> tuple[Write, ...]:
    """What a writer that reads that state writes."""
    seen, writes = dict(state), list[Write]()
    for key, op, number in plan:
        spec, value = RULES[key], [number] if key == SEEN else number
        reduce = spec.reduce if op == "update" else None
        seen[key] = value if reduce is None else reduce(seen.get(key), value)
        write = Write(name=key.name, scope=key.scope, persistent=spec.persistent, value=value, result=seen[key])
        writes.append(replace(write, op="set" if reduce is None else "update"))
    return tuple(writes)


def model(state: Mapping[KeyId, Any], touched: set[KeyId], writes: Sequence[Write]) -> dict[KeyId, Any] | KeyId:
    """The state after a batch, or the key that clashes; `touched` are those that changed since the batch's base."""
    after = dict(state)
    for write in writes:
        reduce = RULES[write.key].reduce
        if write.key not in touched:
            after[write.key] = write.result
        elif write.op == "set" or reduce is None:
            return write.key
        else:
            after[write.key] = reduce(after[write.key], write.value)
    return after


class Boxed(list[Any]):
    """A value with an identity: two equal values that were written by two batches are distinguished."""


@pytest.mark.slow
@given(plan=plans())
def test_random_batches_agree_with_a_dict_per_revision(plan):
    """Values, clashes, revisions, what changed since every older one, and all older snapshots as they were."""
    snapshots, states = [EMPTY], [dict[KeyId, Boxed]()]
    for behind, orders in plan:
        base = max(0, len(states) - 1 - behind)
        writes = written({key: box[0] for key, box in states[base].items()}, orders)
        plainly = [{key: box[0] for key, box in state.items()} for state in states]
        touched = {key for key in states[-1] if states[-1][key] is not states[base].get(key)}
        wanted = model(plainly[-1], touched, writes)
        found = snapshots[-1].merge(Batch(base=base, writes=writes), RULES, f"writer {len(states)}")
        if isinstance(wanted, KeyId):
            assert isinstance(found, WriteConflict)
            assert found.key == wanted
            assert found.by == snapshots[-1].cells[wanted].by
            continue
        assert isinstance(found, StateSnapshot)
        new = {write.key for write in writes}
        states.append({key: Boxed([value]) if key in new else states[-1][key] for key, value in wanted.items()})
        snapshots.append(found)
    newest = snapshots[-1]
    for revision, (snapshot, state) in enumerate(zip(snapshots, states, strict=True)):
        assert snapshot.revision == revision
        assert {key: cell.value for key, cell in snapshot.cells.items()} == {key: box[0] for key, box in state.items()}
        wanted_changes = {
            key: box[0] for key, box in states[-1].items() if box is not state.get(key) and RULES[key].persistent
        }
        assert {KeyId(w.scope, w.key): w.value for w in newest.changes(snapshot)} == wanted_changes
