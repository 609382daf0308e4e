"""Ask an agent's instructions function for the system text of a step.

Theory of operation. The function gets the context of the step's before_inference hooks and is asked after them, within
a time limit, at the supervision boundary. Its text is stored with the changes of the step's request: retries, replays
and a new owner send the same text, and do not ask again. A function that gives no text has failed, as a hook does: a
request without instructions would be another agent's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from greenroom.supervision import capture

from ..contract.excerpt import LARGE
from ..plugins.contexts import PhaseContext
from ..services.sanitize import text_of
from ..state.values import shown
from .calls import PREDICATE_TIMEOUT, HookFailed, answer_of, call_user
from .hook_deadlines import HookDeadlines

_WATCHED_AS: Final = "the instructions"
"""The name under which `HookDeadlines` knows the function; no plugin has a name with a space."""
_FAILED: Final = "instructions: the function failed"


async def ask_instructions(
    function: Callable[[PhaseContext], str | Awaitable[str]], ctx: PhaseContext, watch: HookDeadlines | None
) -> str:
    """Return the text of an instructions function, at most `LARGE` bytes in UTF-8.

    Raises:
        HookFailed: the function raised, was late, or returned no such text.
        trio.Cancelled: cancelled.
    """
    outcome = await call_user(function, ctx, name=_WATCHED_AS, limit=PREDICATE_TIMEOUT, watch=watch)
    answer = answer_of(outcome, _FAILED, "instructions: the function did not answer")
    # also `isinstance` may run code of a class of the program
    text = answer_of(capture(lambda: text_of(answer) if isinstance(answer, str) else None), _FAILED)
    if text is None:
        raise HookFailed(f"instructions: the function returned {shown(answer)}; return a str")
    if len(text.encode()) > LARGE:
        raise HookFailed(
            f"instructions: the function returned {len(text.encode()):,} bytes; at most {LARGE:,} are sent"
        )
    return text
