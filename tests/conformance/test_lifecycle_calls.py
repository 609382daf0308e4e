"""Rules of a tool call: which status follows which, what a ticket shows, and the three ways to continue after it."""

from itertools import pairwise
from typing import Any

import attrs
import pytest

import greenroom as gr
from greenroom.actors.contract.calls import CALLS
from greenroom.actors.contract.casing import camel
from greenroom.actors.contract.ids import fingerprint
from greenroom.actors.tools.marks import definition_mark
from greenroom.testing import call

from ..support.scene_plugins import gate
from ..support.scene_tools import pay
from ..support.scenes import Scene, after, approve, cancel, decide, deny, restart

A, B, C = call("pay", id="A"), call("sign", id="B"), call("look", id="C")
RESULT, ARGUMENTS = "use_decision_as_tool_result", "pass_decision_to_tool"

# --- the table -------------------------------------------------------------------------------------------------------


MOVES = {
    ("new", "running"): ("C", {"script": [[C], "done"]}),
    ("new", "suspended"): ("B", {"script": [[B], "done"]}),
    ("new", "failed"): ("X", {"script": [[call("nothing", id="X")], "done"]}),
    ("new", "cancelled"): (
        "Z",
        {"script": [[call("alone", id="C"), call("alone", id="Z")]], "do": [after(5, cancel())]},
    ),
    ("running", "suspended"): ("D", {"script": [[call("ask", id="D")], "done"]}),
    ("running", "succeeded"): ("C", {"script": [[C], "done"]}),
    ("running", "failed"): ("X", {"script": [[call("fails", id="X")], "done"]}),
    ("running", "cancelled"): ("C", {"script": [[C]], "do": [after(5, cancel())]}),
    ("suspended", "resuming"): ("B", {"script": [[B], "done"], "do": [approve("B")]}),
    ("suspended", "cancelled"): ("B", {"script": [[B], "done"], "do": [deny("B")]}),
    ("resuming", "running"): ("B", {"script": [[B], "done"], "do": [approve("B")]}),
    ("resuming", "succeeded"): (
        "D",
        {"script": [[call("ask", mode=RESULT, id="D")], "done"], "do": [approve("D", "so be it")]},
    ),
    ("resuming", "failed"): (
        "B",
        {
            "script": [[B], "done"],
            "do": [approve("B", edited_arguments={"cents": 9})],
            "plugins": [gate("x", lambda ctx: gr.Deny("too much") if ctx.arguments.get("cents") == 9 else None)],
        },
    ),
    ("new", "succeeded"): ("C", {"script": [[C], "done"], "plugins": [gate("x", gr.SetResult("so"))]}),
    ("resuming", "suspended"): (
        "C",
        {"script": [[C], "done"], "do": [approve("C")], "plugins": [gate("x", gr.Suspend(message="may it?"))]},
    ),
}
"""Move -> the call that makes it, and the scene."""

ONE_BODY = {("resuming", "cancelled"): "test_a_call_that_waits_for_its_turn_to_continue_is_cancelled_with_the_run"}


@pytest.mark.rule("L-6")
@pytest.mark.parametrize(("source", "target"), MOVES, ids=map(" to ".join, MOVES))
async def test_a_legal_move_is_made(play, autojump_clock, source, target):
    call_id, scene = MOVES[source, target]
    scene = dict(scene)
    life = await play(*scene.pop("script"), **scene)
    statuses = life.calls[call_id].split()
    assert (source, target) in pairwise(statuses), statuses


@pytest.mark.parametrize("mode", ["sequential"])
async def test_a_call_that_waits_for_its_turn_to_continue_is_cancelled_with_the_run(play, autojump_clock):
    """In sequential mode a decided call moves at once, but its body waits for the one that runs."""
    life = await play([B, C], do=[after(2, approve("B")), after(2, cancel())])
    assert life.calls == {"B": "new suspended resuming cancelled", "C": "new running cancelled"}
    assert life.effects == []


@pytest.mark.rule("L-6")
def test_every_legal_move_has_its_scene_or_its_reason():
    legal = {(source.value, target.value) for source, following in CALLS.items() for target in following}
    assert legal == {*MOVES, *ONE_BODY}
    assert set(ONE_BODY.values()) <= globals().keys()


# --- the end of a call -----------------------------------------------------------------------------------------------


async def test_a_failed_call_is_reported_to_the_model_and_the_run_continues(play, autojump_clock):
    life = await play([call("fails", id="X"), C], "done")
    assert life.codes == {"X": "tool_error", "C": None}
    assert life.tool_texts == {"X": "no luck", "C": "saw C"}
    assert life.path == "running completed"


@pytest.mark.rule("L-42")
async def test_arguments_are_checked_before_anything_happens(play, autojump_clock):
    life = await play([call("pay", cents="many", id="A"), C], "done")
    assert life.calls == {"A": "new failed", "C": "new running succeeded"}
    assert life.codes["A"] == "invalid_arguments"
    assert "cents" in life.tool_texts["A"]
    assert (life.effects, life.tickets) == (["C"], {})


async def test_an_unknown_tool_is_reported_with_those_that_are_known(play, autojump_clock):
    life = await play([call("nothing", id="X"), C], "done")
    assert (life.codes["X"], life.calls["C"]) == ("unknown_tool", "new running succeeded")
    assert "'nothing'" in life.tool_texts["X"]
    assert "look" in life.tool_texts["X"]


@pytest.mark.rule("L-41")
async def test_a_body_that_takes_too_long_is_ended_and_the_model_reads_why(play, autojump_clock):
    life = await play([call("hangs", id="X"), C], "done")
    assert (life.calls["X"], life.codes["X"]) == ("new running failed", "tool_timeout")
    assert life.seconds("tool.result", call_id="X") == 30.0
    assert "30 s" in life.tool_texts["X"]
    assert life.calls["C"] == "new running succeeded"
    assert life.scene.outside.running == []


async def test_call_ids_are_unique_in_the_run(play, autojump_clock):
    life = await play([C], [C], [call("look"), call("look")], "done")
    assert list(life.calls) == ["C", "C#2", "call#3", "call#4"]
    assert set(life.calls.values()) == {"new running succeeded"}


# --- tickets ---------------------------------------------------------------------------------------------------------


@pytest.mark.rule("L-7", "A-1", "A-9")
async def test_a_ticket_shows_exactly_what_would_happen(play, autojump_clock):
    life = await play([call("pay", cents=500, id="A")])
    (ticket,) = life.outcome.tickets
    assert (ticket.ticket_id, ticket.run_id, ticket.call_id) == ("r.t1", "r", "A")
    assert (ticket.tool, ticket.arguments, ticket.action) == ("pay", {"cents": 500}, "tool:pay")
    assert (ticket.reason, ticket.resume_mode, ticket.on_expiry) == ("tool_permission", "replay_tool_call", "deny")
    assert (ticket.expires_at, ticket.response_schema, ticket.status) == (None, None, "open")
    assert ticket.fingerprint == fingerprint("helper", "pay", {"cents": 500}, definition_mark(pay))
    assert ticket.requested_at == life.events[-1].timestamp


async def test_a_body_says_itself_what_its_ticket_shows(play, autojump_clock):
    schema = {"type": "string"}
    asking = {"mode": RESULT, "schema": schema, "expires": 90.0, "on_expiry": "cancel_run", "reviewers": ["ada"]}
    life = await play([call("ask", asking, id="D")])
    (ticket,) = life.outcome.tickets
    assert (ticket.reason, ticket.action, ticket.message) == ("user_input", "ask", "question 1")
    assert (ticket.parameters, ticket.resume_mode, ticket.response_schema) == ({"of": "D"}, RESULT, schema)
    assert (ticket.on_expiry, ticket.reviewers) == ("cancel_run", ("ada",))
    assert (ticket.expires_at - ticket.requested_at).total_seconds() == 90.0


async def test_the_event_of_a_ticket_holds_what_the_ticket_holds(play, autojump_clock):
    life = await play([call("ask", {"mode": RESULT, "schema": {"type": "string"}}, id="D")])
    (ticket,), (requested,) = life.outcome.tickets, life.payloads("approval.requested")
    for name in ("ticket_id", "call_id", "tool", "arguments", "fingerprint", "reason", "action", "message"):
        assert requested[camel(name)] == getattr(ticket, name), name
    assert (requested["resumeMode"], requested["responseSchema"]) == (RESULT, {"type": "string"})


@pytest.mark.rule("A-9")
async def test_a_fingerprint_is_of_the_action_and_not_of_the_call(play, autojump_clock):
    same, other = call("pay", cents=1, id="A2"), call("pay", cents=2, id="A3")
    life = await play([call("pay", cents=1, id="A1"), same, other, call("sign", cents=1, id="B")])
    marks = {ticket.call_id: ticket.fingerprint for ticket in life.outcome.tickets}
    assert marks["A1"] == marks["A2"]
    assert len(set(marks.values())) == 3


@pytest.mark.rule("L-7")
async def test_a_call_may_suspend_many_times_each_time_with_a_new_ticket(play, autojump_clock):
    life = await play(
        [call("ask", times=3, id="D"), C], "done", do=[approve("D"), approve("D"), approve("D", "at last")]
    )
    assert life.calls["D"] == f"new {'running suspended resuming ' * 3}running succeeded"
    assert life.tickets == {f"r.t{number}": ("user_input", "approved") for number in (1, 2, 3)}
    assert life.tool_texts["D"] == "told at last"
    assert [payload["message"] for payload in life.payloads("approval.requested")] == [
        f"question {n}" for n in (1, 2, 3)
    ]


@pytest.mark.rule("A-2")
async def test_a_predicate_decides_per_call_whether_an_approval_is_needed(play, autojump_clock):
    life = await play([call("spend", cents=1, id="S"), call("spend", cents=500, id="L")], "done", do=[approve("L")])
    assert life.calls == {"S": "new running succeeded", "L": "new suspended resuming running succeeded"}


async def test_an_approval_needs_no_second_one(play, autojump_clock):
    """The gate is asked again with the decision at hand: it was for exactly this action."""
    life = await play([A, call("spend", cents=500, id="L")], "done", do=[approve("A"), approve("L")])
    assert list(life.tickets.values()) == [("tool_permission", "approved")] * 2
    assert sorted(life.effects) == ["A", "L"]


# --- resume modes ----------------------------------------------------------------------------------------------------


@pytest.mark.rule("L-11", "A-18")
async def test_replay_runs_the_body_again_with_the_same_arguments_and_the_decision(play, autojump_clock):
    life = await play([call("ask", id="D"), C], "done", do=[approve("D", {"name": "Ada"})])
    assert life.scene.outside.decided == {"D": {"name": "Ada"}}
    assert [payload["attempt"] for payload in life.payloads("tool.started") if payload["callId"] == "D"] == [1, 2]
    assert life.tool_texts["D"] == "told {'name': 'Ada'}"


def _spoils(ctx: Any, arguments: Any) -> bool:
    arguments["order"]["items"].clear()
    return True


@gr.tool(needs_approval=_spoils)
async def spoil(ctx: gr.ToolContext[Any], order: dict[str, Any]) -> str:
    """Takes apart what it was given, once before and once after it has asked."""
    items = order.pop("items")
    found = f"{items} {ctx.decision.result.pop('answer') if ctx.decision else None}"
    items.clear()
    if ctx.attempt == 1:
        raise gr.Suspend(message=found)
    return found


@pytest.mark.parametrize("acts", [[], [restart]])
async def test_what_a_body_or_a_predicate_does_to_its_values_is_lost_with_them(play, autojump_clock, acts):
    """The next attempt has what the ticket shows, and what the next process would have."""
    yes = approve("S", {"answer": "yes"})
    life = await play([call("spoil", order={"items": [1]}, id="S")], "done", do=[yes, *acts, yes], tools=[spoil])
    shown = [(payload["message"], payload["arguments"]) for payload in life.payloads("approval.requested")]
    assert [arguments for _, arguments in shown] == [{"order": {"items": [1]}}] * 2
    assert (shown[1][0], life.tool_texts["S"]) == ("[1] None", "[1] yes")
    assert life.record.calls[0].arguments == {"order": {"items": [1]}}


async def test_who_looks_at_a_ticket_may_change_what_he_sees(play, autojump_clock):
    """To make other arguments of it, for example; that changes nothing but his own copy."""

    async def look(scene: Scene) -> None:
        (await scene.ticket("B")).arguments["cents"] = 99  # type: ignore[index]

    life = await play([call("sign", cents=1, id="B")], "done", do=[look, approve("B")])
    assert life.tool_texts["B"] == "signed 1"


@pytest.mark.rule("L-11", "A-19")
async def test_a_decision_as_result_is_the_result_and_the_body_does_not_run(play, autojump_clock):
    life = await play([call("ask", mode=RESULT, id="D"), C], "done", do=[approve("D", {"name": "Ada"})])
    assert life.calls["D"] == "new running suspended resuming succeeded"
    assert life.tool_texts["D"] == '{"name":"Ada"}'
    assert life.effects == ["C"]
    assert [payload["callId"] for payload in life.payloads("tool.started")].count("D") == 1


@pytest.mark.rule("L-11", "A-19")
async def test_a_passed_decision_becomes_the_arguments(play, autojump_clock):
    life = await play([call("ask", mode=ARGUMENTS, said="this", id="D")], "done", do=[approve("D", {"said": "that"})])
    assert life.scene.outside.started == [("D", 2, {"said": "that"})]
    assert life.tool_texts["D"].endswith("told that")
    assert life.requests[-1].messages[1].calls[0].arguments["said"] == "this"


@pytest.mark.parametrize("resume", ["replay_tool_call", RESULT, ARGUMENTS])
async def test_each_mode_says_in_its_event_how_it_continues(play, autojump_clock, resume):
    life = await play([call("ask", mode=resume, id="D")], "done", do=[approve("D", {"said": "yes"})])
    (resumed,) = life.payloads("tool.resumed")
    assert (resumed["mode"], resumed["ticketId"], resumed["status"]) == (resume, "r.t1", "resuming")


@pytest.mark.parametrize("resume", ["replay_tool_call", RESULT, ARGUMENTS])
async def test_each_mode_continues_in_another_process(play, autojump_clock, resume):
    life = await play([call("ask", mode=resume, id="D")], "done", do=[restart, approve("D", {"said": "yes"})])
    assert life.outcome.output == "done"
    assert life.tool_texts["D"].endswith(
        {RESULT: '{"said":"yes"}', ARGUMENTS: "told yes"}.get(resume, "{'said': 'yes'}")
    )


@pytest.mark.rule("L-14", "A-26")
async def test_a_denied_call_ends_and_the_model_reads_why(play, autojump_clock):
    life = await play([A, C], "done", do=[deny("A", "too dear")])
    assert (life.calls["A"], life.codes["A"]) == ("new suspended cancelled", "approval_rejected")
    assert "too dear" in life.tool_texts["A"]
    assert "suspended" not in life.tool_texts["A"]
    assert (life.effects, life.outcome.output) == (["C"], "done")


@pytest.mark.rule("L-14", "A-26")
@pytest.mark.parametrize(("text", "stage"), [("Ask first.", "completed"), (None, "cancelled")])
async def test_a_denial_with_a_text_for_the_model_goes_on_also_where_denials_end_runs(
    play, autojump_clock, text, stage
):
    life = await play([A], "done", do=[decide("r.t1", "cancel", result=text)], on_deny="cancel_run")
    assert (life.view.stage, life.effects) == (stage, [])
    assert life.tool_texts["A"] == text or text is None


# --- edited arguments ------------------------------------------------------------------------------------------------


@pytest.mark.rule("L-12")
async def test_edited_arguments_run_in_place_of_the_model_s(play, autojump_clock):
    life = await play([call("pay", cents=500, id="A")], "done", do=[approve("A", edited_arguments={"cents": 5})])
    assert life.scene.outside.started == [("A", 1, {"cents": 5})]
    assert life.payloads("approval.resolved")[0]["edited"] is True


@pytest.mark.rule("L-12")
async def test_the_history_keeps_the_model_s_call_and_says_that_it_was_edited(play, autojump_clock):
    life = await play([call("pay", cents=500, id="A")], "done", do=[approve("A", edited_arguments={"cents": 5})])
    assert life.requests[-1].messages[1].calls[0].arguments == {"cents": 500}
    assert "{'cents': 5}" in life.tool_texts["A"]
    assert life.tool_texts["A"].endswith("paid 5")


ANSWER = call("ask", id="A", mode="use_decision_as_tool_result")


@pytest.mark.rule("L-13")
@pytest.mark.parametrize("early", [False, True])
async def test_where_no_body_runs_no_arguments_can_be_edited(play, autojump_clock, early):
    wrong = decide("A", result="red", edited_arguments={"times": 2})
    acts = [after(5, wrong) if early else wrong, decide("A", result="blue")]
    asked = attrs.evolve(ANSWER, arguments={**ANSWER.arguments, "seconds": 10.0})
    life = await play([asked], "done", do=acts)
    assert life.tool_texts == {"A": "blue"}
    refused = [(payload["code"], payload["detail"]) for payload in life.payloads("decision.refused")]
    code, detail = refused[0] if early else (life.replies[0], life.scene.details[0])
    assert code.endswith("invalid_arguments")
    assert detail == "the decision's result is what A comes to: no body runs, so nothing can be edited"


async def test_the_arguments_of_a_lost_body_cannot_be_edited_when_a_result_is_given(play, autojump_clock):
    acts = [after(2, restart), decide("N", result="noted", edited_arguments={"what": "x"})]
    acts += [decide("N", edited_arguments={"what": "x"})]
    life = await play([call("note", id="N")], "done", do=acts)
    assert life.replies == ["rejected invalid_arguments", "accepted"]
    assert life.tool_texts["N"] == "(The arguments were changed to {'what': 'x'} before the call ran.)\nnoted x"


async def test_of_edited_arguments_that_did_not_run_the_model_is_not_reported_that_they_did(play, autojump_clock):
    """A body has run, but not with these."""
    verdict = gate("no", lambda ctx: gr.SetResult("no") if ctx.decision is not None else None)
    acts = [decide("A", edited_arguments={"times": 2})]
    life = await play([call("ask", id="A")], "done", do=acts, plugins=[verdict])
    assert life.tool_texts["A"] == "(The arguments were changed to {'times': 2}.)\nno"


@pytest.mark.rule("A-20")
async def test_edited_arguments_have_a_fingerprint_of_their_own(play, autojump_clock):
    life = await play([call("pay", cents=500, id="A")], "done", do=[approve("A", edited_arguments={"cents": 5})])
    (row,) = life.record.calls
    assert row.fingerprint == fingerprint("helper", "pay", {"cents": 5}, definition_mark(pay))
    assert row.fingerprint != life.payloads("approval.requested")[0]["fingerprint"]


async def test_who_edits_the_arguments_approves_them(play, autojump_clock):
    """500 cents need an approval and so would 300; the one who wrote 300 is not asked again."""
    life = await play([call("spend", cents=500, id="L")], "done", do=[approve("L", edited_arguments={"cents": 300})])
    assert list(life.tickets.values()) == [("tool_permission", "approved")]
    assert life.tool_texts["L"].endswith("spent 300")
