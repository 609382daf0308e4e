"""Run one call of a tool: the body, its time limit, its thread, and the meaning of its end.

Theory of operation. `invoke` is the supervision boundary of user code. Every body ends in one of four ways: a value, a
`Suspend`, a `ToolFailed` (with a text that is safe for a model), or a cancellation that passes. No exception of the
body's own type leaves this module.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Final, Protocol

import attrs
import trio

from greenroom.supervision import Raised, Returned, acapture, capture, failure_of, leaves

from ..contract.codec import failure_text, message_of
from ..contract.decisions import Suspend
from ..contract.excerpt import excerpt
from ..contract.failures import FAILURES
from ..contract.plain import JSONObject
from ..errors import GreenroomError, ToolError
from ..host_loop import HOST_LOOP, no_host
from .arguments import ArgumentsError
from .context import SyncToolContext, ToolContext
from .definition import Tool
from .host_context import for_host
from .threads import ThreadBody, ThreadResult, run_body

TEXT_LIMIT: Final = 2_000
"""Most characters of an unexpected exception that a model reads: enough to act on, too little to fill its context."""


class ToolFailed(GreenroomError):
    """A call has failed. `str(error)` is for the model, without a traceback; `__cause__` is the body's exception.

    Attributes:
        code: tool_error, tool_timeout, invalid_arguments, or the `run_code` of the body's `ToolError`.
        fatal: the tool declares that this failure ends the run (`on_error` or `on_timeout` is "raise").
        run_code: The code of the run's failure then; None: tool_error.
    """

    def __init__(self, text: str, *, code: str, fatal: bool, run_code: str | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.fatal = fatal
        self.run_code = run_code


class Fence(Protocol):
    """Whether the body of a call may still begin: the run's owner may have lost its claim unnoticed."""

    def holds(self) -> bool:
        """Return True if the body may begin. Called in any thread."""

    async def lost(self) -> None:
        """End the owner, and wait for the cancel."""


@attrs.define(eq=False)
class Invocation:
    """Facts about a running call beside its result. Written by `invoke`, read by its caller.

    Attributes:
        stubborn: the body's thread did not end within its grace; it was abandoned and its late result is dropped.
        stack: the stack of that thread when it was abandoned, outermost frame first, `file:line:function` each.
        ended: set when that thread ends.
        fence: asked just before the body, in its thread; None: the body may begin.
    """

    stubborn: bool = False
    stack: tuple[str, ...] = ()
    ended: trio.Event | None = None
    fence: Fence | None = None

    def __repr__(self) -> str:
        return f"<Invocation{' stubborn' if self.stubborn else ''}>"


async def invoke(
    tool: Tool[..., object],
    ctx: ToolContext | SyncToolContext,
    arguments: JSONObject,
    *,
    limiter: trio.CapacityLimiter,
    record: Invocation | None = None,
) -> Any:
    """Run a tool's body once with JSON arguments.

    Args:
        tool: the tool.
        ctx: a `ToolContext` for an async tool, a `SyncToolContext` for a sync one.
        arguments: as the model (or a decision) gave them.
        limiter: slots for worker threads; a thread keeps its slot until it ends, also when it was abandoned.
        record: receives the facts about an abandoned thread.

    Returns:
        The body's return value; a `Suspend` whether returned, raised, or alone in an exception group.

    Raises:
        ToolFailed: the body raised, ran out of time, or the arguments do not fit.
        trio.Cancelled: cancelled. A sync body had up to `tool.grace` seconds to end; if it ended in time its result is
            returned instead, because its effect has happened; if not, `record.stubborn` is set.
    """
    try:
        keywords = tool.convert(arguments)
    except ArgumentsError as error:
        raise ToolFailed(str(error), code="invalid_arguments", fatal=False) from None
    record = record or Invocation()
    body = _in_task(tool, ctx, keywords, record) if tool.is_async else _in_thread(tool, ctx, keywords, limiter, record)
    if tool.timeout is None:
        return await body
    with trio.move_on_after(tool.timeout):
        return await body
    raise out_of_time(tool)


def out_of_time(tool: Tool[..., object]) -> ToolFailed:
    """Return the failure of a body that exceeded its time limit."""
    text = f"The tool {tool.name!r} timed out after {tool.timeout or 0:g} s."
    return ToolFailed(text, code="tool_timeout", fatal=tool.ends_on_timeout)


async def _in_task(
    tool: Tool[..., object], ctx: ToolContext | SyncToolContext, keywords: Mapping[str, Any], record: Invocation
) -> Any:
    if record.fence is not None and not record.fence.holds():
        await record.fence.lost()
    if tool.loop == "asyncio":
        outcome = await acapture(_in_host, tool, ctx, keywords)
    else:
        outcome = await acapture(tool.call, ctx, keywords)
    return _settle(tool, outcome.error) if isinstance(outcome, Raised) else outcome.value


async def _in_host(tool: Tool[..., object], ctx: ToolContext | SyncToolContext, keywords: Mapping[str, Any]) -> Any:
    host = HOST_LOOP.get()
    if host is None:  # a tool of a toolset: `Agents` has refused those of agents
        raise no_host(f"the tool {tool.name!r}")
    return await host.call(tool.call, for_host(ctx), keywords)


async def _in_thread(
    tool: Tool[..., object],
    ctx: ToolContext | SyncToolContext,
    keywords: Mapping[str, Any],
    limiter: trio.CapacityLimiter,
    record: Invocation,
) -> Any:
    fence, lost_claim = record.fence, False

    def call() -> object:
        nonlocal lost_claim
        lost_claim = fence is not None and not fence.holds()  # the body may have waited long for its thread
        return None if lost_claim else tool.call(_wired(ctx, body), keywords)

    body = ThreadBody(call)
    outcome = await run_body(body, limiter=limiter, grace=tool.grace, name=f"tool {tool.name} {ctx.call_id}".rstrip())
    if outcome is None:
        record.stubborn, record.stack, record.ended = True, body.stack(), body.done
        await trio.lowlevel.checkpoint_if_cancelled()  # abandoned because of a cancel: the cancel is raised here
        outcome = ThreadResult(error=RuntimeError("its thread was given up"))
    if lost_claim and fence is not None:
        await fence.lost()
    if outcome.error is not None:  # worker threads handle no signals, so a KeyboardInterrupt here is the body's own
        return _settle(tool, failure_of(outcome.error))
    if inspect.iscoroutine(outcome.value):
        outcome.value.close()
        return _settle(tool, TypeError("it returned a coroutine; define it (and what wraps it) with async def"))
    return outcome.value


def _wired(ctx: ToolContext | SyncToolContext, body: ThreadBody) -> ToolContext | SyncToolContext:
    """Return the context of a thread: reports check for a cancel, and are dropped once the thread is abandoned."""
    if not isinstance(ctx, SyncToolContext):
        return ctx

    def progress(fraction: float, text: str) -> None:
        if not body.given_up:
            ctx.report_progress(fraction, text)

    def output(text: str) -> None:
        if not body.given_up:
            ctx.report_output(text)

    return attrs.evolve(ctx, report_progress=progress, report_output=output, heed=trio.from_thread.check_cancelled)


def _settle(tool: Tool[..., object], error: BaseException) -> Suspend:
    """Return a raised Suspend; raise any other exception of a body as ToolFailed."""
    if isinstance(error, Suspend):
        return error
    run_code, fatal = _run_code(error), tool.on_error == "raise"
    raise ToolFailed(shown_text(error), code=run_code or "tool_error", fatal=fatal, run_code=run_code) from error


def _run_code(error: BaseException) -> str | None:
    """Return the code that a failure names. A subclass may have an attribute of its own by that name."""
    for leaf in leaves(error):
        name = capture(getattr, leaf, "run_code") if isinstance(leaf, ToolError) else None
        if isinstance(name, Returned) and isinstance(name.value, str) and name.value in FAILURES:
            return name.value
    return None


def shown_text(error: BaseException) -> str:
    """Return a failure's text for the model: a ToolError's own, else type and message, bounded; never a traceback."""
    if isinstance(error, ToolError):
        return _own_text(error)
    text = "; ".join(message_of(leaf) if isinstance(leaf, ToolError) else failure_text(leaf) for leaf in leaves(error))
    return text if len(text) <= TEXT_LIMIT else f"{text[: TEXT_LIMIT - 1]}…"


def _own_text(error: ToolError) -> str:
    text = capture(lambda: excerpt(str(error))[0])  # a subclass may have a `__str__` of its own
    return message_of(error) if isinstance(text, Raised) else text.value
