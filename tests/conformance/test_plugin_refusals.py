"""Rules of gates that say no: a denial is stronger than any approval, and no verdict waits for a person in vain."""

from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.testing import call

from ..support.scene_plugins import Scripted, gate, scripted
from ..support.scene_tools import TOOLS, Context
from ..support.scenes import Down, after, approve, cancel, decide, deny, pause, restart

LOOK, PAY, WIPE = call("look", id="L"), call("pay", id="P"), call("write", id="W")
NO = gr.Deny("Ask for less.")
REFUSED = {"block": gr.Block("never"), "deny": NO, "set_result": gr.SetResult("as it was", code="permission_denied")}
PARALLEL = pytest.mark.parametrize("mode", ["parallel_batch_approval", "parallel_streaming"])


def refuses(verdict: Any, tool: str = "write", asked: list[str] | None = None) -> Scripted:
    """A gate that says the verdict about the calls of one tool."""

    def look(ctx: gr.GateContext) -> Any:
        if ctx.tool != tool:
            return None
        if asked is not None:
            asked.append(ctx.call_id)
        return verdict

    return gate("refuses", look)


# --- deny ------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("P-30", "A-5")
@pytest.mark.parametrize("tool", ["sign", "pay", "spend"])
async def test_no_person_is_asked_about_a_call_that_is_denied(play, autojump_clock, tool):
    """Whether its tool always wants an approval, or finds out by a predicate."""
    life = await play([call(tool, cents=500, id="A")], "done", plugins=[gate("x", NO)])
    assert (life.calls, life.tickets, life.effects) == ({"A": "new failed"}, {}, [])
    assert (life.codes, life.tool_texts) == ({"A": "permission_denied"}, {"A": "Ask for less."})
    assert (life.outcome.output, life.path) == ("done", "running completed")


async def test_a_predicate_is_not_asked_about_a_denied_call(play, autojump_clock):
    life = await play([call("spend", cents=500, thinking=100, id="A")], "done", plugins=[gate("x", NO)])
    assert life.seconds("tool.result", call_id="A") == 0.0


async def test_a_denial_wins_over_a_gate_that_wants_a_person(play, autojump_clock):
    plugins = [gate("asks", gr.Suspend(message="may it?")), gate("denies", NO)]
    life = await play([LOOK], "done", plugins=plugins)
    assert (life.calls, life.tickets) == ({"L": "new failed"}, {})
    (one,) = life.payloads("gate.overruled")
    assert (one["plugin"], one["verdict"], one["by"]) == ("asks", "suspend", "denies")


async def test_a_block_is_stronger_than_a_denial_which_is_recorded(play, autojump_clock):
    life = await play([LOOK], plugins=[gate("denies", NO), gate("blocks", gr.Block("never"))])
    assert life.view.termination.kind == "blocked"
    (one,) = life.payloads("gate.overruled")
    assert (one["plugin"], one["verdict"], one["by"]) == ("denies", "deny", "blocks")


@pytest.mark.rule("P-30")
@pytest.mark.parametrize("between", [(), (restart,)], ids=["", "after a restart"])
async def test_a_gate_may_deny_what_a_person_has_approved(play, autojump_clock, between):
    """The gate changes its mind while a person thinks."""
    denies = gate("x", lambda ctx: None if ctx.decision is None else NO)
    life = await play([call("sign", id="B")], "done", do=[*between, approve("B")], plugins=[denies])
    assert life.replies == ["accepted"]
    assert life.calls == {"B": "new suspended resuming failed"}
    assert (life.tool_texts["B"], life.effects) == ("Ask for less.", [])


async def test_an_early_approval_does_not_help_against_a_denial(play, autojump_clock):
    async def later(ctx: gr.GateContext) -> Any:
        await trio.sleep(10)
        return NO

    do = [after(5, decide("B"))]
    life = await play([call("sign", id="B")], "done", do=do, plugins=[scripted("x", tool_gate=later)])
    assert (life.replies, life.calls) == (["accepted early"], {"B": "new failed"})
    assert [payload["code"] for payload in life.payloads("decision.refused")] == ["unused"]


async def test_a_denial_does_not_touch_the_calls_beside_it(play, autojump_clock):
    life = await play([LOOK, WIPE, call("note", id="N")], "done", plugins=[refuses(NO)])
    assert life.calls["L"] == life.calls["N"] == "new running succeeded"
    assert life.calls["W"] == "new failed"


async def test_the_hooks_after_a_call_see_a_denied_one_as_failed(play, autojump_clock):
    seen: list[Any] = []

    def look(ctx: gr.PhaseContext[Any]) -> None:
        assert ctx.call is not None
        seen.append((ctx.call.call_id, ctx.call.status))

    await play([WIPE], "done", plugins=[refuses(NO), scripted("after", after_tool_execute=look)])
    assert seen == [("W", "failed")]


# --- behind an approval ----------------------------------------------------------------------------------------------


@pytest.mark.rule("P-36")
@pytest.mark.parametrize("between", [(), (restart,), (Down(60), pause(60))], ids=["", "restart", "down"])
@pytest.mark.parametrize("how", REFUSED)
async def test_a_refusal_behind_an_open_approval_counts_as_soon_as_what_executes_has_ended(
    play, autojump_clock, how, between
):
    asked: list[str] = []
    plugins = [refuses(REFUSED[how], asked=asked)]
    life = await play([LOOK, PAY, WIPE], "done", do=[*between, approve("P")] if how != "block" else [], plugins=plugins)
    assert life.seconds("tool.result", call_id="W") == 10.0
    assert asked == ["W", "W"]
    if how == "block":
        assert (life.effects, life.tickets) == (["L"], {"r.t1": ("tool_permission", "withdrawn")})
        assert life.calls == {"L": "new running succeeded", "P": "new suspended cancelled", "W": "new failed"}
        assert (life.seconds("failed"), life.outcome.code) == (10.0, "permission_denied")
    else:
        assert (life.effects, life.calls["W"]) == (["L", "P"], "new failed")


@pytest.mark.parametrize("seconds", [3, 9])
async def test_a_block_survives_a_crash_before_it_counts(play, autojump_clock, seconds):
    life = await play([LOOK, PAY, WIPE], do=[after(seconds, restart)], plugins=[refuses(gr.Block("never"))])
    assert life.outcome.code == "permission_denied"
    assert "P" not in life.effects


async def test_a_decision_that_comes_while_the_block_is_being_asked_again_does_not_overtake_it(play, autojump_clock):
    """The person says yes in the last moment: the body does not begin before the gate has spoken."""

    async def look(ctx: gr.GateContext) -> Any:
        if ctx.tool != "write":
            return None
        slow.append(ctx.call_id)
        await trio.sleep(5 if len(slow) > 1 else 0)
        return gr.Block("never")

    slow: list[str] = []
    life = await play([LOOK, PAY, WIPE], do=[after(12, decide("P"))], plugins=[scripted("x", tool_gate=look)])
    assert (life.replies, life.effects) == (["accepted"], ["L"])
    resumed = play.mode != "parallel_batch_approval"  # there it waits until all is decided that may be
    assert life.calls["P"] == f"new suspended{' resuming' if resumed else ''} cancelled"
    assert (life.seconds("failed"), life.outcome.code) == (15.0, "permission_denied")


async def test_a_call_that_was_approved_before_the_others_have_ended_may_unlock_it(play, autojump_clock):
    """It runs without a person then, as any earlier call."""
    life = await play([LOOK, PAY, WIPE], do=[after(3, decide("P"))], plugins=[refuses(gr.Block("never"))])
    waits = play.mode != "sequential"
    assert life.effects == ["L", "P"]
    assert life.seconds("failed") == (13.0 if waits else 20.0)


@pytest.mark.rule("P-37")
async def test_a_block_behind_a_body_that_asks_does_not_wait_for_the_answer(play, autojump_clock):
    life = await play([call("ask", id="D"), WIPE], plugins=[refuses(gr.Block("never"))])
    assert (life.calls, life.path) == ({"D": "new running suspended cancelled", "W": "new failed"}, "running failed")
    assert life.tickets == {"r.t1": ("user_input", "withdrawn")}


async def test_a_denial_behind_a_body_that_asks_does_not_wait_and_the_body_continues_with_its_answer(
    play, autojump_clock
):
    life = await play([call("ask", id="D"), WIPE], "done", do=[pause(50), approve("D", "yes")], plugins=[refuses(NO)])
    assert life.seconds("tool.result", call_id="W") == 0.0
    assert life.tool_texts == {"D": "told yes", "W": "Ask for less."}


async def test_a_result_behind_a_body_that_asks_waits_and_is_asked_for_once_per_call_that_ends(play, autojump_clock):
    asked: list[str] = []
    step = [call("ask", times=3, id="D"), WIPE]
    do = [approve("D", "a"), restart, approve("D", "b"), approve("D", "c")]
    life = await play(step, "done", do=do, plugins=[refuses(gr.SetResult("so be it"), asked=asked)])
    assert life.tool_texts == {"D": "told c", "W": "so be it"}
    assert asked == ["W", "W", "W"]


async def test_a_block_behind_a_body_that_a_crash_cut_does_not_wait_for_the_answer(play, autojump_clock):
    life = await play([call("note", id="N"), WIPE], do=[after(7, restart)], plugins=[refuses(gr.Block("never"))])
    assert life.outcome.code == "permission_denied"
    assert life.outcome.outcome_unknown == ("N",)


async def test_what_is_allowed_when_it_is_asked_again_runs_beside_the_open_approval(play, autojump_clock):
    """L unlocks W, which need not wait for a person's word about P."""
    open_ = gr.StateKey("open", bool, default=False)

    @gr.tool
    async def unlock(ctx: Context) -> str:
        ctx.state.set(open_, True)
        return "unlocked"

    look = gate("key", lambda ctx: gr.Block("shut") if ctx.tool == "write" and not ctx.state[open_] else None)
    step = [call("unlock", id="U"), PAY, WIPE]
    life = await play(step, "done", do=[pause(50), deny("P")], plugins=[look], tools=(*TOOLS, unlock))
    assert (life.effects, life.seconds("tool.result", call_id="W")) == (["W"], 10.0)


async def test_a_cancel_while_a_verdict_is_provisional_leaves_nothing_open(play, autojump_clock):
    life = await play([call("ask", id="D"), WIPE], do=[cancel()], plugins=[refuses(gr.SetResult("so be it"))])
    assert life.calls == {"D": "new running suspended cancelled", "W": "new cancelled"}
