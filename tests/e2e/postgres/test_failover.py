"""The primary dies and its standby is promoted: what synchronous replication keeps, and what asynchronous loses."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

import greenroom as gr
from greenroom.transport import Client
from greenroom.transport.client import LogReset

from ...support.cutting_proxy import CuttingProxy
from ...support.postgres import Server
from .judge import Verdict, read_lines
from .nodes import plain
from .scenes import asked, client_of, ended, eventually, opened
from .standby import REPLICATING, Standby, wait_for_commits
from .swarm import Swarm

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.no_cover]


@pytest.fixture
def primary() -> Iterator[Server]:
    with Server(durable=True, settings=REPLICATING) as primary:
        yield primary


@pytest.fixture
def standby(primary: Server) -> Iterator[Standby]:
    with Standby(primary) as standby:
        yield standby


@pytest.fixture
def proxy(primary: Server) -> Iterator[CuttingProxy]:
    with CuttingProxy(primary.port) as proxy:
        yield proxy


@pytest.fixture
def swarm(primary: Server, proxy: CuttingProxy, tmp_path: Path, root: Path, rng: random.Random) -> Iterator[Swarm]:
    with Swarm(tmp_path, root, primary.url(port=proxy.port), rng) as swarm:
        yield swarm


def fail_over(primary: Server, standby: Standby, proxy: CuttingProxy) -> None:
    """The primary crashes, the standby takes its place at the same address."""
    primary.crash()
    standby.promote()
    proxy.target = standby.port
    proxy.cut_all()


async def test_a_synchronous_standby_has_every_acknowledged_commit(swarm, primary, standby, proxy, seed):
    wait_for_commits(primary, remote=True)
    gateways = [swarm.gateway("gateway-1"), swarm.gateway("gateway-2")]
    workers = [swarm.node(f"worker-{number}", agents=["worker"]) for number in range(2)]
    follower = swarm.node("follower", follow=True)
    await opened(swarm, *gateways, *workers, follower)
    ports = [gateway.order["port"] for gateway in gateways]
    people = swarm.spawn("people", people=True, ports=ports, runs=30, at_once=10, seed=seed)
    await eventually(lambda: swarm.count("ended") >= 8)
    await trio.to_thread.run_sync(fail_over, primary, standby, proxy)
    (swarm.folder / "enough").touch()
    await eventually(lambda: not people.alive, 60.0)
    assert people.code == 0, swarm.errors()[-4000:]
    runs = int(people.words[-1])
    await eventually(lambda: swarm.count("followed") >= runs)
    verdict = await trio.to_thread.run_sync(Verdict, swarm.folder, standby.url())
    resets = [(line["by"], line["run"]) for line in read_lines(swarm.folder / "answers.log") if line["kind"] == "reset"]
    print(f"\nseed {seed}: {len(resets)} resets; {verdict.report()}")  # noqa: T201
    assert not verdict.wrong, verdict.wrong[:10]
    assert resets
    assert len(resets) == len(set(resets)), "a subscription was reset twice"


async def test_what_an_asynchronous_standby_lacks_is_lost_for_every_reader_alike(swarm, primary, standby, proxy):
    gateways = [swarm.gateway("gateway-1"), swarm.gateway("gateway-2")]
    worker = swarm.node("worker", agents=["asker"])
    await opened(swarm, *gateways, worker)
    async with client_of(gateways[0]) as one, client_of(gateways[1]) as two:
        for run in ("kept", "set-back"):
            await one.start("asker", "go", run_id=run)
            await asked(two, run)
        epoch = one.epoch
        assert epoch == two.epoch
        await trio.sleep(0.5)  # the standby has all of that
        await trio.to_thread.run_sync(standby.stop)
        ticket = (await two.view("set-back")).tickets[0]
        assert (await two.decide("set-back", ticket.approve())).status == "accepted"
        before = await ended(one, "set-back")
        await one.start("asker", "go", run_id="lost")
        await asked(two, "lost")
        async with one.follow("kept") as first, two.follow("kept", epoch=epoch) as second:
            await next_event(first)
            await next_event(second)
            await trio.to_thread.run_sync(primary.crash)
            await trio.to_thread.run_sync(standby.start)
            await trio.to_thread.run_sync(fail_over, primary, standby, proxy)
            for events in (first, second):
                with trio.fail_after(30), pytest.raises(LogReset) as reset:
                    await to_the_end(events)
                assert reset.value.reason == "epoch"
        for client in (one, two):
            with pytest.raises(gr.UnknownRun):
                await client.view("lost")
        assert one.epoch == two.epoch != epoch
        await eventually(lambda: decided(two, "set-back"))
        after = await ended(one, "set-back")
        assert [plain(event) for event in after] == [plain(event) for event in await ended(two, "set-back")]
        assert before != after
        await eventually(lambda: decided(one, "kept"))
        assert (await ended(two, "kept"))[-1].type == "run.completed"


async def decided(client: Client, run: str) -> bool:
    """Whether a decision for the run's ticket is in."""
    tickets = (await client.view(run)).tickets
    return bool(tickets) and (await client.decide(run, tickets[0].approve())).status in ("accepted", "duplicate")


async def to_the_end(events) -> None:
    """Read all events."""
    async for _ in events:
        pass


async def next_event(events) -> gr.Event:
    """The next event."""
    with trio.fail_after(30):
        return await events.__anext__()
