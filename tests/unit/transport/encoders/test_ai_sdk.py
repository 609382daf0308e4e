"""The AI SDK stream: what each kind of life becomes at a client of either version, and that no life breaks a rule."""

import copy
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from greenroom.actors.contract import events as ev
from greenroom.actors.contract.commits import EventDraft
from greenroom.actors.contract.decisions import Allow, Suspend
from greenroom.actors.contract.envelope import Event, EventEncoder, decode_event
from greenroom.actors.contract.messages import Usage
from greenroom.actors.contract.phases import Phase
from greenroom.actors.contract.secrets.redaction import Redactor
from greenroom.actors.contract.spec import MODES, AgentSpec
from greenroom.actors.engine import body_inputs as body
from greenroom.actors.engine import inputs as inp
from greenroom.transport.frontends.ai_sdk.builder import VERSIONS
from greenroom.transport.frontends.ai_sdk.encoder import INTERRUPTED, begin, finish, step
from greenroom.transport.frontends.ai_sdk.request import ReaderPosition, read_request

from ....support.ai_sdk_rules import Chat, Part, check_message, check_stream
from ...engine.chaos import TOOLS, Chaos
from ...engine.test_properties import specs
from ...engine.world import START, World, call

both = pytest.mark.parametrize("version", VERSIONS)


def events_of(world: World) -> list[Event]:
    """The durable events of a life, as readers get them."""
    created, *drafts = world.store.events
    return encoded(world, [EventDraft("run.created", created), *drafts])


def encoded(world: World, drafts: Sequence[Any]) -> list[Event]:
    frames = EventEncoder(world.store.info, Redactor()).frames(0, START, drafts)
    return [decode_event(frame) for frame in frames]


def parts_of(events: Sequence[Event], version: Any, *, close: bool = True, **options: Any) -> list[Part]:
    """A whole stream of these events."""
    state, out = begin("r", version=version, **options), list[Part]()
    for event in events:
        before = copy.deepcopy(state)
        after, parts = step(state, event)
        assert state == before, "the state was changed in place"
        state, out = after, [*out, *parts]
    return [*out, *finish(state)[1]] if close else out


def kinds(parts: Sequence[Part]) -> list[str]:
    return [part["type"] for part in parts]


def of(parts: Sequence[Part], *names: str) -> list[Part]:
    return [part for part in parts if part["type"] in names]


def seen(chat: Chat) -> ReaderPosition:
    """What the gateway reads of the message when it comes back."""
    request = read_request({"id": "chat", "messages": [chat.sent()]})
    assert request.seen is not None
    return request.seen


def resumed(chat: Chat, events: Sequence[Event], *, forget: bool = False) -> list[Part]:
    """The continuation that the gateway sends to a client that comes back with its message."""
    known = seen(chat)
    assert known.sequence is not None
    parts = parts_of(events, chat.version, after=known.sequence, reader=None if forget else known.parts)
    check_stream(parts, chat.version, message_id="r")
    chat.stream(parts)
    return parts


def shown(chat: Chat) -> dict[str, tuple[str, Any]]:
    """Call id -> how it ended, as the message tells it."""
    ends = {"output-available": "output", "output-error": "failed", "output-denied": "failed"}
    return {tool["toolCallId"]: (ends.get(tool["state"], "open"), tool.get("output")) for tool in chat.tools()}


def a_world(**options: Any) -> World:
    return World(AgentSpec(key="a", tools=TOOLS, **options))


# --- texts -----------------------------------------------------------------------------------------------------------


@both
def test_a_run_of_two_steps_is_one_message(version: Any) -> None:
    world = a_world()
    world.says("looking", calls=[call("c1", "read", n=1)])
    world.returns("c1", {"found": 3})
    world.says("three")
    parts = parts_of(events_of(world), version)
    assert kinds(parts) == [
        *("start", "data-run", "start-step", "text-start", "text-delta", "text-end"),
        *("tool-input-available", "tool-output-available", "finish-step"),
        *("start-step", "text-start", "text-delta", "text-end", "finish-step", "data-run", "finish"),
    ]
    check_stream(parts, version, message_id="r")
    chat = Chat(version).stream(parts)
    check_message(chat.message, ended=True)
    assert chat.texts() == "lookingthree"
    assert chat.tool("c1")["output"] == {"found": 3}
    assert chat.reason == "stop"
    reported = parts[-2]["data"]
    assert reported["termination"] == {"kind": "natural_end", "by": "engine"}
    assert (reported["status"], reported["steps"], reported["sequence"]) == ("done", 2, len(events_of(world)))


@both
def test_streamed_text_is_completed_with_what_was_not_streamed(version: Any) -> None:
    world = a_world()
    world.feed(inp.ModelStreamed(message_id=world.in_flight(), text="one "))
    world.feed(inp.ModelStreamed(message_id=world.in_flight(), text="two "))
    world.says("one two three")
    parts = parts_of(events_of(world), version)
    assert [part["delta"] for part in of(parts, "text-delta")] == ["one ", "two ", "three"]
    assert len(of(parts, "text-start", "text-end")) == 2
    assert Chat(version).stream(parts).texts() == "one two three"


@both
def test_reasoning_and_text_take_turns_in_blocks_of_their_own(version: Any) -> None:
    world = a_world()
    for text, reasoning in (("", "hm"), ("yes", ""), ("", "but"), ("no", "")):
        world.feed(inp.ModelStreamed(message_id=world.in_flight(), text=text, reasoning=reasoning))
    world.says("yesno")
    parts = parts_of(events_of(world), version)
    check_stream(parts, version, message_id="r")
    blocks = [part["id"] for part in of(parts, "text-start", "reasoning-start")]
    assert blocks == ["r.m1-reasoning-1", "r.m1-text-2", "r.m1-reasoning-3", "r.m1-text-4"]
    assert Chat(version).stream(parts).texts() == "yesno"


@both
def test_text_of_an_inference_that_is_repeated_is_not_left_twice(version: Any) -> None:
    """v7 takes it back; in v6 it stays, and a data part names the blocks that are none of the answer."""
    world = a_world()
    world.feed(inp.ModelStreamed(message_id=world.in_flight(), text="the ans", reasoning="hm"))
    world.send("quick")
    world.answer(inp.ModelFailed(message_id=world.in_flight(), kind="overloaded", text="later", retryable=True))
    world.feed(inp.ModelStreamed(message_id=world.in_flight(), text="the answer"))
    world.says("the answer")
    world.says("quick answer")
    parts = parts_of(events_of(world), version)
    check_stream(parts, version, message_id="r")
    chat = Chat(version).stream(parts)
    check_message(chat.message, ended=True)
    assert chat.texts() == "the answerquick answer"
    assert len(of(parts, "reset-step")) == (version == "v7")
    assert len(of(chat.parts, "data-discarded")) == (version == "v6")
    assert len(of(chat.parts, "reasoning")) == (version == "v6")
    assert [part["data"]["text"] for part in of(chat.parts, "data-input")] == ["quick"]  # also after the step was reset
    notices = [part["data"]["event"] for part in chat.transient]
    assert notices == ["run.inference.retried"]


@both
def test_the_text_that_the_end_of_a_run_has_cut_stays_and_its_part_says_so(version: Any) -> None:
    world = a_world()
    world.feed(inp.ModelStreamed(message_id=world.in_flight(), text="Once upon", reasoning="A tale."))
    world.cancel()
    world.cuts("Once upon a time")
    parts = parts_of(events_of(world), version)
    check_stream(parts, version, message_id="r")
    chat = Chat(version).stream(parts)
    check_message(chat.message, ended=True)
    assert chat.texts() == "Once upon a time"
    assert not of(parts, "reset-step", "data-discarded")
    (end,) = of(parts, "text-end")
    assert end["providerMetadata"]["greenroom"] == {"messageId": "r.m1", "blockId": end["id"], "cut": True}


@both
def test_a_message_that_reads_otherwise_than_it_was_streamed_is_shown_as_it_reads(version: Any) -> None:
    world = a_world()
    world.feed(inp.ModelStreamed(message_id=world.in_flight(), text="the pass is "))
    world.says("the key is 7")
    chat = Chat(version).stream(parts_of(events_of(world), version))
    assert chat.texts() == "the key is 7"


@both
def test_a_message_without_text_makes_no_block(version: Any) -> None:
    world = a_world()
    world.says()
    parts = parts_of(events_of(world), version)
    assert not of(parts, "text-start")
    check_stream(parts, version, message_id="r")


# --- ends ------------------------------------------------------------------------------------------------------------


@both
def test_a_failed_run_ends_with_an_error(version: Any) -> None:
    world = a_world()
    world.feed(inp.ModelStreamed(message_id=world.in_flight(), text="the ans"))
    world.answer(inp.ModelFailed(message_id=world.in_flight(), kind="auth", text="no key"))
    parts = parts_of(events_of(world), version)
    check_stream(parts, version, message_id="r")
    assert kinds(parts)[-4:] == ["finish-step", "data-run", "error", "finish"]
    chat = Chat(version).stream(parts)
    assert chat.error == "auth: no key"
    assert parts[-1]["finishReason"] == "error"
    termination = of(chat.parts, "data-run")[0]["data"]["termination"]
    assert (termination["kind"], termination["code"]) == ("error", "model_error")


@both
def test_a_cancelled_run_ends_with_an_abort_and_says_who_and_why(version: Any) -> None:
    world = a_world()
    world.says(calls=[call("c1", "read", n=1), call("c2", "pay", n=2)])
    world.cancel(reason="enough")
    world.stopped()
    parts = parts_of(events_of(world), version)
    check_stream(parts, version, message_id="r")
    chat = Chat(version).stream(parts)
    check_message(chat.message, ended=True)
    assert of(parts, "abort") == [{"type": "abort", "reason": "enough"}]
    termination = of(chat.parts, "data-run")[0]["data"]["termination"]
    assert termination == {"kind": "cancelled", "detail": "enough", "by": "ann"}
    assert chat.tool("c1")["errorText"] == "This call was cancelled before it finished."


@both
@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"termination": "stopped", "code": "max_rounds"}, "length"),
        ({"termination": "stopped", "code": "stop_on_tool"}, "other"),
        ({"termination": "behavior_requested"}, "stop"),
    ],
)
def test_a_stopped_run_says_what_stopped_it(version: Any, fields: dict[str, Any], reason: str) -> None:
    world = a_world()
    common = {"source": "running", "to": "completed", "by": "engine", "usage": Usage(), "active_seconds": 1.0}
    done = ev.RunCompleted(**common, steps=1, last_sequence=3, output={"n": 1}, **fields)
    events = [*events_of(world), *encoded(world, [EventDraft("run.completed", done)])]
    parts = parts_of(events, version)
    check_stream(parts, version, message_id="r")
    assert parts[-1]["finishReason"] == reason
    assert parts[-2]["data"]["output"] == {"n": 1}


@both
def test_a_blocked_run_is_distinguished_from_a_failed_one(version: Any) -> None:
    world = a_world()
    common = {"source": "running", "to": "failed", "by": "engine", "usage": Usage(), "active_seconds": 1.0}
    fields = {"steps": 1, "last_sequence": 3, "code": "permission_denied", "message": "never"}
    drafts = [EventDraft("run.failed", ev.RunFailed(**common, termination="blocked", **fields))]
    parts = parts_of([*events_of(world), *encoded(world, drafts)], version)
    assert parts[-1]["finishReason"] == "content-filter"
    assert parts[-2] == {"type": "error", "errorText": "never"}


@both
def test_events_that_end_while_the_run_works_leave_a_whole_stream_that_says_so(version: Any) -> None:
    world = a_world()
    world.feed(inp.ModelStreamed(message_id=world.in_flight(), text="the ans"))
    parts = parts_of(events_of(world), version)
    check_stream(parts, version, message_id="r")
    chat = Chat(version).stream(parts)
    assert chat.error == INTERRUPTED
    assert of(chat.parts, "data-run")[0]["data"]["status"] == "interrupted"
    assert [part["state"] for part in of(chat.parts, "text")] == ["done"]


@both
def test_after_its_end_a_stream_says_nothing(version: Any) -> None:
    world = a_world()
    world.says("done")
    events = events_of(world)
    state = begin("r", version=version)
    for event in events:
        state, _ = step(state, event)
    assert step(state, events[0]) == (state, ())
    assert finish(state) == (state, ())


@both
def test_a_stream_without_any_event_is_whole(version: Any) -> None:
    _, parts = finish(begin("r", version=version), reason="gone")
    check_stream(list(parts), version, message_id="r")
    assert parts[-2] == {"type": "error", "errorText": "gone"}


# --- tools -----------------------------------------------------------------------------------------------------------


@both
def test_what_a_body_reports_comes_in_data_parts(version: Any) -> None:
    world = a_world()
    world.says(calls=[call("c1", "read", n=1)])
    for fraction in (0.25, 0.5):
        world.feed(inp.CallProgressed(call_id="c1", attempt=1, fraction=fraction, text="half"))
    world.feed(inp.CallPrinted(call_id="c1", attempt=1, index=0, text="line"))
    world.returns("c1", None)
    parts = parts_of(events_of(world), version)
    chat = Chat(version).stream(parts)
    assert [part["data"]["fraction"] for part in of(chat.parts, "data-tool-progress")] == [0.5]
    assert [part["data"]["text"] for part in chat.transient] == ["line"]
    assert of(parts, "tool-output-available")[0]["output"] is None


@both
def test_what_a_program_says_and_plans_comes_in_data_parts_and_not_as_the_answer(version: Any) -> None:
    world = a_world()
    world.says("I let it work", calls=[call("c1", "read", n=1)])
    world.tells(body.BodySpoke, "c1", number=1, text="I lo", reasoning="hm")
    world.tells(body.BodySpoke, "c1", number=1, whole="I look")
    world.tells(body.BodyNoted, "c1", type="run.plan.changed", payload={"entries": [{"text": "a", "status": "b"}]})
    world.tells(body.BodySpoke, "c1", number=2, text="I wr")
    world.returns("c1", "done")
    world.says("It is done")
    parts = parts_of(events_of(world), version)
    check_stream(parts, version, message_id="r")
    chat = Chat(version).stream(parts)
    assert [part["text"] for part in chat.parts if part["type"] == "text"] == ["I let it work", "It is done"]
    assert [part["data"]["text"] for part in of(chat.parts, "data-tool-message")] == ["I look"]
    assert [part["id"] for part in of(chat.parts, "data-plan")] == ["c1"]
    spoken = ["data-tool-reasoning", "data-tool-text", "data-tool-text", "data-tool-discarded"]
    assert [part["type"] for part in chat.transient] == spoken


@both
def test_a_background_task_is_one_data_part_that_changes(version: Any) -> None:
    world = a_world()
    world.says(calls=[call("c1", "crawl", n=1)])
    world.feed(inp.CallProgressed(call_id="c1.task1", attempt=1, fraction=0.5, text="half"))
    world.feed(inp.CallPrinted(call_id="c1.task1", attempt=1, index=0, text="line"))
    world.says("I wait")
    world.task_returns("c1.task1", "42")
    world.says("done")
    parts = parts_of(events_of(world), version)
    reported = [(part["id"], part["data"]["status"]) for part in of(parts, "data-task")]
    assert reported == [("c1.task1", "running"), ("c1.task1", "running"), ("c1.task1", "succeeded")]
    chat = Chat(version).stream(parts)
    (part,) = of(chat.parts, "data-task")
    assert part["data"]["result"] == "42"
    assert [part["data"]["text"] for part in chat.transient] == ["line"]


@both
def test_a_failed_call_and_an_unknown_tool_are_errors(version: Any) -> None:
    world = a_world()
    world.says(calls=[call("c1", "read", n=1), call("c2", "nowhere")])
    world.raises("c1", "boom")
    chat = Chat(version).stream(parts_of(events_of(world), version))
    assert chat.tool("c1")["errorText"] == "boom"
    assert chat.tool("c2")["errorText"].startswith("There is no tool named 'nowhere'")
    assert chat.tool("c2")["type"] == "tool-nowhere"


@both
def test_a_call_that_waits_behind_an_approval_does_not_keep_the_client_from_answering(version: Any) -> None:
    """A part that is neither asked for nor done would keep `sendAutomaticallyWhen` from ever sending the answer."""
    world = a_world()
    world.says(calls=[call("c1", "vote"), call("c2", "read", n=1)])
    chat = Chat(version).stream(parts_of(events_of(world), version))
    assert list(shown(chat)) == ["c1"]
    chat.respond(world.ticket("c1").ticket_id, True)
    assert chat.answered()


# --- approvals -------------------------------------------------------------------------------------------------------


def two_approvals() -> World:
    world = a_world()
    world.says("may I?", calls=[call("c1", "pay", n=1), call("c2", "peek", n=2)])
    return world


@both
def test_a_waiting_run_ends_the_stream_after_the_requests(version: Any) -> None:
    world = two_approvals()
    parts = parts_of(events_of(world), version)
    check_stream(parts, version, message_id="r")
    chat = Chat(version).stream(parts)
    check_message(chat.message, ended=False)
    assert chat.reason == "tool-calls"
    assert [tool["approval"] for tool in chat.tools()] == [{"id": "r.t1"}, {"id": "r.t2"}]
    tickets = [part["data"] for part in of(chat.parts, "data-ticket")]
    assert [ticket["ticketId"] for ticket in tickets] == ["r.t1", "r.t2"]
    assert {ticket["answer"] for ticket in tickets} == {"approval"}
    assert tickets[0]["fingerprint"] == world.ticket("c1").fingerprint
    assert tickets[0]["arguments"] == {"n": 1}
    assert of(chat.parts, "data-run")[0]["data"]["status"] == "waiting"
    assert chat.tool_calls == [], "no call is the page's to run"


@both
@pytest.mark.parametrize("forget", [False, True])
def test_decisions_continue_the_message_with_what_is_new_only(version: Any, forget: bool) -> None:
    world = two_approvals()
    chat = Chat(version).stream(parts_of(events_of(world), version))
    chat.respond("r.t1", True, "fine")
    assert not chat.answered()
    chat.respond("r.t2", False, "too much")
    assert chat.answered()
    answers = seen(chat).answers
    assert [(answer.ticket_id, answer.kind, answer.reason) for answer in answers] == [
        ("r.t1", "approved", "fine"),
        ("r.t2", "denied", "too much"),
    ]
    world.decide("r.t1")
    world.decide("r.t2", "cancel")
    world.returns("c1", "paid")
    world.says("done")
    parts = resumed(chat, events_of(world), forget=forget)
    check_message(chat.message, ended=True, reported=not forget or version == "v7")
    assert chat.texts() == "may I?done"
    assert [tool["state"] for tool in chat.tools()] == ["output-available", "output-denied"]
    assert chat.tool("c1")["approval"]["approved"] is True
    assert "tool-input-available" not in kinds(parts)
    assert kinds(parts)[:2] == ["start", "data-run"]
    assert kinds(parts).count("start-step") == kinds(parts).count("finish-step") == 1
    statuses = [part["data"]["status"] for part in of(chat.parts, "data-ticket")]
    assert statuses == ["approved", "denied"]
    assert not chat.answered()
    assert not chat.completed()


@both
def test_a_partial_answer_leaves_the_other_request_as_the_user_has_it(version: Any) -> None:
    """What is still open is not asked again: the user may have answered it while the stream continued."""
    world = two_approvals()
    chat = Chat(version).stream(parts_of(events_of(world), version))
    chat.respond("r.t1", True)
    world.decide("r.t1")
    world.returns("c1")
    parts = resumed(chat, events_of(world))
    assert "tool-approval-request" not in kinds(parts)
    assert chat.reason == "tool-calls"
    assert [tool["state"] for tool in chat.tools()] == ["output-available", "approval-requested"]


@both
def test_an_answer_that_was_not_taken_is_asked_for_again(version: Any) -> None:
    world = two_approvals()
    chat = Chat(version).stream(parts_of(events_of(world), version))
    chat.respond("r.t1", True)
    chat.respond("r.t2", True)
    world.decide("r.t1")
    world.returns("c1")
    parts = resumed(chat, events_of(world))
    assert [part["approvalId"] for part in of(parts, "tool-approval-request")] == ["r.t2"]
    assert chat.tool("c2")["state"] == "approval-requested"


@both
def test_a_replay_asks_only_what_is_open(version: Any) -> None:
    """The client may keep the message of a replay: no part holds a request that was answered long ago."""
    world = two_approvals()
    world.decide("r.t2", "cancel")
    chat = Chat(version).stream(parts_of(events_of(world), version))
    check_message(chat.message, ended=False)
    states = {tool["toolCallId"]: tool["state"] for tool in chat.tools()}
    assert states == {"c1": "approval-requested", "c2": "output-denied" if version == "v7" else "output-error"}
    world.decide("r.t1")
    world.returns("c1")
    world.says("done")
    chat = Chat(version).stream(parts_of(events_of(world), version))
    check_message(chat.message, ended=True)
    assert chat.tool("c1")["output"] == "ok"


@both
def test_a_client_that_comes_late_gets_all_that_it_has_missed(version: Any) -> None:
    """Another client has decided, and the run has continued to its end: the message is completed all the same."""
    world = two_approvals()
    chat = Chat(version).stream(parts_of(events_of(world), version))
    world.decide("r.t1", "cancel")
    world.decide("r.t2")
    world.returns("c2")
    world.says("done")
    chat.respond("r.t1", True)
    resumed(chat, events_of(world))
    check_message(chat.message, ended=True, reported=version == "v7")
    assert chat.texts() == "may I?done"
    assert shown(chat) == {"c1": ("failed", None), "c2": ("output", "ok")}
    assert not chat.answered()


@both
def test_a_reader_that_lost_a_tool_part_gets_it_again(version: Any) -> None:
    world = two_approvals()
    chat = Chat(version).stream(parts_of(events_of(world), version))
    chat.respond("r.t2", True)
    chat.parts.remove(chat.tool("c1"))
    world.decide("r.t1")
    world.decide("r.t2")
    world.returns("c1")
    world.returns("c2")
    resumed(chat, events_of(world))
    assert shown(chat) == {"c1": ("output", "ok"), "c2": ("output", "ok")}


@both
def test_an_approval_that_expires_or_is_withdrawn_is_open_no_more(version: Any) -> None:
    world = a_world()
    world.says(calls=[call("c1", "read"), call("c2", "pay")])
    world.suspends("c1", Suspend(expires_after=30.0))
    chat = Chat(version).stream(parts_of(events_of(world), version))
    world.tick(40)
    world.cancel()
    world.stopped()
    chat_after = Chat(version).stream(parts_of(events_of(world), version))
    resumed(chat, events_of(world))
    for one in (chat, chat_after):
        check_message(one.message, ended=True, reported=one is chat_after or version == "v7")
        assert {how for how, _ in shown(one).values()} == {"failed"}


@both
def test_a_call_that_asks_twice_holds_the_newest_request(version: Any) -> None:
    world = a_world()
    world.says(calls=[call("c1", "pay", n=1)])
    chat = Chat(version).stream(parts_of(events_of(world), version))
    chat.respond("r.t1", True)
    world.decide("r.t1")
    world.suspends("c1", Suspend(message="really?"))
    resumed(chat, events_of(world))
    check_message(chat.message, ended=False)
    assert chat.tool("c1")["approval"] == {"id": "r.t2"}
    assert chat.reason == "tool-calls"


# --- nested calls ----------------------------------------------------------------------------------------------------


MAY = Suspend(message="may it?")


def a_program(*tools: str, beside: Sequence[Any] = ()) -> World:
    """A call `c1` whose body makes nested calls; people must allow each of them, and each call `beside` it."""
    world = World(AgentSpec(key="a", tools=TOOLS, hooked=frozenset({Phase.TOOL_GATE})))
    world.says("I let it work.", calls=[*beside, call("c1", "write", n=1)])
    for other in beside:
        world.phase(Phase.TOOL_GATE, other.call_id, verdict=MAY)
    world.phase(Phase.TOOL_GATE, "c1", verdict=Allow())
    for tool in tools:
        asks(world, tool)
    return world


def asks(world: World, tool: str) -> None:
    """The body of `c1` makes a nested call that a person must allow."""
    world.nests("c1", tool, arguments={"n": 1})
    (name,) = (key[-1] for key in world.outstanding if key[0] == "phase")
    world.phase(Phase.TOOL_GATE, name, verdict=MAY)


def allow(world: World, ticket: str, name: str) -> None:
    """A person allows a nested call, and the body does its work."""
    world.decide(ticket)
    world.phase(Phase.TOOL_GATE, name, verdict=Allow())
    world.feed(inp.NestedEnded(call_id=name, result="ran", shown="ran"))


@both
def test_the_answers_to_nested_calls_are_sent_though_their_parent_has_no_output(version: Any) -> None:
    """v7: the parent's part shows that the call was approved; v6: the requests have a step of their own."""
    world = a_program("Bash", "Write")
    chat = Chat(version).stream(parts_of(events_of(world), version))
    check_rest(chat, of_calls=True)
    asked = {"c1.1": "approval-requested", "c1.2": "approval-requested"}
    assert states_of(chat) == {"c1": "input-available" if version == "v6" else "approval-responded", **asked}
    assert newest(chat) == (["c1.1", "c1.2"] if version == "v6" else ["c1", "c1.1", "c1.2"])
    assert chat.tool("c1.1")["callProviderMetadata"] == {"greenroom": {"parentCallId": "c1"}}
    chat.respond("r.t1", True)
    chat.respond("r.t2", False, "not there")
    assert chat.answered()
    assert [answer.ticket_id for answer in seen(chat).answers if answer.ticket_id != "c1"] == ["r.t1", "r.t2"]
    allow(world, "r.t1", "c1.1")
    world.decide("r.t2", "cancel", reason="not there")
    world.returns("c1", "worked")
    world.says("done")
    resumed(chat, events_of(world))
    check_message(chat.message, ended=True)
    assert states_of(chat) == {"c1": "output-available", "c1.1": "output-available", "c1.2": "output-denied"}
    assert not chat.answered()


@both
def test_a_nested_call_that_asks_after_another_one_is_asked_beside_it(version: Any) -> None:
    """The step of the message that the first request has begun serves the later ones, too."""
    world = a_program("Bash", "Write")
    chat = Chat(version).stream(parts_of(events_of(world), version))
    chat.respond("r.t1", True)
    allow(world, "r.t1", "c1.1")
    asks(world, "Edit")
    parts = resumed(chat, events_of(world))
    assert "start-step" not in kinds(parts)
    assert newest(chat)[-3:] == ["c1.1", "c1.2", "c1.3"]
    check_rest(chat, of_calls=True)


@both
def test_a_request_of_another_call_is_asked_beside_those_of_nested_calls(version: Any) -> None:
    world = a_program("Bash", beside=[call("c0", "write", n=1)])
    world.nests("c1", suspend=Suspend(message="which?", resume_mode="use_decision_as_tool_result"))
    chat = Chat(version).stream(parts_of(events_of(world), version))
    check_rest(chat, of_calls=True)
    assert {"c0", "c1.2", "c1.3"} <= set(newest(chat))
    chat.respond("r.t2", False)
    chat.output("c1.3", "red")
    world.decide("r.t2", "cancel")
    world.decide("r.t3", "resume", "red")
    world.returns("c1")
    resumed(chat, events_of(world))
    chat.respond("r.t1", True)
    assert chat.answered()


@both
def test_a_request_from_before_the_nested_calls_is_asked_beside_them(version: Any) -> None:
    """v6: the call gets another part, since the client reads those of the newest step only."""
    world = a_program(beside=[call("c0", "write", n=1)])
    world.suspends("c1", Suspend(resume_mode="pass_decision_to_tool"))
    chat = Chat(version).stream(parts_of(events_of(world), version))
    assert states_of(chat) == {"c0": "approval-requested", "c1": "input-available"}
    chat.output("c1", {"n": 2})
    world.decide("r.t2", "resume", {"n": 2})
    world.phase(Phase.TOOL_GATE, "c1", verdict=Allow())
    asks(world, "Bash")
    resumed(chat, events_of(world))
    check_rest(chat, of_calls=True)
    assert set(newest(chat)) == {"c0", "c1.2"} | ({"c1"} if version == "v7" else set())


@both
def test_a_parent_call_that_a_crash_has_cut_asks_in_the_newest_step(version: Any) -> None:
    world = a_program("Bash")
    chat = Chat(version).stream(parts_of(events_of(world), version))
    chat.respond("r.t1", True)
    world.crash()
    resumed(chat, events_of(world))
    check_rest(chat, of_calls=True)
    parts = [tool["state"] for tool in chat.tools() if tool["toolCallId"] == "c1"]
    assert parts == (["output-error", "approval-requested"] if version == "v6" else ["approval-requested"])
    chat.respond("r.t2", True)
    assert chat.answered()


@both
def test_a_call_whose_child_run_was_denied_something_may_succeed(version: Any) -> None:
    """The client shows no output of a call that was denied; the denied one was another."""
    world = a_world()
    world.says(calls=[call("c1", "write", n=1)])
    fields: dict[str, Any] = {"tool": "pay", "arguments": {}, "fingerprint": "f", "resume_mode": "replay_tool_call"}
    mirror: dict[str, Any] = {"reason": "child_approval", "child_run_id": "child_1", "child_ticket_id": "child_1.t1"}
    asked = ev.ApprovalRequested(ticket_id="r.t1", call_id="c1", **mirror, **fields)
    denied = ev.ApprovalResolved(ticket_id="r.t1", call_id="c1", resolution="denied", by="ann")
    before = len(world.store.events)
    world.returns("c1", "paid otherwise")
    created, *drafts = world.store.events
    mirrored = [EventDraft("run.approval.requested", asked), EventDraft("run.approval.resolved", denied)]
    log = [EventDraft("run.created", created), *drafts[: before - 1], *mirrored, *drafts[before - 1 :]]
    chat = Chat(version).stream(parts_of(encoded(world, log), version))
    check_message(chat.message, ended=False, reported=version == "v7")
    assert chat.tool("c1")["output"] == "paid otherwise"


@both
def test_a_call_that_waits_for_a_child_run_alone_makes_the_client_send_nothing(version: Any) -> None:
    """The question of the child run is answered by a command: no part of the message asks for anything."""
    world = a_world()
    world.says(calls=[call("c1", "write", n=1)])
    fields: dict[str, Any] = {
        "tool": "write",
        "arguments": {},
        "fingerprint": "f",
        "resume_mode": "pass_decision_to_tool",
    }
    mirror: dict[str, Any] = {"reason": "child_approval", "child_run_id": "child_1", "child_ticket_id": "child_1.t1"}
    drafts = [
        EventDraft("run.approval.requested", ev.ApprovalRequested(ticket_id="r.t1", call_id="c1", **mirror, **fields)),
        EventDraft("run.waiting", ev.RunWaiting(source="running", to="needs_approval", by="engine", tickets=("r.t1",))),
    ]
    chat = Chat(version).stream(parts_of([*events_of(world), *encoded(world, drafts)], version))
    assert not chat.answered()
    assert not chat.completed()


def newest(chat: Chat) -> list[str]:
    """The calls whose parts are in the newest step of the message."""
    return [part["toolCallId"] for part in chat.step() if "toolCallId" in part]


def states_of(chat: Chat) -> dict[str, str]:
    return {tool["toolCallId"]: tool["state"] for tool in chat.tools()}


# --- tickets that want a value ---------------------------------------------------------------------------------------

WANT = Suspend(message="which?", resume_mode="use_decision_as_tool_result", response_schema={"type": "object"})


@both
def test_a_ticket_that_wants_a_value_leaves_the_call_to_the_client(version: Any) -> None:
    world = a_world()
    world.says(calls=[call("c1", "read", n=1)])
    world.suspends("c1", WANT)
    parts = parts_of(events_of(world), version)
    check_stream(parts, version, message_id="r")
    chat = Chat(version).stream(parts)
    check_message(chat.message, ended=False)
    assert chat.tool_calls == ["c1"], "onToolCall is told"
    (ticket,) = of(chat.parts, "data-ticket")
    assert (ticket["data"]["answer"], ticket["data"]["responseSchema"]) == ("output", {"type": "object"})
    assert not chat.completed()
    chat.output("c1", {"city": "Kyiv"})
    assert chat.completed()
    (answer,) = seen(chat).answers
    assert (answer.ticket_id, answer.kind, answer.value) == ("r.t1", "output", {"city": "Kyiv"})
    world.decide("r.t1", "resume", {"city": "Kyiv"})
    world.says("there")
    resumed(chat, events_of(world))
    check_message(chat.message, ended=True)
    assert chat.tool("c1")["output"] == {"city": "Kyiv"}
    assert not chat.completed(), "nothing is sent by itself any more"


@both
def test_a_replay_leaves_no_answered_call_to_the_client(version: Any) -> None:
    """onToolCall is a side effect of the page: it must not happen again for what has been answered."""
    world = a_world()
    world.says(calls=[call("c1", "read", n=1)])
    world.suspends("c1", WANT)
    world.decide("r.t1", "resume", {"city": "Kyiv"})
    chat = Chat(version).stream(parts_of(events_of(world), version))
    assert chat.tool_calls == []


@both
def test_an_output_that_makes_the_body_run_again_is_none_of_the_calls(version: Any) -> None:
    """What the client gave is in the part until the body runs; then the part is set back."""
    world = a_world()
    world.says(calls=[call("c1", "read", n=1)])
    world.suspends("c1", Suspend(resume_mode="pass_decision_to_tool"))
    chat = Chat(version).stream(parts_of(events_of(world), version))
    chat.output("c1", {"n": 2})
    world.decide("r.t1", "resume", {"n": 2})
    world.suspends("c1", Suspend(message="sure?"))
    resumed(chat, events_of(world))
    check_message(chat.message, ended=False)
    assert chat.tool("c1")["state"] == "approval-requested"
    assert seen(chat).answers == ()


@both
def test_a_denied_value_and_a_value_wanted_after_an_approval_are_legal(version: Any) -> None:
    world = a_world()
    world.says(calls=[call("c1", "pay", n=1)])
    chat = Chat(version).stream(parts_of(events_of(world), version))
    chat.respond("r.t1", True)
    world.decide("r.t1")
    world.suspends("c1", WANT)
    resumed(chat, events_of(world))
    check_message(chat.message, ended=False)
    assert chat.tool("c1")["approval"] == {"id": "r.t2"}
    chat.respond("r.t2", False)
    world.decide("r.t2", "cancel")
    resumed(chat, events_of(world))
    check_message(chat.message, ended=False)
    fresh = Chat(version).stream(parts_of(events_of(world), version))
    check_message(fresh.message, ended=False)


@both
def test_an_unknown_outcome_is_asked_as_an_approval_and_takes_an_output(version: Any) -> None:
    world = a_world()
    world.says(calls=[call("c1", "write", n=1)])
    world.crash()
    chat = Chat(version).stream(parts_of(events_of(world), version))
    check_message(chat.message, ended=False)
    (ticket,) = of(chat.parts, "data-ticket")
    assert (ticket["data"]["reason"], ticket["data"]["answer"]) == ("outcome_unknown", "approval")
    assert chat.tool("c1")["state"] == "approval-requested"
    chat.output("c1", "it was written")
    (answer,) = seen(chat).answers
    assert (answer.ticket_id, answer.kind, answer.value) == ("r.t1", "output", "it was written")


@both
def test_a_ticket_of_the_run_itself_is_a_data_part(version: Any) -> None:
    world = a_world()
    fields: dict[str, Any] = {"tool": "", "arguments": {}, "fingerprint": "f", "resume_mode": "replay_tool_call"}
    asked = ev.ApprovalRequested(ticket_id="r.t9", call_id=None, reason="manual_pause", **fields)
    reported = ev.ApprovalResolved(ticket_id="r.t9", call_id=None, resolution="approved", by="ann", reason="go")
    drafts = [EventDraft("run.approval.requested", asked), EventDraft("run.approval.resolved", reported)]
    first, second = encoded(world, drafts)
    parts = parts_of([*events_of(world), first], version)
    (ticket,) = of(parts, "data-ticket")
    assert (ticket["data"]["answer"], ticket["data"]["status"]) == ("command", "open")
    chat = Chat(version).stream(parts_of([*events_of(world), first, second], version))
    (ticket,) = of(chat.parts, "data-ticket")
    assert (ticket["data"]["status"], ticket["data"]["by"], ticket["data"]["decisionReason"]) == (
        "approved",
        "ann",
        "go",
    )


@both
def test_a_pause_ends_the_stream_without_a_question_and_the_next_one_continues(version: Any) -> None:
    world = a_world()
    world.pause("lunch")
    world.says(calls=[call("c1", "read", n=1)])
    world.returns("c1")
    events = events_of(world)
    parts = parts_of(events, version)
    check_stream(parts, version, message_id="r")
    chat = Chat(version).stream(parts)
    assert (chat.reason, chat.answered(), chat.completed()) == ("other", False, False)
    (notice,) = of(parts, "data-notice")
    assert (notice["data"]["event"], notice["data"]["reason"]) == ("run.pause.requested", "lunch")
    assert [part["data"]["status"] for part in of(parts, "data-run")][-1] == "waiting"
    world.decide("r.t1", result="go")
    world.says("done")
    resumed(chat, events_of(world))
    assert chat.texts() == "done"
    assert [part["data"]["text"] for part in of(chat.parts, "data-input")] == ["go"]


@both
def test_an_early_decision_meets_its_ticket_in_one_commit(version: Any) -> None:
    world = World(AgentSpec(key="a", tools=TOOLS, max_bodies=1))
    world.says(calls=[call("c1", "read", n=1), call("c2", "read", n=2)])
    world.decide("c2")
    world.returns("c1")
    world.suspends("c2", Suspend())
    world.returns("c2")
    chat = Chat(version).stream(parts_of(events_of(world), version))
    assert shown(chat) == {"c1": ("output", "ok"), "c2": ("output", "ok")}


# --- every life ------------------------------------------------------------------------------------------------------


def life(spec: AgentSpec, mode: Any, seed: int, moves: int) -> World:
    world = World(spec, execution=mode)
    Chaos(world, seed).play(moves)
    return world


def check_whole(world: World, events: Sequence[Event], version: Any) -> Chat:
    """The whole run as one stream: it keeps the rules, and tells what the log tells."""
    parts = parts_of(events, version)
    check_stream(parts, version, message_id="r")
    chat = Chat(version).stream(parts)
    check_message(chat.message, ended=True)
    completed = [event.payload for event in events if event.type == "run.message.completed"]
    said = [payload["text"] for payload in completed if "callId" not in payload]  # not those of a body
    assert chat.texts() == "".join(said)
    for call_id, row in world.store.calls.items():
        how, output = shown(chat)[call_id]
        assert how == ("output" if row.status == "succeeded" else "failed")
        assert how == "failed" or output in (row.result, row.shown)
    return chat


def check_rest(chat: Chat, *, of_calls: bool) -> None:
    """At rest the message may be kept, and the last answer that it asks for makes the client send by itself.

    If only the run itself is held, the message asks for nothing.
    """
    check_message(chat.message, ended=False, reported=chat.version == "v7")
    assert chat.reason == ("tool-calls" if of_calls else "other")
    copied = Chat(chat.version, copy.deepcopy(chat.message))
    assert not copied.answered()
    assert not copied.completed()
    if not of_calls:
        return
    for tool in copied.tools():
        if tool["state"] == "approval-requested":
            copied.respond(tool["approval"]["id"], True)
        elif tool["state"] == "input-available" and not tool["providerExecuted"]:
            copied.output(tool["toolCallId"], "output")
    assert copied.answered() or copied.completed()


def check_split(events: Sequence[Event], at: int, whole: Chat, answer: bool) -> None:
    """A stream that ends after `at` events, and its continuation, come to the same message as the whole one."""
    chat = Chat(whole.version).stream(parts_of(events[:at], whole.version))
    assert seen(chat).sequence == at
    if events[at - 1].type == "run.waiting":
        of_run = {e.payload["ticketId"] for e in events if e.payload.get("callId", "") is None}
        check_rest(chat, of_calls=not of_run.issuperset(events[at - 1].payload["tickets"]))
    resolved = {e.payload["ticketId"]: e.payload for e in events[at:] if e.type == "run.approval.resolved"}
    for one in chat.tools() if answer else ():
        reported = resolved.get(one.get("approval", {}).get("id"), {"resolution": "open"})
        if reported["resolution"] in ("approved", "denied"):
            chat.respond(one["approval"]["id"], reported["resolution"] == "approved")
    resumed(chat, events)
    check_message(chat.message, ended=True, reported=whole.version == "v7")
    assert chat.texts() == whole.texts()
    assert shown(chat) == shown(whole)
    assert not chat.answered()
    assert not chat.completed()


@pytest.mark.slow
@both
@settings(max_examples=max(10, settings.default.max_examples // 4))
@given(
    spec=specs,
    mode=st.sampled_from(list(MODES)),
    seed=st.integers(0, 2**32 - 1),
    moves=st.integers(0, 120),
    data=st.data(),
)
def test_every_life_is_a_legal_stream_wherever_it_is_cut(
    version: Any, spec: AgentSpec, mode: Any, seed: int, moves: int, data: Any
) -> None:
    world = life(spec, mode, seed, moves)
    events = events_of(world)
    note("\n".join(f"{event.sequence} {event.type} {dict(event.payload)}" for event in events))
    whole = check_whole(world, events, version)
    rests = [event.sequence for event in events if event.type == "run.waiting"]
    points = st.one_of(st.integers(1, len(events)), *([st.sampled_from(rests)] if rests else []))
    for at in data.draw(st.lists(points, min_size=1, max_size=4)):
        check_split(events, at, whole, data.draw(st.booleans()))
