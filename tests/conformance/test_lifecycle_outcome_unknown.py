"""Rules of what is not known: the history of a call that was cut never denies an effect that it may have had."""

from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.testing import call

from ..support.scene_tools import TOOLS, Context
from ..support.scenes import Down, after, another, approve, cancel, decide, deny, pause, pause_run, restart, send

pytestmark = pytest.mark.pace(5)

CUT = "This call was cancelled before it finished."
PERHAPS = "It ran when its process ended: it may or may not have taken effect."
OVERRAN = "It had not ended when its time to clean up was over: it may or may not have taken effect."
N, L, T = call("note", id="N"), call("look", seconds=100, id="L"), call("tidy", seconds=1.5, id="T")
ENDS: dict[str, dict[str, Any]] = {
    "a cancel": {"do": [after(7, restart), cancel()]},
    "a cancel of a run that has rested": {"do": [after(7, restart), pause(300), cancel()]},
    "the deadline": {"do": [after(7, restart), pause(100)], "start": {"deadline": 60}},
    "the deadline, while there was no process": {"do": [after(7, Down(100))], "start": {"deadline": 60}},
    "a denied pause": {"do": [after(7, restart), pause_run(), decide("r.t2", "cancel")]},
}


@pytest.mark.rule("L-30")
@pytest.mark.parametrize("how", ENDS)
async def test_a_body_that_a_crash_cut_may_have_taken_effect_whatever_ends_the_run(play, autojump_clock, how):
    life = await play([N], **ENDS[how])
    assert life.effects == ["N"]
    assert life.tool_texts == {"N": f"{CUT}\n{PERHAPS}"}
    assert life.codes == {"N": "outcome_unknown"}
    assert life.outcome.outcome_unknown == ("N",)
    assert life.end["outcomeUnknown"] == ["N"]


@pytest.mark.rule("L-30")
async def test_the_next_run_of_the_thread_reads_it(play, autojump_clock):
    async def hear(scene: Any) -> None:
        await scene.others["next"].result()

    do = [after(7, restart), cancel(), another("I look first."), hear]
    life = await play([N], do=do)
    (request,) = life.scene.crew["next"].model.requests
    (texts,) = [message.content for message in request.messages if message.role == "tool"]
    assert texts.endswith(PERHAPS)


async def test_a_crash_during_the_grace_of_a_cancel_leaves_the_outcome_unknown(play, autojump_clock):
    life = await play([T], do=[after(5, cancel(reason="enough")), after(1, restart)])
    assert life.tool_texts == {"T": f"{CUT}\n{PERHAPS}"}
    assert life.outcome == gr.Cancelled(reason="enough", by="ada", outcome_unknown=("T",))


async def test_a_body_that_a_cancel_itself_has_ended_leaves_no_doubt(play, autojump_clock):
    life = await play([T], do=[after(5, cancel())])
    assert (life.tool_texts, life.codes) == ({"T": CUT}, {"T": "cancelled"})
    assert life.outcome.outcome_unknown == ()
    assert "outcomeUnknown" not in life.end


async def test_a_call_that_had_not_begun_leaves_no_doubt(play, autojump_clock):
    life = await play([call("sign", id="B")], do=[restart, cancel()])
    assert (life.tool_texts, life.codes) == ({"B": CUT}, {"B": "cancelled"})


@pytest.mark.rule("L-30")
@pytest.mark.pace(40)
async def test_a_body_that_overran_its_grace_may_take_effect_later(play, autojump_clock):
    life = await play([call("tidy", seconds=500, id="T")], do=[after(5, cancel())])
    assert life.end["stubborn"] == ["T"]
    assert (life.tool_texts, life.codes) == ({"T": f"{CUT}\n{OVERRAN}"}, {"T": "outcome_unknown"})
    assert life.outcome.outcome_unknown == ("T",)


async def test_a_body_that_may_be_repeated_and_was_repeated_is_in_doubt_all_the_same(play, autojump_clock):
    """Its first attempt may have acted, and a new call of the model would act again."""
    life = await play([call("look", seconds=20, id="L")], do=[after(15, restart), after(1, cancel())])
    assert life.effects == ["L"]
    assert life.tool_texts == {"L": f"{CUT}\n{PERHAPS}"}


async def test_a_result_that_came_in_the_end_leaves_no_doubt(play, autojump_clock):
    life = await play([N], "done", do=[after(7, restart), approve("N", "noted, says the file")])
    assert (life.tool_texts, life.outcome.outcome_unknown) == ({"N": "noted, says the file"}, ())


GATED = {"deny": gr.Suspend(message="again?"), "block": gr.Block("not now")}


@pytest.mark.parametrize("how", GATED)
async def test_a_gate_that_stops_what_was_to_run_again_does_not_deny_the_first_attempt(play, autojump_clock, how):
    """A person lets a lost call run again; then the gates are asked, and they do not."""

    class Strict(gr.Plugin):
        async def tool_gate(self, ctx: gr.GateContext) -> Any:
            return None if ctx.decision is None or ctx.decision.decided_by == "boss" else GATED[how]

    do = [after(7, restart), approve("N"), *([deny("N", "no")] if how == "deny" else [])]
    life = await play([N], "done", do=do, plugins=[Strict()])
    assert life.tool_texts["N"].endswith(f"\n{PERHAPS}")


async def test_superseded_calls_say_it_as_before(play, autojump_clock):
    life = await play([N], "done", do=[after(7, restart), send("leave it")], on_new_input="supersede")
    assert life.tool_texts["N"].endswith(PERHAPS)
    assert life.codes == {"N": "superseded"}


@gr.tool(background=True, grace=2.0)
async def errand(ctx: Context, seconds: float = 1.0) -> str:
    """Never ends by itself; cleans up for so long."""
    with ctx.deps.body(ctx):
        try:
            await trio.sleep(1000)
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(seconds)
    return "never"


def of_task(life: Any, name: str = "E.task1") -> Any:
    """The end of a task."""
    (found,) = [payload for payload in life.payloads("task.finished") if payload["taskId"] == name]
    return found


async def test_a_background_task_that_a_crash_cut_on_the_way_out_may_have_taken_effect(play, autojump_clock):
    do = [after(5, cancel()), after(0.5, restart)]
    life = await play([call("errand", id="E")], "waiting", do=do, tools=(*TOOLS, errand))
    end = of_task(life)
    assert (end["status"], end["code"]) == ("cancelled", "outcome_unknown")
    assert end["result"] == f"It was cancelled: the run ended.\n{PERHAPS}"
    assert life.outcome.outcome_unknown == ("E.task1",)


async def test_a_task_that_was_being_cancelled_when_the_process_ended_may_have_taken_effect(play, autojump_clock):
    step = [call("cancel_task", task_id="E.task1", id="X")]
    life = await play(
        [call("errand", id="E")], step, "waiting", "done", do=[after(0.5, restart)], tools=(*TOOLS, errand)
    )
    end = of_task(life)
    assert end["result"] == f"It was cancelled.\n{PERHAPS}"
    assert (end["status"], end["code"]) == ("cancelled", "outcome_unknown")


async def test_a_task_that_overran_its_grace_may_take_effect_later(play, autojump_clock):
    step = [call("cancel_task", task_id="E.task1", id="X")]
    script = [[call("errand", seconds=500, id="E")], step, "waiting", "done"]
    life = await play(*script, do=[after(1, pause(1))], tools=(*TOOLS, errand))
    assert of_task(life)["result"] == f"It was cancelled.\n{OVERRAN}"


# --- what is answered about tickets that went with their run ---------------------------------------------------------


async def test_a_ticket_that_a_cancel_withdrew_says_who_and_that_the_run_is_done(play, autojump_clock):
    life = await play([call("sign", id="B")], do=[cancel(reason="enough"), decide("B")])
    assert life.replies == ["accepted", "rejected run_done"]
    assert "the run is cancelled; r.t1 was withdrawn by ada at " in (life.scene.details[-1] or "")
    assert "(the run was cancelled)" in (life.scene.details[-1] or "")
    (resolved,) = life.payloads("approval.resolved")
    assert (resolved["by"], resolved["reason"]) == ("ada", "the run was cancelled")


async def test_a_ticket_that_was_decided_before_the_end_is_decided(play, autojump_clock):
    life = await play([call("sign", id="B")], "done", do=[approve("B"), decide("r.t1", "cancel", by="bob")])
    assert life.replies == ["accepted", "rejected already_decided"]


@gr.tool(timeout=5.0, grace=2.0)
async def deaf(ctx: Context) -> str:
    """Hides from its time limit."""
    with ctx.deps.body(ctx), trio.CancelScope(shield=True):
        await trio.sleep(500)
    return "too late"


@pytest.mark.pace(40)
async def test_a_body_that_hid_from_its_time_limit_may_act_after_the_model_has_learned_of_that(play, autojump_clock):
    life = await play([call("deaf", id="X")], "done", tools=(*TOOLS, deaf))
    assert life.codes == {"X": "tool_timeout"}
    assert life.tool_texts["X"].endswith(f"\n{OVERRAN}")
    assert life.end["stubborn"] == ["X"]
