"""Bugs that are planted in the store, one at a time, and the scene that finds each; without the bug each scene passes.

| planted | found by |
|---|---|
| `posted <= consumed` left out of release and claim | `a_run_with_an_unread_command_is_kept_or_claimed` |
| rows of a batch joined by the run's number, not by the place in the batch | `a_stale_commit_rides_on_no_other` |
| the commit's number left out of the fence | `a_commit_whose_answer_was_lost_is_written_once` |
| the guard of the facts left out of the post | `a_command_is_judged_on_facts_that_stand` |
| the token left out of the fence | `a_commit_of_a_voided_claim_is_refused_though_it_would_fit` |
| a process buried by the clock, not by unbroken watching | `a_server_that_is_away_costs_no_process_its_claims` |
| `good_until` ignored | `a_body_that_was_about_to_begin_does_not_begin` |
| a hint taken for the truth: commands are looked for only when a hint came | `lost_hints_are_made_up_for` |
"""

import os
from collections.abc import Awaitable, Callable

import pytest

from ...support.postgres import Server
from . import node_scenes, store_scenes
from .plants import planted
from .swarm import Swarm

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.no_cover]

FULL = os.environ.get("GREENROOM_CHAOS") == "full"

STORE_SCENES: dict[str, Callable[[str], Awaitable[None]]] = {
    "unread commands left out of release and claim": store_scenes.a_run_with_an_unread_command_is_kept_or_claimed,
    "rows joined by the run's number": store_scenes.a_stale_commit_rides_on_no_other,
    "the commit's number left out": store_scenes.a_commit_whose_answer_was_lost_is_written_once,
    "the guard of the facts left out": store_scenes.a_command_is_judged_on_facts_that_stand,
    "the token left out of the fence": store_scenes.a_commit_of_a_voided_claim_is_refused_though_it_would_fit,
}
NODE_SCENES: dict[str, Callable[[Swarm, Server], Awaitable[None]]] = {
    "buried by the clock": node_scenes.a_server_that_is_away_costs_no_process_its_claims,
    "good_until ignored": node_scenes.a_body_that_was_about_to_begin_does_not_begin,
    "a hint taken for the truth": node_scenes.lost_hints_are_made_up_for,
}


@pytest.mark.parametrize("name", STORE_SCENES)
async def test_a_scene_of_two_stores_passes(name: str, postgres_url: str):
    await STORE_SCENES[name](postgres_url)


@pytest.mark.parametrize("name", STORE_SCENES)
async def test_a_scene_of_two_stores_finds_its_planted_bug(name: str, postgres_url: str):
    with planted(name), pytest.raises(AssertionError) as found:
        await STORE_SCENES[name](postgres_url)
    print(f"\n{name}: {found.value!r:.100}")  # noqa: T201


@pytest.mark.parametrize("name", NODE_SCENES)
async def test_a_scene_of_processes_passes(name: str, swarm: Swarm, server: Server):
    await NODE_SCENES[name](swarm, server)


@pytest.mark.skipif(not FULL, reason="a loaded machine hides what a bug does in time: `make chaos-postgres` runs it")
@pytest.mark.parametrize("name", NODE_SCENES)
async def test_a_scene_of_processes_finds_its_planted_bug(name: str, swarm: Swarm, server: Server):
    swarm.plants.append(name)
    with pytest.raises(AssertionError) as found:
        await NODE_SCENES[name](swarm, server)
    print(f"\n{name}: {found.value!r:.100}")  # noqa: T201
