"""AG-UI from events: every life of a run, cut and taken up anywhere, is a stream that the protocol allows.

The lives are those of the real engine (`tests/unit/engine/chaos.py`): any answer, decision, cancel, crash and expiry in
any order. The rules are those of `tests/support/ag_ui_rules.py`, and of the protocol's own Python package.
"""

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from greenroom.actors.contract import stop
from greenroom.actors.contract.decisions import SetResult, Suspend
from greenroom.actors.contract.envelope import Event, EventEncoder, decode_event
from greenroom.actors.contract.messages import Usage
from greenroom.actors.contract.phases import Phase
from greenroom.actors.contract.redaction import Redactor
from greenroom.actors.contract.rows import EventDraft
from greenroom.actors.contract.spec import MODES, AgentSpec
from greenroom.actors.engine import inputs as inp
from greenroom.transport.encoders import ag_ui
from greenroom.transport.encoders.ag_ui_interrupts import response_schema, wish_of

from ....support.ag_ui_rules import Broken, Client, check
from ...engine.chaos import TOOLS, Chaos
from ...engine.world import World, call

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what the package does when it is imported is its own affair
    from ag_ui.core import Event as ProtocolEvent
    from pydantic import TypeAdapter

PROTOCOL: Any = TypeAdapter(ProtocolEvent)
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


lives = st.builds(
    Life,
    seed=st.integers(0, 2**32 - 1),
    moves=st.integers(0, 120),
    mode=st.sampled_from(list(MODES)),
    hooked=st.booleans(),
    on_deny=st.sampled_from(("continue", "cancel_run")),
    on_new_input=st.sampled_from(("queue", "supersede")),
)


# --- streams ---------------------------------------------------------------------------------------------------------


def told(events: Sequence[Event], **asked: Any) -> tuple[ag_ui.State, list[dict[str, Any]]]:
    """What a client is told of these events, without an end that they do not have themselves."""
    state = ag_ui.begin(**{"thread_id": "th", "run_id": "x", **asked})
    out: list[dict[str, Any]] = []
    for event in events:
        state, more = ag_ui.step(state, event)
        out += more
    return state, out


def stream(events: Sequence[Event], **asked: Any) -> list[dict[str, Any]]:
    """A whole stream, held to all rules."""
    state, out = told(events, **asked)
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
    return frozenset(event.payload["ticket_id"] for event in events if event.type == "run.approval.requested")


def converse(events: Sequence[Event]) -> tuple[Client, list[list[dict[str, Any]]]]:
    """A client that answers every interrupt, with one AG-UI run after the other on the same log."""
    client, streams = Client([QUESTION]), []
    answered: frozenset[str] = frozenset()
    while client.outcome in (None, "interrupt"):
        known = client.input()
        streams.append(stream(events, known=known, asked="u1", answered=answered, shared=client.state))
        client.take(streams[-1])
        answered = frozenset(one["id"] for one in client.interrupts)
        assert len(streams) <= len(events)
    return client, streams


# --- every life ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@given(life=lives)
def test_a_client_that_answers_every_interrupt_is_told_a_whole_life_in_legal_streams(life):
    """And what it has put together itself is what a snapshot would say."""
    events = life.events()
    client, streams = converse(events)
    state, _ = told(events, known=client.input(), asked="u1", after=0, answered=every_ticket(events))
    assert without_activities(client.messages) == list(ag_ui.snapshot(state))
    assert client.outcome == "error" or client.state["greenroom"]["stage"] == events[-1].payload["to"]
    begun = [event["toolCallId"] for out in streams for event in only(out, "TOOL_CALL_START")]
    assert len(begun) == len(set(begun))
    spent = [entry for out in streams for entry in out[-1].get("usage", ())]
    total = Usage(**events[-1].payload["usage"])
    assert sum(entry["inputTokens"] for entry in spent) == total.input
    assert sum(entry["outputTokens"] for entry in spent) == total.output


@pytest.mark.slow
@given(life=lives, cut=st.integers(0, 10_000))
def test_a_stream_that_is_taken_up_anywhere_comes_to_the_same_conversation(life, cut):
    events = life.events()
    cut %= len(events) + 1
    asked = {"asked": "u1", "answered": every_ticket(events), "after": 0}
    whole = Client([QUESTION]).take(stream(events, known=[QUESTION], **asked))
    _, first = told(events[:cut], known=[QUESTION], **asked)
    client = Client([QUESTION]).take(first)
    rest = stream(events, known=client.input(), **{**asked, "after": cut})
    assert [event["timestamp"] for event in rest]
    client.take(rest)
    assert without_activities(client.messages) == without_activities(whole.messages)
    assert client.outcome == whole.outcome


@pytest.mark.slow
@given(life=lives, cut=st.integers(0, 10_000), code=st.sampled_from((None, "closing")))
def test_a_stream_that_ends_anywhere_is_closed(life, cut, code):
    events = life.events()
    cut %= len(events) + 1
    state, out = told(events[:cut], known=[QUESTION], asked="u1")
    _, more = ag_ui.finish(state, code=code, message="the server stops")
    assert bool(more) is not state.ended
    check([*out, *more], thread_id="th", run_id="x", known=[QUESTION])
    if code is not None and more:
        assert more[-1] | {"timestamp": 0} == more[-1] | {"type": "RUN_ERROR", "code": "closing", "timestamp": 0}


@pytest.mark.slow
@settings(max_examples=20)
@given(life=lives)
def test_the_protocols_own_package_reads_every_event(life):
    for event in converse(life.events())[1][-1]:
        PROTOCOL.validate_json(ag_ui.frame([event]).removeprefix(b"data: "))


def test_the_same_request_is_told_the_same_again_when_the_run_is_long_over(seed):
    """The first stream ends at the first interrupt for ever, whatever has happened since."""
    world = World(SPEC)
    world.says(calls=[call("c1", "pay")])
    before = stream(events_of(world), known=[QUESTION], asked="u1")
    world.decide(world.ticket("c1").ticket_id)
    world.returns("c1")
    world.says("done")
    world.phase(Phase.RUN_END) if world.outstanding else None
    assert stream(events_of(world), known=[QUESTION], asked="u1") == before
    assert before[-1]["outcome"]["type"] == "interrupt"
