"""What a process notes of runs is forgotten when they move or end elsewhere: a long-lived process stays small."""

import gc
from datetime import timedelta

import pytest
import trio

from greenroom.actors.runtime.run_registry import RunRegistry
from greenroom.actors.runtime.shared.moved_runs import MovedRuns
from greenroom.actors.services.wakeup_timer import WakeupTimer
from greenroom.actors.stores.memory._peers import Peer

from ..support.moving_runs import agents, broken, counted, end, grown, named_in, start
from ..support.runs import events_of
from ..support.shared import cluster, owner_of, until

WAYS = ("decided", "cancelled", "degraded", "failing", "followed", "held", "child", "timer", "overran", "late")
MANY = 50
"""Runs of each way."""


async def live_and_end(here, there, ids):
    """Runs of all ways, in two processes: `here` loses all its runs twice, and `there` works on them."""
    first = [run_id for run_id in ids if not run_id.startswith(("overran", "late"))]
    async with trio.open_nursery() as nursery:
        for run_id in first:
            await start(here, there, run_id)
        for run_id in first:
            if run_id.startswith("followed"):
                nursery.start_soon(events_of, await here.get(run_id))
        await trio.sleep(100)  # what waits leaves memory: the process that decides works on it
        here.store.freeze()
        await trio.sleep(28)  # its lease runs out, and it is not declared dead
        here.store.thaw()
        await trio.sleep(10)
        for run_id in ids:
            if run_id.startswith("overran"):
                await start(here, there, run_id)
        await trio.sleep(1)
        here.store.freeze()
        await trio.sleep(60)  # it is declared dead
        here.store.thaw()
        await trio.sleep(10)
        for run_id in ids:
            if run_id.startswith("late"):  # a thread holds one of two when it is cancelled
                await start(here, there, run_id)
        for run_id in ids:
            nursery.start_soon(end, there, run_id)


async def settled(shared, here, there, ids):
    """Nothing but what notes of the runs may be left."""
    assert {await owner_of(there, run_id) for run_id in ids} == {None}
    await trio.sleep(400)  # bodies that overran have ended; threads free their members, watches end
    for process in (here, there):
        await process.store.prune(shared.clock.now() + timedelta(days=1))
    await trio.sleep(10)
    gc.collect()


async def play(shared, few, many):
    """Some runs, then many more; returns what is left of the many in each process: runs named, containers grown."""
    here, there = await shared.open(*agents(), deps=broken), await shared.open(*agents())
    ids = [
        f"{way}-{part}{number}" for part, count in (("a", few), ("b", many)) for way in WAYS for number in range(count)
    ]
    warm, rest = ids[: few * len(WAYS)], ids[few * len(WAYS) :]
    await live_and_end(here, there, warm)
    await settled(shared, here, there, warm)
    before = [counted(runtime) for runtime in (here, there)]
    await live_and_end(here, there, rest)
    await settled(shared, here, there, rest)
    sizes_now = [counted(runtime) for runtime in (here, there)]
    return [
        (named_in(runtime, ids), grown(*pair))
        for runtime, pair in zip((here, there), zip(before, sizes_now, strict=True), strict=True)
    ]


async def test_nothing_is_kept_of_runs_that_have_ended(autojump_clock):
    """Decided, cancelled and followed elsewhere, refused, held by a thread, with children, timers, overrun bodies."""
    async with cluster() as shared:
        assert await play(shared, 2, MANY) == [(set(), {})] * 2
        assert shared.first._hub.watches == {}


@pytest.mark.parametrize("way", ["degraded", "failing", "overran"])
@pytest.mark.parametrize("pruned", [False, True])
async def test_the_record_of_a_run_that_ended_elsewhere_is_dropped(autojump_clock, way, pruned):
    """The run was refused here, or its body overran here, before the other process ended it."""
    async with cluster() as shared:
        here, there = await shared.open(*agents(), deps=broken), await shared.open(*agents())
        run_id = f"{way}-a0"
        await start(here, there, run_id)
        await trio.sleep(1)
        records = here._parts.registry._runs
        if way == "overran":
            here.store.freeze()  # its lease runs out, and it is declared dead
        await until(lambda: run_id in records and records[run_id].actor is None)
        if way == "overran":
            await trio.sleep(60)
            here.store.thaw()
        await end(there, run_id)
        if pruned:
            await there.store.prune(shared.clock.now() + timedelta(days=1))
        await trio.sleep(10)
        assert [process._parts.registry._runs for process in (here, there)] == [{}, {}]


# --- what the test finds ---------------------------------------------------------------------------------------------


def moved_runs(patch):
    """Notes of runs that moved or ended elsewhere."""

    async def forget_nothing(self):
        await trio.lowlevel.checkpoint()

    patch.setattr(MovedRuns, "forget_moved", forget_nothing)
    return {"RunRegistry._runs"}


def bodies(patch):
    """Bodies that overran, although they have ended since."""
    patch.setattr(RunRegistry, "noted", lambda self: set())
    return {"RunRegistry._runs"}


def moments(patch):
    """Entries without the id of a run."""
    by = WakeupTimer.by

    def noting(self, moment):
        self.moments = [*getattr(self, "moments", ()), moment]
        by(self, moment)

    patch.setattr(WakeupTimer, "by", noting)
    return {"WakeupTimer.moments"}


def held_runs(patch):
    """In the store: runs that a thread held when this process gave them back."""
    patch.setattr(Peer, "_forget", lambda self, run_id: self._claims.pop(run_id, None))
    return {"ProcessMachine.held"}


def tasks(patch):
    """Tasks that end with the runtime only."""
    look = MovedRuns.note

    def noting(self, run_id, last):
        look(self, run_id, last)
        self._services.tasks.start_soon(self._services.signals.runtime.change().wait)

    patch.setattr(MovedRuns, "note", noting)
    return {
        "OpenModels._tasks (tasks)",
        "Services.tasks (tasks)",
    }  # one nursery: the collector's order chooses the name


def reports(patch):
    """Closures."""
    hear = Peer.hear
    late = []

    def hearing(self, delay, hint):
        late.append(hint)
        self.late = lambda: late
        hear(self, delay, hint)

    patch.setattr(Peer, "hear", hearing)
    return {"reports.<locals>.hearing.<locals>.<lambda> (closure)"}


@pytest.mark.parametrize("leak", [moved_runs, bodies, moments, held_runs, tasks, reports])
async def test_each_planted_leak_is_found(autojump_clock, monkeypatch, leak):
    places = leak(monkeypatch)
    async with cluster() as shared:
        found = await play(shared, 1, 2)
        assert places & {place for named, larger in found for place in (*named, *larger)}
