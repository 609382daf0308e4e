"""Runs with each part of the agent loop, cancelled, crashed and killed at every step: their promises hold.

`runs_with` has the runs and what must hold of each beside the promises of every run. `GREENROOM_CHAOS=full` strikes
every step under several schedules; else a seeded sample of the steps.
"""

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from greenroom.supervision import chaos

from .runs_with.children import CHILDREN
from .runs_with.guardrails import GUARDRAILS
from .runs_with.handoff import HANDOFF
from .runs_with.plugins import PLUGINS
from .runs_with.policies import POLICIES
from .runs_with.subject import Subject
from .runs_with.tasks import TASKS
from .stage import World
from .test_run_sweeps import FULL, SEEDS, SETTLE, can_crash, one_life, show, until_it_has_ended

pytestmark = pytest.mark.slow

SUBJECTS = {
    "children": CHILDREN,
    "guardrails": GUARDRAILS,
    "handoff": HANDOFF,
    "plugins": PLUGINS,
    "policies": POLICIES,
    "tasks": TASKS,
}


@attrs.frozen
class Swept:
    """One subject on one kind of store."""

    subject: Subject
    variant: Any
    kind: str
    execution: str

    def worlds(self, folder: Path, **options: Any) -> Callable[[], World]:
        numbers = count()

        def world() -> World:
            place = folder / str(next(numbers)) if self.kind == "sqlite" else None
            return self.subject.world(self.variant, place, self.execution, **options)

        return world


ALL = {
    f"{name}-{kind}-{variant}": Swept(subject, variant, kind, execution)
    for name, subject in SUBJECTS.items()
    for variant in subject.variants
    for kind, execution in subject.plan
}
CANCELLED = {name: swept for name, swept in ALL.items() if swept.subject.cancels}
CRASHED = {f"{name}-{victim}": (swept, victim) for name, swept in ALL.items() for victim in swept.subject.victims}


@pytest.fixture
def sweep(folder: Path, seed: int, request: pytest.FixtureRequest) -> Callable[..., None]:
    """Strikes a subject and shows the report."""

    def struck(how: Callable[..., chaos.Report], swept: Swept, scenario: Any, *, make: Any = None, **more: Any) -> None:
        report = how(
            swept.worlds(folder, **(make or {})),
            scenario,
            swept.subject.checks(swept.variant),
            seeds=SEEDS,
            sample=None if FULL else (swept.subject.points, seed),
            settle_within=SETTLE,
            **more,
        )
        show(request.node.name, report)

    return struck


@pytest.mark.rule("PO-10")
@pytest.mark.parametrize("swept", ALL.values(), ids=ALL)
def test_a_runtime_is_cancelled_at_every_step_and_the_next_one_finishes_the_run(sweep, swept):
    sweep(chaos.sweep_cancel, swept, until_it_has_ended)


@pytest.mark.rule("PO-10")
@pytest.mark.parametrize("swept", ALL.values(), ids=ALL)
def test_a_process_dies_at_every_step_and_the_next_one_finishes_the_run(sweep, swept):
    sweep(chaos.sweep_cancel, swept, until_it_has_ended, get_scope=World.die)


@pytest.mark.parametrize("swept", CANCELLED.values(), ids=CANCELLED)
def test_a_run_is_cancelled_at_every_step_and_ends_once(sweep, swept):
    sweep(chaos.sweep_cancel, swept, one_life, make={"cancels": True})


@pytest.mark.parametrize(("swept", "victim"), CRASHED.values(), ids=CRASHED)
def test_an_actor_crashes_at_every_step_and_the_run_still_ends(sweep, swept, victim):
    named = swept.subject.victims[victim]

    def match(task: trio.lowlevel.Task) -> bool:
        return can_crash(task) and named(task.name)

    sweep(chaos.sweep_crash, swept, until_it_has_ended, contained=True, match_task=match)
