"""The Python client at the real gateway: what docs/client.md promises."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
from tests.support.gateway import TOKEN, gateway
from tests.support.ports import free_port
from tests.support.runs import agent, events_of

import greenroom as gr
from greenroom.testing import call
from greenroom.transport import Address, Client, Limits, Principal, connect
from greenroom.transport.client import ConnectionTiming, Forbidden, LogReset, NotAllowed, NotAuthenticated
from greenroom.transport.client.unread_events import MOST_EVENTS

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("gateways")]

FAST = ConnectionTiming(first=0.01, slowest=0.05)
MANY = 4 * MOST_EVENTS
"""Events of a long run: several times what a client keeps."""


@gr.tool(needs_approval=True, effect="write")
async def refund(order: str, cents: int) -> str:
    """Pay back."""
    return f"paid {cents}"


@gr.tool
async def count(ctx: gr.ToolContext, steps: int) -> int:
    """Count, and tell of every step."""
    for step in range(steps):
        await ctx.progress(step / steps)
        await trio.lowlevel.checkpoint()
    return steps


def clerk(**options):
    return agent(call("refund", order="7", cents=5, id="c1"), "done", tools=[refund], **options)


@gr.tool
async def paint(ctx: gr.ToolContext) -> str:
    """Ask in the middle of the work."""
    decision = await ctx.ask(gr.Suspend(message="Which colour?"))
    return f"{decision.result} by {decision.decided_by}"


def counter():
    return agent(call("count", steps=MANY, id="c1"), "done", tools=[count])


@asynccontextmanager
async def client_of(address: Address, **options: Any) -> AsyncIterator[Client]:
    with trio.fail_after(60):
        async with connect(address.url, **{"token": TOKEN, "pace": FAST} | options) as client:
            yield client


def client_of_port(port: int):
    return client_of(Address(host="127.0.0.1", port=port), patient=True)


async def sequences(events) -> list[int]:
    return [event.sequence async for event in events]


async def test_a_run_is_started_followed_decided_and_seen():
    helper = clerk()
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        async with client_of(address) as client:
            started = await client.start("helper", "hi")
            assert not started.duplicate
            got = []
            async with client.follow(started.run_id) as events:
                async for event in events:
                    got.append(event)
                    if event.type == "run.approval.requested":
                        view = await client.view(started.run_id)
                        ours = await (await runtime.get(started.run_id)).view()
                        assert view == attrs.evolve(ours, messages=(), state={})
                        (ticket,) = view.tickets
                        assert ticket.fingerprint == event.payload["fingerprint"]
                        answer = await client.decide(started.run_id, ticket.approve(reason="fine"))
                        assert answer.status == "accepted"
            run = await runtime.get(started.run_id)
            assert got == await events_of(run)
            theirs, ours = await client.view(run.id), await run.view()
            assert (theirs.stage, theirs.usage, theirs.calls, theirs.last_sequence, theirs.termination) == (
                ours.stage,
                ours.usage,
                ours.calls,
                ours.last_sequence,
                ours.termination,
            )
            assert [line.run_id for line in (await client.runs(status="done")).runs] == [run.id]
            assert [line.run_id for line in (await client.runs(prefix=run.id[:-1])).runs] == [run.id]
            assert (await client.runs(prefix="nobody")).runs == ()


async def test_the_gateway_may_restart_in_the_middle_of_everything():
    """The follower misses nothing, a decision that is handed in meanwhile acts, and no reader gets an error."""
    helper = clerk()
    async with gr.open_runtime(agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        await run.wait()
        waiting, connected, stopped, followed = trio.Event(), trio.Event(), trio.Event(), trio.Event()
        port, got = free_port(), []

        async def follow() -> None:
            async with client_of_port(port) as client, client.follow(run.id) as events:
                async for event in events:
                    got.append(event.sequence)
                    if event.type == "run.waiting":
                        waiting.set()
            followed.set()

        async def decide() -> None:
            async with client_of_port(port) as client:
                connected.set()
                await stopped.wait()
                answer = await client.decide(run.id, "c1", "resume", decision_id="d")
                assert answer.status == "accepted"

        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            nursery.start_soon(decide)
            async with gateway(runtime, port=port):
                await waiting.wait()
                await connected.wait()
            stopped.set()
            async with gateway(runtime, port=port):
                await followed.wait()
        assert got == [event.sequence for event in await events_of(run)]


async def test_a_slow_reader_gets_everything_while_others_are_served():
    helper, clerk_ = counter(), clerk(key="clerk")
    async with gr.open_runtime(agents=[helper, clerk_]) as runtime, gateway(runtime) as address:
        run = await runtime.start(helper, "hi")
        await run.result()
        async with client_of(address) as client, client.follow(run.id) as slow:
            got = [(await anext(slow)).sequence]
            while slow.hungry:  # noqa: ASYNC110 - no report is made of a full buffer
                await trio.sleep(0.01)
            started = await client.start("clerk", "hi")
            async with client.follow(started.run_id) as events:
                async for event in events:
                    if event.type == "run.approval.requested":
                        assert (await client.decide(started.run_id, "c1", "resume")).ok
            got += await sequences(slow)
        assert got == list(range(1, (await run.view()).last_sequence + 1))


async def test_a_slow_and_a_fast_reader_of_one_run_over_one_connection():
    helper = counter()
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        run = await runtime.start(helper, "hi")
        async with client_of(address) as client, trio.open_nursery() as nursery:
            got = {}

            async def follow(pause: float) -> None:
                async with client.follow(run.id) as events:
                    seen = []
                    async for event in events:
                        seen.append(event.sequence)
                        if len(seen) % 200 == 0:
                            await trio.sleep(pause)
                got[pause] = seen

            nursery.start_soon(follow, 0.0)
            nursery.start_soon(follow, 0.05)
        everything = list(range(1, (await run.view()).last_sequence + 1))
        assert got[0.0] == got[0.05] == everything


async def test_a_cursor_of_another_log_is_reset_with_the_runs_snapshot():
    helper = clerk()
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        run = await runtime.start(helper, "hi")
        await run.wait()
        last = (await run.view()).last_sequence
        async with client_of(address) as client:
            for cursor in ({"after": 3, "epoch": "another"}, {"after": 999}):
                async with client.follow(run.id, **cursor) as events:
                    with pytest.raises(LogReset) as caught:
                        await anext(events)
                assert caught.value.sequence == last
                assert caught.value.snapshot["stage"] == "needs_approval"
            async with client.follow(run.id, after=3, epoch="another", on_reset="continue") as events:
                while events.reset is None:  # noqa: ASYNC110 - a reset without an event after it reports nothing
                    await trio.sleep(0.01)
                assert events.reset.sequence == last
                await run.decide("c1", "resume")
                assert (await anext(events)).sequence == last + 1


async def test_what_is_not_allowed_is_said_at_the_request_and_an_unknown_token_at_the_handshake():
    helper = clerk()
    looker = Principal(name="looker", token="only-looks-at-things", scopes={"follow"})
    async with gr.open_runtime(agents=[helper]) as runtime:
        async with gateway(runtime, principals=[looker]) as address:
            run = await runtime.start(helper, "hi")
            await run.wait()
            async with client_of(address, token=looker.token) as client:
                assert client.principal == "looker"
                assert (await client.decide(run.id, "c1", "resume")).code == "not_allowed"
                with pytest.raises(NotAllowed):
                    await client.start("helper", "hi")
                with pytest.raises(gr.UnknownRun):
                    await client.view("nobody")
                async with client.follow("nobody") as events:
                    with pytest.raises(gr.UnknownRun):
                        await anext(events)
            for token in (None, "nobody's token"):
                with pytest.raises(NotAuthenticated):
                    async with client_of(address, token=token):
                        pytest.fail("that is nobody")


async def test_blank_input_is_a_usage_error_as_in_the_process():
    async with gr.open_runtime(agents=[clerk()]) as runtime, gateway(runtime) as address:
        run = await runtime.start("helper", "hi")
        async with client_of(address) as client:
            with pytest.raises(gr.UsageError, match="the text is blank"):
                await client.start("helper", " ")
            with pytest.raises(gr.UsageError, match="the text is blank"):
                await client.send(run.id, "")
        assert len((await runtime.runs()).runs) == 1


async def test_a_host_that_is_not_on_the_list_is_refused_with_the_way_out():
    async with gr.open_runtime() as runtime, gateway(runtime, hosts=["other.example"]) as address:
        with pytest.raises(Forbidden, match="is not on the list"):
            async with connect(f"ws://127.1:{address.port}", token=TOKEN):
                pytest.fail("this name is not on the list")


async def test_more_requests_than_the_gateway_takes_at_once_all_get_through():
    """The client keeps the pace that it received."""
    helper = clerk()
    limits = Limits(messages_per_second=40)
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime, limits=limits) as address:
        run = await runtime.start(helper, "hi")
        await run.wait()
        async with client_of(address) as client, trio.open_nursery() as nursery:
            answers = []

            async def send(number: int) -> None:
                answers.append((await client.send(run.id, str(number))).status)

            for number in range(60):
                nursery.start_soon(send, number)
        assert answers == ["accepted"] * 60


async def test_a_run_without_an_owner_says_why(tmp_path):
    helper = clerk()
    async with gr.open_runtime(tmp_path / "r.db", agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        await run.wait()
    async with gr.open_runtime(tmp_path / "r.db") as runtime, gateway(runtime) as address:
        async with client_of(address) as client, client.follow(run.id) as events:
            with pytest.raises(gr.RunDegradedError) as caught:
                await sequences(events)
            assert caught.value.reason == "agent_unknown"
            view = await client.view(run.id)
            assert (view.degraded, view.waiting_for.kind) == ("agent_unknown", "agent")
            assert view.waiting_for == (await (await runtime.get(run.id)).view()).waiting_for


async def test_a_run_is_paused_and_resumed_by_a_client():
    helper = clerk()
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        run = await runtime.start(helper, "hi")
        await run.wait()
        async with client_of(address) as client:
            answers = [await client.pause(run.id, reason="lunch", command_id="p") for _ in range(2)]
            assert [answer.status for answer in answers] == ["accepted", "duplicate"]
            first, second = (await client.view(run.id)).tickets
            assert (second.call_id, second.tool, second.reason) == (None, "", "manual_pause")
            assert (await client.decide(run.id, second.approve("back again"))).ok
            assert (await client.decide(run.id, first.deny(text="Not this year."))).ok
            await run.result()
            assert (await client.pause(run.id)).code == "run_done"
        texts = [message.content for message in (await run.view()).messages]
        assert texts[2:4] == ["Not this year.", "back again"]


async def test_a_client_forks_a_run_once_and_owns_the_fork():
    async with gr.open_runtime(agents=[agent("one", "two", "three")]) as runtime, gateway(runtime) as address:
        async with client_of(address) as client:
            parent = await client.start("helper", "hi")
            await (await runtime.get(parent.run_id)).wait()
            fork = await client.fork(parent.run_id, step=0, command_id="f1")
            again = await client.fork(parent.run_id, step=0, command_id="f1")
            assert (fork.duplicate, again.duplicate) == (False, True)
            assert (again.run_id, again.thread_id) == (fork.run_id, fork.thread_id)
            assert fork.thread_id != parent.thread_id
            named = await client.fork(parent.run_id, step=1, new_run_id="mine")
            assert named.run_id == "mine"
            for run_id in (fork.run_id, "mine"):
                await (await runtime.get(run_id)).wait()
            created = (await events_of(await runtime.get("mine")))[0]
            assert created.payload["forkedFrom"] == f"{parent.run_id}@1"


async def test_an_invalid_fork_raises_what_the_runtime_raises_and_makes_no_run():
    async with gr.open_runtime(agents=[agent("one", "two")]) as runtime, gateway(runtime) as address:
        async with client_of(address) as client:
            parent = await client.start("helper", "hi", run_id="r1")
            await (await runtime.get(parent.run_id)).wait()
            for step in (-1, 1.0, True, "1", None, 2**53):
                with pytest.raises(gr.UsageError, match="step="):
                    await client.fork("r1", step=step)
            with pytest.raises(gr.UsageError, match="finished steps"):
                await client.fork("r1", step=9)
            with pytest.raises(gr.UnknownRun):
                await client.fork("r2", step=0)
            with pytest.raises(gr.RunExists):
                await client.fork("r1", step=0, new_run_id="r1")
            assert [line.run_id for line in (await client.runs()).runs] == ["r1"]


async def test_a_client_sees_that_a_process_waits_and_decides():
    painter = agent(call("paint", id="c1"), "done", tools=[paint])
    async with gr.open_runtime(agents=[painter]) as runtime, gateway(runtime) as address, client_of(address) as client:
        run = await runtime.start(painter, "Paint.", run_id="r", by="me")
        await run.wait()
        (ticket,) = (await client.view("r")).tickets
        assert (ticket.live, ticket.call_id, ticket.tool) == (True, "c1.1", "paint")
        (line,) = (await client.runs()).runs
        assert [summary.live for summary in line.asked] == [True]
        assert (await client.decide("r", ticket.approve("red"))).status == "accepted"
        await run.result()
        asked = [event for event in await events_of(run) if event.type == "run.tool.call"]
        assert [event.payload.get("parentCallId") for event in asked] == [None, "c1"]
