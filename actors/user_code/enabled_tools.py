"""Ask which tools are enabled: before a model request, and again when a call passes its gates.

Theory of operation. `is_enabled` is True, False or a predicate of a `PhaseContext`. The predicates of an agent are
asked concurrently with one context, each within its time limit. Only a clear True offers the tool: a predicate that
fails is reported, and its tool is not offered. A tool that is disabled counts as excluded by the step's request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from greenroom.supervision import Raised, Returned

from ..plugins.contexts import PhaseContext
from ..services.sanitize import text_of
from ..state.values import shown
from ..tools.definition import Tool
from ..tools.invoke import shown_text
from .calls import PREDICATE_TIMEOUT, Late, call_user, together
from .hook_deadlines import HookDeadlines

Report = Callable[[Tool[..., object], str, BaseException | None], None]
"""(tool, the failure, its exception) -> None: called for each predicate that failed."""


@attrs.frozen
class Disabled:
    """The answer of the predicates.

    Attributes:
        names: The names of the tools that are not enabled, in the agent's order.
        faults: a sentence for each predicate that failed.
    """

    names: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()


async def ask_enabled(
    tools: Sequence[Tool[..., object]], ctx: PhaseContext, watch: HookDeadlines | None, report: Report
) -> Disabled:
    """Ask for each of these tools whether it is enabled. Cancelled passes."""
    faults: list[str] = []

    async def ask(tool: Tool[..., object]) -> bool:
        is_enabled, why, error = await _ask(tool, ctx, watch)
        if why is not None:
            report(tool, why, error)
            faults.append(text_of(f"is_enabled of tool {tool.name!r} failed: {why}"))
        return is_enabled

    answers = await together(tools, ask)
    names = (tool.name for tool, is_enabled in zip(tools, answers, strict=True) if not is_enabled)
    return Disabled(tuple(names), tuple(faults))


async def _ask(
    tool: Tool[..., object], ctx: PhaseContext, watch: HookDeadlines | None
) -> tuple[bool, str | None, BaseException | None]:
    """Return whether the tool is enabled, and how its predicate failed."""
    if isinstance(tool.is_enabled, bool):
        return tool.is_enabled, None, None
    name = f"is_enabled of {tool.name}"
    match await call_user(tool.is_enabled, ctx, name=name, limit=PREDICATE_TIMEOUT, watch=watch):
        case Returned(bool() as answer):
            return answer, None, None
        case Returned(answer):
            return False, f"it returned {shown(answer)}, which is neither True nor False", None
        case Raised(error):
            return False, shown_text(error), error
        case Late() as late:
            return False, f"it did not answer {late}", None
