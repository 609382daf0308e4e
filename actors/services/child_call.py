"""A call whose work is a child run, as the tasks that start, watch and cancel the child run see it."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from ..contract.messages import CallRequest
from ..contract.plain import JSONObject
from ..contract.rows import CallRow, RunInfo
from ..engine.inputs import Input
from ..tools.agent_tool import AgentTool
from ..tools.definition import Tool
from .children import CHILD_RUN, Children
from .error_log import ErrorLog


def child_run_key(call_id: str) -> str:
    """Return the key of the child that cancels the child run of a call."""
    return f"{CHILD_RUN}{call_id}"


def unknown_call(call_id: str, child_run: str) -> CallRow:
    """Return a row for a settled call of an earlier step, for the end of its child run."""
    request = CallRequest(call_id=call_id, tool="", arguments={})
    return CallRow(
        call_id=call_id,
        index=0,
        step=0,
        tool="",
        arguments={},
        fingerprint="",
        requested=request,
        child_run=child_run,
    )


@attrs.frozen(eq=False, kw_only=True)
class ChildCall:
    """One call and its child run.

    Attributes:
        parent: The run that makes the call.
        call_id, attempt, arguments: The id, attempt and arguments of the call.
        child_run: The id of the child run.
        tool: the agent's tool; None if the agent has no such tool any more.
        known_tickets: the child's tickets that the parent has mirrors of.
        deps: The deps of the parent run.
        submit: hands an input to the parent's run loop.
        nudge: lets the parent's run loop look whether the run can leave memory.
        log: The log of the parent run, for failures of the tool's functions.
    """

    parent: RunInfo
    call_id: str
    attempt: int
    child_run: str
    tool: AgentTool | None
    arguments: JSONObject
    known_tickets: tuple[str, ...]
    deps: object
    submit: Callable[[Input], None]
    nudge: Callable[[], None]
    log: ErrorLog

    def __repr__(self) -> str:
        return f"<ChildCall {self.call_id} of {self.parent.run_id}: {self.child_run}>"


def child_call(
    row: CallRow,
    tool: Tool[..., object] | None,
    *,
    parent: RunInfo,
    deps: object,
    children: Children,
    log: ErrorLog,
) -> ChildCall:
    """Return the child run's side of a call's row.

    Args:
        row: The row of the call.
        tool: The tool of the agent, as it is now, with the call's name.
        parent: The run that makes the call.
        deps: The deps of that run.
        children: The children of that run; they hand the inputs on.
        log: The log of the parent run.
    """
    return ChildCall(
        parent=parent,
        call_id=row.call_id,
        attempt=row.attempts,
        child_run=row.child_run or "",
        tool=tool if isinstance(tool, AgentTool) else None,
        arguments=row.arguments,
        known_tickets=tuple(mirror.ticket.child_ticket_id or "" for mirror in row.mirrors),
        deps=deps,
        submit=children.submit_input,
        nudge=children.nudge,
        log=log,
    )
