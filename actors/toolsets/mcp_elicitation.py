"""What a server asks in the middle of a call: by a message in the handshake era, by its answer in the modern one.

Theory of operation. A modern server ends the call with its questions and a state, and forgets the call. The body keeps
the state in its memo and suspends, so the question needs no process. The attempt that reads people's answer keeps the
responses before they are sent, and repeats the call with them: every later attempt of the round sends the same. A
server of the handshake era waits in the call, and so does the body, with a live ticket.
"""

from __future__ import annotations

from typing import Any, Final

import attrs
import trio

from ..contract.ids import content_digest
from ..contract.plain import JSONObject
from ..errors import ToolError
from ..tools.context import ToolContext
from .mcp_forms import ELICIT, ROUNDS, form_of, responses_of
from .mcp_messages import CallArguments, Elicited, ServerAnswer

_ONLY: Final = "form"
"""The key of the only request of the handshake era."""
_PAUSE: Final = 0.25
"""Seconds before a call is repeated that the server has answered with a state and no request."""


async def answer_elicitation(ctx: ToolContext[Any], server: str, question: Elicited) -> JSONObject:
    """Ask people a question of the handshake era, and return their answer: {"action", and "content" of a form}.

    Runs beside the call, in the body. Cancelled when the server does not wait any more: the ticket is withdrawn.

    Raises:
        ToolError: people cannot be asked; the call fails.
    """
    form = form_of(server, {_ONLY: {"method": ELICIT, "params": question.params}})
    decision = await ctx.ask(form.suspension())
    if decision.action == "resume":
        return responses_of(form.asked, decision.result)[_ONLY]
    return {"action": "cancel" if decision.decided_by == "clock" else "decline"}


@attrs.frozen(kw_only=True)
class Round:
    """One round of a call.

    Attributes:
        call: What is sent.
        number: How many rounds the server has ended with questions, or with a state only.
    """

    call: CallArguments
    number: int = 0


async def first_round(ctx: ToolContext[Any], call: CallArguments) -> Round:
    """Return the round with which an attempt begins: with people's answer, if they were asked by an attempt before.

    Arguments that people have edited meanwhile are another call, which begins at its beginning.

    Raises:
        ToolError: the answer is too large to be kept.
    """
    memo = ctx.memo
    if memo is None or memo["arguments"] != _digest(call):
        return Round(call=call)
    if "asked" in memo:
        decision = ctx.decision
        if decision is None or decision.decision_id == memo["decision"]:
            return Round(call=call)  # a crash came between the memo and the question
        responses = responses_of(memo["asked"], decision.result)
        memo = {"arguments": memo["arguments"], "round": memo["round"], "state": memo["state"], "responses": responses}
        await ctx.save(memo)
    repeated = attrs.evolve(call, input_responses=memo["responses"], request_state=memo["state"])
    return Round(call=repeated, number=memo["round"])


async def next_round(ctx: ToolContext[Any], server: str, before: Round, answer: ServerAnswer) -> Round:
    """Return the round after one that the server has answered with a state only.

    Raises:
        Suspend: the server asks people; the next attempt goes on.
        ToolError: it asks for what this client does not give, or again and again, or its state is too large.
    """
    number = before.number + 1
    if number > ROUNDS:
        raise asks_again_and_again(server)
    requests, state = answer.result.get("inputRequests"), answer.result.get("requestState")
    if not requests:
        await trio.sleep(_PAUSE)
        return Round(call=attrs.evolve(before.call, input_responses=None, request_state=state), number=number)
    form = form_of(server, requests)
    memo = {
        "arguments": _digest(before.call),
        "round": number,
        "state": state,
        "asked": dict(form.asked),
        "decision": None if ctx.decision is None else ctx.decision.decision_id,
    }
    try:
        await ctx.save(memo)
    except ToolError as error:
        raise ToolError(f"what MCP server {server!r} wants kept while people answer cannot be kept: {error}") from error
    raise form.suspension()


def asks_again_and_again(server: str) -> ToolError:
    """Return the error of a call in which a server asks more than `ROUNDS` times."""
    return ToolError(f"MCP server {server!r} asks again and again: a call has at most {ROUNDS} rounds of questions")


def _digest(call: CallArguments) -> str:
    return content_digest(call.arguments)
