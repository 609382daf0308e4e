"""crash_points: a process ends after each commit of its store, and the next one continues."""

from collections.abc import Iterator
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.actors.errors import StoreError
from greenroom.supervision import chaos
from greenroom.testing import ScriptedModel, call, crash_points

pytestmark = pytest.mark.slow


class World:
    """A bank that books in two places with the network between them, and a run that pays once."""

    def __init__(self) -> None:
        self.paid: list[str] = []
        self.outcome: Any = None
        self.reasons: list[str] = []
        self.processes = 0

        @gr.tool(effect="write")
        async def pay(ctx: gr.ToolContext) -> str:
            self.paid.append(ctx.idempotency_key)
            await trio.sleep(1)
            return "paid"

        self.agent = gr.Agent("a", tools=[pay], model=ScriptedModel([call("pay", id="c"), "done"]))


async def scenario(world: World, store: gr.Store) -> None:
    world.processes += 1
    async with gr.open_runtime(store, agents=[world.agent]) as runtime:
        run = await runtime.start("a", "Pay.", run_id="r")
        world.outcome = await run.wait()
        while isinstance(world.outcome, gr.Waiting):
            for ticket in world.outcome.tickets:
                world.reasons.append(ticket.reason)
                await run.decide(ticket.approve("it is paid", by="ada"))
            world.outcome = await run.wait()


def check(world: World) -> Iterator[str]:
    if not isinstance(world.outcome, gr.Completed):
        yield f"the run came to {world.outcome}"
    if len(world.paid) > 1:
        yield "paid twice"
    if not world.paid and "outcome_unknown" not in world.reasons:
        yield "not paid, and no person was asked"


@pytest.mark.rule("TK-10")
def test_the_process_ends_after_each_commit_and_the_next_one_goes_on():
    worlds: list[World] = []

    def make() -> World:
        worlds.append(World())
        return worlds[-1]

    report = crash_points(make, scenario, check).require()
    (commits,) = report.steps.values()
    assert report.runs == report.hits == commits >= 4
    assert [world.processes for world in worlds] == [1, *[2] * commits]
    assert any("outcome_unknown" in world.reasons for world in worlds)
    assert report.struck == report.sites
    assert any("run.tool.started" in site for site in report.sites)


@pytest.mark.rule("TK-10")
def test_nothing_that_follows_the_commit_is_stored():
    """The next process finds as many events as there were right after the commit, although the first one went on."""
    seen: list[list[int]] = []

    class Counted(World):
        def __init__(self) -> None:
            super().__init__()
            seen.append([])

    async def noted(world: World, store: gr.Store) -> None:
        if world.processes:
            async with gr.open_runtime(store, drain=0) as runtime:  # without agents: no run continues
                seen[-1].append(len(await runtime.store.events("r")))
        await scenario(world, store)

    (commits,) = crash_points(Counted, noted, check).require().steps.values()
    found = [events for (events,) in seen[1:]]
    assert found == sorted(found)
    assert found[0] == 1  # of the creation
    assert len(found) == commits


@pytest.mark.rule("TK-10")
def test_a_promise_that_breaks_names_the_commit_and_its_token_replays_it():
    """A body that may run again pays twice when the process ends between the payment and its commit."""

    class Careless(World):
        def __init__(self) -> None:
            super().__init__()
            world = self

            @gr.tool(effect="write", replay="safe")
            async def pay() -> str:
                world.paid.append("")
                await trio.sleep(1)
                return "paid"

            self.agent = gr.Agent("a", tools=[pay], model=ScriptedModel([call("pay", id="c"), "done"]))

    async def two_steps(world: Careless, store: gr.Store) -> None:
        async with gr.open_runtime(store, agents=[world.agent]) as runtime, trio.open_nursery() as nursery:
            nursery.start_soon(_speak_during_the_payment, runtime)
            run = await runtime.start("a", "Pay.", run_id="r")
            world.outcome = await run.wait()

    async def _speak_during_the_payment(runtime: gr.Runtime) -> None:
        await trio.sleep(0.5)
        await (await runtime.get("r")).send("And?", by="ada")

    report = crash_points(Careless, two_steps, check)
    assert report.violations
    violation = report.violations[0]
    assert (violation.message, violation.token.kind) == ("paid twice", "commit")
    assert "commit of" in str(violation)
    with pytest.raises(AssertionError, match="paid twice"):
        report.require()
    again = crash_points(Careless, two_steps, check, only=str(violation.token))
    assert [str(found) for found in again.violations] == [str(violation)]
    assert again.runs == again.hits == 1
    assert "commit sweep: " in str(report)


async def alone(world: World) -> None:
    await scenario(world, gr.MemoryStore())


@pytest.mark.rule("TK-10")
def test_a_scenario_that_raises_by_itself_is_a_violation_and_a_sample_has_fewer_points():
    async def broken(world: World, store: gr.Store) -> None:
        await scenario(world, store)
        raise StoreError("broken")

    report = crash_points(World, broken, sample=(3, 1))
    assert report.runs == 3
    assert {violation.message for violation in report.violations} == {"escaped: StoreError: broken"}
    late = crash_points(World, scenario, check, settle_within=0.5, sample=(40, 1))
    assert any("virtual seconds to settle" in violation.message for violation in late.violations)
    with pytest.raises(ValueError, match="no token"):
        crash_points(World, scenario, only="commit:1")
    with pytest.raises(ValueError, match="cancel:1:2 names no commit"):
        crash_points(World, scenario, only="cancel:1:2")
    with pytest.raises(ValueError, match="crash_points replays it"):
        chaos.sweep_cancel(World, alone, only="commit:1:2")
