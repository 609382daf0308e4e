"""MCP: the messages of one call, from the events and the open tickets of its run. Pure.

Theory of operation. `begin` creates the state of a call, `step` folds one event, `ask` compares the open tickets with
the questions that the client has, `beat` says that the call goes on, and `end` is the answer. All but the last return
messages that may be lost: a client that resumes gets the newest ones again. Nothing follows the answer.

| what happens | the message |
|---|---|
| run.step.started, run.tool.progress | notifications/progress, if the client has sent a token |
| nothing, for some time | the same, with a greater number and no text |
| a ticket is open (handshake era) | elicitation/create |
| a question's ticket is closed by others | notifications/cancelled |
| the end of the run, or of the time for it | the result, or an error |

The number of a progress is the sequence of its event, plus a part of one for the time since then. So it only rises,
in whichever process the call goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from greenroom.actors.contract.envelope import Event
from greenroom.actors.contract.plain import JSONObject

from .messages import McpFault, RequestId, error, response

HALF: Final = 3_600
"""Seconds of silence after which a progress has risen by one half; it never reaches the next event's number."""
TICKETS: Final = frozenset({"run.approval.requested", "run.approval.resolved", "run.waiting"})
"""Events after which other tickets may be open."""
READ: Final = TICKETS | {"run.step.started", "run.tool.progress"}
"""Events that `step` reads; it passes over all others."""


@attrs.frozen(kw_only=True)
class Elicitation:
    """An open ticket that the client's person may decide.

    Attributes:
        id: The id of the elicitation.
        ticket_id: The ticket.
        params: The form.
    """

    id: str
    ticket_id: str
    params: JSONObject


@attrs.frozen(kw_only=True)
class McpState:
    """What the client has of one call.

    Attributes:
        request_id: The client's id of the call.
        token: The client's progress token; None: the client wants no progress.
        sequence: The newest folded event.
        progress: The number of the newest progress.
        asked: Ticket id -> id of the question that the client has.
        closed: Tickets whose question is not put again: withdrawn, or answered in this stream.
        stale: The open tickets must be read again.
        ended: The call is answered.
    """

    request_id: RequestId
    token: RequestId | None = None
    sequence: int = 0
    progress: float = 0.0
    asked: Mapping[str, str] = attrs.field(factory=dict)
    closed: frozenset[str] = frozenset()
    stale: bool = True
    ended: bool = False


Messages = tuple[JSONObject, ...]


def begin(request_id: RequestId, *, token: RequestId | None = None, after: int = 0) -> McpState:
    """Create the state of a call whose client has everything up to the sequence `after`, but for open questions."""
    return McpState(request_id=request_id, token=token, sequence=after, progress=after)


def step(state: McpState, event: Event) -> tuple[McpState, Messages]:
    """Fold the next event."""
    stale = state.stale or event.type in TICKETS
    state = attrs.evolve(state, sequence=event.sequence, stale=stale)
    match event.type:
        case "run.step.started":
            return _progressed(state, event.sequence, f"step {event.payload['step']}")
        case "run.tool.progress":
            text = event.payload.get("text", "")
            return _progressed(state, event.sequence, text or f"{event.payload['fraction']:.0%}")
        case _:
            return state, ()


def passed(state: McpState, sequence: int) -> McpState:
    """Note that all events up to a sequence are folded."""
    return attrs.evolve(state, sequence=sequence)


def beat(state: McpState, waited: float) -> tuple[McpState, Messages]:
    """Say that the call goes on, `waited` seconds after the newest event."""
    waited = max(0.0, waited)
    return _progressed(state, round(state.sequence + waited / (waited + HALF), 6), None)


def ask(state: McpState, questions: Sequence[Elicitation]) -> tuple[McpState, Messages]:
    """Put the questions that the client does not have, and withdraw those whose tickets are closed."""
    present = {question.ticket_id for question in questions}
    gone = {ticket: name for ticket, name in state.asked.items() if ticket not in present}
    fresh = [one for one in questions if one.ticket_id not in state.asked and one.ticket_id not in state.closed]
    asked = {ticket: name for ticket, name in state.asked.items() if ticket in present}
    asked |= {question.ticket_id: question.id for question in fresh}
    messages = [_withdrawn(name) for name in gone.values()]
    messages += [_request(question) for question in fresh]
    return attrs.evolve(state, asked=asked, stale=False), tuple(messages)


def answered(state: McpState, ticket_id: str) -> McpState:
    """Note that the client has answered a question: it is neither withdrawn nor put again."""
    asked = {ticket: name for ticket, name in state.asked.items() if ticket != ticket_id}
    return attrs.evolve(state, asked=asked, closed=state.closed | {ticket_id}, stale=True)


def end(state: McpState, answer: JSONObject | McpFault) -> tuple[McpState, Messages]:
    """Answer the call; the questions that the client still has are withdrawn first."""
    if state.ended:
        return state, ()
    messages = [_withdrawn(name) for name in state.asked.values()]
    last = error(state.request_id, answer) if isinstance(answer, McpFault) else response(state.request_id, answer)
    return attrs.evolve(state, asked={}, ended=True), (*messages, last)


def _progressed(state: McpState, number: float, text: str | None) -> tuple[McpState, Messages]:
    if state.token is None or number <= state.progress:
        return state, ()
    params = {"progressToken": state.token, "progress": number, **({} if text is None else {"message": text})}
    return attrs.evolve(state, progress=number), (_notification("notifications/progress", params),)


def _request(question: Elicitation) -> JSONObject:
    return {"jsonrpc": "2.0", "id": question.id, "method": "elicitation/create", "params": question.params}


def _withdrawn(name: str) -> JSONObject:
    return _notification("notifications/cancelled", {"requestId": name, "reason": "the question is decided elsewhere"})


def _notification(method: str, params: JSONObject) -> JSONObject:
    return {"jsonrpc": "2.0", "method": method, "params": params}
