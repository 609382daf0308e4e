"""The border to user code (`border`) for functions that may be asynchronous; apart, because pure code has no await."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ParamSpec

from .border import Raised, Returned, failure_of

P = ParamSpec("P")


async def acapture(function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> Returned[Any] | Raised:
    """Call a function of the user's, await an awaitable answer, and return how the call ended.

    Raises:
        KeyboardInterrupt: A real Ctrl-C.
        trio.Cancelled: A scope around the caller is cancelled.
        GeneratorExit: The coroutine is being closed outside of a trio task.
    """
    try:
        answer = function(*args, **kwargs)
        return Returned(await answer if inspect.isawaitable(answer) else answer)
    except BaseException as error:  # noqa: BLE001, ASYNC103 - user code may raise anything
        return Raised(failure_of(error))  # noqa: ASYNC104 - `failure_of` has raised what passes
