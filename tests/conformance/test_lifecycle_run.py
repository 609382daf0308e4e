"""Rules of the run: which stage follows which, what each is for, and who says so.

A move is one event in the commit that writes the row; events and rows say the same; the run's status is what the calls
of its step say; one terminal event is the last one: every scene of this suite is held to that (`support/promises.py`).
"""

from itertools import pairwise

import pytest
import trio

import greenroom as gr
from greenroom.actors.contract.lifecycle import STAGES
from greenroom.testing import call, delay, fail

from ..support.scene_plugins import scripted
from ..support.scenes import after, approve, cancel, decide, deny, pause, restart, send

A, B, C = call("pay", id="A"), call("sign", id="B"), call("look", id="C")
BEGINNING = ("created", "planned", "accepted", "preparing", "running")


# --- stages ----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("L-1")
async def test_a_run_goes_through_all_stages_to_its_end(play, autojump_clock):
    life = await play("done")
    assert life.stages == (*BEGINNING, "completed")
    assert life.statuses == ("created", "running", "done")
    assert life.history == ["user: hi", "assistant: done"]


async def test_created_tells_who_asked_for_what_and_where(play, autojump_clock):
    life = await play("done", start={"by": "ada", "workspace": "shop", "session_id": "s"})
    created = life.payloads("created")[0]
    reported = {name: created[name] for name in ("by", "input", "agent", "workspace", "threadId")}
    assert reported == {"by": "ada", "input": "hi", "agent": "helper", "workspace": "shop", "threadId": "t"}
    assert {event.session_id for event in life.events} == {"s"}


@pytest.mark.rule("L-2")
async def test_each_move_tells_from_where_to_where_and_by_whom(play, autojump_clock):
    life = await play([B], [delay(50), "never"], do=[approve("B"), after(20, cancel(by="bob"))], start={"by": "ada"})
    moves = [(payload.get("from"), payload["to"], payload["by"]) for payload in life.payloads(*LIFECYCLE)]
    assert moves == [
        (None, "created", "ada"),
        ("created", "planned", "engine"),
        ("planned", "accepted", "engine"),
        ("accepted", "preparing", "engine"),
        ("preparing", "running", "engine"),
        ("running", "needs_approval", "engine"),
        ("needs_approval", "running", "engine"),
        ("running", "cancelled", "bob"),
    ]


LIFECYCLE = (
    *("created", "planned", "accepted", "preparing", "started", "waiting", "resumed", "applying"),
    *("completed", "failed", "cancelled"),
)


async def test_continuing_is_resumed_and_each_rest_is_waiting(play, autojump_clock):
    life = await play([A], [B], "done", do=[approve("A"), approve("B")])
    reported = [name for name in life.types if name in LIFECYCLE][5:]
    assert reported == ["waiting", "applying", "resumed", "waiting", "resumed", "completed"]
    assert life.path == "running waiting applying running waiting running completed"


@pytest.mark.rule("L-1")
@pytest.mark.parametrize("effect", ["write", "patch", "shell", "publish", "deploy"])
async def test_a_run_is_applying_while_a_call_that_changes_the_world_runs(play, autojump_clock, effect):
    life = await play([call("act", id="A")], "done", tools=[acting(effect)])
    assert life.path == "running applying running completed"


@pytest.mark.parametrize("effect", ["read", "network", "secret", "our_own"])
async def test_other_effects_leave_it_running(play, autojump_clock, effect):
    life = await play([call("act", id="A")], "done", tools=[acting(effect)])
    assert life.path == "running completed"


def acting(effect: str) -> gr.tool:
    @gr.tool(name="act", effect=effect)
    async def act() -> str:
        await trio.sleep(1)
        return "ok"

    return act


async def test_an_approved_call_that_changes_the_world_goes_from_waiting_to_applying(play, autojump_clock):
    assert (await play([A], "done", do=[approve("A")])).path == "running waiting applying running completed"


async def test_an_approved_call_that_does_not_goes_from_waiting_to_running(play, autojump_clock):
    assert (await play([B], "done", do=[approve("B")])).path == "running waiting running completed"


async def test_a_denied_call_does_not_apply_anything(play, autojump_clock):
    assert (await play([A], "done", do=[deny("A")])).path == "running waiting running completed"


async def test_applying_wins_over_running_and_running_over_waiting(play, autojump_clock):
    """Nothing waits while something moves; what changes the world is what people are shown."""
    life = await play([B, call("note", id="N", seconds=5), call("write", id="W")], "done", do=[approve("B")])
    assert life.path == "running applying waiting running completed"


@pytest.mark.rule("L-3")
@pytest.mark.parametrize("end", ["completed", "failed", "cancelled"])
async def test_nothing_leaves_a_terminal_stage(play, autojump_clock, end):
    script = {"completed": "done", "failed": fail("invalid_request"), "cancelled": delay(50)}[end]
    first = [after(1, cancel())] if end == "cancelled" else []
    life = await play(
        [B], script, do=[approve("B"), *first, decide("r.t1"), decide("B", "cancel"), decide("C"), cancel(), send("?")]
    )
    reported = ["accepted", *["accepted"] * len(first)]
    assert life.replies == [
        *reported,
        "rejected already_decided",
        "rejected already_decided",
        "rejected unknown_target",
        "rejected run_done",
        "rejected run_done",
    ]
    assert life.stages[-1] == end
    assert life.types[-1] == end


async def test_degraded_is_a_flag_and_not_a_stage(play, autojump_clock):
    async def another(scene):
        scene.agent = play.agent([B], "done", instructions="be brief")

    life = await play([B], "done", do=[another, restart, approve("B")])
    assert [payload["reason"] for payload in life.payloads("degraded")] == ["agent_changed"]
    assert life.path == "running waiting running completed"


# --- the table -------------------------------------------------------------------------------------------------------

MOVES = {
    ("created", "planned"): {},
    ("planned", "accepted"): {},
    ("accepted", "preparing"): {},
    ("preparing", "running"): {},
    ("planned", "failed"): {"behind": 500, "start": {"deadline": 10}},
    ("planned", "cancelled"): {"behind": 500, "do": [after(10, cancel())]},
    ("running", "needs_approval"): {"script": [[B], "done"]},
    ("running", "applying"): {"script": [call("write", id="W"), "done"]},
    ("running", "completed"): {},
    ("running", "failed"): {"script": [fail("invalid_request")]},
    ("running", "cancelled"): {"script": [delay(50)], "do": [after(1, cancel())]},
    ("needs_approval", "running"): {"script": [[B], "done"], "do": [approve("B")]},
    ("needs_approval", "applying"): {"script": [[A], "done"], "do": [approve("A")]},
    ("needs_approval", "failed"): {"script": [[B]], "start": {"deadline": 50}, "do": [pause(60)]},
    ("needs_approval", "cancelled"): {"script": [[B]], "do": [cancel()]},
    ("applying", "running"): {"script": [call("write", id="W"), "done"]},
    ("applying", "needs_approval"): {"script": [[B, call("write", id="W")]]},
    ("applying", "failed"): {"script": [call("write", id="W")], "start": {"deadline": 5}},
    ("applying", "cancelled"): {"script": [call("write", id="W")], "do": [after(5, cancel())]},
}
"""Move -> a scene that makes it."""

ELSEWHERE = {
    ("created", "cancelled"): "test_a_run_that_no_owner_takes_up_can_be_cancelled",
    ("created", "failed"): "test_a_run_whose_owner_cannot_even_begin_fails",
    ("applying", "completed"): "test_a_hook_ends_the_run_while_a_call_applies_something",
}
NEVER = {
    **{(source, "failed"): "accepted, preparing and running are one commit" for source in ("accepted", "preparing")},
    **{(source, "cancelled"): "accepted, preparing and running are one commit" for source in ("accepted", "preparing")},
}
"""Moves that the table allows, and that nothing in this release makes."""


@pytest.mark.parametrize(("source", "target"), MOVES, ids=map(" to ".join, MOVES))
async def test_a_legal_move_is_made(play, autojump_clock, source, target):
    scene = {"script": ["done"], **MOVES[source, target]}
    life = await play(*scene.pop("script"), **scene)
    assert (source, target) in pairwise(life.stages), life.stages


def test_every_legal_move_has_its_scene_or_its_reason():
    legal = {(source.value, target.value) for source, following in STAGES.items() for target in following}
    assert legal == {*MOVES, *ELSEWHERE, *NEVER}
    assert {name for name in ELSEWHERE.values() if name in globals()} == set(ELSEWHERE.values())


@pytest.mark.parametrize("mode", ["parallel_batch_approval", "parallel_streaming"])
async def test_a_hook_ends_the_run_while_a_call_applies_something(play, autojump_clock):
    """In sequence nothing ends beside a body, so no hook is asked then."""
    ending = scripted("x", after_tool_execute=lambda ctx: gr.Mutation().end("enough"))
    life = await play([call("write", id="W"), call("look", seconds=1, id="L")], plugins=[ending])
    assert life.path == "running applying completed"
    assert (life.calls["W"], life.effects) == ("new running cancelled", ["L"])


async def test_a_run_that_no_owner_takes_up_can_be_cancelled(play, autojump_clock):
    def missing(info):
        raise LookupError("no deps for it")

    play.runtime = {"deps": missing}
    life = await play("never", do=[after(1, cancel(reason="nobody needs it"))])
    assert life.stages == ("created", "cancelled")
    assert life.view.degraded is None
    assert life.requests == ()


async def test_a_run_whose_owner_cannot_even_begin_fails(play, autojump_clock):
    """Three owners crash because their first move cannot be written; the fourth may only say so."""
    play.shelf.refusals = 3
    life = await play("never")
    assert life.stages == ("created", "failed")
    assert (life.outcome.code, life.requests) == ("internal_error", ())
