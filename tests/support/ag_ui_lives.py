"""Runs of the real engine as AG-UI streams: any life, and a client that goes through it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from greenroom.actors.contract import stop
from greenroom.actors.contract.commits import EventDraft
from greenroom.actors.contract.envelope import Event, EventEncoder, decode_event
from greenroom.actors.contract.phases import Phase
from greenroom.actors.contract.secrets.redaction import Redactor
from greenroom.actors.contract.spec import AgentSpec
from greenroom.actors.engine import inputs as inp
from greenroom.transport.frontends.ag_ui import encoder as ag_ui

from ..unit.engine.chaos import TOOLS, Chaos
from ..unit.engine.world import World
from .ag_ui_rules import Client, check

QUESTION = {"id": "u1", "role": "user", "content": "hello"}
SPEC = AgentSpec(key="a", tools=TOOLS, stop=(stop.MaxRounds(6),))


# --- lives -----------------------------------------------------------------------------------------------------------


def events_of(world: World) -> list[Event]:
    """What the store would hold of a run, as a reader gets it."""
    encoder, events = EventEncoder(world.store.info, Redactor()), []
    for sequence, draft in enumerate(world.store.events):
        named = draft if isinstance(draft, EventDraft) else EventDraft("run.created", draft)
        events += [decode_event(frame) for frame in encoder.frames(sequence, world.now, (named,))]
    return events


@attrs.frozen(kw_only=True)
class Life:
    """A random life up to its orderly end, by what it is made from: a failing example can be read and lived again."""

    seed: int
    moves: int
    mode: str
    hooked: bool
    on_deny: str
    on_new_input: str

    def events(self) -> list[Event]:
        spec = attrs.evolve(
            SPEC,
            hooked=frozenset({Phase.TOOL_GATE} if self.hooked else ()),
            on_deny=self.on_deny,
            on_new_input=self.on_new_input,
        )
        world = World(spec, execution=self.mode)
        Chaos(world, self.seed).play(self.moves)
        return events_of(world)


# --- streams ---------------------------------------------------------------------------------------------------------


def encoded(events: Sequence[Event], **asked: Any) -> tuple[ag_ui.AgUiState, list[dict[str, Any]]]:
    """What a client receives of these events, without an end that they do not have themselves."""
    state = ag_ui.begin(**{"thread_id": "th", "run_id": "x", **asked})
    out: list[dict[str, Any]] = []
    for event in events:
        state, more = ag_ui.step(state, event)
        out += more
    return state, out


def stream(events: Sequence[Event], **asked: Any) -> list[dict[str, Any]]:
    """A whole stream, held to all rules."""
    state, out = encoded(events, **asked)
    state, more = ag_ui.finish(state)
    out += more
    check(out, thread_id="th", run_id="x", known=asked.get("known", ()))
    assert ag_ui.finish(state) == (state, ())
    return out


def kinds(out: Sequence[Mapping[str, Any]]) -> list[str]:
    return [event["type"] for event in out]


def only(out: Sequence[Mapping[str, Any]], kind: str) -> list[Mapping[str, Any]]:
    return [event for event in out if event["type"] == kind]


def without_activities(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [message for message in messages if message["role"] != "activity"]


def every_ticket(events: Sequence[Event]) -> frozenset[str]:
    return frozenset(event.payload["ticketId"] for event in events if event.type == "run.approval.requested")


def converse(events: Sequence[Event]) -> tuple[Client, list[list[dict[str, Any]]]]:
    """A client that answers every interrupt, with one AG-UI run after the other on the same log."""
    client, streams = Client([QUESTION]), []
    answered: frozenset[str] = frozenset()
    while client.outcome in (None, "interrupt"):
        known = client.input()
        streams.append(stream(events, known=known, start_message="u1", answered=answered, shared=client.state))
        client.take(streams[-1])
        answered = frozenset(interrupt["id"] for interrupt in client.interrupts)
        assert len(streams) <= len(events)
    return client, streams


# --- written lives ---------------------------------------------------------------------------------------------------


def scripted(*steps: Callable[[World], Any], spec: AgentSpec = SPEC, **asked: Any) -> list[dict[str, Any]]:
    """The stream of a run in which these things happen."""
    world = World(spec)
    for act in steps:
        act(world)
    return stream(events_of(world), **{"known": [QUESTION], "start_message": "u1", **asked})


def streams(piece: str = "", reasoning: str = "") -> Callable[[World], Any]:
    return lambda world: world.feed(inp.ModelStreamed(message_id=world.in_flight(), text=piece, reasoning=reasoning))


def says(*texts: str, calls: Sequence[Any] = ()) -> Callable[[World], Any]:
    return lambda world: world.says(*texts, calls=calls)
