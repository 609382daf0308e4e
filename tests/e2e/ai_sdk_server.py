"""A gateway with agents for the AI SDK's client, in a process of its own that can be killed.

    python ai_sdk_server.py DATABASE PORT TOKEN

prints its port and serves until it is killed. Port 0 takes a free one.
"""

import signal
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
    raise gr.Suspend(message="where are you?", resume_mode="use_decision_as_tool_result")


@gr.tool(replay="safe")
async def wait_for(ctx: gr.ToolContext, file: str) -> str:
    """Wait until there is such a file."""
    await ctx.output("waiting")
    while not await trio.Path(file).exists():  # noqa: ASYNC110 - another process makes it
        await trio.sleep(0.02)
    return "there"


@gr.tool(effect="delegate")
async def coder(ctx: gr.ToolContext) -> str:
    """Let a program work that asks before each of its calls, two at a time."""
    answers: dict[str, str] = {}

    async def work(tool: str) -> None:
        answer = await ctx.call_nested(tool, {"file": "a.txt"}, effect="write")
        answers[tool] = answer.text if answer.arguments is None else "done"
        if answer.arguments is not None:
            ctx.end_nested(answer.call_id, "done")

    for pair in (("Write", "Bash"), ("Edit",)):
        async with trio.open_nursery() as nursery:
            for tool in pair:
                nursery.start_soon(work, tool)
    return ", ".join(f"{tool}: {answers[tool]}" for tool in sorted(answers))


class AskFirst(gr.Plugin):
    """A person decides about the calls of the program."""

    async def tool_gate(self, ctx: gr.GateContext[Any]) -> Any:
        asks = ctx.call.parent is not None and ctx.decision is None
        return gr.Suspend(message="May the program do that?", reason="tool_permission") if asks else None


TOOLS = [refund, locate, wait_for, coder]


def agents(folder: Path) -> list[gr.Agent[Any]]:
    """One agent per case."""
    refunds = [call("refund", order=order, cents=5, id=f"c{order}") for order in ("1", "2")]
    waiting = call("wait_for", file=str(folder / "go"), id="w1")
    scripts: dict[str, list[Any]] = {
        "plain": ["hello ", "again"],
        "refunds": [[think("hm"), text("Two refunds. "), *refunds], "done"],
        "mixed": [[call("refund", order="1", cents=5, id="c1"), call("locate", id="c2")], "done"],
        "slow": [[text("Wait. "), waiting], "done"],
        "stumbling": [[text("Hel "), delay(0.2), fail("overloaded")], [text("Hel"), text("lo")]],
        "broken": [[text("Hel"), delay(0.05), fail("unauthorized", "no key")]],
        "stopping": [call("locate", id="c1")],
        "program": [call("coder", id="p1"), "done"],
    }
    options: dict[str, dict[str, Any]] = {
        "stopping": {"tool_use": "stop_on_first_tool"},
        "stumbling": {"plugins": [gr.Recovery(times=0)]},  # the second answer begins anew
        "program": {"plugins": [AskFirst()]},
    }
    return [
        gr.Agent(key, model=ScriptedModel(script), tools=TOOLS, **options.get(key, {}))
        for key, script in scripts.items()
    ]


async def main(database: str, port: int, token: str) -> None:
    """Serve until killed, or asked to stop by SIGTERM."""
    folder = Path(database).parent
    async with gr.open_runtime(database, agents=agents(folder), drain=0.1) as runtime, trio.open_nursery() as nursery:
        address = await nursery.start(partial(serve, runtime, port=port, token=token))
        with trio.open_signal_receiver(signal.SIGTERM) as signals:
            sys.stdout.write(f"{address.port}\n")
            sys.stdout.flush()
            await anext(signals)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main, sys.argv[1], int(sys.argv[2]), sys.argv[3])
