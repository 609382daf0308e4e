"""Scenes of docs/outputs.md: instructions that are a function of the run."""

from typing import Any

import attrs
import pytest
import trio

import greenroom as gr
from greenroom.actors.contract.excerpt import LARGE
from greenroom.actors.user_code.instructions import ask_instructions
from greenroom.testing import FunctionModel, call, delay, fail, text

from ..support.handoff_scenes import H, other
from ..support.scene_plugins import hide, scripted
from ..support.scenes import Life, Scene, after, cancel, restart

C = call("look", id="C")
PLACE = gr.StateKey("place", str, default="nowhere")


@attrs.define
class Manner:
    """Instructions of a scene: keeps who asked, and gives its answers in order, the last one for ever."""

    answers: list[Any]
    seconds: float = 1.0
    asked: list[int] = attrs.field(factory=list)

    async def __call__(self, ctx: gr.PhaseContext[Any]) -> Any:
        """Answer after some seconds."""
        self.asked.append(ctx.step)
        await trio.sleep(self.seconds)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer


def systems(life: Life) -> list[str]:
    """The system text of each request; "" if there is none."""
    firsts = (request.messages[0] for request in life.requests)
    return [first.content if first.role == "system" else "" for first in firsts]


@pytest.mark.rule("OU-1")
@pytest.mark.parametrize("kind", ["sync", "async", "object"])
async def test_a_function_makes_the_system_text_of_each_step(play, autojump_clock, kind):
    def said(ctx: gr.PhaseContext[Any]) -> str:
        assert (ctx.phase, ctx.run_id, ctx.by) == (gr.Phase.BEFORE_INFERENCE, "r", "local")
        return f"step {ctx.step}: {len(ctx.messages)} messages, {ctx.deps.effects}"

    async def later(ctx: gr.PhaseContext[Any]) -> str:
        await trio.sleep(1)
        return said(ctx)

    life = await play(C, "done", instructions={"sync": said, "async": later, "object": Manner(["x"])}[kind])
    assert systems(life) == (
        ["x", "x"] if kind == "object" else ["step 1: 1 messages, []", "step 2: 3 messages, ['C']"]
    )


@pytest.mark.rule("OU-1")
async def test_an_empty_text_means_no_instructions(play, autojump_clock):
    assert systems(await play(C, "done", instructions=lambda ctx: "" if ctx.step == 1 else "go")) == ["", "go"]


@pytest.mark.rule("OU-1")
async def test_the_function_reads_the_state_that_the_hooks_read_and_their_changes_stay(play, autojump_clock):
    changes = gr.Mutation().set(PLACE, "desk").add_message("mind the step")
    plugin = scripted("writes", before_inference=lambda ctx: changes)
    life = await play(C, "done", instructions=lambda ctx: ctx.state[PLACE], plugins=[plugin], state=[PLACE])
    assert systems(life) == ["nowhere", "desk"]
    assert [request.messages[-1].content for request in life.requests] == ["mind the step"] * 2


@pytest.mark.rule("OU-1")
async def test_it_is_asked_beside_tools_that_may_be_disabled(play, autojump_clock):
    @gr.tool(is_enabled=False)
    async def hidden() -> None:
        """Hide."""

    life = await play("done", instructions=lambda ctx: "go", tools=[hidden])
    assert (systems(life), life.requests[0].tools) == (["go"], ())


@pytest.mark.rule("OU-1")
async def test_it_is_not_asked_if_a_hook_ends_the_run(play, autojump_clock):
    manner = Manner(["x"])
    plugin = scripted("ends", before_inference=lambda ctx: gr.Mutation().end("enough"))
    life = await play("done", instructions=manner, plugins=[plugin])
    assert (manner.asked, life.requests, life.outcome.termination.kind) == ([], (), "behavior_requested")


@pytest.mark.rule("OU-1")
async def test_the_form_of_the_answer_follows_the_text(play, autojump_clock):
    life = await play("three", "3", instructions=lambda ctx: f"step {ctx.step}", output_type=int)
    assert life.outcome.output == 3
    assert [said.split("\n\n")[0] for said in systems(life)] == ["step 1", "step 2"]
    assert all('{"type":"integer"}' in said for said in systems(life))


# --- one text in a step ----------------------------------------------------------------------------------------------


@pytest.mark.rule("OU-2")
@pytest.mark.parametrize(
    "script",
    [
        pytest.param([fail("overloaded"), fail("overloaded"), "done"], id="retries"),
        pytest.param([[text("so far "), fail("interrupted")], "done"], id="a continued text"),
    ],
)
async def test_every_try_of_a_step_sends_the_same_text(play, autojump_clock, script):
    manner = Manner(["first", "second"])
    life = await play(*script, instructions=manner)
    assert (systems(life), manner.asked) == (["first"] * len(script), [1])


@pytest.mark.rule("OU-2")
async def test_another_model_gets_the_same_text(play, autojump_clock):
    manner, other = Manner(["first", "second"]), FunctionModel(lambda request: request.messages[0].content)
    life = await play(fail("quota_exceeded"), instructions=manner, plugins=[gr.Fallback(other)])
    assert (life.outcome.output, manner.asked) == ("first", [1])


@pytest.mark.rule("OU-2")
async def test_a_restart_in_the_request_sends_the_stored_text(play, autojump_clock):
    manner = Manner(["first", "second"])
    script = [delay(20), "one"], "done"
    life = await play(*script, instructions=manner, do=[after(10, restart), after(10, restart)])
    assert (set(systems(life)), manner.asked) == ({"first"}, [1])
    assert life.payloads("inference.retried")[0]["code"] == "interrupted"


@pytest.mark.rule("OU-2")
async def test_a_restart_before_the_text_is_stored_asks_again(play, autojump_clock):
    manner = Manner(["first", "second"], seconds=10)
    life = await play("done", instructions=manner, do=[after(5, restart)])
    assert (systems(life), manner.asked) == (["first"], [1, 1])


# --- failures --------------------------------------------------------------------------------------------------------

FAULTS = {
    "raises": (RuntimeError("no idea"), "instructions: the function failed: RuntimeError: no idea"),
    "no text": (7, "instructions: the function returned 7; return a str"),
    "bytes": (b"x", "return a str"),
    "too large": ("ä" * (LARGE // 2 + 1), f"returned {LARGE + 2:,} bytes; at most {LARGE:,}"),
}


@pytest.mark.rule("OU-3")
@pytest.mark.parametrize(("answer", "why"), FAULTS.values(), ids=list(FAULTS))
async def test_a_function_that_gives_no_text_fails_the_run(play, autojump_clock, answer, why, caplog):
    life = await play("done", instructions=Manner([answer]))
    assert (life.outcome.code, life.requests) == ("plugin_error", ())
    assert why in life.outcome.message
    assert [why in record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [True]


@pytest.mark.rule("OU-3")
async def test_the_largest_text_is_sent(play, autojump_clock):
    assert systems(await play("done", instructions=lambda ctx: "x" * LARGE)) == ["x" * LARGE]


@pytest.mark.rule("OU-3")
async def test_half_a_surrogate_pair_is_replaced(play, autojump_clock):
    assert systems(await play("done", instructions=lambda ctx: "a\ud800")) == ["a?"]


@pytest.mark.rule("OU-3")
async def test_a_late_function_fails_the_run(play, autojump_clock):
    life = await play("done", instructions=Manner(["x"], seconds=100))
    assert (life.outcome.code, life.requests) == ("plugin_error", ())
    assert "did not answer within 30 s" in life.outcome.message
    assert life.seconds("failed") == 30.0


@pytest.mark.rule("OU-3")
async def test_a_function_that_ignores_the_end_of_its_time_is_abandoned(play, autojump_clock):
    async def deaf(ctx: gr.PhaseContext[Any]) -> str:
        await hide(500)
        return "late"

    life = await play("done", instructions=deaf)
    assert (life.outcome.code, life.requests) == ("plugin_error", ())
    assert "and did not obey either" in life.outcome.message
    assert life.seconds("failed") < 100


@pytest.mark.rule("OU-3")
async def test_writes_of_hooks_are_dropped_with_the_failed_phase(play, autojump_clock):
    plugin = scripted("writes", before_inference=lambda ctx: gr.Mutation().set(PLACE, "desk"))
    life = await play("done", instructions=Manner([RuntimeError("x")]), plugins=[plugin], state=[PLACE])
    assert (life.outcome.code, life.view.state) == ("plugin_error", {})


@pytest.mark.rule("OU-4")
async def test_a_cancel_ends_the_function(play, autojump_clock):
    ended: list[str] = []

    async def slow(ctx: gr.PhaseContext[Any]) -> str:
        try:
            await trio.sleep(20)
        finally:
            ended.append(ctx.run_id)
        return "x"

    life = await play("done", instructions=slow, do=[after(10, cancel())])
    assert (ended, life.requests, life.outcome.by) == (["r"], (), "ada")


# --- releases --------------------------------------------------------------------------------------------------------


@pytest.mark.rule("OU-5")
async def test_a_step_that_has_not_asked_a_new_function_asks_it_before_the_request_is_repeated(play, autojump_clock):
    manner = Manner(["asked", "again"])

    async def newer(scene: Scene) -> None:
        scene.agent = play.agent("done", instructions=manner)

    script = [delay(20), "never"]
    life = await play(script, instructions="text", do=[after(10, newer), after(0, restart)])
    assert (life.outcome.output, systems(life), manner.asked) == ("done", ["asked"], [1])
    assert life.view.usage.requests == 2
    assert [payload["reason"] for payload in life.payloads("degraded")] == ["agent_changed"]


@pytest.mark.rule("OU-5")
async def test_input_guardrails_of_that_step_are_asked_once_by_the_next_process(play, autojump_clock):
    asked: list[str] = []

    @gr.input_guardrail
    async def passes(ctx: gr.PhaseContext[Any], text: str) -> None:
        asked.append(text)
        await trio.sleep(15)

    async def newer(scene: Scene) -> None:
        options = {"instructions": lambda ctx: "asked", "input_guardrails": [passes]}
        scene.agent = play.agent("done", **options)

    script = [delay(20), "never"]
    options = {"instructions": "text", "input_guardrails": [passes]}
    life = await play(script, do=[after(10, newer), after(0, restart)], **options)
    assert (life.outcome.output, asked, systems(life)) == ("done", ["hi", "hi"], ["asked"])


@pytest.mark.rule("OU-5")
async def test_a_function_in_place_of_a_function_is_the_same_agent(play, autojump_clock):
    async def newer(scene: Scene) -> None:
        scene.agent = play.agent("done", instructions=lambda ctx: "new")

    script = [delay(20), "never"]
    life = await play(script, instructions=lambda ctx: "old", do=[after(10, newer), after(0, restart)])
    assert (systems(life), life.payloads("degraded")) == (["old"], [])


# --- handoffs --------------------------------------------------------------------------------------------------------


@pytest.mark.rule("OU-14")
async def test_the_active_agents_function_is_asked_with_the_context_of_the_run(play, autojump_clock):
    first, second = Manner(["ask"]), Manner(["know"])
    desk = other(C, [delay(20), "done"], instructions=second)
    life = await play(H, instructions=first, handoffs=[desk], do=[after(30, restart)])
    assert (systems(life), first.asked) == (["ask"], [1])
    assert [request.messages[0].content for request in desk.model.requests] == ["know"] * 3
    assert (second.asked, life.outcome.output) == ([2, 3], "done")


@pytest.mark.rule("OU-14")
async def test_a_text_follows_a_function_and_a_function_a_text(play, autojump_clock):
    desk = other("done", instructions="You know.")
    life = await play(H, instructions=Manner(["ask"]), handoffs=[desk])
    assert (systems(life), desk.model.requests[0].messages[0].content) == (["ask"], "You know.")


@pytest.mark.rule("OU-14")
async def test_the_form_is_the_active_agents(play, autojump_clock):
    form = {"type": "object", "required": ["n"]}
    desk = other("no", "still no", '{"n": 1}', output_type=form, output_retries=2)
    life = await play(H, output_type=int, output_retries=0, handoffs=[desk])
    assert (life.outcome.output, life.requests[0].output_schema) == ({"n": 1}, {"type": "integer"})
    assert [request.output_schema for request in desk.model.requests] == [form] * 3


async def test_an_abandoned_function_is_not_asked_again():
    from greenroom.actors.user_code.hook_deadlines import HookDeadlines
    from greenroom.actors.user_code.hooks import HookFailed

    context = gr.PhaseContext(phase=gr.Phase.BEFORE_INFERENCE)
    with pytest.raises(HookFailed, match="did not obey either"):
        await ask_instructions(lambda ctx: "x", context, HookDeadlines(30.0, frozenset({"the instructions"})))
