"""Rules of the lifecycle that meet in one moment: which of them gives way."""

import pytest

import greenroom as gr
from greenroom.testing import call

from ..support.scene_plugins import diary, gate
from ..support.scenes import after, approve, cancel, decide, deny, pause, pause_run, restart, send

A, B, C = call("pay", id="A"), call("sign", id="B"), call("look", id="C")
BATCH = pytest.mark.parametrize("mode", ["parallel_batch_approval"])
DOWN = pytest.mark.parametrize("down", [[], [restart]], ids=["one process", "two"])


# --- input and expiries ----------------------------------------------------------------------------------------------


@DOWN
@pytest.mark.parametrize("on_expiry", ["deny", "cancel_run"])
async def test_a_ticket_that_was_superseded_does_not_expire(play, autojump_clock, on_expiry, down):
    """Its time comes while the next step works."""
    asks = call("ask", expires=50, on_expiry=on_expiry, id="D")
    do = [*down, pause(20), send("no, wait"), after(40, decide("D"))]
    life = await play([asks], [call("look", seconds=100, id="L")], "done", do=do, on_new_input="supersede")
    assert (life.outcome.output, life.codes) == ("done", {"D": "superseded", "L": None})
    assert life.tickets == {"r.t1": ("user_input", "withdrawn")}
    assert life.replies == ["accepted", "rejected already_decided"]


@BATCH
@DOWN
async def test_superseding_input_is_the_last_word_that_a_batch_waits_for(play, autojump_clock, down):
    do = [approve("A", edited_arguments={"cents": 7}), *down, send("not the other one")]
    life = await play([A, B], "done", do=do, on_new_input="supersede")
    assert life.codes == {"A": None, "B": "superseded"}
    assert life.scene.outside.started == [("A", 1, {"cents": 7})]
    assert life.history[-2:] == ["user: not the other one", "assistant: done"]


@BATCH
@DOWN
async def test_an_expiry_that_ends_the_run_takes_what_is_approved_with_it(play, autojump_clock, down):
    asks = call("ask", expires=50, on_expiry="cancel_run", id="D")
    life = await play([A, asks, B], do=[approve("A"), *down, deny("B"), pause(100)])
    assert (life.outcome.code, life.seconds("cancelled")) == ("approval_rejected", 50.0)
    assert (life.effects, set(life.calls.values())) == (
        [],
        {"new suspended cancelled", "new running suspended cancelled"},
    )


@BATCH
@DOWN
async def test_a_denial_that_ends_the_run_ends_the_others_of_its_batch(play, autojump_clock, down):
    life = await play([A, B], do=[approve("A"), *down, deny("B", "no")], on_deny="cancel_run")
    assert (life.outcome.code, life.outcome.reason, life.effects) == ("approval_rejected", "no", [])


# --- decisions, one by one -------------------------------------------------------------------------------------------


@DOWN
async def test_edited_arguments_wait_for_the_rest_of_their_batch_and_no_longer(play, autojump_clock, down):
    """An edit above the limit of the tool's own predicate is approved by its author."""
    step = [call("spend", cents=200, id="S"), B, C]
    do = [approve("S", edited_arguments={"cents": 900}), *down, pause(30), approve("B")]
    life = await play(step, "done", do=do)
    waits = play.mode == "parallel_batch_approval"
    assert (life.seconds("tool.resumed", call_id="S") > 30) is waits
    assert sorted(life.effects) == ["B", "C", "S"]
    assert life.tool_texts["S"] == "(The arguments were changed to {'cents': 900} before the call ran.)\nspent 900"


@DOWN
@pytest.mark.parametrize("way", ["denied", "expired", "superseded"])
async def test_an_exclusive_call_begins_when_the_one_before_it_is_asked_for_no_more(play, autojump_clock, way, down):
    step = [call("ask", expires=50, id="D"), call("alone", id="Z"), C]
    acts = {"denied": [deny("D")], "expired": [pause(100)], "superseded": [send("x")]}[way]
    life = await play(step, "done", do=[*down, *acts], on_new_input="supersede")
    assert life.calls == {
        "D": "new running suspended cancelled",
        "Z": "new running succeeded",
        "C": "new running succeeded",
    }
    assert (life.effects, life.scene.outside.peak) == (["Z", "C"], 1)


@DOWN
async def test_an_exclusive_call_that_waits_for_people_holds_those_behind_it(play, autojump_clock, down):
    plugins = [gate("x", lambda ctx: gr.Suspend() if ctx.call_id == "Z" and ctx.decision is None else None)]
    step = [call("look", id="L"), call("alone", id="Z"), C]
    life = await play(step, "done", do=[*down, pause(30), approve("Z")], plugins=plugins)
    assert (life.effects, life.scene.outside.peak) == (["L", "Z", "C"], 1)
    assert life.calls["C"] == "new running succeeded"


# --- ends ------------------------------------------------------------------------------------------------------------


async def test_a_deadline_during_the_clean_up_of_a_cancel_changes_nothing(play, autojump_clock):
    book = diary("run_end")
    tidy = call("tidy", seconds=1.5, id="T")
    life = await play([tidy, B], do=[after(5, cancel(reason="enough"))], start={"deadline": 6}, plugins=[book])
    assert life.outcome == gr.Cancelled(reason="enough", by="ada", code=None)
    assert (life.seconds("cancelled"), book.lines) == (6.5, ["run_end"])


async def test_a_cancel_during_the_clean_up_of_a_deadline_changes_nothing(play, autojump_clock):
    life = await play([call("tidy", seconds=1.5, id="T")], do=[after(5.5, cancel())], start={"deadline": 5})
    assert (life.outcome.code, life.seconds("failed"), life.replies) == ("run_timeout", 6.5, ["accepted"])


async def test_a_deadline_ends_a_run_whose_cancel_waits_for_the_step(play, autojump_clock):
    step = [call("look", seconds=100, id="L")]
    life = await play(step, do=[after(5, cancel(mode="after_step")), after(1, send("x"))], start={"deadline": 20})
    assert (life.outcome.code, life.seconds("failed")) == ("run_timeout", 20.0)
    assert life.history[-1] == "user: x"


async def test_a_step_that_meets_a_limit_while_a_pause_waits_is_the_last_one(play, autojump_clock):
    do = [after(2, pause_run()), after(1, send("x"))]
    life = await play([C], "never", do=do, stop=[gr.stop.StopOnTool("look")])
    assert (life.outcome.code, life.path, life.history[-1]) == ("stop_on_tool", "running completed", "user: x")
    assert [payload["code"] for payload in life.payloads("decision.refused")] == ["unused", "unused"]  # of both


async def test_a_block_ends_what_is_approved_beside_it_and_what_still_asks(play, autojump_clock):
    """In a batch they are decided together; the block is said when B continues."""

    def look(ctx: gr.GateContext) -> gr.Block | None:
        return gr.Block("not now") if ctx.call_id == "B" and ctx.decision is not None else None

    others = [approve("A"), approve("D", "x")] if play.mode == "parallel_batch_approval" else []
    life = await play([B, A, call("ask", id="D")], do=[*others, approve("B")], plugins=[gate("x", look)])
    assert (life.outcome.code, life.effects) == ("permission_denied", [])
    assert {name: life.calls[name].split()[-1] for name in "BAD"} == {"B": "failed", "A": "cancelled", "D": "cancelled"}
