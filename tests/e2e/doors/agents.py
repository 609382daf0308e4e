"""The agent of the doors: it asks for an approval, then for a value, and says something before and after.

The file that DOORS_EFFECTS names is the world outside: it has a line for each effect.
"""

import os
from typing import Any

import greenroom as gr
from greenroom.testing import ScriptedModel, call, text


@gr.tool(needs_approval=True, effect="write")
async def refund(ctx: gr.ToolContext[Any], order: str, cents: int) -> str:
    """Pay the money of an order back."""
    effects = os.open(os.environ["DOORS_EFFECTS"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(effects, f"{ctx.run_id} {ctx.attempt}\n".encode())
    os.close(effects)
    return f"paid {cents} for {order}"


@gr.tool(replay="safe")
async def locate() -> Any:
    """Ask where the parcel is to go."""
    raise gr.Suspend(
        message="Which city?", resume_mode="use_decision_as_tool_result", response_schema={"type": "string"}
    )


desk = gr.Agent(
    "desk",
    description="Pays an order back and sends a parcel.",
    tools=[refund, locate],
    model=ScriptedModel(
        [
            [text("I pay it back."), call("refund", order="7", cents=500, id="c1")],
            [text("I need an address."), call("locate", id="c2")],
            "All is done.",
        ]
    ),
)
