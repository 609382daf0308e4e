"""Scenarios of the store kit: lists of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import msgspec
from msgspec.structs import replace

from ...abc import Store
from ...contract.lifecycle import TERMINATION_STAGE, RunStatus, Stage, Termination, TerminationKind
from ...contract.run_lists import EndedRuns, RunCounts, RunProgress, RunQuery
from ...contract.ticket_lists import TicketQuery
from ...errors import UsageError
from ._tools import (
    NOW,
    Author,
    ReportLog,
    SubmittedCommit,
    call_row,
    create,
    expect,
    frame,
    judge,
    new_run,
    refused,
    say,
    scenario,
    ticket_row,
)


async def _author(
    store: Store, run_id: str, agent: str, *, thread: str | None = None, said: str = "", **info: Any
) -> Author:
    """A run whose first event has its title, and `said` as its input."""
    new = new_run(run_id, thread or run_id, agent=agent)
    new = replace(new, info=replace(new.info, **info))
    return await create(store, new, _event({"title": new.info.title, "input": said}))


def _event(payload: Mapping[str, Any]) -> bytes:
    """As much of an event as a search reads."""
    return msgspec.json.encode({"payload": payload})


async def _end(
    author: Author, kind: TerminationKind, code: str | None = None, *, at: datetime = NOW, **payload: Any
) -> None:
    """Write the terminal commit, whose event has the payload."""
    stage, termination = TERMINATION_STAGE[kind], Termination(kind=kind, code=code)
    commit = author.make(row=replace(author.row, stage=stage, termination=termination), at=at)
    submission = SubmittedCommit()
    author.store.submit(author.claim, commit, [_event(payload)], submission.deliver)
    expect((await submission.receipt()).kind, "committed", "the run ends")


async def _named(store: Store, query: RunQuery) -> list[str]:
    """The ids of a whole list, in its order, read page by page; and that `matches` says the same of each."""
    names: list[str] = []
    while True:
        page = await store.runs(query)
        expect(
            [query.matches(line) for line in page.runs], [True] * len(page.runs), "each listed run matches the query"
        )
        names += [line.info.run_id for line in page.runs]
        again = await store.runs(attrs.evolve(query, limit=100, cursor=None), among=names)
        expect({line.run_id for line in again.runs}, {*names}, "the same of these runs alone")
        if page.cursor is None:
            return names
        query = attrs.evolve(query, cursor=page.cursor)


@scenario
async def lists_are_filtered_by_who_when_and_text(store: Store, _: ReportLog, me: str) -> None:
    """All filters must match; text is looked for in title and id, whatever its case, and no character is special."""
    ids = [f"{me}.{i}" for i in range(5)]
    titles = ["Refund order 7", "100% of it_all", "refunds for ÄRGER", "", "pay back a\\b"]
    for i, (run_id, title) in enumerate(zip(ids, titles, strict=True)):
        at = NOW + timedelta(minutes=i)
        await _author(store, run_id, me, title=title, by="ann" if i % 2 else "bob", created_at=at)
    for text, indexes in (
        ("REFUND", [2, 0]),
        ("ärger", [2]),
        ("%", [1]),
        ("_all", [1]),
        ("\\", [4]),
        (f"{me}.3".upper(), [3]),
        ("nothing of it", []),
    ):
        lines = await _named(store, RunQuery(agent=me, text=text, limit=1))
        expect(lines, [ids[i] for i in indexes], f"by text {text!r}")
    expect(await _named(store, RunQuery(agent=me, by="ann", limit=1)), [ids[3], ids[1]], "by the one that started them")
    expect(await _named(store, RunQuery(agent=me, by="an")), [], "whole names only")
    since, until = NOW + timedelta(minutes=1), NOW + timedelta(minutes=3)
    between = await _named(store, RunQuery(agent=me, since=since, until=until, limit=1))
    expect(between, [ids[2], ids[1]], "from the one time on, and before the other")
    both = await _named(store, RunQuery(agent=me, since=since, by="bob", text="refund", prefix=me))
    expect(both, [ids[2]], "all filters must match")
    for wrong in (
        RunQuery(text=" "),
        RunQuery(text="x" * 201),
        RunQuery(since=datetime(2026, 1, 1)),
        RunQuery(order="waiting_longest", status=RunStatus.DONE),
        RunQuery(order="oldest"),  # type: ignore[arg-type]
        RunQuery(outcome="waiting"),  # type: ignore[arg-type]
        RunQuery(tool="\0"),
    ):
        await refused(UsageError, store.runs(wrong), f"{wrong} cannot be")


@scenario
async def a_text_is_found_in_the_input_and_in_the_end_of_a_run(store: Store, _: ReportLog, me: str) -> None:
    """A search reads the first event, and of a done run the last one; a page reads so many bytes, and has a cursor."""
    waiting = await _author(store, f"{me}.asked", me, said='Where is my "Lamp"?\nI wait.')
    of_text = await _author(store, f"{me}.answered", me, said="hello")
    of_data = await _author(store, f"{me}.shaped", me, said="hello")
    of_error = await _author(store, f"{me}.failed", me, said="hello")
    await waiting.write()
    await _end(of_text, TerminationKind.NATURAL_END, output="The LAMP is on its way to Ölgasse")
    await _end(of_data, TerminationKind.NATURAL_END, output={"lamps": ["big lamp"], "at": "Ölgasse"})
    await _end(of_error, TerminationKind.ERROR, "model_error", detail="no lamp oil")
    for text, authors in (
        ("lamp", [of_error, of_data, of_text, waiting]),
        ('my "lamp"?\ni', [waiting]),
        ("ÖLGASSE", [of_data, of_text]),
        ("payload", []),
        ("hello lamp", []),
    ):
        lines = await _named(store, RunQuery(agent=me, text=text, limit=2))
        expect(lines, [author.run_id for author in authors], f"by text {text!r}")
    hides = (
        await store.runs(RunQuery(agent=me, text="lamp"), shown=lambda text: text.replace("LAMP", "[hidden]"))
    ).runs
    expect(
        [line.run_id for line in hides],
        [author.run_id for author in (of_error, of_data, waiting)],
        "a text that the reader's redaction hides is not found",
    )
    for number in range(4):
        await _author(store, f"{me}.large.{number}", me, said="x" * 200_000)
    page = await store.runs(RunQuery(agent=me, text="lamp"))
    expect((page.runs, page.cursor is None), ((), False), "a page ends after a number of bytes, without a hit")
    lines = await _named(store, RunQuery(agent=me, text="my", prefix=f"{me}.a"))
    expect(lines, [waiting.run_id], "together with the other filters")


@scenario
async def lists_are_filtered_by_outcome_code_and_tool(store: Store, _: ReportLog, me: str) -> None:
    """A run that a stop condition has stopped is not completed; a run without an end has no outcome and no code."""
    ends = {
        "plain": (TerminationKind.NATURAL_END, None),
        "stopped": (TerminationKind.STOPPED, "max_rounds"),
        "failed": (TerminationKind.ERROR, "model_error"),
        "blocked": (TerminationKind.BLOCKED, "guardrail"),
        "cancelled": (TerminationKind.CANCELLED, None),
        "rejected": (TerminationKind.CANCELLED, "approval_rejected"),
    }
    await _author(store, f"{me}.open", me)
    for name, (kind, code) in ends.items():
        author = await _author(store, f"{me}.{name}", me)
        calls = (call_row("c1"), replace(call_row("c2"), tool="look"), replace(call_row("c3"), tool="look"))
        await author.write(calls=calls if name in ("plain", "failed") else calls[:1])
        await _end(author, kind, code)
    filters: tuple[tuple[dict[str, Any], str], ...] = (
        ({"outcome": "completed"}, "plain"),
        ({"outcome": "stopped"}, "stopped"),
        ({"outcome": "failed"}, "blocked failed"),
        ({"outcome": "cancelled"}, "rejected cancelled"),
        ({"code": "model_error"}, "failed"),
        ({"code": "model_error", "outcome": "cancelled"}, ""),
        ({"code": "model"}, ""),
        ({"tool": "look"}, "failed plain"),
        ({"tool": "look", "outcome": "failed"}, "failed"),
        ({"tool": "pay", "status": Stage.COMPLETED}, "stopped plain"),
        ({"tool": "loo"}, ""),
    )
    for values, names in filters:
        lines = await _named(store, RunQuery(agent=me, limit=1, **values))
        expect(lines, [f"{me}.{name}" for name in names.split()], f"by {values}")


@scenario
async def ended_runs_are_counted_by_hour_and_outcome(store: Store, _: ReportLog, me: str) -> None:
    """From a time on; a run that is not done is in no hour."""
    first = datetime(2040, 1, 1, 12, tzinfo=UTC)
    ends = (
        (-1, TerminationKind.NATURAL_END),
        (0, TerminationKind.NATURAL_END),
        (3599, TerminationKind.NATURAL_END),
        (3599, TerminationKind.ERROR),
        (3600, TerminationKind.STOPPED),
        (3600, TerminationKind.CANCELLED),
    )
    for number, (second, kind) in enumerate(ends):
        author = await _author(store, f"{me}.{number}", me)
        code = "max_rounds" if kind is TerminationKind.STOPPED else None
        await _end(author, kind, code, at=first + timedelta(seconds=second))
    await _author(store, f"{me}.open", me)
    expect(
        await store.throughput(first),
        (
            EndedRuns(hour=first, outcome="completed", count=2),
            EndedRuns(hour=first, outcome="failed", count=1),
            EndedRuns(hour=first + timedelta(hours=1), outcome="cancelled", count=1),
            EndedRuns(hour=first + timedelta(hours=1), outcome="stopped", count=1),
        ),
        "by hour and outcome",
    )


async def _ask(author: Author, number: int, minute: int) -> None:
    """The run asks something, and waits."""
    at = NOW + timedelta(minutes=minute)
    ticket = replace(ticket_row(author.run_id, number, f"c{number}"), requested_at=at, message=f"May {number}?")
    await author.write(row=replace(author.row, stage=Stage.NEEDS_APPROVAL), tickets=(ticket,), at=at)


async def _answer(author: Author, number: int, minute: int, stage: Stage = Stage.RUNNING) -> None:
    at = NOW + timedelta(minutes=minute)
    ticket = replace(ticket_row(author.run_id, number, f"c{number}"), status="approved")
    await author.write(row=replace(author.row, stage=stage), tickets=(ticket,), at=at)


@scenario
async def a_list_says_what_is_asked_and_since_when(store: Store, _: ReportLog, me: str) -> None:
    """A line has the first open tickets, their number, and since when the oldest of them is open."""
    author = await _author(store, me, me)
    for number in range(1, 6):
        await _ask(author, number, number)
    (line,) = (await store.runs(RunQuery(agent=me))).runs
    expect([ticket.message for ticket in line.asked], ["May 1?", "May 2?", "May 3?"], "the oldest first, three at most")
    expect((line.asked[0].tool, line.asked[0].reason), ("pay", "tool_permission"), "with what a person needs to know")
    expect((line.asked_count, line.waiting_since), (5, NOW + timedelta(minutes=1)), "how many, and since when")
    await _answer(author, 1, 6)
    (line,) = (await store.summaries((me, f"{me}.unknown"))).runs
    expect((line.asked_count, line.waiting_since), (4, None), "a run that works again does not wait, and asks still")
    await author.write(row=replace(author.row, stage=Stage.NEEDS_APPROVAL), at=NOW + timedelta(minutes=9))
    (line,) = (await store.summaries((me,))).runs
    expect(line.waiting_since, NOW + timedelta(minutes=2), "it waits since its oldest open ticket is open")
    progress = await store.progress((me, f"{me}.unknown"))
    expect(progress, {me: line.progress} if store.shared else {}, "how far a run is, is the same without the line")
    expect((line.progress.waits, line.progress.done), (True, False), "it waits")
    await store.post(me, say("c1"), judge)
    (line,) = (await store.summaries((me,))).runs
    expect(line.pending, 1, "a command has not acted yet")
    done = replace(author.row, stage=Stage.CANCELLED, inbox=1)
    await author.write(row=done, consumed=1, at=NOW + timedelta(minutes=10))
    (line,) = (await store.summaries((me,))).runs
    columns = (line.asked, line.asked_count, line.waiting_since, line.ended_at)
    expect(columns, ((), 0, None, NOW + timedelta(minutes=10)), "a run that is done asks nothing")
    progress = await store.progress((me,))
    ended = RunProgress(last=line.row.last_sequence, waits=False, done=True, owned=False, dead=None)
    expect(progress, {me: ended} if store.shared else {}, "and no process owns it")


@scenario
async def a_list_can_be_limited_to_the_runs_of_a_stage(store: Store, _: ReportLog, me: str) -> None:
    """Each stage has its runs, newest first and page by page, together with the other filters."""
    authors = {stage: [await _author(store, f"{me}.{stage}.{i}", me) for i in range(2)] for stage in Stage}
    for stage, pair in authors.items():
        for author in pair:
            await _move(author, stage)
    for stage, pair in authors.items():
        lines = await _named(store, RunQuery(agent=me, status=stage, limit=1))
        expect(lines, [author.run_id for author in reversed(pair)], f"the runs whose stage is {stage}")
    both = await _named(store, RunQuery(agent=me, status=Stage.FAILED, prefix=f"{me}.failed.1"))
    expect(both, [f"{me}.failed.1"], "all filters must match")
    thread = await _named(store, RunQuery(thread_id=f"{me}.cancelled.0", status=Stage.FAILED))
    expect(thread, [], "also that of a thread")
    done = await _named(store, RunQuery(agent=me, status=RunStatus.DONE))
    expect(len(done), 6, "the status has the runs of its three stages")


async def _move(author: Author, stage: Stage) -> None:
    """Bring a run into a stage."""
    if stage is Stage.NEEDS_APPROVAL:
        await _ask(author, 1, 1)
    elif stage is not author.row.stage:
        await author.write(row=replace(author.row, stage=stage), at=NOW + timedelta(minutes=1))


@scenario
async def the_longest_waiting_come_first_if_asked_for(store: Store, _: ReportLog, me: str) -> None:
    """Waiting runs in the order in which they began to wait, page by page; one that waits again goes to the end."""
    authors = [await _author(store, f"{me}.{i}", me) for i in range(5)]
    for i, minute in ((3, 1), (0, 2), (4, 2), (1, 3)):
        await _ask(authors[i], 1, minute)
    query = RunQuery(agent=me, order="waiting_longest", limit=1)
    expect(await _named(store, query), [f"{me}.{i}" for i in (3, 0, 4, 1)], "the longest waiting first")
    await _answer(authors[3], 1, 5)
    await _ask(authors[3], 2, 7)
    await _answer(authors[0], 1, 8, Stage.COMPLETED)
    lines = await _named(store, attrs.evolve(query, status=RunStatus.WAITING))
    expect(lines, [f"{me}.{i}" for i in (4, 1, 3)], "one that waits again waits since then")
    newest = await _named(store, RunQuery(agent=me, status=RunStatus.WAITING, limit=2))
    expect(newest, [f"{me}.{i}" for i in (4, 3, 1)], "and newest first if nothing else is asked for")


async def _open_tickets(store: Store, query: TicketQuery) -> list[str]:
    """The ids of a whole list of tickets, in its order, read page by page."""
    names: list[str] = []
    while True:
        page = await store.tickets(query)
        expect([query.matches(line.info, line.ticket) for line in page.tickets], [True] * len(page.tickets), "matches")
        names += [line.ticket.ticket_id for line in page.tickets]
        if page.cursor is None:
            return names
        expect(page.tickets[-1].cursor, page.cursor, "a page ends behind its last ticket")
        query = attrs.evolve(query, cursor=page.cursor)


@scenario
async def open_tickets_of_all_runs_are_listed(store: Store, _: ReportLog, me: str) -> None:
    """The oldest first, or the newest, page by page; of a run that works, too, and none of a run that is done."""
    authors = [await _author(store, f"{me}.{i}", me) for i in range(4)]
    for i, number, minute in ((2, 1, 1), (0, 1, 3), (0, 2, 2), (1, 1, 4), (3, 1, 5), (2, 2, 6)):
        await _ask(authors[i], number, minute)
    await _answer(authors[2], 1, 7)
    await _answer(authors[3], 1, 8, Stage.COMPLETED)
    await _answer(authors[1], 9, 9)  # the run works again, and its question is open
    query = TicketQuery(agent=me, limit=1)
    run_ids = [f"{me}.{name}" for name in ("0.t2", "0.t1", "1.t1", "2.t2")]
    expect(await _open_tickets(store, query), run_ids, "the oldest first")
    newest = await _open_tickets(store, attrs.evolve(query, order="newest"))
    expect(newest, run_ids[::-1], "the newest first")
    expect(await _open_tickets(store, attrs.evolve(query, tool="pay")), run_ids, "of a tool")
    expect(await _open_tickets(store, attrs.evolve(query, tool="no")), [], "whole names only")
    some = TicketQuery(run_ids=(f"{me}.0", f"{me}.unknown", f"{me}.3"), limit=1)
    expect(await _open_tickets(store, some), run_ids[:2], "of some runs")
    expect(await _open_tickets(store, TicketQuery(run_ids=())), [], "of no run")
    (line,) = (await store.tickets(TicketQuery(run_ids=(f"{me}.1",)))).tickets
    expect((line.info.run_id, line.ticket.arguments), (f"{me}.1", {"sum": 12}), "a line has the whole ticket")
    cursor = (await store.tickets(query)).cursor
    other = attrs.evolve(query, tool="pay", cursor=cursor)
    await refused(UsageError, store.tickets(other), "a cursor of another query")
    wrong: tuple[dict[str, Any], ...] = ({"limit": 0}, {"order": "best"}, {"agent": "a\0"}, {"cursor": "?"})
    for values in wrong:
        await refused(UsageError, store.tickets(TicketQuery(**values)), f"a query with {values}")


@scenario
async def the_backlog_counts_runs_threads_and_open_tickets(store: Store, _: ReportLog, me: str) -> None:
    """Of all runs that are not done. An answered ticket does not count, nor does one of a run that has ended."""
    before = await store.backlog()
    first, second = [await _author(store, f"{me}.{number}", me, thread=me) for number in range(2)]
    third = await _author(store, f"{me}.2", me)
    early = -60 * 24 * 365 * 40  # older than the tickets of other scenarios
    await _ask(first, 1, early)
    await _ask(third, 1, early + 1)
    backlog = await store.backlog()
    expect((backlog.threads - before.threads, backlog.tickets - before.tickets), (2, 2), "threads and tickets")
    expect(backlog.oldest_ticket, NOW + timedelta(minutes=early), "the time of the oldest")
    expect(backlog.runs, (await store.summaries((), counts=True)).counts, "runs by status")
    await _answer(first, 1, early + 2)
    expect((await store.backlog()).oldest_ticket, NOW + timedelta(minutes=early + 1), "the next one is the oldest")
    await _end(third, TerminationKind.CANCELLED, at=NOW)
    await _end(first, TerminationKind.NATURAL_END, at=NOW)
    await _end(second, TerminationKind.NATURAL_END, at=NOW)
    after = await store.backlog()
    expect((after.threads, after.tickets), (before.threads, before.tickets), "runs that have ended leave nothing")
    expect(after.oldest_ticket, before.oldest_ticket, "nor their tickets")


@scenario
async def runs_that_are_not_done_are_counted(store: Store, _: ReportLog, me: str) -> None:
    """Counts are of all runs by status, whatever the filters are; a held run is marked as held."""

    async def counted() -> RunCounts:
        page = await store.runs(RunQuery(agent=f"{me}.unknown", counts=True))
        again = await store.summaries((), counts=True)
        expect(again.counts, page.counts, "both ways count the same")
        return page.counts or RunCounts()

    before = await counted()
    expect((await store.runs(RunQuery(agent=me))).counts, None, "counts are made on request only")
    first = await _author(store, f"{me}.1", me, thread=me)
    second = new_run(f"{me}.2", me, agent=me)
    await store.create_run(second, frame(f"{me}.2", 1))
    third = await _author(store, f"{me}.3", me)
    await first.write(row=replace(first.row, stage=Stage.RUNNING))
    await _ask(third, 1, 1)
    await store.post(third.run_id, say("c1"), judge)
    after = await counted()
    changes = (after.created - before.created, after.running - before.running, after.waiting - before.waiting)
    expect(changes, (1, 1, 1), "by status")
    flags: Sequence[bool] = [line.held for line in (await store.runs(RunQuery(agent=me))).runs]
    expect(flags, [False, True, False], "the second waits for the thread of the first")
    await first.end(at=datetime(2026, 3, 2, tzinfo=UTC))
    expect((await counted()).running, before.running, "a run that is done counts no more")
    (line,) = (await store.summaries((f"{me}.2",))).runs
    expect(line.held, False, "and is not held")
