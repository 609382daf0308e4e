"""Scenarios of the store kit: runs that wait for an owner, and their queues. For every store, shared or not."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import attrs
from msgspec.structs import replace

from ...abc import Store
from ...contract.lifecycle import Stage, Termination, TerminationKind
from ...contract.tasks import TaskRow
from ...errors import UnknownRun, UsageError
from ...processes import Ability, QueueInfo, ReadyRun
from ._tools import (
    NOW,
    Author,
    OpenStore,
    ReportLog,
    create,
    expect,
    frame,
    judge,
    loaded,
    new_run,
    opened,
    refused,
    reopening,
    say,
    scenario,
)

SECOND: Final = timedelta(seconds=1)


@attrs.frozen
class _Desk:
    """A store, for the runs of one scenario: they have an agent of their own, because others share the storage."""

    store: Store
    me: str

    async def queue(self, run_id: str, **changes: Any) -> None:
        """Create a run without a claim."""
        new = new_run(run_id, changes.pop("thread", run_id), **{"agent": self.me, **changes})
        created = await self.store.create_run(new, frame(run_id, 1), claim=False)
        expect((created.claim, created.unclaimed), (None, True), "the run is written without a claim")

    async def take(self, room: int = 100, *, now: datetime = NOW, **ability: Any) -> Sequence[ReadyRun]:
        """Claim ready runs."""
        return await self.store.claim_ready(room, Ability(**{"agents": frozenset({self.me}), **ability}), now)

    async def names(self, room: int = 100, **options: Any) -> list[str]:
        """Claim ready runs; returns the ends of their ids."""
        return [run.claim.run_id.removeprefix(f"{self.me}.") for run in await self.take(room, **options)]

    async def due(self, now: datetime = NOW, *, limit: int = 100, **ability: Any) -> list[str]:
        """Claim runs whose timer fired; returns the ends of their ids."""
        runs = await self.store.claim_due(now, Ability(agents=frozenset({self.me}), **ability), limit=limit)
        return [run.claim.run_id.removeprefix(f"{self.me}.") for run in runs]

    async def author(self, run: ReadyRun) -> Author:
        """Return the owner of a claimed run."""
        return Author(self.store, run.claim, (await loaded(self.store, run.claim.run_id)).row)

    async def info(self, queue: str) -> QueueInfo | None:
        """Return a queue."""
        return next((queue_info for queue_info in await self.store.queues() if queue_info.name == queue), None)


@scenario
async def a_run_created_without_a_claim_waits_for_an_owner(store: Store, reports: ReportLog, me: str) -> None:
    """A run that is created without a claim is durable, and the first claim_ready has it."""
    desk = _Desk(store, me)
    await desk.queue(me)
    expect(reports.frames, [(me, 1, (frame(me, 1),))], "its event is reported")
    (run,) = await desk.take()
    expect((run.claim.run_id, run.held), (me, False), "it is claimed once")
    expect(list(await desk.take()), [], "and has an owner from then on")
    await (await desk.author(run)).write()


@scenario
async def one_claim_takes_no_more_than_its_room(store: Store, _: ReportLog, me: str) -> None:
    """The oldest ready runs are claimed first, at most as many as there is room for."""
    desk = _Desk(store, me)
    for name in "abcde":
        await desk.queue(f"{me}.{name}")
    expect(await desk.names(2), ["a", "b"], "the oldest are first")
    expect(await desk.names(0), [], "without room there is nothing")
    expect(await desk.names(9), ["c", "d", "e"], "the rest follows")


@reopening
async def what_is_not_at_rest_needs_an_owner(open_store: OpenStore, me: str) -> None:
    """After an opening every run is ready that is not at rest, or waits with live background tasks."""
    store = open_store()
    async with opened(store):
        authors = {}
        for name in ("new", "waits", "told", "task", "leaves", "done"):
            authors[name] = await create(store, new_run(f"{me}.{name}", f"{me}.{name}", agent=me))
        waiting = replace(authors["new"].row, stage=Stage.NEEDS_APPROVAL)
        for name in ("waits", "told"):
            await authors[name].write(row=waiting)
        await store.post(f"{me}.told", say("c1"), judge)
        task = TaskRow(task_id="c.task1", call_id="c", tool="crawl", arguments={}, started_at=NOW)
        await authors["task"].write(row=replace(waiting, tasks=(task,)))
        leaving = Termination(kind=TerminationKind.CANCELLED)
        await authors["leaves"].write(row=replace(waiting, termination=leaving))
        await authors["done"].end()
        expect(await _Desk(store, me).names(), [], "what this opening has claimed has an owner")
    again = open_store()
    async with opened(again):
        desk = _Desk(again, me)
        runs = await desk.take()
        names = [run.claim.run_id.removeprefix(f"{me}.") for run in runs]
        expect(names, ["new", "told", "task", "leaves"], "each of them is ready, in order, and no other")
        expect((await loaded(again, f"{me}.task")).row.tasks, (task,), "tasks are kept")
        expect(await desk.names(), [], "once")
        for run in runs:
            author = await desk.author(run)
            await author.write(row=replace(author.row, stage=Stage.NEEDS_APPROVAL, tasks=(), termination=None))
        await again.post(f"{me}.waits", say("c1"), judge)
        expect(await desk.names(), ["waits"], "a command wakes a run that has no owner in this opening")


@scenario
async def a_more_urgent_run_is_claimed_earlier_and_none_starves(store: Store, _: ReportLog, me: str) -> None:
    """A step of priority counts like ten seconds of waiting."""
    desk = _Desk(store, me)
    for name, seconds, priority in (("late", 15, 1), ("plain", 0, 0), ("urgent", 5, 1), ("least", 0, -1)):
        await desk.queue(f"{me}.{name}", created_at=NOW + seconds * SECOND, priority=priority)
    now = NOW + 20 * SECOND
    expect(await desk.names(now=now), ["urgent", "plain", "late", "least"], "the order of the claims")


@scenario
async def a_run_is_not_claimed_before_its_time(store: Store, _: ReportLog, me: str) -> None:
    """A run that is to be ready later waits for that time, however urgent it is."""
    desk = _Desk(store, me)
    await desk.queue(me, ready_at=NOW + 60 * SECOND, priority=100)
    expect(await desk.names(now=NOW + 59 * SECOND), [], "not yet")
    expect(await desk.names(now=NOW + 60 * SECOND), [me], "now")


@scenario
async def queues_take_turns(store: Store, _: ReportLog, me: str) -> None:
    """A long queue keeps no other queue waiting, in one claim and over many small ones."""
    desk = _Desk(store, me)
    for number in range(8):
        await desk.queue(f"{me}.long{number}", queue=f"{me}.long")
    await desk.queue(f"{me}.short0", queue=f"{me}.short")
    expect("short0" in await desk.names(3), True, "each queue has its share of one claim")
    for number in range(20):
        await desk.queue(f"{me}.more{number}", queue=f"{me}.long")
    await desk.queue(f"{me}.short1", queue=f"{me}.short")
    claimed = [name for _ in range(16) for name in await desk.names(1)]
    expect("short1" in claimed, True, "claims of one run each serve every queue")
    expect((await desk.info(f"{me}.short")) is None, False, "a queue exists since its first run")


@scenario
async def a_paused_queue_keeps_its_runs(store: Store, _: ReportLog, me: str) -> None:
    """No run of a paused queue is claimed, until it is not paused any more."""
    desk = _Desk(store, me)
    await store.set_queue(me, paused=True)
    await desk.queue(f"{me}.a")
    expect(await desk.names(), [], "the queue of an agent has its key as name, and is paused")
    info = await desk.info(me)
    expect((info and info.paused, info and info.ready), (True, 1), "the queue says so")
    outline = await store.outline(f"{me}.a")
    place = outline and outline.queue
    expect(place and (place.name, place.paused), (me, True), "the run's outline says so, too")
    await store.set_queue(me)
    expect(await desk.names(), ["a"], "it is claimed afterwards")
    outline = await store.outline(f"{me}.a")
    expect(outline and outline.queue, None, "a claimed run waits in no queue")


@scenario
async def no_more_runs_of_a_queue_work_than_its_limit(store: Store, _: ReportLog, me: str) -> None:
    """A limited queue gives a run when one of its runs has ended or waits."""
    desk = _Desk(store, me)
    await store.set_queue(me, max_running=2)
    for name in "abcde":
        await desk.queue(f"{me}.{name}")
    runs = await desk.take()
    expect(len(runs), 2, "as many as the limit")
    expect(await desk.names(), [], "and no more while they work")
    info = await desk.info(me)
    expect((info and info.ready, info and info.working, info and info.max_running), (3, 2, 2), "the queue counts them")
    await (await desk.author(runs[0])).end()
    expect(await desk.names(), ["c"], "one ends, one is claimed")
    author = await desk.author(runs[1])
    await author.write(row=replace(author.row, stage=Stage.NEEDS_APPROVAL))
    expect(await desk.names(), ["d"], "one that waits for people does not count")
    error = await refused(UsageError, store.set_queue(me, max_running=0), "a limit is at least 1")
    expect("paused" in str(error), True, "the way to stop a queue is named")


@scenario
async def a_queue_shows_what_waits_in_it(store: Store, _: ReportLog, me: str) -> None:
    """A queue has the number of its ready runs, and since when the oldest is ready."""
    desk = _Desk(store, me)
    await desk.queue(f"{me}.a", created_at=NOW + SECOND)
    await desk.queue(f"{me}.b", created_at=NOW)
    info = await desk.info(me)
    expect((info and info.ready, info and info.oldest), (2, NOW), "two are ready")
    await desk.take(now=NOW + SECOND)
    info = await desk.info(me)
    expect((info and info.ready, info and info.oldest, info and info.working), (0, None, 2), "now they work")


@scenario
async def one_open_run_has_a_key(store: Store, _: ReportLog, me: str) -> None:
    """While an open run has a dedupe key, a start with the key returns that run."""
    author = await create(store, new_run(f"{me}.a", f"{me}.a", dedupe=me))
    again = await store.create_run(new_run(f"{me}.b", f"{me}.b", dedupe=me), frame(f"{me}.b", 1))
    expect((again.claim, again.deduplicated, again.unclaimed), (None, True, False), "nothing is written")
    expect(again.existing and again.existing.run_id, f"{me}.a", "the open run is returned")
    expect(await store.load(f"{me}.b"), None, "the second run does not exist")
    await author.end()
    await create(store, new_run(f"{me}.b", f"{me}.b", dedupe=me))


@scenario
async def only_able_processes_claim_a_run(store: Store, _: ReportLog, me: str) -> None:
    """Runs of other agents are left, and runs with dependencies of their own if there are none."""
    desk = _Desk(store, me)
    await desk.queue(f"{me}.other", agent=f"{me}.stranger")
    await desk.queue(f"{me}.deps", has_deps=True)
    expect(await desk.names(deps=False), [], "this process can work on neither")
    expect(await desk.names(), ["deps"], "with dependencies it can")
    expect(await desk.names(agents=frozenset({f"{me}.stranger"})), ["other"], "one with that agent can")


@scenario
async def a_run_is_claimed_where_its_place_is(store: Store, _: ReportLog, me: str) -> None:
    """A run at a place is claimed by a process that has the place; a run without one by any process."""
    desk, here, there = _Desk(store, me), f"{me}.here", f"{me}.there"
    for name, place in (("here", here), ("there", there), ("free", None)):
        await desk.queue(f"{me}.{name}", place=place)
    expect((await loaded(store, f"{me}.here")).info.place, here, "the place is kept")
    expect(await desk.names(places=frozenset()), ["free"], "a process without places gets the run without one")
    expect(await desk.names(places=frozenset({here})), ["here"], "the process with the place gets the run")
    expect(await desk.names(places=None), ["there"], "a process that takes every run gets the rest")


@scenario
async def a_deadline_acts_where_the_place_is(store: Store, _: ReportLog, me: str) -> None:
    """The timer of a run at a place that this process lacks is left to others."""
    desk, here = _Desk(store, me), f"{me}.here"
    await desk.queue(f"{me}.a", place=here, next_due=NOW)
    expect(await desk.due(NOW + SECOND, places=frozenset()), [], "not without the place")
    expect(await desk.due(NOW + SECOND, places=frozenset({here})), ["a"], "with the place")


@scenario
async def a_held_run_follows_the_run_before_it(store: Store, _: ReportLog, me: str) -> None:
    """Runs of one thread that wait in a queue are claimed so that one works at a time, oldest first."""
    desk = _Desk(store, me)
    await desk.queue(f"{me}.a", thread=me)
    await desk.queue(f"{me}.b", thread=me)
    runs = await desk.take()
    held = [(run.claim.run_id, run.held) for run in runs]
    expected = [(f"{me}.a", False)] if store.shared else [(f"{me}.a", False), (f"{me}.b", True)]
    expect(held, expected, "a held run is ready only in a store that is not shared, where its owner waits")
    await (await desk.author(runs[0])).end()
    if store.shared:
        expect(await desk.names(), ["b"], "it is ready once the thread is free")
    else:
        expect((await store.summaries([f"{me}.b"])).runs[0].held, False, "it may work once the thread is free")


@scenario
async def timers_wake_runs_that_wait(store: Store, _: ReportLog, me: str) -> None:
    """A waiting run without an owner is claimed when its timer fires, the earliest first."""
    desk = _Desk(store, me)
    authors = {}
    for name, seconds in (("second", 2), ("first", 1), ("never", None)):
        author = authors[name] = await create(store, new_run(f"{me}.{name}", f"{me}.{name}", agent=me))
        due = None if seconds is None else NOW + seconds * SECOND
        await author.write(row=replace(author.row, stage=Stage.NEEDS_APPROVAL, next_due=due))
    expect(list(await store.release([author.claim for author in authors.values()])), [], "they are at rest")
    earliest = await store.next_due()
    expect(earliest is not None and earliest <= NOW + SECOND, True, "the earliest timer is known")
    expect(await desk.due(NOW), [], "none has fired")
    expect(await desk.due(NOW + 9 * SECOND, limit=1), ["first"], "the earliest is first")
    able = Ability(agents=frozenset({me}))
    runs = {run.claim.run_id: run for run in await store.claim_due(NOW + 9 * SECOND, able)}
    expect(f"{me}.second" in runs, True, "then the next")
    author = await desk.author(runs[f"{me}.second"])
    await author.write(row=replace(author.row, next_due=None))
    expect(f"{me}.second" in await desk.due(NOW + 9 * SECOND), False, "without a timer it is not due")


@scenario
async def a_deadline_acts_on_a_run_in_a_queue(store: Store, _: ReportLog, me: str) -> None:
    """A run in a queue is claimed when its deadline passes, also from a queue that is paused or before its time."""
    desk = _Desk(store, me)
    await store.set_queue(me, paused=True)
    for name, seconds in (("second", 2), ("first", 1), ("never", None)):
        due = None if seconds is None else NOW + seconds * SECOND
        await desk.queue(f"{me}.{name}", ready_at=NOW + 99 * SECOND if name == "second" else None, next_due=due)
    expect(await desk.names(), [], "the queue is paused")
    expect(await desk.due(NOW), [], "no deadline has passed")
    earliest = await store.next_due()
    expect(earliest is not None and earliest <= NOW + SECOND, True, "the earliest deadline is known")
    expect(await desk.due(NOW + 9 * SECOND, limit=1), ["first"], "the earliest is first")
    expect("second" in await desk.due(NOW + 9 * SECOND), True, "a run that is to begin later has its deadline, too")
    await store.set_queue(me, paused=False)
    expect(await desk.names(), ["never"], "a run without a deadline waits for its queue")


@scenario
async def only_a_dead_letter_is_revived(store: Store, _: ReportLog, me: str) -> None:
    """A run that is not a dead letter is not revived."""
    author = await create(store, new_run(me, me))
    expect(await store.revive_run(me), False, "this run lives")
    await author.end()
    expect(await store.revive_run(me), False, "and now it is done")
    await refused(UnknownRun, store.revive_run(f"{me}.none"), "an unknown run is an error")


@scenario
async def claims_that_are_given_up_write_nothing(store: Store, _: ReportLog, me: str) -> None:
    """In a shared store a run that was given up has no owner; in others, release and give_back do nothing."""
    desk = _Desk(store, me)
    author = await create(store, new_run(me, me, agent=me))
    await store.give_back([author.claim])
    late = author.make(1)
    kind = (await author.send(late).receipt()).kind
    expect(kind, "lease_lost" if store.shared else "committed", "the claim is void exactly in a shared store")
    expect(await desk.names(), [me] if store.shared else [], "and the run is ready there")
