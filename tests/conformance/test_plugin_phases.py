"""Rules of the phases: which hooks run, in which order, how often, and what they receive.

The diary of these scenes writes a line per hook: the phase, and the call if it is one's.
"""

from typing import Any

import pytest

import greenroom as gr
from greenroom.testing import call, delay, fail, text

from ..support.scene_plugins import diary, gate, scripted, slow
from ..support.scenes import after, approve, cancel, deny, restart, send

A, B, C = call("pay", id="A"), call("sign", id="B"), call("look", id="C")
SEQUENTIAL = pytest.mark.parametrize("mode", ["sequential"])
STEP = ["step_start", "before_inference", "after_inference"]
LAST = [*STEP, "step_end", "run_end"]


def around(*middle: str) -> list[str]:
    """The phases of a run with one step of calls, and a step with the answer."""
    return ["run_start", *STEP, *middle, "step_end", *LAST]


# --- the order -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("P-8", "P-14")
async def test_a_run_with_a_call_and_an_answer_goes_through_the_phases_in_their_order(play, autojump_clock):
    book = diary()
    await play([C], "done", plugins=[book])
    assert book.lines == around("tool_gate C", "before_tool_execute C", "after_tool_execute C")


WAYS: dict[str, tuple[Any, tuple[Any, ...], list[Any], list[str]]] = {
    "failed": (call("fails", id="X"), (), [], ["tool_gate X", "before_tool_execute X", "after_tool_execute X"]),
    "of no tool": (call("nothing", id="X"), (), [], ["after_tool_execute X"]),
    "with wrong arguments": (call("look", seconds="x", id="X"), (), [], ["after_tool_execute X"]),
    "whose result is set": (C, (), [gate("set", gr.SetResult("so"))], ["tool_gate C", "after_tool_execute C"]),
    "that is refused": (
        C,
        (),
        [gate("policy", gr.SetResult("no", code="permission_denied"))],
        ["tool_gate C", "after_tool_execute C"],
    ),
    "that a person denies": (B, (deny("B"),), [], ["tool_gate B"]),
    "that a person approves": (
        B,
        (approve("B"),),
        [],
        ["tool_gate B", "tool_gate B", "before_tool_execute B", "after_tool_execute B"],
    ),
    "that suspends in its body": (
        call("ask", id="X"),
        (approve("X", "yes"),),
        [],
        ["tool_gate X", "before_tool_execute X", "tool_gate X", "before_tool_execute X", "after_tool_execute X"],
    ),
    "whose decision is its result": (
        call("ask", mode="use_decision_as_tool_result", id="X"),
        (approve("X", "yes"),),
        [],
        ["tool_gate X", "before_tool_execute X", "tool_gate X", "after_tool_execute X"],
    ),
}


@pytest.mark.rule("P-12")
@pytest.mark.parametrize("way", WAYS)
async def test_before_runs_per_attempt_and_after_once_but_not_for_cancelled_calls(play, autojump_clock, way):
    asked, do, gates, phases = WAYS[way]
    book = diary()
    life = await play([asked], "done", do=do, plugins=[book, *gates])
    assert book.lines == around(*phases)
    assert life.outcome.output == "done"


@pytest.mark.rule("P-26")
async def test_a_dropped_call_passes_no_gate_and_nothing_runs_around_it(play, autojump_clock):
    def drop(ctx: gr.PhaseContext) -> gr.Mutation | None:
        return gr.Mutation().drop_call("C", "Not now.") if ctx.calls else None

    book = diary(after_inference=drop)
    life = await play([C], "done", plugins=[book])
    assert book.lines == around()
    assert (life.tool_texts, life.calls, life.codes) == ({"C": "Not now."}, {"C": "new cancelled"}, {"C": "dropped"})


@pytest.mark.rule("P-11")
@SEQUENTIAL
async def test_calls_in_sequence_pass_their_gates_first_and_then_run_one_after_the_other(play, autojump_clock):
    book = diary()
    await play([call("look", id="L1"), call("look", id="L2")], "done", plugins=[book])
    gates = ["tool_gate L1", "tool_gate L2"]
    bodies = [f"{phase} {name}" for name in ("L1", "L2") for phase in ("before_tool_execute", "after_tool_execute")]
    assert book.lines == around(*gates, *bodies)


@pytest.mark.parametrize("mode", ["sequential"])
@pytest.mark.parametrize("phase", ["before_tool_execute", "after_tool_execute"])
async def test_in_sequence_hooks_around_a_body_hold_its_turn_whatever_comes_meanwhile(play, autojump_clock, phase):
    around = scripted("x", **{phase: slow(5)})
    life = await play(
        [C, call("note", id="N")], "done", plugins=[around], do=[after(2, send("x")), after(10, send("y"))]
    )
    second = life.seconds("tool.started", call_id="N")
    assert second == life.seconds("tool.result", call_id="C") + 5.0
    assert life.scene.outside.peak == 1


async def test_hooks_that_ask_for_nothing_make_no_event_and_no_revision(play, autojump_clock):
    life = await play([C], "done", plugins=[diary()])
    assert life.record.row.revision == 0
    assert not [name for name in life.types if name.startswith(("state", "gate", "degraded"))]


# --- how often -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("P-7")
async def test_run_start_runs_once_per_run_and_not_per_process(play, autojump_clock):
    book = diary()
    await play([B], [A], "done", do=[restart, approve("B"), restart, approve("A")], plugins=[book])
    assert book.count("run_start") == book.count("run_end") == 1
    assert book.count("step_start") == book.count("step_end") == 3


async def test_run_start_runs_once_although_the_run_leaves_memory_while_it_waits(play, autojump_clock):
    play.runtime = {"passivate_after": 5}
    book = diary()
    life = await play([B], "done", do=[after(100, approve("B"))], plugins=[book])
    assert book.lines == around("tool_gate B", "tool_gate B", "before_tool_execute B", "after_tool_execute B")
    assert life.outcome.output == "done"


@pytest.mark.rule("P-9")
async def test_the_hooks_around_an_inference_run_once_however_often_the_model_is_asked(play, autojump_clock):
    book = diary()
    await play(fail("overloaded"), fail("overloaded"), "done", plugins=[book])
    assert book.lines == ["run_start", *LAST]


@pytest.mark.rule("P-13")
async def test_after_tool_execute_runs_once_for_a_body_that_ran_twice(play, autojump_clock):
    """`look` may be repeated, so the next process does."""
    book = diary()
    life = await play([C], "done", do=[after(5, restart)], plugins=[book])
    assert life.scene.outside.attempts("C") == 2
    assert (book.count("before_tool_execute C"), book.count("after_tool_execute C")) == (2, 1)


@pytest.mark.rule("P-13")
async def test_a_cancelled_body_has_no_after_hook(play, autojump_clock):
    book = diary()
    await play([C], do=[after(5, cancel())], plugins=[book])
    assert book.lines == ["run_start", *STEP, "tool_gate C", "before_tool_execute C", "run_end"]


# --- what they receive ----------------------------------------------------------------------------------------------


async def test_hooks_are_shown_where_they_are(play, autojump_clock):
    seen: dict[str, Any] = {}

    def look(ctx: gr.PhaseContext) -> None:
        seen[str(ctx.phase)] = ctx

    await play([text("I look."), C], "done", plugins=[diary(every=look)], start={"by": "ada"})
    for phase, ctx in seen.items():
        assert (ctx.run_id, ctx.thread_id, ctx.agent, ctx.by) == ("r", "t", "helper", "ada"), phase
        assert ctx.deps.effects is not None
        assert ctx.step == (0 if phase == "run_start" else 2 if phase == "run_end" else ctx.step)
    assert seen["run_start"].text is None
    assert seen["tool_gate"].tool == "look"
    assert seen["after_tool_execute"].call.result == "saw C"
    assert seen["run_end"].termination.kind == "natural_end"
    assert all(ctx.termination is None for phase, ctx in seen.items() if phase != "run_end")


async def test_hooks_see_the_thread_with_the_answer_as_soon_as_there_is_one(play, autojump_clock):
    seen: dict[tuple[str, int], list[str]] = {}

    def look(ctx: gr.PhaseContext) -> None:
        seen[str(ctx.phase), ctx.step] = [message.role for message in ctx.messages]

    await play([C], "done", plugins=[diary(every=look)])
    assert seen["before_inference", 1] == ["user"]
    assert seen["after_inference", 1] == seen["tool_gate", 1] == seen["after_tool_execute", 1] == ["user", "assistant"]
    assert seen["step_end", 1] == seen["before_inference", 2] == ["user", "assistant", "tool"]
    assert seen["step_end", 2] == seen["run_end", 2] == ["user", "assistant", "tool", "assistant"]


async def test_what_a_hook_received_stays_as_it_was(play, autojump_clock):
    kept: list[gr.PhaseContext] = []
    await play([C], "done", plugins=[diary("before_inference", every=kept.append)])
    assert [len(ctx.messages) for ctx in kept] == [1, 3]
    with pytest.raises(AttributeError):
        kept[0].step = 7  # type: ignore[misc]


HOOKS = ["after_inference", "tool_gate", "before_tool_execute", "after_tool_execute", "step_end"]


@pytest.mark.parametrize("phase", HOOKS)
async def test_a_hook_that_changes_what_it_received_changes_nothing(play, autojump_clock, phase):
    """Above all not what a person has approved."""

    def spoil(ctx: Any) -> None:
        for one in (*ctx.calls, ctx.call):
            if one is not None:
                one.arguments["cents"] = 99
                assert one.decision is None or one.decision.result.clear() is None

    life = await play(
        [call("sign", id="B", cents=1)], "done", do=[approve("B", {"a": 1})], plugins=[diary(phase, every=spoil)]
    )
    assert life.tool_texts == {"B": "signed 1"}
    assert life.record.calls[0].arguments == {"cents": 1}
    assert life.record.calls[0].decision.result == {"a": 1}


async def test_calls_are_reported_as_they_are(play, autojump_clock):
    seen: list[Any] = []

    def look(ctx: gr.PhaseContext) -> None:
        seen.append([(facts.call_id, str(facts.status), facts.attempt, facts.text) for facts in ctx.calls])

    await play([C, call("fails", id="X")], "done", plugins=[diary("step_end", every=look)])
    assert seen[0] == [("C", "succeeded", 1, "saw C"), ("X", "failed", 1, "no luck")]


@pytest.mark.rule("P-10")
async def test_a_model_that_fails_has_no_after_inference(play, autojump_clock):
    book = diary()
    await play(fail("unauthorized"), plugins=[book])
    assert book.lines == ["run_start", "step_start", "before_inference", "run_end"]


@pytest.mark.rule("P-15")
async def test_a_run_that_never_began_has_neither_run_start_nor_run_end(play, autojump_clock):
    book = diary()
    await play("done", do=[after(1, cancel())], behind=100, plugins=[book])
    assert book.lines == []


async def test_a_slow_answer_is_not_held_up_by_plugins(play, autojump_clock):
    life = await play([delay(3), "done"], plugins=[diary()])
    assert life.seconds("completed") == 3.0
