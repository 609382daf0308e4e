"""`for_host`: the context of a body or a hook that runs in the loop of a host on asyncio."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import attrs

from ..host_loop import IN_HOST

C = TypeVar("C", bound=attrs.AttrsInstance)


def for_host(context: C) -> C:
    """Return a copy of a context, of a subclass whose async methods call those of `context` in trio.

    Every async method of a context waits for trio, and a task of asyncio can only wait for asyncio.
    """
    values = {field.alias: getattr(context, field.name) for field in attrs.fields(type(context))}
    copy: C = _class_for_host(type(context))(**values)
    return copy


@functools.cache
def _class_for_host(cls: type[Any]) -> type[Any]:
    functions = {name: getattr(cls, name) for name in dir(cls)}
    methods = {name: _called_in_trio(one) for name, one in functions.items() if inspect.iscoroutinefunction(one)}
    return type(cls.__name__, (cls,), {"__slots__": (), "__module__": cls.__module__, **methods})


def _called_in_trio(method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    @functools.wraps(method)
    async def call(*args: Any, **options: Any) -> Any:
        return await IN_HOST.get().back(functools.partial(method, *args, **options))

    return call
