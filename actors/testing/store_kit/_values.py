"""Scenarios of the store kit: values beside the runs, written by compare-and-set."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Final, cast

import trio

from ...abc import Store, ValueStore
from ...errors import UsageError
from ...stored_values import BYTES_LIMIT, PAGE_BYTES, PAGE_LIMIT, WRITES_LIMIT, StoredValue, ValueWrite
from ._tools import (
    NOW,
    OpenStore,
    Pair,
    ReportLog,
    create,
    expect,
    new_run,
    opened,
    refused,
    reopening,
    scenario,
    shared,
)

with_values: Final = partial(scenario, values=True)
reopening_with_values: Final = partial(reopening, values=True)
shared_with_values: Final = partial(shared, values=True)

Contents = list[tuple[str, bytes]]


def _writes(store: Store) -> ValueStore:
    return cast(ValueStore, store)


async def _all(store: Store, space: str, limit: int = 100) -> Sequence[StoredValue]:
    """Return all values of a space, page by page."""
    values: list[StoredValue] = []
    last = ""
    while page := await _writes(store).values(space, after=last, limit=limit):
        expect(page[0].name > last, True, f"a page begins behind {last!r}")
        values += page
        last = page[-1].name
    return values


async def _contents(store: Store, space: str, limit: int = 100) -> Contents:
    return [(value.name, value.value) for value in await _all(store, space, limit)]


async def _revision(store: Store, space: str, name: str) -> int:
    return next(value.revision for value in await _all(store, space) if value.name == name)


async def _set(store: Store, *writes: tuple[str, str, bytes | None, int]) -> bool:
    return await _writes(store).set_values(writes)


@with_values
async def a_value_is_written_at_its_expected_revision(store: Store, _: ReportLog, me: str) -> None:
    """A new name at revision 0, a value at the one that it has; any other write is refused and changes nothing."""
    expect(await _contents(store, me), [], "a space is empty until it is written")
    expect(await _set(store, (me, "a", b"one", 0)), True, "a new name")
    first = await _revision(store, me, "a")
    expect(first > 0, True, "a value has a revision")
    expect(await _set(store, (me, "a", b"other", 0)), False, "the name is not new any more")
    expect(await _set(store, (me, "b", b"other", first)), False, "a name without a value has no revision")
    expect(await _contents(store, me), [("a", b"one")], "a refused write changes nothing")
    expect(await _set(store, (me, "a", b"two", first)), True, "the revision that the value has")
    expect(await _set(store, (me, "a", b"three", first)), False, "it has another one now")
    expect(await _contents(store, me), [("a", b"two")], "the newest value")


@with_values
async def a_set_is_written_whole_or_not(store: Store, _: ReportLog, me: str) -> None:
    """One write that does not fit refuses all of them, whichever it is, in whatever spaces they are."""
    other = f"{me}.other"
    expect(await _set(store, (me, "a", b"1", 0), (other, "a", b"2", 0), (me, "b", b"3", 0)), True, "all are new")
    revisions = {name: await _revision(store, me, name) for name in ("a", "b")}
    before = await _all(store, me), await _all(store, other)
    right = [ValueWrite(me, "c", b"x"), ValueWrite(me, "b", b"x", revisions["b"])]
    at = 1 << 52
    unfit = ValueWrite(me, "a", b"x"), ValueWrite(me, "z", b"x", 7), ValueWrite(other, "a", None, at)
    for wrong in (*unfit, ValueWrite(me, "z", None, 7)):
        for writes in ([wrong, *right], [*right, wrong]):
            expect(await _set(store, *writes), False, f"{wrong} does not fit")
            expect((await _all(store, me), await _all(store, other)), before, "and nothing is written")
    changes = (me, "a", None, revisions["a"]), (me, "b", b"4", revisions["b"]), (me, "c", b"5", 0)
    expect(await _set(store, *changes), True, "removed, changed and new")
    expect((await _contents(store, me), await _contents(store, other)), ([("b", b"4"), ("c", b"5")], [("a", b"2")]), "")


@with_values
async def a_removed_name_is_new_again(store: Store, _: ReportLog, me: str) -> None:
    """No later write of the name has the revision of an earlier one."""
    revisions = []
    for _round in range(3):
        expect(await _set(store, (me, "a", b"", 0)), True, "the name has no value")
        revisions.append(await _revision(store, me, "a"))
        expect(await _set(store, (me, "a", None, revisions[-1])), True, "it is removed at its revision")
        expect(await _contents(store, me), [], "and gone")
        expect(await _set(store, (me, "a", b"x", revisions[-1])), False, "its revision is of the past")
    expect(len(set(revisions)), 3, "each write has a revision of its own")


@with_values
async def pages_of_values_are_ordered_by_name(store: Store, _: ReportLog, me: str) -> None:
    """By code points, behind the name that is given, which need not exist; each space for itself."""
    names = ["a", "B", "a/1", "a/10", "a/2", "é", "か", "😀", "~"]
    await _set(store, *((me, name, name.encode(), 0) for name in names))
    await _set(store, *((f"{me}2", name, b"of another space", 0) for name in names))
    in_order = sorted(names)
    for limit in (1, 2, len(names), 100):
        expect([name for name, _ in await _contents(store, me, limit)], in_order, f"pages of {limit}")
    for after in ("", "a", "a/", "a/1", "b", "😀"):
        page = await _writes(store).values(me, after=after, limit=2)
        expect([value.name for value in page], [name for name in in_order if name > after][:2], f"behind {after!r}")


@with_values
async def a_page_of_large_values_ends_early(store: Store, _: ReportLog, me: str) -> None:
    """With the value that reaches 4 MiB; the rest is on the next pages."""
    for name in "abcde":
        expect(await _set(store, (me, name, name.encode() * BYTES_LIMIT, 0)), True, "a value may have 2 MiB")
    first = await _writes(store).values(me)
    expect(len(first), PAGE_BYTES // BYTES_LIMIT, "values of the first page")
    expect([name for name, _ in await _contents(store, me)], list("abcde"), "all are on some page")
    await _set(store, *((me, value.name, None, value.revision) for value in await _all(store, me)))


@with_values
async def invalid_values_are_refused(store: Store, _: ReportLog, me: str) -> None:
    """Before anything is written, by a UsageError."""
    fit = (me, "fit", b"", 0)
    unfit: list[tuple[object, ...]] = [
        *((space, "a", b"", 0) for space in ("", "x" * 65, "a\0", "\ud800", None)),
        *((me, name, b"", 0) for name in ("", "x" * 513, "é" * 257, "a\nb", "a\0", "\ud800", 7)),
        *((me, "a", value, 0) for value in ("text", bytearray(b"x"), bytes(BYTES_LIMIT + 1), None)),
        *((me, "a", b"", revision) for revision in (-1, 1.0, True, None, "1")),
        fit,
    ]
    for write in unfit:
        await refused(UsageError, _set(store, fit, write), f"{write!r:.80}")  # type: ignore[arg-type]
    await refused(UsageError, _set(store), "a set has a write")
    many = [(me, f"{number}", b"", 0) for number in range(WRITES_LIMIT + 1)]
    await refused(UsageError, _set(store, *many), "a set has so many writes")
    large = [(me, name, bytes(BYTES_LIMIT), 0) for name in "abcde"]
    await refused(UsageError, _set(store, *large), "and so many bytes")
    for limit in (0, PAGE_LIMIT + 1, True, "1"):
        await refused(UsageError, _writes(store).values(me, limit=limit), f"limit {limit!r}")  # type: ignore[arg-type]
    expect(await _contents(store, me), [], "nothing is written")


@with_values
async def values_stay_when_runs_are_pruned(store: Store, _: ReportLog, me: str) -> None:
    """They are of no run."""
    await _set(store, (me, "a", b"stays", 0))
    author = await create(store, new_run(me, me))
    await author.end(at=NOW.replace(year=1976))
    result = await store.prune(NOW.replace(year=1976) + timedelta(days=1))
    expect(result.runs > 0, True, "the run is gone")
    expect(await _contents(store, me), [("a", b"stays")], "the value is not")


@with_values
async def of_writers_that_meet_one_wins(store: Store, _: ReportLog, me: str) -> None:
    """Each value is written by one of those that expect the same revision, each set by one writer whole."""
    await _race([store] * 6, me)


async def _race(stores: Sequence[Store], me: str) -> None:
    for turn in range(5):
        revisions = {value.name: value.revision for value in await _all(stores[0], me)}
        winners: list[bytes] = []

        async def write(
            store: Store, text: bytes, revisions: dict[str, int] = revisions, winners: list[bytes] = winners
        ) -> None:
            writes = [ValueWrite(me, name, text, revisions.get(name, 0)) for name in ("a", "b")]
            if await _writes(store).set_values(writes):
                winners.append(text)

        async with trio.open_nursery() as nursery:
            for number, store in enumerate(stores):
                nursery.start_soon(write, store, b"%d.%d" % (turn, number))
        expect(len(winners), 1, "one of the writers wins")
        for store in stores:
            expect(await _contents(store, me), [("a", winners[0]), ("b", winners[0])], "and its set is whole")


@reopening_with_values
async def values_outlive_an_opening(open_store: OpenStore, me: str) -> None:
    """With their revisions."""
    first = open_store()
    async with opened(first):
        await _set(first, (me, "a", b"one", 0), (me, "b", b"two", 0))
        before = await _all(first, me)
        await _set(first, (me, "b", None, before[1].revision))
    second = open_store()
    async with opened(second):
        expect(list(await _all(second, me)), list(before[:1]), "what was written and not removed")
        expect(await _set(second, (me, "a", b"three", before[0].revision), (me, "b", b"new", 0)), True, "and goes on")
        expect(await _revision(second, me, "b") != before[1].revision, True, "a revision is not given again")


@shared_with_values()
async def each_process_reads_the_values_of_the_others(pair: Pair) -> None:
    """As soon as they are written; and of two processes that write a value one wins."""
    expect(await _set(pair.a, (pair.me, "x", b"one", 0)), True, "one process writes")
    expect(await _contents(pair.b, pair.me), [("x", b"one")], "the other reads")
    expect(await _set(pair.b, (pair.me, "x", b"two", 0)), False, "and knows that the name is not new")
    expect(await _set(pair.b, (pair.me, "x", None, await _revision(pair.b, pair.me, "x"))), True, "it may remove it")
    expect(await _contents(pair.a, pair.me), [], "for the first one, too")
    await _race([pair.a, pair.b] * 3, pair.me)


@shared_with_values("lose_answer")
async def a_set_whose_answer_is_lost_is_written_once(pair: Pair) -> None:
    """The store recognises what it has written, and says so."""
    pair.steering.lose_answer(pair.a)
    expect(await _set(pair.a, (pair.me, "x", b"one", 0), (pair.me, "y", b"one", 0)), True, "new names")
    first = await _all(pair.b, pair.me)
    pair.steering.lose_answer(pair.a)
    changes = [(pair.me, "x", b"two", first[0].revision), (pair.me, "y", None, first[1].revision)]
    expect(await _set(pair.a, *changes), True, "values at their revision")
    expect(await _contents(pair.b, pair.me), [("x", b"two")], "each is written")
    pair.steering.lose_answer(pair.a)
    expect(await _set(pair.a, *changes), False, "of the past")
