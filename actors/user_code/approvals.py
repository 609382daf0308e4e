"""Ask whether a person must approve a call, according to its tool. Anything but a clear `False` means yes."""

from __future__ import annotations

from typing import Final

import attrs

from greenroom.supervision import Raised, Returned

from ..contract.plain import JSONObject
from ..state.values import shown
from ..tools.context import ToolContext
from ..tools.definition import Tool
from ..tools.invoke import shown_text
from .calls import PREDICATE_TIMEOUT, Late, call_user
from .hook_deadlines import HookDeadlines

BUILT_IN: Final = "(approval)"
"""Name of the tool's own approval as a gate."""


@attrs.frozen
class ApprovalNeed:
    """The need of an approval of a call, according to the tool.

    Attributes:
        needed: a person must approve.
        doubt: The failure of the predicate, as a text; a call in doubt needs an approval.
        error: The predicate's exception.
    """

    needed: bool
    doubt: str | None = None
    error: BaseException | None = None


YES: Final = ApprovalNeed(True)
NO: Final = ApprovalNeed(False)


async def wants_approval(
    tool: Tool[..., object], ctx: ToolContext, arguments: JSONObject, watch: HookDeadlines | None = None
) -> ApprovalNeed:
    """Find out whether a person must approve this call.

    A predicate that raises or takes longer than PREDICATE_TIMEOUT, arguments that do not fit, and results that are not
    a bool all mean that approval is needed. A sync predicate runs in the event loop and must be quick. Cancelled
    passes.
    """
    predicate = tool.needs_approval
    if isinstance(predicate, bool):
        return YES if predicate else NO
    doubt = f"the needs_approval predicate of tool {tool.name!r} failed"
    match await call_user(
        lambda: predicate(ctx, tool.complete(arguments)), name=BUILT_IN, limit=PREDICATE_TIMEOUT, watch=watch
    ):
        case Returned(bool() as is_needed):
            return YES if is_needed else NO
        case Returned(answer):
            return ApprovalNeed(True, f"{doubt}: it returned {shown(answer)}, which is neither True nor False")
        case Raised(error):
            return ApprovalNeed(True, f"{doubt}: {shown_text(error)}", error)
        case Late():
            return ApprovalNeed(True, f"{doubt}: it did not answer within {PREDICATE_TIMEOUT:g} s")
