"""Rules of hooks that fail, take too long, ask for what cannot be, end the run, or are cancelled with it."""

import operator
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.testing import call, text

from ..support.scene_plugins import diary, hide, scripted, slow
from ..support.scenes import Down, after, cancel, pause, send
from ..support.stray_cancels import foreign_cancellation

B, C = call("sign", id="B"), call("look", id="C")
MUTATING = [phase.value for phase in gr.Phase if phase is not gr.Phase.TOOL_GATE]
FATAL = [phase for phase in MUTATING if phase != "run_end"]
AROUND = ("before_tool_execute", "after_tool_execute")
ONE_MODE = pytest.mark.parametrize("mode", ["parallel_streaming"])
"""For what no mode of execution has a part in."""
COUNT = gr.StateKey("count", int, default=0, merge=gr.commutative(operator.add))
NAME = gr.StateKey("name", str)


def explode(ctx: Any) -> None:
    """Raises."""
    raise RuntimeError("no \udc80 idea")


def explode_twice(ctx: Any) -> None:
    """Raises a group, as a nursery does."""
    raise ExceptionGroup("two", [ValueError("one"), KeyError("two")])


async def explode_inside(ctx: Any) -> None:
    """A task of its own raises."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep, 100)
        nursery.start_soon(_raise)


def suspend(ctx: gr.PhaseContext) -> None:
    raise gr.Suspend(message="may it?")


async def stray(ctx: Any) -> None:
    """Raises the cancellation of another scope, as who shares work with one that was cancelled may do."""
    raise await foreign_cancellation()


async def _raise() -> None:
    raise ValueError("inside")


FAILURES: dict[str, tuple[Any, str]] = {
    "raises": (explode, "RuntimeError: no"),
    "raises a group": (explode_twice, "ValueError: one; KeyError: 'two'"),
    "has a task that raises": (explode_inside, "ValueError: inside"),
    "takes too long": (slow(100), "it did not finish within 3 s"),
    "takes too long and says something else": (slow(100, "x"), "it did not finish within 3 s"),
    "returns a text": (lambda ctx: "x", "it returned 'x'; return a gr.Mutation or None"),
    "returns the class": (lambda ctx: gr.Mutation, "return a gr.Mutation or None"),
    "writes what does not fit": (lambda ctx: gr.Mutation().set(NAME, 3), "state key 'name'"),
    "updates an exclusive key": (lambda ctx: gr.Mutation().update(NAME, "x"), "is exclusive and takes no updates"),
    "reads what is not there": (lambda ctx: ctx.state[NAME], "has not been written and has no default"),
    "suspends": (lambda ctx: gr.Suspend(), "to hold the run, return gr.Mutation().hold(gr.Suspend(...)) in run_start"),
    "lets a foreign cancellation out": (stray, "it let a cancellation out that was not its own"),
    "raises a suspension": (suspend, "it raised gr.Suspend; to hold the run, return gr.Mutation().hold("),
}


@pytest.mark.rule("P-42")
@pytest.mark.parametrize("phase", FATAL)
async def test_a_hook_that_fails_fails_the_run_and_is_named_with_its_phase(play, autojump_clock, phase):
    life = await play([C], "done", plugins=[scripted("x", **{phase: explode})])
    assert (life.end["code"], life.view.termination.kind) == ("plugin_error", "error")
    assert life.end["message"].startswith(f"plugin 'x' in {phase}: RuntimeError: no")
    if phase not in ("run_start", "step_start", "before_inference", "step_end"):
        assert list(life.tool_texts) == ["C"]


@pytest.mark.rule("P-42")
@pytest.mark.parametrize("phase", FATAL)
async def test_a_failure_that_is_ignored_is_recorded_and_the_run_continues(play, autojump_clock, phase):
    life = await play([C], "done", plugins=[scripted("x", on_error="ignore", **{phase: explode})])
    assert (life.outcome.output, life.effects) == ("done", ["C"])
    found = life.payloads("degraded")
    assert {one["reason"] for one in found} == {"plugin_error"}
    assert all(one["detail"].startswith(f"plugin 'x' in {phase}: ") for one in found)
    assert len(found) == (1 if phase in ("run_start", *AROUND) else 2)


@ONE_MODE
@pytest.mark.parametrize("failure", FAILURES)
async def test_every_way_to_fail_is_reported(play, autojump_clock, failure):
    hook, said = FAILURES[failure]
    life = await play("done", plugins=[scripted("x", timeout=3.0, step_start=hook)])
    assert life.end["code"] == "plugin_error"
    assert said in life.end["message"]


@ONE_MODE
@pytest.mark.parametrize("failure", FAILURES)
async def test_every_way_to_fail_can_be_ignored_and_nothing_of_the_answer_counts(play, autojump_clock, failure):
    hook, said = FAILURES[failure]
    good = scripted("good", step_start=lambda ctx: gr.Mutation().update(COUNT, 1))
    life = await play("done", plugins=[scripted("x", timeout=3.0, on_error="ignore", step_start=hook), good])
    assert (life.outcome.output, dict(life.view.state)) == ("done", {"count": 1})
    assert said in life.payloads("degraded")[0]["detail"]


VERDICTS: dict[str, tuple[Any, str]] = {
    "a truth": (True, "it returned True; return gr.Block, Deny, Suspend, SetResult, Allow or None"),
    "a mutation": (gr.Mutation(), "it returned Mutation("),
    "a reason that is none": (gr.Block(1), "it returned Block(reason=1); return gr.Block"),  # type: ignore[arg-type]
    "a result that is no JSON": (gr.SetResult({"a": object()}), "cannot be stored: the result has no form in JSON"),
    "a time without end": (gr.Suspend(expires_after=1e12), "cannot be stored: expires_after="),
}


@ONE_MODE
@pytest.mark.parametrize("verdict", VERDICTS)
async def test_a_verdict_that_cannot_be_lets_nothing_pass_and_is_reported(play, autojump_clock, verdict):
    given, said = VERDICTS[verdict]
    life = await play([C], "done", plugins=[scripted("x", tool_gate=lambda ctx: given)])
    assert (life.end["code"], life.effects) == ("plugin_error", [])
    assert life.end["message"].startswith("plugin 'x' in tool_gate: it ")
    assert said in life.end["message"]


@ONE_MODE
@pytest.mark.parametrize("on_error", ["fail", "ignore"])
async def test_a_gate_that_lets_a_foreign_cancellation_out_does_not_silence_the_other_gates(
    play, autojump_clock, on_error
):
    async def refuse(ctx: gr.GateContext) -> gr.Block:
        await trio.sleep(1)
        return gr.Block("not this one")

    plugins = [scripted("x", on_error=on_error, tool_gate=stray), scripted("y", tool_gate=refuse)]
    life = await play([C], "done", plugins=plugins)
    assert life.effects == []
    assert life.end["code"] == ("plugin_error" if on_error == "fail" else "permission_denied")


REQUEST: dict[str, gr.Mutation] = {
    "add_message": gr.Mutation().add_message("x"),
    "include_tools": gr.Mutation().include_tools(),
    "exclude_tools": gr.Mutation().exclude_tools("look"),
    "override": gr.Mutation().override(temperature=0),
}
CALLS: dict[str, gr.Mutation] = {
    "edit_call": gr.Mutation().edit_call("C", {}),
    "drop_call": gr.Mutation().drop_call("C"),
}


@pytest.mark.rule("P-9")
@pytest.mark.parametrize("phase", [phase for phase in FATAL if phase != "before_inference"])
@pytest.mark.parametrize("asked", REQUEST)
@ONE_MODE
async def test_only_before_inference_can_change_the_request(play, autojump_clock, phase, asked):
    life = await play([C], "done", plugins=[scripted("x", **{phase: lambda ctx: REQUEST[asked]})])
    assert life.end["message"] == f"plugin 'x' in {phase} asks to change the request; only before_inference can"


@pytest.mark.rule("P-10")
@pytest.mark.parametrize("phase", [phase for phase in FATAL if phase != "after_inference"])
@pytest.mark.parametrize("asked", CALLS)
@ONE_MODE
async def test_only_after_inference_can_change_calls(play, autojump_clock, phase, asked):
    life = await play([C], "done", plugins=[scripted("x", **{phase: lambda ctx: CALLS[asked]})])
    assert life.end["message"] == f"plugin 'x' in {phase} asks to change calls; only after_inference can"


@pytest.mark.parametrize("name", ["include_tools", "exclude_tools"])
async def test_a_tool_that_the_agent_does_not_have_is_reported(play, autojump_clock, name):
    made = getattr(gr.Mutation(), name)("nothing")
    life = await play("done", plugins=[scripted("x", before_inference=lambda ctx: made)])
    assert (
        "plugin 'x' in before_inference names the tool 'nothing'; the agent's tools are: alone, ask"
        in life.end["message"]
    )


@pytest.mark.parametrize("made", CALLS.values(), ids=list(CALLS))
async def test_a_call_that_the_step_does_not_have_is_reported(play, autojump_clock, made):
    life = await play([B], plugins=[scripted("x", after_inference=lambda ctx: made)])
    assert life.end["message"] == "plugin 'x' in after_inference names the call 'C'; the step's calls are: B"
    assert life.calls == {"B": "new cancelled"}


async def test_the_first_failure_cancels_the_other_hooks_of_the_phase(play, autojump_clock):
    stopped: list[float] = []

    async def long(ctx: Any) -> None:
        try:
            await trio.sleep(20)
        finally:
            stopped.append(trio.current_time())

    life = await play("done", plugins=[scripted("long", step_start=long), scripted("x", timeout=3, step_start=slow(9))])
    assert life.seconds("failed") == 3.0
    assert len(stopped) == 1


async def test_a_hook_without_a_limit_may_take_its_time(play, autojump_clock):
    life = await play("done", plugins=[scripted("x", timeout=None, step_start=slow(5000))])
    assert life.outcome.output == "done"


async def test_thirty_seconds_are_the_limit_of_a_hook_unless_it_says_otherwise(play, autojump_clock):
    life = await play("done", plugins=[scripted("x", step_start=slow(40))])
    assert life.seconds("failed") == 30.0


async def test_a_reducer_that_fails_is_its_hook_s_failure(play, autojump_clock):
    def no(value: int, update: int) -> int:
        raise ValueError("no sum today")

    key = gr.StateKey("bad", int, default=0, merge=gr.commutative(no))
    life = await play("done", plugins=[scripted("x", step_start=lambda ctx: gr.Mutation().update(key, 1))])
    assert (life.end["code"], "no sum today" in life.end["message"]) == ("plugin_error", True)


# --- end() -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("P-16")
@pytest.mark.parametrize("phase", FATAL)
async def test_a_hook_may_end_the_run_in_every_phase(play, autojump_clock, phase):
    """As completed; the newest answer is the output; calls are cancelled with one message each."""
    book = diary("run_end")
    ending = scripted("x", **{phase: lambda ctx: gr.Mutation().update(COUNT, 1).end("enough")})
    step = [text("I look."), call("look", seconds=1, id="L1"), call("look", seconds=9, id="L2")]
    step += [] if phase == "step_end" else [B]  # B would wait before it comes to that
    life = await play(step, "done", plugins=[ending, book], stop=[gr.stop.MaxRounds(5)])
    kind = life.view.termination
    assert (kind.kind, kind.detail, life.view.stage) == ("behavior_requested", "enough", "completed")
    before_answer = phase in ("run_start", "step_start", "before_inference")
    assert life.outcome.output == (None if before_answer else "I look.")
    assert life.view.state["count"] >= 1
    assert book.lines == ["run_end"]
    if phase == "step_end":
        assert life.tool_texts == {"L1": "saw L1", "L2": "saw L2"}
    elif not before_answer:
        assert list(life.tool_texts) == ["L1", "L2", "B"]
        assert life.calls["B"].endswith("cancelled")
        assert life.calls["L2"].endswith("cancelled")


@pytest.mark.rule("P-14")
async def test_a_step_after_which_a_hook_ends_the_run_counts(play, autojump_clock):
    ending = scripted("x", step_end=lambda ctx: gr.Mutation().end("enough"))
    life = await play([text("I look."), C], "never", plugins=[ending])
    assert (life.outcome.output, life.tool_texts) == ("I look.", {"C": "saw C"})
    assert (life.end["steps"], life.types.count("step.finished")) == (1, 1)


async def test_a_hook_that_ends_the_run_wins_over_input_that_waits(play, autojump_clock):
    ending = scripted("x", step_end=lambda ctx: gr.Mutation().end("enough"))
    life = await play([C], "never", do=[after(5, send("more"))], plugins=[ending])
    assert life.view.termination.kind == "behavior_requested"
    assert life.history[-1] == "user: more"


async def test_a_cancel_after_the_step_wins_over_a_hook_that_ends_the_run_then(play, autojump_clock):
    ending = scripted("x", step_end=lambda ctx: gr.Mutation().end("enough"))
    life = await play([C], "never", do=[after(5, cancel(mode="after_step"))], plugins=[ending])
    assert isinstance(life.outcome, gr.Cancelled)


@pytest.mark.rule("P-16")
async def test_an_answer_that_does_not_have_the_demanded_form_is_no_output(play, autojump_clock):
    ending = scripted("x", after_inference=lambda ctx: gr.Mutation().end("enough"))
    life = await play("not a number", output_type=int, plugins=[ending])
    assert (type(life.outcome), life.outcome.output) == (gr.Completed, None)


async def test_an_answer_of_the_demanded_form_is_the_output_as_it_is_declared(play, autojump_clock):
    ending = scripted("x", after_inference=lambda ctx: gr.Mutation().end("enough"))
    assert (await play("7", output_type=int, plugins=[ending])).outcome.output == 7


async def test_a_hook_that_ends_a_run_that_is_over_keeps_its_output(play, autojump_clock):
    ending = scripted("x", step_end=lambda ctx: gr.Mutation().end("enough"))
    life = await play([C], plugins=[ending], tool_use="stop_on_first_tool")
    assert (life.outcome.output, life.view.termination.kind) == ("saw C", "behavior_requested")


# --- cancelled with the work -----------------------------------------------------------------------------------------


@pytest.mark.rule("P-45")
@pytest.mark.parametrize("phase", [*FATAL, "tool_gate"])
async def test_a_hook_is_cancelled_with_its_run(play, autojump_clock, phase):
    ended: list[str] = []

    async def long(ctx: Any) -> None:
        try:
            await trio.sleep(1000)
        finally:
            ended.append(phase)

    plugin = scripted("x", timeout=None, **{phase: long})
    life = await play([C], "done", do=[after(15, cancel())], plugins=[plugin, diary("run_end")])
    assert isinstance(life.outcome, gr.Cancelled)
    assert (ended, life.seconds("cancelled")) == ([phase], 15.0)
    assert life.scene.outside.running == []


@pytest.mark.parametrize("phase", [*FATAL, "tool_gate"])
async def test_a_hook_is_cut_by_the_deadline_of_its_run(play, autojump_clock, phase):
    plugin = scripted("x", timeout=None, **{phase: slow(1000)})
    life = await play([C], "done", start={"deadline": 20}, plugins=[plugin])
    assert (life.end["code"], life.seconds("failed")) == ("run_timeout", 20.0)


@pytest.mark.parametrize("tool_use", ["run_model_again", "stop_on_first_tool"])
async def test_the_deadline_does_not_wait_for_a_hook_after_the_last_step(play, autojump_clock, tool_use):
    """There is an answer, or a result that is the output; but the run has not ended by then."""
    script = ["done"] if tool_use == "run_model_again" else [call("look", id="C"), "never"]
    plugin = scripted("x", timeout=None, step_end=slow(1000))
    life = await play(*script, start={"deadline": 20}, plugins=[plugin], tool_use=tool_use)
    assert (life.end["code"], life.seconds("failed"), life.record.row.output) == ("run_timeout", 20.0, None)


async def test_a_deadline_that_passed_while_no_process_ran_ends_the_run_in_such_a_hook(play, autojump_clock):
    plugin = scripted("x", timeout=None, step_end=slow(1000))
    life = await play("done", do=[after(5, Down(30))], start={"deadline": 20}, plugins=[plugin])
    assert (life.end["code"], life.seconds("failed")) == ("run_timeout", 35.0)


@pytest.mark.rule("P-47")
async def test_a_hook_that_hides_from_the_cancel_is_named_and_holds_up_the_end_for_its_grace_only(play, autojump_clock):
    plugin = scripted("x", timeout=None, step_start=lambda ctx: hide(1000))
    life = await play("done", do=[after(2, cancel())], plugins=[plugin])
    assert isinstance(life.outcome, gr.Cancelled)
    assert life.seconds("cancelled") == 8.0
    assert list(life.end["stubborn"]) == ["step_start:1"]


# --- run_end ---------------------------------------------------------------------------------------------------------


async def jam(ctx: Any) -> None:
    """Fails to end."""
    raise RuntimeError("could not tidy")


RUN_END: dict[str, tuple[tuple[Any, ...], dict[str, Any], str]] = {
    "completed": (("done",), {}, "natural_end"),
    "stopped": (([C],), {"stop": [gr.stop.MaxRounds(1)]}, "stopped"),
    "cancelled in a body": (([C],), {"do": [after(5, cancel())]}, "cancelled"),
    "cancelled at rest": (([B],), {"do": [cancel()]}, "cancelled"),
    "cancelled after the step": (([C],), {"do": [after(5, cancel(mode="after_step"))]}, "cancelled"),
    "failed": (([call("breaks", id="X")],), {}, "error"),
    "at its deadline": (([C],), {"start": {"deadline": 5}}, "error"),
    "at its deadline while it waits": (([B],), {"start": {"deadline": 50}, "do": [pause(60)]}, "error"),
}


@pytest.mark.rule("P-15", "P-44")
@ONE_MODE
@pytest.mark.parametrize("fault", ["none", "raises", "too long", "ends", "hides"])
@pytest.mark.parametrize("way", RUN_END)
async def test_run_end_runs_once_after_all_work_and_changes_nothing_about_the_end(play, autojump_clock, way, fault):
    script, options, kind = RUN_END[way]
    hooks: dict[str, Any] = {
        "none": lambda ctx: None,
        "raises": jam,
        "too long": slow(100),
        "ends": lambda ctx: gr.Mutation().end("really"),
        "hides": lambda ctx: hide(1000),
    }
    seen: list[Any] = []

    async def tidy(ctx: gr.PhaseContext[Any]) -> gr.Mutation:
        await trio.sleep(1)
        seen.append((ctx.termination.kind.value if ctx.termination else None, list(ctx.deps.running)))
        return gr.Mutation().update(COUNT, 1)

    bad = scripted("bad", timeout=3.0, run_end=hooks[fault])
    life = await play(*script, plugins=[bad, scripted("tidy", run_end=tidy)], **options)
    assert life.view.termination.kind == kind
    assert life.view.status == "done"
    assert seen == [(kind, [])]
    if fault != "hides":
        assert life.view.state["count"] == 1
    found = [payload["detail"] for payload in life.payloads("degraded")]
    said = {"raises": "could not tidy", "too long": "within 3 s", "hides": "did not obey"}.get(fault)
    assert found == [] if said is None else (len(found) == 1 and said in found[0])


@pytest.mark.rule("P-45")
async def test_run_end_is_not_cut_by_another_cancel(play, autojump_clock):
    book = diary("run_end", run_end=slow(20))
    life = await play([C], do=[after(5, cancel()), after(5, cancel(reason="again"))], plugins=[book])
    assert book.lines == ["run_end"]
    assert life.seconds("cancelled") == 25.0
    assert life.outcome.reason is None


@pytest.mark.rule("P-46")
async def test_run_end_of_a_plugin_without_a_limit_has_one(play, autojump_clock):
    life = await play("done", plugins=[scripted("x", timeout=None, run_end=slow(500))])
    assert life.seconds("completed") == 30.0
    assert "it did not finish within 30 s" in life.payloads("degraded")[0]["detail"]


@pytest.mark.parametrize("hook", ["run_start", "step_start", "after_inference", "tool_gate", "step_end"])
async def test_run_end_runs_when_a_hook_has_failed_the_run(play, autojump_clock, hook):
    book = diary("run_end")
    life = await play([C], plugins=[scripted("x", **{hook: explode}), book])
    assert (book.lines, life.end["code"]) == (["run_end"], "plugin_error")


async def test_run_end_runs_when_a_gate_has_blocked_the_run(play, autojump_clock):
    book = diary("run_end")
    life = await play([C], plugins=[scripted("x", tool_gate=lambda ctx: gr.Block("no")), book])
    assert (book.lines, life.view.termination.kind) == (["run_end"], "blocked")
