"""Reports of a body, at the machine: messages, notes, the memo, usage, the code of a fatal failure, notes of gates."""

from typing import Any

import msgspec
import pytest

from greenroom.actors.contract.decisions import Allow, Deny, Suspend
from greenroom.actors.contract.messages import Usage
from greenroom.actors.contract.phases import Phase
from greenroom.actors.contract.policies import BudgetPolicy, Policies, Price
from greenroom.actors.contract.spec import AgentSpec, ToolSpec
from greenroom.actors.contract.work_events import NOTES
from greenroom.actors.engine import body_inputs as said
from greenroom.actors.engine import inputs as inp
from greenroom.actors.engine import reports

from .world import World, call

TOOLS = {
    tool.name: tool
    for tool in (
        ToolSpec(name="coder"),
        ToolSpec(name="safe", replay_safe=True),
        ToolSpec(name="pay", gate="always"),
        ToolSpec(name="later", background=True),
    )
}


def coding(tool: str = "coder", **spec: Any) -> World:
    """A run whose first call, `c`, is in its body."""
    world = World(AgentSpec(key="a", tools=TOOLS, **spec))
    world.says(calls=[call("c", tool)])
    return world


def spoken(world: World) -> list[tuple[str, str]]:
    """The events of the body's messages: the kind, and the text or the reason."""
    kinds = ("run.message", "run.reasoning")
    events = [event for event in world.store.events[1:] if event.type.startswith(kinds) and event.payload.call_id]
    return [(event.type, getattr(event.payload, "text", None) or event.payload.reason) for event in events]


# --- messages --------------------------------------------------------------------------------------------------------


def test_a_message_of_a_body_is_events_only() -> None:
    world = coding()
    world.tells(said.BodySpoke, "c", number=1, text="I ", reasoning="hm")
    world.tells(said.BodySpoke, "c", number=1, text="look", index=1)
    answer = world.tells(said.BodySpoke, "c", number=1, whole="I look")
    assert answer is not None
    assert answer.fault is None
    assert spoken(world) == [
        ("run.reasoning.delta", "hm"),
        ("run.message.delta", "I "),
        ("run.message.delta", "look"),
        ("run.message.completed", "I look"),
    ]
    world.returns("c", "done")
    assert [message.content for message in world.store.messages] == ["", "done"]


def test_the_body_hears_that_a_message_is_complete_when_that_is_durable() -> None:
    world = coding()
    world.lazy = True
    assert world.tells(said.BodySpoke, "c", number=1, whole="I look") is None
    world.ack_all()
    assert len(world.replies) == 1


def test_messages_of_two_attempts_have_different_ids() -> None:
    world = coding("safe")
    world.tells(said.BodySpoke, "c", number=1, whole="one")
    world.crash()
    world.tells(said.BodySpoke, "c", number=1, whole="one")
    world.tells(said.BodySpoke, "c", number=2, whole="two")
    ids = [event.payload.message_id for event in world.store.events[1:] if event.type == "run.message.completed"]
    assert len(set(ids)) == len(ids) == 3


@pytest.mark.parametrize("end", ["returns", "raises", "suspends"])
def test_an_incomplete_message_is_discarded_with_the_end_of_its_body(end: str) -> None:
    world = coding()
    world.tells(said.BodySpoke, "c", number=1, text="I lo")
    getattr(world, end)("c")
    assert spoken(world)[-1] == ("run.message.discarded", reports.BODY_ENDED)
    types = world.types()
    after = {"returns": "run.tool.result", "raises": "run.tool.result", "suspends": "run.tool.suspended"}[end]
    assert types.index("run.message.discarded") < types.index(after)


def test_a_message_whose_text_was_not_shown_needs_no_end() -> None:
    world = coding()
    world.tells(said.BodySpoke, "c", number=1, reasoning="hm")
    world.returns("c")
    assert spoken(world) == [("run.reasoning.delta", "hm")]


def test_a_crash_and_a_cancel_discard_an_incomplete_message() -> None:
    for end in ("crash", "cancel"):
        world = coding()
        world.tells(said.BodySpoke, "c", number=1, text="I lo")
        getattr(world, end)()
        if end == "cancel":
            world.stopped()
        assert spoken(world)[-1][0] == "run.message.discarded"


def test_a_large_message_is_an_excerpt() -> None:
    world = coding()
    world.tells(said.BodySpoke, "c", number=1, whole="x" * 300_000)
    (done,) = (event.payload for event in world.store.events[1:] if event.type == "run.message.completed")
    assert done.large


# --- notes -----------------------------------------------------------------------------------------------------------


def test_a_note_is_an_event_with_the_id_of_its_call() -> None:
    world = coding()
    entries = [{"text": "look", "status": "done"}]
    assert world.tells(said.BodyNoted, "c", type="run.plan.changed", payload={"entries": entries}) is not None
    event = world.store.events[-1]
    assert (event.type, event.payload.call_id, event.payload.entries) == ("run.plan.changed", "c", tuple(entries))
    degraded = {"reason": "untested_version", "detail": "9.9"}
    world.tells(said.BodyNoted, "c", type="run.degraded", payload=degraded)
    assert world.store.events[-1].payload.reason == "untested_version"


@pytest.mark.parametrize("name", NOTES)
def test_each_kind_of_note_can_be_made_of_plain_data(name: str) -> None:
    entries = [{"text": "t", "status": "s"}]
    values = {str: "x", int: 1, float: 1.0, "entries": entries, "which": "idle", "files": [], "status": "proposed"}
    fields = {
        field.encode_name: values.get(field.name, values.get(field.type, "x"))
        for field in msgspec.structs.fields(NOTES[name])
        if field.required and field.name != "call_id"
    }
    world = coding()
    assert world.tells(said.BodyNoted, "c", type=name, payload=fields) is not None
    assert type(world.store.events[-1].payload) is NOTES[name]


# --- the memo --------------------------------------------------------------------------------------------------------


def test_a_memo_is_durable_before_the_body_hears_of_it_and_in_no_event() -> None:
    world = coding()
    world.lazy = True
    before = len(world.store.events)
    assert world.tells(said.BodySaved, "c", memo={"session": "s1"}) is None
    world.ack_all()
    assert len(world.replies) == 1
    assert world.store.calls["c"].memo == {"session": "s1"}
    assert len(world.store.events) == before


def test_the_next_attempt_gets_the_newest_memo() -> None:
    world = coding("safe")
    assert world.running("c").memo is None
    world.tells(said.BodySaved, "c", memo=1)
    world.tells(said.BodySaved, "c", memo=[2])
    world.crash()
    assert world.running("c").memo == [2]


@pytest.mark.parametrize("decision", ["outcome_unknown", "suspended"])
def test_a_body_that_a_person_lets_run_again_gets_its_memo(decision: str) -> None:
    world = coding()
    world.tells(said.BodySaved, "c", memo="s1")
    if decision == "suspended":
        world.suspends("c")
    else:
        world.crash()
    world.decide("c")
    assert world.running("c").memo == "s1"


# --- late reports ----------------------------------------------------------------------------------------------------


REPORTS: list[tuple[Any, dict[str, Any]]] = [
    (said.BodySpoke, {"number": 1, "whole": "late"}),
    (said.BodyNoted, {"type": "run.degraded", "payload": {"reason": "late"}}),
    (said.BodySaved, {"memo": 1}),
]


@pytest.mark.parametrize(("make", "fields"), REPORTS)
def test_a_report_of_a_body_that_has_ended_is_refused_and_writes_nothing(make: Any, fields: dict[str, Any]) -> None:
    world = coding()
    world.returns("c")
    before = len(world.store.events)
    answer = world.asks(make, call_id="c", attempt=1, **fields)
    assert answer is not None
    assert answer.fault == reports.GONE
    assert len(world.store.events) == before


@pytest.mark.parametrize(("make", "fields"), REPORTS)
def test_a_report_of_an_earlier_attempt_is_refused(make: Any, fields: dict[str, Any]) -> None:
    world = coding("safe")
    world.crash()
    answer = world.asks(make, call_id="c", attempt=1, **fields)
    assert answer is not None
    assert answer.fault == reports.GONE
    assert world.state.calls["c"].memo is None


def test_text_of_a_body_that_has_ended_is_dropped() -> None:
    world = coding()
    world.returns("c")
    assert world.feed(said.BodySpoke(call_id="c", attempt=1, number=1, text="late")).commit is None


@pytest.mark.parametrize(("make", "fields"), REPORTS)
def test_a_background_task_reports_nothing(make: Any, fields: dict[str, Any]) -> None:
    world = coding("later")
    answer = world.tells(make, "c.task1", **fields)
    assert answer is not None
    assert answer.fault == reports.OF_A_TASK


# --- usage -----------------------------------------------------------------------------------------------------------


SPENT = (inp.Spent(by="coder", usage=Usage(requests=2, input=100, output=10), model="m:big"),)


@pytest.mark.parametrize("end", ["returns", "raises", "suspends", "refused"])
def test_what_a_body_has_used_joins_the_usage_of_the_run(end: str) -> None:
    world = coding()
    before = world.row.usage
    match end:
        case "returns":
            world.returns("c", usage=SPENT)
        case "raises":
            world.raises("c", usage=SPENT)
        case "suspends":
            world.answer(inp.CallSuspended(call_id="c", attempt=1, suspend=Suspend(message="?"), usage=SPENT))
        case "refused":
            world.answer(inp.ResultRefused(call_id="c", attempt=1, failure="it broke", usage=SPENT))
    assert world.row.usage == before + SPENT[0].usage
    (event,) = (event.payload for event in world.store.events[1:] if event.type == "run.usage.spent")
    assert (event.by, event.call_id, event.usage) == ("coder", "c", SPENT[0].usage)


def test_what_a_task_has_used_joins_the_usage_of_the_run() -> None:
    world = coding("later")
    before = world.row.usage
    world.answer(inp.CallReturned(call_id="c.task1", attempt=1, result=1, shown="1", usage=SPENT))
    assert world.row.usage == before + SPENT[0].usage


def test_what_a_body_has_used_counts_in_the_budget() -> None:
    free, dear = Price(input=0.0, output=0.0), Price(input=10_000.0, output=0.0)
    for budget in (BudgetPolicy(total=100), BudgetPolicy(cost=0.5, prices=(("", free), ("m:big", dear)))):
        world = coding(policies=Policies(budget=budget))
        world.returns("c", usage=SPENT)
        assert world.last().code == "budget_exhausted"


# --- the code of a fatal failure -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("run_code", "code"), [(None, "tool_error"), ("runtime_unavailable", "runtime_unavailable")])
def test_a_fatal_failure_names_the_code_of_the_run(run_code: str | None, code: str) -> None:
    world = coding()
    world.raises("c", "not logged in", fatal=True, run_code=run_code)
    assert (world.last().code, world.last().message) == (code, "coder: not logged in")
    assert world.store.calls["c"].code == "tool_error"


def test_a_failure_that_is_not_fatal_ends_no_run() -> None:
    world = coding()
    world.raises("c", run_code="runtime_unavailable")
    assert not world.ended


def test_of_several_fatal_failures_the_first_call_names_the_code() -> None:
    world = World(AgentSpec(key="a", tools=TOOLS), execution="parallel_streaming")
    world.says(calls=[call("c", "coder"), call("d", "coder")])
    world.raises("d", fatal=True)
    world.feed(
        inp.CallRaised(call_id="c", attempt=1, code="tool_error", shown="x", fatal=True, run_code="target_offline")
    )
    world.stopped()
    assert world.last().code == "target_offline"


def test_a_fatal_failure_of_a_task_names_the_code_of_the_run() -> None:
    world = coding("later")
    world.answer(
        inp.CallRaised(
            call_id="c.task1", attempt=1, code="tool_error", shown="x", fatal=True, run_code="runtime_unavailable"
        )
    )
    if not world.ended:
        world.stopped()
    assert world.last().code == "runtime_unavailable"


# --- notes of gates --------------------------------------------------------------------------------------------------


NOTES_OF_GATES = (inp.Allowed(plugin="permission", note="rule 3"),)


def gated(tool: str = "coder") -> World:
    """A run whose first call waits for its gates."""
    world = World(AgentSpec(key="a", tools=TOOLS, hooked=frozenset({Phase.TOOL_GATE})))
    world.says(calls=[call("c", tool)])
    return world


def allowed(world: World) -> list[tuple[str, str, str]]:
    events = [event.payload for event in world.store.events[1:] if event.type == "run.gate.allowed"]
    return [(event.call_id, event.plugin, event.note) for event in events]


def test_a_call_that_passes_says_which_rule_let_it_pass() -> None:
    world = gated()
    world.phase(Phase.TOOL_GATE, "c", verdict=Allow(), allowed=NOTES_OF_GATES)
    assert allowed(world) == [("c", "permission", "rule 3")]
    assert world.types().index("run.gate.allowed") < world.types().index("run.tool.started")


def test_a_note_about_a_call_that_does_not_pass_is_not_reported() -> None:
    world = gated()
    world.phase(Phase.TOOL_GATE, "c", verdict=Deny("no"), allowed=NOTES_OF_GATES)
    assert allowed(world) == []


def test_a_note_counts_once_the_tools_own_approval_is_given() -> None:
    world = gated("pay")
    world.phase(Phase.TOOL_GATE, "c", verdict=Allow(), allowed=NOTES_OF_GATES)
    assert allowed(world) == []
    world.decide("c")
    world.phase(Phase.TOOL_GATE, "c", verdict=Allow(), allowed=NOTES_OF_GATES)
    assert allowed(world) == [("c", "permission", "rule 3")]
