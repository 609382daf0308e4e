"""A run whose child run waits for an approval, cancelled, killed and crashed at every step: one end, no orphan."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

import greenroom as gr
from greenroom.actors.contract.ids import child_run_id
from greenroom.supervision import chaos
from greenroom.testing import ScriptedModel, call

from .stage import RUN, TERMINAL, World, broken_calls, broken_log, decode_event, look, refund
from .test_run_sweeps import FULL, SEEDS, SETTLE, can_crash, one_life, show, until_it_has_ended

pytestmark = pytest.mark.slow

CHILD = child_run_id(RUN, "K")
STAGES = tuple(name.removeprefix("run.") for name in TERMINAL)


def office(execution: Any) -> gr.Agent:
    """An agent whose tool is an agent with an approval."""
    inside = [[call("look", where="here", id="look"), call("refund", order="7", id="refund")], *["settled"] * 4]
    clerk = gr.Agent("clerk", tools=[refund, look], model=ScriptedModel(inside, chunk=4))
    model = ScriptedModel([call("clerk", input="Settle it.", id="K"), *["done"] * 6])
    return gr.Agent("office", tools=[clerk.as_tool()], model=model, execution=execution)


@attrs.define(eq=False)
class Office(World):
    """A world that knows how the child run has ended."""

    def child_stage(self) -> str | None:
        """The stage of the child run in the store; None if it was never started."""
        if isinstance(self.store, gr.MemoryStore):
            kept = self.store._ledger.runs.get(CHILD)
            return None if kept is None else kept.row.stage.value
        with closing(sqlite3.connect(self.store.path)) as connection, connection:
            found = connection.execute("SELECT stage FROM runs WHERE run_id = ?", (CHILD,)).fetchone()
        return None if found is None else str(found[0])


@pytest.fixture(params=["memory", "sqlite"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Callable[[], Office]]:
    """Makes worlds on one kind of store."""
    folders = (tmp_path / str(number) for number in range(100_000))

    def maker(**options: Any) -> Callable[[], Office]:
        return lambda: Office(folder=next(folders) if request.param == "sqlite" else None, make_agent=office, **options)

    return maker


@pytest.fixture
def sample(seed: int) -> tuple[int, int] | None:
    """How many points of a sweep are visited."""
    return None if FULL else (12, seed)


def check(world: Office) -> Iterator[str]:
    """One sentence per broken promise."""
    yield from world.book.faults
    if world.ended is None:
        yield "the run never came to its end"
        return
    frames, record, history = world.ended
    events = [decode_event(frame) for frame in frames]
    yield from broken_log(events, frames, world.book.seen)
    yield from broken_calls(events, record, history)
    stage = world.child_stage()
    if stage is not None and stage not in STAGES:
        yield f"the run has ended, and its child run is {stage}"
    if sum(event.type == "run.child.finished" for event in events) > 1:
        yield "the child run ended twice"
    approved = sum(e.type == "run.approval.resolved" and e.payload["resolution"] == "approved" for e in events)
    times = world.book.bodies[f"{CHILD}/refund"]
    if times > approved:
        yield f"the refund ran {times} times with {approved} approvals"


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_process_with_a_child_run_ends_at_every_step_and_the_next_one_finishes_both(make, sample, how, request):
    options: Any = {"get_scope": World.die} if how == "killed" else {}
    report = chaos.sweep_cancel(
        make(), until_it_has_ended, check, seeds=SEEDS, sample=sample, settle_within=SETTLE, **options
    )
    show(request.node.name, report)


def test_a_run_with_a_child_run_is_cancelled_at_every_step(make, sample, request):
    report = chaos.sweep_cancel(make(cancels=True), one_life, check, seeds=SEEDS, sample=sample, settle_within=SETTLE)
    show(request.node.name, report)


@pytest.mark.parametrize("victim", [f"runtime/{RUN}", f"runtime/{CHILD}", "call:"])
def test_an_actor_of_either_run_crashes_at_every_step(make, sample, victim, request):
    def match(task: trio.lowlevel.Task) -> bool:
        return can_crash(task) and task.name.startswith(victim)

    report = chaos.sweep_crash(
        make(),
        until_it_has_ended,
        check,
        contained=True,
        match_task=match,
        seeds=SEEDS,
        sample=sample,
        settle_within=SETTLE,
    )
    show(request.node.name, report)


class Small:
    """A run whose one call starts a child run, in a runtime that is cancelled."""

    def __init__(self) -> None:
        self.store, self.scope, self.finished = gr.MemoryStore(), trio.CancelScope(), False
        clerk = gr.Agent("clerk", model=ScriptedModel(["settled"]))
        posting = gr.tool(effect="write")(self.post)
        model = ScriptedModel([[call("post"), call("clerk", input="Settle it.", id="K")], "done"])
        self.agent = gr.Agent("office", tools=[posting, clerk.as_tool()], model=model)
        self.history: list[str] = []

    async def post(self) -> str:
        await trio.sleep(1)
        return "posted"


async def small(world: Small) -> None:
    async with gr.open_runtime(world.store, agents=[world.agent]) as runtime:
        run = await runtime.start("office", "hi", run_id=RUN)
        outcome = await run.wait()
        if isinstance(outcome, gr.Waiting):
            await run.decide(outcome.tickets[0].approve("posted", by="ada"))
            await run.result()
        world.history = [message.content for message in (await run.view()).messages if message.call_id == "K"]


async def small_twice(world: Small) -> None:
    with world.scope:
        await small(world)
        world.finished = True
    if not world.finished:
        await small(world)


@pytest.mark.rule("CR-4")
def test_no_call_of_an_agent_fails_because_its_runtime_closes():
    """A closing runtime refuses new runs; the call finds or starts its child run after the next opening."""

    def settled(world: Small) -> Iterator[str]:
        if world.history != ["settled"]:
            yield f"the call came to {world.history}"

    report = chaos.sweep_cancel(Small, small_twice, settled)
    assert report.hits == report.runs > 50
    report.require()
