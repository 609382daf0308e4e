"""One run with an approval, cancelled, crashed and killed at every step, by scope and by command: the promises hold.

`GREENROOM_CHAOS=full` strikes every step under several schedules; else a seeded sample of the steps. A violation names
its token; `only="cancel:1:17"` in the sweep replays it.
"""

import logging
import os
import random
import traceback
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.actors.stores.common.faults import InjectedCrash
from greenroom.supervision import chaos
from greenroom.supervision.exits import leaves

from .stage import World, broken, decode_event

FULL = os.environ.get("GREENROOM_CHAOS") == "full"
SEEDS = (1, 2, 3) if FULL else (1,)
PLAN = [("memory", "parallel_streaming"), ("memory", "sequential"), ("sqlite", "parallel_streaming")]
SETTLE = 80.0
"""Virtual seconds from a fault to the end of the scenario."""

pytestmark = pytest.mark.slow
Make = Callable[..., Callable[[], World]]


@pytest.fixture(params=PLAN, ids="-".join)
def make(request: pytest.FixtureRequest, folder: Path) -> Make:
    """`make(**options)` gives a maker of worlds on one kind of store, in one mode of execution."""
    kind, execution = request.param
    numbers = count()

    def prepared(**options: Any) -> Callable[[], World]:
        return lambda: World(
            folder=folder / str(next(numbers)) if kind == "sqlite" else None, execution=execution, **options
        )

    return prepared


@pytest.fixture
def sample(seed: int) -> Callable[[int], tuple[int, int] | None]:
    """How many points of a sweep are visited: all of them in a full one."""
    return lambda n: None if FULL else (n, seed)


@pytest.fixture(autouse=True)
def logged() -> Iterator[list[str]]:
    """What the runtime has reported to its operator about crashes; it does not flood the report."""
    logger, lines = logging.getLogger("greenroom.run"), []

    def keep(record: logging.LogRecord) -> bool:
        lines.append(record.getMessage())
        return False

    logger.addFilter(keep)
    yield lines
    logger.removeFilter(keep)


def show(what: str, report: chaos.Report) -> None:
    """For the log of the CI (pytest -rA)."""
    print(f"\n{what}: {report}")  # noqa: T201
    report.require()


DEATHS = (gr.RuntimeFailed, gr.StoreDown, gr.StoreUnavailable, chaos.InjectedCrashError)
"""What a program receives when its store dies under it."""


# --- scenarios -------------------------------------------------------------------------------------------------------


async def until_it_has_ended(world: World) -> None:
    """A process after the other until one sees the run's end; the runtime's own failures end a process, too."""
    with world.nothing_left():
        for _ in range(4):
            try:
                with world.scope:
                    await world.live()
            except Exception as error:  # of the program's own tasks several may learn of it
                if not all(isinstance(leaf, DEATHS) for leaf in leaves(error)):
                    raise
                world.deaths.append("".join(traceback.format_exception(error)))
                world.faults = None  # the next process finds a disk that works
            if world.ended is not None:
                return
            world.reopen()


async def one_life(world: World) -> None:
    """One process; `world.scope` is not around it."""
    with world.nothing_left():
        await world.live()


# --- sweeps ----------------------------------------------------------------------------------------------------------


def can_crash(task: trio.lowlevel.Task) -> bool:
    """False where no error can arise: while trio itself closes a nursery."""
    return not chaos.waits_for_children(task)


def test_the_runtime_is_cancelled_from_outside_at_every_step_and_the_next_one_finishes_the_run(make, sample, request):
    for unknown in ("cancel", "resume", "result") if FULL else ("resume",):
        report = chaos.sweep_cancel(
            make(unknown=unknown), until_it_has_ended, broken, seeds=SEEDS, sample=sample(8), settle_within=SETTLE
        )
        show(f"{request.node.name} unknown={unknown}", report)


def test_the_run_is_cancelled_at_every_step_and_ends_once(make, sample, request):
    def check(world: World) -> Iterator[str]:
        yield from broken(world)
        answer = world.book.replies.get("cancel")
        if answer is not None and answer.status == "accepted":
            yield from ended_by_cancel(world)

    report = chaos.sweep_cancel(
        make(cancels=True), one_life, check, seeds=SEEDS, sample=sample(8), settle_within=SETTLE
    )
    show(request.node.name, report)


def ended_by_cancel(world: World) -> Iterator[str]:
    """An accepted cancel ends the run, unless it was about to end by itself."""
    events = [decode_event(frame) for frame in world.ended[0]]
    wanted = next((number for number, event in enumerate(events) if event.type == "run.cancel.requested"), None)
    if wanted is None:
        yield "the accepted cancel left no event"
        return
    after = [event.type for event in events[wanted:]]
    if events[-1].type != "run.cancelled":
        yield f"the run was told to cancel and did {after}"
    if {"run.tool.started", "run.inference.started"} & set(after):
        yield f"something was started after the cancel: {after}"
    if not isinstance(world.book.outcomes[-1], gr.Cancelled):
        yield f"the outcome was {world.book.outcomes[-1]}"


@pytest.mark.parametrize("victim", ["runtime/r", "call:", "model:"])
def test_an_actor_crashes_at_every_step_and_the_run_still_ends(make, sample, victim, request, logged):
    def check(world: World) -> Iterator[str]:
        yield from broken(world)
        yield from masked(world, logged)
        if world.deaths:
            yield f"the whole runtime died of it: {world.deaths}"

    def match(task: trio.lowlevel.Task) -> bool:
        return can_crash(task) and (task.name == victim or (victim.endswith(":") and task.name.startswith(victim)))

    report = chaos.sweep_crash(
        make(unknown="resume"),
        until_it_has_ended,
        check,
        contained=True,
        match_task=match,
        seeds=SEEDS,
        sample=sample(8),
        settle_within=SETTLE,
    )
    show(request.node.name, report)


def masked(world: World, logged: list[str]) -> Iterator[str]:
    """An injected crash is to be found: in an event, in the log, or in what open_runtime raised."""
    if world.injected is None or world.ended is None:
        return
    mark = str(world.injected)
    texts = [*logged, *world.deaths, *(frame.decode() for frame in world.ended[0])]
    texts += [message.content for message in world.ended[2]]
    if not any(mark in text for text in texts):
        yield "the injected crash was masked"


def test_the_process_dies_at_every_step_and_the_next_one_finishes_the_run(make, sample, request):
    for unknown in ("cancel", "resume", "result") if FULL else ("resume",):
        report = chaos.sweep_cancel(
            make(unknown=unknown),
            until_it_has_ended,
            broken,
            get_scope=World.die,
            seeds=SEEDS,
            sample=sample(8),
            settle_within=SETTLE,
        )
        show(f"{request.node.name} unknown={unknown}", report)


# --- faults of the store ---------------------------------------------------------------------------------------------


class CrashParked(chaos.StepHook):
    """Crashes a task before step k wherever it waits."""

    def __init__(self, k: int, name: str, error: BaseException) -> None:
        super().__init__(self._look)
        self._k, self._name = k, name
        self.fault = chaos.CrashAt(0, lambda task: task.name == name, error)

    def _look(self, k: int, _: trio.lowlevel.Task) -> None:
        if k >= self._k and not self.fault.struck:
            for task in chaos.program_tasks():
                self.fault.before_task_step(task)


def test_the_store_s_task_crashes_at_every_step_and_the_next_runtime_finishes_the_run(make, sampled, request, logged):
    report = chaos.Report(kind="crash")
    for schedule in SEEDS:
        report.steps[schedule] = chaos.count_steps(until_it_has_ended, make()(), seed=schedule)
    for seed, k in sampled([(step, k) for step, steps in report.steps.items() for k in range(steps)], 8):
        token = chaos.CaseToken("crash", seed, k)
        world = make(unknown="resume")()
        world.injected = chaos.InjectedCrashError(str(token))
        crash = CrashParked(k, "runtime/:store", world.injected)
        messages = [*escaped(world, until_it_has_ended, seed, crash), *broken(world)]
        report.runs += 1
        report.hits += crash.fault.struck
        messages += masked(world, logged) if crash.fault.struck else ()
        report.violations += [chaos.Violation(token=token, site=crash.fault.site, message=text) for text in messages]
    show(request.node.name, report)


def escaped(world: World, scenario: Any, seed: int, *faults: chaos.StepHook) -> Iterator[str]:
    """Run a scenario; whatever leaves it is a finding."""
    try:
        chaos.run(scenario, world, seed=seed, instruments=faults)
    except BaseException as error:  # noqa: BLE001, ASYNC103
        yield f"escaped: {type(error).__name__}: {error}"  # noqa: ASYNC104


class Planned:
    """A store that fails at its n-th write."""

    def __init__(self, point: str, nth: int, error: BaseException, times: int) -> None:
        self._point, self._nth, self._error, self._left = point, nth, error, times
        self.writes = 0
        self.struck = 0

    def __call__(self, point: str) -> None:
        if point != self._point:
            return
        self.writes += 1
        if self.writes >= self._nth and self._left:
            self._left -= 1
            self.struck += 1
            raise self._error


STORE_FAULTS: dict[str, tuple[str, Callable[[], BaseException], int]] = {
    "dies before the commit": ("before_commit", lambda: InjectedCrash("before"), 1),
    "dies after the commit": ("after_commit", lambda: InjectedCrash("after"), 1),
    "does not answer for a moment": ("before_commit", lambda: OSError("disk full"), 3),
    "does not answer any more": ("before_commit", lambda: OSError("disk full"), 100),
}


@pytest.mark.parametrize("fault", STORE_FAULTS)
def test_the_store_fails_at_every_write_and_nothing_acknowledged_is_lost(make, fault, sampled, request):
    point, error, times = STORE_FAULTS[fault]
    dry = make()()
    dry.faults = Planned(point, 10**9, OSError(), 0)
    chaos.run(until_it_has_ended, dry, seed=1)
    report = chaos.Report(kind="crash", steps=dict.fromkeys(SEEDS, dry.faults.writes))
    cases = [(seed, nth) for seed in SEEDS for nth in range(1, dry.faults.writes + 1)]
    for seed, nth in sampled(cases, 6):
        world = make(unknown="resume")()
        world.faults = plan = Planned(point, nth, error(), times)
        report.runs += 1
        messages = [*escaped(world, until_it_has_ended, seed), *broken(world)]
        report.hits += bool(plan.struck)
        token = chaos.CaseToken("crash", seed, nth)
        for message in messages:
            report.violations.append(chaos.Violation(token=token, site=point, message=message))
    show(request.node.name, report)


# --- a run that crashes again and again ------------------------------------------------------------------------------


def has_crashed(task: trio.lowlevel.Task) -> bool:
    """True while a crashed incarnation waits for its children: another error there makes no further crash."""
    return any(frame.f_code.co_qualname == "Children.end" for frame, _ in task.iter_await_frames())


class CrashAgain(chaos.StepHook):
    """Crashes the run's actor at step k, and each of its next incarnations at once."""

    def __init__(self, k: int, times: int) -> None:
        super().__init__(self._look)
        self._k, self._times = k, times
        self._fault: chaos.CrashAt | None = None
        self.errors: list[chaos.InjectedCrashError] = []

    def _look(self, k: int, task: trio.lowlevel.Task) -> None:
        if k < self._k or len(self.errors) >= self._times or task.name != "runtime/r":
            return
        if has_crashed(task) or not can_crash(task):
            return
        self._error = chaos.InjectedCrashError(f"crash {len(self.errors) + 1}")
        self._fault = chaos.CrashAt(0, lambda one: one is task, self._error)
        self._fault.before_task_step(task)

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        fault, self._fault = self._fault, None
        if fault is not None:
            fault.after_task_step(task)
            if fault.struck:
                self.errors.append(self._error)


def test_a_run_whose_actor_crashes_three_times_is_given_up_and_says_so(make, sample, request):
    steps = chaos.count_steps(one_life, make()(), seed=1)
    points = list(range(steps))
    if not FULL:  # a quarter of the points give the run up
        points = sorted(random.Random(request.config.getoption("--seed")).sample(points, 12))
    report = chaos.Report(kind="crash", steps={1: steps})
    gave_up = 0
    for k in points:
        world, crashes = make(unknown="resume")(), CrashAgain(k, 3)
        messages = [*escaped(world, one_life, 1, crashes), *broken(world)]
        report.runs += 1
        if len(crashes.errors) == 3:
            report.hits += 1
            last = decode_event(world.ended[0][-1]) if world.ended else None
            if last is not None and last.type == "run.failed":
                gave_up += 1
                if last.payload["code"] != "internal_error" or "crash 3" not in last.payload["message"]:
                    messages.append(f"given up with {dict(last.payload)}")
        for message in messages:
            report.violations.append(chaos.Violation(token=chaos.CaseToken("crash", 1, k), site=None, message=message))
    show(f"{request.node.name}: {gave_up} given up", report)
    assert gave_up
