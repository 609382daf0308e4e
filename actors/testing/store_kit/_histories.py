"""Scenarios of the store kit: lists of threads, and pages of their messages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import attrs
from msgspec.structs import replace

from ...abc import Store
from ...contract.lifecycle import Stage
from ...contract.messages import Message, Producer
from ...contract.threads.lists import HistoryPage, HistoryQuery, ThreadQuery
from ...errors import UsageError
from ._tools import NOW, Author, ReportLog, create, expect, frame, message, new_run, refused, scenario, ticket_row

THEN = datetime(1983, 6, 1, tzinfo=UTC)
"""When what is pruned in these scenarios has ended; no other scenario has runs of that time."""


async def _author(store: Store, run_id: str, thread: str, by: str, *, minute: int = 0, title: str = "") -> Author:
    new = new_run(run_id, thread, created_at=NOW + timedelta(minutes=minute))
    return await create(store, replace(new, info=replace(new.info, by=by, title=title)))


async def _listed(store: Store, query: ThreadQuery) -> list[str]:
    """The threads of a whole list, in its order, read page by page."""
    names: list[str] = []
    while True:
        page = await store.threads(query)
        names += [line.thread_id for line in page.threads]
        if page.cursor is None:
            return names
        query = attrs.evolve(query, cursor=page.cursor)


def _said(run_id: str, number: int, text: str = "") -> Message:
    return replace(message(f"{run_id}.m{number}", text), producer=Producer(run_id=run_id, step=number))


async def _part(store: Store, thread: str, **query: int) -> tuple[list[int], HistoryPage]:
    page = await store.history(thread, HistoryQuery(**query))
    assert page is not None  # noqa: S101 - a kit's verdict: the thread has runs
    return [position for position, _ in page.messages], page


@scenario
async def threads_are_listed_in_the_order_of_their_newest_runs(store: Store, _: ReportLog, me: str) -> None:
    """The thread with the newest run is first; each thread is in the list once, on one page."""
    for n, (thread, by) in enumerate((("a", "ann"), ("b", "bob"), ("a", "bob"), ("c", "ann"), ("b", "ann"))):
        author = await _author(store, f"{me}.{n}", f"{me}.{thread}", f"{me}.{by}", minute=n, title=f"the {n}.")
        await author.end()
    for limit in (1, 2, 50):
        mine = await _listed(store, ThreadQuery(limit=limit))
        names = [name.removeprefix(f"{me}.") for name in mine if name.startswith(f"{me}.")]
        expect(names, ["b", "c", "a"], f"the newest first, {limit} on a page")
        lines = await _listed(store, ThreadQuery(by=f"{me}.bob", limit=limit))
        expect(lines, [f"{me}.a", f"{me}.b"], "of one principal, in the order of its own runs")
    line = (await store.threads(ThreadQuery(by=f"{me}.bob", limit=1))).threads[0]
    facts = (line.thread_id, line.owner, line.created_at, line.runs, line.title, line.newest_at, line.run.run_id)
    at = NOW + timedelta(minutes=2)
    expect(facts, (f"{me}.a", f"{me}.ann", NOW, 2, "the 0.", at, f"{me}.2"), "its facts, and its newest run")
    await refused(UsageError, store.threads(ThreadQuery(limit=0)), "a page has lines")
    await refused(UsageError, store.threads(ThreadQuery(cursor="x")), "a cursor is from a page")
    page = await store.threads(ThreadQuery(by=f"{me}.ann", limit=1))
    other = ThreadQuery(by=f"{me}.bob", cursor=page.cursor)
    await refused(UsageError, store.threads(other), "and belongs to its query")


@scenario
async def a_listed_thread_has_the_run_that_it_is_at(store: Store, _: ReportLog, me: str) -> None:
    """The oldest unfinished run with its questions, else the newest run; a thread without runs is in no list."""
    first = await _author(store, f"{me}.1", me, me)
    second = new_run(f"{me}.2", me)
    await store.create_run(replace(second, info=replace(second.info, by=me)), frame(f"{me}.2", 1))
    ticket = ticket_row(f"{me}.1", 1, "c1")
    await first.write(row=replace(first.row, stage=Stage.NEEDS_APPROVAL), tickets=(ticket,))
    (line,) = (await store.threads(ThreadQuery(by=me))).threads
    facts = (line.run.run_id, line.run.stage, line.run.asked_count, line.title)
    expect(facts, (f"{me}.1", Stage.NEEDS_APPROVAL, 1, f"{me}.1"), "the run that asks, not the one that waits for it")
    await first.end(at=THEN)
    (line,) = (await store.threads(ThreadQuery(by=me))).threads
    expect((line.run.run_id, line.run.held), (f"{me}.2", False), "the next one, once the first is done")
    await store.prune(THEN + timedelta(days=1))
    (line,) = (await store.threads(ThreadQuery(by=me))).threads
    expect((line.runs, line.title), (2, f"{me}.2"), "pruned runs count, and leave no title")
    alone = await _author(store, f"{me}.3", f"{me}.alone", me)
    await alone.end(at=THEN)
    expect(len(await _listed(store, ThreadQuery(by=me))), 2, "two threads")
    await store.prune(THEN + timedelta(days=1))
    expect(await _listed(store, ThreadQuery(by=me)), [me], "one of them without a run")


@scenario
async def the_threads_of_child_runs_are_in_no_list(store: Store, _: ReportLog, me: str) -> None:
    """They are no conversations; they shorten no page, and their history can be read."""
    for n in range(4):
        await _author(store, f"{me}.{n}", f"{me}.{n}", me)
        child = new_run(f"{me}.{n}.c", f"{me}.{n}.c")
        await create(store, replace(child, info=replace(child.info, by=me, parent_run=f"{me}.{n}", parent_call="c")))
    page = await store.threads(ThreadQuery(by=me, limit=2))
    expect([line.thread_id for line in page.threads], [f"{me}.3", f"{me}.2"], "a whole page")
    expect(await _listed(store, ThreadQuery(by=me, limit=2)), [f"{me}.{n}" for n in (3, 2, 1, 0)], "and the others")
    expect((await _part(store, f"{me}.3.c"))[0], [], "the history of a child run is there")


@scenario
async def a_history_is_read_in_pages_both_ways(store: Store, _: ReportLog, me: str) -> None:
    """Positions count from 1; a page has the newest messages, those before a position, or those behind one."""
    expect(await store.history(me, HistoryQuery()), None, "a thread without a run is not known")
    author = await create(store, new_run(me, me, messages=tuple(_said(me, n) for n in range(1, 4))))
    await author.write(messages=tuple(_said(me, n) for n in range(4, 8)))
    all_messages = [(n, _said(me, n)) for n in range(1, 8)]
    places, page = await _part(store, me)
    expect(list(page.messages), all_messages, "the whole history, in order")
    expect((page.newest, page.newest_run, list(page.infos)), (7, me, [me]), "with its end, and who wrote it")
    for query, positions in (
        ({"limit": 2}, [6, 7]),
        ({"before": 6, "limit": 3}, [3, 4, 5]),
        ({"before": 1}, []),
        ({"before": 99, "limit": 1}, [7]),
        ({"after": 0, "limit": 2}, [1, 2]),
        ({"after": 5}, [6, 7]),
        ({"after": 7}, []),
        ({"after": 99}, []),
    ):
        places, page = await _part(store, me, **query)
        expect((places, page.newest), (positions, 7), f"{query}")
    wrong_queries: tuple[dict[str, int], ...] = ({"limit": 0}, {"after": -1}, {"before": 0}, {"after": 1, "before": 3})
    for wrong in wrong_queries:
        await refused(UsageError, store.history(me, HistoryQuery(**wrong)), f"{wrong} cannot be")


@scenario
async def a_page_of_messages_is_bounded_in_bytes(store: Store, _: ReportLog, me: str) -> None:
    """It ends with the message that reaches the limit, so a larger message comes alone."""
    large = _said(me, 2, "x" * 1_100_000)
    sizes = (_said(me, 1), large, _said(me, 3), *(_said(me, n, "y" * 400_000) for n in range(4, 8)))
    await create(store, new_run(me, me, messages=sizes))
    expect((await _part(store, me, after=0))[0], [1, 2], "up to the large one")
    expect((await _part(store, me, after=1))[0], [2], "which comes alone")
    expect((await _part(store, me))[0], [5, 6, 7], "also from the end")


@scenario
async def a_history_says_where_to_follow_its_runs(store: Store, _: ReportLog, me: str) -> None:
    """Unfinished runs, the oldest first, with the event behind which each is told, and with input that waits."""
    first = await create(store, new_run(f"{me}.1", me))
    await store.create_run(new_run(f"{me}.2", me, messages=()), frame(f"{me}.2", 1))
    waiting = _said(f"{me}.1", 2)
    row = replace(first.row, placed=2, pending_input=(waiting,), stage=Stage.RUNNING)
    await first.write(row=row, messages=(_said(f"{me}.1", 1),))
    await first.write(3)
    page = (await _part(store, me))[1]
    runs = [(run.run_id, run.agent, run.after, run.pending) for run in page.open_runs]
    expect(runs, [(f"{me}.1", "clerk", 2, (waiting,)), (f"{me}.2", "clerk", 0, ())], "the active one and the held one")
    expect(page.newest_run, f"{me}.2", "the newest run")
    await first.write(row=replace(first.row, pending_input=(), stage=Stage.COMPLETED), at=THEN)
    page = (await _part(store, me))[1]
    expect([run.run_id for run in page.open_runs], [f"{me}.2"], "a run that is done is not followed")
    await store.prune(THEN + timedelta(days=1))
    places, page = await _part(store, me)
    expect((places, dict(page.infos)), ([1], {}), "the messages of a pruned run stay; its facts are gone")
