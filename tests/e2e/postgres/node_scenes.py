"""Scenes of several processes, each about one rule of leases and hints; they raise AssertionError if it is broken."""

import time

import trio

from ...support.postgres import Server
from .scenes import asked, client_of, ended, eventually, marks, opened, select
from .swarm import CALM, Swarm


async def a_body_that_was_about_to_begin_does_not_begin(swarm: Swarm, server: Server) -> None:
    """Its process is stopped for longer than the lease between the durable start and the body."""
    swarm.times = CALM
    gateway = swarm.gateway("gateway")
    first = swarm.node("first", agents=["slow"], stop_at="start")
    await opened(swarm, gateway, first)
    async with client_of(gateway) as client:
        await client.start("slow", "go", run_id="r")
        await eventually(lambda: "stopping" in first.words)
        swarm.node("second", agents=["slow"])
        ticket = await asked(client, "r")
        assert ticket.reason == "outcome_unknown"
        swarm.resume(first)
        await trio.sleep(2 * CALM["lease"])
        assert marks(swarm.folder, pid=first.pid) == [], "the body began in the process that was stopped"
        assert first.alive, swarm.errors()
        await client.decide("r", ticket.approve())
        events = await ended(client, "r")
    assert len(marks(swarm.folder, what="begin")) == 1  # in either process: the first one is alive again
    assert events[-1].type == "run.completed"


_BACK = "SELECT count(*)::int FROM greenroom.processes WHERE beat_at > pg_postmaster_start_time()"
"""How many processes have beaten since the server started."""


async def a_server_that_is_away_costs_no_process_its_claims(swarm: Swarm, server: Server) -> None:
    """For twice the lease: none is declared dead and no run changes its owner, for none was watched without a break."""
    swarm.times = CALM
    gateway = swarm.gateway("gateway")
    workers = [swarm.node(f"worker-{number}", agents=["asker"]) for number in range(2)]
    await opened(swarm, gateway, *workers)
    async with client_of(gateway) as client:
        runs = [f"r{number}" for number in range(10)]
        for run in runs:
            await client.start("asker", "go", run_id=run)
        tickets = {run: await asked(client, run) for run in runs}
        before = select(server.url(), "SELECT number, started_at FROM greenroom.processes ORDER BY 1")
        swarm.stop(workers[1])
        await trio.sleep(2 * CALM["turn"])  # the others have looked at its newest beat
        server.crash()
        swarm.resume(workers[1])
        down = time.monotonic()
        with trio.fail_after(5.0):
            refused = await client.decide("r0", tickets["r0"].approve())
        waited = time.monotonic() - down
        await trio.sleep(2 * CALM["lease"] - waited)
        swarm.stop(workers[1])  # so that the others see its old beat after the restart
        server.start()
        await eventually(lambda: select(server.url(), _BACK) != [(0,)])
        await trio.sleep(CALM["turn"])  # the first that is back has looked at the old beat
        swarm.resume(workers[1])
        print(f"\nrefused after {waited:.2f} s, away for {time.monotonic() - down:.2f} s")  # noqa: T201
        assert (refused.status, refused.code) == ("rejected", "store_unavailable")
        for run in runs:
            await eventually(lambda run=run: accepted(client, run, tickets[run]))
            assert (await ended(client, run))[-1].type == "run.completed"
    after = select(server.url(), "SELECT number, started_at FROM greenroom.processes WHERE NOT dead ORDER BY 1")
    assert after == before, "a process was declared dead"
    assert select(server.url(), "SELECT coalesce(sum(crashes), 0)::int FROM greenroom.runs") == [(0,)]
    assert len(marks(swarm.folder, what="begin")) == 10


async def accepted(client, run, ticket) -> bool:
    """Whether a decision is in."""
    return (await client.decide(run, ticket.approve())).status in ("accepted", "duplicate")


async def lost_hints_are_made_up_for(swarm: Swarm, server: Server) -> None:
    """A decision acts within a few turns, though the hint about it never came to the run's owner."""
    swarm.plants.append("hints lost")
    swarm.times = CALM
    gateway = swarm.gateway("gateway")
    worker = swarm.node("worker", agents=["asker"], runtime={"passivate_after": None})
    await opened(swarm, gateway, worker)
    async with client_of(gateway) as client:
        await client.start("asker", "go", run_id="r")
        ticket = await asked(client, "r")
        await client.decide("r", ticket.approve())
        await eventually(lambda: marks(swarm.folder, what="end"), 10 * CALM["turn"])
        assert (await ended(client, "r"))[-1].type == "run.completed"
