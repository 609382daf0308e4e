"""What a process on PostgreSQL notes of runs is forgotten when they move or end elsewhere, as on a memory store."""

import gc
from datetime import UTC, datetime, timedelta

import pytest
import trio
from tests.support.moving_runs import agents, broken, counted, end, grown, named_in, start
from tests.support.postgres_steering import PostgresSteering
from tests.support.runs import events_of

import greenroom as gr
from greenroom.actors.runtime.shared import moved_runs

pytestmark = [pytest.mark.slow, pytest.mark.no_cover]

WAYS = ("decided", "cancelled", "degraded", "failing", "followed", "held", "child", "late")
FEW, MANY = 2, 8
"""Runs of each way, before and after the sizes are taken."""


async def live_and_end(steering: PostgresSteering, here: gr.Runtime, there: gr.Runtime, ids: list[str]) -> None:
    """Runs of all ways, in two processes: `here` loses its lease, and `there` works on the runs."""
    async with trio.open_nursery() as nursery:
        for run_id in ids:
            if not run_id.startswith("late"):
                await start(here, there, run_id)
            if run_id.startswith("followed"):
                nursery.start_soon(events_of, await here.get(run_id))
        await trio.sleep(1)
        steering.freeze(here.store)
        await trio.sleep(steering.lease + 2)
        steering.thaw(here.store)
        with trio.fail_after(20):
            while here.store.unready is not None:  # noqa: ASYNC110 - threads and servers change it
                await trio.sleep(0.1)
        await trio.sleep(1)
        for run_id in ids:
            if run_id.startswith("late"):  # a thread holds one of two when it is cancelled
                await start(here, there, run_id)
        for run_id in ids:
            nursery.start_soon(end, there, run_id)


async def settled(here: gr.Runtime, there: gr.Runtime) -> None:
    """Nothing but what notes of the runs may be left."""
    for process in (here, there):
        await process.store.prune(datetime.now(UTC) + timedelta(days=1))
    await trio.sleep(5)
    gc.collect()


async def test_nothing_is_kept_of_runs_that_have_ended(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moved_runs, "NET", 0.5)
    ids = [[f"{way}-{part}{n}" for way in WAYS for n in range(count)] for part, count in (("a", FEW), ("b", MANY))]
    with PostgresSteering(postgres_url) as steering, trio.fail_after(120):
        stores = steering.open_store(), steering.open_store()
        async with (
            gr.open_runtime(stores[0], agents=agents(), deps=broken, passivate_after=0.3) as here,
            gr.open_runtime(stores[1], agents=agents(), passivate_after=0.3) as there,
        ):
            await live_and_end(steering, here, there, ids[0])
            await settled(here, there)
            before = [counted(runtime) for runtime in (here, there)]
            await live_and_end(steering, here, there, ids[1])
            await settled(here, there)
            for runtime, then in zip((here, there), before, strict=True):
                assert named_in(runtime, [*ids[0], *ids[1]]) == set()
                assert grown(then, counted(runtime)) == {}
            links = [*stores[0]._peers._links, *stores[0]._all_links()]  # type: ignore[union-attr]
            assert {text for link in links for text in link._texts if "{s}" not in text} == set(), "some name a process"
