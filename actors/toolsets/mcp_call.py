"""The body of a call of a tool of an MCP server: asks the actor, reports what happens meanwhile, reads the result."""

from __future__ import annotations

from typing import Any, Final

import attrs
import trio

from greenroom.supervision import ActorExited, MailboxFull, Ref, Reply, ask

from ...supervision.nursery import open_collapsing_nursery
from ..contract.decisions import Suspend
from ..contract.plain import JSONObject
from ..tools.context import ToolContext
from .mcp_actor import (
    MOST_STEPS,
    CallArguments,
    CallCut,
    CallStep,
    CallTool,
    Elicited,
    Message,
    Progressed,
    ServerActor,
    ServerAnswer,
    ServerTool,
    ServerUnavailable,
)
from .mcp_elicitation import answer_elicitation, ask_for_input, repeated
from .mcp_results import result_of

KEY: Final = "greenroom/key"
"""The idempotency key of a call, in `_meta`: equal in every attempt."""
CUT: Final = "cut"
"""In the memo: the attempt whose call was cut."""


@attrs.frozen(kw_only=True, repr=False)
class ServerLink:
    """The actor of a server, as bodies and lists reach it.

    Attributes:
        name: The server.
        ref: Its address.
        actor: The actor.
    """

    name: str
    ref: Ref[Message]
    actor: ServerActor

    def __repr__(self) -> str:
        return f"<ServerLink to {self.name!r}>"

    def check(self) -> None:
        """Raise ServerUnavailable if a message would wait for nothing."""
        refusal = self.actor.refusal
        if refusal is not None:
            raise refusal

    def lost(self, error: ActorExited | MailboxFull) -> ServerUnavailable:
        """Return the error of an actor that takes no message."""
        busy = "too many calls wait for it" if isinstance(error, MailboxFull) else "the runtime is closing"
        return self.actor.unavailable(busy)


async def work(link: ServerLink, tool: ServerTool, ctx: ToolContext[Any], arguments: JSONObject, *, safe: bool) -> Any:
    """Call a tool, and return the result.

    A call that was cut is made once more if the tool is `safe`; else people are asked about it (outcome_unknown).

    Raises:
        ToolError: The server is not there, or the call has failed.
        Suspend: People are asked.
    """
    decided = _outcome(ctx)
    if decided is not None:
        return decided[0]
    call = repeated(ctx, CallArguments(tool=tool.name, arguments=arguments, meta={KEY: ctx.idempotency_key}))
    try:
        answer = await _asked(link, ctx, call)
    except CallCut as error:
        if not safe:
            raise await _unknown(link, ctx, error) from error
        answer = await _once_more(link, ctx, call)
    if answer.asks:
        return await ask_for_input(ctx, link.name, answer)
    return result_of(link.name, answer.result, tool.output_schema)


async def _once_more(link: ServerLink, ctx: ToolContext[Any], call: CallArguments) -> ServerAnswer:
    try:
        return await _asked(link, ctx, call)
    except CallCut as error:
        raise link.actor.unavailable(f"{error}, twice in one call") from error


async def _unknown(link: ServerLink, ctx: ToolContext[Any], error: CallCut) -> Suspend:
    """Return the question about a call that was cut, and keep that it is asked."""
    await ctx.save({**(ctx.memo or {}), CUT: ctx.attempt})
    return Suspend(
        reason="outcome_unknown",
        action="outcome_unknown",
        message=f"The connection to MCP server {link.name!r} was lost while this call ran ({error}); it may or may not "
        "have taken effect. Resume runs it again, resume with a result uses that result, cancel ends the call.",
    )


def _outcome(ctx: ToolContext[Any]) -> tuple[object] | None:
    """Return the result that people gave for the attempt before, whose call was cut; None if they gave none."""
    decision, memo = ctx.decision, ctx.memo or {}
    if decision is None or decision.result is None or memo.get(CUT) != ctx.attempt - 1:
        return None
    return (decision.result,)


async def _asked(link: ServerLink, ctx: ToolContext[Any], call: CallArguments) -> ServerAnswer:
    """Let the actor make a call, and handle what happens meanwhile.

    Cancellation: the call is cancelled at the server, if it was sent; the body does not wait for that.
    """
    link.check()
    outgoing, incoming = trio.open_memory_channel[CallStep](MOST_STEPS)
    scope = trio.CancelScope()

    def message(reply: Reply[ServerAnswer]) -> Message:
        return CallTool(reply=reply, call=call, run_id=ctx.run_id, steps=outgoing, scope=scope)

    with outgoing, incoming:
        async with open_collapsing_nursery() as nursery:
            nursery.start_soon(_follow, ctx, incoming, nursery)
            try:
                return await ask(link.ref, message)
            except (ActorExited, MailboxFull) as error:
                raise link.lost(error) from error
            finally:
                scope.cancel("the body waits no more")
                nursery.cancel_scope.cancel()


async def _follow(ctx: ToolContext[Any], incoming: trio.MemoryReceiveChannel[CallStep], nursery: trio.Nursery) -> None:
    async for step in incoming:
        match step:
            case Progressed(fraction=fraction, text=text):
                await ctx.progress(fraction, text)
            case Elicited():
                nursery.start_soon(_answer, ctx, step)


async def _answer(ctx: ToolContext[Any], question: Elicited) -> None:
    with question.scope:
        question.reply.send(await answer_elicitation(ctx, question))
