"""Rules of the end: every reason for which a run leaves its loop, and what it comes to."""

from typing import Any

import attrs
import pytest

import greenroom as gr
from greenroom.actors.contract.lifecycle import STATUS, TERMINATION_STAGE, TerminationKind
from greenroom.testing import call, delay, fail, refuse, text

from ..support.scene_plugins import gate, scripted, slow
from ..support.scenes import after, approve, cancel, deny, pause, restart, send

B, C = call("sign", id="B"), call("look", id="C")


@attrs.frozen(kw_only=True)
class Ending:
    """A way to end: the scene, and what it must come to."""

    script: tuple[Any, ...]
    do: tuple[Any, ...] = ()
    options: dict[str, Any] = attrs.field(factory=dict)
    kind: str
    code: str | None = None
    outcome: type = gr.Failed


ENDINGS = {
    "a text ends it": Ending(script=("done",), kind="natural_end", outcome=gr.Completed),
    "nothing at all ends it": Ending(script=([],), kind="natural_end", outcome=gr.Completed),
    "a tool's result ends it": Ending(
        script=([C],), options={"tool_use": "stop_on_first_tool"}, kind="natural_end", outcome=gr.Completed
    ),
    "a stop condition": Ending(
        script=([C],), options={"stop": [gr.stop.MaxRounds(1)]}, kind="stopped", code="max_rounds", outcome=gr.Stopped
    ),
    "the model keeps failing": Ending(
        script=(fail("overloaded"),) * 2,
        options={"stop": [gr.stop.ConsecutiveErrors(2)]},
        kind="stopped",
        code="consecutive_errors",
        outcome=gr.Stopped,
    ),
    "a cancel": Ending(script=([C],), do=(after(5, cancel()),), kind="cancelled", outcome=gr.Cancelled),
    "a cancel while it waits": Ending(script=([B],), do=(cancel(),), kind="cancelled", outcome=gr.Cancelled),
    "a denial": Ending(
        script=([B, C],),
        do=(deny("B"),),
        options={"on_deny": "cancel_run"},
        kind="cancelled",
        code="approval_rejected",
        outcome=gr.Cancelled,
    ),
    "an expiry": Ending(
        script=([call("ask", expires=30, on_expiry="cancel_run", id="D"), C],),
        do=(pause(60),),
        kind="cancelled",
        code="approval_rejected",
        outcome=gr.Cancelled,
    ),
    "a decision that is owed": Ending(script=([B, C],), kind="suspended", outcome=gr.Waiting),
    "the model cannot be asked": Ending(script=(fail("unauthorized"),), kind="error", code="model_error"),
    "the model stays overloaded": Ending(script=(fail("overloaded"),) * 3, kind="error", code="model_error"),
    "the model refuses": Ending(script=(refuse("I will not"),), kind="error", code="model_refusal"),
    "the model contradicts itself": Ending(
        script=([C, call("note", id="C")],), kind="error", code="model_behavior_error"
    ),
    "the model asks for what is not there": Ending(
        script=([C, call("nothing", id="X")],),
        options={"on_unknown_tool": "raise"},
        kind="error",
        code="model_behavior_error",
    ),
    "the answer keeps the wrong form": Ending(
        script=("no", "still no"), options={"output_type": int}, kind="error", code="model_behavior_error"
    ),
    "a tool fails for good": Ending(script=([call("breaks", id="X"), C],), kind="error", code="tool_error"),
    "a tool takes too long for good": Ending(script=([call("jams", id="X"), C],), kind="error", code="tool_error"),
    "the deadline": Ending(script=([C],), options={"start": {"deadline": 5}}, kind="error", code="run_timeout"),
    "the deadline while it waits": Ending(
        script=([B, C],), do=(pause(60),), options={"start": {"deadline": 50}}, kind="error", code="run_timeout"
    ),
    "a hook asks for it": Ending(
        script=([C],),
        options={"plugins": [scripted("x", step_end=lambda ctx: gr.Mutation().end("enough"))]},
        kind="behavior_requested",
        outcome=gr.Completed,
    ),
    "a gate blocks it": Ending(
        script=([B, C],),
        options={"plugins": [gate("x", gr.Block("not here"))]},
        kind="blocked",
        code="permission_denied",
    ),
    "a hook fails": Ending(
        script=([C],),
        options={"plugins": [scripted("x", timeout=1, step_end=slow(5))]},
        kind="error",
        code="plugin_error",
    ),
}
"""Everything in this release that ends a run or lets it rest, but for a bug of ours (internal_error)."""


@pytest.mark.rule("L-5")
@pytest.mark.parametrize("ending", ENDINGS.values(), ids=list(ENDINGS))
async def test_a_run_ends_for_its_reason_and_comes_to_what_the_reason_says(play, autojump_clock, ending):
    life = await play(*ending.script, do=ending.do, **ending.options)
    kind = TerminationKind(ending.kind)
    assert life.view.stage is TERMINATION_STAGE[kind]
    assert type(life.outcome) is ending.outcome
    if ending.outcome is gr.Waiting:
        assert life.statuses[-1] == "waiting"
        assert life.view.termination is None
        assert (life.outcome.termination.kind, life.outcome.termination.detail) == (kind, "tool_permission")
        return
    assert life.statuses[-1] == "done"
    assert (life.view.termination.kind, life.view.termination.code) == (kind, ending.code)
    assert (life.end["termination"], life.end.get("code")) == (kind.value, ending.code)
    assert life.types.count(life.types[-1]) == 1
    assert life.view.tickets == ()


@pytest.mark.rule("L-5")
def test_every_reason_has_its_ending():
    made = {TerminationKind(ending.kind) for ending in ENDINGS.values()}
    assert made == set(TerminationKind)


def test_only_suspended_is_waiting():
    waiting = [kind for kind, stage in TERMINATION_STAGE.items() if STATUS[stage] == "waiting"]
    assert waiting == [TerminationKind.SUSPENDED]


async def test_a_run_that_waits_says_for_what(play, autojump_clock):
    life = await play([call("ask", id="D"), call("ask", id="E"), B])
    waiting = [("D", "user_input"), ("B", "tool_permission")]
    if play.mode != "sequential":
        waiting.insert(1, ("E", "user_input"))
    assert sorted((ticket.call_id, ticket.reason) for ticket in life.outcome.tickets) == sorted(waiting)
    assert life.outcome.termination.kind == "suspended"
    assert sorted(life.outcome.termination.detail.split(", ")) == ["tool_permission", "user_input"]


# --- what the end tells ----------------------------------------------------------------------------------------------


@pytest.mark.rule("L-3")
async def test_however_often_a_run_waits_it_has_one_end(play, autojump_clock):
    life = await play([B], [call("sign", id="D")], "done", do=[approve("B"), restart, approve("D")])
    assert life.path == "running waiting running waiting running completed"
    assert len(life.payloads("completed", "failed", "cancelled")) == 1
    assert life.types.count("created") == life.types.count("started") == 1


async def test_the_end_tells_usage_steps_active_time_and_the_last_sequence(play, autojump_clock):
    usage = gr.Usage(requests=1, input=10, output=5)
    life = await play([text("so", usage=usage), C], text("done", usage=usage))
    assert (life.end["steps"], life.end["activeSeconds"], life.end["lastSequence"]) == (2, 10.0, len(life.events))
    used = gr.Usage(requests=2, input=20, output=10)
    assert gr.Usage(**life.end["usage"]) == life.outcome.usage == life.view.usage == used


async def test_what_was_used_before_a_failure_counts(play, autojump_clock):
    usage = gr.Usage(requests=1, input=10, output=5)
    life = await play([text("so", usage=usage), C], fail("unauthorized"))
    assert gr.Usage(**life.end["usage"]) == usage + gr.Usage(requests=1)  # the request that failed counts, too
    assert life.end["steps"] == 1


async def test_who_cancels_and_why_is_reported(play, autojump_clock):
    life = await play([B], do=[cancel(reason="changed my mind", by="bob")])
    assert life.outcome == gr.Cancelled(reason="changed my mind", by="bob", code=None)
    assert (life.end["by"], life.end["reason"]) == ("bob", "changed my mind")


async def test_a_failure_is_reported_with_its_code_and_a_message_for_people(play, autojump_clock):
    life = await play([call("breaks", id="X")])
    assert life.end["code"] == "tool_error"
    assert "beyond repair" in life.end["message"] == life.outcome.message
    assert "Traceback" not in life.end["message"]


async def test_a_failed_or_cancelled_run_has_no_output(play, autojump_clock):
    life = await play([text("almost"), C], fail("unauthorized"))
    assert "output" not in life.end
    assert life.record.row.output is None


async def test_text_beside_a_call_is_not_the_end(play, autojump_clock):
    life = await play([text("I shall look"), C], "done")
    assert life.outcome.output == "done"
    assert life.history[1] == "assistant: I shall look (C)"


async def test_input_that_came_in_time_is_answered_before_the_end(play, autojump_clock):
    life = await play([delay(10), "first"], "second", do=[after(5, send("and?"))])
    assert life.outcome.output == "second"
    assert life.history == ["user: hi", "assistant: first", "user: and?", "assistant: second"]


@pytest.mark.parametrize("mode", ["parallel_streaming"])
async def test_the_first_reason_wins(play, autojump_clock):
    """A cancel that comes while a failing run cleans up is recorded, and changes nothing."""
    life = await play(
        [call("tidy", id="T", seconds=2), call("breaks", id="X", seconds=5)],
        do=[after(6, cancel())],
    )
    assert (life.outcome.code, life.replies) == ("tool_error", ["accepted"])
    assert "cancel.requested" in life.types


async def test_the_calls_of_a_run_that_fails_are_ended_with_it(play, autojump_clock):
    life = await play([call("breaks", id="X", seconds=4), call("look", id="C"), B])
    assert life.calls["X"] == "new running failed"
    assert life.calls["B"] == "new suspended cancelled"
    started = play.mode != "sequential"
    assert life.calls["C"] == ("new running cancelled" if started else "new cancelled")
    assert life.tickets == {"r.t1": ("tool_permission", "withdrawn")}
    assert life.effects == []
