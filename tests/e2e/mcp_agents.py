"""Agents for the clients of MCP; for `greenroom serve`. EFFECTS names a file with a line for each effect."""

import os
import struct
import zlib
from pathlib import Path
from typing import Any

import attrs
import trio

import greenroom as gr
from greenroom.testing import FunctionModel

EFFECTS = Path(os.environ["EFFECTS"])


def effect(text: str) -> None:
    """Have an effect on the world."""
    with EFFECTS.open("a") as file:
        file.write(f"{text}\n")


@attrs.frozen
class Order:
    """What an order comes to."""

    order: str
    cents: int


echo = gr.Agent("echo", model=FunctionModel(lambda request: f"you said {request.messages[-1].content}"))
order = gr.Agent("order", output_type=Order, model=FunctionModel(lambda _: '{"order": "7", "cents": 500}'))


@gr.tool
async def picture() -> gr.Image:
    """Draw a red pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">2I5B", 1, 1, 8, 2, 0, 0, 0))
    pixel = chunk(b"IDAT", zlib.compress(b"\0\xff\0\0"))
    return gr.Image(b"\x89PNG\r\n\x1a\n" + header + pixel + chunk(b"IEND", b""))


@gr.tool(needs_approval=True, effect="publish")
async def pay(invoice: int) -> str:
    """Pay an invoice."""
    effect(f"paid {invoice}")
    await trio.sleep(0.03)  # time for a kill between effect and result
    return f"invoice {invoice} is paid"


@gr.tool(replay="safe")
async def work(ctx: gr.ToolContext, until: str) -> str:
    """Work until there is a file, then have an effect."""
    await ctx.progress(0.25, "begun")
    await trio.Path(f"{until}.begun").touch()
    while not await trio.Path(until).exists():  # noqa: ASYNC110 - a test makes the file
        await trio.sleep(0.02)
    await ctx.progress(0.75, "nearly done")
    effect("worked")
    return "worked"


@gr.tool(replay="safe")
async def colour(ctx: gr.ToolContext) -> str:
    """Ask for a colour."""
    if ctx.decision is None:
        schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
        raise gr.Suspend(message="Which colour?", response_schema=schema)
    return f"painted {ctx.decision.result['name']}"


@gr.tool(replay="safe")
async def guarded(ctx: gr.ToolContext) -> str:
    """Ask somebody else."""
    if ctx.decision is None:
        raise gr.Suspend(message="May I?", reviewers=("ada",))
    return "allowed"


TOOLS: tuple[gr.Tool[..., Any], ...] = (picture, pay, work, colour, guarded)
globals().update({f"agent_{tool.name}": gr.tool_agent(tool) for tool in TOOLS})  # the names that are served
