"""Rules of recovery: a process ends anywhere, the next one continues from the rows, no effect is silently repeated."""

from collections.abc import Callable
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.testing import call, delay, fail, text

from ..support.runs import Outages
from ..support.scene_tools import FAR
from ..support.scenes import Down, Scene, after, approve, cancel, decide, deny, pause, restart

pytestmark = pytest.mark.pace(5)

A, B, C, N = call("pay", id="A"), call("sign", id="B"), call("look", id="C"), call("note", id="N")
DOWN = Down(FAR)


# --- what was in flight ----------------------------------------------------------------------------------------------


@pytest.mark.rule("L-75")
async def test_a_waiting_run_waits_on_with_the_same_tickets(play, autojump_clock):
    seen: list[Any] = []

    async def look(scene: Scene) -> None:
        seen.append((await scene.run.wait()).tickets)

    life = await play([A, B], do=[look, DOWN, look])
    assert seen[0] == seen[1] == life.outcome.tickets
    assert life.path == "running waiting"
    assert len(life.payloads("approval.requested")) == 2


@pytest.mark.rule("L-76")
async def test_an_inference_is_asked_again_under_another_message_id(play, autojump_clock):
    life = await play([delay(10), "done"], do=[after(5, DOWN)])
    first, second = life.payloads("inference.started")
    assert (first["attempt"], second["attempt"]) == (1, 2)
    assert first["messageId"] != second["messageId"]
    (retried,) = life.payloads("inference.retried")
    assert (retried["code"], retried["messageId"]) == ("interrupted", first["messageId"])
    assert life.outcome.output == "done"


@pytest.mark.rule("L-76")
async def test_what_was_learned_of_an_interrupted_answer_is_discarded_and_said_again(play, autojump_clock):
    """No history holds half an answer: those who saw it are informed that it does not count."""
    life = await play([text("half, "), delay(10), text("whole")], do=[after(5, DOWN)])
    (discarded,) = life.payloads("message.discarded")
    assert discarded["messageId"] == life.payloads("inference.started")[0]["messageId"]
    assert life.history == ["user: hi", "assistant: half, whole"]


async def test_interruptions_do_not_count_as_tries_of_the_model(play, autojump_clock):
    acts = [after(5, restart), after(5, restart), after(5, restart)]
    life = await play([delay(10), fail("overloaded")], [delay(10), "done"], do=acts)
    assert life.outcome.output == "done"


@pytest.mark.rule("L-77")
async def test_a_gate_is_asked_again(play, autojump_clock):
    life = await play([call("spend", cents=500, thinking=10, id="S")], do=[after(5, DOWN)])
    assert life.calls["S"] == "new suspended"
    assert life.scene.outside.attempts("S") == 2


@pytest.mark.rule("L-78")
async def test_a_body_that_may_be_repeated_is_run_again(play, autojump_clock):
    life = await play([C], "done", do=[after(5.5, DOWN)])
    assert life.calls["C"] == "new running running succeeded"
    assert [payload["attempt"] for payload in life.payloads("tool.started")] == [1, 2]
    assert life.effects == ["C", "C"]  # that is what it promises: twice is as good as once


@pytest.mark.rule("L-79", "A-8")
async def test_of_any_other_body_a_person_is_asked_what_came_of_it(play, autojump_clock):
    life = await play([N], do=[after(5.5, DOWN)])
    (ticket,) = life.outcome.tickets
    assert (ticket.reason, ticket.call_id, ticket.tool) == ("outcome_unknown", "N", "note")
    assert life.calls["N"] == "new running suspended"
    assert life.effects == ["N"]


async def test_a_call_that_had_ended_is_not_run_again(play, autojump_clock):
    """Neither before nor after the end of its step."""
    quick = call("note", seconds=1, id="Q")
    life = await play([quick, C], [N], "done", do=[after(5, restart), after(12, restart)])
    assert life.effects.count("Q") == 1
    assert life.scene.outside.attempts("Q") == 1


async def test_calls_that_had_not_begun_begin_in_their_turn(play, autojump_clock):
    turns = [call("alone", id="Z1"), call("alone", id="Z2")]
    life = await play(turns, "done", do=[after(5.5, DOWN), approve("Z1", "it is done")])
    assert life.calls == {"Z1": "new running suspended resuming succeeded", "Z2": "new running succeeded"}
    assert life.effects == ["Z1", "Z2"]


@pytest.mark.rule("L-81")
async def test_a_run_that_was_on_its_way_out_continues_with_it(play, autojump_clock):
    life = await play([call("tidy", id="T", seconds=1.9), B], do=[after(5, cancel(reason="enough")), after(1, DOWN)])
    assert life.outcome == gr.Cancelled(reason="enough", by="ada", outcome_unknown=("T",))
    assert set(life.tool_texts) == {"T", "B"}


# --- what came of it -------------------------------------------------------------------------------------------------


@pytest.mark.rule("L-82")
async def test_unknown_resumed_without_a_result_runs_again(play, autojump_clock):
    life = await play([N], "done", do=[after(5.5, restart), approve("N")])
    assert (life.calls["N"], life.tool_texts["N"]) == ("new running suspended resuming running succeeded", "noted N")
    assert life.scene.outside.attempts("N") == 2


@pytest.mark.rule("L-82")
async def test_unknown_resumed_with_a_result_has_that_result(play, autojump_clock):
    life = await play([N], "done", do=[after(5.5, restart), approve("N", "it is in the book")])
    assert (life.calls["N"], life.tool_texts["N"]) == ("new running suspended resuming succeeded", "it is in the book")
    assert life.effects == ["N"]


@pytest.mark.rule("L-82")
async def test_unknown_denied_is_cancelled(play, autojump_clock):
    life = await play([N], "done", do=[after(5.5, restart), deny("N", "leave it")])
    assert life.calls["N"] == "new running suspended cancelled"
    assert "leave it" in life.tool_texts["N"]


async def test_of_an_unknown_call_that_is_denied_the_model_reads_that_the_outcome_is_unknown(play, autojump_clock):
    perhaps = "\nIt ran when its process ended: it may or may not have taken effect."
    for run_id, reason, said in (("a", "not again", ": not again"), ("b", None, ".")):
        options: Any = {"run_id": run_id, "thread_id": run_id}
        life = await play([call("note", id="N")], "done", do=[after(5, restart), deny("N", reason)], start=options)
        assert life.tool_texts["N"] == f"The reviewer denied this call{said}{perhaps}"


@gr.tool
async def may(ctx: gr.ToolContext[Any]) -> str:
    """Does nothing without an answer."""
    await trio.sleep(5)
    if ctx.decision is None:
        raise gr.Suspend(message="May I?")
    await ctx.deps.work(ctx)
    return "done"


@pytest.mark.rule("L-83")
async def test_to_run_an_unknown_body_again_is_no_answer_to_what_the_body_asks(play, autojump_clock):
    """It had not asked yet when its process ended: it asks now."""
    life = await play([call("may", id="D")], do=[after(2, restart), approve("D")], tools=[may])
    assert list(life.tickets.values()) == [("outcome_unknown", "approved"), ("user_input", "open")]
    assert life.effects == []


@pytest.mark.rule("L-83")
@pytest.mark.parametrize("again", [1, 2])
async def test_an_unknown_body_that_runs_again_has_the_answer_that_it_had(play, autojump_clock, again):
    lost = [after(5.5, restart), approve("D")]
    life = await play([call("ask", id="D")], "done", do=[approve("D", {"to": "Paris"}), *lost * again])
    assert life.scene.outside.attempts("D") == 1 + again
    assert life.scene.outside.decided == {"D": {"to": "Paris"}}
    assert life.tool_texts["D"] == "told {'to': 'Paris'}"


async def test_an_early_approval_is_no_answer_to_what_came_of_it(play, autojump_clock):
    life = await play([N], do=[after(2, decide("N", decision_id="d")), after(3.5, restart)])
    assert life.replies == ["accepted early"]
    assert life.tickets == {"r.t1": ("outcome_unknown", "open")}
    assert [(payload["commandId"], payload["code"]) for payload in life.payloads("decision.refused")] == [
        ("d", "unused")
    ]


async def test_an_approved_body_that_was_in_flight_is_asked_for_too(play, autojump_clock):
    """The approval was for doing it once."""
    life = await play([A], "done", do=[approve("A"), after(5.5, restart), approve("A", "paid")])
    assert list(life.tickets.values()) == [("tool_permission", "approved"), ("outcome_unknown", "approved")]
    assert (life.effects, life.tool_texts["A"]) == (["A"], "paid")


@pytest.mark.rule("L-78")
async def test_each_attempt_of_a_call_has_the_same_key_for_the_world(play, autojump_clock):
    keys: list[str] = []

    @gr.tool(replay="safe")
    async def keyed(ctx: gr.ToolContext) -> str:
        keys.append(ctx.idempotency_key)
        raise gr.Suspend(message="once more?") if ctx.attempt < 3 else gr.ToolError("enough")

    await play([call("keyed", id="K")], "done", tools=[keyed], do=[approve("K"), restart, approve("K")])
    assert keys == ["r/K"] * 3


# --- commands --------------------------------------------------------------------------------------------------------


async def look_at_the_world(scene: Scene) -> None:
    """Of each call whose outcome is unknown, a person finds it out."""
    for ticket in (await scene.run.view()).tickets:
        assert ticket.reason == "outcome_unknown"
        done = ticket.call_id in scene.outside.effects
        await scene.run.decide(ticket.approve(f"{ticket.tool} took effect" if done else None))


@pytest.mark.parametrize("gap", [restart, DOWN], ids=["at once", "much later"])
async def test_an_accepted_decision_acts_in_the_next_process(play, autojump_clock, gap):
    life = await play([B], "done", do=[approve("B"), after(0, gap), pause(1), look_at_the_world])
    assert life.replies == ["accepted"]
    assert life.tickets["r.t1"] == ("tool_permission", "approved")
    assert (life.effects, life.outcome.output) == (["B"], "done")


async def test_of_several_decisions_each_call_continues_once(play, autojump_clock):
    """A crash between two calls that continue repeats neither."""
    calls = [call("pay", cents=number, id=f"A{number}") for number in (1, 2, 3)]
    decisions = [after(0, decide(f"A{number}")) for number in (1, 2, 3)]
    acts = [pause(1), *decisions, after(5.5, restart), *[look_at_the_world] * 3]
    life = await play(calls, "done", do=acts)
    assert sorted(life.effects) == ["A1", "A2", "A3"]
    assert life.outcome.output == "done"


async def test_the_deadline_is_kept(play, autojump_clock):
    life = await play([C], do=[after(2, restart)], start={"deadline": 5})
    assert (life.outcome.code, life.seconds("failed")) == ("run_timeout", 5.0)


# --- what is stored comes first --------------------------------------------------------------------------------------


def without_a_store(outages: Outages, after_seconds: float, until: float, look: Callable[[Scene], None]) -> list[Any]:
    """Acts: the store does not answer for a while, and a person looks in the middle of that."""

    async def begin(_: Scene) -> None:
        outages.error = OSError("the disk is full")

    async def middle(scene: Scene) -> None:
        look(scene)

    async def end(_: Scene) -> None:
        outages.error = None

    half = (until - after_seconds) / 2
    return [after(after_seconds, begin), after(half, middle), after(half, end)]


@pytest.mark.rule("L-73")
async def test_an_outcome_is_not_shown_before_it_is_stored(play, autojump_clock):
    outages, shown = Outages(), []
    play.store = {"faults": outages}

    async def look(scene: Scene) -> None:
        view = await scene.run.view()
        shown.append((view.calls["N"].value, [message.role for message in view.messages]))

    def note_effects(scene: Scene) -> None:
        shown.append(list(scene.outside.effects))

    acts = without_a_store(outages, 5.5, 20.5, note_effects)
    life = await play([N], "done", do=[*acts[:2], after(0, look), acts[2]])
    assert shown == [["N"], ("running", ["user", "assistant"])]
    assert (life.tool_texts["N"], life.effects) == ("noted N", ["N"])


async def test_a_body_that_must_not_be_repeated_begins_when_its_start_is_stored(play, autojump_clock):
    outages, started = Outages(), []
    play.store = {"faults": outages}
    acts = without_a_store(outages, 5, 20, lambda scene: started.extend(scene.outside.started))
    life = await play([delay(10), N], "done", do=acts)
    assert started == []
    assert life.effects == ["N"]


# --- again and again -------------------------------------------------------------------------------------------------


@pytest.mark.rule("L-74")
@pytest.mark.parametrize("every", [3.0, 7.0, 11.0])
async def test_a_run_gets_to_its_end_whenever_processes_end(play, autojump_clock, every):
    """Bodies of five seconds, that may be repeated; processes of three, seven and eleven."""
    script = [[call("look", seconds=2.5, id=f"C{n}"), call("look", seconds=2.5, id=f"D{n}")] for n in (1, 2, 3)]
    life = await play(*script, "done", do=[after(every, restart)] * 12)
    assert life.outcome.output == "done"
    assert len(life.payloads("completed")) == 1
    assert {status.split()[-1] for status in life.calls.values()} == {"succeeded"}


async def test_a_restart_writes_nothing_for_a_run_that_waits(play, autojump_clock):
    written: list[int] = []

    async def count(scene: Scene) -> None:
        written.append(len(scene.play.shelf.log))

    await play([B], do=[count, restart, pause(FAR), count, restart, count])
    assert written == [written[0]] * 3


async def test_another_process_may_have_another_version_of_the_agent(play, autojump_clock):
    async def newer(scene: Scene) -> None:
        scene.agent = play.agent([B], "done", instructions="be brief")

    life = await play([B], "done", do=[newer, restart, approve("B")])
    assert life.outcome.output == "done"
    assert life.requests[0].messages[0].content == "be brief"
    assert [payload["reason"] for payload in life.payloads("degraded")] == ["agent_changed"]
