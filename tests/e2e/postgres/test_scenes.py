"""Single scenes of many processes on a real server: each failure alone, with what it may cost and what it may not."""

import pytest
import trio

from ...support.postgres import Server
from .judge import Verdict
from .scenes import asked, client_of, ended, eventually, marks, opened, select
from .swarm import CALM, LONG, Swarm

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.no_cover]


async def test_a_body_that_runs_through_a_stop_is_asked_about_and_its_late_result_refused(swarm: Swarm):
    swarm.times = CALM
    gateway = swarm.gateway("gateway")
    first = swarm.node("first", agents=["slow"], stop_at="body")
    await opened(swarm, gateway, first)
    async with client_of(gateway) as client:
        await client.start("slow", "go", run_id="r")
        await eventually(lambda: "stopping" in first.words)
        swarm.node("second", agents=["slow"])
        ticket = await asked(client, "r")
        assert (ticket.reason, ticket.call_id) == ("outcome_unknown", "slow")
        swarm.resume(first)
        await eventually(lambda: len(marks(swarm.folder, pid=first.pid)) == 2)  # it has ended, in whatever way
        await trio.sleep(CALM["lease"])
        assert [line.ticket_id for line in (await client.view("r")).tickets] == [ticket.ticket_id]
        await client.decide("r", ticket.ticket_id, "resume", result="it did", decision_id="d")
        events = await ended(client, "r")
    results = [event.payload["result"] for event in events if event.type == "run.tool.result"]
    assert results == ["it did"]
    assert len(marks(swarm.folder, what="begin")) == 1


async def test_a_deploy_by_sigterm_costs_no_run_a_crash_or_a_question(swarm: Swarm, server: Server, seed: int):
    """Three processes are replaced one by one while runs start and are decided; the slowest decisions are printed."""
    gateways = [swarm.gateway("gateway-1", options=LONG), swarm.gateway("gateway-2", options=LONG)]
    workers = [swarm.node(f"worker-{number}", agents=["worker"], options=LONG) for number in range(3)]
    await opened(swarm, *gateways, *workers)
    ports = [gateway.order["port"] for gateway in gateways]
    people = swarm.spawn("people", people=True, ports=ports, runs=30, at_once=15, seed=seed)
    await eventually(lambda: swarm.count("ended") >= 3)
    for worker in workers:
        await opened(swarm, swarm.again(worker))
        await trio.to_thread.run_sync(swarm.terminate, worker)
        assert worker.code == 0, swarm.errors()[-4000:]
    (swarm.folder / "enough").touch()
    await eventually(lambda: not people.alive)
    assert people.code == 0, swarm.errors()[-4000:]
    verdict = await trio.to_thread.run_sync(Verdict, swarm.folder, server.url())
    spent = sorted(line["seconds"] for line in verdict.answers if line["kind"] == "decide")
    p99 = spent[int(len(spent) * 0.99)] * 1e3
    print(f"\n{len(spent)} decisions, p99 {p99:.1f} ms, slowest {spent[-1] * 1e3:.1f} ms; {verdict.report()}")  # noqa: T201
    assert not verdict.wrong, verdict.wrong[:10]
    assert verdict.counts["people asked about an effect in flight"] == 0
    assert select(server.url(), "SELECT coalesce(sum(crashes), 0)::int FROM greenroom.runs") == [(0,)]
    assert swarm.errors() == ""
