"""A gateway with agents for AG-UI's client, in a process of its own that can be killed.

    python ag_ui_server.py DATABASE PORT TOKEN

prints its port and serves until it is killed. Port 0 takes a free one.
"""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import trio

import greenroom as gr
from greenroom.testing import ScriptedModel, call, delay, fail, text, think
from greenroom.transport import serve


@gr.tool(needs_approval=True, effect="write")
async def refund(order: str, cents: int) -> str:
    """Pay the money of an order back."""
    return f"paid {cents} for {order}"


@gr.tool(replay="safe")
async def locate() -> Any:
    """Where the user is: the page knows."""
    raise gr.Suspend(
        message="where are you?", resume_mode="use_decision_as_tool_result", response_schema={"type": "string"}
    )


@gr.tool(replay="safe")
async def hurry() -> Any:
    """Ask something that no one can answer in time."""
    raise gr.Suspend(message="quick!", expires_after=0.05)


@gr.tool(replay="safe")
async def wait_for(ctx: gr.ToolContext, file: str) -> str:
    """Wait until there is such a file."""
    await ctx.progress(0.5, "half way")
    await ctx.output("waiting ...")
    while not await trio.Path(file).exists():  # noqa: ASYNC110 - another process makes it
        await trio.sleep(0.02)
    return "there"


TOOLS = [refund, locate, hurry, wait_for]


def agents(folder: Path) -> list[gr.Agent[Any]]:
    """One agent per case."""
    refunds = [call("refund", order=order, cents=5, id=f"c{order}") for order in ("1", "2")]
    scripts: dict[str, list[Any]] = {
        "plain": [[think("hm"), text("hello")]],
        "refunds": [[think("hm"), text("Two refunds. "), *refunds], "done"],
        "mixed": [[call("refund", order="1", cents=5, id="c1"), call("locate", id="c2")], "done"],
        "late": [call("hurry", id="c1"), "done"],
        "slow": [[text("Wait. "), call("wait_for", file=str(folder / "go"), id="w1")], "done"],
        "stumbling": [[think("hm"), text("Hel "), delay(0.2), fail("overloaded")], [text("Hel"), text("lo")]],
        "broken": [[text("Hel"), delay(0.05), fail("unauthorized", "no key")]],
    }
    return [
        gr.Agent(
            key,
            model=ScriptedModel(script),
            tools=TOOLS,
            execution="parallel_streaming",
            plugins=[gr.Recovery(times=0)],  # an answer that breaks begins anew
        )
        for key, script in scripts.items()
    ]


async def main(database: str, port: int, token: str) -> None:
    """Serve until killed."""
    folder = Path(database).parent
    async with gr.open_runtime(database, agents=agents(folder)) as runtime, trio.open_nursery() as nursery:
        address = await nursery.start(partial(serve, runtime, port=port, token=token))
        sys.stdout.write(f"{address.port}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    trio.run(main, sys.argv[1], int(sys.argv[2]), sys.argv[3])
