"""The updates of an ACP session: no life of a run breaks a rule of the protocol, and what each event comes to."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.actors.contract.envelope import Event
from greenroom.actors.contract.spec import MODES
from greenroom.actors.engine import inputs as inp
from greenroom.transport.acp.encoder import TAIL, AcpEncoder
from greenroom.transport.acp.updates import Ended, Out, TicketOpened, Update

from ....support.acp_rules import Broken, RunAtEditor
from ....support.ag_ui_lives import SPEC, Life, events_of, says, streams
from ...engine.world import World, call

lives = st.builds(
    Life,
    seed=st.integers(0, 2**32 - 1),
    moves=st.integers(0, 120),
    mode=st.sampled_from(list(MODES)),
    hooked=st.booleans(),
    on_deny=st.sampled_from(("continue", "cancel_run")),
    on_new_input=st.sampled_from(("queue", "supersede")),
)


def outs_of(events: Sequence[Event], *, cut: int = 0, notices: bool = True) -> list[Out]:
    """What an editor gets that has the first `cut` events as history, and the others as they come."""
    encoder, outs = AcpEncoder("r", notices=notices), list[Out]()
    for event in events[:cut]:
        outs += encoder.take(event)
    outs += encoder.live()
    for event in events[cut:]:
        outs += encoder.take(event)
    assert encoder.live() == []
    return outs


def discarded(events: Sequence[Event]) -> set[str]:
    return {event.payload["messageId"] for event in events if event.type == "run.message.discarded"}


# --- every life ------------------------------------------------------------------------------------------------------


@pytest.mark.rule("ACP-14")
@pytest.mark.slow
@given(life=lives, notices=st.booleans())
def test_no_life_breaks_a_rule_of_the_protocol(life, notices):
    events = life.events()
    editor = RunAtEditor(notices=notices).take(outs_of(events, notices=notices))
    assert editor.end is not None
    completed = {event.payload["messageId"]: event.payload["text"] for event in events if is_message(event)}
    shown = {name: text for name, text in editor.said.items() if name not in discarded(events)}
    assert shown == {name: text for name, text in completed.items() if text}
    calls = [f"r:{event.payload['callId']}" for event in events if event.type == "run.tool.call"]
    assert [name for name in editor.calls if name in calls] == calls


def is_message(event: Event) -> bool:
    return event.type == "run.message.completed" and event.payload.get("callId") is None


@pytest.mark.rule("ACP-4")
@pytest.mark.slow
@given(life=lives, cut=st.integers(0, 10_000))
def test_a_session_that_is_loaded_anywhere_comes_to_the_same_conversation(life, cut):
    events = life.events()
    cut %= len(events) + 1
    live, loaded = (RunAtEditor().take(outs_of(events, cut=number)) for number in (0, cut))
    gone = discarded(events)
    assert {name: text for name, text in loaded.said.items() if name not in gone} == {
        name: text for name, text in live.said.items() if name not in gone
    }
    assert loaded.calls == live.calls
    assert loaded.results == live.results
    assert loaded.end == live.end


@pytest.mark.slow
@given(life=lives)
def test_a_replay_of_a_done_run_has_nothing_that_was_discarded_and_no_notice(life):
    events = life.events()
    editor = RunAtEditor().take(outs_of(events, cut=len(events)))
    assert editor.notices == []
    assert discarded(events).isdisjoint(editor.said)
    assert list(editor.texts["user_message_chunk"])[:1] == ["r:input"]


# --- the rules can fail ----------------------------------------------------------------------------------------------


def sound() -> list[Out]:
    """A stream with everything in it, to its end."""
    world = World(SPEC)
    for act in (streams("Pa", "hm"), says("Pay?", calls=[call("c1", "read"), call("c2", "pay")])):
        act(world)
    world.returns("c1", 3)
    world.decide(world.ticket("c2").ticket_id)
    world.returns("c2", 5)
    says("paid")(world)
    return outs_of(events_of(world))


def at(outs: list[Out], kind: str) -> int:
    for index, out in enumerate(outs):
        if (isinstance(out, Update) and out.fields["sessionUpdate"] == kind) or type(out).__name__ == kind:
            return index
    raise AssertionError(kind)


def drop(kind: str) -> Any:
    return lambda outs: outs.pop(at(outs, kind))


def double(kind: str) -> Any:
    return lambda outs: outs.insert(at(outs, kind), outs[at(outs, kind)])


def change(kind: str, /, **fields: Any) -> Any:
    def apply(outs: list[Out]) -> None:
        index = at(outs, kind)
        out = outs[index]
        assert isinstance(out, Update)
        outs[index] = Update({**out.fields, **fields})

    return apply


def insert(before: str, **fields: Any) -> Any:
    return lambda outs: outs.insert(at(outs, before), Update(fields))


def call_update(**fields: Any) -> Any:
    return insert("Ended", sessionUpdate="tool_call_update", toolCallId="r:c1", **fields)


TEXT_BLOCK = {"type": "text", "text": "x"}
PLANTED = [
    ("known kind", change("tool_call", sessionUpdate="call")),
    ("required field", lambda outs: change("tool_call")(outs) or outs[at(outs, "tool_call")].fields.pop("title")),
    ("known field", change("tool_call", tool="x")),
    ("no null", change("tool_call", kind=None)),
    ("field's kind", change("agent_message_chunk", messageId=7)),
    ("field's value", change("tool_call", kind="write")),
    ("field's value", change("tool_call_update", status="done")),
    ("a block of text", change("agent_message_chunk", content={"type": "text"})),
    ("no empty text", change("agent_message_chunk", content={"type": "text", "text": ""})),
    ("content of a call", change("tool_call_update", content=[TEXT_BLOCK])),
    ("a notice has a title", insert("Ended", sessionUpdate="notice", severity="info", title="")),
    ("a call begins once", double("tool_call")),
    ("a call begins as pending", change("tool_call", status="completed")),
    ("a call that has begun", drop("tool_call")),
    ("after its end", call_update(status="in_progress")),
    ("one piece", lambda outs: outs.insert(-1, outs[at(outs, "agent_message_chunk")])),
    ("a ticket is opened once", double("TicketOpened")),
    ("a ticket is closed once", double("TicketClosed")),
    ("nothing after the end", double("Ended")),
    ("nothing after the end", lambda outs: outs.append(outs[0])),
    ("no ticket is open at the end", drop("TicketClosed")),
    ("every call has ended", insert("Ended", sessionUpdate="tool_call", toolCallId="x", title="x", status="pending")),
    ("a reason or a failure", lambda outs: outs.append(Ended(stop=None, meta={})) or outs.pop(-2)),
    ("a failure says", lambda outs: outs.append(Ended(stop=None, meta={}, failure={"code": "x"})) or outs.pop(-2)),
]


@pytest.mark.parametrize(("rule", "plant"), PLANTED)
def test_a_planted_fault_is_caught(rule, plant):
    outs = sound()
    RunAtEditor().take(outs)
    plant(outs)
    with pytest.raises(Broken, match=rule):
        RunAtEditor().take(outs)


def test_a_notice_for_an_editor_that_shows_none_is_caught():
    outs: list[Out] = [Update({"sessionUpdate": "notice", "severity": "info", "title": "x"})]
    with pytest.raises(Broken, match="shows none"):
        RunAtEditor(notices=False).take(outs)


# --- what each event comes to ----------------------------------------------------------------------------------------


def updates(outs: Sequence[Out]) -> list[dict[str, Any]]:
    return [dict(out.fields) for out in outs if isinstance(out, Update)]


def lived(*acts: Any, **options: Any) -> list[Out]:
    world = World(SPEC)
    for act in acts:
        act(world)
    return outs_of(events_of(world), **options)


@pytest.mark.rule("ACP-14")
def test_a_call_with_an_approval_is_told_from_its_beginning_to_its_end():
    outs = sound()
    (asked,) = [out for out in outs if isinstance(out, TicketOpened)]
    assert (asked.ticket.tool, asked.ticket.reason) == ("pay", "tool_permission")
    told = [update for update in updates(outs) if update.get("toolCallId") == "r:c2"]
    assert [(update["sessionUpdate"], update.get("status")) for update in told] == [
        ("tool_call", "pending"),
        ("tool_call_update", "in_progress"),
        ("tool_call_update", "completed"),
    ]
    assert told[-1]["rawOutput"] == 5
    assert outs[-1] == Ended(stop="end_turn", meta={"greenroom/run": "r"})


@pytest.mark.rule("ACP-14")
def test_a_text_that_was_shown_is_taken_back_with_a_notice():
    def fail(world: World) -> None:
        world.answer(inp.ModelFailed(message_id=world.in_flight(), kind="content_filtered", text="cut"))

    for notices in (True, False):
        outs = lived(streams("half of "), fail, notices=notices)
        (taken,) = [update for update in updates(outs) if "discarded" in str(update)]
        assert taken["sessionUpdate"] == ("notice" if notices else "agent_message_chunk")


@pytest.mark.rule("ACP-9")
def test_a_run_that_a_stop_condition_ends_has_made_too_many_requests():
    rounds = [(says(calls=[call(f"c{n}", "read")]), lambda world, n=n: world.returns(f"c{n}")) for n in range(6)]
    end = lived(*(act for pair in rounds for act in pair))[-1]
    assert end == Ended(stop="max_turn_requests", meta={"greenroom/run": "r"})


def ended(to: str, **payload: Any) -> Ended:
    facts = {"from": "running", "to": to, "by": "x", "termination": "x", "steps": 1, **payload}
    event = Event(
        id="e", sequence=1, type=f"run.{to}", version=2, run_id="r", session_id=None, agent_id="a",
        timestamp=events_of(World(SPEC))[0].timestamp, payload=facts,
    )  # fmt: skip
    (end,) = AcpEncoder("r").take(event)
    assert isinstance(end, Ended)
    return end


@pytest.mark.rule("ACP-9")
def test_a_budget_a_refusal_and_a_failure_have_their_ends():
    assert ended("completed", code="token_budget", termination="stopped").stop == "max_tokens"
    assert ended("completed", code="timeout", termination="stopped").stop == "end_turn"
    assert ended("cancelled").stop == "cancelled"
    assert ended("failed", code="model_refusal", message="no").stop == "refusal"
    failed = ended("failed", code="model_error", message="rate_limited: later")
    assert failed.stop is None
    assert failed.failure is not None
    assert failed.failure["code"] == "model_error"
    assert failed.failure["recovery"]
    assert ended("completed", output={"total": 3}).meta == {"greenroom/run": "r", "greenroom/output": {"total": 3}}


@pytest.mark.rule("ACP-14")
def test_the_output_of_a_call_is_bounded_in_every_update():
    world = World(SPEC)
    says(calls=[call("c1", "read")])(world)
    events = events_of(world)
    encoder = AcpEncoder("r")
    for event in events:
        encoder.take(event)
    encoder.live()
    sizes = []
    for index in range(100):
        payload = {"callId": "c1", "attempt": 1, "index": index, "text": "x" * 1_000}
        out = encoder.take(like(events[-1], "run.tool.output.delta", payload))
        sizes += [len(update["content"][0]["content"]["text"]) for update in updates(out)]
    assert max(sizes) == TAIL
    (update,) = updates(
        encoder.take(
            like(events[-1], "run.tool.progress", {"callId": "c1", "attempt": 1, "fraction": 0.5, "text": "half"})
        )
    )
    assert update["content"][0]["content"]["text"].endswith("\n50% half")


@pytest.mark.rule("ACP-14")
def test_what_a_body_says_is_part_of_the_output_of_its_call():
    world = World(SPEC)
    says(calls=[call("c1", "read")])(world)
    events = events_of(world)
    encoder = AcpEncoder("r")
    for event in events:
        encoder.take(event)
    encoder.live()

    def shown(kind: str, **payload: Any) -> str:
        fields = {"callId": "c1", "messageId": "m", "attempt": 1, "index": 0, **payload}
        (update,) = updates(encoder.take(like(events[-1], f"run.{kind}", fields)))
        text: str = update["content"][0]["content"]["text"] if "content" in update else ""
        return text

    assert shown("tool.output.delta", text="line\n") == "line"
    assert shown("message.delta", text="I lo") == "line\nI lo"
    assert shown("message.delta", text="ok") == "line\nI look"
    assert shown("message.discarded", reason="cut") == "line"
    assert shown("message.completed", role="assistant", text="I look.") == "line\nI look."
    assert encoder.take(like(events[-1], "run.reasoning.delta", {"callId": "c1", "messageId": "m", "text": "hm"})) == []


def like(event: Event, kind: str, payload: dict[str, Any]) -> Event:
    return Event(
        id="e", sequence=event.sequence + 1, type=kind, version=2, run_id=event.run_id, session_id=None,
        agent_id=event.agent_id, timestamp=event.timestamp, payload=payload,
    )  # fmt: skip
