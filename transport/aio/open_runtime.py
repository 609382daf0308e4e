"""`open_runtime` and `run` for programs on asyncio."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, ParamSpec, TypeVar

import greenroom as gr
from greenroom.actors.agents.options import Deps

from ..bridge.trio_thread import open_trio_thread
from .runtime import Runtime

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def _options_of(_: Callable[P, object]) -> Callable[[Callable[..., R]], Callable[P, R]]:
    """Give a function the parameters of another one."""

    def with_options(function: Callable[..., R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **options: P.kwargs) -> R:
            return function(*args, **options)

        return call

    return with_options


@_options_of(gr.open_runtime)
@asynccontextmanager
async def open_runtime(*args: Any, **options: Any) -> AsyncIterator[Runtime]:
    """Open a runtime for the time of the block, in a program on asyncio.

    The runtime works in a thread of its own, with trio; the arguments, guarantees and errors are those of
    `greenroom.open_runtime`. Models, tools and hooks run in that thread, on trio, unless they are made for asyncio
    (`gr.tool(loop="asyncio")`), and see the context variables of the place where the runtime is opened.

    A block that ends normally or with an exception has the drain of `open_runtime`; a cancelled block has none. Both
    end when the runtime has closed, however often the task is cancelled meanwhile. If the runtime fails, the block is
    cancelled, and RuntimeFailed is raised in place of that cancellation.

    Raises:
        BaseException: As `greenroom.open_runtime`. The exceptions are the same objects, bare.
    """
    async with open_trio_thread() as thread, thread.enter(partial(gr.open_runtime, *args, **options)) as inner:
        yield Runtime(inner, thread)


async def run(
    agent: gr.Agent[T, Deps], text: str, /, *, deps: Deps | None = None, attachments: Sequence[gr.Image | gr.File] = ()
) -> gr.Completed[T] | gr.Waiting | gr.Failed | gr.Cancelled:
    """Run an agent once, in memory, and return its outcome; see `greenroom.run`.

    Starting and ending the thread costs about a millisecond; `open_runtime` has one thread for all runs.
    """
    async with open_runtime(agents=[agent]) as runtime:
        handle = await runtime.start(agent, text, deps=deps, attachments=attachments)
        return await handle.wait()
