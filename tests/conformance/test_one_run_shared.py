"""A command about one run on a shared store: nothing else of the database lands in its short-lived process."""

from typing import Any

import trio
from tests.support.runs import agent
from tests.support.shared import Cluster, cluster, owner_of, until

import greenroom as gr
from greenroom.testing import call, delay
from greenroom.transport.server.one_run import OneRunClaims

HELPER = "helper"


@gr.tool(needs_approval=True, effect="write")
async def refund(order: str) -> str:
    """Pay back."""
    return f"paid {order}"


@gr.tool
async def hurry() -> str:
    raise gr.Suspend(message="quick!", expires_after=5.0)


def clerk(*steps: Any, **options: Any) -> gr.Agent[Any]:
    return agent(*steps, key=HELPER, tools=[refund, hurry], **options)


async def one_run(processes: Cluster, helper: gr.Agent[Any], **options: Any) -> tuple[gr.Runtime, OneRunClaims]:
    """A process that works on one run, as `greenroom run --store` is."""
    store = processes.store()
    claims = OneRunClaims(store)
    return await processes.open(helper, store=store, passivate_after=None, **options), claims


async def left_by_another(processes: Cluster) -> list[str]:
    """Work of the database that no process owns: a ready run, a waiting one, one whose ticket expires soon."""
    edge = await processes.open()
    worker = await processes.open(clerk(call("refund", order="7", id="c1"), "done"))
    await (await worker.start(HELPER, "hi", run_id="waits")).wait()
    await processes.close(worker)
    worker = await processes.open(clerk(call("hurry", id="c1"), "done"))
    await (await worker.start(HELPER, "hi", run_id="due")).wait()
    await edge.store.set_queue("later", paused=True)
    await worker.start(HELPER, "hi", run_id="ready", queue="later")
    await processes.close(worker)
    await edge.store.set_queue("later")
    return ["waits", "due", "ready"]


async def test_no_other_work_lands_in_the_process_of_one_run(autojump_clock):
    async with cluster() as processes:
        others = await left_by_another(processes)
        runtime, _ = await one_run(processes, clerk([delay(50), "done"]))
        before = [len(await runtime.store.events(name)) for name in others]
        run = await runtime.start(HELPER, "go", run_id="mine")
        for _ in range(100):
            await trio.sleep(0.5)
            assert [await owner_of(runtime, name) for name in others] == [None] * 3
        assert isinstance(await run.result(), gr.Completed)
        assert [len(await runtime.store.events(name)) for name in others] == before


async def test_a_decision_about_another_run_through_its_gateway_wakes_no_run_in_it(autojump_clock):
    async with cluster() as processes:
        await left_by_another(processes)
        runtime, _ = await one_run(processes, clerk("done"))
        ticket = (await (await runtime.get("waits")).view()).tickets[0]
        assert (await (await runtime.get("waits")).decide(ticket.approve())).status == "accepted"
        assert (await (await runtime.get("ready")).cancel()).status == "accepted"
        await trio.sleep(20)
        assert [await owner_of(runtime, name) for name in ("waits", "ready")] == [None, None]
        worker = await processes.open(clerk(call("refund", order="7", id="c1"), "done"))
        assert isinstance(await (await worker.get("waits")).result(), gr.Completed)
        assert isinstance(await (await worker.get("ready")).result(), gr.Cancelled)


async def test_a_hint_about_work_is_not_sent_to_it(autojump_clock):
    async with cluster() as processes:
        _, _ = await one_run(processes, clerk("done"))
        await processes.open(clerk(*["done"] * 10))
        edge = await processes.open()
        assert sorted(str(process.room) for process in await edge.store.processes() if process.agents) == ["0", "None"]
        for number in range(10):  # a hint is sent to one process, drawn at random
            began = trio.current_time()
            assert isinstance(await (await edge.start(HELPER, "hi", run_id=f"r{number}")).result(), gr.Completed)
            assert trio.current_time() - began < 0.5


async def test_its_run_and_the_run_s_children_are_worked_on_here_and_again_after_a_lost_lease(autojump_clock):
    async with cluster() as processes:
        child = agent([delay(5), "paid"], key="teller")
        parent = agent(call("teller", input="pay", id="p1"), "done", key=HELPER, tools=[child.as_tool()])
        runtime, claims = await one_run(processes, parent)
        run = await runtime.start(HELPER, "go", run_id="mine")
        await until(lambda: len(claims.mine) == 2)
        await trio.sleep(1)
        runtime.store.freeze()
        await trio.sleep(40)
        runtime.store.thaw()
        with trio.fail_after(300):
            assert isinstance(await run.result(), gr.Completed)
        (child_run,) = claims.mine - {"mine"}
        assert (await runtime.reader.info(child_run)).parent_run == "mine"


async def test_a_run_that_was_resumed_is_worked_on_with_its_children(autojump_clock):
    def parent() -> gr.Agent[Any]:
        child = agent(call("refund", order="7", id="c1"), "paid", key="teller", tools=[refund])
        return agent(call("teller", input="pay", id="p1"), "done", key=HELPER, tools=[child.as_tool()])

    async with cluster() as processes:
        before = await processes.open(parent())
        await (await before.start(HELPER, "go", run_id="mine")).wait()
        await processes.close(before)
        runtime, claims = await one_run(processes, parent())
        claims.mine.add("mine")
        await runtime.resume("mine")
        run = await runtime.get("mine")
        assert (await run.decide((await run.view()).tickets[0].approve())).ok
        assert isinstance(await run.result(), gr.Completed)


async def test_what_it_has_is_given_back_when_it_ends(autojump_clock):
    async with cluster() as processes:
        runtime, _ = await one_run(processes, clerk([delay(500), "done"]))
        await runtime.start(HELPER, "go", run_id="mine")
        await trio.sleep(1)
        edge = await processes.open()
        assert await owner_of(edge, "mine") is not None
        await processes.close(runtime)
        assert await owner_of(edge, "mine") is None
        assert [process.name for process in await edge.store.processes()] == [edge.store.process]


async def test_a_ticket_of_its_run_expires_however_long_the_run_waits(autojump_clock):
    @gr.tool
    async def slowly() -> str:
        raise gr.Suspend(message="when?", expires_after=500.0)

    async with cluster() as processes:
        runtime, _ = await one_run(processes, agent(call("slowly", id="c1"), "done", key=HELPER, tools=[slowly]))
        run = await runtime.start(HELPER, "go", run_id="mine")
        with trio.fail_after(600):
            assert isinstance(await run.result(), gr.Completed)
