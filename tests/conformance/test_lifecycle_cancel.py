"""Rules of cancelling, and of the other things that end work before its time: deadlines, time limits, graces."""

from typing import Any

import attrs
import pytest
import trio

import greenroom as gr
from greenroom.testing import call, delay, fail, text

from ..support.scene_plugins import scripted, slow
from ..support.scenes import Down, after, approve, cancel, decide, pause_run, restart, send

B, C = call("sign", id="B"), call("look", id="C")
LONG = call("look", seconds=100, id="L")
SOON = 5.0


@attrs.frozen(kw_only=True)
class Place:
    """Where a run can be five seconds after its start: how it gets there, and what its calls come to if it is ended."""

    script: tuple[Any, ...]
    options: dict[str, Any] = attrs.field(factory=dict)
    do: tuple[Any, ...] = ()
    calls: dict[str, str] = attrs.field(factory=dict)
    begun: bool = True

    @property
    def at_work(self) -> tuple[str, ...]:
        """The calls whose bodies run there: what a crash makes of them is not known."""
        return tuple(name for name, statuses in self.calls.items() if statuses.endswith("running cancelled"))


PLACES = {
    "waiting for its thread": Place(script=("done",), options={"behind": 500}, begun=False),
    "asking the model": Place(script=([delay(100), "late"],)),
    "hearing the model": Place(script=([text("so"), delay(100), text("late")],)),
    "between two tries of the model": Place(script=([delay(4.9), fail("overloaded")], "late")),
    "asking a gate": Place(script=([call("spend", thinking=100, id="S")],), calls={"S": "new cancelled"}),
    "in a body": Place(script=([LONG],), calls={"L": "new running cancelled"}),
    "in a body that applies something": Place(
        script=([call("write", seconds=100, id="W")],), calls={"W": "new running cancelled"}
    ),
    "waiting for a decision": Place(script=([B],), calls={"B": "new suspended cancelled"}),
    "in a body beside a waiting call": Place(
        script=([B, LONG],), calls={"B": "new suspended cancelled", "L": "new running cancelled"}
    ),
    "in a body that was decided": Place(
        script=([B],), do=(after(1, decide("B")),), calls={"B": "new suspended resuming running cancelled"}
    ),
    "in a body, others having ended": Place(
        script=([call("look", seconds=1, id="Q"), call("fails", seconds=1, id="X"), LONG],),
        calls={"Q": "new running succeeded", "X": "new running failed", "L": "new running cancelled"},
    ),
}
PLACED = pytest.mark.parametrize("place", PLACES.values(), ids=list(PLACES))


def spent(place: Place) -> float:
    """Seconds of the acts that bring a run to its place."""
    return sum(act.seconds for act in place.do)


# --- now -------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("L-27")
@PLACED
async def test_a_cancel_ends_a_run_at_once_wherever_it_is(play, autojump_clock, place):
    last = after(SOON - spent(place), cancel(reason="enough"))
    life = await play(*place.script, do=[*place.do, last], **place.options)
    assert life.outcome == gr.Cancelled(reason="enough", by="ada", code=None)
    assert life.calls == place.calls
    assert life.seconds("cancelled") == SOON
    assert life.scene.outside.running == []
    assert ("started" in life.types) is place.begun


@pytest.mark.rule("L-27")
@PLACED
async def test_nothing_is_started_after_a_cancel(play, autojump_clock, place):
    last = after(SOON - spent(place), cancel())
    life = await play(*place.script, do=[*place.do, last], **place.options)
    rest = life.types[life.types.index("cancel.requested") :]
    assert not {"inference.started", "tool.started", "step.started", "approval.requested"} & set(rest)


@PLACED
async def test_a_cancel_in_another_process_ends_it_too(play, autojump_clock, place):
    last = [after(SOON - spent(place), restart), after(0, cancel(reason="enough"))]
    life = await play(*place.script, do=[*place.do, *last], **place.options)
    assert life.outcome == gr.Cancelled(reason="enough", by="ada", code=None, outcome_unknown=place.at_work)
    assert set(life.tool_texts) == set(place.calls)
    assert life.view.tickets == ()


@PLACED
async def test_a_cancel_that_was_accepted_just_before_the_process_ended_is_obeyed_by_the_next(
    play, autojump_clock, place
):
    last = [after(SOON - spent(place), cancel(reason="enough")), after(0, Down(60))]
    life = await play(*place.script, do=[*place.do, *last], **place.options)
    assert life.outcome == gr.Cancelled(reason="enough", by="ada", code=None)
    assert life.types.count("cancel.requested") == 1


@pytest.mark.rule("L-29")
async def test_a_finished_call_keeps_its_result_and_an_unfinished_one_is_reported(play, autojump_clock):
    life = await play([call("look", seconds=1, id="Q"), LONG, B], do=[after(5, cancel())])
    assert life.tool_texts["Q"] == "saw Q"
    assert "cancelled" in life.tool_texts["L"]
    assert "cancelled" in life.tool_texts["B"]
    assert life.effects == ["Q"]


async def test_a_waiting_run_withdraws_its_tickets(play, autojump_clock):
    life = await play([B, call("pay", id="A")], do=[cancel()])
    assert set(life.tickets.values()) == {("tool_permission", "withdrawn")}
    assert life.path == "running waiting cancelled"
    assert (life.record.row.stage, life.view.status) == ("cancelled", "done")


async def test_what_was_learned_of_an_answer_stays(play, autojump_clock):
    life = await play([text("so"), delay(100), text("late")], do=[after(5, cancel())])
    assert life.types.count("message.discarded") == 0
    assert life.history == ["user: hi", "assistant: so"]


# --- after the step --------------------------------------------------------------------------------------------------


@pytest.mark.rule("L-31")
async def test_after_the_step_its_calls_may_finish_and_the_model_is_not_asked_again(play, autojump_clock):
    life = await play([C, call("note", id="N")], "never", do=[after(5, cancel(mode="after_step"))])
    assert set(life.calls.values()) == {"new running succeeded"}
    assert isinstance(life.outcome, gr.Cancelled)
    assert len(life.requests) == 1


async def test_after_the_step_an_answer_may_be_given_and_its_calls_run(play, autojump_clock):
    life = await play([delay(10), C], "never", do=[after(5, cancel(mode="after_step"))])
    assert (life.calls["C"], len(life.requests)) == ("new running succeeded", 1)


@pytest.mark.parametrize("rounds", [1, 16])
async def test_a_run_that_is_cancelled_after_its_last_step_is_cancelled(play, autojump_clock, rounds):
    """Its answer is in the history."""
    do, stop = [after(5, cancel(mode="after_step"))], [gr.stop.MaxRounds(rounds)]
    life = await play([delay(10), text("done")], do=do, stop=stop)
    assert (life.view.termination.kind, life.history) == ("cancelled", ["user: hi", "assistant: done"])
    assert life.end["steps"] == 1


@pytest.mark.rule("L-31")
async def test_a_waiting_run_does_not_wait_for_the_end_of_its_step(play, autojump_clock):
    life = await play([B], do=[cancel(mode="after_step")])
    assert (life.calls["B"], life.path) == ("new suspended cancelled", "running waiting cancelled")


async def test_a_cancel_after_the_step_ends_a_run_that_has_not_begun_at_once(play, autojump_clock):
    life = await play("never", behind=500, do=[after(5, cancel(mode="after_step", reason="enough"))])
    assert life.outcome == gr.Cancelled(reason="enough", by="ada", code=None)
    assert (life.seconds("cancelled"), life.requests) == (5.0, ())


@pytest.mark.parametrize("besides", ["nothing", "the hook holds the run", "somebody pauses it"])
@pytest.mark.parametrize("phase", ["run_start", "step_start"])
async def test_a_hook_before_the_inference_ends_first_and_no_person_is_asked_for_anything(
    play, autojump_clock, phase, besides
):
    """Before the first step none is begun for the sake of ending after it; in one, the run does not come to rest."""

    holds = besides == "the hook holds the run"

    async def hook(ctx: gr.PhaseContext[Any]) -> gr.Mutation | None:
        await trio.sleep(5)
        return gr.Mutation().hold(gr.Suspend()) if holds else None

    acts = [after(2, cancel(mode="after_step")), *([after(1, pause_run())] if "pauses" in besides else [])]
    life = await play([C], "never", plugins=[scripted("x", **{phase: hook})], do=acts)
    assert isinstance(life.outcome, gr.Cancelled)
    begins = phase == "step_start" and not holds
    assert life.path == "running cancelled"
    assert life.seconds("cancelled") == (15.0 if begins else 5.0)
    assert len(life.requests) == begins


@pytest.mark.parametrize("down", [False, True])
async def test_input_that_waits_when_the_step_ends_is_kept_for_the_thread(play, autojump_clock, down):
    acts = [after(2, send("one")), after(2, cancel(mode="after_step")), after(2, send("two"))]
    life = await play([LONG], "never", do=[*acts, *([after(1, restart)] if down else [])])
    assert (isinstance(life.outcome, gr.Cancelled), len(life.requests)) == (True, 1)
    assert life.history[1:] == ["assistant: (L)", "L: saw L", "user: one", "user: two"]


async def test_a_step_that_would_come_to_rest_ends_instead(play, autojump_clock):
    """A decision would mean nothing any more."""
    life = await play([B, C], do=[after(5, cancel(mode="after_step"))])
    assert life.calls == {"B": "new suspended cancelled", "C": "new running succeeded"}
    assert life.path == "running cancelled"


@pytest.mark.rule("L-31")
@pytest.mark.parametrize("hold", [False, True])
async def test_before_the_first_step_none_is_begun(play, autojump_clock, hold):
    asked = gr.Mutation().hold(gr.Suspend(message="go on?")) if hold else None
    plugin = scripted("x", run_start=slow(10, asked))
    life = await play("never", plugins=[plugin], do=[after(5, cancel(mode="after_step"))])
    assert (life.path, life.seconds("cancelled"), life.end["steps"]) == ("running cancelled", 10.0, 0)
    assert life.requests == ()


async def test_a_pause_that_was_asked_for_before_it_does_not_cut_the_step(play, autojump_clock):
    """It would have held back the next one."""
    plugin, do = scripted("x", step_start=slow(10)), [after(3, pause_run()), after(2, cancel(mode="after_step"))]
    life = await play([C], "never", plugins=[plugin], do=do)
    assert (life.calls["C"], life.end["steps"], life.path) == ("new running succeeded", 1, "running cancelled")
    assert [payload["code"] for payload in life.payloads("decision.refused")] == ["unused"]


async def test_a_second_cancel_may_be_less_patient(play, autojump_clock):
    life = await play([LONG], do=[after(5, cancel(mode="after_step")), after(5, cancel())])
    assert (life.replies, life.seconds("cancelled")) == (["accepted", "accepted"], 10.0)


async def test_a_cancel_after_the_step_survives_a_restart(play, autojump_clock):
    life = await play([LONG], "never", do=[after(5, cancel(mode="after_step")), after(1, restart)])
    assert isinstance(life.outcome, gr.Cancelled)
    assert life.calls["L"] == "new running running succeeded"


# --- once is enough --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["at once", "after the end", "in another process"])
async def test_the_same_cancel_again_is_a_duplicate(play, autojump_clock, when):
    again = after(0, cancel(command_id="x"))
    between = {"at once": [again], "after the end": [after(9, cancel(command_id="x"))]}
    acts = between.get(when, [after(0, restart), again])
    life = await play([LONG], do=[after(5, cancel(command_id="x")), *acts])
    assert life.replies == ["accepted", "duplicate"]
    assert life.types.count("cancelled") == 1


async def test_a_done_run_cannot_be_cancelled(play, autojump_clock):
    life = await play("done", do=[cancel(), cancel(mode="after_step")])
    assert life.replies == ["rejected run_done", "rejected run_done"]
    assert life.outcome.output == "done"


async def test_input_on_the_way_out_is_not_lost_from_the_thread(play, autojump_clock):
    life = await play([call("tidy", id="T")], do=[after(5, cancel()), after(0.5, send("wait"))])
    assert life.replies == ["accepted", "accepted"]
    assert life.history[-1] == "user: wait"


# --- graces ----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("L-28")
async def test_the_end_comes_after_the_clean_up(play, autojump_clock):
    life = await play([call("tidy", seconds=1.5, id="T")], do=[after(5, cancel())])
    assert life.seconds("cancelled") == 6.5
    assert "stubborn" not in life.end
    assert life.scene.outside.running == []


@pytest.mark.rule("L-28")
@pytest.mark.pace(40)
async def test_what_overruns_its_grace_is_named_and_not_waited_for(play, autojump_clock):
    life = await play([call("tidy", seconds=500, id="T")], do=[after(5, cancel())])
    (overrun,) = life.payloads("cleanup.overrun")
    assert (overrun["callId"], overrun["tool"], overrun["graceSeconds"]) == ("T", "tidy", 2.0)
    assert life.end["stubborn"] == ["T"]
    assert life.seconds("cancelled") == 8.0  # its grace, and one second more
    (reported,) = life.tool_texts.values()
    assert reported.startswith("This call was cancelled before it finished.\nIt had not ended ")


async def test_a_second_cancel_does_not_cut_a_clean_up_short(play, autojump_clock):
    life = await play([call("tidy", seconds=1.5, id="T")], do=[after(5, cancel()), after(0.5, cancel())])
    assert life.seconds("cancelled") == 6.5


# --- deadlines and time limits ---------------------------------------------------------------------------------------


@pytest.mark.rule("L-32")
@PLACED
async def test_the_deadline_ends_a_run_wherever_it_is(play, autojump_clock, place):
    life = await play(*place.script, do=place.do, start={"deadline": SOON}, **place.options)
    assert (life.outcome.code, life.calls) == ("run_timeout", place.calls)
    assert life.seconds("failed") == SOON


@pytest.mark.rule("L-32")
@pytest.mark.pace(3)
async def test_the_deadline_includes_waiting_and_the_time_without_a_process(play, autojump_clock):
    life = await play([B], do=[after(1, Down(30))], start={"deadline": 20})
    assert (life.outcome.code, life.seconds("failed")) == ("run_timeout", 31.0)
    assert life.path == "running waiting failed"


async def test_a_decision_after_the_deadline_is_too_late(play, autojump_clock):
    life = await play([B], do=[after(25, decide("B"))], start={"deadline": 20})
    assert life.replies == ["rejected run_done"]
    assert life.tickets == {"r.t1": ("tool_permission", "withdrawn")}


@pytest.mark.rule("L-33")
async def test_a_time_limit_counts_the_attempt_and_not_the_wait_for_people(play, autojump_clock):
    """`hangs` has thirty seconds; the call before it takes a decision that comes late."""
    life = await play([B, call("hangs", id="H")], "done", do=[after(100, approve("B"))])
    assert life.seconds("tool.result", call_id="H") == 30.0
    assert life.codes == {"H": "tool_timeout", "B": None}
