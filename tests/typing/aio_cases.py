"""The facade on asyncio has the types of the one on trio."""

from typing import assert_type

import greenroom as gr
from greenroom import aio

AGENT: gr.Agent[int] = gr.Agent("a", output_type=int)


@gr.tool(loop="asyncio")
async def look(ctx: gr.ToolContext[str], order: str) -> int:
    """Look."""
    return 1


@aio.in_host
async def must_ask(ctx: gr.ToolContext[str], arguments: dict[str, object]) -> bool:
    """Ask."""
    return True


async def host() -> None:
    async with aio.open_runtime("runs.db", agents=[AGENT], drain=1.0) as runtime:
        assert_type(runtime, aio.Runtime)
        run = await runtime.start(AGENT, "x", run_id="r")
        assert_type(run, aio.Run[int])
        assert_type(await run.wait(), gr.Completed[int] | gr.Waiting | gr.Failed | gr.Cancelled)
        assert_type(await run.decide("t", "approve", reason="x"), gr.CommandResult)
        assert_type(await runtime.view("r"), gr.RunView)
        assert_type(await runtime.runs(status=None, limit=4), gr.RunPage)
        async with run.events(after=3) as events:
            async for event in events:
                assert_type(event, gr.Event)
        await runtime.view(1)  # type: ignore[arg-type]
        await runtime.runs(state="done")  # type: ignore[call-arg]
        await run.cancel(mode="later")  # type: ignore[arg-type]
        await run.cancel(why="so")  # type: ignore[call-arg]
    assert_type(await aio.run(AGENT, "x"), gr.Completed[int] | gr.Waiting | gr.Failed | gr.Cancelled)
    assert_type(await must_ask(gr.ToolContext(deps="x"), {}), bool)


async def access(there: gr.RunAccess) -> None:
    """Reads runs, wherever they are."""


async def connected() -> None:
    async with aio.connect("ws://h:1", token="t") as client:
        await access(client)
