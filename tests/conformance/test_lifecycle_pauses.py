"""Rules of pauses: a run is held before its next step, by a ticket of its own, and nothing of that is silent."""

from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from msgspec.structs import replace

import greenroom as gr
from greenroom.actors.contract.commits import Commit
from greenroom.actors.contract.decisions import Command
from greenroom.actors.services.clock import Clock
from greenroom.supervision import chaos
from greenroom.testing import ScriptedModel, call, delay

from ..support.process_death import Mortal
from ..support.promises import broken_history, broken_promises
from ..support.runs import KINDS, Outages, home
from ..support.scene_tools import FAR, TOOLS
from ..support.scenes import (
    BIRTHDAY,
    RUN,
    THREAD,
    Down,
    Scene,
    after,
    approve,
    cancel,
    decide,
    pause,
    pause_run,
    restart,
    send,
)

B, C, D = call("sign", id="B"), call("look", id="C"), call("look", id="D")
AT_WORK = after(5, pause_run(reason="lunch"))
"""While the first call runs."""
GO_ON = decide("r.t1")


def resolved(life: Any) -> list[tuple[str, str | None]]:
    """How the tickets were closed, and why."""
    return [(payload["resolution"], payload.get("reason")) for payload in life.payloads("approval.resolved")]


# --- when it takes effect --------------------------------------------------------------------------------------------


@pytest.mark.rule("L-61", "A-7")
async def test_the_step_ends_and_the_next_one_waits_for_a_decision(play, autojump_clock):
    life = await play([C], [D], "done", do=[AT_WORK, pause(FAR), GO_ON])
    assert life.path == "running waiting running completed"
    assert (life.replies, life.tickets) == (["accepted", "accepted"], {"r.t1": ("manual_pause", "approved")})
    assert life.calls == {"C": "new running succeeded", "D": "new running succeeded"}
    assert life.seconds("pause.requested") == 5.0
    assert life.seconds("approval.requested") == life.seconds("waiting") == 10.0
    assert life.seconds("step.started", step=2) == 10.0 + FAR
    assert life.end["activeSeconds"] == 20.0


@pytest.mark.rule("L-61")
async def test_people_see_a_ticket_of_the_run_itself(play, autojump_clock):
    life = await play([C], do=[AT_WORK])
    (ticket,) = life.view.tickets
    assert life.outcome.tickets == (ticket,)
    assert (ticket.ticket_id, ticket.call_id, ticket.tool, ticket.arguments) == ("r.t1", None, "", {})
    assert (ticket.reason, ticket.action, ticket.message) == ("manual_pause", "run:resume", "ada paused the run: lunch")
    assert (life.view.stage, life.view.status) == ("needs_approval", "waiting")
    assert (life.outcome.termination.kind, life.outcome.termination.detail) == ("suspended", "manual_pause")
    (asked,) = life.payloads("approval.requested")
    assert (asked["callId"], asked["fingerprint"]) == (None, ticket.fingerprint)


@pytest.mark.rule("L-62")
async def test_a_run_that_waits_is_held_at_once_and_its_calls_can_be_decided(play, autojump_clock):
    life = await play([B], [C], "done", do=[pause_run(), approve("B"), pause(FAR), decide("r.t2")])
    assert life.path == "running waiting running waiting running completed"
    assert life.tickets == {"r.t1": ("tool_permission", "approved"), "r.t2": ("manual_pause", "approved")}
    assert life.effects == ["B", "C"]
    assert life.seconds("step.started", step=2) == 10.0 + FAR


@pytest.mark.rule("A-27")
async def test_the_run_and_its_call_can_be_decided_in_the_other_order(play, autojump_clock):
    life = await play([B], "done", do=[pause_run(), decide("r.t2"), approve("B")])
    assert life.path == "running waiting running completed"
    assert life.outcome.output == "done"


async def test_all_of_them_can_be_decided_together(play, autojump_clock):
    async def all_at_once(scene: Scene) -> None:
        tickets = (await scene.run.wait()).tickets
        for answer in await scene.run.decide_all([ticket.approve(by="ada") for ticket in tickets]):
            scene.note(answer)

    life = await play([B, call("sign", id="E")], [C], "done", do=[pause_run(), all_at_once])
    assert life.replies == ["accepted"] * 4
    assert life.outcome.output == "done"


@pytest.mark.rule("L-62")
async def test_a_run_that_comes_to_wait_in_the_middle_of_its_step_is_held_then(play, autojump_clock):
    """A cancel after the step ends it there, too: no task waits for the end of a step that waits for a person."""
    life = await play([C, B], do=[AT_WORK])
    assert [ticket.reason for ticket in life.view.tickets] == ["tool_permission", "manual_pause"]
    assert life.payloads("waiting")[-1]["tickets"] == ["r.t1", "r.t2"]


async def test_a_run_that_has_not_begun_is_held_before_its_first_step(play, autojump_clock):
    life = await play("done", behind=20, do=[after(5, pause_run()), pause(FAR), GO_ON])
    assert life.path == "running waiting running completed"
    assert life.seconds("step.started") > FAR


async def test_while_the_model_answers_with_calls_they_are_run_first(play, autojump_clock):
    life = await play([delay(10), C], "done", do=[AT_WORK, GO_ON])
    assert life.types.index("tool.result") < life.types.index("waiting")


# --- what becomes of it ----------------------------------------------------------------------------------------------


@pytest.mark.rule("L-65", "A-28")
@pytest.mark.parametrize(
    ("result", "line"), [("I did it by hand", "I did it by hand"), ({"done": [7]}, '{"done":[7]}')]
)
async def test_what_the_decision_brings_is_reported_to_the_model(play, autojump_clock, result, line):
    life = await play([C], "done", do=[AT_WORK, decide("r.t1", result=result, decision_id="d")])
    assert life.history == ["user: hi", "assistant: (C)", "C: saw C", f"user: {line}", "assistant: done"]
    assert [m.content for m in life.requests[-1].messages][-1] == line
    (received,) = life.payloads("input.received")
    assert (received["text"], received["by"], received["commandId"]) == (line, "ada", "d")


@pytest.mark.rule("L-65")
@pytest.mark.parametrize("result", [None, "", " \n"], ids=repr)
async def test_without_a_result_the_model_reads_nothing(play, autojump_clock, result):
    """A blank one is none: many providers refuse a blank message."""
    life = await play([C], "done", do=[AT_WORK, decide("r.t1", result=result)])
    assert life.history == ["user: hi", "assistant: (C)", "C: saw C", "assistant: done"]


@pytest.mark.rule("L-66", "A-28")
async def test_to_cancel_the_ticket_ends_the_run(play, autojump_clock):
    life = await play([C], [D], do=[AT_WORK, decide("r.t1", "cancel", reason="we are closed")])
    assert life.outcome == gr.Cancelled(reason="we are closed", by="ada", code="approval_rejected")
    assert (life.tickets, life.effects) == ({"r.t1": ("manual_pause", "denied")}, ["C"])


@pytest.mark.rule("L-69")
async def test_a_second_pause_joins_the_first(play, autojump_clock):
    acts = [AT_WORK, after(1, pause_run(command_id="second")), pause_run(), GO_ON]
    life = await play([C], [D], "done", do=acts)
    first, second, third = life.payloads("pause.requested")
    assert (first.get("joins"), second["joins"], third["joins"]) == (None, first["commandId"], "r.t1")
    assert life.tickets == {"r.t1": ("manual_pause", "approved")}
    assert life.path == "running waiting running completed"


async def test_a_run_can_be_paused_again(play, autojump_clock):
    acts = [AT_WORK, GO_ON, after(5, pause_run()), decide("r.t2")]
    life = await play([C], [D], "done", do=acts)
    assert life.path == "running waiting running waiting running completed"
    assert life.record.tickets[0].fingerprint != life.record.tickets[1].fingerprint


@pytest.mark.rule("L-68")
async def test_input_waits_in_line_and_holds_nothing_up(play, autojump_clock):
    life = await play(
        [C], "done", on_new_input="supersede", do=[AT_WORK, send("and this"), pause(10), decide("r.t1", result="go")]
    )
    assert life.history[3:] == ["user: and this", "user: go", "assistant: done"]
    assert life.tickets == {"r.t1": ("manual_pause", "approved")}


@pytest.mark.rule("L-68")
@pytest.mark.parametrize("mode_of_cancel", ["now", "after_step"])
async def test_a_held_run_can_be_cancelled(play, autojump_clock, mode_of_cancel):
    life = await play([C], [D], do=[AT_WORK, cancel(mode=mode_of_cancel, reason="enough")])
    assert life.outcome == gr.Cancelled(reason="enough", by="ada", code=None)
    assert resolved(life) == [("withdrawn", "the run was cancelled")]


@pytest.mark.rule("L-68")
async def test_the_deadline_passes_while_it_is_held(play, autojump_clock):
    life = await play([C], [D], start={"deadline": 50}, do=[AT_WORK, pause(60)])
    assert (life.outcome.code, life.tickets) == ("run_timeout", {"r.t1": ("manual_pause", "withdrawn")})
    assert life.seconds("failed") == 50.0


# --- the end is not held back ----------------------------------------------------------------------------------------


@pytest.mark.rule("L-70")
async def test_an_answer_is_not_held_back_and_the_pause_is_refused(play, autojump_clock):
    life = await play([delay(10), "done"], do=[after(5, pause_run(command_id="p"))])
    assert (life.outcome.output, life.tickets) == ("done", {})
    (refused,) = life.payloads("decision.refused")
    assert (refused["commandId"], refused["target"], refused["code"]) == ("p", "r", "unused")


@pytest.mark.rule("L-70")
async def test_a_stop_condition_is_not_held_back(play, autojump_clock):
    life = await play([C], [D], stop=[gr.stop.MaxRounds(1)], do=[AT_WORK])
    assert life.outcome.code == "max_rounds"
    assert [payload["code"] for payload in life.payloads("decision.refused")] == ["unused"]


async def test_a_cancel_after_the_step_is_stronger(play, autojump_clock):
    life = await play([C], [D], do=[AT_WORK, after(1, cancel(mode="after_step"))])
    assert (life.view.stage, life.tickets) == ("cancelled", {})


async def test_a_pause_at_the_moment_of_the_answer_either_holds_or_is_refused(play, autojump_clock):
    """Both come in the same instant, in whatever order: nothing is lost, and nothing is both."""
    life = await play([delay(10), "done"], do=[after(10, pause_run())])
    reported = life.payloads("decision.refused")
    assert (life.replies, len(reported)) in ((["accepted"], 1), (["rejected run_done"], 0))
    assert life.outcome.output == "done"


# --- how it is answered ----------------------------------------------------------------------------------------------


@pytest.mark.rule("L-71")
async def test_a_run_that_is_done_cannot_be_paused(play, autojump_clock):
    life = await play("done", do=[pause_run()])
    assert life.replies == ["rejected run_done"]


@pytest.mark.rule("L-71")
async def test_a_run_on_its_way_out_cannot_be_paused(play, autojump_clock):
    life = await play([call("tidy", id="T", seconds=2)], do=[after(1, cancel()), after(1, pause_run())])
    assert life.replies == ["accepted", "rejected run_done"]
    assert life.payloads("pause.requested") == []


async def test_a_repeated_pause_is_a_duplicate_and_another_one_under_its_id_a_conflict(play, autojump_clock):
    first = pause_run(reason="lunch", command_id="p")
    other = pause_run(reason="tea", command_id="p")
    life = await play([C], "done", do=[after(5, first), after(0, first), other, GO_ON, first])
    assert life.replies == ["accepted", "duplicate", "rejected decision_id_conflict", "accepted", "duplicate"]
    assert len(life.payloads("pause.requested")) == 1


async def test_the_id_of_a_pause_is_one_of_the_runs_ids(play, autojump_clock):
    life = await play([C], "done", do=[after(5, pause_run(command_id="p")), decide("r.t1", decision_id="p"), GO_ON])
    assert life.replies == ["accepted", "rejected decision_id_conflict", "accepted"]


async def test_a_decision_about_the_run_is_checked_like_any_other(play, autojump_clock):
    life = await play(
        [C],
        "done",
        do=[
            AT_WORK,
            decide("r.t1", fingerprint="of another action"),
            decide("r.t1", edited_arguments={"cents": 1}),
            decide("r.t9"),
            decide("r.t1", by="bob"),
            decide("r.t1", "cancel"),
        ],
    )
    codes = ["fingerprint_mismatch", "invalid_arguments", "unknown_target", None, "already_decided"]
    assert life.replies[1:] == [f"rejected {code}" if code else "accepted" for code in codes]
    assert life.view.stage == "completed"


async def test_nobody_is_a_run_that_is_not_there(watched, autojump_clock):
    async with home(watched, agents=[]) as runtime:
        with pytest.raises(gr.UnknownRun):
            await runtime.commands.post("nobody", Command(command_id="p", kind="pause"))


async def test_a_store_that_does_not_answer_is_reported_and_the_pause_may_be_repeated(play, autojump_clock):
    outages = Outages()
    play.store = {"faults": outages}

    async def begin(_: Scene) -> None:
        outages.error = OSError("the disk is full")
        await trio.sleep(1)

    async def end(_: Scene) -> None:
        outages.error = None

    suspend = pause_run(command_id="p")
    acts = [after(5, begin), after(10, suspend), after(0, end), suspend, approve("B"), decide("r.t2")]
    life = await play([B, C], "done", do=acts)
    assert life.replies == ["rejected store_unavailable", "accepted", "accepted", "accepted"]
    assert life.outcome.output == "done"


# --- other processes, and no process ---------------------------------------------------------------------------------


@pytest.mark.rule("L-67")
async def test_a_held_run_waits_on_in_another_process(play, autojump_clock):
    life = await play([C], [D], "done", do=[AT_WORK, pause(10), Down(FAR), pause(10), decide("r.t1", result="go")])
    assert life.path == "running waiting running completed"
    assert len(life.payloads("approval.requested", "pause.requested")) == 2
    assert life.seconds("resumed") == 30.0 + FAR


async def test_a_pause_that_waits_for_the_end_of_the_step_is_kept(play, autojump_clock):
    life = await play([C], "done", do=[AT_WORK, after(1, restart), pause(10), GO_ON])
    assert life.path == "running waiting running completed"


@pytest.mark.rule("L-67")
async def test_a_held_run_leaves_memory_and_a_decision_wakes_it(play, autojump_clock):
    play.runtime = {"passivate_after": 30.0}
    seen: list[int] = []

    async def look(scene: Scene) -> None:
        await trio.sleep(100)
        seen.append(len(scene.runtime._parts.registry))

    life = await play([C], "done", do=[AT_WORK, look, decide("r.t1", result="go")])
    assert seen == [0]
    assert life.history[-2:] == ["user: go", "assistant: done"]


async def test_a_run_that_has_left_memory_can_be_paused(play, autojump_clock):
    play.runtime = {"passivate_after": 30.0}
    life = await play([B], "done", do=[pause(100), pause_run(), pause(100), decide("r.t2"), pause(100), approve("B")])
    assert life.replies == ["accepted"] * 3
    assert life.outcome.output == "done"


async def test_the_deadline_wakes_it(play, autojump_clock):
    play.runtime = {"passivate_after": 30.0}
    life = await play([C], start={"deadline": 500}, do=[AT_WORK, pause(600)])
    assert (life.outcome.code, life.seconds("failed")) == ("run_timeout", 500.0)


# --- expiry ----------------------------------------------------------------------------------------------------------
# Only a hook asks for a ticket of the run that expires; here the row is written as a hook's run leaves it.

FORGING = ("test_a_ticket_of_the_run_without_a_decision_ends_it", "test_a_default_lets_it_continue")
"""Scenes that write rows of which the record does not know."""


def brief(on_expiry: str, value: Any = None) -> Any:
    """The process ends; in the store the run's ticket expires in 200 seconds from the run's beginning."""

    async def act(scene: Scene) -> None:
        scene.forged = True
        store = scene.runtime.store
        record = await store.load(RUN)
        assert record is not None
        (ticket,) = record.row.run_tickets
        due = BIRTHDAY + timedelta(seconds=200)
        changed = replace(ticket, expires_at=due, on_expiry=on_expiry, expiry_result=value)
        row = replace(record.row, run_tickets=(changed,), next_due=due)
        claim = await store.claim(RUN)
        assert claim is not None
        last = record.row.last_sequence
        commit = Commit(run_id=RUN, expected_last=last, at=BIRTHDAY, row=row, tickets=(changed,))
        done = trio.Event()
        store.submit(claim, commit, (), lambda _: done.set())
        await done.wait()

    return act


@pytest.mark.parametrize("patience", [30.0, None])
async def test_a_ticket_of_the_run_without_a_decision_ends_it(play, autojump_clock, patience):
    play.runtime = {"passivate_after": patience}
    life = await play([C], [D], do=[AT_WORK, brief("deny"), restart, pause(300)])
    assert life.outcome == gr.Cancelled(reason="an approval expired", by="clock", code="approval_rejected")
    assert (life.seconds("cancelled"), life.tickets["r.t1"]) == (200.0, ("manual_pause", "expired"))


@pytest.mark.rule("L-72")
@pytest.mark.parametrize("patience", [30.0, None])
async def test_a_default_lets_it_continue(play, autojump_clock, patience):
    play.runtime = {"passivate_after": patience}
    life = await play([C], "done", do=[AT_WORK, brief("set_result", "nobody came"), restart, pause(300)])
    assert life.history[-2:] == ["user: nobody came", "assistant: done"]
    assert life.seconds("resumed") == 200.0


# --- a death at every moment -----------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Ended:
    """What a paused run came to."""

    outcome: str
    history: list[str]
    effects: list[str]
    tickets: list[tuple[str, str | None, str]]
    pauses: int


async def to_its_end(mortal: Mortal) -> Ended:
    """Processes, one after the other, until the run has ended: paused while it waits, then decided by name."""
    clock, ended = Clock(BIRTHDAY), None
    while ended is None:
        with mortal.scope:
            ended = await _one_process(mortal, clock)
        if mortal.reopen():
            ended = None
    return ended


async def _one_process(mortal: Mortal, clock: Clock) -> Ended:
    script = [[call("sign", id="B", seconds=1)], [call("look", id="C", seconds=1)], "done"]
    agent = gr.Agent("helper", tools=TOOLS, model=ScriptedModel(script))
    async with home(mortal.store, agents=[agent], deps=mortal.outside, clock=clock, drain=0) as runtime:
        run = await runtime.start(agent, "hi", run_id=RUN, thread_id=THREAD)
        await run.wait()
        await run.pause(by="ada", command_id="p")
        while isinstance(outcome := await run.wait(), gr.Waiting):
            for ticket in outcome.tickets:
                result = "go" if ticket.reason == "manual_pause" else None
                if ticket.reason == "outcome_unknown" and ticket.call_id in mortal.outside.effects:
                    result = "signed 1"
                decision = attrs.evolve(ticket.approve(result, by="ada"), decision_id=f"for {ticket.ticket_id}")
                assert (await run.decide(decision)).ok
        view = await run.view()
        frames = await mortal.store.events(RUN, limit=10_000)
        record = await mortal.store.load(RUN, calls="all")
        assert record is not None
        assert not list(broken_promises(frames, record, []))
        assert not list(broken_history(await mortal.store.messages(THREAD), "the thread"))
    return Ended(
        outcome=outcome.output,
        history=[f"{m.call_id or m.role}: {m.content}" for m in view.messages],
        effects=[name for name in mortal.outside.effects if name == "B"],
        tickets=[(t.reason, t.call_id, t.status) for t in record.tickets if t.reason != "outcome_unknown"],
        pauses=sum(b"run.pause.requested" in frame for frame in frames),
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_process_dies_at_every_write_and_the_pause_acts_once(kind: str, folder: Path, sampled: Any) -> None:
    numbers = count()

    def play_it(point: int | None) -> tuple[Ended, int]:
        place = folder / str(next(numbers))
        place.mkdir()
        mortal, passed = Mortal(kind, place), count()

        def on_write(_: str) -> None:
            if next(passed) == point:
                mortal.kill()

        mortal.on_write = on_write
        return chaos.run(to_its_end, mortal, seed=1), next(passed)

    undisturbed, points = play_it(None)
    assert undisturbed.tickets == [("tool_permission", "B", "approved"), ("manual_pause", None, "approved")]
    assert (undisturbed.outcome, undisturbed.effects, undisturbed.pauses) == ("done", ["B"], 1)
    for point in sampled(range(points), 12):
        ended, _ = play_it(point)
        assert ended == undisturbed, point
