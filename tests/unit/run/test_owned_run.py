"""The places of a run in a process, and what its record keeps."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

import greenroom as gr
from greenroom.actors.contract.lifecycle import IllegalTransition
from greenroom.actors.runtime.owned_run import PLACES, OwnedRun, Place
from greenroom.actors.runtime.run_registry import RunRegistry

from ...support.runs import agent

MOVES = {
    "absent": "held queued working inside",
    "held": "queued working inside leaving absent",
    "queued": "held working inside resting absent",
    "working": "held inside resting live absent",
    "inside": "held resting absent",
    "resting": "working inside absent",
    "live": "working resting absent",
    "leaving": "working inside absent",
}


@pytest.mark.parametrize("source", Place)
@pytest.mark.parametrize("target", Place)
def test_a_run_moves_between_the_places_of_the_table_only(source: Place, target: Place) -> None:
    registry, run = RunRegistry(*[SimpleNamespace()] * 3, 9), OwnedRun("r")  # type: ignore[arg-type]
    way = {Place.ABSENT: [], Place.LEAVING: [Place.HELD, Place.LEAVING], Place.RESTING: [Place.WORKING, Place.RESTING]}
    way[Place.LIVE] = [Place.WORKING, Place.LIVE]
    for place in way.get(source, [source]):
        registry._move(run, place)
    if target is source or target.value in MOVES[source.value].split():
        registry._move(run, target)
        assert run.place is target
    else:
        with pytest.raises(IllegalTransition, match=f"place of run r: {source.value} -> {target.value}"):
            registry._move(run, target)
        assert run.place is source


def test_working_runs_and_live_ones_alone_hold_a_slot() -> None:
    assert [place.value for place, rule in PLACES.items() if rule.slot] == ["working", "live"]


def test_join_waits_for_no_run_that_waits_for_its_thread_or_for_people() -> None:
    assert {place.value for place, rule in PLACES.items() if not rule.at_work} == {"absent", "held", "resting", "live"}


def test_slots_and_the_queue_follow_the_place() -> None:
    registry = RunRegistry(*[SimpleNamespace()] * 3, 3)  # type: ignore[arg-type]
    run, rooms = OwnedRun("r"), list[Any]()
    for place in (Place.WORKING, Place.HELD, Place.QUEUED, Place.INSIDE, Place.RESTING, Place.WORKING, Place.ABSENT):
        registry._move(run, place)
        rooms.append((place.value, registry.room, registry.queued("r")))
    assert rooms == [
        ("working", 2, False),
        ("held", 3, False),
        ("queued", 2, True),
        ("inside", 3, False),
        ("resting", 3, False),
        ("working", 2, False),
        ("absent", 3, False),
    ]


@pytest.mark.parametrize(
    "notes",
    [
        {"degraded": ("agent_unknown", "no agent")},
        {"logged_code": "agent_unknown"},
        {"sequence": 3},
        {"starting": 1},
        {"place": Place.HELD},
        {"overran": {"call:c1": object()}},
    ],
    ids=lambda notes: next(iter(notes)),
)
def test_a_record_is_kept_for_what_a_later_owner_needs(notes: dict[str, Any]) -> None:
    assert OwnedRun("r", **notes).noted
    assert not OwnedRun("r", refusals=2, freed=True).noted


async def test_no_record_of_a_run_that_has_ended_is_kept(autojump_clock: Any) -> None:
    """Of runs that waited for slots, for their thread, in a queue, or were cancelled before their time."""
    helper = agent()
    async with gr.open_runtime(agents=[helper], max_running=1) as runtime:
        runs = [await runtime.start(helper, "hi", thread_id=f"t{number % 3}") for number in range(9)]
        runs.append(await runtime.start(helper, "hi", thread_id="t0", queue="later"))
        late = await runtime.start(helper, "hi", thread_id="t1", at=datetime(2100, 1, 1, tzinfo=UTC))
        assert (await late.cancel()).ok
        for run in (*runs, late):
            await run.result()
        assert runtime._parts.registry._runs == {}
