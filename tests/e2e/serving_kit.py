"""A server of the command line in a process of its own, and what tests ask of it."""

import json
import signal
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import trio

from greenroom.transport.client import Client, StartedRun, connect

from .cli_kit import PATIENCE, Cli

T = TypeVar("T")

AGENTS = """
import trio

import greenroom as gr
from greenroom.testing import ScriptedModel, call


@gr.tool(needs_approval=True, effect="write")
async def refund(order: str, cents: int) -> str:
    return f"paid back {cents} of {order}"


@gr.tool
async def ask(question: str) -> gr.Suspend:
    raise gr.Suspend(
        action="colour",
        message="Which one?",
        response_schema={"type": "string"},
        resume_mode="use_decision_as_tool_result",
    )


@gr.tool(replay="safe")
async def stream(ctx: gr.ToolContext, lines: int) -> str:
    for number in range(lines):
        await ctx.output(f"line {number}\\n")
        await trio.sleep(0.02)
    return f"{lines} lines"


support = gr.Agent("support", tools=[refund], model=ScriptedModel([call("refund", order="7", cents=500), "done"]))
both = gr.Agent(
    "both",
    tools=[refund],
    model=ScriptedModel([[call("refund", order="7", cents=500), call("refund", order="8", cents=1)], "done"]),
)
painter = gr.Agent("painter", tools=[ask], model=ScriptedModel([call("ask", question="?"), "painted"]))
streamer = gr.Agent("streamer", tools=[stream], model=ScriptedModel([call("stream", lines=60), "streamed"]))
endless = gr.Agent("endless", tools=[stream], model=ScriptedModel([call("stream", lines=100_000), "streamed"]))
"""


class Server:
    """A server that is up."""

    def __init__(self, process: "subprocess.Popen[str]", report: dict[str, Any]) -> None:
        self.process, self.report = process, report
        self.url: str = report["url"]
        token = Path(report["tokenFile"]).read_text(encoding="utf-8").strip()
        self.console = f"{self.url}/#token={token}"
        self.port = int(self.url.rpartition(":")[2])

    def asks(self, what: Callable[[Client], Awaitable[T]]) -> T:
        """Do something with a client."""

        async def ask() -> T:
            with trio.fail_after(PATIENCE):
                async with connect(self.console) as client:
                    return await what(client)

        return trio.run(ask)

    def starts(self, agent: str, run_id: str, *, until: str = "run.waiting") -> StartedRun:
        """Start a run, and stay until an event has come."""

        async def start(client: Client) -> StartedRun:
            started = await client.start(agent, "help", run_id=run_id)
            async with client.follow(run_id) as events:
                async for event in events:
                    if event.type == until:
                        break
            return started

        return self.asks(start)

    def stops(self) -> int:
        """As systemd stops it."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)


@contextmanager
def serving(cli: Cli, *arguments: str | Path, port: int = 0) -> Iterator[Server]:
    """A server for the time of the block; it is killed at its end if it is still there."""
    with cli.started("serve", *arguments, "--port", str(port), "--json") as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            assert process.stderr is not None
            raise AssertionError(process.stderr.read())
        yield Server(process, json.loads(line))
