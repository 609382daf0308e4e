"""Runs that prepare, whose process ends after each commit or is cancelled at each step: each is prepared, then works.

The preparations are watched outside: of a run none begins while another one is under way, and none once the run works.
"""

import logging
import os
from collections.abc import Iterator
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.supervision import chaos
from greenroom.testing import ScriptedModel, crash_points

from ..support.scene_surroundings import Shop, probe

FULL = os.environ.get("GREENROOM_CHAOS") == "full"
SEEDS = (1, 2, 3, 4, 5) if FULL else (1,)

pytestmark = pytest.mark.slow


class Watched(Shop):
    """A workspace that looks at the store when a preparation begins."""

    def __init__(self, world: "World") -> None:
        super().__init__(seconds=2.0)
        self.world, self.busy = world, 0

    async def prepare(self, info: gr.RunInfo) -> Any:
        self.world.note(self.busy, "another preparation is under way")
        self.busy += 1
        try:
            assert self.world.place is not None
            frames = await self.world.place.events(info.run_id, limit=100)
            self.world.note(any(b"run.started" in frame for frame in frames), "the run works already")
            return await super().prepare(info)
        finally:
            self.busy -= 1


class World:
    """Where a run prepares, and what came of it."""

    def __init__(self) -> None:
        self.broken: list[str] = []
        self.place: gr.Store | None = None
        self.outcomes: list[Any] = []
        self.shop, self.probed = Watched(self), list[Any]()
        self.agent = gr.Agent("coder", tools=[probe(self.probed)], model=ScriptedModel(["done"]))

    def note(self, wrong: object, text: str) -> None:
        if wrong:
            self.broken.append(text)


async def scenario(world: World, store: gr.Store) -> None:
    async with gr.open_runtime(store, agents=[world.agent], workspaces=world.shop, max_running=1) as runtime:
        world.place = store
        with trio.fail_after(5_000):
            runs = [await runtime.start("coder", "Go.", run_id=name, workspace="shop") for name in ("r", "s")]
            world.outcomes = [await run.result() for run in runs]
        world.broken += [f"replay: {report}" for run in runs if not (report := await runtime.replay(run.id)).equal]


def check(world: World) -> Iterator[str]:
    yield from world.broken
    yield from (f"a run came to {one}" for one in world.outcomes if not isinstance(one, gr.Completed))
    if {*world.shop.ended} != {"r", "s"} or {name for name, _ in world.probed} != {"r", "s"}:
        yield f"prepared: {world.shop.ended} and {world.probed}"


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """What the next process says is expected."""
    logger = logging.getLogger("greenroom")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)


def test_a_process_that_prepares_ends_after_each_commit_and_the_next_one_finishes_the_runs(seed):
    report = crash_points(World, scenario, check, seeds=SEEDS, sample=None if FULL else (12, seed))
    print(report)  # noqa: T201 - for the log of the CI
    report.require()


class Cancelled(World):
    """A world whose first process is cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.store, self.scope, self.finished = gr.MemoryStore(), trio.CancelScope(), False


async def two_processes(world: Cancelled) -> None:
    with world.scope:
        await scenario(world, world.store)
        world.finished = True
    if not world.finished:
        await scenario(world, world.store)


def test_a_process_that_prepares_is_cancelled_at_each_step_and_the_next_one_finishes_the_runs(seed):
    report = chaos.sweep_cancel(Cancelled, two_processes, check, seeds=SEEDS, sample=None if FULL else (24, seed))
    print(report)  # noqa: T201 - for the log of the CI
    report.require()
