"""End a process after each of its commits and let the next process go on, for agents and tools of users.

    report = crash_points(World, scenario, check)
    report.require()

The form is that of the sweeps of `greenroom.supervision.chaos`, the points are the writes of the store.
"""

from __future__ import annotations

import functools
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import attrs
import trio
import trio.testing

from greenroom.supervision import chaos
from greenroom.supervision.chaos.report import Report
from greenroom.supervision.chaos.scheduling import IO_BUDGET
from greenroom.supervision.chaos.sweep import Check, escaped, nothing_more

from ..abc import Store
from ..stores.common._requests import CommitRequest, DueRequest, ReadyRequest, Request
from ..stores.common.faults import InjectedCrash
from ..stores.memory.store import MemoryStore

W = TypeVar("W")
Scenario = Callable[[W, Store], Awaitable[object]]


class _MortalStore(MemoryStore):
    """A store in memory whose process ends after one of its commits.

    Attributes:
        commits: what each commit of all processes was about.
        ended_at: when the process ended, on trio's clock; None before.
        dead: no write succeeds, until `revive`.
        scope: The scope of the process.
        task: that made the commit.
    """

    def __init__(self, last: int | None) -> None:
        super().__init__()
        self._last = last
        self.commits: list[str] = []
        self.ended_at: float | None = None
        self.dead = False
        self.scope = trio.CancelScope()
        self.task = ""

    def _execute(self, batch: Sequence[Request]) -> Sequence[Any]:
        if self.dead:
            raise InjectedCrash("the process has ended")
        results = super()._execute(batch)
        if isinstance(batch[0], ReadyRequest | DueRequest) and not results[0].value:
            return results  # there was no run to claim, so nothing was written
        self.commits.append(_subject(batch[0]))
        if len(self.commits) - 1 == self._last:
            self.dead, self.ended_at, self.task = True, trio.current_time(), trio.lowlevel.current_task().name
            self.scope.cancel("crash_points: the process ends")
            logging.disable()  # what the process says on its way down is no news
            raise InjectedCrash(f"the process ends after commit {self._last}")
        return results

    def revive(self) -> None:
        """Let the next process use the store."""
        self.dead, self._last, self.scope = False, None, trio.CancelScope()


def _subject(request: Request) -> str:
    """Return what a write is about: the types of its events, or its kind."""
    if isinstance(request, CommitRequest):
        return ", ".join(dict.fromkeys(event.type for event in request.commit.events)) or "rows only"
    return type(request).__name__.removesuffix("Request").lower()


def crash_points(
    make_world: Callable[[], W],
    scenario: Scenario[W],
    check: Check[W] = nothing_more,
    *,
    seeds: Sequence[int] = (1,),
    sample: tuple[int, int] | None = None,
    settle_within: float | None = None,
    io_budget: float = IO_BUDGET,
    only: chaos.CaseToken | str | None = None,
) -> Report:
    """Run a scenario once per commit, end its process right after that commit, and run the scenario again.

    `scenario(world, store)` is the program of one process: it opens a runtime on the store, starts or finds its run
    (with a `run_id`, so that starting is idempotent) and sees to its end. At the point nothing later is stored, the
    scenario is cancelled, and what it raises on its way down is dropped, as at a kill. Then the same function is the
    next process, on what is stored. The world outlives both: it is what is outside of the process. Code of the first
    process that is already executing reaches its next checkpoint, as code does that a kill meets a moment later.

    The function calls `trio.run`, with virtual time and a seeded order of tasks; call it in a test that is not async.

    Args:
        make_world: Creates a world.
        scenario: The program.
        check: Returns the promises broken in a world after the last process; called after a run without a crash, too.
        seeds: Schedules.
        sample: (n, seed): only n of the points, chosen by that seed; for CI.
        settle_within: Virtual seconds from the crash to the end of the next process.
        io_budget: Real seconds to wait for threads, sockets and processes; see `chaos.run`.
        only: Replay this token, `commit:<seed>:<number>`, and nothing else.

    Returns:
        The report: `require()` raises AssertionError for a broken promise, with tokens.

    Raises:
        KeyboardInterrupt: Ctrl-C, or the scenario raised one: the sweep ends immediately.
        ValueError: `only` is not a token of a commit.
    """
    sweep = _Sweep(make_world, scenario, check, settle_within, io_budget)
    if only is not None:
        token = chaos.CaseToken.parse(only) if isinstance(only, str) else only
        if token.kind not in ("commit", "schedule"):
            raise ValueError(f"{token} names no commit; tokens of this sweep look like commit:1:17")
        sweep.live(token, token.k if token.kind == "commit" else None)
        return sweep.report
    cases = list[chaos.CaseToken]()
    for seed in seeds:
        commits = sweep.live(chaos.CaseToken("schedule", seed), None)
        sweep.report.steps[seed] = len(commits)
        sweep.report.sites |= {f"commit of {subject}" for subject in commits}
        cases += [chaos.CaseToken("commit", seed, number) for number in range(len(commits))]
    if sample is not None and sample[0] < len(cases):
        cases = sorted(random.Random(sample[1]).sample(cases, sample[0]))  # noqa: S311 - reproducible on purpose
    for case in cases:
        sweep.live(case, case.k)
    return sweep.report


@attrs.frozen
class _Sweep:
    """The arguments that all runs of one sweep share, and its report."""

    make_world: Callable[[], object]
    scenario: Scenario[Any]
    check: Check[Any]
    settle_within: float | None
    io_budget: float
    report: Report = attrs.field(init=False, factory=lambda: Report(kind="commit"))

    def live(self, token: chaos.CaseToken, last: int | None) -> list[str]:
        """Run the scenario, end its process after a commit, if any, and check; return what the commits were about."""
        world, store, clock = self.make_world(), _MortalStore(last), trio.testing.MockClock(autojump_threshold=0)
        messages = list[str]()

        @functools.wraps(self.scenario)
        async def processes() -> None:
            await self._processes(world, store)

        try:
            chaos.run(processes, seed=token.seed, clock=clock, io_budget=self.io_budget)
        except BaseException as error:  # noqa: BLE001, ASYNC103 - whatever escapes is a finding, not a failure of the kit
            messages.append(escaped(error))
        report, site, task = self.report, None, None
        report.runs += last is not None
        if store.ended_at is not None and last is not None:
            site, task = f"commit of {store.commits[last]}", store.task
            report.hits += 1
            report.struck.add(site)
            settle_seconds = clock.current_time() - store.ended_at
            if self.settle_within is not None and settle_seconds > self.settle_within:
                messages.append(f"it took {settle_seconds:.1f} virtual seconds to settle")
        messages += self.check(world)
        report.violations += [
            chaos.Violation(token=token, site=site, task=task, message=message) for message in messages
        ]
        return store.commits

    async def _processes(self, world: object, store: _MortalStore) -> None:
        log_level = logging.root.manager.disable
        try:
            with store.scope:
                await self.scenario(world, store)
        except Exception:  # an error of a process that has ended reaches no caller
            if store.ended_at is None:
                raise
        finally:
            logging.disable(log_level)
        if store.ended_at is not None:
            store.revive()
            await self.scenario(world, store)
