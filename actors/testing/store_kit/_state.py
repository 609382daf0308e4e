"""Scenarios of the store kit: state keys, as they are now and as they were at the end of a step."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from ...abc import Store
from ...contract.state import Scope, StateWrite
from ...errors import UnknownRun
from ._tools import (
    NOW,
    Author,
    OpenStore,
    ReportLog,
    create,
    expect,
    loaded,
    new_run,
    opened,
    refused,
    reopening,
    scenario,
)


def _own(key: str, value: object, revision: int = 0) -> StateWrite:
    return StateWrite(key=key, scope="run", value=value, revision=revision)


def _shared(key: str, value: object, revision: int = 0) -> StateWrite:
    return StateWrite(key=key, scope="thread", value=value, revision=revision)


async def _write(author: Author, step: int, *state: StateWrite) -> None:
    await author.write(row=replace(author.row, step=step), state=state)


async def _now(store: Store, run_id: str) -> list[StateWrite]:
    return list((await loaded(store, run_id)).state)


async def _at(store: Store, run_id: str, step: int) -> list[StateWrite]:
    return list(await store.state_at(run_id, step))


async def _values(store: Store, run_id: str, step: int, scope: Scope = "run") -> dict[str, Any]:
    return {write.key: write.value for write in await _at(store, run_id, step) if write.scope == scope}


@scenario
async def the_newest_state_of_a_key_counts(store: Store, _: ReportLog, me: str) -> None:
    """State of the run is the run's own; state of the thread is there for the thread's next run."""
    author = await create(store, new_run(me, me))
    for revision, (step, value) in enumerate([(1, "old"), (1, "newer"), (2, {"deep": [1, None]})], 1):
        await _write(author, step, _own("own", value, revision), _shared("all", value, revision))
    deep = {"deep": [1, None]}
    expect(await _now(store, me), [_own("own", deep, 3), _shared("all", deep, 3)], "the newest value")
    await author.write(0, state=(_own("own", deep, 4),))
    expect((await _now(store, me))[0].revision, 4, "a commit without events writes state, too")
    await author.end()
    second = await create(store, new_run(f"{me}.2", me))
    expect(await _now(store, second.run_id), [_shared("all", deep)], "the thread's state stays")
    await _write(second, 1, _shared("all", 0, 1))
    expect(await _now(store, second.run_id), [_shared("all", 0, 1)], "the newest writer wins, at whatever step")


@scenario
async def what_the_commit_writes_that_begins_a_step_counts_to_the_step_before(
    store: Store, _: ReportLog, me: str
) -> None:
    """If the commit says so: it ends that step, too."""
    author = await create(store, new_run(me, me))
    await _write(author, 1, _own("k", "one", 1), _shared("s", "one", 1))
    await author.write(
        row=replace(author.row, step=2), state=(_own("k", "end of one", 2), _shared("s", "end", 2)), state_step=1
    )
    await _write(author, 2, _own("k", "two", 3))
    expect(await _values(store, me, 1), {"k": "end of one"}, "at the end of step 1")
    expect(await _values(store, me, 1, "thread"), {"s": "end"}, "the thread's, too")
    expect(await _values(store, me, 2), {"k": "two"}, "at the end of step 2")
    expect(await _now(store, me), [_own("k", "two", 3), _shared("s", "end", 2)], "now")


@scenario
async def what_the_last_commit_writes_counts_to_no_step_of_the_run(store: Store, _: ReportLog, me: str) -> None:
    """If the commit says so: hooks of run_end write when all steps are over, and the thread's next run sees it."""
    author = await create(store, new_run(me, me))
    await _write(author, 1, _own("k", "one", 1), _shared("s", "one", 1))
    await author.write(state=(_own("k", "closed", 2), _shared("s", "closed", 2)), state_step=2)
    await author.end()
    expect(await _at(store, me, 1), [_own("k", "one", 1), _shared("s", "one", 1)], "at the end of the last step")
    expect(await _now(store, me), [_own("k", "closed", 2), _shared("s", "closed", 2)], "now")
    second = await create(store, new_run(f"{me}.2", me))
    expect(await _now(store, second.run_id), [_shared("s", "closed")], "what the thread's next run finds")


@scenario
async def a_revision_is_told_to_the_run_that_wrote_it(store: Store, _: ReportLog, me: str) -> None:
    """A key that another run of the thread wrote has revision 0: its batches are not this run's."""
    author = await create(store, new_run(me, me))
    await _write(author, 1, _shared("a", 1, 7), _shared("b", 1, 8))
    await author.end()
    second = await create(store, new_run(f"{me}.2", me))
    expect(await _now(store, second.run_id), [_shared("a", 1), _shared("b", 1)], "others wrote them")
    await _write(second, 1, _shared("b", 2, 1))
    expect(await _now(store, second.run_id), [_shared("a", 1), _shared("b", 2, 1)], "one is its own now")
    expect(await _now(store, me), [_shared("a", 1, 7), _shared("b", 2)], "and the first run's is the other one")


@scenario
async def a_run_and_its_thread_can_have_keys_of_one_name(store: Store, _: ReportLog, me: str) -> None:
    """Two entries, whichever was written first; in order of scope and name."""
    author = await create(store, new_run(me, me, state=(_shared("k", "ours"), _own("k", "mine"), _own("a", None))))
    expect(await _now(store, me), [_own("a", None), _own("k", "mine"), _shared("k", "ours")], "none hides another")
    await _write(author, 1, _shared("k", "later", 1))
    after = [_own("a", None), _own("k", "mine"), _shared("k", "later", 1)]
    expect(await _now(store, me), after, "a write to one leaves the other alone")
    expect(await _at(store, me, 1), after, "also as of a step")


@scenario
async def state_is_known_as_it_was_at_the_end_of_each_step(store: Store, _: ReportLog, me: str) -> None:
    """The newest value not after the step, of both scopes; what a run is created with counts as step 0."""
    born = (_own("a", "born"), _shared("a", "born"))
    author = await create(store, new_run(me, me, state=born))
    await _write(author, 2, _own("a", "two", 1), _shared("a", "two", 1))
    await _write(author, 2, _own("a", "two again", 2))
    await _write(author, 4, _own("b", "four", 3), _shared("b", "four", 3))
    expect([await _at(store, me, step) for step in (0, 1)], [list(born)] * 2, "nothing was written before step 2")
    second = [_own("a", "two again", 2), _shared("a", "two", 1)]
    expect([await _at(store, me, step) for step in (2, 3)], [second] * 2, "the last write of a step counts")
    fourth = [_own("a", "two again", 2), _own("b", "four", 3), _shared("a", "two", 1), _shared("b", "four", 3)]
    expect([await _at(store, me, step) for step in (4, 9)], [fourth] * 2, "a value that is not written again stays")
    expect(await _now(store, me), fourth, "and that is the state now")
    await refused(UnknownRun, store.state_at(f"{me}.unknown", 0), "a run that is not there has no state")


@scenario
async def state_at_a_step_is_not_changed_by_later_runs(store: Store, _: ReportLog, me: str) -> None:
    """Before it writes a thread's key, a run has what the runs before it left; never what those after it write."""
    authors = [await create(store, new_run(f"{me}.{i}", me)) for i in range(3)]  # the later ones are held back
    for i, author in enumerate(authors):
        await _write(author, 1, _own("n", i, 1), _shared("n", i, 1), _shared(f"only {i}", i, 1))
        await _write(author, 3, _shared("n", 10 * i, 2))
        await author.end()
    before = [_shared("n", 0), _shared("only 0", 0)]
    expect(await _at(store, authors[1].run_id, 0), before, "what the first one left")
    first = [_own("n", 1, 1), _shared("n", 1, 1), _shared("only 0", 0), _shared("only 1", 1, 1)]
    expect(await _at(store, authors[1].run_id, 2), first, "what it wrote itself, and what it had found")
    expect(await _values(store, authors[1].run_id, 3, "thread"), {"n": 10, "only 0": 0, "only 1": 1}, "at its end")
    expect(await _values(store, authors[0].run_id, 0, "thread"), {}, "the first one found nothing")
    expect(await _values(store, authors[2].run_id, 0, "thread"), {"n": 10, "only 0": 0, "only 1": 1}, "the last, all")


@scenario
async def another_threads_state_is_not_seen(store: Store, _: ReportLog, me: str) -> None:
    """A thread's keys are its own, and so are a run's, also beside a run of the same thread."""
    author = await create(store, new_run(f"{me}.1", f"{me}.1"))
    await _write(author, 1, _own("k", 1, 1), _shared("k", 1, 1))
    await author.end()
    await create(store, new_run(f"{me}.2", f"{me}.2"))
    await create(store, new_run(f"{me}.3", f"{me}.1"))
    expect((await _now(store, f"{me}.2"), await _at(store, f"{me}.2", 5)), ([], []), "of another thread: nothing")
    expect(await _at(store, f"{me}.3", 5), [_shared("k", 1)], "of another run: the values of the thread")


@scenario
async def a_pruned_runs_thread_state_stays(store: Store, _: ReportLog, me: str) -> None:
    """Its own keys go; what it wrote to its thread is found there by those that come later."""
    then = NOW.replace(year=1979)
    old = await create(store, new_run(f"{me}.old", me))
    await _write(old, 1, _own("k", "mine", 1), _shared("k", "ours", 1))
    await old.end(at=then)
    young = await create(store, new_run(f"{me}.young", me))
    await _write(young, 1, _shared("k", "newer", 1))
    await store.prune(then.replace(month=12))
    await refused(UnknownRun, store.state_at(old.run_id, 1), "the run is gone")
    expect(await _at(store, young.run_id, 0), [_shared("k", "ours")], "what it left is not")
    expect(await _at(store, young.run_id, 1), [_shared("k", "newer", 1)], "until it is overwritten")
    await young.end()
    last = await create(store, new_run(f"{me}.last", me))
    expect(await _now(store, last.run_id), [_shared("k", "newer")], "a run to come begins with the newest")
    expect(await _at(store, last.run_id, 1), [_shared("k", "newer")], "whatever the pruned one had written")


@scenario
async def prune_takes_no_state_from_the_runs_that_stay(store: Store, _: ReportLog, me: str) -> None:
    """Whichever goes: the first one, one between two others, the last one."""
    then = NOW.replace(year=1979)
    for pruned in range(4):
        authors = [await create(store, new_run(f"{me}.{pruned}.{i}", f"{me}.{pruned}")) for i in range(4)]
        for i, author in enumerate(authors):
            for step in (1, 2):
                await _write(author, step, _shared("n", [i, step], step), _shared(f"only {i}", step, step))
            await author.end(at=then if i == pruned else then.replace(year=1981))
        remaining_runs = [author.run_id for i, author in enumerate(authors) if i != pruned]
        before = [[await _at(store, run_id, step) for step in range(3)] for run_id in remaining_runs]
        await store.prune(then.replace(year=1980))
        after = [[await _at(store, run_id, step) for step in range(3)] for run_id in remaining_runs]
        expect(after, before, f"without run {pruned} the others have what they had")
        await store.prune(then.replace(year=1982))
        last = await create(store, new_run(f"{me}.{pruned}.last", f"{me}.{pruned}"))
        expect(await _now(store, last.run_id), [], "with the last run the thread's state is gone")


@reopening
async def state_outlives_an_opening(open_store: OpenStore, me: str) -> None:
    """Values of every step, and their revisions."""
    first = open_store()
    async with opened(first):
        author = await create(first, new_run(me, me, state=(_own("k", 0),)))
        for step in (1, 2):
            await _write(author, step, _own("k", step, step), _shared("k", step, step))
        states = [await _at(first, me, step) for step in range(3)]
    second = open_store()
    async with opened(second):
        expect([await _at(second, me, step) for step in range(3)], states, "each step is as it was")
        expect(await _now(second, me), [_own("k", 2, 2), _shared("k", 2, 2)], "and so is the newest")
