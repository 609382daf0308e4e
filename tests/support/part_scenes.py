"""Images and files for scenes: what a tool gives back, and what a run begins with."""

from typing import Any

import greenroom as gr

from .scene_tools import TOOLS, Context

PNG = b"\x89PNG\r\n\x1a\n" + b"a chart"
TABLE = gr.File(b"month,sales\nMay,7\n", media_type="text/csv", name="sales.csv")
AT = gr.Image(url="https://example.org/a.png")
CHART = gr.Image(PNG)


@gr.tool(replay="safe")
async def chart(ctx: Context, seconds: float = 2.0, kind: str = "list") -> Any:
    """Draws."""
    await ctx.deps.work(ctx, seconds)
    kinds: dict[str, Any] = {
        "list": ["a chart", CHART, {"n": 1}, TABLE],
        "one": CHART,
        "at": [AT],
        "deep": {"a": [CHART]},
        "many": [CHART] * 101,
        "none": "nothing",
    }
    return kinds[kind]


DRAWS: dict[str, Any] = {"tools": [*TOOLS, chart]}
FACTS = [CHART.part.facts(), TABLE.part.facts()]


def seen(request: gr.ModelRequest) -> dict[str, list[Any]]:
    """Message -> the bytes or the address of each of its parts, of the messages that have some."""
    return {
        message.call_id or message.role: [part.data or part.url for part in message.parts]
        for message in request.messages
        if message.parts
    }
