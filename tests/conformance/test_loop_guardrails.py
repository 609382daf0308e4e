"""Rules of the guardrails of agents: when they are asked, what waits for them, and what a trip leaves behind."""

from collections.abc import Callable
from typing import Any

import attrs
import pytest
import trio

import greenroom as gr
from greenroom.testing import call, delay, fail, refuse, text

from ..support.scene_plugins import scripted
from ..support.scene_tools import TOOLS
from ..support.scenes import Life, after, approve, cancel, restart, send

LOOK, NOTE, PAY = call("look", id="L"), call("note", id="N"), call("pay", id="P")
TRIP = gr.Trip("found it")


class Desk:
    """The guardrails of one scene, and what they were asked, over all its processes."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.running: set[str] = set()

    def _made(self, decorator: Any, name: str, verdict: Any, seconds: float, **options: Any) -> Any:
        async def judge(ctx: gr.PhaseContext[Any], value: Any) -> Any:
            self.asked.append((name, value))
            self.running.add(name)
            try:
                await trio.sleep(seconds)
            finally:
                self.running.discard(name)
            return verdict(ctx, value) if isinstance(verdict, Callable) else verdict  # type: ignore[arg-type]

        return decorator(name=name, **options)(judge)

    def before(self, verdict: Any = None, *, name: str = "in", seconds: float = 1.0, **options: Any) -> Any:
        """An input guardrail."""
        return self._made(gr.input_guardrail, name, verdict, seconds, **options)

    def behind(self, verdict: Any = None, *, name: str = "out", seconds: float = 1.0, **options: Any) -> Any:
        """An output guardrail."""
        return self._made(gr.output_guardrail, name, verdict, seconds, **options)


@pytest.fixture
def desk() -> Desk:
    """A desk for one scene."""
    return Desk()


def tripped(life: Life) -> tuple[Any, ...]:
    """Kind, guardrail, verdict, step and info of the only event about a guardrail."""
    (event,) = life.payloads("guardrail.tripped")
    return tuple(event.get(name) for name in ("kind", "guardrail", "verdict", "step", "info"))


# --- when input guardrails are asked ---------------------------------------------------------------------------------


@pytest.mark.rule("GU-12")
@pytest.mark.parametrize("blocking", [False, True])
async def test_the_input_is_judged_in_the_first_step_only(play, autojump_clock, desk, blocking):
    life = await play([LOOK], [PAY], "done", do=[approve("P")], input_guardrails=[desk.before(blocking=blocking)])
    assert desk.asked == [("in", "hi")]
    assert (life.outcome.output, life.effects) == ("done", ["L", "P"])


@pytest.mark.rule("GU-12")
async def test_a_sent_text_is_judged_in_the_step_that_reads_it(play, autojump_clock, desk):
    script = ([LOOK], "done")
    do = [after(3.0, send("and this")), after(0.0, send("and that"))]
    life = await play(*script, do=do, input_guardrails=[desk.before()])
    assert desk.asked == [("in", "hi"), ("in", "and this\n\nand that")]
    assert life.outcome.output == "done"


@pytest.mark.rule("GU-12")
async def test_a_trip_about_a_sent_text_ends_the_run(play, autojump_clock, desk):
    look = desk.before(lambda ctx, value: TRIP if value == "evil" else None)
    life = await play([LOOK], "done", do=[after(3.0, send("evil"))], input_guardrails=[look])
    assert (life.outcome.code, life.effects) == ("guardrail_tripped", ["L"])
    assert tripped(life) == ("input", "in", "trip", 2, "found it")
    assert life.history == ["user: hi", "assistant: (L)", "L: saw L", "user: evil"]


@pytest.mark.rule("GU-12")
@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("where", ["run_start", "step_start"])
async def test_a_text_sent_while_the_run_is_held_is_judged_with_the_input(play, autojump_clock, desk, where, blocking):
    """Before the first step, and in it: the step that reads both texts asks once."""
    plugin = scripted("p", **{where: _holds_once()})
    guard = desk.before(blocking=blocking)
    life = await play("done", do=[send("more"), restart, _resume], plugins=[plugin], input_guardrails=[guard])
    assert (life.outcome.output, desk.asked) == ("done", [("in", "hi\n\nmore")])
    assert life.history == ["user: hi", "user: more", "assistant: done"]


def _holds_once() -> Any:
    held: list[str] = []

    def hold(ctx: gr.PhaseContext[Any]) -> gr.Mutation | None:
        held.append(ctx.phase)
        return gr.Mutation().hold(gr.Suspend(message="wait")) if len(held) == 1 else None

    return hold


async def _resume(scene: Any) -> None:
    for ticket in (await scene.run.view()).tickets:
        scene.note(await scene.run.decide(ticket.approve(by="ada")))


@pytest.mark.rule("GU-12")
@pytest.mark.parametrize("seconds", [0.5, 3.0, 7.0])
async def test_guardrails_that_have_passed_are_not_asked_after_a_crash(play, autojump_clock, desk, seconds):
    """At 0.5 s they are open; at 3 s the model works, and they have passed; at 7 s a tool works."""
    script = ([delay(5.0), LOOK], "done")
    life = await play(*script, do=[after(seconds, restart)], input_guardrails=[desk.before()])
    assert desk.asked == [("in", "hi")] * (2 if seconds < 1 else 1)
    assert life.outcome.output == "done"


@pytest.mark.rule("GU-12")
@pytest.mark.parametrize("step", [0, 1])
async def test_a_fork_of_a_later_step_asks_nothing(play, autojump_clock, desk, step):
    forks: list[str] = []

    async def fork(scene: Any) -> None:
        forked = await scene.runtime.fork("r", step=step, new_run_id="f")
        forks.append((await forked.result()).output)

    life = await play([LOOK], "done", "again", "and again", do=[fork], input_guardrails=[desk.before()])
    assert life.outcome.output == "done"
    assert len(forks) == 1
    assert desk.asked == [("in", "hi")] * (2 if step == 0 else 1)


@pytest.mark.rule("GU-12")
async def test_nothing_is_asked_again_for_an_answer_of_the_wrong_form_or_a_retry(play, autojump_clock, desk):
    life = await play(fail("overloaded"), "x", "5", output_type=int, input_guardrails=[desk.before()])
    assert (life.outcome.output, desk.asked) == (5, [("in", "hi")])


# --- blocking and parallel -------------------------------------------------------------------------------------------


@pytest.mark.rule("GU-13")
async def test_blocking_guardrails_overlap_and_pass_before_the_model_is_asked(play, autojump_clock, desk):
    seen: list[str] = []
    plugin = scripted("p", before_inference=lambda ctx: seen.append(f"{sorted(desk.running)}"))
    guards = [desk.before(name="a", seconds=2, blocking=True), desk.before(name="b", seconds=3, blocking=True)]
    life = await play("done", plugins=[plugin], input_guardrails=[*guards, desk.before(name="c", seconds=9)])
    asked = [name for name, _ in desk.asked]
    assert (sorted(asked[:2]), asked[2:]) == (["a", "b"], ["c"])
    assert (life.seconds("inference.started"), seen) == (3.0, ["[]"])
    assert life.seconds("completed") == 12.0


@pytest.mark.rule("GU-13")
async def test_a_blocking_trip_asks_no_model(play, autojump_clock, desk):
    life = await play("done", input_guardrails=[desk.before(TRIP, blocking=True), desk.before(name="late")])
    assert (life.outcome.code, life.requests, desk.asked) == ("guardrail_tripped", (), [("in", "hi")])
    assert life.history == ["user: hi"]
    assert "inference.started" not in life.types


@pytest.mark.rule("GU-14")
async def test_the_others_are_asked_beside_the_request(play, autojump_clock, desk):
    life = await play([delay(3.0), "done"], input_guardrails=[desk.before(seconds=2)])
    assert (life.seconds("message.completed"), life.seconds("completed")) == (3.0, 3.0)


@pytest.mark.rule("GU-14")
@pytest.mark.parametrize("answer", ["done", [LOOK], refuse("no"), [call("look", id="X"), call("note", id="X")]])
async def test_what_the_answer_comes_to_waits_for_the_guardrails(play, autojump_clock, desk, answer):
    """An answer, calls, a refusal, an answer that cannot be used."""
    life = await play(answer, "done", input_guardrails=[desk.before(seconds=5)])
    first = next(event for event in life.events if event.type in ("run.tool.started", "run.completed", "run.failed"))
    assert (first.timestamp - life.events[0].timestamp).total_seconds() == 5.0
    assert life.path.startswith("running")
    if answer == "done":
        assert life.seconds("message.completed") == 5.0


@pytest.mark.rule("GU-14")
@pytest.mark.parametrize("answer", [refuse("no"), [call("look", id="X"), call("note", id="X")], "done", [LOOK]])
async def test_a_trip_wins_over_whatever_the_answer_comes_to(play, autojump_clock, desk, answer):
    life = await play(answer, "done", input_guardrails=[desk.before(TRIP, seconds=5)])
    assert (life.outcome.code, life.effects, life.history) == ("guardrail_tripped", [], ["user: hi"])
    assert tripped(life) == ("input", "in", "trip", 1, "found it")


@pytest.mark.rule("GU-14")
async def test_hooks_after_the_inference_do_not_wait(play, autojump_clock, desk):
    seen: list[bool] = []
    plugin = scripted("p", after_inference=lambda ctx: seen.append("in" in desk.running))
    life = await play([LOOK], "done", plugins=[plugin], input_guardrails=[desk.before(seconds=5)])
    assert (seen[0], life.seconds("tool.started")) == (True, 5.0)


@pytest.mark.rule("GU-14")
@pytest.mark.parametrize("verdict", [None, TRIP])
async def test_an_end_that_a_hook_asks_for_waits_for_the_guardrails(play, autojump_clock, desk, verdict):
    plugin = scripted("p", after_inference=lambda ctx: gr.Mutation().end("enough"))
    life = await play("done", plugins=[plugin], input_guardrails=[desk.before(verdict, seconds=5)])
    if verdict is None:
        assert (life.outcome.termination.kind, life.outcome.output) == ("behavior_requested", "done")
        assert life.history == ["user: hi", "assistant: done"]
    else:
        assert (life.outcome.code, life.history) == ("guardrail_tripped", ["user: hi"])
    assert life.seconds("completed" if verdict is None else "failed") == 5.0


@pytest.mark.rule("GU-14")
async def test_a_model_that_fails_for_good_does_not_wait(play, autojump_clock, desk):
    life = await play(fail("unauthorized"), input_guardrails=[desk.before(seconds=20)])
    assert (life.outcome.code, life.seconds("failed")) == ("model_error", 0.0)
    assert desk.running == set()


@pytest.mark.rule("GU-14")
async def test_the_model_is_retried_beside_open_guardrails(play, autojump_clock, desk):
    life = await play(fail("overloaded"), "done", input_guardrails=[desk.before(seconds=20)])
    assert (life.outcome.output, desk.asked) == ("done", [("in", "hi")])
    assert life.seconds("inference.retried") < life.seconds("completed") == 20.0


# --- crashes ---------------------------------------------------------------------------------------------------------


@pytest.mark.rule("GU-3", "GU-15")
@pytest.mark.parametrize("verdict", [None, TRIP])
@pytest.mark.parametrize("seconds", [0.5, 1.5, 3.0, 6.0])
@pytest.mark.parametrize("blocking", [False, True])
async def test_open_guardrails_are_asked_again_after_a_crash(play, autojump_clock, desk, verdict, seconds, blocking):
    """The model takes two seconds and the guardrails four, so they are open with and without an answer."""
    guard = desk.before(verdict, seconds=4, blocking=blocking)
    life = await play([delay(2.0), NOTE], "done", do=[after(seconds, restart)], input_guardrails=[guard])
    assert desk.asked == [("in", "hi")] * (1 if seconds > 4 else 2)
    if verdict is None:
        assert (life.outcome.code if isinstance(life.outcome, gr.Failed) else life.outcome.termination.kind) in (
            "natural_end",
            "suspended",
        )
    else:
        assert (life.outcome.code, life.effects, life.history) == ("guardrail_tripped", [], ["user: hi"])
        assert len(life.payloads("guardrail.tripped")) == 1


@pytest.mark.rule("GU-3", "GU-15")
@pytest.mark.parametrize("verdict", [None, TRIP])
async def test_output_guardrails_are_asked_again_after_a_crash(play, autojump_clock, desk, verdict):
    life = await play("done", do=[after(2.0, restart)], output_guardrails=[desk.behind(verdict, seconds=4)])
    assert desk.asked == [("out", "done")] * 2
    assert life.history == ["user: hi", *(["assistant: done"] if verdict is None else [])]
    assert len(life.requests) == 1, "the answer is in the run's row"


# --- what a trip leaves behind ---------------------------------------------------------------------------------------


@pytest.mark.rule("GU-16")
async def test_a_trip_discards_the_answer_and_its_deltas_stay_in_the_log(play, autojump_clock, desk):
    answer = [text("one"), delay(1.0), text("two"), delay(9.0), text("three")]
    life = await play(answer, input_guardrails=[desk.before(TRIP, seconds=5)])
    assert "".join(payload["text"] for payload in life.payloads("message.delta")) == "onetwo"
    (discarded,) = life.payloads("message.discarded")
    assert discarded["reason"] == "guardrail"
    assert (life.history, life.payloads("message.completed")) == (["user: hi"], [])


@pytest.mark.rule("GU-16")
async def test_calls_of_a_discarded_answer_end_cancelled_without_a_message(play, autojump_clock, desk):
    script = [text("I look."), delay(1.0), LOOK, NOTE]
    life = await play(script, input_guardrails=[desk.before(TRIP, seconds=5)])
    assert life.calls == {"L": "new cancelled", "N": "new cancelled"}
    assert (life.codes, life.history, life.effects) == ({"L": "cancelled", "N": "cancelled"}, ["user: hi"], [])
    assert len(life.payloads("message.discarded")) == 1


@pytest.mark.rule("GU-16")
async def test_the_next_run_of_the_thread_reads_nothing_of_the_answer(play, autojump_clock, desk):
    async def next_run(scene: Any) -> None:
        agent = scene.crew["next"] = scene.play.agent("fine", key="next")
        run = await scene.runtime.start(agent, "and now?", run_id="n", thread_id="t")
        await run.result()
        scene.details.append(str([m.content for m in agent.model.requests[0].messages]))

    life = await play([text("bad"), LOOK], do=[next_run], input_guardrails=[desk.before(TRIP, seconds=5)])
    assert life.scene.details == ["['hi', 'and now?']"]


@pytest.mark.rule("GU-16")
@pytest.mark.parametrize("which", ["input", "output"])
async def test_an_answer_whose_guardrails_are_cancelled_with_the_run_is_discarded(play, autojump_clock, desk, which):
    guards = {"input": desk.before(seconds=9), "output": desk.behind(seconds=9)}
    script = [text("so"), delay(1.0), text(" it is")]
    life = await play(script, do=[after(3.0, cancel())], **{f"{which}_guardrails": [guards[which]]})
    assert (life.path, life.history) == ("running cancelled", ["user: hi"])
    (discarded,) = life.payloads("message.discarded")
    assert discarded["reason"] == "the run ended"
    assert desk.running == set()


@pytest.mark.rule("GU-2")
@pytest.mark.parametrize("kind", ["input", "output"])
async def test_the_first_trip_cancels_the_others_which_have_cleaned_up_first(play, autojump_clock, desk, kind):
    cleaned: list[float] = []

    async def slow(ctx: Any, value: Any) -> None:
        try:
            await trio.sleep(99)
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(2)
            cleaned.append(trio.current_time())

    made = {"input": (desk.before, gr.input_guardrail), "output": (desk.behind, gr.output_guardrail)}[kind]
    guards = [made[1](name="slow", timeout=200)(slow), made[0](TRIP, seconds=1)]
    life = await play("done", **{f"{kind}_guardrails": guards})
    assert (life.outcome.code, len(cleaned)) == ("guardrail_tripped", 1)
    assert life.seconds("failed") == 3.0


@pytest.mark.rule("GU-2")
async def test_the_model_has_stopped_before_the_run_ends(play, autojump_clock, desk):
    life = await play([text("a"), delay(50.0), "done"], input_guardrails=[desk.before(TRIP, seconds=5)])
    assert (life.seconds("failed"), life.end.get("stubborn")) == (5.0, None)


# --- failures --------------------------------------------------------------------------------------------------------


async def _raises(*_: Any) -> None:
    raise ValueError("torn")


async def _late(*_: Any) -> None:
    await trio.sleep(31)


def _odd(*_: Any) -> Any:
    return gr.Reject("for tools only")


FAULTS: dict[Any, str] = {
    _raises: "ValueError: torn",
    _late: "it did not answer within 30 s",
    _odd: "it returned Reject(text='for tools only'); return gr.Trip, gr.Allow or None",
}


@pytest.mark.rule("GU-1")
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
@pytest.mark.parametrize("kind", ["input", "output"])
async def test_a_guardrail_without_a_verdict_has_not_passed(play, autojump_clock, desk, fault, kind):
    made = getattr(gr, f"{kind}_guardrail")(name="g")(fault)
    life = await play([text("so")], **{f"{kind}_guardrails": [made]})
    assert life.outcome.code == "plugin_error"
    assert life.outcome.message == f"guardrail g ({kind}): {FAULTS[fault]}"
    assert life.history == ["user: hi"]
    assert life.end["errorId"] == f"r/{kind}_guardrails/1"


@pytest.mark.rule("GU-1")
@pytest.mark.parametrize("kind", ["input", "output"])
async def test_a_guardrail_that_ignores_the_end_of_its_time_is_given_up(play, autojump_clock, desk, kind):
    async def deaf(*_: Any) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(100)

    made = getattr(gr, f"{kind}_guardrail")(name="g", timeout=3)(deaf)
    other = {"input": desk.before, "output": desk.behind}[kind](seconds=0)
    life = await play("done", **{f"{kind}_guardrails": [made, other]})
    assert (life.outcome.code, "did not obey" in life.outcome.message) == ("plugin_error", True)
    assert life.end["stubborn"]
    assert len(life.payloads("cleanup.overrun")) == 1


# --- outputs ---------------------------------------------------------------------------------------------------------


@attrs.frozen
class Report:
    """An output."""

    title: str


def _enough(ctx: Any) -> gr.Mutation:
    return gr.Mutation().end("enough")


OUTPUTS: dict[str, tuple[tuple[Any, ...], dict[str, Any], Any]] = {
    "a text": (("done",), {}, "done"),
    "an object": (('{"title": "x"}',), {"output_type": Report}, Report("x")),
    "after a wrong form": (("what?", '{"title": "x"}'), {"output_type": Report}, Report("x")),
    "of a tool": (([LOOK, NOTE], "never"), {"tool_use": "stop_on_first_tool"}, "saw L"),
    "a hook": (("done",), {"plugins": [scripted("p", after_inference=_enough)]}, "done"),
    "a hook at the step's end": (
        ([text("so"), LOOK], "never"),
        {"plugins": [scripted("p", step_end=_enough)]},
        "so",
    ),
    "a stop condition": (([text("so"), LOOK], "never"), {"stop": [gr.stop.MaxRounds(1)]}, "so"),
}
DATED = ("a hook at the step's end",)
"""Ends that are decided after the step's messages are in the thread."""


@pytest.mark.rule("GU-17")
@pytest.mark.parametrize("how", OUTPUTS)
async def test_each_final_output_is_judged_before_the_run_completes(play, autojump_clock, desk, how):
    script, options, output = OUTPUTS[how]
    life = await play(*script, output_guardrails=[desk.behind(seconds=3)], **options)
    assert desk.asked == [("out", output)]
    assert life.outcome.output == (output if not isinstance(life.outcome, gr.Stopped) else "so")
    assert not life.payloads("guardrail.tripped")


@pytest.mark.rule("GU-18")
@pytest.mark.parametrize("how", OUTPUTS)
async def test_a_trip_withholds_the_output(play, autojump_clock, desk, how):
    script, options, _ = OUTPUTS[how]
    life = await play(*script, output_guardrails=[desk.behind(TRIP, name="g")], **options)
    assert (life.outcome.code, life.outcome.message) == ("guardrail_tripped", "g: found it")
    assert tripped(life)[:3] == ("output", "g", "trip")
    assert "output" not in life.end
    withheld = "[withheld by guardrail g]"
    history = [line for line in life.history if "form" not in line]
    expected = {
        "of a tool": ["user: hi", "assistant: (L, N)", f"L: {withheld}", f"N: {withheld}"],
        "a stop condition": ["user: hi", f"assistant: {withheld} (L)", f"L: {withheld}"],
        "a hook at the step's end": ["user: hi", "assistant: so (L)", "L: saw L"],
        "after a wrong form": ["user: hi", "assistant: what?"],
    }
    assert history == expected.get(how, ["user: hi"])


@pytest.mark.rule("GU-17")
async def test_a_step_with_calls_a_wait_and_an_end_without_output_ask_nothing(play, autojump_clock, desk):
    life = await play([PAY], do=[cancel()], output_guardrails=[desk.behind(TRIP)])
    assert (life.path.endswith("cancelled"), desk.asked) == (True, [])
    other = await play([text("so"), LOOK], [LOOK], "done", output_guardrails=[desk.behind()], start={"run_id": "r"})
    assert other is not None


@pytest.mark.rule("GU-17")
async def test_guardrails_judge_at_once_before_the_step_ends(play, autojump_clock, desk):
    guards = [desk.behind(name="a", seconds=3), desk.behind(name="b", seconds=5)]
    seen: list[float] = []
    plugin = scripted("p", step_end=lambda ctx: seen.append(len(desk.running)))
    life = await play("done", plugins=[plugin], output_guardrails=guards)
    assert (life.seconds("step.finished"), seen) == (5.0, [0])
    assert life.seconds("message.completed") == 5.0


@pytest.mark.rule("GU-17")
async def test_an_answer_that_new_input_overtakes_is_judged_as_well(play, autojump_clock, desk):
    do = [after(0.5, send("wait"))]
    life = await play("first", "second", do=do, output_guardrails=[desk.behind()])
    assert (desk.asked, life.outcome.output) == ([("out", "first"), ("out", "second")], "second")
    assert life.history == ["user: hi", "assistant: first", "user: wait", "assistant: second"]


@pytest.mark.rule("GU-17")
async def test_a_cancel_after_the_step_wins_over_a_judged_output(play, autojump_clock, desk):
    do = [after(0.5, cancel(mode="after_step"))]
    life = await play("done", do=do, output_guardrails=[desk.behind()])
    assert life.path == "running cancelled"


@pytest.mark.rule("GU-18")
async def test_the_text_of_a_call_was_complete_and_is_withheld_from_the_thread(play, autojump_clock, desk):
    script = ([text("I look."), LOOK], "never")
    options = {"tool_use": "stop_on_first_tool", "output_guardrails": [desk.behind(TRIP, name="g")]}
    life = await play(*script, **options)
    assert [payload["text"] for payload in life.payloads("message.completed")] == ["I look."]
    withheld = "[withheld by guardrail g]"
    assert life.history == ["user: hi", f"assistant: {withheld} (L)", f"L: {withheld}"]


@pytest.mark.rule("GU-19")
async def test_a_rejected_call_counts_for_tool_use(play, autojump_clock):
    reject = gr.tool_input_guardrail(name="no")(lambda ctx, arguments: gr.Reject("not today"))

    @gr.tool(input_guardrails=[reject])
    async def close() -> str:
        """Closes."""
        return "closed"

    life = await play([call("close", id="C")], "never", tools=[close], tool_use="stop_on_first_tool")
    assert (life.outcome.output, life.codes) == ("not today", {"C": "guardrail_rejected"})


@pytest.mark.rule("GU-17")
async def test_input_and_output_are_judged_in_one_run(play, autojump_clock, desk):
    options = {"input_guardrails": [desk.before()], "output_guardrails": [desk.behind()]}
    life = await play([LOOK], "done", **options, tools=TOOLS)
    assert desk.asked == [("in", "hi"), ("out", "done")]
    assert len(life.payloads("message.completed")) == 1
