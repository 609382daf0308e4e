"""Running one call of a tool: the body, its time limit, its thread, and what its end means.

`invoke` is the supervision boundary of user code. What a body does becomes one of four things: a value, a `Suspend`, a
`ToolFailed` (with a text that is safe to show a model), or a cancellation on its way out.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Final, Literal

import attrs
import trio

from greenroom.supervision.border import failure_of, failure_of_call
from greenroom.supervision.exits import leaves

from ..contract.codec import failure_text, message_of
from ..contract.decisions import Suspend
from ..contract.plain import JSONObject
from ..errors import GreenroomError, ToolError
from ..state.values import shown
from .arguments import ArgumentsError
from .context import SyncToolContext, ToolContext
from .definition import Tool
from .threads import ThreadBody, ThreadResult, run_body

TEXT_LIMIT: Final = 2_000
"""Characters of an unexpected exception's text that a model is shown: enough to act on, too little to fill its
window."""
PREDICATE_TIMEOUT: Final = 30.0
"""Seconds that a `needs_approval` predicate may take, as a plugin's hook by default."""

FailureCode = Literal["tool_error", "tool_timeout", "invalid_arguments"]


class ToolFailed(GreenroomError):
    """A call has failed. `str(error)` is for the model, without a traceback; `__cause__` is what the body raised.

    Attributes:
        code: tool_error, tool_timeout or invalid_arguments.
        fatal: the tool declares that this ends the run (`on_error` or `on_timeout` is "raise").
    """

    def __init__(self, text: str, *, code: FailureCode, fatal: bool) -> None:
        super().__init__(text)
        self.code: FailureCode = code
        self.fatal = fatal


@attrs.define(eq=False)
class Invocation:
    """What is to be known of a running call beside its result. Written by `invoke`, read by whoever started it.

    Attributes:
        stubborn: the body's thread did not end within its grace; it was left alone and its late result is dropped.
        stack: where that thread stood when it was given up, outermost frame first, one `file:line:function` each.
        ended: set when that thread ends after all.
    """

    stubborn: bool = False
    stack: tuple[str, ...] = ()
    ended: trio.Event | None = None

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
        tool: whose body.
        ctx: a `ToolContext` for an async tool, a `SyncToolContext` for a sync one.
        arguments: as the model (or a decision) gave them.
        limiter: slots for worker threads; a thread keeps its slot until it ends, also when it has been given up.
        record: is told when the thread turns out stubborn.

    Returns:
        What the body returned; a `Suspend` whether it was returned, raised, or the one error in a group.

    Raises:
        ToolFailed: the body raised, ran out of time, or the arguments do not fit.
        trio.Cancelled: cancelled. A sync body had up to `tool.grace` seconds to end; if it ended in time its result is
            returned instead (what has happened has happened), if not `record.stubborn` is set.
    """
    try:
        keywords = tool.convert(arguments)
    except ArgumentsError as error:
        raise ToolFailed(str(error), code="invalid_arguments", fatal=False) from None
    body = _in_task(tool, ctx, keywords) if tool.is_async else _in_thread(tool, ctx, keywords, limiter, record)
    if tool.timeout is None:
        return await body
    with trio.move_on_after(tool.timeout):
        return await body
    raise out_of_time(tool)


def out_of_time(tool: Tool[..., object]) -> ToolFailed:
    """What it means that a body has not ended in its time."""
    text = f"The tool {tool.name!r} timed out after {tool.timeout or 0:g} s."
    return ToolFailed(text, code="tool_timeout", fatal=tool.ends_on_timeout)


async def _in_task(tool: Tool[..., object], ctx: ToolContext | SyncToolContext, keywords: Mapping[str, Any]) -> Any:
    try:
        return await tool.call(ctx, keywords)
    except BaseException as error:  # noqa: BLE001, ASYNC103 - the supervision boundary of user code
        return _settle(tool, failure_of(error))  # noqa: ASYNC104 - the border has raised what passes


async def _in_thread(
    tool: Tool[..., object],
    ctx: ToolContext | SyncToolContext,
    keywords: Mapping[str, Any],
    limiter: trio.CapacityLimiter,
    record: Invocation | None,
) -> Any:
    record = Invocation() if record is None else record
    body = ThreadBody(lambda: tool.call(_wired(ctx, body), keywords))
    ended = await run_body(body, limiter=limiter, grace=tool.grace, name=f"tool {tool.name} {ctx.call_id}".rstrip())
    if ended is None:
        record.stubborn, record.stack, record.ended = True, body.stack(), body.done
        await trio.lowlevel.checkpoint_if_cancelled()  # given up because of a cancel: here it goes on its way
        ended = ThreadResult(error=RuntimeError("its thread was given up"))
    if ended.error is not None:  # no signal is ever handled in a worker thread
        return _settle(tool, failure_of(ended.error))
    if inspect.iscoroutine(ended.value):
        ended.value.close()
        return _settle(tool, TypeError("it returned a coroutine; define it (and what wraps it) with async def"))
    return ended.value


def _wired(ctx: ToolContext | SyncToolContext, body: ThreadBody) -> ToolContext | SyncToolContext:
    """The context of a thread: it hears of a cancellation when it reports, and nobody hears it once it is given up."""
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
    """What a failure of a body means: a Suspend, or a ToolFailed."""
    if isinstance(error, Suspend):
        return error
    raise ToolFailed(shown_text(error), code="tool_error", fatal=tool.on_error == "raise") from error


def shown_text(error: BaseException) -> str:
    """What a model may read of a failure: a ToolError's own text, else type and message, bounded; never a traceback."""
    if isinstance(error, ToolError):
        return _own_text(error)
    text = "; ".join(message_of(leaf) if isinstance(leaf, ToolError) else failure_text(leaf) for leaf in leaves(error))
    return text if len(text) <= TEXT_LIMIT else f"{text[: TEXT_LIMIT - 1]}…"


def _own_text(error: ToolError) -> str:
    try:
        return str(error)
    except BaseException as broken:  # noqa: BLE001, ASYNC103 - a subclass may have a `__str__` of its own
        failure_of_call(broken)
        return message_of(error)  # noqa: ASYNC104 - the border has raised what passes


@attrs.frozen
class ApprovalNeed:
    """What a tool says to whether a person must approve a call.

    Attributes:
        needed: a person must.
        doubt: its predicate has failed, and how; then a person must, to be on the safe side.
        error: what the predicate has raised.
    """

    needed: bool
    doubt: str | None = None
    error: BaseException | None = None


YES: Final = ApprovalNeed(True)
NO: Final = ApprovalNeed(False)


def doubtful(tool: Tool[..., object], why: str, error: BaseException | None = None) -> ApprovalNeed:
    """A tool's predicate has failed: a person is asked, and told so."""
    return ApprovalNeed(True, f"the needs_approval predicate of tool {tool.name!r} failed: {why}", error)


def unanswered(tool: Tool[..., object]) -> ApprovalNeed:
    """It did not answer in time."""
    return doubtful(tool, f"it did not answer within {PREDICATE_TIMEOUT:g} s")


async def wants_approval(tool: Tool[..., object], ctx: ToolContext, arguments: JSONObject) -> ApprovalNeed:
    """Ask a tool whether a person must approve this call. Anything but a clear `False` means yes.

    A predicate that raises or takes longer than PREDICATE_TIMEOUT, arguments that do not fit, and answers that are not
    a bool all mean that approval is needed. A sync predicate runs in the event loop and must be quick.

    Cancelled passes.
    """
    predicate = tool.needs_approval
    if isinstance(predicate, bool):
        return YES if predicate else NO
    try:
        answer = predicate(ctx, tool.complete(arguments))
        with trio.move_on_after(PREDICATE_TIMEOUT) as limit:
            answer = await answer if inspect.isawaitable(answer) else answer
    except BaseException as error:  # noqa: BLE001, ASYNC103 - a judgement of user code, on the safe side
        failure = failure_of(error)
        return doubtful(tool, shown_text(failure), failure)  # noqa: ASYNC104 - the border has raised what passes
    if limit.cancel_called:  # an answer that comes too late is none
        return unanswered(tool)
    if isinstance(answer, bool):
        return YES if answer else NO
    return doubtful(tool, f"it returned {shown(answer)}, which is neither True nor False")
