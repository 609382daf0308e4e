"""A parent run shows each question of its child run under every order of the tasks: none is seen too early or too late.

A question that the child run asks after others is the point: its parent waits already, for the next change.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import attrs
import pytest
import trio

import greenroom as gr
from greenroom.actors.contract.ids import child_run_id
from greenroom.actors.contract.rows import RunRecord
from greenroom.actors.stores.common.faults import disk
from greenroom.supervision import chaos
from greenroom.testing import ScriptedModel, call

from ..support.runs import Shelf, events_of
from ..support.scene_tools import Outside, ask, look, sign
from .test_run_sweeps import FULL

pytestmark = pytest.mark.slow

RUN = "r"
CHILD = child_run_id(RUN, "K")
SEEDS = range(24 if FULL else 2)
PATIENCE = 60.0
"""Virtual seconds for a question to appear in the parent run: the store's hints take less."""

TWO = [call("ask", times=2, id="A"), call("sign", id="B")]
"""Two questions; the answer to the first leads to a third."""
BESIDE = [call("look", seconds=500.0, id="A"), call("ask", times=2, id="B")]
"""Questions, while another call works."""


def office(calls: list[Any]) -> gr.Agent[Any]:
    """An agent whose tool is an agent that asks."""
    tools = [ask, look, sign]
    clerk = gr.Agent("clerk", tools=tools, model=ScriptedModel([calls, "settled"]), execution="parallel_streaming")
    return gr.Agent("office", tools=[clerk.as_tool()], model=ScriptedModel([call("clerk", input="go", id="K"), "done"]))


def asked(ticket: gr.Ticket) -> str:
    """What a ticket asks, in a word or two."""
    return (ticket.message or "")[:10] if ticket.tool == "ask" else ticket.tool


@attrs.define(eq=False)
class Hesitation:
    """A faults port: each commit fails once, so that its receipt comes in the store's task, as that of a thread does.

    Else it would come in the stretch that submits the commit, and no other task could run between notice and receipt.
    """

    hesitates: bool = False

    def __call__(self, point: str) -> None:
        if point == "before_commit":
            self.hesitates = not self.hesitates
            if self.hesitates:
                raise disk("SQLITE_BUSY")


@attrs.define(eq=False)
class World:
    """Runs of an office on one storage.

    Attributes:
        calls: what the child run does in its one step.
        elsewhere: the child run's questions are answered, and it works on, in another process.
        passivate_after: seconds after which runs at rest leave memory; None: they stay.
        shown: the messages or tools of the parent's open tickets, as they were seen, in order.
    """

    shelf: Shelf
    calls: list[Any]
    elsewhere: bool = False
    passivate_after: float | None = None
    shown: list[list[str]] = attrs.field(factory=list)
    output: object = None

    def open(self) -> Any:
        """A process."""
        options: dict[str, Any] = {"passivate_after": 5.0 if self.elsewhere else self.passivate_after}
        store = self.shelf.open(faults=Hesitation())
        return gr.open_runtime(store, agents=[office(self.calls)], deps=Outside(), **options)

    async def see(self, run: gr.Run[Any], wanted: int) -> tuple[gr.Ticket, ...]:
        """Wait for so many open tickets of the parent run."""
        tickets: tuple[gr.Ticket, ...] = ()
        with trio.move_on_after(PATIENCE):
            while len(tickets) != wanted:
                await trio.sleep(0.25)
                tickets = (await run.view()).tickets
        self.shown.append(sorted(asked(ticket) for ticket in tickets))
        return tickets


async def decide(run: gr.Run[Any], decision: gr.Decision) -> None:
    """Decide, as a client does that repeats what a store without an answer has refused."""
    decision = attrs.evolve(decision, decision_id=f"for {decision.target}")
    while (result := await run.decide(decision)).code == "store_unavailable":  # noqa: ASYNC110 - the answer says when
        await trio.sleep(1)
    assert result.ok, result


async def answers(world: World) -> None:
    """Answer the first question of the child run, which leads to another one; then answer the others."""
    async with world.open() as runtime:
        if not world.elsewhere:
            await play(world, runtime, runtime)
            return
        async with world.open() as other:
            await play(world, runtime, other)


async def play(world: World, runtime: gr.Runtime, other: gr.Runtime) -> None:
    run = await runtime.start("office", "hi", run_id=RUN)
    opened = sum(request.tool != "look" for request in world.calls)
    tickets = await world.see(run, opened)
    for _ in range(2):
        await trio.sleep(20)  # whoever can leave memory has left
        first = next((ticket for ticket in tickets if ticket.tool == "ask"), None)
        if first is None:
            return
        theirs = await other.get(CHILD)
        mine = next(ticket for ticket in (await theirs.view()).tickets if ticket.ticket_id == first.child_ticket_id)
        await decide(theirs, mine.approve("so", by="ada"))
        again = first.message == "question 1"
        if again:
            with trio.fail_after(PATIENCE):
                while all(ticket.message != "question 2" for ticket in (await theirs.view()).tickets):  # noqa: ASYNC110
                    await trio.sleep(0.25)
        tickets = await world.see(run, opened if again else opened - 1)
    for ticket in tickets:
        await decide(run, ticket.approve(by="ada"))
    world.output = (await run.result()).output


def check_two(world: World) -> Iterator[str]:
    """One sentence per question that was not shown."""
    if world.shown != [["question 1", "sign"], ["question 2", "sign"], ["sign"]] or world.output != "done":
        yield f"the parent run showed {world.shown} and came to {world.output!r}"


def check_beside(world: World) -> Iterator[str]:
    """One sentence per question that was not shown."""
    if world.shown != [["question 1"], ["question 2"], []] or world.output != "done":
        yield f"the parent run showed {world.shown} and came to {world.output!r}"


@pytest.fixture(params=["memory", "sqlite", "peers", "elsewhere"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Callable[[], World]]:
    """Makes worlds on one kind of store; "elsewhere": the child run is continued by another process."""
    folders = (tmp_path / str(number) for number in range(1_000))
    kind = "peers" if request.param == "elsewhere" else request.param

    def shelf() -> Shelf:
        folder = next(folders)
        folder.mkdir()
        return Shelf(kind, folder)

    elsewhere = request.param == "elsewhere"
    return lambda calls, stays: lambda: World(shelf(), calls, elsewhere, passivate_after=None if stays else 5.0)


@pytest.mark.rule("CR-12", "CR-23", "CR-30")
@pytest.mark.parametrize("stays", [True, False], ids=["in memory", "rows"])
def test_the_answer_to_one_of_two_questions_leads_to_a_third_that_is_shown(make, stays):
    chaos.sweep_schedules(make(TWO, stays), answers, check_two, seeds=SEEDS).require()


@pytest.mark.rule("CR-30")
@pytest.mark.parametrize("stays", [True, False], ids=["in memory", "rows"])
def test_a_question_is_shown_while_another_call_of_the_child_run_works(make, stays):
    chaos.sweep_schedules(make(BESIDE, stays), answers, check_beside, seeds=SEEDS).require()


class SlowReads(gr.MemoryStore):
    """A store whose rows are read for half a second."""

    async def load(self, run_id: str, *, calls: Literal["step", "all"] = "step") -> RunRecord | None:
        """As the store's own, as of the beginning."""
        record = await super().load(run_id, calls=calls)
        await trio.sleep(0.5)
        return record


@pytest.mark.rule("CR-23")
@pytest.mark.parametrize("before", [0.7, 0.45, 0.2, 0.05, -0.05])
async def test_a_parent_that_leaves_memory_has_looked_at_what_its_child_run_asks(autojump_clock, before):
    """The child run, which waits before and after, opens a ticket while the parent's patience ends."""
    world = World(Shelf("memory", Path()), TWO)
    agent = office(TWO)
    async with gr.open_runtime(SlowReads(), agents=[agent], deps=Outside(), passivate_after=5.0) as runtime:
        run = await runtime.start("office", "hi", run_id=RUN)
        await run.wait()
        (waiting,) = [event for event in await events_of(run, until="rest") if event.type == "run.waiting"]
        since = (runtime.clock.now() - waiting.timestamp).total_seconds()
        child = await runtime.get(CHILD)
        await trio.sleep(5.0 - since - before)
        assert (await child.pause(by="ada")).ok
        await world.see(run, 3)
        assert world.shown == [["", "question 1", "sign"]]


# --- a runtime that closes --------------------------------------------------------------------------------------------


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
