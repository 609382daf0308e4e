"""The entry of the facade: unknown keywords are refused with the nearest known one.

Python's own TypeError lacks that suggestion in some supported releases, and is not the type of our other refusals.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar, cast

from .options import keywords_of, unknown_option

P = ParamSpec("P")
R = TypeVar("R")


def checks_options(call: Callable[P, R]) -> Callable[P, R]:
    """Make a function raise UsageError for an unknown keyword; a coroutine function raises when awaited."""
    known = keywords_of(call)

    def check(options: Iterable[str]) -> None:
        for option in options:
            if option not in known:
                raise unknown_option(call.__name__, option, known)

    if inspect.iscoroutinefunction(call):

        @functools.wraps(call)
        async def awaited(*args: P.args, **options: P.kwargs) -> Any:
            check(options)
            return await call(*args, **options)

        return cast("Callable[P, R]", awaited)

    @functools.wraps(call)
    def called(*args: P.args, **options: P.kwargs) -> R:
        check(options)
        return call(*args, **options)

    return called
