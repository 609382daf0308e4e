"""Methods of trio objects for asyncio, one line each: the signature and docstring are those of the trio method.

    class Run:
        view = in_trio(gr.Run.view)          # await run.view()
        events = followed(gr.Run.events)     # async with run.events() as events: async for event in events: ...

`Method` exists for type checkers; in a running program each of these is an ordinary function.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast

from ..bridge.trio_thread import TrioThread

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class OnTrio(Protocol):
    """An object of asyncio that stands for one of trio.

    Attributes:
        thread: The trio thread of the other object.
        inner: The other object. Use it in functions that `thread` runs.
    """

    @property
    def thread(self) -> TrioThread:
        """See above."""

    @property
    def inner(self) -> Any:
        """See above."""


class Method(Generic[P, R_co]):
    """A method with the parameters of another one."""

    def __get__(self, place: object, owner: type | None = None) -> Callable[P, R_co]:
        """Bind the method."""
        raise NotImplementedError("a Method exists for type checkers only")


def in_trio(method: Callable[Concatenate[Any, P], Awaitable[R]]) -> Method[P, Coroutine[Any, Any, R]]:
    """Make an async method of a trio object one for asyncio; see `TrioThread.run`."""
    name = method.__name__

    @functools.wraps(method)
    async def call(self: OnTrio, *args: Any, **options: Any) -> R:
        # by name: the object may be of a subclass
        return await self.thread.run(partial(getattr(self.inner, name), *args, **options))

    return cast("Method[P, Coroutine[Any, Any, R]]", call)


def followed(
    method: Callable[Concatenate[Any, P], AbstractAsyncContextManager[AsyncIterator[R]]],
) -> Method[P, AbstractAsyncContextManager[AsyncIterator[R]]]:
    """Make a method that opens an async iterator one for asyncio; see `TrioThread.iterate`."""
    name = method.__name__

    @functools.wraps(method)
    def call(self: OnTrio, *args: Any, **options: Any) -> AbstractAsyncContextManager[AsyncIterator[R]]:
        return self.thread.iterate(partial(getattr(self.inner, name), *args, **options))

    return cast("Method[P, AbstractAsyncContextManager[AsyncIterator[R]]]", call)
