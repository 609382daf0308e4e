"""Nested calls: the seven rules, each at the machine, where every moment can be chosen."""

from typing import Any

import pytest

from greenroom.actors.contract.calls import CallPosition, CallStatus
from greenroom.actors.contract.codec import dump
from greenroom.actors.contract.decisions import Allow, Block, Deny, SetResult, Suspend
from greenroom.actors.contract.lifecycle import Stage
from greenroom.actors.contract.phases import Phase
from greenroom.actors.contract.policies import BudgetPolicy, Policies
from greenroom.actors.contract.spec import MODES, AgentSpec, ToolSpec
from greenroom.actors.contract.stop import LoopDetection, StopOnTool
from greenroom.actors.engine import inputs as inp
from greenroom.actors.engine import nested

from .world import World, call

CODER, SAFE = ToolSpec(name="coder"), ToolSpec(name="safe", replay_safe=True)
TOOLS = {tool.name: tool for tool in (CODER, SAFE, ToolSpec(name="pay", effect="publish", gate="always"))}
MAY = Suspend(message="may it?", reason="tool_permission")
COLOUR = Suspend(message="colour?", resume_mode="use_decision_as_tool_result")


def coding(*, tool: str = "coder", mode: Any = None, gated: bool = True, **spec: Any) -> World:
    """A run whose first call, `c`, is in its body."""
    hooked = frozenset({Phase.TOOL_GATE}) if gated else frozenset[Phase]()
    world = World(AgentSpec(key="a", tools=TOOLS, hooked=hooked, **spec), execution=mode)
    world.says(calls=[call("c", tool)])
    if gated:
        world.phase(Phase.TOOL_GATE, "c", verdict=Allow())
    return world


def parked(**more: Any) -> tuple[World, int]:
    """The same, and a nested call `c.1` waits for a decision."""
    world = coding(**more)
    ask = world.nests("c", effect="shell", arguments={"command": "make"}, editable=True)
    world.phase(Phase.TOOL_GATE, "c.1", verdict=MAY)
    return world, ask


# --- 1: no tool, gates of plugins, edits -----------------------------------------------------------------------------


def test_a_nested_call_has_no_tool_even_if_its_name_is_that_of_a_tool() -> None:
    world = coding(gated=False)
    ask = world.nests("c", tool="pay", effect="publish")
    assert world.nested(ask).arguments == {}  # needs_approval is the tool's, not the name's
    assert world.store.calls["c.1"].at is CallPosition.BODY


@pytest.mark.parametrize("editable", [True, False])
def test_a_decision_edits_the_arguments_if_the_body_says_so(editable: bool) -> None:
    world = coding()
    ask = world.nests("c", arguments={"command": "make"}, editable=editable)
    world.phase(Phase.TOOL_GATE, "c.1", verdict=MAY)
    answer = world.decide("c.1", edited_arguments={"anything": 1})
    assert answer.code == (None if editable else "invalid_arguments")
    if editable:
        world.phase(Phase.TOOL_GATE, "c.1", verdict=Allow())
        assert world.nested(ask).arguments == {"anything": 1}


@pytest.mark.parametrize("editable", [True, False])
def test_a_gate_takes_a_result_for_arguments_only_from_a_body_that_takes_others(editable: bool) -> None:
    world = coding()
    ask = world.nests("c", arguments={"command": "make"}, editable=editable)
    world.phase(Phase.TOOL_GATE, "c.1", verdict=Suspend(resume_mode="pass_decision_to_tool"))
    assert world.decide("c.1", result={"command": "test"}).ok
    world.phase(Phase.TOOL_GATE, "c.1", verdict=Allow())
    assert world.nested(ask).arguments == {"command": "test" if editable else "make"}


# --- 2: final verdicts, no place, no supersede -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verdict", "status"),
    [(Deny("no"), "failed"), (SetResult("yes"), "succeeded"), (SetResult("no", code="x"), "failed")],
)
def test_a_verdict_about_a_nested_call_is_final(verdict: Any, status: str) -> None:
    world = coding(mode="parallel_streaming")
    ask = world.nests("c")
    world.phase(Phase.TOOL_GATE, "c.1", verdict=verdict)
    answer = world.nested(ask)
    assert (answer.arguments, answer.status) == (None, status)
    assert answer.text == getattr(verdict, "text", None) or answer.text == verdict.value


@pytest.mark.parametrize("mode", MODES)
def test_nested_calls_take_no_place_of_the_mode(mode: str) -> None:
    world = coding(mode=mode, max_bodies=1)
    asks = [world.nests("c", tool="Bash"), world.nests("c", tool="Write", effect="write")]
    for name in ("c.1", "c.2"):
        world.phase(Phase.TOOL_GATE, name, verdict=Allow())
    assert [world.nested(ask).call_id for ask in asks] == ["c.1", "c.2"]


def test_an_exclusive_call_holds_no_nested_call_back() -> None:
    tools = {"coder": ToolSpec(name="coder", concurrency="exclusive"), "deploy": ToolSpec(name="deploy")}
    world = World(AgentSpec(key="a", tools=tools))
    world.says(calls=[call("c", "coder"), call("d", "deploy")])
    ask = world.nests("c", tool="coder")
    assert world.nested(ask).arguments == {}
    assert world.statuses()["d"] == "new"


def test_new_input_supersedes_no_nested_call() -> None:
    world, ask = parked(on_new_input="supersede")
    world.send("and this")
    assert world.ticket("c.1").status == "open"
    world.decide("c.1")
    world.phase(Phase.TOOL_GATE, "c.1", verdict=Allow())
    assert world.nested(ask).arguments == {"command": "make"}


# --- 3: the answer after the durable start, and every other end ------------------------------------------------------


def test_the_body_hears_yes_after_the_start_is_durable() -> None:
    world = coding()
    world.lazy = True
    ask = world.nests("c")
    world.phase(Phase.TOOL_GATE, "c.1", verdict=Allow())
    assert ask not in world.replies
    world.ack_all()
    assert "run.tool.started" in world.types()[-1:]
    assert world.nested(ask).arguments == {}


def test_a_denial_is_the_answer_and_the_body_goes_on() -> None:
    world, ask = parked()
    world.decide("c.1", "cancel", result="use the other one")
    answer = world.nested(ask)
    assert (answer.arguments, answer.status, answer.text) == (None, CallStatus.CANCELLED, "use the other one")
    assert answer.decision is not None
    assert world.row.stage is Stage.RUNNING
    world.returns("c")
    assert world.statuses() == {"c": "succeeded", "c.1": "cancelled"}


def test_an_expiry_is_the_answer() -> None:
    world = coding()
    ask = world.nests("c")
    world.phase(Phase.TOOL_GATE, "c.1", verdict=Suspend(expires_after=60))
    world.tick(61)
    assert world.nested(ask).status is CallStatus.CANCELLED
    assert "expired" in world.nested(ask).text


def test_a_block_ends_the_run() -> None:
    world = coding()
    world.nests("c")
    world.phase(Phase.TOOL_GATE, "c.1", verdict=Block("never"))
    world.stopped()
    assert world.statuses() == {"c": "cancelled", "c.1": "failed"}
    assert world.last().code == "permission_denied"


def test_a_body_that_does_not_await_the_answer_withdraws_the_call() -> None:
    world, ask = parked()
    world.feed(inp.NestedDropped(ask=ask, parent="c"))
    assert world.ticket("c.1").status == "withdrawn"
    assert ask not in world.replies
    assert world.row.stage is Stage.RUNNING
    assert world.statuses()["c.1"] == "cancelled"


# --- 4: no message, no step, but the budget --------------------------------------------------------------------------


def test_a_nested_call_joins_no_message() -> None:
    world, _ = parked()
    world.decide("c.1", "cancel")
    world.returns("c", "done")
    assert world.tool_texts() == {"c": "done"}


def test_a_nested_call_counts_in_no_step() -> None:
    stop = (LoopDetection(2), StopOnTool("Bash"))
    world = coding(gated=False, stop=stop, tool_use="stop_on_first_tool")
    world.nests("c")
    world.feed(inp.NestedEnded(call_id="c.1", result="of Bash", shown="of Bash"))
    world.returns("c", "of coder")
    assert world.last().output == "of coder"


def test_loop_detection_sees_the_calls_of_the_model_only() -> None:
    world = World(AgentSpec(key="a", tools=TOOLS, stop=(LoopDetection(2),)))
    for number, name in enumerate(("c", "d")):
        world.says(calls=[call(name, "coder")])
        world.nests(name, arguments={"n": number})
        world.feed(inp.NestedEnded(call_id=f"{name}.1", code="tool_error"))
        world.returns(name)
    assert world.last().code == "loop_detection"
    assert world.row.counters.errors == 0


def test_a_nested_call_counts_in_the_budget() -> None:
    world = coding(gated=False, policies=Policies(budget=BudgetPolicy(tool_calls=2)))
    asks = [world.nests("c"), world.nests("c")]
    assert world.nested(asks[0]).arguments == {}
    assert asks[1] not in world.replies
    world.stopped()
    assert world.last().code == "budget_exhausted"


# --- 5: rest and stages ----------------------------------------------------------------------------------------------


def test_the_run_rests_while_a_body_waits_for_a_decision() -> None:
    world, _ = parked()
    assert world.row.stage is Stage.NEEDS_APPROVAL
    assert world.row.restless
    assert world.ticket("c.1").live
    assert world.store.events[-1].payload.tickets == ("r.t1",)
    world.decide("c.1")
    world.phase(Phase.TOOL_GATE, "c.1", verdict=Allow())
    assert world.row.stage is Stage.APPLYING  # the effect of the nested call
    world.feed(inp.NestedEnded(call_id="c.1", shown="done"))
    assert world.row.stage is Stage.RUNNING
    assert not world.row.restless


def test_one_waiting_and_one_working_nested_call_do_not_rest() -> None:
    world, _ = parked()
    world.nests("c", effect="read")
    world.phase(Phase.TOOL_GATE, "c.2", verdict=Allow())
    assert world.row.stage is Stage.RUNNING
    world.feed(inp.NestedEnded(call_id="c.2"))
    assert world.row.stage is Stage.NEEDS_APPROVAL


# --- 6: the end of the parent ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["returns", "raises", "suspends"])
def test_a_nested_call_ends_before_its_parent(end: str) -> None:
    world, _ = parked()
    world.nests("c", tool="Write")
    world.phase(Phase.TOOL_GATE, "c.2", verdict=Allow())
    getattr(world, end)("c")
    ended = [event.payload.call_id for event in world.store.events[1:] if event.type == "run.tool.result"]
    assert ended[:2] == ["c.1", "c.2"]
    assert [(world.store.calls[name].status, world.store.calls[name].code) for name in ("c.1", "c.2")] == [
        ("cancelled", "cancelled"),
        ("failed", "outcome_unknown"),
    ]
    assert world.ticket("c.1").status == "withdrawn"
    assert not world.row.nested


def test_a_cancel_names_the_nested_call_that_was_at_work() -> None:
    world, _ = parked()
    world.nests("c", tool="Write")
    world.phase(Phase.TOOL_GATE, "c.2", verdict=Allow())
    world.cancel()
    world.stopped()
    assert world.statuses() == {"c": "cancelled", "c.1": "cancelled", "c.2": "failed"}
    assert world.last().outcome_unknown == ("c.2",)
    world.check_end()


def test_a_crash_ends_nested_calls_before_people_are_asked_about_the_parent() -> None:
    world, ask = parked()
    world.nests("c", tool="Write")
    world.phase(Phase.TOOL_GATE, "c.2", verdict=Allow())
    world.crash()
    assert [(world.store.calls[name].status, world.store.calls[name].code) for name in ("c.1", "c.2")] == [
        ("cancelled", "owner_lost"),
        ("failed", "outcome_unknown"),
    ]
    assert world.ticket("c.1").decision_reason is not None
    assert world.ticket("c.1").decision_reason.startswith("owner_lost")
    assert ask not in world.replies  # a body of another process may have asked under the same number
    assert world.ticket("c").reason == "outcome_unknown"
    assert not world.ticket("c").live
    assert world.decide("r.t1").code == "already_decided"
    requested = [e.payload.ticket_id for e in world.store.events[1:] if e.type == "run.approval.requested"]
    resolved = [e.payload.ticket_id for e in world.store.events[1:] if e.type == "run.approval.resolved"]
    assert (requested, resolved) == (["r.t1", "r.t2"], ["r.t1"])


def test_a_body_that_may_run_again_makes_other_nested_calls() -> None:
    world, _ = parked(tool="safe")
    world.crash()
    again = world.nests("c")
    world.phase(Phase.TOOL_GATE, "c.2", verdict=Allow())
    assert world.nested(again).call_id == "c.2"
    assert world.statuses() == {"c": "running", "c.1": "cancelled", "c.2": "running"}


def test_an_owner_that_gives_up_ends_them() -> None:
    world, _ = parked()
    world.lose_owner()
    world.feed(inp.FailUnrecoverable(detail="crashed three times"))
    world.stopped()
    assert world.statuses() == {"c": "cancelled", "c.1": "cancelled"}
    assert world.last().code == "internal_error"


# --- 7: seen work ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verdict", [MAY, Deny("no"), Block("never"), SetResult(1)])
def test_nothing_stops_work_that_was_only_seen(verdict: Any) -> None:
    world = coding()
    for number in (1, 2):
        ask = world.nests("c", tool="Bash", seen=True)
        world.phase(Phase.TOOL_GATE, f"c.{number}", verdict=verdict)
        assert world.nested(ask).arguments == {}
        world.feed(inp.NestedEnded(call_id=f"c.{number}"))
    reasons = [event.payload.reason for event in world.store.events[1:] if event.type == "run.degraded"]
    assert reasons == ["not_asked"]  # once per run and tool


# --- questions of a body ---------------------------------------------------------------------------------------------


def test_a_question_is_parked_without_gates_and_ends_with_the_decision() -> None:
    world = coding()
    ask = world.nests("c", suspend=COLOUR)
    assert (world.ticket("c.1").tool, world.ticket("c.1").live) == ("coder", True)
    assert world.row.stage is Stage.NEEDS_APPROVAL
    assert world.decide("c.1", edited_arguments={}).code == "invalid_arguments"
    assert world.decide("c.1", result="red", by="ada").ok
    answer = world.nested(ask)
    assert answer.decision is not None
    assert (answer.decision.result, answer.decision.decided_by, answer.status) == ("red", "ada", "succeeded")
    assert world.row.stage is Stage.RUNNING
    assert world.store.calls["c.1"].attempts == 0


# --- what is refused -------------------------------------------------------------------------------------------------


def test_a_call_that_has_ended_makes_no_nested_call() -> None:
    world = coding()
    world.returns("c")
    ask = world.nests("c")
    assert world.replies[ask].fault == nested.GONE


def test_a_background_task_makes_no_nested_call() -> None:
    world = World(AgentSpec(key="a", tools={"crawl": ToolSpec(name="crawl", background=True)}))
    world.says(calls=[call("c", "crawl")])
    ask = world.nests("c.task1", suspend=COLOUR)
    assert world.replies[ask].fault == nested.OF_A_TASK


def test_open_nested_calls_have_a_limit() -> None:
    world = coding(gated=False)
    asks = [world.nests("c") for _ in range(nested.MAX_OPEN + 1)]
    assert [world.replies[ask].fault is None for ask in asks[-2:]] == [True, False]
    world.feed(inp.NestedEnded(call_id="c.1"))
    assert world.replies[world.nests("c")].fault is None


def test_the_nested_calls_of_a_step_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nested, "MAX_NESTED", 2)
    world = coding(gated=False)
    for number in (1, 2):
        world.nests("c")
        world.feed(inp.NestedEnded(call_id=f"c.{number}"))
    assert "2 nested calls" in (world.replies[world.nests("c")].fault or "")


def test_a_run_without_nested_calls_writes_no_new_field() -> None:
    world = coding(gated=False)
    rows = dump(world.store.row) + dump(world.store.calls["c"])
    for name in (b"nested", b"not_asked", b"parent", b'ask"', b"editable", b"seen"):
        assert name not in rows
