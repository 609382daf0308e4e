"""Rules of decisions: each gets one answer, the checks stand in one order, and no decision ever hurts the run."""

from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.actors.contract.decisions import REJECTIONS
from greenroom.actors.engine.command_rules import MAX_PENDING
from greenroom.testing import call, delay

from ..support.runs import Outages
from ..support.scene_plugins import scripted, slow
from ..support.scene_tools import Speechless
from ..support.scenes import Act, Scene, after, approve, cancel, decide, deny, pause, restart

B, C = call("sign", id="B"), call("look", id="C")
NAMED = call("ask", reviewers=["ada"], id="N")
TYPED = call("ask", schema={"type": "object", "required": ["name"]}, id="T")
BRIEF = call("ask", expires=50, id="E")
PASSED = call("ask", mode="pass_decision_to_tool", id="P")
OPEN = [B, NAMED, TYPED, PASSED]
"""Calls that wait, one per kind of ticket: r.t1 to r.t4 in parallel."""


@pytest.fixture
def mode() -> str:
    """How decisions are judged has nothing to do with the mode; where it has, `test_lifecycle_modes.py` says so."""
    return "parallel_streaming"


def edited(target: str, **arguments: Any) -> Act:
    return decide(target, edited_arguments=arguments)


# --- every code ------------------------------------------------------------------------------------------------------

CODES: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "not_allowed": ([decide("N", by="bob")], {}),
    "decision_id_conflict": ([decide("B", decision_id="d"), decide("B", "cancel", decision_id="d")], {}),
    "unknown_target": ([decide("nothing")], {}),
    "already_decided": ([decide("B"), decide("B")], {}),
    "run_done": ([cancel(), cancel()], {}),
    "expired": ([pause(60), decide("E")], {"script": [[BRIEF], [B]]}),
    "fingerprint_mismatch": ([decide("B", fingerprint="of another action")], {}),
    "invalid_arguments": ([edited("B", cents="many")], {}),
    "invalid_result": ([decide("T", result={"nom": "Ada"})], {}),
}
"""Code -> acts, of which the last one is answered with it. Two codes are scenes of their own, below."""


@pytest.mark.rule("L-9")
@pytest.mark.parametrize("code", CODES)
async def test_each_fault_of_a_command_has_its_code_and_a_sentence(play, autojump_clock, code):
    acts, more = CODES[code]
    life = await play(*more.get("script", [OPEN]), do=acts)
    assert life.replies[-1] == f"rejected {code}"
    assert life.scene.details[-1]


async def test_an_inbox_that_is_full_is_busy(play, autojump_clock):
    """Commands wait for a run without an owner: its deps are not to be had."""
    found: list[Any] = []

    def provider(_: Any) -> Any:
        if not found:
            raise LookupError("not yet")
        return found[0]

    async def flood(scene: Scene) -> None:
        answers = [await scene.run.pause() for _ in range(MAX_PENDING)]
        assert {answer.status for answer in answers} == {"accepted"}
        scene.note(await scene.run.send("one too many"))
        found.append(scene.outside)
        await scene.runtime.resume(scene.run.id)

    play.runtime = {"deps": provider}
    life = await play("hello", do=[after(1, flood), decide("r.t1")])
    assert life.replies[0] == "rejected busy"
    assert len(life.payloads("pause.requested")) == MAX_PENDING
    assert life.outcome.output == "hello"


async def test_a_store_that_does_not_answer_is_reported(play, autojump_clock):
    outages = Outages()
    play.store = {"faults": outages}

    async def begin(_: Scene) -> None:
        outages.error = OSError("the disk is full")
        await trio.sleep(1)

    async def end(_: Scene) -> None:
        outages.error = None

    life = await play(
        [B, C], "done", do=[after(5, begin), after(10, decide("B")), after(0, cancel()), after(0, end), approve("B")]
    )
    assert life.replies == ["rejected store_unavailable", "rejected store_unavailable", "accepted"]
    assert "the disk is full" in life.scene.details[0]
    assert life.outcome.output == "done"


def test_every_code_has_its_scene():
    elsewhere = {
        "busy",
        "store_unavailable",
        "unknown_agent",
    }  # these need a store that is busy or away, or a shared one
    assert {*CODES, *elsewhere} == set(REJECTIONS)


# --- the order of the checks -----------------------------------------------------------------------------------------

BOTH: dict[tuple[str, str], tuple[list[Any], list[Any]]] = {
    ("not_allowed", "decision_id_conflict"): (
        [OPEN],
        [decide("B", decision_id="d"), decide("N", by="bob", decision_id="d")],
    ),
    ("not_allowed", "already_decided"): ([OPEN], [decide("N"), decide("N", by="bob")]),
    ("not_allowed", "fingerprint_mismatch"): ([OPEN], [decide("N", by="bob", fingerprint="other")]),
    ("decision_id_conflict", "unknown_target"): (
        [OPEN],
        [decide("B", decision_id="d"), decide("nothing", decision_id="d")],
    ),
    ("decision_id_conflict", "run_done"): (
        [[B], "done"],
        [decide("B", decision_id="d"), decide("B", "cancel", decision_id="d")],
    ),
    ("unknown_target", "run_done"): (["done"], [decide("nothing")]),
    ("already_decided", "run_done"): ([[B], "done"], [decide("B"), decide("B")]),
    ("already_decided", "expired"): ([[BRIEF], [B]], [decide("E"), after(60, decide("E"))]),
    ("run_done", "expired"): ([[BRIEF], "done"], [after(60, decide("E"))]),
    ("expired", "fingerprint_mismatch"): ([[BRIEF], [B]], [after(60, decide("E", fingerprint="other"))]),
    ("fingerprint_mismatch", "invalid_arguments"): (
        [OPEN],
        [decide("B", fingerprint="other", edited_arguments={"cents": "many"})],
    ),
    ("fingerprint_mismatch", "invalid_result"): ([OPEN], [decide("T", fingerprint="other", result=1)]),
    ("invalid_arguments", "invalid_result"): ([OPEN], [decide("T", edited_arguments={"times": "x"}, result=1)]),
}
"""(what is reported, what is wrong as well) -> script and acts; the last command has both faults."""


@pytest.mark.rule("L-9")
@pytest.mark.parametrize(("first", "second"), BOTH, ids=map(" before ".join, BOTH))
async def test_the_first_of_two_faults_of_a_command_is_reported(play, autojump_clock, first, second):
    script, acts = BOTH[first, second]
    life = await play(*script, do=acts)
    assert life.replies[-1] == f"rejected {first}"
    assert REJECTIONS.index(first) < REJECTIONS.index(second)


async def test_faults_are_reported_one_after_the_other_until_the_decision_is_right(play, autojump_clock):
    """One decision, with everything wrong with it that can be wrong at once; each time the first fault is mended."""
    wrong: dict[str, Any] = {"by": "bob", "decision_id": "taken", "fingerprint": "other"}
    wrong |= {"edited_arguments": {"times": "x"}, "result": 1}
    asks = call("ask", {"reviewers": ["ada"], "schema": {"type": "string"}}, id="D")
    mended = [
        wrong := {**wrong, **one}
        for one in (
            {},
            {"by": "ada"},
            {"decision_id": "new"},
            {"fingerprint": None},
            {"edited_arguments": None},
            {"result": "yes"},
        )
    ]
    life = await play([B, asks], "done", do=[decide("B", decision_id="taken"), *(decide("D", **one) for one in mended)])
    assert [answer.removeprefix("rejected ") for answer in life.replies] == [
        *("accepted", "not_allowed", "decision_id_conflict", "fingerprint_mismatch", "invalid_arguments"),
        *("invalid_result", "accepted"),
    ]
    assert life.outcome.output == "done"


# --- answers ---------------------------------------------------------------------------------------------------------


@pytest.mark.rule("L-8")
async def test_no_fault_hurts_the_run_or_leaves_a_trace_in_it(play, autojump_clock):
    faults = [decide("nothing"), decide("N", by="bob"), decide("B", fingerprint="other"), edited("B", cents="x")]
    acts = [*faults, decide("T", result=1), decide("C")]
    clean = [approve("B"), approve("N"), approve("T", {"name": "Ada"})]
    life = await play([B, NAMED, TYPED, C], "done", do=[*acts, *clean])
    assert life.replies == [*life.replies[:6], "accepted", "accepted", "accepted"]
    assert {answer.split()[0] for answer in life.replies[:6]} == {"rejected"}
    assert life.outcome.output == "done"
    assert len(life.payloads("approval.resolved")) == 3
    assert "decision.refused" not in life.types


async def test_a_rejected_decision_s_id_may_be_used_again(play, autojump_clock):
    wrong = decide("B", decision_id="d", edited_arguments={"cents": "x"})
    life = await play([B], "done", do=[wrong, decide("B", "cancel", decision_id="d")])
    assert life.replies == ["rejected invalid_arguments", "accepted"]


@pytest.mark.rule("A-17")
@pytest.mark.parametrize("when", ["at once", "after the end", "in another process"])
async def test_the_same_decision_again_is_a_duplicate_and_acts_once(play, autojump_clock, when):
    again = decide("B", decision_id="d", reason="ok")
    between = {"at once": [after(0, again)], "after the end": [again], "in another process": [after(3, restart), again]}
    life = await play([call("sign", id="B")], "done", do=[again, *between[when]])
    assert life.replies == ["accepted", "duplicate"]
    assert len(life.payloads("approval.resolved")) == 1


async def test_another_decision_under_the_same_id_is_a_conflict_whatever_differs(play, autojump_clock):
    first = {"decision_id": "d", "reason": "ok", "result": 1}
    others = [decide("B", **first, edited_arguments={"cents": 2})]
    others += [decide("B", **{**first, name: "else"}) for name in ("reason", "result")]
    life = await play([B], "done", do=[decide("B", **first), decide("B", "cancel", **first), *others])
    assert life.replies == ["accepted", *["rejected decision_id_conflict"] * 4]


@pytest.mark.rule("A-16")
async def test_the_first_valid_decision_wins_and_the_second_reviewer_learns_of_whom_and_when(play, autojump_clock):
    life = await play([B], "done", do=[deny("B", by="ada"), decide("B", by="bob")])
    assert life.replies == ["accepted", "rejected already_decided"]
    assert "ada" in life.scene.details[1]
    assert "2031-05-01T12:00" in life.scene.details[1]
    assert life.calls["B"] == "new suspended cancelled"


async def test_each_decision_of_a_batch_has_its_own_answer(play, autojump_clock):
    async def all_at_once(scene: Scene) -> None:
        tickets = (await scene.run.wait()).tickets
        wrong = gr.Decision(target="nothing", action="resume")
        for answer in await scene.run.decide_all([tickets[0].approve(), wrong, tickets[0].deny(), tickets[1].deny()]):
            scene.note(answer)

    life = await play([B, call("pay", id="A"), C], "done", do=[all_at_once])
    assert life.replies == ["accepted", "rejected unknown_target", "rejected already_decided", "accepted"]
    assert (life.calls["B"][-9:], life.calls["A"][-9:]) == ("succeeded", "cancelled")


async def test_a_batch_that_holds_something_else_is_not_half_sent(play, autojump_clock):
    """A caller that gets an exception has no answers: nothing may have been decided by then."""

    async def both(scene: Scene) -> None:
        ticket = await scene.ticket("B")
        for wrong in (ticket, "B", ["B"], None):
            with pytest.raises(ValueError, match=r"is not a decision yet|is not known"):
                await scene.run.decide_all([ticket.approve(), wrong])  # type: ignore[list-item]

    life = await play([B], do=[both])
    assert life.tickets == {"r.t1": ("tool_permission", "open")}


async def test_of_two_values_that_cannot_be_stored_the_arguments_are_reported_first(play, autojump_clock):
    life = await play([B], do=[decide("B", result=object(), edited_arguments={"cents": object()})])
    assert life.replies == ["rejected invalid_arguments"]


@pytest.mark.rule("A-22")
async def test_a_result_that_does_not_fit_is_reported_with_its_path(play, autojump_clock):
    deep = {"type": "object", "properties": {"n": {"type": "array", "items": {"type": "integer"}}}}
    life = await play([call("ask", schema=deep, id="D")], do=[decide("D", result={"n": [1, "two"]})])
    assert life.replies == ["rejected invalid_result"]
    assert "$.n[1]" in life.scene.details[0]


async def test_a_result_that_becomes_the_arguments_is_checked_as_arguments(play, autojump_clock):
    life = await play([PASSED], "done", do=[decide("P", result="text"), decide("P", result={"times": "x"}), deny("P")])
    assert life.replies == ["rejected invalid_arguments", "rejected invalid_arguments", "accepted"]
    assert "times" in life.scene.details[1]


async def test_an_action_that_is_not_known_is_the_caller_s_mistake_and_no_answer(play, autojump_clock):
    async def shrug(scene: Scene) -> None:
        with pytest.raises(ValueError, match="'shrug'"):
            await scene.run.decide("B", "shrug")

    assert (await play([B], "done", do=[shrug, approve("B")])).replies == ["accepted"]


async def test_an_accepted_decision_that_meets_a_run_on_its_way_out_is_refused_aloud(play, autojump_clock):
    life = await play([B, call("tidy", id="Y")], do=[after(5, cancel()), after(0.5, decide("B", decision_id="d"))])
    assert life.replies == ["accepted", "accepted"]
    (refused,) = life.payloads("decision.refused")
    assert (refused["commandId"], refused["code"]) == ("d", "run_done")
    assert life.calls["B"] == "new suspended cancelled"


# --- early decisions -------------------------------------------------------------------------------------------------

SLOW = call("ask", seconds=10, id="D")


@pytest.mark.rule("L-10", "A-24")
async def test_a_decision_before_the_first_ticket_is_early_and_acts_when_the_ticket_is_made(play, autojump_clock):
    life = await play([SLOW], "done", do=[after(5, decide("D", result="early bird"))])
    assert life.replies == ["accepted early"]
    assert life.calls["D"] == "new running suspended resuming running succeeded"
    assert life.tool_texts["D"] == "told early bird"
    assert life.path == "running completed"


async def test_an_early_denial_denies(play, autojump_clock):
    life = await play([SLOW], "done", do=[after(5, decide("D", "cancel", reason="no"))])
    assert (life.calls["D"], life.effects) == ("new running suspended cancelled", [])


async def test_an_early_decision_survives_a_restart(play, autojump_clock):
    """Its call is gated again in the next process, and then meets it."""
    gated = call("spend", cents=500, thinking=20, id="S")
    life = await play([gated], "done", do=[after(5, decide("S", decision_id="d")), after(1, restart)])
    assert life.replies == ["accepted early"]
    assert life.calls["S"] == "new suspended resuming running succeeded"


@pytest.mark.rule("L-10")
@pytest.mark.parametrize(
    ("asking", "decision", "code"),
    [
        ({"schema": {"type": "object"}}, {"result": "text"}, "invalid_result"),
        ({"reviewers": ["bob"]}, {}, "not_allowed"),
        ({"mode": "pass_decision_to_tool"}, {"result": 1}, "invalid_arguments"),
    ],
    ids=["invalid_result", "not_allowed", "invalid_arguments"],
)
async def test_an_early_decision_that_does_not_fit_its_ticket_leaves_it_open_and_says_why(
    play, autojump_clock, asking, decision, code
):
    life = await play([call("ask", {"seconds": 10, **asking}, id="D")], do=[after(5, decide("D", **decision))])
    assert life.replies == ["accepted early"]
    assert [payload["code"] for payload in life.payloads("decision.refused")] == [code]
    assert life.tickets == {"r.t1": ("user_input", "open")}


@pytest.mark.parametrize("edited", [False, True])
async def test_an_early_approval_is_of_the_arguments_that_the_call_had_then(play, autojump_clock, edited):
    """A hook is at work on the model's answer when it comes."""
    plugin = scripted("x", after_inference=slow(10, gr.Mutation().edit_call("B", {"cents": 9 if edited else 1})))
    life = await play([call("sign", cents=1, id="B")], "done", plugins=[plugin], do=[after(5, decide("B"))])
    assert life.replies == ["accepted early"]
    refused = [payload["code"] for payload in life.payloads("decision.refused")]
    assert (refused, life.calls["B"].endswith("suspended")) == (["fingerprint_mismatch"] if edited else [], edited)


async def test_an_early_decision_that_is_not_requested_is_recorded_as_unused(play, autojump_clock):
    life = await play([C], "done", do=[after(5, decide("C", decision_id="d"))])
    assert life.replies == ["accepted early"]
    assert [(payload["commandId"], payload["code"]) for payload in life.payloads("decision.refused")] == [
        ("d", "unused")
    ]
    assert life.calls["C"] == "new running succeeded"


async def test_a_second_early_decision_comes_too_late(play, autojump_clock):
    life = await play([SLOW], "done", do=[after(5, decide("D", result="one")), after(1, decide("D", result="two"))])
    assert life.replies == ["accepted early", "rejected already_decided"]
    assert life.tool_texts["D"] == "told one"


async def test_after_its_first_ticket_a_call_id_means_the_newest_ticket(play, autojump_clock):
    life = await play([call("ask", times=2, id="D")], "done", do=[decide("D"), decide("D"), decide("D")])
    assert life.replies == ["accepted", "accepted", "rejected already_decided"]
    assert list(life.tickets.values()) == [("user_input", "approved")] * 2


async def test_an_old_ticket_is_decided_for_good(play, autojump_clock):
    life = await play([call("ask", times=2, id="D")], do=[decide("r.t1"), decide("r.t1", "cancel")])
    assert life.replies == ["accepted", "rejected already_decided"]
    assert life.tickets["r.t2"] == ("user_input", "open")


async def test_a_call_that_ended_without_a_ticket_cannot_be_decided(play, autojump_clock):
    assert (await play([C], [delay(50), "done"], do=[after(30, decide("C"))])).replies == ["rejected unknown_target"]


@pytest.mark.parametrize("named", ["r.t1", "r.t2"])
async def test_a_model_that_names_a_call_like_a_ticket_does_not_get_that_ticket_s_approval(play, autojump_clock, named):
    """What a person decides about is the action that the ticket shows, whatever else bears its name."""
    life = await play([B, call("pay", id=named)], "done", do=[decide("r.t1")])
    assert life.effects == ["B"]
    assert life.calls == {"B": "new suspended resuming running succeeded", f"{named}#2": "new suspended"}
    assert life.tickets == {"r.t1": ("tool_permission", "approved"), "r.t2": ("tool_permission", "open")}


# --- what the model reads of a denial ------------------------------------------------------------------------------


@pytest.mark.rule("L-15")
async def test_the_text_of_a_denial_is_reported_word_for_word(play, autojump_clock):
    async def hand_in(scene: Scene) -> None:
        scene.note(await scene.run.decide((await scene.ticket("B")).deny("policy 7", text="Ask again on Monday.")))

    life = await play([B, call("sign", id="D")], "fine", do=[hand_in, decide("D", "cancel", result="Never.")])
    assert life.tool_texts == {"B": "Ask again on Monday.", "D": "Never."}
    assert life.codes == {"B": "approval_rejected", "D": "approval_rejected"}
    assert [payload.get("reason") for payload in life.payloads("approval.resolved")] == ["policy 7", None]


@pytest.mark.rule("L-15", "A-26")
async def test_an_agent_says_how_a_denial_is_reported_also_after_a_restart(play, autojump_clock):
    def denial(ticket: gr.Ticket, decision: gr.Decision) -> str:
        return f"{decision.decided_by} says no to {ticket.tool}: {decision.reason}"

    life = await play([B], "fine", denial=denial, do=[restart, deny("B", "too dear")])
    assert life.tool_texts == {"B": "ada says no to sign: too dear"}


@pytest.mark.rule("L-15")
@pytest.mark.parametrize("error", [LookupError, Speechless])
async def test_a_denial_that_fails_is_replaced_by_the_default_and_ends_no_run(play, autojump_clock, error):
    def denial(ticket: gr.Ticket, _: gr.Decision) -> str:
        raise error(ticket.ticket_id)

    life = await play([B], "fine", denial=denial, do=[deny("B", "too dear")])
    assert (life.tool_texts, life.outcome.output) == ({"B": "The reviewer denied this call: too dear"}, "fine")
    assert [payload["reason"] for payload in life.payloads("degraded")] == ["denial_failed"]
