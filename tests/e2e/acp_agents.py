"""The agents of the tests of `greenroom acp`: a clerk that asks, a painter, a writer that never ends, one that sees."""

import sys
from contextlib import asynccontextmanager
from pathlib import Path

import trio

import greenroom as gr
from greenroom.testing import FunctionModel, call

COLOUR = {
    "type": "object",
    "properties": {"colour": {"type": "string", "enum": ["red", "blue"], "title": "Colour"}},
    "required": ["colour"],
}


def note(order: str) -> None:
    with Path("paid").open("a") as file:
        file.write(f"{order}\n")


@gr.tool(needs_approval=True, effect="write")
async def refund(order: str, cents: int) -> str:
    """Pay back."""
    sys.stdout.write("printed by a tool, which must not reach the editor\n")
    await trio.to_thread.run_sync(note, order)
    return f"paid {cents}"


@gr.tool
async def paint(ctx: gr.ToolContext) -> str:
    """Ask for a colour in the middle of the work."""
    decision = await ctx.ask(gr.Suspend(message="Which colour?", reason="user_input", response_schema=COLOUR))
    return f"painted {decision.result['colour']}"


class HelperModel(FunctionModel):
    """Calls what the prompt names; with "write" it writes for ever."""

    @asynccontextmanager
    async def stream(self, request):
        async with super().stream(request) as deltas:
            if request.messages[-1].role == "user" and "write" in request.messages[-1].content:
                yield self._endless()
            else:
                yield deltas

    async def _endless(self):
        while True:
            yield gr.TextDelta("and so on, ")
            await trio.sleep(0.01)


def answer(request):
    last = request.messages[-1]
    if last.role != "user":
        return f"It says: {last.content}"
    if "refund" in last.content:
        return call("refund", order=last.content.split()[-1], cents=5)
    if "paint" in last.content:
        return call("paint")
    offered = [tool.name for tool in request.tools if tool.name.startswith("mcp__")]
    if "list" in last.content and offered:
        name = next(name for name in offered if name.endswith("list_directory"))
        return call(name, path=last.content.split()[-1])
    return f"{len(last.parts)} parts, {len(offered)} tools of servers"


helper = gr.Agent("helper", model=HelperModel(answer), tools=[refund, paint])
