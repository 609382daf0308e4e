"""A2A from events: every life of a run, cut and taken up anywhere, is a stream that the protocol allows.

The lives are those of the real engine, as in `test_ag_ui`. The rules are those of `tests/support/a2a_rules.py`, and of
the official SDK's protobuf.
"""

import copy
import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from a2a.types import a2a_pb2 as official
from attrs import evolve
from google.protobuf.json_format import ParseDict
from hypothesis import given
from hypothesis import strategies as st

from greenroom.actors.backends.a2a_values import A2AArtifact, item_field, written
from greenroom.actors.contract.envelope import Event
from greenroom.actors.contract.spec import MODES
from greenroom.actors.engine import inputs as inp
from greenroom.transport.frontends.a2a import encoder, files, ids
from greenroom.transport.frontends.a2a.view import Growing, RunTask, fold

from ....support.a2a_rules import AT_REST, Broken, Client, check, plain, text_of
from ....support.ag_ui_lives import SPEC, Life, events_of
from ...engine.world import World, call

Items = list[dict[str, Any]]

lives = st.builds(
    Life,
    seed=st.integers(0, 2**32 - 1),
    moves=st.integers(0, 120),
    mode=st.sampled_from(list(MODES)),
    hooked=st.booleans(),
    on_deny=st.sampled_from(("continue", "cancel_run")),
    on_new_input=st.sampled_from(("queue", "supersede")),
)


def encoded(events: Sequence[Event], **asked: Any) -> tuple[encoder.A2AStream, Items]:
    """What a client receives of these events, as JSON."""
    state, out = encoder.begin(events[0].run_id, "t", **asked), Items()
    for event in events:
        state, items = encoder.step(state, event)
        out += as_json(items)
    return state, out


def rested(events: Sequence[Event], **asked: Any) -> Items:
    """A whole stream, whose run rests behind these events."""
    state, out = encoded(events, **asked)
    state, items = encoder.finish(state)
    assert state.ended
    assert encoder.finish(state) == (state, ())
    return [*out, *as_json(items)]


def as_json(items: Sequence[Any]) -> Items:
    found: Items = json.loads(msgspec.json.encode([{item_field(item): written(item)} for item in items]))
    return found


def rests(events: Sequence[Event]) -> list[int]:
    """The sequences at which the run rests, as far as the log knows: it waits, or has ended."""
    ends = [event.sequence for event in events if event.type == "run.waiting"]
    return [*ends, len(events)]


def task_of(events: Sequence[Event]) -> dict[str, Any]:
    """The A2A task after these events, as GetTask has it."""
    task = RunTask(run=events[0].run_id, thread="t")
    for event in events:
        task = fold(task, event)
    shown: dict[str, Any] = json.loads(msgspec.json.encode(task.task()))
    return shown


def without_history(task: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in plain(task).items() if name != "history"}


# --- every life ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@given(life=lives)
def test_a_client_that_applies_a_stream_has_the_task_of_the_log(life):
    """From any moment to each rest behind it: both have the same status and the same artifacts."""
    events = life.events()
    for rest in rests(events):
        for head in (1, rest // 2 + 1, rest):
            client = check(rested(events[:rest], after=head))
            assert without_history(client.task) == without_history(task_of(events[:rest]))
            assert client.state in AT_REST


@pytest.mark.slow
@given(life=lives, cut=st.integers(0, 10_000))
def test_a_stream_that_is_taken_up_anywhere_loses_and_repeats_nothing(life, cut):
    events = life.events()
    for rest in rests(events):
        whole = rested(events[:rest], after=1)
        at_cut = 1 + cut % rest
        _, first = encoded(events[:at_cut], after=1)
        if not first:
            continue  # the run waits since its first step: the client has no cursor
        again = rested(events[:rest], after=at_cut, resumed=True)
        client = check(first, ended=False)
        assert check(again, resumed=client, ended=False).task == check(whole).task
        assert len(first) + len(again) <= len(whole) + 1  # a state twice, if the cut was where the run waited


@pytest.mark.slow
@given(life=lives, head=st.integers(0, 10_000))
def test_a_subscription_at_any_moment_begins_with_the_task_of_that_moment(life, head):
    """Or of a later one, if the run waits at that moment: whether it rests is not known before its events end."""
    events = life.events()
    head = 1 + head % len(events)
    _, out = encoded(events, after=head)
    waits = task_of(events[:head])["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    first = out[0]["task"]
    assert first["status"]["state"] != "TASK_STATE_INPUT_REQUIRED"
    if not waits:
        assert plain(first) == plain(task_of(events[:head]))
    check(out)


@pytest.mark.slow
@given(life=lives)
def test_the_official_protobuf_takes_the_task_after_every_event(life):
    events = life.events()
    task = RunTask(run=events[0].run_id, thread="t")
    for event in events:
        task = fold(task, event)
        ParseDict(json.loads(msgspec.json.encode(task.task())), official.Task(), ignore_unknown_fields=False)


# --- planted faults --------------------------------------------------------------------------------------------------


def whole_life() -> Items:
    """A stream with everything: a text in pieces, another one that was discarded, and a question at its end."""
    world = World(SPEC)
    world.feed(inp.ModelStreamed(message_id=world.in_flight(), text="Hel"))
    world.feed(inp.ModelStreamed(message_id=world.in_flight(), text="lo "))
    world.answer(inp.ModelFailed(message_id=world.in_flight(), kind="overloaded", text="later", retryable=True))
    world.feed(inp.ModelStreamed(message_id=world.in_flight(), text="I "))
    world.says("I ask", calls=[call("c1", "pay")])
    out = rested(events_of(world), after=1)
    check(out)
    return out


def at(out: Items, kind: str, index: int = 0) -> int:
    return [n for n, item in enumerate(out) if kind in item][index]


def change(kind: str, path: str, value: Any, index: int = 0) -> Callable[[Items], Any]:
    """Set a field; None takes it away."""

    def act(out: Items) -> None:
        *inner, name = path.split(".")
        place = out[at(out, kind, index)][kind]
        for step in inner:
            place = place[step]
        if value is None:
            del place[name]
        else:
            place[name] = value

    return act


PLANTED: list[tuple[str, Callable[[Items], Any]]] = [
    ("first item", lambda out: out.pop(0)),
    ("one task", lambda out: out.insert(1, copy.deepcopy(out[0]))),
    ("one task", change("statusUpdate", "taskId", "other")),
    ("one task", change("artifactUpdate", "contextId", "other")),
    ("protobuf", lambda out: out[1].update(message={"messageId": "m", "role": "ROLE_AGENT"})),
    ("known item", lambda out: out.insert(1, {"message": {"messageId": "m", "role": "ROLE_AGENT"}})),
    ("protobuf", lambda out: out.append({"statusUpdate": {}, "note": 1})),
    ("protobuf", change("artifactUpdate", "artifact.text", "x")),
    ("protobuf", change("artifactUpdate", "append", "yes")),
    ("protobuf", change("statusUpdate", "status.state", "TASK_STATE_RUNNING")),
    ("append to what is there", change("artifactUpdate", "append", True)),
    ("last chunk", lambda out: out.insert(at(out, "artifactUpdate", 2) + 1, grown(out))),
    ("state of rest", lambda out: out.append(copy.deepcopy(out[at(out, "artifactUpdate")]))),
    ("state of rest", lambda out: out.append(copy.deepcopy(out[-1]))),
    ("submitted first", change("statusUpdate", "status.state", "TASK_STATE_SUBMITTED", 0)),
    ("question", lambda out: out[-1]["statusUpdate"]["status"].pop("message")),
    ("question", lambda out: out[-1]["statusUpdate"]["status"]["message"]["parts"].pop(0)),
    ("question", lambda out: out[-1]["statusUpdate"]["status"]["message"]["parts"][1].pop("mediaType")),
    ("end", lambda out: out.pop()),
]


def grown(out: Items) -> dict[str, Any]:
    """A further piece of the text that was discarded, and so is complete."""
    item = copy.deepcopy(out[at(out, "artifactUpdate", 1)])
    item["artifactUpdate"]["append"] = True
    return item


@pytest.mark.parametrize(("rule", "plant"), PLANTED, ids=[f"{n}-{rule}" for n, (rule, _) in enumerate(PLANTED)])
def test_a_planted_fault_is_found(rule, plant):
    out = whole_life()
    if rule == "submitted first":
        out.insert(2, copy.deepcopy(out[1]))
        out[1]["statusUpdate"]["status"]["state"] = "TASK_STATE_WORKING"
        plant = change("statusUpdate", "status.state", "TASK_STATE_SUBMITTED", 1)
    plant(out)
    with pytest.raises(Broken, match=rule):
        check(out)


# --- one event after the other ---------------------------------------------------------------------------------------


def states(out: Items) -> list[str]:
    found = [item.get("task", item.get("statusUpdate", {})).get("status", {}).get("state") for item in out]
    return [state.removeprefix("TASK_STATE_") for state in found if state]


def test_a_run_with_a_question_is_one_stream_to_the_question_and_one_from_the_answer():
    world = World(SPEC)
    world.says("I ask", calls=[call("c1", "pay")])
    asked = len(events_of(world))
    out = rested(events_of(world), after=1)
    assert states(out) == ["SUBMITTED", "WORKING", "INPUT_REQUIRED"]
    (ticket,) = check(out).tickets()
    assert (ticket["ticketId"], ticket["tool"]) == (world.ticket("c1").ticket_id, "pay")
    world.decide(world.ticket("c1").ticket_id)
    world.returns("c1")
    world.says("done")
    out = rested(events_of(world), after=asked)
    assert states(out) == ["WORKING", "COMPLETED"]
    assert [*check(out).texts().values()] == ["I ask", "done"]


def test_a_text_grows_piece_by_piece_and_its_last_piece_says_so():
    out = whole_life()
    updates = [item["artifactUpdate"] for item in out if "artifactUpdate" in item]
    shown = [(text_of(one["artifact"]), one.get("append", False), one.get("lastChunk", False)) for one in updates]
    assert shown == [
        ("Hel", False, False),
        ("lo ", True, False),
        ("", False, True),
        ("I ", False, False),
        ("ask", True, True),
    ]
    assert updates[2]["artifact"]["metadata"]["discarded"] is True


def test_a_run_that_fails_before_it_works_is_rejected():
    world = World(SPEC)
    events = events_of(world)
    failed = events[-1].payload | {"to": "failed", "from": "planned", "termination": "error", "code": "x"}
    (event,) = [event for event in events if event.type == "run.planned"][:1]
    end = evolve(event, type="run.failed", sequence=3, payload=failed | {"message": "the input was refused"})
    _, out = encoded([*events[:2], end], after=1)
    assert states(out) == ["SUBMITTED", "REJECTED"]
    assert out[-1]["statusUpdate"]["status"]["message"]["parts"] == [{"text": "the input was refused"}]


def test_a_structured_output_is_an_artifact_with_data():
    world = World(SPEC)
    world.says("done")
    events = events_of(world)
    end = evolve(events[-1], payload=events[-1].payload | {"output": {"sum": 3}})
    client = check(encoded([*events[:-1], end], after=1)[1])
    output = client.artifacts()[f"{events[0].run_id}.output"]
    assert output["parts"] == [{"data": {"sum": 3}, "mediaType": "application/json"}]


def test_what_a_body_says_of_its_work_is_not_an_artifact():
    world = World(SPEC)
    world.says("hm", calls=[call("c1", "read")])
    events = events_of(world)
    delta = next(event for event in events if event.type == "run.message.completed")
    spoken = evolve(delta, payload=delta.payload | {"messageId": "p1", "callId": "c1"}, sequence=len(events) + 1)
    _, out = encoded([*events, spoken], after=1)
    assert "p1" not in check(out, ended=False).texts()


def test_a_question_that_changes_while_the_run_waits_is_the_newest_one():
    world = World(SPEC)
    world.says(calls=[call("c1", "pay"), call("c2", "pay")])
    events = events_of(world)
    assert len(client_of(events).tickets()) == 2
    resolved = next(event for event in events if event.type == "run.approval.requested")
    payload = {"ticketId": resolved.payload["ticketId"], "callId": "c1", "resolution": "withdrawn"}
    closed = evolve(resolved, type="run.approval.resolved", payload=payload, sequence=len(events) + 1)
    assert len(client_of([*events, closed]).tickets()) == 1


def client_of(events: Sequence[Event]) -> Client:
    client = Client()
    client.take({"task": task_of(events)})
    return client


def test_a_growing_text_costs_the_same_for_every_piece():
    text: Growing | None = None
    for _ in range(50_000):
        text = Growing(text, "ab")
    assert text is not None
    assert len(text.whole()) == 100_000


# --- ids -------------------------------------------------------------------------------------------------------------


@given(st.text(min_size=1, max_size=60))
def test_the_run_of_a_message_has_its_id(message_id):
    """As long as the id of a session can hold it; an id that another road has made is no message's."""
    run_id = ids.run_of("ada", "support", message_id)
    session = ids.session_of(message_id)
    if session is None:
        assert len(message_id.encode()) > 40
    else:
        assert ids.message_of("ada", "support", run_id, session) == message_id
        assert ids.message_of("bob", "support", run_id, session) is None


@pytest.mark.parametrize("session", [None, "s1", "m.:ZZ", "m.a:FF", "th"])
def test_another_session_is_not_the_id_of_a_message(session):
    assert ids.message_of("ada", "support", "run_1", session) is None


def test_few_of_many_named_files_are_read_for_one_answer():
    """A foreign tool can name any number of them in its result, of any size."""
    named = [
        {"type": "file", "media_type": "text/csv", "sha256": f"{i:064}", "size": size}
        for size in (0, -1)
        for i in range(3_000)
    ]
    artifact = A2AArtifact(artifact_id="a", parts=files.parts_in(named))
    keys = files.keys_of([artifact])
    assert [int(key.sha256) for key in keys] == list(range(files.MOST_FILES))
