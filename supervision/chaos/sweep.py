"""Sweeps: run a scenario once per step with a fault at that step, and check the promises afterwards.

    report = sweep_cancel(World, scenario, check)
    print(report)
    report.require()

A world is any object: created for every run, passed to `scenario(world)`, and examined by `check(world)`, which returns
one sentence per broken promise. A failing case has a token, `cancel:<seed>:<k>`; `only=` replays the token.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

import trio
import trio.testing
from attrs import frozen
from trio.lowlevel import Task

from ..exits import leaves
from .faults import CancelAt, CrashAt, Fault
from .report import CaseToken, Kind, Report, Violation
from .scheduling import IO_BUDGET, DeadlockError, run
from .sites import SiteRecorder, TraceRecorder

W = TypeVar("W")
Check = Callable[[W], Iterable[str]]


class InjectedCrashError(Exception):
    """The crash that `sweep_crash` injects; code that reports a crash reports this exception."""


def nothing_more(_: object) -> Iterable[str]:
    """Check nothing beyond an end without an error."""
    return ()


@frozen(kw_only=True)
class _Plan:
    """The arguments that all runs of one sweep share."""

    make_world: Callable[[], object]
    scenario: Callable[..., Awaitable[object]]
    check: Callable[..., Iterable[str]]
    get_scope: Callable[..., trio.CancelScope | None] | None = None
    match_task: Callable[[Task], bool] | None = None
    inside: Sequence[str] | None = None
    contained: bool = False
    settle_within: float | None = None
    io_budget: float = IO_BUDGET


def sweep_cancel(
    make_world: Callable[[], W],
    scenario: Callable[[W], Awaitable[object]],
    check: Check[W] = nothing_more,
    *,
    get_scope: Callable[[W], trio.CancelScope | None] | None = None,
    seeds: Sequence[int] = (1,),
    sample: tuple[int, int] | None = None,
    settle_within: float | None = None,
    io_budget: float = IO_BUDGET,
    only: CaseToken | str | None = None,
) -> Report:
    """Cancel the scenario before every one of its steps.

    Args:
        make_world: Creates a world.
        scenario: The program.
        check: Returns the promises broken in a world after the run.
        get_scope: Returns the scope to cancel. Default: the world's attribute `scope`, or the whole scenario for a
            world without that attribute.
        seeds: Schedules.
        sample: (n, seed): only n of the cases, chosen by that seed; for CI.
        settle_within: Virtual seconds from the cancellation to the end of the run.
        io_budget: Real seconds to wait for threads, sockets and processes; see `run`.
        only: Replay this token and nothing else; the report has the trace.

    Raises:
        KeyboardInterrupt: Ctrl-C, or the scenario raised one: the sweep ends immediately.
        ValueError: `only` is not a token of a sweep of this module.
    """
    plan = _Plan(
        make_world=make_world,
        scenario=scenario,
        check=check,
        get_scope=get_scope,
        settle_within=settle_within,
        io_budget=io_budget,
    )
    return _sweep(plan, "cancel", seeds, sample, only)


def sweep_crash(
    make_world: Callable[[], W],
    scenario: Callable[[W], Awaitable[object]],
    check: Check[W] = nothing_more,
    *,
    match_task: Callable[[Task], bool] | None = None,
    inside: Sequence[str] | None = None,
    contained: bool = False,
    and_cancel: bool = False,
    get_scope: Callable[[W], trio.CancelScope | None] | None = None,
    seeds: Sequence[int] = (1,),
    sample: tuple[int, int] | None = None,
    settle_within: float | None = None,
    io_budget: float = IO_BUDGET,
    only: CaseToken | str | None = None,
) -> Report:
    """Raise `InjectedCrashError` in a matching task at every step, or at every pair of steps with a cancellation.

    A crash is an exception of the program's own code. The operation that the task awaits returns its result, and the
    next statement raises, so that whatever holds a lock has entered the block that releases it; see `CrashAt`.

    The crash may leave the scenario, bare or in a group, as an error of a trio task does; no other error may. If the
    world has an attribute `injected`, the attribute is set to the error after the strike, so that `check` can test
    whether the crash was reported or masked.

    Args:
        make_world: Creates a world.
        scenario: The program.
        check: Returns the promises broken in a world after the run.
        match_task: Selects the tasks that may crash; default all.
        inside: Modules whose statements crash, each with the modules below it. Default: all but the standard library,
            installed packages and `greenroom.supervision`.
        contained: True if the scenario handles the crash (with a supervisor, for example): a crash that leaves the
            scenario is then a violation.
        and_cancel: Combine each crash with a cancellation.
        get_scope: Returns the scope that the cancellation of a pair cancels.
        seeds: Schedules.
        sample: (n, seed): only n of the cases, chosen by that seed.
        settle_within: Virtual seconds from the last fault to the end of the run.
        io_budget: Real seconds to wait for threads, sockets and processes.
        only: Replay this token and nothing else; the report has the trace.

    Raises:
        KeyboardInterrupt: Ctrl-C, or the scenario raised one: the sweep ends immediately.
        ValueError: `only` is not a token of a sweep of this module.
    """
    plan = _Plan(
        make_world=make_world,
        scenario=scenario,
        check=check,
        get_scope=get_scope,
        match_task=match_task,
        inside=inside,
        contained=contained,
        settle_within=settle_within,
        io_budget=io_budget,
    )
    return _sweep(plan, "pair" if and_cancel else "crash", seeds, sample, only)


def sweep_schedules(
    make_world: Callable[[], W],
    scenario: Callable[[W], Awaitable[object]],
    check: Check[W] = nothing_more,
    *,
    seeds: Sequence[int] = range(100),
    io_budget: float = IO_BUDGET,
    only: CaseToken | str | None = None,
) -> Report:
    """Run the scenario under every seed, without a fault, to find races that depend only on the order of tasks.

    `Report.schedules` is the number of different orders. The arguments are as in `sweep_cancel`.
    """
    plan = _Plan(make_world=make_world, scenario=scenario, check=check, io_budget=io_budget)
    return _sweep(plan, "schedule", seeds, None, only)


def _sweep(
    plan: _Plan, kind: Kind, seeds: Sequence[int], sample: tuple[int, int] | None, only: CaseToken | str | None
) -> Report:
    report = Report(kind=kind)
    token = CaseToken.parse(only) if isinstance(only, str) else only
    if token is not None and token.kind == "commit":
        raise ValueError(f"{token} names a commit of a store; greenroom.testing.crash_points replays it")
    if token is not None:
        _run_one(plan, token, report, trace=True)
        return report
    cases: list[CaseToken] = []
    orders: set[int] = set()
    for seed in seeds:
        steps = _dry_run(plan, seed, report, orders)
        report.steps[seed] = steps
        if kind == "pair":
            cases += [CaseToken(kind, seed, k, second) for k in range(steps) for second in range(steps)]
        elif kind != "schedule":
            cases += [CaseToken(kind, seed, k) for k in range(steps)]
    report.schedules = len(orders)
    if kind == "schedule":
        report.runs = report.hits = len(report.steps)
    if sample is not None and sample[0] < len(cases):
        cases = sorted(random.Random(sample[1]).sample(cases, sample[0]))  # noqa: S311 - reproducible on purpose
    for case in cases:
        _run_one(plan, case, report)
    return report


def _dry_run(plan: _Plan, seed: int, report: Report, orders: set[int]) -> int:
    """Run without a fault and check the promises; return the number of steps, 0 if the scenario raised."""
    world = plan.make_world()
    recorder, trace = SiteRecorder(), TraceRecorder()
    token = CaseToken("schedule", seed)
    messages: list[str] = []
    try:
        run(plan.scenario, world, seed=seed, instruments=[recorder, trace], io_budget=plan.io_budget)
    except BaseException as error:  # noqa: BLE001, ASYNC103 - whatever escapes is a finding, not a failure of the kit
        messages.append(escaped(error))
    report.sites |= recorder.sites
    orders.add(hash(tuple(trace.order)))
    broken = bool(messages)
    messages += plan.check(world)
    report.violations += [Violation(token=token, message=message) for message in messages]
    return 0 if broken else len(trace.steps)


def _run_one(plan: _Plan, token: CaseToken, report: Report, *, trace: bool = False) -> None:
    world, whole = plan.make_world(), trio.CancelScope()
    crash_error = InjectedCrashError(str(token))
    cancel, crash = _faults(plan, token, world, whole, crash_error)
    faults: list[Fault] = [fault for fault in (cancel, crash) if fault is not None]
    clock, recorder = trio.testing.MockClock(autojump_threshold=0), TraceRecorder()
    messages: list[str] = []

    @functools.wraps(plan.scenario)
    async def scenario() -> None:
        with whole:
            await plan.scenario(world)

    instruments = [*([recorder] if trace else []), *faults]
    try:
        run(scenario, seed=token.seed, clock=clock, instruments=instruments, io_budget=plan.io_budget)
    except BaseException as error:  # noqa: BLE001, ASYNC103 - whatever escapes is a finding, not a failure of the kit
        if plan.contained or any(leaf is not crash_error for leaf in leaves(error)):
            messages.append(escaped(error))
    if crash is not None and crash.struck and hasattr(world, "injected"):
        world.injected = crash_error
    report.runs += 1
    hits = [fault for fault in faults if fault.struck]
    report.hits += len(hits) == len(faults)
    report.struck |= {fault.site for fault in hits if fault.site is not None}
    times = [fault.at for fault in hits if fault.at is not None]
    if times and plan.settle_within is not None and clock.current_time() - max(times) > plan.settle_within:
        messages.append(f"it took {clock.current_time() - max(times):.1f} virtual seconds to settle")
    messages += plan.check(world)
    site, task = (hits[0].place, hits[0].task) if hits else (None, None)
    report.violations += [Violation(token=token, site=site, task=task, message=message) for message in messages]
    if trace:
        report.trace, report.struck_at = recorder.steps, [fault.struck_at for fault in hits]


def _faults(
    plan: _Plan, token: CaseToken, world: object, whole: trio.CancelScope, error: InjectedCrashError
) -> tuple[CancelAt | None, CrashAt | None]:
    """Return the faults that a token names."""

    def scope() -> trio.CancelScope | None:
        if plan.get_scope is not None:
            return plan.get_scope(world)
        inner: trio.CancelScope | None = getattr(world, "scope", whole)
        return inner

    step = {"cancel": token.k, "pair": token.second}.get(token.kind)
    cancel = None if step is None else CancelAt(step, scope)
    if token.kind not in ("crash", "pair"):
        return cancel, None
    return cancel, CrashAt(token.k, plan.match_task or (lambda _: True), error, inside=plan.inside)


def escaped(error: BaseException) -> str:
    """Return the error that left the scenario as a sentence.

    Raises:
        KeyboardInterrupt: The error contains one: the operator ends the sweep.
    """
    for leaf in leaves(error):
        if isinstance(leaf, KeyboardInterrupt):
            raise leaf
    if isinstance(error, DeadlockError):
        return str(error)
    return "escaped: " + "; ".join(f"{type(leaf).__name__}: {leaf}" for leaf in leaves(error))
