"""Rules of plugins that hold a run: a ticket of its own, opened between two steps, for what happens outside."""

import pytest

import greenroom as gr
from greenroom.testing import call

from ..support.scene_plugins import scripted
from ..support.scenes import decide, pause, restart, send

C = call("look", id="C")
SEQUENTIAL = pytest.mark.parametrize("mode", ["sequential"])
SHIPPED = gr.Suspend(message="Has the parcel arrived?", action="parcel:arrived")


def holding(wish=SHIPPED, *, phase="step_start", step=2, name="post"):
    """A plugin that holds the run once."""

    def hook(ctx):
        return gr.Mutation().hold(wish) if ctx.step == step else None

    return scripted(name, **{phase: hook})


def users(life):
    """What the model received as the user's."""
    return [message.content for message in life.view.messages if message.role == "user"]


@pytest.mark.rule("P-17", "A-6")
@pytest.mark.parametrize(("phase", "step"), [("run_start", 0), ("step_start", 2), ("step_end", 1)])
async def test_a_hook_between_steps_holds_the_run_until_a_decision(play, autojump_clock, phase, step):
    plugin = holding(phase=phase, step=step)
    life = await play([C], "done", plugins=[plugin], do=[pause(60), decide("r.t1", result="It has.")])
    assert life.path == "running waiting running completed"
    assert life.tickets == {"r.t1": ("external_event", "approved")}
    (asked,) = life.payloads("approval.requested")
    assert (asked["callId"], asked["message"], asked["action"]) == (None, SHIPPED.message, SHIPPED.action)
    assert users(life)[-1] == "It has."


@pytest.mark.rule("P-17")
@SEQUENTIAL
async def test_to_cancel_ends_the_run(play, autojump_clock):
    life = await play([C], "done", plugins=[holding()], do=[decide("r.t1", "cancel", reason="lost", by="ada")])
    assert (life.view.stage, life.view.termination.code, life.outcome.by) == ("cancelled", "approval_rejected", "ada")


@pytest.mark.rule("L-72")
@SEQUENTIAL
async def test_the_result_must_fit_the_schema(play, autojump_clock):
    suspend = gr.Suspend(message="?", response_schema={"type": "integer"})
    acts = [decide("r.t1", result="many"), decide("r.t1", result=3)]
    life = await play([C], "done", plugins=[holding(suspend)], do=acts)
    assert life.replies == ["rejected invalid_result", "accepted"]
    assert users(life)[-1] == "3"


@pytest.mark.rule("L-72")
@SEQUENTIAL
@pytest.mark.parametrize(("on_expiry", "stage"), [("deny", "cancelled"), (gr.SetResult("no news"), "completed")])
async def test_a_decision_may_come_too_late(play, autojump_clock, on_expiry, stage):
    suspend = gr.Suspend(message="?", expires_after=30, on_expiry=on_expiry)
    life = await play([C], "done", plugins=[holding(suspend)], do=[pause(60)])
    assert life.tickets == {"r.t1": ("external_event", "expired")}
    assert life.view.stage == stage


@SEQUENTIAL
async def test_tickets_that_expire_in_one_moment_do_so_in_their_order(play, autojump_clock):
    def hold(ctx: gr.PhaseContext) -> gr.Mutation:
        asked = gr.Mutation()
        for name in "abcde":
            asked = asked.hold(gr.Suspend(expires_after=50, on_expiry=gr.SetResult(name)))
        return asked if ctx.step == 1 else gr.Mutation()

    life = await play("done", do=[pause(60)], plugins=[scripted("x", step_start=hold)])
    assert life.history == ["user: hi", *(f"user: {name}" for name in "abcde"), "assistant: done"]


@pytest.mark.rule("L-64")
async def test_two_hooks_hold_it_until_both_are_decided(play, autojump_clock):
    plugins = [holding(name="one"), holding(name="two")]
    acts = [decide("r.t1"), pause(10), send("hello"), decide("r.t2")]
    life = await play([C], "done", plugins=plugins, do=acts)
    assert life.path == "running waiting running completed"
    assert set(life.tickets.values()) == {("external_event", "approved")}


async def test_a_restart_keeps_the_hold_and_does_not_ask_the_hook_again(play, autojump_clock):
    asked = []
    plugin = scripted("post", step_start=lambda ctx: asked.append(ctx.step) or gr.Mutation().hold(SHIPPED))
    acts = [restart, decide("r.t1"), restart, decide("r.t2")]
    life = await play([C], "done", plugins=[plugin], do=acts)
    assert life.view.stage == "completed"
    assert asked == [1, 2]


@SEQUENTIAL
async def test_an_answer_that_is_final_already_is_not_held_back(play, autojump_clock):
    life = await play("done", plugins=[holding(phase="step_end", step=1)])
    assert life.view.stage == "completed"
    assert life.tickets == {"r.t1": ("external_event", "withdrawn")}


@SEQUENTIAL
@pytest.mark.parametrize("phase", ["before_inference", "after_inference", "before_tool_execute", "run_end"])
async def test_elsewhere_a_hook_cannot_hold_the_run(play, autojump_clock, phase):
    life = await play([C], "done", plugins=[scripted("post", **{phase: lambda ctx: gr.Mutation().hold(SHIPPED)})])
    text = f"plugin 'post' in {phase} asks to hold the run; only run_start, step_start and step_end can"
    if phase == "run_end":
        assert (life.view.stage, life.payloads("degraded")[-1]["detail"]) == ("completed", text)
    else:
        assert (life.outcome.code, life.outcome.message) == ("plugin_error", text)


def test_only_a_suspension_can_be_held_for():
    with pytest.raises(gr.MutationError, match=r"hold\('parcel'\): give a gr.Suspend"):
        gr.Mutation().hold("parcel")


@SEQUENTIAL
async def test_a_wish_that_cannot_be_stored_is_the_hooks_fault(play, autojump_clock):
    life = await play([C], "done", plugins=[holding(gr.Suspend(message="?", expires_after=1e12))])
    assert life.outcome.code == "plugin_error"
    assert "more than a hundred years" in life.outcome.message
