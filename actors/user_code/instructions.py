"""Ask an agent's instructions function for the system text of a step.

Theory of operation. The function gets the context of the step's before_inference hooks and is asked after them, within
a time limit, at the supervision boundary. Its text is stored with the changes of the step's request: retries, replays
and a new owner send the same text, and do not ask again. A function that gives no text has failed, as a hook does: a
request without instructions would be another agent's.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from greenroom.supervision.border import failure_of

from ..contract.excerpt import LARGE
from ..plugins.contexts import PhaseContext
from ..services.sanitize import text_of
from ..state.values import shown
from ..tools.invoke import PREDICATE_TIMEOUT, shown_text
from .hook_deadlines import HookDeadlines
from .hooks import HookFailed

_WATCHED_AS: Final = "the instructions"
"""The name under which `HookDeadlines` knows the function; no plugin has a name with a space."""
_LATE: Final = f"instructions: the function did not answer within {PREDICATE_TIMEOUT:g} s"


async def ask_instructions(
    function: Callable[[PhaseContext], str | Awaitable[str]], ctx: PhaseContext, watch: HookDeadlines
) -> str:
    """Return the text of an instructions function, at most `LARGE` bytes in UTF-8.

    Raises:
        HookFailed: the function raised, was late, or returned no such text.
        trio.Cancelled: cancelled.
    """
    if _WATCHED_AS in watch.given_up:
        raise HookFailed(f"{_LATE}, and did not obey either", level=logging.WARNING)
    try:
        with watch.over(_WATCHED_AS, PREDICATE_TIMEOUT), trio.move_on_after(PREDICATE_TIMEOUT) as limit:
            answer = function(ctx)
            answer = await answer if inspect.isawaitable(answer) else answer
        text = text_of(answer) if not limit.cancel_called and isinstance(answer, str) else None
    except BaseException as error:  # noqa: BLE001, ASYNC103 - user code, and its text may be a class of its own
        failure = failure_of(error)
        raise HookFailed(f"instructions: the function failed: {shown_text(failure)}") from failure  # noqa: ASYNC104 - the border has raised what passes
    if limit.cancel_called:
        raise HookFailed(_LATE, level=logging.WARNING)
    if text is None:
        raise HookFailed(f"instructions: the function returned {shown(answer)}; return a str")
    if len(text.encode()) > LARGE:
        raise HookFailed(
            f"instructions: the function returned {len(text.encode()):,} bytes; at most {LARGE:,} are sent"
        )
    return text
