"""A run that lets a remote agent work, whose process ends after each commit, or is cancelled at each step.

Counted by the other side: no message is executed twice, whatever people answer to the questions that remain.
"""

import logging
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.supervision import chaos
from greenroom.testing import crash_points

from ..support.a2a_peer import URL, Peer, served

FULL = os.environ.get("GREENROOM_CHAOS") == "full"
SEEDS = (1, 2, 3, 4, 5) if FULL else (1,)
ROUNDS = 12
"""Times that a person looks after the run."""
ENDS = {"slow 2": "0 1 ", "ask twice": "done: yes", "hello": "done: hello"}

pytestmark = pytest.mark.slow


class Outliving:
    """Tasks of the other side, which no end of a process of ours reaches."""

    def start_soon(self, work: Callable[..., Any], *args: object) -> None:
        trio.lowlevel.spawn_system_task(work, *args)


class World:
    """The other side, and what came of the run."""

    text = "slow 2"

    def __init__(self) -> None:
        self.store, self.scope, self.finished = gr.MemoryStore(), trio.CancelScope(), False
        self.peer: Any = None
        self.broken: list[str] = []
        self.questions = 0
        self.outcome: Any = None


class Asked(World):
    text = "ask twice"


class Quick(World):
    text = "hello"


async def scenario(world: World, store: gr.Store) -> None:
    world.peer = world.peer or Peer(Outliving())  # type: ignore[arg-type]
    agent = gr.backends.agent("far", gr.backends.A2A(URL))
    with served(world.peer):
        async with gr.open_runtime(store, agents=[agent], passivate_after=5.0) as runtime:
            run = await runtime.start("far", world.text, run_id="r")
            with trio.fail_after(5_000):
                world.outcome = await run.wait()
                for _ in range(ROUNDS):
                    if not isinstance(world.outcome, gr.Waiting):
                        break
                    for ticket in world.outcome.tickets:
                        world.questions += ticket.reason == "outcome_unknown"
                        unknown = ticket.reason == "outcome_unknown"
                        await run.decide(ticket.approve(by="ada") if unknown else ticket.approve("yes", by="ada"))
                    world.outcome = await run.wait()
            report = await runtime.replay("r")
            world.broken = [] if report.equal else [f"replay: {report}"]


def check(world: World) -> Iterator[str]:
    yield from world.broken
    executed = world.peer.executed
    if len(executed) != len(set(executed)):
        yield f"executed twice: {executed}"
    if not isinstance(world.outcome, gr.Completed) or world.outcome.output != ENDS[world.text]:
        yield f"the run came to {world.outcome}"
    if world.peer.cancelled:
        yield f"a task was cancelled: {world.peer.cancelled}"


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """What the next process says of unknown outcomes is expected."""
    logger = logging.getLogger("greenroom")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)


@pytest.mark.rule("AB-2")
@pytest.mark.parametrize("kind", [World, Asked, Quick])
def test_a_process_ends_after_each_commit_and_the_next_one_attaches(kind, seed):
    report = crash_points(kind, scenario, check, seeds=SEEDS, sample=None if FULL else (6, seed))
    print(report)  # noqa: T201 - for the log of the CI
    report.require()


async def two_processes(world: World) -> None:
    with world.scope:
        await scenario(world, world.store)
        world.finished = True
    if not world.finished:
        await scenario(world, world.store)


@pytest.mark.rule("AB-2")
@pytest.mark.parametrize("kind", [World, Asked, Quick])
def test_a_process_is_cancelled_at_each_step_and_the_next_one_attaches(kind, seed):
    report = chaos.sweep_cancel(kind, two_processes, check, seeds=SEEDS, sample=None if FULL else (12, seed))
    print(report)  # noqa: T201 - for the log of the CI
    report.require()
