"""An approval: a large refund waits for a person, a small one does not.

    greenroom run examples/approval.py "refund 4200 cents of order 7"     asks in the terminal
    greenroom run examples/approval.py "refund 300 cents of order 8"      needs no person
    python examples/approval.py support.db                                decides in code; durable in that file

While it waits, the run is only rows in that file: any process can open it and decide.
"""

import re
import sys
from collections.abc import Mapping
from typing import Any

import trio

import greenroom as gr
from greenroom.testing import FunctionModel, Step, call

LIMIT = 1000  # cents that may be refunded without a question


async def is_large(_: gr.ToolContext, arguments: Mapping[str, Any]) -> bool:
    """Return True if a person must approve the refund."""
    return bool(arguments["cents"] > LIMIT)


@gr.tool(needs_approval=is_large, effect="write")
async def refund(ctx: gr.ToolContext, order: str, cents: int) -> str:
    """Pay the money of an order back."""
    # The key is the same in every attempt: a real payment service recognises a repetition by it.
    return f"paid back {cents} cents of order {order} under the key {ctx.idempotency_key}"


def think(request: gr.ModelRequest) -> Step:
    """Replaces a language model: reads the request, then the result of the tool."""
    last = request.messages[-1]
    if last.role == "tool":
        return f"This is what came of it: {last.content}"
    match = re.search(r"(\d+) cents of order (\w+)", last.content)
    if match is None:
        return "Tell me how much, and of which order, such as: refund 4200 cents of order 7"
    return call("refund", order=match[2], cents=int(match[1]))


agent = gr.Agent(
    "refunds", instructions="Help customers with their orders.", tools=[refund], model=FunctionModel(think)
)


async def main(database: str | None) -> None:
    """Start a run, decide what it asks, and print what it came to."""
    async with gr.open_runtime(database, agents=[agent]) as runtime:
        run = await runtime.start(agent, "refund 4200 cents of order 7")
        outcome = await run.wait()
        while isinstance(outcome, gr.Waiting):  # the process could end here: the run waits in the file
            for ticket in outcome.tickets:
                print("may it?", ticket.tool, dict(ticket.arguments))
                answer = await run.decide(ticket.approve(reason="a good customer"))
                print(answer.status)
            outcome = await run.wait()
        print(outcome.output)


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if len(sys.argv) > 1 else None)
