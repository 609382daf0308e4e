"""A run that calls an MCP server whose process ends after each commit, or is cancelled at each step.

The effects are counted by the server: one for each time that people let the call go on, and no more; a question of a
modern server is asked once, however often its process ends. Afterwards no connection is open.
"""

import logging
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.supervision import chaos
from greenroom.testing import ScriptedModel, call, crash_points

from ..support.mcp_in_memory import InMemory

FULL = os.environ.get("GREENROOM_CHAOS") == "full"
SEEDS = (1, 2, 3) if FULL else (1,)
ROUNDS = 12
"""Times that a person looks after the run."""
CALLS = [call("mcp__near__work", id="W"), call("mcp__near__ask", id="A")]

pytestmark = pytest.mark.slow


class World:
    """What the server has done, what people were asked, and what came of the run."""

    def __init__(self, era: str = "modern", replay: Any = "unsafe") -> None:
        self.server, self.replay = InMemory(era), replay
        self.asked: Counter[str] = Counter()
        self.repeated = 0
        self.outcome: Any = None
        self.broken: list[str] = []
        self.store, self.scope, self.finished = gr.MemoryStore(), trio.CancelScope(), False

    @property
    def agent(self) -> gr.Agent[Any]:
        rule = gr.mcp.Rule(needs_approval=False, replay=self.replay)
        return gr.Agent("a", model=ScriptedModel([CALLS, "done"]), toolsets=[self.server.toolset(rule)])


async def scenario(world: World, store: gr.Store) -> None:
    async with gr.open_runtime(store, agents=[world.agent], passivate_after=5.0) as runtime:
        run = await runtime.start("a", "Go.", run_id="r")
        with trio.fail_after(5_000):
            for _ in range(ROUNDS):
                world.outcome = await run.wait()
                if not isinstance(world.outcome, gr.Waiting):
                    break
                for ticket in world.outcome.tickets:
                    decided = await run.decide(ticket.approve({"name": "Ada"} if ticket.response_schema else None))
                    if decided.status == "accepted":
                        world.asked[ticket.reason] += 1
        report = await runtime.replay("r")
        world.broken = [] if report.equal else [f"replay: {report}"]


def check(world: World) -> Iterator[str]:
    yield from world.broken
    if not isinstance(world.outcome, gr.Completed):
        yield f"the run came to {world.outcome}"
    if world.server.open:
        yield f"{world.server.open} connections are open"
    executed = world.server.executed
    if min(executed["work"], executed["ask"]) < 1:
        yield f"a call has had no effect: {executed}"
    allowed = 2 + (world.asked["outcome_unknown"] if world.replay == "unsafe" else 2)
    if executed.total() > allowed:
        yield f"{executed}, though people were asked {world.asked}"
    if world.server.era == "modern" and world.asked["user_input"] > 1 + world.asked["outcome_unknown"]:
        yield f"people were asked {world.asked}"


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """What the next process says of unknown outcomes is expected."""
    logger = logging.getLogger("greenroom")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)


@pytest.mark.parametrize("replay", ["unsafe", "safe"])
@pytest.mark.parametrize("era", ["modern", "handshake"])
def test_a_process_that_calls_a_server_ends_after_each_commit_and_the_next_one_finishes_the_run(era, replay, seed):
    report = crash_points(lambda: World(era, replay), scenario, check, seeds=SEEDS, sample=None if FULL else (6, seed))
    print(report)  # noqa: T201 - for the log of the CI
    report.require()


async def two_processes(world: World) -> None:
    with world.scope:
        await scenario(world, world.store)
        world.finished = True
    if not world.finished:
        await scenario(world, world.store)


@pytest.mark.parametrize("era", ["modern", "handshake"])
def test_a_process_that_calls_a_server_is_cancelled_at_each_step_and_the_next_one_finishes_the_run(era, seed):
    report = chaos.sweep_cancel(
        lambda: World(era), two_processes, check, seeds=SEEDS, sample=None if FULL else (12, seed)
    )
    print(report)  # noqa: T201 - for the log of the CI
    report.require()
