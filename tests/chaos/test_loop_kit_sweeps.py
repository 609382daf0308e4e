"""All parts of the agent loop in one run, whose process ends after each commit or is cancelled at each step.

Models call every tool by themselves.

One run has instructions as a function, guardrails, a background task, a picture as a result, and a handoff with a
callback and a filter; its second agent has an output type and an agent as a tool, whose own tool asks for an approval.
"""

import logging
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import attrs
import pytest
import trio

import greenroom as gr
from greenroom.supervision import chaos
from greenroom.testing import AutoModel, crash_points

FULL = os.environ.get("GREENROOM_CHAOS") == "full"
SEEDS = (1, 2, 3, 4, 5) if FULL else (1,)
PICTURE = b"\x89PNG\r\n\x1a\n"
ROUNDS = 9
"""Times that a person looks after the run; each call asks twice at most."""

pytestmark = pytest.mark.slow


@attrs.frozen
class Report:
    title: str


@gr.input_guardrail
async def heard(ctx: gr.PhaseContext, text: str) -> None:
    await trio.sleep(0.1)


@gr.output_guardrail
async def said(ctx: gr.PhaseContext, output: Any) -> None:
    await trio.sleep(0.1)


@gr.tool_input_guardrail
async def sound(ctx: gr.GateContext, arguments: Any) -> None:
    await trio.lowlevel.checkpoint()


async def unchanged(messages: tuple[gr.Message, ...]) -> tuple[gr.Message, ...]:
    return messages


def kindly(ctx: gr.PhaseContext) -> str:
    return "Be kind."


class World:
    """What the bodies have done, and what came of the runs."""

    def __init__(self, execution: Any = "parallel_streaming") -> None:
        self.effects: Counter[str] = Counter()
        self.reasons: list[tuple[str, str | None]] = []
        self.outcome: Any = None
        self.lost: list[str] = []
        self.differences: list[str] = []
        self.agent = self.front(execution)

    def front(self, execution: Any) -> gr.Agent[Any]:
        @gr.tool(needs_approval=True, effect="write", input_guardrails=[sound])
        async def pay(ctx: gr.ToolContext, cents: int) -> str:
            return await self.do("pay", 1)

        @gr.tool(effect="write")
        async def post(ctx: gr.ToolContext) -> str:
            return await self.do("post", 1)

        @gr.tool(background=True, effect="write")
        async def dig() -> str:
            return await self.do("dig", 3)

        @gr.tool
        async def look() -> list[Any]:
            return ["a picture", gr.Image(PICTURE, media_type="image/png")]

        async def moved(ctx: gr.ToolContext) -> None:
            await self.do("moved", 0.5)

        clerk = gr.Agent("clerk", tools=[pay], model=AutoModel(), input_guardrails=[heard])
        desk = gr.Agent(
            "desk",
            tools=[post, clerk.as_tool()],
            model=AutoModel(),
            output_type=Report,
            output_guardrails=[said],
        )
        return gr.Agent(
            "front",
            instructions=kindly,
            tools=[dig, look],
            model=AutoModel(),
            input_guardrails=[heard],
            handoffs=[gr.handoff(desk, on_handoff=moved, input_filter=unchanged)],
            execution=execution,
        )

    async def do(self, what: str, seconds: float) -> str:
        self.effects[what] += 1
        await trio.sleep(seconds)
        return what


async def decided(world: World, runtime: gr.Runtime, run: gr.Run[Any], ticket: gr.Ticket) -> None:
    """A person looks up the result of what may have happened, lets the handoff happen, and allows all else."""
    asked: gr.Ticket | None = ticket
    if ticket.child_run_id is not None:  # a mirror has a reason of its own
        asked = await runtime.reader.ticket(ticket.child_run_id, ticket.child_ticket_id or "")
    assert asked is not None
    world.reasons.append((asked.reason, asked.tool))
    known = asked.reason == "outcome_unknown" and asked.tool != "transfer_to_desk"
    await run.decide(ticket.approve("looked it up", by="ada") if known else ticket.approve(by="ada"))


async def scenario(world: World, store: gr.Store) -> None:
    async with gr.open_runtime(store, agents=[world.agent], passivate_after=5.0) as runtime:
        run = await runtime.start("front", "Go.", run_id="r")
        with trio.fail_after(5_000):
            world.outcome = await run.wait()
            for _ in range(ROUNDS):
                if not isinstance(world.outcome, gr.Waiting):
                    break
                for ticket in world.outcome.tickets:
                    await decided(world, runtime, run, ticket)
                world.outcome = await run.wait()
        reports = [await runtime.replay(line.info.run_id) for line in (await runtime.runs()).runs]
        async with run.events() as events:
            ends = [event.payload async for event in events if event.type == "run.task.finished"]
        world.lost = ["dig" for end in ends if end.get("code") == "outcome_unknown"]
        world.differences = [str(report) for report in reports if not report.equal]


def check(world: World) -> Iterator[str]:
    yield from (f"replay: {difference}" for difference in world.differences)
    if not isinstance(world.outcome, gr.Completed) or not isinstance(world.outcome.output, Report):
        yield f"the run came to {world.outcome}"
    unknown = {tool for reason, tool in world.reasons if reason == "outcome_unknown"}
    unknown.update(world.lost)  # of a background task the model reads that its outcome is unknown
    for what, tool in (("pay", "pay"), ("post", "post"), ("dig", "dig"), ("moved", "transfer_to_desk")):
        times = world.effects[what]
        if times != 1 and tool not in unknown:
            yield f"{what} was done {times} times, and the questions were {world.reasons}"
        if times > 1 + (what == "moved"):  # the person has let it happen again
            yield f"{what} was done {times} times"


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """What the next process says of unknown outcomes is expected."""
    logger = logging.getLogger("greenroom")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)


@pytest.mark.rule("TK-10")
@pytest.mark.parametrize("execution", ["parallel_streaming", "sequential", "parallel_batch_approval"])
def test_a_process_with_the_whole_loop_ends_after_each_commit_and_the_next_one_finishes_the_run(execution, seed):
    sample = None if FULL else (8, seed)
    report = crash_points(lambda: World(execution), scenario, check, seeds=SEEDS, sample=sample)
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


def test_a_process_with_the_whole_loop_is_cancelled_at_each_step_and_the_next_one_finishes_the_run(seed):
    report = chaos.sweep_cancel(Cancelled, two_processes, check, seeds=SEEDS, sample=None if FULL else (12, seed))
    print(report)  # noqa: T201 - for the log of the CI
    report.require()
