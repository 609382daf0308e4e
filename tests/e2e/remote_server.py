"""The agent of `tests/judges/a2a` on a gateway of Greenroom: `python remote_server.py PORT COUNT_FILE BINDING`.

Counts each message that an agent works on, as the official servers do: the run of a task is one, an answer another.
"""

import sys
from pathlib import Path
from typing import Any

import attrs
import trio

import greenroom as gr
from greenroom.testing import FunctionModel, call, delay, fail, text
from greenroom.transport import serve

TOKEN = "a-token-for-the-remote-agent"
COUNT = Path(sys.argv[2])


@attrs.frozen
class Prices:
    """The output of the agent that has data."""

    tea: float


def count(line: str) -> None:
    """Note what was executed."""
    with COUNT.open("a") as file:
        file.write(f"{line}\n")


@gr.tool(replay="safe")
async def ask(ctx: gr.ToolContext, number: int) -> Any:
    """Ask a person."""
    if ctx.decision is None:
        return gr.Suspend(message="which order?", response_schema={"type": "string"})
    count(f"{ctx.run_id}/{number} {ctx.decision.result!r}")
    return str(ctx.decision.result)


@gr.tool
async def menu() -> Any:
    """Return a file."""
    return gr.File(b"tea,3\n", media_type="text/csv", name="menu.csv")


def answer(request: gr.ModelRequest) -> Any:
    """Do what the newest text of a person says."""
    asked = [message for message in request.messages if message.role == "user"][-1]
    answers = [message.content for message in request.messages if message.role == "tool" and message.producer]
    said, step = asked.content, request.step
    if step == 1:
        count(f"{request.run_id} {said!r}")
    if said in ("ask", "ask twice") and step <= (2 if said == "ask twice" else 1):
        return call("ask", number=step)
    if said.startswith("ask"):
        return f"done: {answers[-1]}"
    if said.startswith("slow"):
        return [one for n in range(int(float(said.split()[1]) * 10)) for one in (text(f"{n} "), delay(0.1))]
    if said == "files" and step == 1:
        return call("menu")
    if said == "files":
        return f"got: {', '.join(f'{part.name} {part.media_type} {part.size}' for part in asked.parts)}"
    return fail("invalid_request") if said == "fail" else f"done: {said}"


async def main() -> None:
    """Serve until this process is ended."""
    agent = gr.Agent("work", model=FunctionModel(answer), tools=[ask, menu])
    prices = gr.Agent("prices", model=FunctionModel(lambda _: '{"tea": 3}'), output_type=Prices)
    async with gr.open_runtime(COUNT.with_suffix(".db"), agents=[agent, prices]) as runtime:
        await serve(runtime, port=int(sys.argv[1]), token=TOKEN)


if __name__ == "__main__":
    trio.run(main)
