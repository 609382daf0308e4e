"""AG-UI from events: every life of a run, cut and taken up anywhere, is a stream that the protocol allows.

The lives are those of the real engine (`tests/unit/engine/chaos.py`): any answer, decision, cancel, crash and expiry in
any order. The rules are those of `tests/support/ag_ui_rules.py`, and of the protocol's own Python package.
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from greenroom.actors.contract.decisions import Suspend
from greenroom.actors.contract.messages import Usage
from greenroom.actors.contract.spec import MODES
from greenroom.actors.engine import body_inputs as body
from greenroom.actors.engine import inputs as inp
from greenroom.transport.frontends.ag_ui import encoder as ag_ui
from greenroom.transport.frontends.ag_ui.interrupts import decision_draft, response_schema

from ....support.ag_ui_faults import PLANTED, sound
from ....support.ag_ui_lives import (
    QUESTION,
    SPEC,
    Life,
    converse,
    encoded,
    events_of,
    every_ticket,
    kinds,
    only,
    says,
    scripted,
    stream,
    streams,
    without_activities,
)
from ....support.ag_ui_rules import Broken, Client, check
from ...engine.world import World, call

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what the package does when it is imported is its own affair
    from ag_ui.core import Event as ProtocolEvent
    from pydantic import TypeAdapter

PROTOCOL: Any = TypeAdapter(ProtocolEvent)

lives = st.builds(
    Life,
    seed=st.integers(0, 2**32 - 1),
    moves=st.integers(0, 120),
    mode=st.sampled_from(list(MODES)),
    hooked=st.booleans(),
    on_deny=st.sampled_from(("continue", "cancel_run")),
    on_new_input=st.sampled_from(("queue", "supersede")),
)


# --- every life ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@given(life=lives)
def test_a_client_that_answers_every_interrupt_is_told_a_whole_life_in_legal_streams(life):
    """And what it has put together itself is what a snapshot would say."""
    events = life.events()
    client, streams = converse(events)
    state, _ = encoded(events, known=client.input(), start_message="u1", after=0, answered=every_ticket(events))
    assert without_activities(client.messages) == list(ag_ui.snapshot(state))
    assert client.outcome == "error" or client.state["greenroom"]["stage"] == events[-1].payload["to"]
    started = [event["toolCallId"] for out in streams for event in only(out, "TOOL_CALL_START")]
    assert len(started) == len(set(started))
    spent = [entry for out in streams for entry in out[-1].get("usage", ())]
    total = Usage(**events[-1].payload["usage"])
    assert sum(entry["inputTokens"] for entry in spent) == total.input
    assert sum(entry["outputTokens"] for entry in spent) == total.output


@pytest.mark.slow
@given(life=lives, cut=st.integers(0, 10_000))
def test_a_stream_that_is_taken_up_anywhere_comes_to_the_same_conversation(life, cut):
    events = life.events()
    cut %= len(events) + 1
    asked = {"start_message": "u1", "answered": every_ticket(events), "after": 0}
    whole = Client([QUESTION]).take(stream(events, known=[QUESTION], **asked))
    _, first = encoded(events[:cut], known=[QUESTION], **asked)
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
    state, out = encoded(events[:cut], known=[QUESTION], start_message="u1")
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


def test_the_same_request_is_told_the_same_again_when_the_run_is_long_over():
    """The first stream ends at the first interrupt for ever, whatever has happened since."""
    world = World(SPEC)
    world.says(calls=[call("c1", "pay")])
    before = stream(events_of(world), known=[QUESTION], start_message="u1")
    world.decide(world.ticket("c1").ticket_id)
    world.returns("c1")
    world.says("done")
    assert stream(events_of(world), known=[QUESTION], start_message="u1") == before
    assert before[-1]["outcome"]["type"] == "interrupt"


# --- one event after the other ---------------------------------------------------------------------------------------


def breaks(world: World) -> None:
    """The model cannot be asked for a moment."""
    world.answer(inp.ModelFailed(message_id=world.in_flight(), kind="overloaded", text="later", retryable=True))


def plain(out: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Types with what they are about: a message, a call, a step or a name, and their text."""
    names = ("messageId", "toolCallId", "stepName", "name", "delta")
    return [(event["type"], *(event[name] for name in names if name in event)) for event in out]


def test_text_is_streamed_once_and_the_rest_of_it_comes_with_its_end():
    out = scripted(streams("he"), streams("ll"), says("hello"))
    assert plain(out) == [
        ("RUN_STARTED",),
        ("STEP_STARTED", "step 1"),
        ("TEXT_MESSAGE_START", "r.m1"),
        ("TEXT_MESSAGE_CONTENT", "r.m1", "he"),
        ("TEXT_MESSAGE_CONTENT", "r.m1", "ll"),
        ("TEXT_MESSAGE_CONTENT", "r.m1", "o"),
        ("TEXT_MESSAGE_END", "r.m1"),
        ("STEP_FINISHED", "step 1"),
        ("STATE_SNAPSHOT",),
        ("RUN_FINISHED",),
    ]
    assert out[-1]["outcome"] == {"type": "success"}
    assert out[-1]["result"] == "hello"
    assert out[-1]["usage"] == [{"model": "m", "inputTokens": 10, "outputTokens": 5, "totalTokens": 15}]
    assert out[0]["protocolVersion"] == "1.0"
    assert out[0]["metadata"] == {"greenroom": {"run": "r", "agent": "a"}}


def test_a_text_that_turned_out_otherwise_is_corrected():
    out = scripted(streams("hullo"), says("hello"))
    assert Client([QUESTION]).take(out).messages[-1]["content"] == "hello"
    assert "MESSAGES_SNAPSHOT" in kinds(out)


def test_reasoning_is_a_span_with_a_message_and_closed_before_text():
    out = scripted(streams(reasoning="hm"), streams("a"), streams(reasoning="so"), says("a"))
    inside = [line for line in plain(out) if line[0].startswith(("REASONING", "TEXT"))]
    span = "r.m1:reasoning"
    assert inside[:5] == [
        ("REASONING_START", span),
        ("REASONING_MESSAGE_START", span),
        ("REASONING_MESSAGE_CONTENT", span, "hm"),
        ("REASONING_MESSAGE_END", span),
        ("REASONING_END", span),
    ]
    assert Client([QUESTION]).take(out).messages[1]["content"] == "hmso"


@pytest.mark.parametrize("versioned", [True, False])
def test_the_text_that_the_end_of_a_run_has_cut_stays_and_its_end_says_so(versioned):
    world = World(SPEC)
    world.feed(inp.ModelStreamed(message_id=world.in_flight(), text="Once upon", reasoning="A tale."))
    world.cancel(reason="enough")
    world.cuts("Once upon a time", input=7)
    out = stream(events_of(world), known=[QUESTION], start_message="u1", versioned=versioned)
    assert [message["content"] for message in Client([QUESTION]).take(out).messages] == [
        "hello",
        "A tale.",
        "Once upon a time",
    ]
    (end,) = only(out, "TEXT_MESSAGE_END")
    assert end["metadata"] == {"greenroom": {"cut": True}}
    if versioned:
        assert out[-1]["outcome"] == {"type": "cancelled"}
        assert out[-1]["metadata"]["greenroom"]["termination"] == "cancelled"
    else:
        assert (out[-1]["type"], out[-1]["code"]) == ("RUN_ERROR", "cancelled")
        assert out[-1]["message"] == "The run was cancelled: enough"
        assert out[-2]["snapshot"]["greenroom"]["stage"] == "cancelled"
    assert out[-1]["usage"] == [{"inputTokens": 7, "outputTokens": 0, "totalTokens": 7}]


def test_the_usage_names_what_was_read_from_a_cache_and_put_into_it():
    used = Usage(requests=1, input=10, output=5, cached=4, stored=3)
    assert scripted(lambda world: world.says("hello", usage=used))[-1]["usage"] == [
        {
            "model": "m",
            "inputTokens": 10,
            "outputTokens": 5,
            "totalTokens": 15,
            "cachedInputTokens": 4,
            "cacheWriteInputTokens": 3,
        }
    ]


def test_discarded_text_and_reasoning_are_taken_back_and_the_next_attempt_has_another_id():
    out = scripted(streams("wrong", "hm"), breaks, says("right"))
    messages = Client([QUESTION]).take(out).messages
    assert [(message["id"], message["content"]) for message in messages] == [
        ("u1", "hello"),
        ("r.m1:reasoning", ""),
        ("r.m2", "right"),
    ]
    assert [event["name"] for event in only(out, "CUSTOM")] == ["greenroom.inference.retried"]


def test_calls_belong_to_the_message_of_their_answer_and_results_follow_it():
    both = [call("c1", "read", n=1), call("c2", "strict", n="no")]
    out = scripted(says("Look:", calls=both), lambda world: world.returns("c1", {"a": [1]}), says("done"))
    messages = Client([QUESTION]).take(out).messages
    assert [message["id"] for message in messages] == ["u1", "r.m1", "r.m1:c2", "r.m1:c1", "r.m4"]
    assert [entry["function"] for entry in messages[1]["toolCalls"]] == [
        {"name": "read", "arguments": '{"n":1}'},
        {"name": "strict", "arguments": '{"n":"no"}'},
    ]
    assert messages[2]["metadata"] == {"greenroom": {"status": "failed", "code": "invalid_arguments"}}
    assert messages[3]["content"] == '{"a":[1]}'
    assert "metadata" not in messages[3]


def test_several_interrupts_are_asked_at_once_with_all_that_is_needed_to_decide():
    out = scripted(says(calls=[call("c1", "pay", n=1), call("c2", "peek")]), shared={"page": 1})
    assert kinds(out)[-4:] == ["STEP_FINISHED", "STATE_SNAPSHOT", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]
    first, second = out[-1]["outcome"]["interrupts"]
    assert (first["id"], first["reason"], first["toolCallId"]) == ("r.t1", "tool_call", "r:c1")
    assert first["message"] == "This call needs an approval."
    reported = first["metadata"]["greenroom"]
    assert reported.keys() == {"callId", "tool", "arguments", "fingerprint", "action", "resumeMode"}
    assert (reported["tool"], reported["arguments"]) == ("pay", {"n": 1})
    assert "expiresAt" not in first
    assert second["id"] == "r.t2"
    facts = {"run": "r", "agent": "a", "stage": "needs_approval", "step": 1, "tickets": ["r.t1", "r.t2"]}
    assert only(out, "STATE_SNAPSHOT")[0]["snapshot"] == {"page": 1, "greenroom": facts}


def test_a_nested_call_is_an_interrupt_that_says_that_a_process_waits():
    def asks(world: World) -> None:
        world.nests("c1", suspend=Suspend(message="Which colour?", resume_mode="use_decision_as_tool_result"))

    steps = [says("Look:", calls=[call("c1", "read", n=1)]), asks]
    out = scripted(*steps)
    (asked,) = out[-1]["outcome"]["interrupts"]
    assert (asked["toolCallId"], asked["message"]) == ("r:c1.1", "Which colour?")
    assert asked["metadata"]["greenroom"]["live"] is True
    known = Client([QUESTION]).take(out).input()
    steps += [lambda world: world.decide("r.t1", "resume", "red"), lambda world: world.returns("c1", "painted")]
    out = scripted(*steps, says("done"), known=known, answered=["r.t1"])
    assert [event["toolCallId"] for event in only(out, "TOOL_CALL_RESULT")] == ["r:c1.1", "r:c1"]
    assert not only(out, "TOOL_CALL_START")
    assert out[-1]["outcome"] == {"type": "success"}


@pytest.mark.parametrize(
    ("reason", "name"),
    [
        ("user_input", "input_required"),
        ("outcome_unknown", "greenroom:outcome_unknown"),
        ("manual_pause", "greenroom:manual_pause"),
    ],
)
def test_a_reason_without_a_word_of_the_protocol_has_a_name_of_ours(reason, name):
    suspend = Suspend(reason=reason, message="?", expires_after=60.0, parameters={"k": 1})
    out = scripted(says(calls=[call("c1", "read")]), lambda world: world.suspends("c1", suspend))
    (asked,) = out[-1]["outcome"]["interrupts"]
    assert (asked["reason"], asked["toolCallId"]) == (name, "r:c1")
    assert asked["expiresAt"] == "2026-01-01T00:01:00.000Z"
    assert asked["metadata"]["greenroom"]["parameters"] == {"k": 1}


def test_a_state_that_is_no_object_is_handed_back_as_it_is():
    assert only(scripted(says("x"), shared=[1, None]), "STATE_SNAPSHOT")[0]["snapshot"] == [1, None]


def test_an_answered_run_begins_with_where_the_conversation_stands_and_begins_no_call_again():
    def decides(world: World) -> None:
        world.decide("r.t1")
        world.decide("r.t2", "cancel", reason="no")
        world.returns("c1", "paid")

    steps = [says("Pay?", calls=[call("c1", "pay"), call("c2", "pay", n=2)]), decides, says("done")]
    known = Client([QUESTION]).take(scripted(*steps)).input()
    out = scripted(*steps, known=known, answered=["r.t1", "r.t2"])
    assert kinds(out)[:3] == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "STEP_STARTED"]
    assert out[1]["messages"] == known
    assert [event["toolCallId"] for event in only(out, "TOOL_CALL_RESULT")] == ["r:c2", "r:c1"]
    assert not only(out, "TOOL_CALL_START")
    assert out[-1]["usage"] == [{"model": "m", "inputTokens": 10, "outputTokens": 5, "totalTokens": 15}]


def test_a_run_that_rests_between_two_answers_of_one_request_goes_on():
    """Of two tickets one is approved, its call ends, and for a moment the run waits for the other one alone."""

    def decides(world: World) -> None:
        world.decide("r.t1")
        world.returns("c1", "paid")
        world.decide("r.t2")
        world.returns("c2", "paid")

    steps = [says(calls=[call("c1", "pay"), call("c2", "pay", n=2)]), decides, says("done")]
    first = scripted(*steps)
    assert len(first[-1]["outcome"]["interrupts"]) == 2
    known = Client([QUESTION]).take(first).input()
    out = scripted(*steps, known=known, answered=["r.t1", "r.t2"])
    assert out[-1]["outcome"] == {"type": "success"}
    assert len(only(out, "TOOL_CALL_RESULT")) == 2


def test_a_call_that_asks_again_is_a_new_interrupt():
    steps = [says(calls=[call("c1", "pay")]), lambda world: world.decide("r.t1"), lambda world: world.suspends("c1")]
    known = Client([QUESTION]).take(scripted(*steps)).input()
    out = scripted(*steps, known=known, answered=["r.t1"])
    assert [interrupt["id"] for interrupt in out[-1]["outcome"]["interrupts"]] == ["r.t2"]


def test_progress_and_output_are_one_activity_of_the_call_and_a_new_attempt_begins_it_anew():
    def works(world: World) -> None:
        who = {"call_id": "c1", "attempt": 1}
        world.feed(inp.CallProgressed(**who, fraction=0.25, text="a quarter"))
        world.feed(inp.CallPrinted(**who, index=0, text="line"))
        world.feed(inp.CallProgressed(**who, fraction=0.5))

    client = Client([QUESTION]).take(scripted(says(calls=[call("c1", "read")]), works))
    content = {"toolCallId": "r:c1", "attempt": 1, "fraction": 0.5, "text": "", "output": ["line"]}
    assert client.messages[-1] == {
        "id": "r.m1:c1:activity",
        "role": "activity",
        "activityType": "greenroom.tool",
        "content": content,
    }

    def again(world: World) -> None:
        world.crash()
        world.feed(inp.CallPrinted(call_id="c1", attempt=2, index=0, text="other"))

    out = scripted(says(calls=[call("c1", "read")]), works, again)
    assert Client([QUESTION]).take(out).messages[-1]["content"] == {
        "toolCallId": "r:c1",
        "attempt": 2,
        "output": ["other"],
    }


def test_input_from_elsewhere_is_told_and_what_the_client_sent_itself_is_not():
    steps = [says(calls=[call("c1", "pay")]), lambda world: world.send("and this"), World.cancel, World.stopped]
    out = scripted(*steps, after=0, answered=["r.t1"])
    assert Client([QUESTION]).take(out).messages[-1] == {"id": "r.m2", "role": "user", "content": "and this"}
    known = [QUESTION, {"id": "u2", "role": "user", "content": "and this"}]
    out = scripted(*steps, after=0, answered=["r.t1"], known=known, sent={"s1": "u2"})
    assert [message["id"] for message in Client(known).take(out).messages] == ["u1", "u2", "r.m1", "r.m1:c1"]


def test_a_cancelled_run_is_neither_a_success_nor_an_error():
    out = scripted(says(calls=[call("c1", "read")]), lambda world: world.cancel(reason="enough"), World.stopped)
    assert out[-1]["outcome"] == {"type": "cancelled"}
    assert out[-1]["metadata"]["greenroom"] == {"termination": "cancelled", "reason": "enough"}
    assert only(out, "TOOL_CALL_RESULT")[0]["metadata"]["greenroom"]["status"] == "cancelled"


def test_a_failed_run_is_an_error_with_the_code_of_the_failure():
    def fails(world: World) -> None:
        world.answer(inp.ModelFailed(message_id=world.in_flight(), kind="provider", text="broken"))

    out = scripted(streams("half of"), fails)
    assert (out[-1]["type"], out[-1]["code"], out[-1]["message"]) == ("RUN_ERROR", "model_error", "provider: broken")
    assert Client([QUESTION]).take(out).messages == [QUESTION]


def test_background_tasks_are_custom_events():
    out = scripted(
        says(calls=[call("c1", "crawl")]), says("I wait"), lambda world: world.task_returns("c1.task1"), says("done")
    )
    customs = only(out, "CUSTOM")
    assert [event["name"] for event in customs] == ["greenroom.task.started", "greenroom.task.finished"]
    assert [event["value"]["taskId"] for event in customs] == ["c1.task1"] * 2


def test_what_a_program_says_is_custom_and_no_message_of_the_conversation():
    def speaks(world: World) -> None:
        world.tells(body.BodySpoke, "c1", number=1, text="I lo", reasoning="hm")
        world.tells(body.BodySpoke, "c1", number=1, whole="I look")
        world.tells(body.BodySpoke, "c1", number=2, text="I wr")
        world.returns("c1", "done")

    out = scripted(says(calls=[call("c1", "read")]), speaks, says("fine"))
    names = ["reasoning.delta", "message.delta", "message.completed", "message.delta", "message.discarded"]
    assert [event["name"] for event in only(out, "CUSTOM")] == [f"greenroom.{name}" for name in names]
    assert [event["messageId"] for event in only(out, "TEXT_MESSAGE_START")] == ["r.m3"]
    told = Client([QUESTION]).take(out).messages
    assert [message["content"] for message in told if message["role"] in ("user", "tool")] == ["hello", "done"]


def test_what_the_protocol_has_no_word_for_is_custom_with_the_payload():
    def overruns(world: World) -> None:
        world.feed(inp.BodyOverran(item=inp.Unfinished(call_id="c1", stack="somewhere")))

    out = scripted(says(calls=[call("c1", "write")]), overruns)
    assert [event["name"] for event in only(out, "CUSTOM")] == ["greenroom.applying", "greenroom.cleanup.overrun"]
    assert only(out, "CUSTOM")[1]["value"]["callId"] == "c1"


def test_a_request_that_is_refused_is_told_with_the_clients_ids_and_without_a_time():
    state, out = ag_ui.finish(ag_ui.begin(thread_id="th", run_id="x"), code="expired", message="too late")
    check(out, thread_id="th", run_id="x")
    assert ag_ui.frame(out) == (
        b'data: {"type":"RUN_STARTED","threadId":"th","runId":"x","protocolVersion":"1.0"}\n\n'
        b'data: {"type":"RUN_ERROR","message":"too late","code":"expired"}\n\n'
    )
    assert ag_ui.step(state, events_of(World(SPEC))[0]) == (state, ())


def test_messages_of_other_runs_stay_as_the_client_has_them_and_those_of_this_run_are_told_as_they_are_now():
    old = [
        {"id": "u0", "role": "user", "content": [{"type": "text", "text": "before"}], "name": "ann"},
        {"id": "q.m1", "role": "assistant", "content": "earlier", "metadata": {"k": 1}},
    ]
    stale = {"id": "r.m1", "role": "assistant", "content": "stale"}
    removed = {"id": "r.m7", "role": "assistant", "content": "discarded"}
    later = {"id": "u2", "role": "user", "content": "behind"}
    out = scripted(says("Pay?", calls=[call("c1", "pay")]), known=[*old, QUESTION, stale, removed, later])
    reported = only(out, "MESSAGES_SNAPSHOT")[-1]["messages"]
    assert [one["id"] for one in reported] == ["u0", "q.m1", "u1", "r.m1", "u2"]
    assert reported[:2] == old
    assert reported[3]["content"] == "Pay?"


# --- interrupts and answers ------------------------------------------------------------------------------------------

keys = st.sampled_from(["approved", "editedArgs", "reason", "result", "approvedActionFingerprint", "other"])
values = st.sampled_from([True, False, None, 1, "x", {}, {"n": 1}, []])
payloads = st.one_of(st.dictionaries(keys, values, max_size=4), values)


def ticket(**more: Any) -> dict[str, Any]:
    base = {"ticketId": "r.t1", "callId": "c1", "tool": "pay", "arguments": {}, "fingerprint": "f"}
    return {**base, "reason": "tool_permission", "resumeMode": "replay_tool_call", **more}


@given(payload=payloads)
def test_an_approval_is_taken_if_and_only_if_it_fits_the_schema_that_the_interrupt_shows(payload):
    asked = ticket(responseSchema={"$ref": "#/$defs/any", "$defs": {"any": {}}})
    schema = response_schema(asked)
    assert schema is not None
    jsonschema.Draft202012Validator.check_schema(schema)
    if not jsonschema.Draft202012Validator(schema).is_valid(payload):
        with pytest.raises(ValueError, match="payload"):
            decision_draft("replay_tool_call", "resolved", payload)
        return
    suspend = decision_draft("replay_tool_call", "resolved", payload)
    assert (suspend.action == "resume") is payload["approved"]
    assert suspend.edited_arguments == (payload.get("editedArgs") if payload["approved"] else None)


@pytest.mark.parametrize(("key", "meant"), [("editedArguments", "editedArgs"), ("edited_args", "editedArgs")])
def test_an_unknown_key_of_an_approval_is_refused_with_the_one_that_was_meant(key, meant):
    """An approval must not run the original arguments in place of the edited ones."""
    with pytest.raises(
        ValueError, match=rf"payload\.{key} is not known here; did you mean {meant}\? there are approved"
    ):
        decision_draft("replay_tool_call", "resolved", {"approved": True, key: {}})


def test_the_schema_of_a_ticket_is_found_where_its_references_lead():
    own = {"type": "object", "properties": {"n": {"$ref": "#/$defs/number"}}, "$defs": {"number": {"type": "integer"}}}
    schema = response_schema(ticket(responseSchema=own))
    assert schema is not None
    validator = jsonschema.Draft202012Validator(schema)
    assert validator.is_valid({"approved": True, "result": {"n": 1}})
    assert not validator.is_valid({"approved": True, "result": {"n": "one"}})


def test_a_value_is_asked_for_with_the_tickets_own_schema():
    own = {"type": "string"}
    assert response_schema(ticket(resumeMode="use_decision_as_tool_result", responseSchema=own)) == own
    assert response_schema(ticket(resumeMode="use_decision_as_tool_result")) is None
    assert response_schema(ticket(resumeMode="pass_decision_to_tool")) == {"type": "object"}
    assert decision_draft("use_decision_as_tool_result", "resolved", {"approved": False}).result == {"approved": False}
    assert "result" in response_schema(ticket(reason="outcome_unknown"))["properties"]


@pytest.mark.parametrize("mode", ["replay_tool_call", "use_decision_as_tool_result", "pass_decision_to_tool"])
def test_cancelled_declines_whatever_the_ticket_asks_for(mode):
    assert decision_draft(mode, "cancelled", None).action == "cancel"
    assert decision_draft(mode, "cancelled", {"reason": "no"}).reason == "no"


# --- the checker can fail --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rule", "plant"), PLANTED)
def test_a_planted_fault_is_found(rule, plant):
    out = sound()
    check(out, thread_id="th", run_id="x", known=[QUESTION])
    plant(out)
    with pytest.raises(Broken) as broken:
        check(out, thread_id="th", run_id="x", known=[QUESTION])
    assert broken.value.rule == rule
