"""`serve`: a gateway with a port of its own, for a runtime in a program on asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

import greenroom as gr
from greenroom.supervision.nursery import open_collapsing_nursery

from ..server.serve import Address
from ..server.serve import serve as serve_on_trio
from .runtime import Runtime

P = ParamSpec("P")
R = TypeVar("R")


def _options_of(
    _: Callable[Concatenate[gr.Runtime, P], object],
) -> Callable[[Callable[..., R]], Callable[Concatenate[Runtime, P], R]]:
    """Give a function of a runtime the options of another one."""
    return lambda function: function


@_options_of(serve_on_trio)
def serve(runtime: Runtime, **options: Any) -> AbstractAsyncContextManager[Address]:
    """Serve a runtime's gateway for the block, on a port of its own: `async with aio.serve(runtime) as address: ...`.

    The gateway works in the thread of the runtime, as fast as on trio. To serve it on the port of your own web server,
    mount `greenroom.aio.asgi_app`. Options, errors and the end are those of `greenroom.transport.serve`.

    Raises:
        UsageError: An argument is invalid.
        OSError: The address cannot be bound.
    """
    return runtime.thread.enter(partial(_served, runtime.inner, options))


@asynccontextmanager
async def _served(runtime: gr.Runtime, options: dict[str, Any]) -> AsyncIterator[Address]:
    async with open_collapsing_nursery() as nursery:
        yield await nursery.start(partial(serve_on_trio, runtime, **options))
        nursery.cancel_scope.cancel()
