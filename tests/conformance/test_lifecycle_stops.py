"""Rules of stop conditions: each stops after the step that meets it, and what they count outlives everything."""

from typing import Any

import attrs
import pytest

import greenroom as gr
from greenroom.testing import call, delay, fail, text

from ..support.scene_plugins import scripted
from ..support.scene_tools import FAR
from ..support.scenes import Down, Life, after, approve, deny, pause, restart, send

pytestmark = pytest.mark.pace(40)

stop = gr.stop
USED = gr.Usage(requests=1, input=10, output=5)


def step(number: int) -> list[Any]:
    """A step that does something new each time: ten seconds of asking, ten of looking, and 15 tokens."""
    return [delay(10), text(f"step {number}", usage=USED), call("look", at=f"{number}", id=f"C{number}")]


def asks(tool: str, said: str = "", **arguments: Any) -> list[Any]:
    """A step that asks for ten seconds, and then for one call."""
    return [delay(10), text(said), call(tool, arguments)]


@attrs.frozen(kw_only=True)
class Case:
    """A condition, a script that meets it in its third step, and what a stopped run says."""

    condition: Any
    steps: list[Any]
    code: str

    @property
    def script(self) -> list[Any]:
        """With what must never be asked for."""
        return [*self.steps, *[step(number) for number in range(4, 9)]]


CASES = [
    Case(condition=stop.MaxRounds(3), steps=[step(1), step(2), step(3)], code="max_rounds"),
    Case(condition=stop.Timeout(45), steps=[step(1), step(2), step(3)], code="timeout"),
    Case(condition=stop.TokenBudget(40), steps=[step(1), step(2), step(3)], code="token_budget"),
    Case(condition=stop.ConsecutiveErrors(2), steps=[step(1), asks("fails"), asks("fails")], code="consecutive_errors"),
    Case(condition=stop.StopOnTool("note"), steps=[step(1), step(2), asks("note")], code="stop_on_tool"),
    Case(
        condition=stop.ContentMatch("all CLE.R"),
        steps=[step(1), step(2), asks("look", "it is all CLEAR now")],
        code="content_match",
    ),
    Case(
        condition=stop.LoopDetection(2),
        steps=[step(1), asks("look", at="x"), asks("look", at="x")],
        code="loop_detection",
    ),
]
EACH = pytest.mark.parametrize("case", CASES, ids=[case.code for case in CASES])
COUNTING_STEPS = [case for case in CASES if case.code not in ("timeout", "consecutive_errors")]
"""An approved call succeeds and takes time: of these two, what a suspension does is reported below."""


def stopped_in_step(life: Life) -> int:
    """The step after which the run was stopped; it must have been."""
    assert isinstance(life.outcome, gr.Stopped), life.outcome
    return int(life.end["steps"])


# --- each of them ----------------------------------------------------------------------------------------------------


@pytest.mark.rule("L-43")
@EACH
async def test_a_run_is_stopped_after_the_step_that_meets_the_condition_and_not_before(play, autojump_clock, case):
    life = await play(*case.script, stop=[case.condition])
    assert stopped_in_step(life) == 3
    assert (life.outcome.code, life.end["termination"], life.view.stage) == (case.code, "stopped", "completed")
    assert life.outcome.detail
    assert len(life.requests) == 3


@pytest.mark.rule("L-45")
@EACH
async def test_what_it_counts_survives_a_restart_in_every_step(play, autojump_clock, case):
    """Each time the model is being asked, and is asked again."""
    life = await play(*case.script, stop=[case.condition], do=[after(5, Down(FAR)), *[after(25, Down(FAR))] * 2])
    assert stopped_in_step(life) == 3
    assert life.types.count("inference.retried") == 3


@pytest.mark.rule("L-45")
@pytest.mark.parametrize("case", COUNTING_STEPS, ids=[case.code for case in COUNTING_STEPS])
async def test_what_it_counts_survives_a_suspension_in_every_step(play, autojump_clock, case):
    """Each step asks for an approval too, and gets it in another process."""
    waits = [[*one, call("sign", id="B")] for one in case.steps]
    acts = [act for call_id in ("B", "B#2", "B#3") for act in (pause(FAR), restart, approve(call_id))]
    life = await play(*waits, *case.script[3:], stop=[case.condition], do=acts)
    assert stopped_in_step(life) == 3


@pytest.mark.rule("L-47")
@EACH
async def test_an_answer_that_was_just_given_is_not_thrown_away(play, autojump_clock, case):
    """The third step answers, in place of what it does otherwise; a natural end is one, whatever has been met."""
    last = text("it is all CLEAR now, 3 of 3", usage=USED)
    life = await play(*case.steps[:2], [delay(30), last], stop=[case.condition])
    assert not isinstance(life.outcome, gr.Stopped)
    assert life.outcome.output == last.text
    assert life.end["termination"] == "natural_end"


@pytest.mark.rule("L-44")
@pytest.mark.parametrize(
    "off",
    [
        *(stop.MaxRounds(n) for n in (0, None)),
        *(stop.Timeout(n) for n in (0, None)),
        *(stop.TokenBudget(n) for n in (0, None)),
        *(stop.ConsecutiveErrors(n) for n in (0, None)),
        *(stop.LoopDetection(n) for n in (0, None)),
    ],
    ids=repr,
)
@pytest.mark.pace(250)
async def test_nothing_and_none_switch_a_condition_off(play, autojump_clock, off):
    same = [text("again", usage=USED), call("fails", seconds=100)]
    life = await play(*[same] * 20, "done", stop=[off, stop.MaxRounds(None)])
    assert life.outcome.output == "done"
    assert life.end["steps"] == 21


# --- together --------------------------------------------------------------------------------------------------------


@pytest.mark.rule("L-44")
@pytest.mark.parametrize("first", [stop.MaxRounds(2), stop.TokenBudget(20), stop.Timeout(30)], ids=repr)
async def test_the_first_condition_in_the_list_wins(play, autojump_clock, first):
    met = {"max_rounds": stop.MaxRounds(2), "token_budget": stop.TokenBudget(20), "timeout": stop.Timeout(30)}
    (code,) = (name for name, condition in met.items() if condition == first)
    life = await play(step(1), step(2), step(3), stop=[first, *met.values()])
    assert (stopped_in_step(life), life.outcome.code) == (2, code)


@pytest.mark.rule("L-50")
@pytest.mark.parametrize("limit", [stop.TokenBudget(30), stop.Timeout(40)], ids=repr)
async def test_a_limit_that_is_reached_and_not_passed_does_not_stop(play, autojump_clock, limit):
    """After two steps the run has used 30 tokens and worked for 40 seconds."""
    life = await play(*(step(number) for number in range(1, 5)), stop=[limit])
    assert stopped_in_step(life) == 3


@pytest.mark.rule("L-48")
async def test_sixteen_rounds_are_the_default_and_a_limit_of_one_s_own_replaces_it(play, autojump_clock):
    life = await play(*[step(number) for number in range(1, 21)])
    assert (stopped_in_step(life), life.outcome.code) == (16, "max_rounds")


def test_a_pattern_that_is_none_is_refused_when_it_is_written():
    with pytest.raises(ValueError, match=r"ContentMatch\('\['\)"):
        stop.ContentMatch("[")


# --- what exactly is counted -----------------------------------------------------------------------------------------


@pytest.mark.rule("L-46")
async def test_active_time_is_without_waiting(play, autojump_clock):
    signs = [call("sign", id=f"B{number}") for number in (1, 2)]
    acts = [act for number in (1, 2) for act in (pause(FAR), approve(f"B{number}"))]
    life = await play(*signs, "done", stop=[stop.Timeout(25)], do=acts)
    assert (life.outcome.output, life.end["activeSeconds"]) == ("done", 20.0)


@pytest.mark.rule("L-46")
async def test_active_time_is_without_the_time_in_which_no_process_ran(play, autojump_clock):
    life = await play(step(1), "done", stop=[stop.Timeout(45)], do=[after(15, Down(FAR))])
    assert life.outcome.output == "done"
    assert life.end["activeSeconds"] == 20.0  # what a process did after its last commit is not known to the next


@pytest.mark.rule("L-46")
async def test_active_time_is_without_waiting_for_the_thread(play, autojump_clock):
    life = await play(step(1), "done", stop=[stop.Timeout(45)], behind=FAR)
    assert life.end["activeSeconds"] == 20.0


@pytest.mark.rule("L-49")
async def test_active_time_counts_the_model(play, autojump_clock):
    life = await play([delay(30), call("look")], "never", stop=[stop.Timeout(35)])
    assert (stopped_in_step(life), life.outcome.code) == (1, "timeout")


@pytest.mark.rule("L-51")
async def test_a_step_fails_if_all_its_calls_fail(play, autojump_clock):
    half = [call("fails", id="X"), call("look", id="C")]
    life = await play(half, half, half, "done", stop=[stop.ConsecutiveErrors(2)])
    assert life.outcome.output == "done"


@pytest.mark.rule("L-51")
async def test_a_step_that_succeeds_begins_the_count_of_errors_again(play, autojump_clock):
    bad, good = call("fails"), call("look")
    life = await play(bad, good, bad, good, bad, bad, "never", stop=[stop.ConsecutiveErrors(2)])
    assert stopped_in_step(life) == 6


async def test_errors_in_a_row_are_counted_over_a_restart(play, autojump_clock):
    bad = call("fails")
    life = await play(bad, bad, bad, "never", stop=[stop.ConsecutiveErrors(3)], do=[after(19, restart), pause(0)])
    assert isinstance(life.outcome, gr.Waiting)  # the second body was in flight: what came of it is asked
    assert life.record.row.counters.errors == 1


@pytest.mark.rule("L-52")
async def test_a_call_that_was_denied_has_not_run_its_tool(play, autojump_clock):
    life = await play(call("sign", id="B"), "done", stop=[stop.StopOnTool("sign")], do=[deny("B")])
    assert life.outcome.output == "done"


PIECES = text("it is all CLEAR now. "), text("One more look.")
"""The texts of one answer: together they are what was said, and the last one is the final text."""


@pytest.mark.rule("L-53")
@pytest.mark.parametrize("hooked", [False, True])
async def test_the_text_of_a_step_is_all_that_was_said_in_it(play, autojump_clock, hooked):
    """And the output is the final text, as it is without a stop. Hooks receive all of it."""
    received: list[str | None] = []
    plugins = [scripted("x", step_end=lambda ctx: received.append(ctx.text))] if hooked else []
    step = [PIECES[0], call("look", id="C"), PIECES[1]]
    life = await play(step, "never", stop=[stop.ContentMatch("CLEAR")], plugins=plugins, do=[after(5, restart)])
    assert (stopped_in_step(life), life.outcome.output) == (1, "One more look.")
    assert set(received) == ({"it is all CLEAR now. One more look."} if hooked else set())


async def test_what_differs_before_the_final_text_is_no_loop(play, autojump_clock):
    answers = [[text(f"{n} "), delay(10), text("so")] for n in (1, 2)]
    life = await play(
        *answers, "done", stop=[stop.LoopDetection(2)], do=[after(5, send("go on")), after(10, send("?"))]
    )
    assert life.outcome.output == "done"


@pytest.mark.rule("L-54")
async def test_equal_calls_with_other_arguments_are_no_loop(play, autojump_clock):
    life = await play(*[call("look", at=f"{n}") for n in range(5)], "done", stop=[stop.LoopDetection(2)])
    assert life.outcome.output == "done"


@pytest.mark.parametrize("word", ["STOP", "on"])
async def test_of_several_texts_in_a_step_each_may_match_and_the_last_one_is_the_output(play, autojump_clock, word):
    """Also if a process ends between what was said and the end of the step."""
    script = [text("STOP here"), call("look", id="C"), text("or go on")]
    life = await play(script, "never", stop=[stop.ContentMatch(word)], do=[after(5, restart)])
    assert (stopped_in_step(life), life.outcome.code, life.outcome.output) == (1, "content_match", "or go on")


@pytest.mark.rule("L-54")
async def test_the_same_text_beside_other_calls_is_no_loop(play, autojump_clock):
    script = [[text("On to the next one."), call("look", at=f"{n}")] for n in range(5)]
    life = await play(*script, "done", stop=[stop.LoopDetection(2)])
    assert life.outcome.output == "done"


@pytest.mark.rule("L-54")
async def test_a_loop_is_of_all_that_is_said(play, autojump_clock):
    script = [[text(f"{n}"), text("again?")] for n in range(3)]
    asks_back = {"output_type": int, "output_retries": 5}
    life = await play(*script, "7", stop=[stop.LoopDetection(2)], **asks_back)
    assert life.outcome.output == 7


async def test_a_stopped_run_is_completed_and_its_output_may_be_missing(play, autojump_clock):
    said = await play(step(1), stop=[stop.MaxRounds(1)])
    assert isinstance(said.outcome, gr.Completed)
    assert said.outcome.output == "step 1"


async def test_nothing_said_is_no_output(play, autojump_clock):
    silent = await play([call("look")], stop=[stop.MaxRounds(1)])
    assert silent.outcome.output is None


async def test_a_text_of_the_wrong_form_is_no_output(play, autojump_clock):
    life = await play(step(1), stop=[stop.MaxRounds(1)], output_type=int)
    assert (life.outcome.output, life.outcome.code) == (None, "max_rounds")


async def test_an_answer_with_more_input_behind_it_is_kept_if_there_is_no_next_round(play, autojump_clock):
    life = await play([delay(10), "first"], stop=[stop.MaxRounds(1)], do=[after(5, send("and?"))])
    assert isinstance(life.outcome, gr.Stopped)
    assert (life.outcome.output, life.history[-1]) == ("first", "user: and?")


# --- a model that fails ----------------------------------------------------------------------------------------------


@pytest.mark.rule("L-58")
async def test_failures_of_the_model_count_as_failed_steps_and_the_last_one_is_named(play, autojump_clock):
    life = await play(
        asks("fails"),
        fail("overloaded", "first"),
        fail("rate_limited", "last"),
        "never",
        stop=[stop.ConsecutiveErrors(3)],
    )
    assert (life.outcome.code, life.outcome.output) == ("consecutive_errors", None)
    assert life.outcome.detail == life.end["detail"] == "3 failed steps; the last one: rate_limited: last"
    assert len(life.requests) == 3
    assert life.types.count("inference.retried") == 1


async def test_failures_of_the_model_are_counted_across_processes(play, autojump_clock):
    """The process ends while the model is asked again; that is no failure, and forgets none."""
    script = [fail("overloaded"), [delay(10), fail("overloaded")], "never"]
    life = await play(*script, stop=[stop.ConsecutiveErrors(2)], do=[after(5, Down(FAR))])
    assert (life.outcome.code, len(life.requests)) == ("consecutive_errors", 3)


@pytest.mark.rule("L-59")
async def test_a_failure_of_the_model_that_cannot_pass_is_one_whatever_has_been_counted(play, autojump_clock):
    life = await play(asks("fails"), fail("unauthorized"), stop=[stop.ConsecutiveErrors(2)])
    assert (life.outcome.code, life.end["termination"]) == ("model_error", "error")


async def test_an_answer_forgets_the_failures_before_it(play, autojump_clock):
    script = [fail("overloaded"), step(1), fail("overloaded"), "done"]
    life = await play(*script, stop=[stop.ConsecutiveErrors(2)])
    assert life.outcome.output == "done"
