"""What a process notes of runs that end in another process is forgotten, so that a long-lived process does not grow."""

import gc
from datetime import timedelta
from functools import partial

import trio

import greenroom as gr
from greenroom.actors.stores._memory_tables import MemoryTables
from greenroom.testing import call

from ..support.kept import kept
from ..support.runs import agent, events_of
from ..support.shared import cluster, owner_of

WAYS = ("decided", "cancelled", "degraded", "followed", "held")
RUNS = 100
"""Of each way."""


@gr.tool(needs_approval=True)
async def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


@gr.tool
async def whoami(ctx: gr.ToolContext) -> str:
    """Tell."""
    return str(ctx.deps)


def payer():
    return agent(call("pay", cents=5, id="c1"), "done", key="payer", tools=[pay])


helper = partial(agent, call("whoami", id="c1"), "done", key="helper", tools=[whoami])


def broken(info):
    """A provider of deps that has none for some runs, and fails for others."""
    if info.agent == "helper":
        raise LookupError("not here") if info.run_id.endswith("1") else OSError("the provider is away")
    return "ada"


async def test_nothing_is_kept_of_runs_that_end_in_another_process(autojump_clock):
    """Started here and ended there, cancelled there, degraded here, followed here, held by a thread, voided here."""
    async with cluster() as shared:
        here, there = await shared.open(payer(), helper(), deps=broken), await shared.open(payer(), helper())
        ids = [f"{way}-{number}" for way in WAYS for number in range(RUNS)]
        runs = {run_id: await start(here, there, run_id) for run_id in ids}
        async with trio.open_nursery() as nursery:
            for number in range(RUNS):
                nursery.start_soon(events_of, await here.get(f"followed-{number}"))
            await trio.sleep(100)  # what waits leaves memory: the process that decides works on it
            here.store.freeze()
            await trio.sleep(28)
            here.store.thaw()
            for run_id in runs:
                run = await there.get(run_id)
                if run_id.startswith("cancelled"):
                    await run.cancel()
                elif not run_id.startswith("degraded"):
                    await run.decide("c1", "approve")
            for run_id in runs:
                await (await there.get(run_id)).result()
        assert {await owner_of(there, run_id) for run_id in ids} == {None}
        del runs, run
        await trio.sleep(30)
        gc.collect()
        assert [kept_in(runtime, ids) for runtime in (here, there)] == [[], []]
        assert shared.first._hub.watches == {}


async def start(here, there, run_id):
    """Start a run in its way."""
    way, _, number = run_id.partition("-")
    if way == "degraded":
        deadline = there.clock.now() + timedelta(days=30)
        return await here.start("helper", "hi", run_id=run_id, deadline=deadline)
    thread = f"t{int(number) // 2}" if way == "held" else None
    return await (there if way == "followed" else here).start("payer", "hi", run_id=run_id, thread_id=thread)


def kept_in(runtime, ids):
    """The containers of a process that name one of the runs; the tables are the storage's, not the process's."""
    return kept([runtime, runtime.store], ids, not_in=(MemoryTables, gr.Agent))


async def test_containers_are_found_while_runs_are_alive(autojump_clock):
    """The judge of the other test: what it looks for is found as long as it is needed."""
    async with cluster() as shared:
        here, there = await shared.open(payer(), helper(), deps=broken), await shared.open()
        run = await here.start("payer", "hi", run_id="r1")
        await here.start("helper", "hi", run_id="r2")
        following = await there.get("r1")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(events_of, following)
            await trio.sleep(2)
            assert {"RunRegistry._degraded", "RunRegistry._refusals", "RunRegistry._said"} <= {*kept_in(here, ["r2"])}
            assert {"Agents.failing", "Peer._claims"} <= {*kept_in(here, ["r1", "r2"])}
            assert {"RunRegistry._actors", "RunRegistry._resting"} <= {*kept_in(here, ["r1"])}
            assert {"ChangeSignals._signals", "Peer._watched"} <= {
                name.replace("StoreReports", "ChangeSignals") for name in kept_in(there, ["r1"])
            }
            await run.cancel()
            await (await here.get("r2")).cancel()
