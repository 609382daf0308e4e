"""`in_host`: a coroutine function of asyncio, where a runtime expects an async function of trio."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

import trio

import greenroom as gr
from greenroom.actors.host_loop import HOST_LOOP, no_host
from greenroom.actors.tools.host_context import for_host

P = ParamSpec("P")
R = TypeVar("R")


def in_host(function: Callable[P, Awaitable[R]]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Make a coroutine function of asyncio one that a runtime can call: a hook, a gate, a guardrail, a predicate.

        class Audit(gr.Plugin):
            @greenroom.aio.in_host
            async def after_inference(self, ctx: gr.PhaseContext) -> None:
                await session.post("https://audit.example", json={"run": ctx.run_id})

    The function runs as a task in the loop of the program that opened the runtime with `greenroom.aio.open_runtime`. A
    cancel, or the end of the time of a plugin, cancels the task and waits for its end. The methods of a context are
    awaited there as anywhere. A call from asyncio calls the function itself. Tools have `gr.tool(loop="asyncio")`.

    Raises:
        AgentDefinitionError: (when called) the runtime belongs to a program on trio.
    """

    @functools.wraps(function)
    async def call(*args: P.args, **options: P.kwargs) -> R:
        if not trio.lowlevel.in_trio_task():
            return await function(*args, **options)
        host = HOST_LOOP.get()
        if host is None:
            raise no_host(f"the function {getattr(function, '__qualname__', function)!r}")
        values: Any = [for_host(value) if isinstance(value, _CONTEXTS) else value for value in args]
        result: R = await host.call(functools.partial(function, *values, **options))
        return result

    return call


_CONTEXTS = (gr.ToolContext, gr.PhaseContext, gr.PreparationContext)
