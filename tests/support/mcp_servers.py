"""MCP servers of tests as toolsets, and runs that use them."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import trio

import greenroom as gr
from greenroom.testing import ScriptedModel, call

PROGRAM = Path(__file__).with_name("mcp_program.py")
FREE = gr.mcp.Rule(needs_approval=False)
SAFE = gr.mcp.Rule(needs_approval=False, replay="safe")


def words(era: str = "modern", log: Path | None = None) -> list[str]:
    """The words that start the server of the tests."""
    return [sys.executable, "-I", "-S", str(PROGRAM), era, *([] if log is None else [str(log)])]


def program(era: str = "modern", log: Path | None = None, **options: Any) -> gr.mcp.Server:
    """The server of the tests, without approvals unless the options say otherwise."""
    return gr.mcp.Server("t", command=words(era, log), **({"tools": {"*": FREE}} | options))


def use(tool: str, arguments: dict[str, Any] | None = None, id: str = "A") -> Any:  # noqa: A002 - as `call`
    """A call of a tool of the server of the tests."""
    return call(f"mcp__t__{tool}", arguments or {}, id=id)


@attrs.define(eq=False)
class Used:
    """A run that has come to rest.

    Attributes:
        outcome: how.
        texts: call -> what the model read of it.
        codes: call -> the code of its failure.
        offered: the names that the first request offered.
        events: all of them.
    """

    run: gr.Run[Any]
    outcome: Any
    texts: dict[str, str]
    codes: dict[str, str | None]
    offered: list[str]
    events: Sequence[gr.Event]

    def of(self, kind: str) -> list[Any]:
        """The payloads of one type of event."""
        return [event.payload for event in self.events if event.type == kind]


def agent_with(*toolsets: gr.Toolset, steps: Sequence[Any] = ("done",), key: str = "a", **options: Any) -> Any:
    """An agent with these toolsets that plays a script."""
    return gr.Agent(key, model=ScriptedModel([*steps]), toolsets=toolsets, **options)


async def seen(run: gr.Run[Any], agent: Any, outcome: Any) -> Used:
    """What came of a run."""
    async with run.events(until="rest") as stream:
        events = [event async for event in stream]
    ends = [event.payload for event in events if event.type == "run.tool.result"]
    first = next(request for request in agent.model.requests)
    results = agent.model.requests[-1].messages
    return Used(
        run=run,
        outcome=outcome,
        texts={message.call_id: message.content for message in results if message.role == "tool"},
        codes={end["callId"]: end.get("code") for end in ends},
        offered=[tool.name for tool in first.tools],
        events=events,
    )


async def run_with(server: gr.Toolset, *steps: Any, store: Any = None, secrets: Sequence[str] = ()) -> Used:
    """Let a run use a server until it rests."""
    agent = agent_with(server, steps=[*steps, "done"])
    async with gr.open_runtime(store, agents=[agent], secrets=secrets) as runtime:
        run = await runtime.start(agent, "go")
        return await seen(run, agent, await run.wait())


def executed(log: Path) -> list[str]:
    """What the server has executed."""
    return log.read_text().split() if log.exists() else []


async def until(holds: Callable[[], bool]) -> None:
    """Wait for what another process does, for up to 10 s."""
    with trio.fail_after(10):
        while not holds():  # noqa: ASYNC110 - no event says so
            await trio.sleep(0.01)
