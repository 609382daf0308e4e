"""Scenarios of the store kit: runs, threads, commits, events and messages."""

from __future__ import annotations

import trio
from msgspec.structs import replace

from ...abc import Store
from ...contract.calls import CallPosition, CallStatus
from ...contract.commits import Created
from ...contract.lifecycle import Stage
from ...contract.rows import RunRecord
from ...contract.state import StateWrite
from ...errors import ThreadBusy, UnknownRun
from ._tools import (
    NOW,
    Author,
    ReportLog,
    SubmittedCommit,
    call_row,
    claimed,
    create,
    expect,
    frame,
    judge,
    loaded,
    message,
    new_run,
    refused,
    say,
    scenario,
    ticket_row,
)


@scenario
async def a_new_run_is_loaded_as_it_was_written(store: Store, reports: ReportLog, me: str) -> None:
    """create_run writes info, row, first event, messages and state, and claims the run."""
    state = (StateWrite(key="k", scope="run", value={"a": [1]}),)
    new = new_run(me, me, messages=(message("m1"),), state=state)
    created = await store.create_run(new, frame(me, 1))
    expect(created, Created(claim=created.claim), "a new run is neither held nor existing")
    record = await store.load(me)
    expect(record, RunRecord(info=new.info, row=new.row, state=state), "load returns the created run")
    expect(list(await store.events(me)), [frame(me, 1)], "the first event is there")
    expect(list(await store.messages(me)), [message("m1")], "the first message is there")
    expect(reports.items, [], "the inbox is empty")


@scenario
async def creating_twice_returns_the_existing_run(store: Store, _: ReportLog, me: str) -> None:
    """An existing run is left as it is and returned, whatever the second one asks for."""
    first = new_run(me, me, content="first", messages=(message("m1"),))
    await create(store, first)
    second = new_run(me, f"{me}.other", content="second", messages=(message("m2"),), on_busy="refuse")
    again = await store.create_run(second, frame(me, 1))
    expect(again, Created(claim=None, existing=first.info), "the second create finds the first run")
    expect(list(await store.events(me)), [frame(me, 1)], "nothing was added to its events")
    expect(list(await store.messages(f"{me}.other")), [], "nothing was written for the second one")


@scenario
async def durable_events_are_told_before_the_receipt(store: Store, reports: ReportLog, me: str) -> None:
    """Hooks receive a new run's event and those of every commit, in order, with the sequence of the newest."""
    author = await create(store, new_run(me, me))
    expect(reports.frames, [(me, 1, (frame(me, 1),))], "the first event is reported before the creator resumes")
    await author.write(2)
    await author.write()
    reported = [(run_id, last, len(frames)) for run_id, last, frames in reports.frames[1:]]
    expect(reported, [(me, 3, 2), (me, 4, 1)], "each commit is reported once, with the sequence of its newest event")
    everything = [item for _, _, frames in reports.frames for item in frames]
    expect(everything, list(await store.events(me)), "the reported frames are the stored ones")
    await store.create_run(new_run(me, me), frame(me, 1))
    author.row = replace(author.row, last_sequence=2)
    await author.send(author.make()).receipt()
    expect(len(reports.frames), 3, "a commit that is not written is not reported")


@scenario
async def a_busy_thread_holds_a_run_back_or_refuses_it(store: Store, _: ReportLog, me: str) -> None:
    """While a thread has an active run, a second one is held (queue) or refused without a trace (refuse)."""
    await create(store, new_run(f"{me}.1", me))
    second = await store.create_run(new_run(f"{me}.2", me), frame(f"{me}.2", 1))
    expect((second.held, second.claim is not None), (True, True), "the second run is created, claimed and held")
    refusing = new_run(f"{me}.3", me, on_busy="refuse", messages=(message("no"),))
    await refused(ThreadBusy, store.create_run(refusing, frame(f"{me}.3", 1)), "a busy thread refuses")
    expect(await store.load(f"{me}.3"), None, "a refused run leaves no trace")
    expect(list(await store.messages(me)), [], "nor do its messages")
    mine = [entry for entry in await store.open_runs() if entry[0].startswith(me)]
    expect(mine, [(f"{me}.1", False), (f"{me}.2", True)], "open runs come oldest first, with whether they are held")


@scenario
async def the_end_of_a_run_releases_the_oldest_held_one(store: Store, _: ReportLog, me: str) -> None:
    """Held runs are released one at a time, oldest first; the end of a held run releases none."""
    authors = [await create(store, new_run(f"{me}.{i}", me)) for i in range(4)]
    expect((await authors[1].end()).next_in_thread, None, "the end of a held run frees no thread")
    expect((await authors[0].end()).next_in_thread, f"{me}.2", "the end of the active run releases the oldest held one")
    mine = [entry for entry in await store.open_runs() if entry[0].startswith(me)]
    expect(mine, [(f"{me}.2", False), (f"{me}.3", True)], "the released one is not held any more")
    expect((await authors[2].write()).next_in_thread, None, "a commit in between frees no thread")
    expect((await authors[2].end(stage=Stage.FAILED)).next_in_thread, f"{me}.3", "a failed run releases as well")
    expect((await authors[3].end(stage=Stage.CANCELLED)).next_in_thread, None, "after the last run no run is held")
    later = await store.create_run(new_run(f"{me}.4", me, on_busy="refuse"), frame(f"{me}.4", 1))
    expect(later.held, False, "the thread is free again")


@scenario
async def a_fork_begins_with_a_copy_of_its_parents_history(store: Store, _: ReportLog, me: str) -> None:
    """thread_parent copies the first messages; those that are given again are not written twice."""
    old = tuple(message(f"m{i}") for i in range(3))
    await create(store, new_run(me, me, messages=old))
    await create(store, new_run(f"{me}.f", f"{me}.f", thread_parent=(me, 2), messages=(old[0], message("new"))))
    expect([item.id for item in await store.messages(f"{me}.f")], ["m0", "m1", "new"], "the copy, then the new message")
    expect([item.id for item in await store.messages(me)], ["m0", "m1", "m2"], "the parent stays as it is")


# --- commits


@scenario
async def receipts_come_in_order_and_events_are_contiguous(store: Store, _: ReportLog, me: str) -> None:
    """Commits that are submitted without waiting are written and answered in their order."""
    author = await create(store, new_run(me, me))
    order: list[int] = []
    sizes = (1, 3, 0, 70, 2, 17)
    for size in sizes:
        commit = author.make(size)
        frames = [frame(me, commit.expected_last + 1 + i) for i in range(size)]
        store.submit(author.claim, commit, frames, lambda receipt: order.append(receipt.last))
    await author.write()
    expect(order, [2, 5, 5, 75, 77, 94], "each receipt names the newest event, in order")
    expected = [frame(me, n) for n in range(1, 96)]
    expect(list(await store.events(me)), expected, "no event is missing, doubled or out of order")
    expect((await loaded(store, me)).row, author.row, "the newest row is the one that counts")


@scenario
async def a_commit_that_does_not_follow_is_lease_lost(store: Store, _: ReportLog, me: str) -> None:
    """expected_last must be the newest event; else nothing is written, and the later ones fail too."""
    author = await create(store, new_run(me, me))
    await author.write()
    good = author.row
    gap = author.make(1)
    sent = [author.send(author.make(1)), author.send(author.make(2))]
    for item in sent:
        expect((await item.receipt()).kind, "lease_lost", "a commit that leaves a gap is refused")
    expect((await loaded(store, me)).row, good, "nothing was written")
    expect((await author.send(gap).receipt()).kind, "committed", "the one that follows is written")
    expect((await author.send(gap).receipt()).kind, "lease_lost", "the same one again is refused")
    expect(len(await store.events(me)), 3, "and writes nothing")


@scenario
async def an_old_claim_writes_nothing(store: Store, _: ReportLog, me: str) -> None:
    """A newer claim makes all older ones useless."""
    author = await create(store, new_run(me, me))
    await author.write()
    newer = await claimed(store, me)
    expect(newer.token > author.claim.token, True, "a newer claim has a larger token")
    late = author.make(1, messages=(message("late"),))
    expect((await author.send(late).receipt()).kind, "lease_lost", "the old claim is refused")
    expect(list(await store.messages(me)), [], "and nothing of its commit is written")
    expect((await author.send(late, newer).receipt()).kind, "committed", "the new claim writes")


@scenario
async def unknown_and_done_runs_can_not_be_claimed(store: Store, _: ReportLog, me: str) -> None:
    """A claim of them is None for them; load and events know nothing of an unknown run; post says UnknownRun."""
    expect(await store.claim(me), None, "there is no such run")
    expect(await store.load(me), None, "there is nothing to load")
    expect(list(await store.events(me)), [], "there are no events")
    await refused(UnknownRun, store.post(me, say("c1"), judge), "nothing can be posted to it")
    author = await create(store, new_run(me, me))
    await author.end()
    expect(await store.claim(me), None, "a done run is not claimed")
    expect([name for name, _ in await store.open_runs() if name == me], [], "and not open")


@scenario
async def nothing_follows_the_terminal_commit(store: Store, _: ReportLog, me: str) -> None:
    """A done run takes no commit any more."""
    author = await create(store, new_run(me, me))
    await author.end()
    receipt = await author.send(author.make(1)).receipt()
    expect(receipt.kind in ("failed", "lease_lost"), True, "a commit after the end is refused")
    expect(len(await store.events(me)), 2, "and writes nothing")


@scenario
async def a_commit_that_can_not_be_written_fails_alone(store: Store, _: ReportLog, me: str) -> None:
    """Others in the same moment are written; the run's own later ones fail until it is claimed and loaded again."""
    bad = await create(store, new_run(f"{me}.bad", f"{me}.bad", messages=(message("m1"),)))
    good = await create(store, new_run(f"{me}.good", f"{me}.good"))
    before, state = bad.row, (StateWrite(key="k", scope="run", value=1, revision=1),)
    sent = [
        good.send(good.make(1)),
        bad.send(bad.make(0, row=replace(before, step=7), messages=(message("m2"), message("m1")), state=state)),
        bad.send(bad.make(0)),
        good.send(good.make(1)),
        bad.send(bad.make(1)),
    ]
    kinds = [(await item.receipt()).kind for item in sent]
    expected = ["committed", "failed", "lease_lost", "committed", "lease_lost"]
    expect(kinds, expected, "a repeated message id fails its commit and the run's later ones, and no other run")
    record = await loaded(store, bad.run_id)
    expect((record.row, record.state), (before, ()), "nothing of the failed commits was written")
    expect([item.id for item in await store.messages(bad.run_id)], ["m1"], "no message of them either")
    claim = await claimed(store, bad.run_id)
    await Author(store, claim, record.row).write()
    expect(len(await store.events(good.run_id)), 3, "the other run has all its events")


@scenario
async def a_commit_whose_parts_do_not_fit_is_failed(store: Store, _: ReportLog, me: str) -> None:
    """As many frames as events, and the row names the newest event; else the commit fails."""
    author = await create(store, new_run(me, me))
    commit, sent = author.make(2), SubmittedCommit()
    store.submit(author.claim, commit, [frame(me, 2)], sent.deliver)
    expect((await sent.receipt()).kind, "failed", "one frame for two events is refused")
    claim = await claimed(store, me)
    wrong = replace(commit, row=replace(commit.row, last_sequence=9))
    expect((await author.send(wrong, claim).receipt()).kind, "failed", "a row of another event is refused")
    expect(len(await store.events(me)), 1, "nothing was written")


@scenario
async def calls_and_tickets_are_kept_and_replaced(store: Store, _: ReportLog, me: str) -> None:
    """The newest row of a call or ticket counts; load returns those of the step or all, in the model's order."""
    author = await create(store, new_run(me, me))
    first = replace(author.row, step=1)
    rows = (call_row("b", index=1), call_row("a", index=0))
    await author.write(row=first, calls=rows, tickets=(ticket_row(me, 1, "a"),))
    done = replace(rows[1], at=CallPosition.SETTLED, outcome=CallStatus.SUCCEEDED, result={"paid": True})
    closed = replace(ticket_row(me, 1, "a"), status="approved", decided_by="ann", decided_at=NOW)
    await author.write(row=replace(author.row, step=2), calls=(done, call_row("c", step=2)), tickets=(closed,))
    step = await store.load(me, calls="step")
    whole = await loaded(store, me)
    expect([call.call_id for call in (step or whole).calls], ["c"], "calls='step' is the current step's")
    expect(whole.calls, (done, rows[0], call_row("c", step=2)), "calls='all' is all, in step and model order")
    expect((whole.tickets, step and step.tickets), ((closed,), ()), "a closed ticket of an old step is history")
    expect(whole.call_ids, frozenset("abc"), "every used call id is known")
    expect(step and step.call_ids, frozenset("abc"), "also when only the step is loaded")


@scenario
async def messages_are_appended_and_have_unique_ids(store: Store, _: ReportLog, me: str) -> None:
    """A thread's history is the same for all its runs, in the order of their commits."""
    author = await create(store, new_run(me, me, messages=(message("m1"),)))
    await author.write(messages=(message("m2"), message("m3")))
    await author.end()
    second = await create(store, new_run(f"{me}.2", me, messages=(message("m4"),)))
    await second.write(messages=(message("m5"),))
    texts = [item.id for item in await store.messages(me)]
    expect(texts, ["m1", "m2", "m3", "m4", "m5"], "the history is whole and in order")
    await create(store, new_run(f"{me}.3", f"{me}.3", messages=(message("m1"),)))
    expect(len(await store.messages(f"{me}.3")), 1, "another thread may use the same ids")
    expect(list(await store.messages(f"{me}.unknown")), [], "an unknown thread is empty")


@scenario
async def events_are_read_in_pages(store: Store, _: ReportLog, me: str) -> None:
    """The bounds after and limit cut the events by sequence."""
    author = await create(store, new_run(me, me))
    await author.write(24)
    frames: list[bytes] = []
    while page := await store.events(me, after=len(frames), limit=7):
        expect(len(page) <= 7, True, "a page is no longer than its limit")
        frames += page
    expect(frames, [frame(me, n) for n in range(1, 26)], "the pages together are all events")
    expect(list(await store.events(me, after=99)), [], "there is nothing behind the end")
    sizes = [len(item) for item in frames]
    page = await store.events(me, max_bytes=sum(sizes[:5]))
    expect(len(page), 5, "a page ends with the event that brings it to its bytes")
    expect(len(await store.events(me, max_bytes=sum(sizes[:5]) + 1)), 6, "and not before")
    expect(len(await store.events(me, max_bytes=1)), 1, "a page holds one event at least, however large")
    expect(len(await store.events(me, limit=3, max_bytes=10**9)), 3, "the number of events bounds it, too")


@scenario
async def load_is_one_consistent_snapshot(store: Store, _: ReportLog, me: str) -> None:
    """Rows of one commit are seen together or not at all, regardless of concurrent writers."""
    author = await create(store, new_run(me, me))

    async def work() -> None:
        for step in range(1, 31):
            row = replace(author.row, step=step)
            write = StateWrite(key="step", scope="run", value=step)
            await author.write(row=row, calls=(call_row(f"c{step}", step=step),), state=(write,))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(work)
        while True:
            record = await loaded(store, me)
            step = record.row.step
            snapshot = (len(record.calls), sum(write.value for write in record.state), record.row.last_sequence - 1)
            expect(snapshot, (step, step, step), "calls, state and row are of the same commit")
            if step == 30:
                break
