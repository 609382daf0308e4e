"""The agents of `runs_8.db.gz`, a file of schema version 8 (rows of version 2), and the program that wrote it.

python tests/data/runs_8.py FOLDER      with the release of that schema; a later release writes another file
"""

import gzip
import sys
from pathlib import Path
from typing import Any

import trio

import greenroom as gr
from greenroom.testing import ScriptedModel, call


@gr.tool
async def ask(ctx: gr.ToolContext, color: str) -> str | gr.Suspend:
    return gr.Suspend(message=f"is {color} right?") if ctx.decision is None else f"{color}: {ctx.decision.result}"


@gr.tool(needs_approval=True, effect="write")
async def ship(order: int) -> str:
    return f"shipped {order}"


@gr.tool
async def look(at: str) -> str:
    return f"saw {at}"


@gr.tool(effect="write", replay="unsafe")
async def charge(cents: int) -> str:
    if cents == 5:
        await trio.sleep_forever()
    return f"charged {cents}"


class Holds(gr.Plugin):
    """Holds the run before its second step."""

    name = "holds"

    async def step_end(self, ctx: gr.PhaseContext[Any]) -> gr.Mutation | None:
        return gr.Mutation().hold(gr.Suspend(message="has the parcel come?")) if ctx.step == 1 else None


class Answers(gr.Plugin):
    """Sets the result of `look`."""

    name = "answers"

    async def tool_gate(self, ctx: gr.PhaseContext[Any]) -> gr.SetResult | None:
        return gr.SetResult("known") if ctx.call is not None and ctx.call.tool == "look" else None


def agent(key: str, *steps: Any, **options: Any) -> gr.Agent[Any]:
    return gr.Agent(key, tools=[ask, ship, look, charge], model=ScriptedModel(list(steps)), **options)


AGENTS = [
    agent("done", call("look", at="a", id="c1"), "seen"),
    agent("asked", call("ask", color="red", id="c1"), "asked"),
    agent("told", call("ask", color="green", id="c1"), "told"),
    agent("held", call("look", at="b", id="c1"), "came", plugins=[Holds()]),
    agent(
        "decided",
        [call("ship", order=1, id="c1"), call("ship", order=2, id="c2")],
        "shipped",
        execution="parallel_batch_approval",
    ),
    agent("sent", call("ask", color="blue", id="c1"), "sent"),
    agent("weighed", [call("ask", color="gold", id="c1"), call("look", at="c", id="c2")], "known", plugins=[Answers()]),
    agent("lost", call("charge", cents=5, id="c1"), "charged"),
]
"""One run of each is in the file, with the agent's key as its id: each has a field that is renamed in version 3."""


async def write(path: Path) -> None:
    async with gr.open_runtime(path, agents=AGENTS) as runtime:
        for one in AGENTS:
            await runtime.start(one, "go", run_id=one.key, by="ada")
            await trio.sleep(0.3)
        reported = await runtime.get("told")
        assert (await reported.decide("c1", "resume", result="yes", by="ada")).ok
        decided = await runtime.get("decided")
        assert (await decided.decide("c1", "resume", by="ada")).ok
        sent = await runtime.get("sent")
        assert (await sent.send("and green?", by="bob")).ok
        await trio.sleep(0.5)
    async with gr.open_runtime(path, agents=AGENTS):  # "lost" is taken up: its body's outcome is unknown
        await trio.sleep(0.5)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    trio.run(write, folder / "runs_8.db")
    content = (folder / "runs_8.db").read_bytes()
    (folder / "runs_8.db.gz").write_bytes(gzip.compress(content, 9, mtime=0))
