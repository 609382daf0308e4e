"""A program that asks before it acts, whose process ends after each commit or is cancelled at each step.

The effects are counted outside: none precedes the durable start of its nested call, and none happens twice. The same
with a body that may be repeated, and with a question of a body to people.
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

FULL = os.environ.get("GREENROOM_CHAOS") == "full"
SEEDS = (1, 2, 3, 4, 5) if FULL else (1,)
ROUNDS = 12
"""Times that a person looks after the run."""

pytestmark = pytest.mark.slow


class Rules(gr.Plugin):
    """A person allows what writes."""

    async def tool_gate(self, ctx: gr.GateContext[Any]) -> Any:
        asks = ctx.call.parent is not None and ctx.call.effect == "write" and ctx.decision is None
        return gr.Suspend(message="may it?", reason="tool_permission") if asks else None


class World:
    """What the program has done, and what came of the run."""

    def __init__(self, execution: Any = "sequential", replay: str = "unsafe") -> None:
        self.effects: Counter[str] = Counter()
        self.early: list[str] = []
        self.asked: Counter[str] = Counter()
        self.outcome: Any = None
        self.broken: list[str] = []
        self.place: gr.Store | None = None
        self.execution, self.replay = execution, replay
        self.agent = self.coder()

    def coder(self) -> gr.Agent[Any]:
        @gr.tool(effect="delegate", replay=self.replay, grace=1.0)  # type: ignore[call-overload]
        async def coder(ctx: gr.ToolContext) -> str:
            """Lets a program work."""
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.act, ctx, "Read", "read")
                nursery.start_soon(self.act, ctx, "Write", "write")
                nursery.start_soon(self.act, ctx, "Edit", "write")
            decision = await ctx.ask(gr.Suspend(message="colour?"))
            return f"finished in {decision.result}"

        model = ScriptedModel([call("coder", id="C"), "done"])
        return gr.Agent("coder", tools=[coder], model=model, plugins=[Rules()], execution=self.execution)

    async def act(self, ctx: gr.ToolContext, tool: str, effect: str) -> None:
        answer = await ctx.call_nested(tool, {}, effect=effect)
        if answer.arguments is None:
            return
        assert self.place is not None
        frames = await self.place.events("r", limit=1_000)
        started = b'"run.tool.started"', f'"callId":"{answer.call_id}"'.encode()
        if not any(all(part in frame for part in started) for frame in frames):
            self.early.append(answer.call_id)
        self.effects[answer.call_id] += 1
        await trio.sleep(0.5)
        ctx.end_nested(answer.call_id, "done")


async def scenario(world: World, store: gr.Store) -> None:
    async with gr.open_runtime(store, agents=[world.agent], passivate_after=5.0) as runtime:
        world.place = store
        run = await runtime.start("coder", "Go.", run_id="r")
        with trio.fail_after(5_000):
            world.outcome = await run.wait()
            for _ in range(ROUNDS):
                if not isinstance(world.outcome, gr.Waiting):
                    break
                for ticket in world.outcome.tickets:
                    world.asked[ticket.reason] += 1
                    result = None if ticket.reason == "tool_permission" else "red"
                    await run.decide(ticket.approve(result, by="ada"))
                world.outcome = await run.wait()
        async with run.events() as following:
            events = [event async for event in following]
        report = await runtime.replay("r")
        world.broken = [] if report.equal else [f"replay: {report}"]
        world.broken += in_order(events)


def in_order(events: list[gr.Event]) -> Iterator[str]:
    """A nested call ends before its parent starts again or ends; a live ticket is closed by then."""
    parents = {
        event.payload["callId"]: event.payload.get("parentCallId") for event in events if event.type == "run.tool.call"
    }
    live: set[str] = set()
    for event in events:
        name = event.payload.get("callId")
        if event.type == "run.tool.call" and parents[name] is not None:
            live.add(name)
        elif event.type == "run.tool.result":
            live.discard(name)
            if parents[name] is None and live:
                yield f"{name} has ended before {sorted(live)}"
        elif event.type == "run.approval.requested" and event.payload["reason"] == "outcome_unknown" and live:
            yield f"people were asked about {name} before {sorted(live)} had ended"
    if live:
        yield f"{sorted(live)} never ended"


def check(world: World) -> Iterator[str]:
    yield from world.broken
    yield from (f"{name} began before its start was stored" for name in world.early)
    if not isinstance(world.outcome, gr.Completed):
        yield f"the run came to {world.outcome}"
    yield from (f"{name} was done {times} times" for name, times in world.effects.items() if times > 1)
    lost = world.asked["outcome_unknown"] or world.replay == "safe"
    if len(world.effects) != 3 and not lost:
        yield f"the effects are {sorted(world.effects)}, and nobody was asked what came of the call"


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
def test_a_process_with_nested_calls_ends_after_each_commit_and_the_next_one_finishes_the_run(execution, replay, seed):
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


def test_a_process_with_nested_calls_is_cancelled_at_each_step_and_the_next_one_finishes_the_run(seed):
    report = chaos.sweep_cancel(Cancelled, two_processes, check, seeds=SEEDS, sample=None if FULL else (12, seed))
    print(report)  # noqa: T201 - for the log of the CI
    report.require()
