"""Tests that run on asyncio: pytest-trio would run an async test on trio."""

import asyncio  # noqa: TID251 - the host of the tests
import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import ParamSpec

P = ParamSpec("P")

PATIENCE = 60.0
"""Seconds for one test; a deadlock ends here, with the stack of the task."""


def in_asyncio(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Run a test function in an asyncio loop of its own."""

    @functools.wraps(test)
    def run(*args: P.args, **options: P.kwargs) -> None:
        async def main() -> None:
            async with asyncio.timeout(PATIENCE):
                await test(*args, **options)

        asyncio.run(main())

    del run.__wrapped__  # type: ignore[attr-defined] # pytest-trio would find the coroutine function
    run.__signature__ = inspect.signature(test)  # type: ignore[attr-defined] # its fixtures
    return run
