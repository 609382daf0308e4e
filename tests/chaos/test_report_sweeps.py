"""A program that reports while it works, whose process ends after each commit or is cancelled at each step.

Counted outside: a memo that the body was told is kept is found by the next attempt, a message that the body was told is
complete is in the log, and nothing of a report is there by half.
"""

import logging
import os
from collections.abc import Iterator
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.supervision import chaos
from greenroom.testing import ScriptedModel, call, crash_points

from ..support.scene_tools import Outside, herald, narrator

FULL = os.environ.get("GREENROOM_CHAOS") == "full"
SEEDS = (1, 2, 3, 4, 5) if FULL else (1,)
ROUNDS = 12
"""Times that a person looks after the run."""

pytestmark = pytest.mark.slow


class World:
    """What the program has been told, and what came of the run."""

    def __init__(self, execution: Any = "sequential", replay: str = "unsafe") -> None:
        self.outside = Outside()
        self.acknowledged: list[str] = []
        self.broken: list[str] = []
        self.outcome: Any = None
        self.agent = self.teller(execution, replay)

    def teller(self, execution: Any, replay: str) -> gr.Agent[Any]:
        @gr.tool(replay=replay, grace=1.0)  # type: ignore[call-overload]
        async def teller(ctx: gr.ToolContext[Outside]) -> str:
            """Says, notes and keeps things."""
            found = ctx.deps.recall(ctx)
            for number in range(2):
                await ctx.reports.say(f"attempt {ctx.attempt} ", reasoning="hm")
                await trio.sleep(0.2)
                text = f"attempt {ctx.attempt} says {number}"
                await ctx.reports.complete(text)
                self.acknowledged.append(text)
                await ctx.deps.save(ctx, {"attempt": ctx.attempt, "number": number})
                await ctx.reports.note("run.plan.changed", entries=[{"text": text, "status": "done"}])
            await ctx.reports.say("and ...")
            await trio.sleep(0.2)
            ctx.spend(gr.Usage(requests=1, input=10))
            return f"found {found}"

        tale = {"says": ["I look.", "I ..."], "seconds": 0.5}
        calls = [call("teller", id="C"), call("narrator", id="N", **tale), call("herald", id="H", **tale)]
        tools = [teller, narrator, herald]
        return gr.Agent("teller", tools=tools, model=ScriptedModel([calls, "done"]), execution=execution)


async def scenario(world: World, store: gr.Store) -> None:
    options: dict[str, Any] = {"agents": [world.agent], "passivate_after": 5.0, "deps": world.outside}
    async with gr.open_runtime(store, **options) as runtime:
        run = await runtime.start("teller", "Go.", run_id="r")
        with trio.fail_after(5_000):
            world.outcome = await run.wait()
            for _ in range(ROUNDS):
                if not isinstance(world.outcome, gr.Waiting):
                    break
                for ticket in world.outcome.tickets:
                    await run.decide(ticket.approve(by="ada"))
                world.outcome = await run.wait()
        async with run.events() as following:
            events = [event async for event in following]
        report = await runtime.replay("r")
        world.broken = [] if report.equal else [f"replay: {report}"]
        world.broken += whole(events, world.acknowledged)


def whole(events: list[gr.Event], acknowledged: list[str]) -> Iterator[str]:
    """Each message of which text was shown has one end, before its call ends; what was acknowledged is there."""
    speaking: dict[str, str] = {}
    completed: list[str] = []
    for event in events:
        payload = event.payload
        call_id = payload.get("callId")
        match event.type:
            case "run.message.delta" if call_id:
                speaking[call_id] = payload["messageId"]
            case "run.message.completed" | "run.message.discarded" if call_id:
                completed += [payload["text"]] if "text" in payload else []
                if speaking.pop(call_id, payload["messageId"]) != payload["messageId"]:
                    yield f"{call_id} has ended another message than it was saying"
            case "run.tool.result" | "run.tool.started" | "run.tool.suspended" if call_id in speaking:
                yield f"{event.type} of {call_id}, and {speaking[call_id]} has no end"
    yield from (f"{text!r} was acknowledged, and is not in the log" for text in acknowledged if text not in completed)


def check(world: World) -> Iterator[str]:
    yield from (*world.broken, *world.outside.lost)
    if not isinstance(world.outcome, gr.Completed):
        yield f"the run came to {world.outcome}"


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """What the next process says of unknown outcomes is expected."""
    logger = logging.getLogger("greenroom")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)


@pytest.mark.parametrize("replay", ["unsafe", "safe"])
@pytest.mark.parametrize("execution", ["parallel_streaming", "sequential", "parallel_batch_approval"])
def test_a_process_with_reports_ends_after_each_commit_and_the_next_one_finishes_the_run(execution, replay, seed):
    sample = None if FULL else (6, seed)
    report = crash_points(lambda: World(execution, replay), scenario, check, seeds=SEEDS, sample=sample)
    print(report)  # noqa: T201 - for the log of the CI
    report.require()


class Cancelled(World):
    """A world whose first process is cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.store, self.scope, self.finished = gr.MemoryStore(), trio.CancelScope(), False


async def two_processes(world: Cancelled) -> None:
    with world.scope:
        await scenario(world, world.store)
        world.finished = True
    if not world.finished:
        await scenario(world, world.store)


def test_a_process_with_reports_is_cancelled_at_each_step_and_the_next_one_finishes_the_run(seed):
    report = chaos.sweep_cancel(Cancelled, two_processes, check, seeds=SEEDS, sample=None if FULL else (12, seed))
    print(report)  # noqa: T201 - for the log of the CI
    report.require()
