"""A runtime and the client of its gateway are used alike: what `RunAccess` promises."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from tests.support.gateway import TOKEN, gateway
from tests.support.runs import agent

import greenroom as gr
from greenroom.testing import call
from greenroom.transport import connect


@gr.tool(needs_approval=True, effect="write")
async def refund(order: str) -> str:
    """Pay back."""
    return f"paid {order}"


@asynccontextmanager
async def opened(road: str) -> AsyncIterator[tuple[gr.Runtime, gr.RunAccess]]:
    helper = agent(call("refund", order="7", id="c1"), "done", tools=[refund])
    async with gr.open_runtime(agents=[helper]) as runtime:
        if road == "here":
            yield runtime, runtime.as_principal("operator")
            return
        async with gateway(runtime) as address, connect(address.url, token=TOKEN) as client:
            yield runtime, client


@pytest.mark.slow
@pytest.mark.parametrize("road", ["here", "gateway"])
async def test_a_run_is_listed_decided_followed_and_forked_by_one_function(road):
    with trio.fail_after(60):
        async with opened(road) as (runtime, access):
            run = await runtime.start("helper", "hi", run_id="r1")
            await run.wait()
            (line,) = (await access.runs(status="waiting", prefix="r")).runs
            assert (line.run_id, line.agent, line.stage, line.asked_count) == ("r1", "helper", "needs_approval", 1)
            (ticket,) = (await access.view("r1")).tickets
            sent = await access.send("r1", "also this", command_id="c")
            assert (sent.status, (await access.send("r1", "also this", command_id="c")).status) == (
                "accepted",
                "duplicate",
            )
            assert (await access.decide("r1", ticket.approve())).ok
            async with access.follow("r1", after=1) as events:
                seen = [event async for event in events]
            assert (seen[0].sequence, seen[-1].type) == (2, "run.completed")
            (resolved,) = (event for event in seen if event.type == "run.approval.resolved")
            assert resolved.payload["by"] == access.principal
            fork = await access.fork("r1", step=0, new_run_id="r2")
            assert (fork.id, fork.thread_id == run.thread_id) == ("r2", False)
            assert (await access.view("r2")).by == access.principal
            assert (await access.pause("r2", reason="later")).ok
            assert (await access.cancel("r2", mode="now", reason="enough")).ok
            await access.set_queue("helper", max_running=3)
            assert [(queue.name, queue.max_running) for queue in await access.queues()] == [("helper", 3)]
            assert not await access.revive_run("r1")


async def test_a_principal_has_a_name():
    async with gr.open_runtime() as runtime:
        assert runtime.principal == "local"
        with pytest.raises(gr.UsageError, match="principal=7"):
            runtime.as_principal(7)
