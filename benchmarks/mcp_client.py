"""What a tool of an MCP server costs: a call over standard streams, beside the SDK's own call in the same rounds.

The call of the toolset is that of a run, from the start of the body to its result: message to the actor, the SDK, the
program, and the reading of the result. The store of the run is not part of it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median

import trio
from mcp import Client
from mcp.client.stdio import StdioServerParameters

import greenroom as gr

from .harness import Benchmark, Figure

CALLS = 100
ROUNDS = 9
SERVER = [str(Path(__file__).with_name("mcp_echo.py"))]
STEP = gr.PhaseContext(phase=gr.Phase.BEFORE_INFERENCE, run_id="r", thread_id="t", agent="a", by="local", step=1)


async def _block(call: Callable[[], Awaitable[object]], calls: int) -> float:
    """Return the microseconds of a call, one after the other."""
    began = time.perf_counter()
    for _ in range(calls):
        await call()
    return (time.perf_counter() - began) / calls * 1e6


async def _rounds(calls: int, rounds: int) -> dict[str, float]:
    server = gr.mcp.Server("echo", command=[sys.executable, *SERVER])
    own, ours = list[float](), list[float]()
    async with Client(StdioServerParameters(command=sys.executable, args=SERVER)) as client, server.open() as source:
        await client.list_tools()
        (tool,) = await (source or server).tools(STEP)
        ctx = gr.ToolContext(run_id="r", call_id="c")
        for _ in range(rounds):
            own.append(await _block(lambda: client.call_tool("echo", {"text": "x"}), calls))
            ours.append(await _block(lambda: tool(ctx, {"text": "x"}), calls))
    ratio = median(mine / theirs for mine, theirs in zip(ours, own, strict=True))
    return {"sdk": median(own), "toolset": median(ours), "ratio": ratio}


def _calls(quick: bool) -> dict[str, float]:
    return trio.run(_rounds, 3 if quick else CALLS, 1 if quick else ROUNDS)


BENCHMARK = Benchmark(
    name="mcp_client",
    about="a call of a tool of an MCP server over standard streams",
    cases={"calls": _calls},
    figures=(
        Figure(key="sdk", what="the SDK's own call", unit="us", digits=0),
        Figure(key="toolset", what="the call of a toolset", unit="us", digits=0),
        Figure(key="ratio", what="the second by the first", unit="x", at_most=2.5, digits=2),
    ),
)
