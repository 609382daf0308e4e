"""Tools that keep their books in state, for the scenes about state.

Each reads first, works, writes, and returns what it had read: "last total seen", an empty one as "-".
"""

import operator
from typing import Any

import greenroom as gr

from .scene_tools import BODY, Context


def _joined(value: list[str], more: list[str]) -> list[str]:
    return [*value, *more]


LAST = gr.StateKey("last", str, default="-")
TOTAL = gr.StateKey("total", int, default=0, merge=gr.commutative(operator.add))
SEEN = gr.StateKey("seen", list[str], default=[], merge=gr.commutative(_joined), scope="thread")
TITLE = gr.StateKey("title", str, default="-", scope="thread")
SCRATCH = gr.StateKey("scratch", int, default=0, persistent=False)
KEYS = [LAST, TOTAL, SEEN, TITLE, SCRATCH]


def _write(state: gr.WritableState, last: str, add: int, see: str, title: str) -> None:
    if last:
        state.set(LAST, last)
    if add:
        state.update(TOTAL, add)
    if see:
        state.update(SEEN, [see])
    if title:
        state.set(TITLE, title)


def read(state: gr.State) -> str:
    """What a body reads."""
    return f"{state[LAST]} {state[TOTAL]} {''.join(state[SEEN]) or '-'}"


async def _keep(
    ctx: Context, last: str = "", add: int = 0, see: str = "", title: str = "", seconds: float = BODY
) -> str:
    before = read(ctx.state)
    _write(ctx.state, last, add, see, title)
    await ctx.deps.work(ctx, seconds)
    return before


keep: Any = gr.tool(_keep, name="keep", replay="safe")
once: Any = gr.tool(_keep, name="once")
retry: Any = gr.tool(_keep, name="retry", replay="safe", on_conflict="retry")
later: Any = gr.tool(_keep, name="later", background=True)
alone: Any = gr.tool(_keep, name="alone", replay="safe", concurrency="exclusive")


@gr.tool(replay="safe")
async def hold(ctx: Context, last: str = "", add: int = 0, see: str = "") -> str:
    """Writes, then waits for a person; then writes again."""
    before = read(ctx.state)
    _write(ctx.state, last, add, see, "")
    if ctx.decision is None:
        raise gr.Suspend(message="go on?")
    return before


@gr.tool
async def broken(ctx: Context, last: str = "", add: int = 0, seconds: float = BODY) -> str:
    """Writes and fails."""
    _write(ctx.state, last, add, "", "")
    await ctx.deps.work(ctx, seconds)
    raise gr.ToolError("it broke")


@gr.tool(on_error="raise")
async def fatal(ctx: Context, seconds: float = BODY) -> str:
    """Its failure is the run's."""
    await ctx.deps.work(ctx, seconds)
    raise gr.ToolError("it broke for good")


@gr.tool
async def scratch(ctx: gr.ToolContext, add: int = 0) -> str:
    """A key that is not stored."""
    ctx.state.set(SCRATCH, ctx.state[SCRATCH] + add)
    return str(ctx.state[SCRATCH])


@gr.tool(needs_approval=True)
async def sign(ctx: gr.ToolContext) -> str:
    """Needs a person; reads only."""
    return f"{read(ctx.state)} {ctx.state[SCRATCH]}"


LEDGER = [keep, once, retry, alone, hold, broken, fatal, scratch, sign]
BOOKS: dict[str, Any] = {"tools": LEDGER, "state": KEYS}
"""What an agent of these scenes is made with."""
