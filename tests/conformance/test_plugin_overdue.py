"""Rules of hooks that hide from the end of their time: a late answer is none, and no task waits for ever."""

import operator
from typing import Any

import pytest

import greenroom as gr
from greenroom.testing import call

from ..support.runs import agent, home
from ..support.scene_plugins import hide, scripted
from ..support.scenes import after, approve, cancel, pause

B, C = call("sign", id="B"), call("look", id="C")
PHASES = [phase.value for phase in gr.Phase if phase is not gr.Phase.RUN_END]
FATAL = [phase for phase in PHASES if phase != "tool_gate"]
ONCE = ("run_start", "before_tool_execute", "after_tool_execute")
ONE_MODE = pytest.mark.parametrize("mode", ["parallel_streaming"])
COUNT = gr.StateKey("count", int, default=0, merge=gr.commutative(operator.add))
OBEDIENT = 3.0 + 5.0
"""Seconds after which a hook of three seconds is given up."""


def hides(seconds: float, *phases: str, **options: Any) -> Any:
    """A plugin whose hooks do not notices that their three seconds are over."""
    return scripted("x", timeout=3.0, **options, **{phase: lambda ctx: hide(seconds) for phase in phases})


@pytest.mark.rule("P-48")
@pytest.mark.parametrize("phase", PHASES)
async def test_what_a_hook_says_after_its_time_does_not_count(play, autojump_clock, phase):
    life = await play([C], "done", plugins=[hides(4, phase)])
    assert life.end["code"] == "plugin_error"
    assert life.end["message"] == f"plugin 'x' in {phase}: it did not finish within 3 s"


@pytest.mark.rule("P-48")
@pytest.mark.parametrize("phase", PHASES)
async def test_a_hook_that_does_not_obey_is_given_up_and_fails_the_run(play, autojump_clock, phase):
    life = await play([C], "done", plugins=[hides(100_000, phase)])
    assert life.end["code"] == "plugin_error"
    assert life.end["message"] == f"plugin 'x' in {phase}: it did not finish within 3 s, and did not obey either"
    assert [name.endswith(" (x)") for name in life.end["stubborn"]] == [True]
    assert life.seconds("failed") < 30


@pytest.mark.parametrize("phase", FATAL)
async def test_one_that_may_fail_is_given_up_and_the_run_continues(play, autojump_clock, phase):
    good = scripted("good", **{phase: lambda ctx: gr.Mutation().update(COUNT, 1)})
    life = await play([C], "done", plugins=[hides(100_000, phase, on_error="ignore"), good])
    times = 1 if phase in ONCE else 2
    assert (life.outcome.output, life.effects, dict(life.view.state)) == ("done", ["C"], {"count": times})
    assert [payload["detail"] for payload in life.payloads("degraded")] == [
        f"plugin 'x' in {phase}: it did not finish within 3 s, and did not obey either"
    ] * times
    assert len(life.end["stubborn"]) == times


async def test_a_gate_that_does_not_obey_lets_a_person_decide(play, autojump_clock):
    plugin = hides(100_000, "tool_gate", on_error="ignore")
    life = await play([C], "done", do=[approve("C")], plugins=[plugin])
    assert (life.outcome.output, life.effects) == ("done", ["C"])
    assert life.seconds("approval.requested") == OBEDIENT


@ONE_MODE
async def test_a_predicate_that_does_not_obey_means_that_an_approval_is_needed(play, autojump_clock):
    async def asks(ctx: Any, arguments: Any) -> bool:
        await hide(100_000)
        return False

    @gr.tool(needs_approval=asks)
    async def own() -> str:
        """Do something."""
        return "done"

    life = await play([call("own", id="O")], "done", do=[approve("O")], tools=[own])
    assert (life.outcome.output, life.seconds("approval.requested")) == ("done", 35.0)


@ONE_MODE
async def test_several_are_given_up_together(play, autojump_clock):
    plugins = [scripted(name, timeout=3.0, on_error="ignore", step_start=lambda ctx: hide(9999)) for name in "ab"]
    life = await play("done", plugins=plugins)
    assert life.seconds("completed") == pytest.approx(OBEDIENT, abs=7)
    assert list(life.end["stubborn"]) == ["step_start:1 (a b)"]


@ONE_MODE
async def test_a_hook_that_obeys_late_leaves_nothing_behind(play, autojump_clock):
    """It ends after it was given up: what it says is dropped, and the terminal event names no plugin."""
    slow = call("look", id="C", seconds=500)
    end = gr.Mutation().end("too late")

    async def once(ctx: Any) -> gr.Mutation | None:
        if ctx.step == 2:
            return None
        await hide(50)
        return end

    life = await play([slow], "done", plugins=[scripted("x", timeout=3.0, on_error="ignore", step_start=once)])
    assert (life.outcome.output, life.outcome.termination.kind) == ("done", "natural_end")
    assert "stubborn" not in life.end
    assert [payload["callId"] for payload in life.payloads("cleanup.overrun")] == ["step_start:1 (x)"]


@pytest.mark.parametrize("on_error", ["fail", "ignore"])
async def test_a_run_that_gave_up_a_hook_is_replayed(autojump_clock, on_error):
    made = agent(plugins=[hides(100_000, "step_start", on_error=on_error)])
    async with home(agents=[made]) as runtime:
        run = await runtime.start(made, "go")
        await run.wait()
        assert (await runtime.replay(run.id)).equal


@ONE_MODE
async def test_a_cancel_of_a_run_whose_hook_was_given_up_ends_it(play, autojump_clock):
    plugin = hides(100_000, "step_start", on_error="ignore")
    life = await play([B], "done", do=[pause(60), after(90, cancel())], plugins=[plugin])
    assert isinstance(life.outcome, gr.Cancelled)
    assert list(life.end["stubborn"]) == ["step_start:1 (x)"]
