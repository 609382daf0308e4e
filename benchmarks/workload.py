"""The agents that are measured: the cheapest model that honours the port, and a tool that does next to nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import trio

import greenroom as gr

ARGUMENTS = {"a": 1, "b": 2}


class _Answer:
    """A stream that yields one response, after a checkpoint or a delay."""

    def __init__(self, response: gr.ModelResponse, delay: float) -> None:
        self._response: gr.ModelResponse | None = response
        self._delay = delay

    def __aiter__(self) -> _Answer:
        return self

    async def __anext__(self) -> gr.ModelResponse:
        await trio.sleep(self._delay)
        response, self._response = self._response, None
        if response is None:
            raise StopAsyncIteration
        return response


class QuietModel(gr.Model):
    """Calls a tool for so many steps, then says "done". Keeps nothing and counts no words: what is left is the runtime.

    Args:
        steps: how many answers are calls. calls: per answer. tool: which. delay: seconds before each answer.
        arguments: of each call.
    """

    name = "quiet"

    def __init__(
        self,
        steps: int = 1,
        *,
        calls: int = 1,
        tool: str = "add",
        delay: float = 0.0,
        arguments: Mapping[str, object] = ARGUMENTS,
    ) -> None:
        self._steps, self._delay = steps, delay
        request = gr.CallRequest(call_id="", tool=tool, arguments=arguments)
        self._call = gr.ModelResponse(text=(), calls=(request,) * calls, usage=gr.Usage(requests=1), model=self.name)
        self._done = gr.ModelResponse(text=("done",), calls=(), usage=gr.Usage(requests=1), model=self.name)

    @asynccontextmanager
    async def stream(self, request: gr.ModelRequest) -> AsyncIterator[AsyncIterator[Any]]:
        yield _Answer(self._call if request.model_attempts < self._steps else self._done, self._delay)


@gr.tool  # replay="unsafe", as a tool is unless a person says otherwise: its start is durable before its body runs
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    await trio.lowlevel.checkpoint()
    return a + b


def adding(steps: int = 1, **model: Any) -> gr.Agent[str]:
    """An agent that calls `add` in each of so many steps."""
    return gr.Agent("adding", tools=[add], model=QuietModel(steps, **model), stop=[gr.stop.MaxRounds(steps + 2)])


def with_child() -> gr.Agent[str]:
    """An agent whose one call starts a child run, which answers at once."""
    child = gr.Agent("child", model=QuietModel(0))
    model = QuietModel(tool="child", arguments={"input": "hi"})
    return gr.Agent("parent", tools=[child.as_tool()], model=model, stop=[gr.stop.MaxRounds(3)])


def handing_over() -> gr.Agent[str]:
    """An agent whose one call hands the run over to another agent, which answers at once."""
    other = gr.Agent("other", model=QuietModel(0))
    model = QuietModel(tool="transfer_to_other", arguments={})
    return gr.Agent("first", handoffs=[other], model=model, stop=[gr.stop.MaxRounds(3)])


@gr.input_guardrail
async def heard(ctx: gr.PhaseContext, text: str) -> None:
    """Let any input pass, beside the model request."""
    await trio.lowlevel.checkpoint()


@gr.output_guardrail
async def said(ctx: gr.PhaseContext, output: str) -> None:
    """Let any output pass."""
    await trio.lowlevel.checkpoint()


@gr.tool_input_guardrail
async def sound(ctx: gr.GateContext, arguments: Mapping[str, Any]) -> None:
    """Let any arguments pass."""
    await trio.lowlevel.checkpoint()


def guarded() -> gr.Agent[str]:
    """The agent `adding`, with guardrails of its input, of its output and of the tool's arguments."""
    tool = gr.tool(name="add", input_guardrails=[sound])(add.function)
    return gr.Agent(
        "guarded",
        tools=[tool],
        model=QuietModel(),
        input_guardrails=[heard],
        output_guardrails=[said],
        stop=[gr.stop.MaxRounds(3)],
    )


async def run_once(runtime: gr.Runtime, agent: gr.Agent[str]) -> None:
    """One run from start to its outcome."""
    run = await runtime.start(agent, "hi")
    outcome = await run.wait()
    assert isinstance(outcome, gr.Completed), outcome
    assert outcome.output == "done"


async def together(count: int, one: Callable[[], Awaitable[Any]]) -> None:
    """So many at once."""
    async with trio.open_nursery() as nursery:
        for _ in range(count):
            nursery.start_soon(one)


async def warm(runtime: gr.Runtime, agent: gr.Agent[str], runs: int = 20) -> None:
    """Let caches fill and lazy parts be made."""
    for _ in range(runs):
        await run_once(runtime, agent)
