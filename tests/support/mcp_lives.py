"""Runs of the real engine as MCP calls: any life, read in pieces as a stream reads it."""

import random
from collections.abc import Iterable, Sequence
from typing import Any

from greenroom.actors.contract.casing import from_wire
from greenroom.actors.contract.catalogue import TERMINAL_EVENTS
from greenroom.actors.contract.codec import parse
from greenroom.actors.contract.decisions import Ticket
from greenroom.actors.contract.envelope import Event
from greenroom.actors.contract.lifecycle import Termination
from greenroom.actors.contract.messages import Usage
from greenroom.actors.contract.outcomes import Cancelled, Completed, Failed
from greenroom.transport.frontends.mcp import encoder as mcp
from greenroom.transport.frontends.mcp.forms import form
from greenroom.transport.frontends.mcp.results import result_of

Messages = list[dict[str, Any]]
DONE: Any = TERMINAL_EVENTS
PROGRESS = "t"
"""The client's progress token."""


def open_tickets(events: Iterable[Event]) -> list[Ticket]:
    """The tickets that are open after these events."""
    tickets: dict[str, Ticket] = {}
    for event in events:
        if event.type == "run.approval.requested":
            fields = {**event.payload, "runId": event.run_id, "requestedAt": event.timestamp.isoformat()}
            tickets[event.payload["ticketId"]] = parse(Ticket, from_wire(Ticket, fields))
        elif event.type == "run.approval.resolved":
            tickets.pop(event.payload["ticketId"], None)
    return list(tickets.values())


def answer(event: Event) -> dict[str, Any]:
    """The result of the run that this event has ended."""
    payload = event.payload
    termination = Termination(kind=payload["termination"], code=payload.get("code"))
    outcome: Any
    match event.type:
        case "run.completed":
            outcome = Completed(output=payload.get("output"), usage=Usage(), termination=termination)
        case "run.failed":
            outcome = Failed(code=payload["code"], message=payload["message"], termination=termination)
        case _:
            outcome = Cancelled(reason=payload.get("reason"), by=payload["by"], code=payload.get("code"))
    return result_of(event.run_id, outcome, payload.get("output"))


def told(events: Sequence[Event], rng: random.Random, *, request_id: Any = 1, token: str | None = PROGRESS) -> Messages:
    """The messages of a call in the handshake era, whose stream reads the log in pieces of random length.

    Between two pieces the client answers some questions, and time passes.
    """
    state, out, at = mcp.begin(request_id, token=token), Messages(), 0
    while at < len(events):
        piece = events[at : at + rng.randint(1, 8)]
        at += len(piece)
        for event in piece:
            if event.type in mcp.READ:
                state, more = mcp.step(state, event)
                out += more
        state = mcp.passed(state, piece[-1].sequence)
        if piece[-1].type in DONE:
            state, more = mcp.end(state, answer(piece[-1]))
            return [*out, *more]
        questions = [
            mcp.Elicitation(id=f"q-{ticket.ticket_id}", ticket_id=ticket.ticket_id, params=form(ticket, lists=True))
            for ticket in open_tickets(events[:at])
        ]
        if state.stale:
            state, more = mcp.ask(state, questions)
            out += more
        if state.asked and rng.random() < 0.3:
            state = mcp.answered(state, rng.choice(sorted(state.asked)))
        if rng.random() < 0.3:
            state, more = mcp.beat(state, rng.choice([0.0, 15.0, 30.0, 1e6, -5.0]))
            out += more
    return out
