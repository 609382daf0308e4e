"""Runs on a shared store: any process starts, decides, follows and waits; one works."""

import pytest
import trio

import greenroom as gr
from greenroom.testing import FunctionModel, call, delay

from ..support.runs import agent, events_of, payloads, types
from ..support.shared import LEASE, TURN, cluster, live, owner_of, until


@gr.tool(needs_approval=True)
async def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


def payer(key="payer", **options):
    return agent(call("pay", cents=5, id="c1"), "done", key=key, tools=[pay], **options)


async def test_a_decision_in_another_process_continues_the_run_where_it_is(autojump_clock):
    async with cluster() as shared:
        here, there = await shared.open(payer()), await shared.open()
        run = await here.start("payer", "hi")
        other = await there.get(run.id)
        outcome = await other.wait()
        assert isinstance(outcome, gr.Waiting)
        began = trio.current_time()
        assert (await other.decide(outcome.tickets[0].approve())).status == "accepted"
        assert (await other.result()).output == "done"
        assert trio.current_time() - began < 1.0
        assert types(await events_of(other)) == types(await events_of(run))


async def test_a_run_is_followed_in_another_process_event_by_event(autojump_clock):
    async with cluster() as shared:
        helper = agent([delay(5), "one ", delay(5), "two"])
        here, there = await shared.open(helper), await shared.open()
        run = await here.start(helper, "hi")
        seen = []
        async with (await there.get(run.id)).events() as events:
            async for event in events:
                seen.append((event.sequence, event.type, trio.current_time()))
        assert [sequence for sequence, _, _ in seen] == list(range(1, len(seen) + 1))
        late = [at for _, kind, at in seen if kind.endswith("delta")]
        assert late
        assert max(late) - min(late) >= 4.0, "what is streamed arrives when it is streamed"
        assert types(await events_of(run)) == [kind.removeprefix("run.") for _, kind, _ in seen]
