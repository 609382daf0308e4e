"""Deadlines of runs on which no process works: in a queue, without room, held, or without a process that has the agent.

On one process, on processes in virtual time, and on PostgreSQL with the threads of production.
"""

from datetime import timedelta
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.actors.services.clock import Clock
from greenroom.actors.stores.postgres.store import PostgresStore
from greenroom.testing import FunctionModel

from ..support.runs import agent, events_of, home, payloads
from ..support.shared import cluster, owner_of

SOON = 100.0
LATE = 7.0
"""A run in a queue is not in any process's memory: its deadline is looked for every few seconds."""


def asked(requests: list[str], key: str = "clerk", seconds: float = 0.0) -> gr.Agent[Any]:
    """An agent whose model notes what it is asked, and takes its time."""

    async def think(request: gr.ModelRequest) -> str:
        requests.append(request.messages[-1].content)
        await trio.sleep(seconds)
        return "done"

    return gr.Agent(key, model=FunctionModel(think))


async def times_out(run: gr.Run[Any], *, late: float = LATE) -> None:
    """The run ends at its deadline by itself: no process looks at it meanwhile."""
    outcome = await run.wait()
    assert isinstance(outcome, gr.Failed)
    assert outcome.code == "run_timeout"
    events = await events_of(run)
    assert "started" not in {event.type.removeprefix("run.") for event in events}
    seconds = (events[-1].timestamp - events[0].timestamp).total_seconds()
    assert SOON <= seconds <= SOON + late
    assert payloads(events, "created")[0]["deadline"]


# --- in a queue ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("why", ["paused", "at its limit", "not yet", "no room"])
async def test_a_deadline_ends_a_run_in_a_queue(shelf, autojump_clock, why):
    requests: list[str] = []
    agents = [asked(requests), asked([], "long", 5_000)]
    async with home(shelf, agents=agents, max_running=1 if why == "no room" else None) as runtime:
        if why == "paused":
            await runtime.store.set_queue("clerk", paused=True)
        if why == "at its limit":
            await runtime.store.set_queue("clerk", max_running=1)
            await runtime.start("long", "first", queue="clerk")
            await trio.sleep(1)
        if why == "no room":
            await runtime.start("long", "first")
        now = runtime.clock.now()
        at = now + timedelta(seconds=2 * SOON) if why == "not yet" else None
        run = await runtime.start("clerk", "hi", background=True, at=at, deadline=now + timedelta(seconds=SOON))
        await trio.sleep(SOON + LATE)
        assert (await run.view()).status == "done"
        await times_out(run)
    assert requests == []


async def test_a_deadline_ends_a_run_in_a_queue_after_the_process_was_away(shelf, autojump_clock):
    clock = Clock()
    async with home(shelf, agents=[asked([])], clock=clock) as runtime:
        await runtime.store.set_queue("clerk", paused=True)
        deadline = clock.now() + timedelta(seconds=SOON)
        await runtime.start("clerk", "hi", run_id="r", background=True, deadline=deadline)
    requests: list[str] = []
    async with home(shelf, agents=[asked(requests)], clock=clock) as runtime:
        await trio.sleep(SOON + LATE)
        await times_out(await runtime.get("r"))
    assert requests == []


@pytest.mark.parametrize("why", ["paused", "no room"])
async def test_a_deadline_ends_a_run_in_the_queue_of_other_processes(autojump_clock, why):
    requests: list[str] = []
    async with cluster() as shared:
        gateway = await shared.open()
        worker = await shared.open(asked(requests), asked([], "long", 1_000), max_running=1)
        if why == "paused":
            await worker.store.set_queue("clerk", paused=True)
        else:
            await worker.start("long", "first")
        run = await gateway.start("clerk", "hi", deadline=shared.clock.now() + timedelta(seconds=SOON))
        await trio.sleep(SOON + LATE)
        assert (await run.view()).status == "done"
        await times_out(run)
    assert requests == []


# --- without the agent -----------------------------------------------------------------------------------------------


async def test_a_deadline_ends_a_run_whose_agent_no_live_process_has_without_anybody_looking(autojump_clock):
    async with cluster() as shared:
        worker = await shared.open(asked([]))
        await worker.store.set_queue("clerk", paused=True)
        await worker.start("clerk", "hi", run_id="r", deadline=shared.clock.now() + timedelta(seconds=SOON))
        await worker.start(
            "clerk", "hi", run_id="q", background=True, deadline=shared.clock.now() + timedelta(seconds=1)
        )
        await shared.close(worker)
        other = await shared.open(agent(key="another"))
        await trio.sleep(SOON + LATE)
        assert (await (await other.get("q")).view()).status == "done"


async def test_a_run_that_waits_has_its_deadline_without_its_agent(autojump_clock):
    @gr.tool(needs_approval=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    payer = agent(gr.testing.call("pay", id="c1"), "done", key="payer", tools=[pay])
    async with cluster() as shared:
        worker = await shared.open(payer)
        deadline = shared.clock.now() + timedelta(seconds=SOON)
        await (await worker.start("payer", "hi", run_id="r", deadline=deadline)).wait()
        await shared.close(worker)
        gateway = await shared.open()
        await trio.sleep(SOON + LATE)  # no process reads the run meanwhile
        run = await gateway.get("r")
        assert (await run.view()).status == "done"
        outcome = await run.wait()
        assert isinstance(outcome, gr.Failed)
        assert outcome.code == "run_timeout"


async def test_a_live_process_with_the_agent_keeps_its_runs_for_itself(autojump_clock):
    """A gateway without the agent does not take them, whatever has passed: only the agent's process can do more."""

    @gr.tool
    async def ask() -> str:
        """Ask."""
        raise gr.Suspend(expires_after=SOON, on_expiry=gr.SetResult("no answer"))

    helper = agent(gr.testing.call("ask", id="c1"), "done", key="helper", tools=[ask])
    async with cluster() as shared:
        gateway, worker = await shared.open(), await shared.open(helper)
        run = await gateway.start("helper", "hi", deadline=shared.clock.now() + timedelta(seconds=10 * SOON))
        await trio.sleep(SOON + LATE)
        assert (await run.result()).output == "done"
        assert await owner_of(worker, run.id) is None


async def test_an_expiry_without_the_agent_waits_for_the_agent(autojump_clock):
    """Only the agent's process can say what an expiry does; a process without it tries, and gives the run back."""

    @gr.tool
    async def ask() -> str:
        """Ask."""
        raise gr.Suspend(expires_after=SOON, on_expiry=gr.SetResult("no answer"))

    def helper() -> gr.Agent[Any]:
        return agent(gr.testing.call("ask", id="c1"), "done", key="helper", tools=[ask])

    async with cluster() as shared:
        worker = await shared.open(helper())
        deadline = shared.clock.now() + timedelta(seconds=10 * SOON)
        await (await worker.start("helper", "hi", run_id="r", deadline=deadline)).wait()
        await shared.close(worker)
        gateway = await shared.open()
        await trio.sleep(3 * SOON)
        run = await gateway.get("r")
        assert (await run.view()).status == "waiting"
        assert await owner_of(gateway, "r") is None
        await shared.open(helper())
        assert (await run.result()).output == "done"


# --- on a server -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("why", ["paused", "no agent"])
async def test_a_deadline_acts_in_postgres_without_an_owner(postgres_url, why):
    """In real time: each process looks every few seconds."""
    requests: list[str] = []
    times = {"lease": 3.0, "turn": 0.25, "margin": 0.6}
    with trio.fail_after(60):
        async with gr.open_runtime(PostgresStore(postgres_url, **times), agents=[asked(requests)]) as worker:
            await worker.store.set_queue("clerk", paused=True)
            deadline = worker.clock.now() + timedelta(seconds=2)
            options: Any = {"run_id": "r", "background": True, "deadline": deadline}
            run = await worker.start("clerk", "hi", **options)
            if why == "paused":
                await _done(run)
        async with gr.open_runtime(PostgresStore(postgres_url, **times)) as gateway:
            run = await gateway.get("r")
            await _done(run)
            outcome = await run.wait()
    assert isinstance(outcome, gr.Failed)
    assert (outcome.code, requests) == ("run_timeout", [])


async def _done(run: gr.Run[Any]) -> None:
    while (await run.view()).status != "done":  # noqa: ASYNC110 - a look from outside, as a list makes it
        await trio.sleep(0.1)
