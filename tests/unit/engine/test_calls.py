"""The calls of one step, as scenarios: approvals, decisions, resume modes, execution modes."""

from typing import Any

import pytest

from greenroom.actors.contract import events as ev
from greenroom.actors.contract.decisions import Allow, Block, Decision, Deny, SetResult, Suspend, Ticket
from greenroom.actors.contract.excerpt import Large
from greenroom.actors.contract.lifecycle import RunStatus
from greenroom.actors.contract.messages import CallRequest
from greenroom.actors.contract.phases import Phase
from greenroom.actors.contract.spec import AgentSpec, ToolSpec
from greenroom.actors.engine import inputs as inp

from .world import World, call

GATED = frozenset({Phase.TOOL_GATE})


def even(arguments: Any) -> str | None:
    return None if arguments.get("n", 0) % 2 == 0 else "$.n: not even"


def agent(**more: Any) -> AgentSpec:
    tools = (
        ToolSpec(name="look", replay_safe=True),
        ToolSpec(name="pay", effect="publish", gate="always"),
        ToolSpec(name="write", effect="write"),
        ToolSpec(name="perhaps", gate="ask"),
        ToolSpec(name="even", check=even),
        ToolSpec(name="first", concurrency="ordered"),
        ToolSpec(name="sign", gate="always", concurrency="ordered"),
        ToolSpec(name="alone", concurrency="exclusive"),
    )
    return AgentSpec(key="a", tools={tool.name: tool for tool in tools}, **more)


def world(*calls: CallRequest, execution: Any = "sequential", **more: Any) -> World:
    """A run whose model has asked for these calls."""
    w = World(agent(**more), execution=execution)
    w.says(calls=calls)
    return w


A, B, C = call("A", "pay", n=1), call("B", "pay", n=2), call("C", "look")


# --- the seed's timeline ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["sequential", "parallel_streaming"])
def test_two_approvals_and_a_free_call_make_the_status_run_wait_run_wait_run(mode: str) -> None:
    w = world(A, B, C, execution=mode)
    column = [(w.row.status, tuple(w.statuses().values()))]
    for act in (
        lambda: w.returns("C"),
        lambda: w.decide("A"),
        lambda: w.returns("A"),
        lambda: w.decide("B"),
    ):
        act()
        column.append((w.row.status, tuple(w.statuses().values())))
    assert column == [
        (RunStatus.RUNNING, ("suspended", "suspended", "running")),
        (RunStatus.WAITING, ("suspended", "suspended", "succeeded")),
        (RunStatus.RUNNING, ("running", "suspended", "succeeded")),
        (RunStatus.WAITING, ("succeeded", "suspended", "succeeded")),
        (RunStatus.RUNNING, ("succeeded", "running", "succeeded")),
    ]
    w.returns("B")
    w.says("done")
    w.check_end()


def test_in_batch_approval_the_first_decision_waits_for_the_second() -> None:
    w = world(A, B, C, execution="parallel_batch_approval")
    w.returns("C")
    w.decide("A")
    assert (w.row.status, w.statuses()["A"]) == (RunStatus.WAITING, "suspended")
    assert w.ticket("A").status == "approved"
    w.decide("B")
    assert (w.row.status, w.statuses()["A"], w.statuses()["B"]) == (RunStatus.RUNNING, "running", "running")


def test_run_waiting_names_open_tickets_only() -> None:
    w = world(A, B, C, execution="parallel_batch_approval")
    w.decide("A")
    w.returns("C")
    assert w.last().tickets == (w.ticket("B").ticket_id,)


def test_a_decision_acts_while_a_sibling_still_runs() -> None:
    w = world(A, C, execution="parallel_streaming")
    w.decide("A")
    assert w.statuses() == {"A": "running", "C": "running"}


@pytest.mark.parametrize("first", ["A", "B"])
def test_a_denied_call_is_reported_to_the_model_and_the_other_continues(first: str) -> None:
    w = world(A, B)
    other = "B" if first == "A" else "A"
    w.decide(first, "cancel", reason="too dear")
    w.decide(other)
    w.returns(other)
    assert w.statuses() == {first: "cancelled", other: "succeeded"}
    assert "denied this call: too dear" in w.tool_texts()[first]
    w.says("fine")
    w.check_end()


def told_in_house(ticket: Ticket, decision: Decision) -> str:
    return f"{ticket.tool} {dict(ticket.arguments)} is {ticket.status} by {decision.decided_by}: {decision.reason}"


def test_the_text_of_a_denial_takes_precedence_over_the_agents_formatter() -> None:
    w = world(A, B, denial=told_in_house)
    w.decide("A", "cancel", "Ask the customer first.", reason="not yet")
    w.decide("B", "cancel", reason="too dear")
    assert w.tool_texts() == {"A": "Ask the customer first.", "B": "pay {'n': 2} is denied by ann: too dear"}
    assert w.statuses() == {"A": "cancelled", "B": "cancelled"}
    w.says("fine")
    w.check_end()


@pytest.mark.parametrize("value", [None, 7, {"text": "no"}, ["no"]])
def test_a_denial_with_a_result_that_is_not_a_text_keeps_the_standard_text(value: Any) -> None:
    w = world(A)
    w.decide("A", "cancel", value, reason="no")
    assert w.tool_texts() == {"A": "The reviewer denied this call: no"}


@pytest.mark.parametrize("denial", [lambda *_: 1 / 0, lambda *_: None, lambda *_: b"no", lambda: "no"])
def test_a_formatter_that_fails_leaves_an_event_and_the_sentence(denial: Any) -> None:
    w = world(A, denial=denial)
    w.decide("A", "cancel", reason="no")
    assert w.tool_texts() == {"A": "The reviewer denied this call: no"}
    (degraded,) = [event.payload for event in w.store.events[1:] if event.type == "run.degraded"]
    assert (degraded.reason, "r.t1" in degraded.detail) == ("denial_failed", True)
    w.says("fine")
    w.check_end()


# --- resume modes ----------------------------------------------------------------------------------------------------


def parked(suspend: Suspend, tool: str = "write", **arguments: Any) -> World:
    """A run whose only call's body has suspended."""
    w = world(call("A", tool, **(arguments or {"n": 2})))
    w.suspends("A", suspend)
    return w


def test_replay_runs_the_body_again_with_the_same_arguments() -> None:
    w = parked(Suspend(resume_mode="replay_tool_call"))
    w.decide("A", result="yes")
    again = w.running("A")
    assert (again.attempt, again.arguments) == (2, {"n": 2})
    assert again.decision is not None
    assert again.decision.result == "yes"


def test_a_decision_as_result_ends_the_call_without_its_body() -> None:
    w = parked(Suspend(resume_mode="use_decision_as_tool_result"))
    w.decide("A", result={"approved": True})
    assert (w.statuses()["A"], w.store.calls["A"].result) == ("succeeded", {"approved": True})
    assert w.tool_texts()["A"] == '{"approved":true}'
    assert not w.parked


def test_a_passed_decision_is_the_arguments() -> None:
    w = parked(Suspend(resume_mode="pass_decision_to_tool"), "even")
    assert w.decide("A", result="text").code == "invalid_arguments"
    assert w.decide("A", result={"n": 3}).code == "invalid_arguments"
    w.decide("A", result={"n": 4})
    assert (w.running("A").attempt, w.running("A").arguments) == (2, {"n": 4})


def test_edited_arguments_are_checked_run_and_are_reported() -> None:
    w = parked(Suspend(), "even")
    before = w.ticket("A").fingerprint
    assert w.decide("A", edited_arguments={"n": 1}).code == "invalid_arguments"
    w.decide("A", edited_arguments={"n": 6})
    assert w.running("A").arguments == {"n": 6}
    assert w.store.calls["A"].fingerprint != before
    assert w.store.calls["A"].requested.arguments == {"n": 2}
    w.returns("A", "done")
    assert w.tool_texts()["A"] == "(The arguments were changed to {'n': 6} before the call ran.)\ndone"
    resolved = [e.payload for e in w.store.events[1:] if e.type == "run.approval.resolved"]
    assert [payload.edited for payload in resolved] == [True]
    resumed = [e.payload for e in w.store.events[1:] if e.type == "run.tool.resumed"]
    assert [payload.arguments for payload in resumed] == [{"n": 6}]


def test_edited_arguments_pass_the_gates_again_and_may_be_refused_there() -> None:
    w = world(call("A", "write", n=2), hooked=GATED)
    w.phase(Phase.TOOL_GATE, "A", verdict=Suspend())
    w.decide("A", edited_arguments={"n": 9})
    w.phase(Phase.TOOL_GATE, "A", verdict=SetResult("too much", code="permission_denied"))
    assert w.statuses() == {"A": "failed"}
    assert w.store.calls["A"].attempts == 0


def test_suspending_again_makes_a_new_ticket() -> None:
    w = parked(Suspend(message="first"))
    first = w.ticket("A").ticket_id
    w.decide(first)
    w.suspends("A", Suspend(message="second"))
    assert w.ticket("A").ticket_id != first
    assert w.decide(first).code == "already_decided"
    w.decide(w.ticket("A").ticket_id)
    assert w.running("A").attempt == 3


def test_a_call_has_one_tool_message_however_often_it_suspends() -> None:
    w = parked(Suspend())
    for _ in range(3):
        w.decide("A")
        w.suspends("A")
    w.decide("A")
    w.returns("A")
    w.says("done")
    w.check_end()


# --- expiry and denial -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("on_expiry", "status", "shown"),
    [("deny", "cancelled", "no decision came in time"), (SetResult({"d": 1}), "succeeded", '{"d":1}')],
)
def test_an_expired_ticket_denies_or_brings_its_own_result(on_expiry: Any, status: str, shown: str) -> None:
    w = parked(Suspend(expires_after=60.0, on_expiry=on_expiry))
    w.tick(59)
    assert w.row.status is RunStatus.WAITING
    w.tick(1)
    assert w.statuses() == {"A": status}
    assert shown in w.tool_texts()["A"]
    assert w.ticket("A").status == "expired"
    assert w.decide(w.ticket("A").ticket_id).code == "expired"
    w.says("on")
    w.check_end()


def test_an_expired_ticket_may_cancel_the_run() -> None:
    w = parked(Suspend(expires_after=60.0, on_expiry="cancel_run"))
    w.tick(60)
    w.stopped()
    assert w.row.stage == "cancelled"
    assert (w.last().code, w.last().reason) == ("approval_rejected", "an approval expired")


def test_a_denial_cancels_the_run_if_the_agent_says_so() -> None:
    w = world(A, B, on_deny="cancel_run")
    w.decide("A", "cancel", reason="no", by="eve")
    w.stopped()
    assert w.row.stage == "cancelled"
    assert (w.last().code, w.last().by, w.last().reason) == ("approval_rejected", "eve", "no")
    assert w.statuses() == {"A": "cancelled", "B": "cancelled"}
    assert w.ticket("B").status == "withdrawn"
    w.check_end()


# --- new input -------------------------------------------------------------------------------------------------------


def test_queued_input_waits_for_the_next_step() -> None:
    w = world(A)
    w.send("hurry")
    assert w.row.status is RunStatus.WAITING
    w.decide("A")
    w.returns("A")
    assert [m.content for m in w.store.messages][-1] == "hurry"
    w.says("done")
    w.check_end()


def test_superseding_input_withdraws_the_open_tickets() -> None:
    w = world(A, B, on_new_input="supersede")
    w.send("forget it")
    assert w.statuses() == {"A": "cancelled", "B": "cancelled"}
    assert {t.status for t in w.store.tickets.values()} == {"withdrawn"}
    assert "superseded" in w.tool_texts()["A"]
    assert w.row.status is RunStatus.RUNNING
    w.says("forgotten")
    w.check_end()


def test_superseding_input_leaves_decided_calls_alone() -> None:
    w = world(A, B, execution="parallel_batch_approval", on_new_input="supersede")
    w.decide("A")
    w.send("and?")
    assert w.statuses() == {"A": "running", "B": "cancelled"}


# --- early decisions -------------------------------------------------------------------------------------------------


def test_an_early_decision_acts_when_the_ticket_is_made() -> None:
    w = world(call("A", "write"))
    assert w.decide("A", reason="go on").code == "early"
    w.suspends("A")
    assert w.running("A").attempt == 2
    assert w.types()[-4:] == ["run.approval.requested", "run.approval.resolved", "run.tool.resumed", "run.tool.started"]


def test_an_early_decision_that_does_not_fit_is_refused_and_the_ticket_stays_open() -> None:
    w = world(call("A", "write"))
    w.decide("A", result="text")
    w.suspends("A", Suspend(response_schema={"type": "object"}))
    assert w.last().tickets == (w.ticket("A").ticket_id,)
    refused = [e.payload for e in w.store.events[1:] if e.type == "run.decision.refused"]
    assert [payload.code for payload in refused] == ["invalid_result"]
    assert w.decide("A", result={}).status == "accepted"


def test_an_early_decision_is_judged_also_if_the_ticket_overtakes_it() -> None:
    """It was accepted before the ticket was durable, and is consumed after the ticket was made."""
    w = world(call("A", "write"))
    w.lazy = True
    w.suspends("A", Suspend(response_schema={"type": "object"}))
    assert w.decide("A", result="text").code == "early"
    w.ack_all()
    assert w.statuses() == {"A": "suspended"}
    assert w.store.fold.consequences["d1"] == 1


def test_an_early_decision_that_was_not_requested_is_recorded_as_unused() -> None:
    w = world(call("A", "write"))
    w.decide("A")
    w.returns("A")
    w.says("done")
    refused = [e.payload for e in w.store.events[1:] if e.type == "run.decision.refused"]
    assert [(payload.command_id, payload.code) for payload in refused] == [("d1", "unused")]


def test_a_decision_may_come_while_the_hooks_before_the_calls_run() -> None:
    w = World(agent(hooked=frozenset({Phase.AFTER_INFERENCE})))
    w.says(calls=[A])
    assert w.decide("A").code == "early"
    w.phase(Phase.AFTER_INFERENCE)
    assert w.statuses() == {"A": "running"}


@pytest.mark.parametrize(
    ("action", "arguments", "status"),
    [("resume", {"n": 9}, "suspended"), ("resume", {"n": 1}, "running"), ("cancel", {"n": 9}, "cancelled")],
)
def test_an_early_approval_is_bound_to_the_arguments_before_an_edit(action: str, arguments: Any, status: str) -> None:
    """A hook edits the call after a person approved it: that was not for these arguments. A denial is one of any."""
    w = World(agent(hooked=frozenset({Phase.AFTER_INFERENCE})))
    w.says(calls=[A, C])
    w.decide("A", action)
    w.phase(Phase.AFTER_INFERENCE, edits=(inp.CallEdit(call_id="A", by="p", arguments=arguments),))
    assert w.statuses()["A"] == status
    refused = [e.payload.code for e in w.store.events[1:] if e.type == "run.decision.refused"]
    assert refused == (["fingerprint_mismatch"] if status == "suspended" else [])


def test_an_early_approval_does_not_answer_whether_a_crashed_call_took_effect() -> None:
    w = world(call("A", "write"))
    w.decide("A")
    w.crash()
    assert w.ticket("A").reason == "outcome_unknown"
    assert w.ticket("A").status == "open"


# --- gates -----------------------------------------------------------------------------------------------------------


def test_a_block_fails_its_call_cancels_the_others_and_ends_the_run() -> None:
    w = world(call("A", "pay"), call("B", "write"), hooked=GATED, execution="parallel_streaming")
    w.phase(Phase.TOOL_GATE, "A", verdict=Suspend())
    w.phase(Phase.TOOL_GATE, "B", verdict=Block("forbidden"))
    w.stopped()
    assert w.statuses() == {"A": "cancelled", "B": "failed"}
    assert w.ticket("A").status == "withdrawn"
    assert (w.last().termination, w.last().code) == ("blocked", "permission_denied")
    w.check_end()


@pytest.mark.parametrize(
    ("second", "status"), [(Allow(), "running"), (SetResult("no", code="x"), "failed"), (Deny("no"), "failed")]
)
def test_a_verdict_behind_calls_that_have_not_run_is_provisional(second: Any, status: str) -> None:
    w = world(call("A", "look"), call("B", "write"), hooked=GATED)
    w.phase(Phase.TOOL_GATE, "A", verdict=Allow())
    w.phase(Phase.TOOL_GATE, "B", verdict=Block("not before A"))
    assert w.statuses() == {"A": "running", "B": "new"}
    w.returns("A")
    w.phase(Phase.TOOL_GATE, "B", verdict=second)
    assert w.statuses() == {"A": "succeeded", "B": status}


def test_a_gate_that_allows_does_not_replace_the_approval_that_a_tool_needs() -> None:
    w = world(A, hooked=GATED)
    w.phase(Phase.TOOL_GATE, "A", verdict=Allow())
    assert w.statuses() == {"A": "suspended"}
    w.decide("A")
    w.phase(Phase.TOOL_GATE, "A")
    assert w.statuses() == {"A": "running"}


def test_a_predicate_is_asked_and_not_asked_again_after_the_approval() -> None:
    w = world(call("A", "perhaps"))
    w.phase(Phase.TOOL_GATE, "A", verdict=Suspend(reason="tool_permission"))
    w.decide("A")
    assert w.statuses() == {"A": "running"}


# --- order -----------------------------------------------------------------------------------------------------------


def test_in_sequential_mode_a_suspended_body_keeps_later_calls_new() -> None:
    w = world(call("A", "write"), C)
    w.suspends("A")
    assert w.statuses() == {"A": "suspended", "C": "new"}
    w.decide("A")
    w.returns("A")
    assert w.statuses() == {"A": "succeeded", "C": "running"}


def test_in_sequential_mode_an_approved_call_does_not_wait_for_another_approval() -> None:
    """Else the run would be running although nothing moves, and no reader would learn that it waits."""
    w = world(call("A", "write"), B)
    w.suspends("A")
    w.decide("B")
    assert w.statuses() == {"A": "suspended", "B": "running"}


def test_in_parallel_modes_others_continue() -> None:
    w = world(call("A", "write"), C, execution="parallel_streaming")
    w.suspends("A")
    assert w.statuses() == {"A": "suspended", "C": "running"}
    assert w.row.status is RunStatus.RUNNING


def test_ordered_calls_run_one_at_a_time_beside_shared_ones() -> None:
    w = world(call("A", "first"), call("B", "first"), C, execution="parallel_streaming")
    assert w.statuses() == {"A": "running", "B": "new", "C": "running"}
    w.returns("A")
    assert w.statuses()["B"] == "running"


def test_an_approved_call_out_of_turn_stays_held_and_the_run_waits() -> None:
    w = world(call("A", "sign"), call("B", "sign"), execution="parallel_streaming")
    w.decide("B")
    assert (w.row.status, w.statuses()) == (RunStatus.WAITING, {"A": "suspended", "B": "suspended"})
    w.decide("A")
    assert w.statuses() == {"A": "running", "B": "suspended"}
    w.returns("A")
    assert w.statuses() == {"A": "succeeded", "B": "running"}


def test_an_exclusive_call_waits_for_earlier_calls_and_blocks_later_calls() -> None:
    w = world(C, call("D", "alone"), call("E", "look"), execution="parallel_streaming")
    assert w.statuses() == {"C": "running", "D": "new", "E": "new"}
    w.returns("C")
    assert w.statuses() == {"C": "succeeded", "D": "running", "E": "new"}
    w.returns("D")
    assert w.statuses()["E"] == "running"


def test_the_cap_bounds_bodies_and_suspended_calls_hold_no_slot() -> None:
    calls = [call(name, "look") for name in "ABCD"]
    w = world(*calls, execution="parallel_streaming", max_bodies=2)
    assert list(w.statuses().values()) == ["running", "running", "new", "new"]
    w.suspends("A")
    assert list(w.statuses().values()) == ["suspended", "running", "running", "new"]


# --- what the model asks for -----------------------------------------------------------------------------------------


def test_an_unknown_tool_is_reported_to_the_model() -> None:
    w = world(call("A", "nowhere"))
    assert w.store.calls["A"].code == "unknown_tool"
    assert "There is no tool named 'nowhere'" in w.tool_texts()["A"]
    w.says("sorry")
    w.check_end()


def test_an_unknown_tool_may_fail_the_run() -> None:
    w = world(call("A", "nowhere"), C, on_unknown_tool="raise")
    assert (w.row.stage, w.last().code) == ("failed", "model_behavior_error")
    w.check_end()


def test_invalid_arguments_are_reported_and_the_body_does_not_run() -> None:
    w = world(call("A", "even", n=3))
    assert (w.store.calls["A"].code, w.store.calls["A"].attempts) == ("invalid_arguments", 0)
    assert w.tool_texts()["A"] == "$.n: not even"


def test_the_same_call_twice_runs_once() -> None:
    w = world(C, C)
    assert list(w.statuses()) == ["C"]


def test_two_calls_under_one_id_fail_the_run_before_any_effect() -> None:
    w = world(C, call("C", "write"))
    assert (w.row.stage, w.last().code) == ("failed", "model_behavior_error")
    assert not w.store.calls
    assert w.store.row.usage.input == 10


def test_ids_are_unique_in_the_run_and_the_providers_own_is_kept() -> None:
    w = world(C, call("", "look"))
    assert list(w.statuses()) == ["C", "call#2"]
    w.returns("C")
    w.returns("call#2")
    w.says(calls=[C])
    assert list(w.statuses())[-1] == "C#2"
    assert w.store.calls["C#2"].requested.provider_id == "C"


def test_a_body_that_streams_and_ends_is_reported_in_order() -> None:
    w = world(call("A", "write"))
    w.feed(inp.CallProgressed(call_id="A", attempt=1, fraction=0.5))
    w.feed(inp.CallPrinted(call_id="A", attempt=1, index=0, text="line"))
    w.returns("A")
    assert [t for t in w.types() if t.startswith("run.tool")] == [
        "run.tool.call",
        "run.tool.started",
        "run.tool.progress",
        "run.tool.output.delta",
        "run.tool.result",
    ]


def test_a_large_result_stays_in_the_row_and_is_shown_short() -> None:
    w = world(call("A", "write"))
    w.answer(inp.CallReturned(call_id="A", attempt=1, result="x" * 100, shown="x...", large=True))
    result = next(e.payload for e in w.store.events[1:] if isinstance(e.payload, ev.ToolResult))
    assert (w.store.calls["A"].result, result.result) == ("x" * 100, Large("x" * 100))  # cut where it is redacted
    assert w.tool_texts()["A"] == "x..."


def test_a_decision_about_a_body_question_is_passed_to_the_body_and_is_not_an_approval() -> None:
    """A body that asks before it acts must not take the approval of its call for the answer."""
    w = world(A)
    w.decide("A")
    assert w.running("A").decision is None
    for answer in (1, 2):
        w.suspends("A")
        w.decide("A", result=answer)
        decision = w.running("A").decision
        assert decision is not None
        assert decision.result == answer
    w.crash()
    w.decide("A")  # the question whether it took effect
    decision = w.running("A").decision
    assert decision is not None
    assert decision.result == 2
