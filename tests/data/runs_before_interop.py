"""Runs without toolsets, and the program that wrote `runs_before_interop.db.gz` with the release before there were any.

python tests/data/runs_before_interop.py FILE      with the code of a45c8d57; a later one must write the same

Time is virtual and begins at a fixed moment, so the events of a run are the same bytes whenever it is played.
"""

import gzip
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import trio
import trio.testing

import greenroom as gr
from greenroom.testing import Clock, FakeWall, ScriptedModel, call, delay, fail, text, think

MOMENT = datetime(2031, 5, 1, 12, tzinfo=UTC)


@attrs.frozen
class Report:
    """An output."""

    title: str
    pages: int = 1


@gr.tool
async def ask(ctx: gr.ToolContext, color: str) -> str | gr.Suspend:
    """Ask in the body."""
    return gr.Suspend(message=f"is {color} right?") if ctx.decision is None else f"{color}: {ctx.decision.result}"


@gr.tool(needs_approval=True, effect="write")
async def ship(order: int) -> str:
    """Ship an order."""
    return f"shipped {order}"


@gr.tool(replay="safe")
async def look(ctx: gr.ToolContext, at: str) -> str:
    """Look, and say how far it is."""
    await ctx.progress(0.5, f"half of {at}")
    await ctx.output(f"{at}\\n")
    await trio.sleep(1)
    return f"saw {at}"


@gr.tool
async def breaks(why: str) -> str:
    """Fail."""
    raise ValueError(why)


@gr.tool(background=True)
async def watch(ctx: gr.ToolContext, what: str) -> str:
    """Work beside the steps."""
    await trio.sleep(2)
    return f"watched {what}"


@gr.tool(effect="delegate")
async def coder(ctx: gr.ToolContext) -> str:
    """Let a program work that asks before its call."""
    answer = await ctx.call_nested("Write", {"file": "a.txt"}, effect="write")
    if answer.arguments is not None:
        ctx.end_nested(answer.call_id, "written")
    return answer.text


class Holds(gr.Plugin):
    """Holds the run before its second step."""

    name = "holds"

    async def step_end(self, ctx: gr.PhaseContext[Any]) -> gr.Mutation | None:
        return gr.Mutation().hold(gr.Suspend(message="has the parcel come?")) if ctx.step == 1 else None


class AskFirst(gr.Plugin):
    """A person decides about the calls of the program."""

    name = "ask_first"

    async def tool_gate(self, ctx: gr.GateContext[Any]) -> Any:
        asks = ctx.call.parent is not None and ctx.decision is None
        return gr.Suspend(message="May the program do that?", reason="tool_permission") if asks else None


TOOLS = [ask, ship, look, breaks, watch]


def agent(key: str, *steps: Any, tools: Any = TOOLS, **options: Any) -> gr.Agent[Any]:
    return gr.Agent(key, tools=tools, model=ScriptedModel(list(steps)), **options)


CLERK = agent("clerk", [text("I ship. "), call("ship", order=5, id="k1")], "clerk is done")
AGENTS = [
    agent("asked", [think("hm"), text("I ask. "), call("ask", color="red", id="c1")], "asked"),
    agent(
        "batch",
        [call("ship", order=1, id="c1"), call("ship", order=2, id="c2"), call("look", at="x", id="c3")],
        "shipped",
        execution="parallel_batch_approval",
    ),
    agent(
        "streaming",
        [text("Word by word. "), delay(1), call("look", at="a", id="c1"), call("breaks", why="no", id="c2")],
        "seen",
        execution="parallel_streaming",
    ),
    agent("held", call("look", at="b", id="c1"), "came", plugins=[Holds()]),
    agent("typed", '{"title": "tea", "pages": 3}', output_type=Report),
    agent("retried", [text("Hel "), fail("overloaded")], "Hello", plugins=[gr.Recovery(times=1)]),
    agent("broken", fail("unauthorized", "no key")),
    agent("watching", call("watch", what="tea", id="c1"), "begun", "watched"),
    agent("coding", call("coder", id="p1"), "coded", tools=[coder], plugins=[AskFirst()]),
    agent("boss", call("clerk", input="ship 5", id="b1"), "all done", tools=[CLERK.as_tool()]),
    agent("first", call("transfer_to_asked", id="h1"), handoffs=["asked"]),
    agent("cancelled", call("ship", order=9, id="c1"), "never"),
    CLERK,
]
"""One run of each but the clerk is in the file, with the agent's key as its id."""


async def play(store: gr.Store) -> None:
    """Start the runs, one after the other, and answer what they ask."""
    async with gr.open_runtime(store, agents=AGENTS, clock=Clock(FakeWall(MOMENT))) as runtime:
        for one in AGENTS[:-1]:
            run = await runtime.start(one, "go", run_id=one.key, thread_id=f"{one.key}.thread", by="ada")
            for number in range(8):
                outcome = await run.wait()
                if not isinstance(outcome, gr.Waiting):
                    break
                await answer(run, outcome, number)
            await trio.sleep(5)


async def answer(run: gr.Run, waiting: gr.Waiting, number: int) -> None:
    """Approve the oldest question; of `batch` the second is denied, and `cancelled` is cancelled."""
    name, ticket = f"{run.id}-{number}", waiting.tickets[0].ticket_id
    if run.id == "cancelled":
        await run.cancel(reason="enough", command_id=name)
    elif run.id == "batch" and number == 1:
        await run.decide(ticket, "deny", reason="not that one", by="bob", decision_id=name)
    else:
        result = "yes" if run.id in ("asked", "first") else None
        await run.decide(ticket, "approve", result=result, by="bob", decision_id=name)
    await trio.sleep(3)


def write(path: Path) -> None:
    """Write the file."""
    trio.run(play, gr.SQLiteStore(path, writer="inline"), clock=trio.testing.MockClock(autojump_threshold=0))


if __name__ == "__main__":
    target = Path(sys.argv[1])
    write(target)
    target.with_suffix(".db.gz").write_bytes(gzip.compress(target.read_bytes(), 9, mtime=0))
