"""Runs that are large in one dimension: many calls, tickets, tasks, tools, handoffs, child runs, messages, keys.

Each shape plays a whole run of size `n` on a store and returns when the run has ended as it should.
"""

import random
from collections.abc import Awaitable, Callable
from itertools import cycle
from typing import Any, Final

import attrs
import trio

import greenroom as gr
from greenroom.testing import FunctionModel, call

from .runs import agent, home
from .scene_plugins import scripted

SEQUENTIAL: Final = "sequential"
BATCH: Final = "parallel_batch_approval"
STREAMING: Final = "parallel_streaming"
MODES: Final = (SEQUENTIAL, BATCH, STREAMING)
UNLIMITED: Final = 1_000_000
"""More bodies, rounds or tasks than any shape has."""


@attrs.frozen(kw_only=True)
class Big:
    """What a shape plays with.

    Attributes:
        store: a fresh one.
        n: the size.
        mode: execution mode.
        dice: draws the order of decisions.
    """

    store: Any
    n: int
    mode: Any = BATCH
    dice: random.Random = attrs.field(factory=lambda: random.Random(7))

    def shuffled(self, items: Any) -> list[Any]:
        """The items in an order drawn by lot."""
        out = list(items)
        self.dice.shuffle(out)
        return out


Shape = Callable[[Big], Awaitable[None]]


def tool(name: str = "look", result: str = "seen", **options: Any) -> gr.Tool[Any, Any]:
    """A tool that does nothing."""

    async def body(at: int = 0) -> str:
        return result

    body.__name__, body.__doc__ = name, "Do."
    return gr.tool(**options)(body)


def calls(name: str, n: int) -> list[Any]:
    """As many calls of one tool."""
    return [call(name, at=number, id=f"c{number}") for number in range(n)]


async def play(big: Big, one: gr.Agent[Any], *, decide: Any = None, options: Any = {}, **more: Any) -> None:  # noqa: B006
    """Play one agent; `decide` acts on the run that waits."""
    async with home(big.store, **options) as runtime:
        run = await runtime.start(one, "hi", run_id="r", execution=big.mode, **more)
        if decide is not None:
            waiting = await run.wait()
            assert isinstance(waiting, gr.Waiting), waiting
            await decide(runtime, run, waiting)
        outcome = await run.result()
        assert isinstance(outcome, gr.Completed), outcome
        assert outcome.output == "done"


async def plain_calls(big: Big) -> None:
    """So many calls in one step."""
    await play(big, agent(calls("look", big.n), "done", tools=[tool()]))


async def many_bodies(big: Big) -> None:
    """So many calls in one step, all of whose bodies run at once."""
    await play(big, agent(calls("look", big.n), "done", tools=[tool()], max_bodies=big.n))


async def mixed_calls(big: Big) -> None:
    """Calls of shared, ordered and exclusive tools in any order."""
    tools = [tool(kind, concurrency=kind) for kind in ("shared", "ordered", "exclusive")]
    kinds = [big.dice.choice(tools).name for _ in range(big.n)]
    await play(big, agent([call(kind, id=f"c{n}") for n, kind in enumerate(kinds)], "done", tools=tools))


async def failing_calls(big: Big) -> None:
    """Calls that fail in every way: of no tool, with wrong arguments, in the body."""

    @gr.tool
    async def fails(at: int) -> str:
        """Fail."""
        raise gr.ToolError("no")

    kinds = [call("nothing"), call("fails", at="x"), call("fails", at=1)]
    asked = [attrs.evolve(kinds[n % 3], id=f"c{n}") for n in range(big.n)]
    await play(big, agent(asked, "done", tools=[fails]))


async def approve_one_by_one(big: Big) -> None:
    """Each call has a ticket, and each is decided for itself, in any order."""

    async def decide(_: Any, run: Any, waiting: Any) -> None:
        decided = 0
        while isinstance(waiting, gr.Waiting):
            for ticket in big.shuffled(waiting.tickets):
                answer = await run.decide(ticket.approve() if big.dice.random() < 0.8 else ticket.deny("no"))
                assert answer.ok, answer
                decided += 1
            waiting = await run.wait()
        assert decided == big.n

    await play(big, agent(calls("pay", big.n), "done", tools=[tool("pay", needs_approval=True)]), decide=decide)


async def any_calls(big: Big) -> None:
    """Calls of all kinds in any order, decided in any order by approvals and denials."""

    @gr.tool
    async def fails(at: int = 0) -> str:
        """Fail."""
        raise gr.ToolError("no")

    child = gr.Agent("child", model=FunctionModel(lambda _: "found"), description="Finds.")
    kinds = ("shared", "ordered", "exclusive")
    tools = [*(tool(kind, concurrency=kind) for kind in kinds), tool("pay", needs_approval=True), fails]
    limits: Any = {"max_bodies": big.dice.choice((1, 16, UNLIMITED))}
    names = [*kinds, "pay", "fails", "nothing", "child"]
    block = [big.dice.choice(names) for _ in range(8)]  # repeated, so that a larger run has the same mixture
    inputs: dict[str, dict[str, Any]] = {"child": {"input": "go"}}
    asked = [call(block[n % 8], id=f"c{n}", **inputs.get(block[n % 8], {})) for n in range(big.n)]
    verdicts = cycle(("approve", "approve", "deny"))
    one = agent(asked, "done", tools=[*tools, child.as_tool()], **limits)
    async with home(big.store) as runtime:
        run = await runtime.start(one, "hi", run_id="r", execution=big.mode)
        async with run.events() as events:
            waits = list[str]()
            async for event in events:
                if event.type == "run.approval.requested":
                    waits.append(event.payload["ticketId"])
                if event.type in ("run.approval.requested", "run.waiting"):
                    for ticket in big.shuffled(waits) if event.type == "run.waiting" or len(waits) > 5 else ():
                        waits.remove(ticket)
                        await run.decide(ticket, next(verdicts))
        assert isinstance(await run.result(), gr.Completed)


async def decided_early(big: Big) -> None:
    """Decisions that arrive before the tickets."""
    held = trio.Event()

    @gr.tool(concurrency="exclusive")
    async def hold() -> str:
        """Hold."""
        await held.wait()
        return "held"

    async def gate(_: Any) -> Any:
        await held.wait()

    one = agent(
        calls("pay", big.n),
        "done",
        tools=[tool("pay", needs_approval=True)],
        plugins=[scripted("gate", tool_gate=gate)],
    )
    async with home(big.store) as runtime:
        run = await runtime.start(one, "hi", run_id="r", execution=big.mode)
        await trio.sleep(1)
        for number in big.shuffled(range(min(big.n, 200))):
            assert (await run.decide(f"c{number}", "approve")).ok
        held.set()
        waiting = await run.wait()
        while isinstance(waiting, gr.Waiting):
            for ticket in waiting.tickets:
                await run.decide(ticket.approve())
            waiting = await run.wait()
        assert isinstance(waiting, gr.Completed), waiting


async def gated_calls(big: Big) -> None:
    """A plugin is asked about each call, before it and after it."""
    plugin = scripted(
        "asks", tool_gate=lambda _: None, before_tool_execute=lambda _: None, after_tool_execute=lambda _: None
    )
    await play(big, agent(calls("look", big.n), "done", tools=[tool()], plugins=[plugin]))


async def weighed_calls(big: Big) -> None:
    """A plugin refuses or answers every second call, provisionally."""

    def gate(ctx: Any) -> Any:
        number = int(ctx.call.call_id[1:])
        return (None, gr.SetResult("set"), None, gr.Deny("no"))[number % 4]

    plugin = scripted("asks", tool_gate=gate)
    await play(big, agent(calls("look", big.n), "done", tools=[tool()], plugins=[plugin]))


async def written_keys(big: Big) -> None:
    """Each call writes a state key of its own, and all count one up."""
    keys = [gr.StateKey(f"k{number}", int) for number in range(big.n)]

    @gr.tool
    async def write(ctx: gr.ToolContext, at: int) -> str:
        """Write."""
        ctx.state.set(keys[at], at)
        return "written"

    await play(big, agent(calls("write", big.n), "done", tools=[write], state=keys))


async def many_tools(big: Big) -> None:
    """So many tools, each called once in its own step of a few."""
    tools = [tool(f"t{number}") for number in range(big.n)]
    steps = [
        [call(f"t{number}", id=f"c{number}") for number in range(at, min(at + 20, big.n))] for at in range(0, big.n, 20)
    ]
    await play(big, agent(*steps, "done", tools=tools, stop=[gr.stop.MaxRounds(None)]))


async def handoff_chain(big: Big) -> None:
    """Each agent hands over to the next one."""
    last = agent("done", key=f"a{big.n}")
    for number in reversed(range(big.n)):
        last = agent(
            call(f"transfer_to_a{number + 1}"), key=f"a{number}", handoffs=[last], stop=[gr.stop.MaxRounds(None)]
        )
    await play(big, last)


async def handoffs_in_a_step(big: Big) -> None:
    """One answer that hands over so many times: the first one counts."""
    other = agent("done", key="other")
    many = [call("transfer_to_other", id=f"c{number}") for number in range(big.n)]
    await play(big, agent(many, "done", key="first", handoffs=[other]))


async def child_runs(big: Big) -> None:
    """Each call is a run of another agent."""
    child = gr.Agent("child", model=FunctionModel(lambda _: "found"), description="Finds.")
    asked = [call("child", input="go", id=f"c{number}") for number in range(big.n)]
    await play(big, agent(asked, "done", tools=[child.as_tool()]))


async def child_approvals(big: Big) -> None:
    """Each call is a run of another agent, whose question is decided at the parent."""

    def answer(request: Any) -> Any:
        return "found" if request.model_attempts else call("pay", id="P")

    child = gr.Agent(
        "child", model=FunctionModel(answer), tools=[tool("pay", needs_approval=True)], description="Pays."
    )
    asked = [call("child", input="go", id=f"c{number}") for number in range(big.n)]

    async def decide(_: Any, run: Any, waiting: Any) -> None:
        async with run.events() as events:  # not `wait`, which reads the whole step for each answer
            async for event in events:
                if event.type == "run.approval.requested":
                    assert (await run.decide(event.payload["ticketId"], "approve")).ok

    await play(big, agent(asked, "done", tools=[child.as_tool()], max_bodies=big.n), decide=decide)


async def background_tasks(big: Big) -> None:
    """So many tasks beside the run."""
    one = agent(
        calls("look", big.n),
        *["done"] * 3,
        tools=[tool(background=True)],
        max_tasks=big.n,
        stop=[gr.stop.MaxRounds(None)],
    )
    await play(big, one)


async def messages_in_steps(big: Big) -> None:
    """So many steps with one call."""
    steps = [call("look", id=f"c{number}") for number in range(big.n)]
    await play(big, agent(*steps, "done", tools=[tool()], stop=[gr.stop.MaxRounds(None)]))


async def sent_input(big: Big) -> None:
    """So many texts are sent to a run that waits."""

    async def decide(_: Any, run: Any, waiting: Any) -> None:
        for number in range(big.n):
            answer = await run.send(f"text {number}")
            assert answer.ok or answer.code == "busy", answer
        await run.decide(waiting.tickets[0].approve())

    one = agent(call("pay", id="p"), *["done"] * 3, tools=[tool("pay", needs_approval=True)])
    await play(big, one, decide=decide)


async def progress(big: Big) -> None:
    """Each of a few calls reports so many times."""

    @gr.tool
    async def reports(ctx: gr.ToolContext) -> str:
        """Report."""
        for number in range(big.n):
            await ctx.progress(number / big.n, f"at {number}")
            await trio.sleep(1)
        return "reported"

    await play(big, agent(call("reports", id="c"), "done", tools=[reports]))


async def expiring(big: Big) -> None:
    """Each ticket expires for itself."""

    @gr.tool
    async def asks(ctx: gr.ToolContext, at: int) -> str:
        """Ask."""
        if ctx.decision is None:
            raise gr.Suspend(message="?", expires_after=10.0 + at / 10)
        return "asked"

    async def decide(_: Any, run: Any, waiting: Any) -> None:
        pass

    await play(big, agent(calls("asks", big.n), "done", tools=[asks]), decide=decide)


async def superseded(big: Big) -> None:
    """New input withdraws all open tickets."""

    async def decide(_: Any, run: Any, waiting: Any) -> None:
        assert (await run.send("never mind")).ok

    one = agent(calls("pay", big.n), "done", tools=[tool("pay", needs_approval=True)], on_new_input="supersede")
    await play(big, one, decide=decide)


async def cancelled(big: Big) -> None:
    """A run with so many open tickets is cancelled."""
    one = agent(calls("pay", big.n), "done", tools=[tool("pay", needs_approval=True)])
    async with home(big.store) as runtime:
        run = await runtime.start(one, "hi", run_id="r", execution=big.mode)
        await run.wait()
        await run.cancel()
        assert isinstance(await run.result(), gr.Cancelled)


async def recovered(big: Big) -> None:
    """A run with so many open tickets is taken up by another process, and decided there."""

    def made() -> gr.Agent[Any]:
        return agent(calls("pay", big.n), "done", tools=[tool("pay", needs_approval=True)])

    async with home(big.store) as runtime:
        await (await runtime.start(made(), "hi", run_id="r", execution=big.mode)).wait()
    async with home(big.store, agents=[made()]) as runtime:
        run = await runtime.get("r")
        waiting = await run.wait()
        while isinstance(waiting, gr.Waiting):
            for ticket in big.shuffled(waiting.tickets):
                await run.decide(ticket.approve())
            waiting = await run.wait()


SHAPES: Final[dict[str, Shape]] = {
    shape.__name__: shape
    for shape in (
        plain_calls, many_bodies, mixed_calls, failing_calls, approve_one_by_one, any_calls, decided_early, gated_calls,
        weighed_calls, written_keys, many_tools, handoff_chain, handoffs_in_a_step, child_runs, child_approvals,
        background_tasks, messages_in_steps, sent_input, progress, expiring, superseded, cancelled, recovered,
    )
}  # fmt: skip
