"""The tools offered in addition to background tools: list live tasks, and cancel one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from .context import ToolContext
from .definition import Tool, tool


@tool(replay="safe")
async def list_tasks(ctx: ToolContext) -> list[dict[str, str]]:
    """List the background tasks that are still running. The result of one that has finished comes as a message."""
    return [{"task": task.task_id, "tool": task.tool, "status": task.status} for task in await ctx.tasks()]


@tool(replay="safe")
async def cancel_task(ctx: ToolContext, task_id: str) -> str:
    """Cancel a background task that is still running."""
    if await ctx.cancel_task(task_id):
        return f"The task {task_id} is being cancelled; a message will say when it has ended."
    return f"No task {task_id} is running: it has finished, or there never was one. list_tasks names those that run."


_TOOLS: Final = (list_tasks, cancel_task)
"""In the order in which the model is offered them."""


def built_in(tools: Iterable[Tool[..., object]]) -> tuple[Tool[..., object], ...]:
    """Return the tools that an agent with these tools has beside them: none, if none of them runs in the background."""
    return _TOOLS if any(tool.background for tool in tools) else ()
