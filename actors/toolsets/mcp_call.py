"""The body of a call of a tool of an MCP server: asks the actor, reports what happens meanwhile, reads the result."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import attrs
import trio

from greenroom.supervision import ActorExited, MailboxFull, Ref, Reply, ask

from ...supervision.nursery import open_collapsing_nursery
from ..contract.decisions import Suspend
from ..contract.plain import JSONObject
from ..tools.context import ToolContext
from .mcp_actor import ServerActor
from .mcp_elicitation import answer_elicitation, asks_again_and_again, first_round, next_round
from .mcp_forms import ROUNDS
from .mcp_messages import (
    MOST_STEPS,
    CallArguments,
    CallCut,
    CallStep,
    CallTool,
    Elicited,
    Message,
    Progressed,
    ServerAnswer,
    ServerTool,
    ServerUnavailable,
)
from .mcp_results import result_of

KEY: Final = "greenroom/key"
"""The idempotency key of a call, in `_meta`: equal in every attempt."""
Steps: TypeAlias = trio.MemoryReceiveChannel[CallStep]


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
    now = await first_round(ctx, CallArguments(tool=tool.name, arguments=arguments, meta={KEY: ctx.idempotency_key}))
    answer = await _sent(link, ctx, now.call, safe=safe)
    while answer.asks:
        now = await next_round(ctx, link.name, now, answer)
        answer = await _sent(link, ctx, now.call, safe=safe)
    return result_of(link.name, answer.result, tool.output_schema)


async def _sent(link: ServerLink, ctx: ToolContext[Any], call: CallArguments, *, safe: bool) -> ServerAnswer:
    """Return the answer to one round of a call."""
    try:
        return await _asked(link, ctx, call)
    except CallCut as error:
        if not safe:
            raise _unknown(link, error) from error
        return await _once_more(link, ctx, call)


async def _once_more(link: ServerLink, ctx: ToolContext[Any], call: CallArguments) -> ServerAnswer:
    try:
        return await _asked(link, ctx, call)
    except CallCut as error:
        raise link.actor.unavailable(f"{error}, twice in one call") from error


def _unknown(link: ServerLink, error: CallCut) -> Suspend:
    """Return the question about a call that was cut. A decision with a result ends the call, and no body runs."""
    return Suspend(
        reason="outcome_unknown",
        action="outcome_unknown",
        message=f"The connection to MCP server {link.name!r} was lost while this call ran ({error}); it may or may not "
        "have taken effect. Resume runs it again, resume with a result uses that result, cancel ends the call.",
    )


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
            nursery.start_soon(_follow, link, ctx, incoming, nursery)
            try:
                return await ask(link.ref, message)
            except (ActorExited, MailboxFull) as error:
                raise link.lost(error) from error
            finally:
                scope.cancel("the body waits no more")
                nursery.cancel_scope.cancel()


async def _follow(link: ServerLink, ctx: ToolContext[Any], incoming: Steps, nursery: trio.Nursery) -> None:
    questions = 0
    async for step in incoming:
        match step:
            case Progressed(fraction=fraction, text=text):
                await ctx.progress(fraction, text)
            case Elicited():
                questions += 1
                if questions > ROUNDS:
                    raise asks_again_and_again(link.name)
                nursery.start_soon(_answer, link, ctx, step)


async def _answer(link: ServerLink, ctx: ToolContext[Any], question: Elicited) -> None:
    with question.scope:
        question.reply.send(await answer_elicitation(ctx, link.name, question))
