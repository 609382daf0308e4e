"""Sweeps: run a scenario once per step with a fault at that step, and check the world afterwards.

    report = sweep_cancel(World, scenario, check)
    print(report)
    report.require()

A world is anything: made fresh for every run, handed to `scenario(world)`, examined by `check(world)`, which returns
one sentence per broken promise. A failing case carries a token, `cancel:<seed>:<k>`, which `only=` replays.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Literal, TypeVar

import trio
import trio.testing
from attrs import define, field, frozen
from trio.lowlevel import Task

from greenroom.supervision.chaos.faults import CancelAt, CrashAt, Fault, StepHook
from greenroom.supervision.chaos.scheduling import run
from greenroom.supervision.chaos.sites import SiteRecorder

W = TypeVar("W")
Kind = Literal["cancel", "crash", "pair", "none"]


class InjectedCrashError(Exception):
    """The crash that `sweep_crash` injects; whoever reports a crash reports this one."""


@frozen(order=True)
class Token:
    """Names one run of a sweep: enough to replay it.

    Attributes:
        kind: The fault.
        seed: The schedule.
        k: Step of the (crash) fault.
        second: Step of the cancellation of a pair.
    """

    kind: Kind
    seed: int
    k: int
    second: int | None = None

    def __str__(self) -> str:
        tail = "" if self.second is None else f":{self.second}"
        return f"{self.kind}:{self.seed}:{self.k}{tail}"

    @classmethod
    def parse(cls, text: str) -> Token:
        """The token that `str(token)` gave.

        Raises:
            ValueError: It is no token.
        """
        kind, *numbers = text.split(":")
        if kind not in ("cancel", "crash", "pair", "none") or len(numbers) not in (2, 3):
            raise ValueError(f"{text!r} is no token; one looks like cancel:1:17")
        seed, k, *rest = (int(number) for number in numbers)
        return cls(kind, seed, k, rest[0] if rest else None)  # type: ignore[arg-type]  # checked above


@frozen(kw_only=True)
class Violation:
    """One broken promise of one run."""

    token: Token
    site: str | None
    message: str

    def __str__(self) -> str:
        return f"[{self.token}] at {self.site}: {self.message}"


@define(kw_only=True)
class Report:
    """What a sweep did and found.

    Attributes:
        steps: Steps of the scenario without a fault, per seed.
        runs: Runs with a fault planned.
        hits: Runs in which it struck.
        sites: Await sites seen without a fault.
        struck: Await sites at which a fault has struck.
        violations: What was broken.
    """

    kind: Kind
    steps: dict[int, int] = field(factory=dict)
    runs: int = 0
    hits: int = 0
    sites: set[str] = field(factory=set)
    struck: set[str] = field(factory=set)
    violations: list[Violation] = field(factory=list)

    def __str__(self) -> str:
        head = (
            f"{self.kind} sweep: {sum(self.steps.values())} steps under {len(self.steps)} seeds, {self.runs} runs, "
            f"{self.hits} struck, {len(self.sites & self.struck)} of {len(self.sites)} sites, "
            f"{len(self.violations)} violations"
        )
        return "\n".join([head, *(f"  {violation}" for violation in self.violations[:10])])

    def require(self) -> Report:
        """Return the report if nothing was broken.

        Raises:
            AssertionError: Something was; the message has the tokens.
        """
        if self.violations:
            raise AssertionError(str(self))
        if not self.hits:
            raise AssertionError(f"{self}\nno fault has struck: the sweep has shown nothing")
        return self


@frozen(kw_only=True)
class _Plan:
    """What all runs of one sweep share."""

    make_world: Callable[[], object]
    scenario: Callable[..., Awaitable[object]]
    check: Callable[..., Iterable[str]]
    get_scope: Callable[..., trio.CancelScope | None]
    match_task: Callable[[Task], bool]
    settle_within: float | None


def _scope_of(world: object) -> trio.CancelScope | None:
    scope: trio.CancelScope | None = getattr(world, "scope", None)
    return scope


def sweep_cancel(
    make_world: Callable[[], W],
    scenario: Callable[[W], Awaitable[object]],
    check: Callable[[W], Iterable[str]],
    *,
    get_scope: Callable[[W], trio.CancelScope | None] = _scope_of,
    seeds: Sequence[int] = (1,),
    sample: tuple[int, int] | None = None,
    settle_within: float | None = None,
    only: Token | str | None = None,
) -> Report:
    """Cancel `get_scope(world)` before every step of the scenario.

    Args:
        make_world: Makes a fresh world.
        scenario: The program.
        check: Promises broken in a world whose run is over.
        get_scope: What to cancel; the world's attribute `scope` unless given.
        seeds: Schedules.
        sample: (n, seed): only n of the cases, chosen by that seed; for CI.
        settle_within: Virtual seconds from the cancellation to the end of the run.
        only: Replay this token and nothing else.
    """
    plan = _Plan(
        make_world=make_world,
        scenario=scenario,
        check=check,
        get_scope=get_scope,
        match_task=lambda _: False,
        settle_within=settle_within,
    )
    return _sweep(plan, "cancel", seeds, sample, only)


def sweep_crash(
    make_world: Callable[[], W],
    scenario: Callable[[W], Awaitable[object]],
    check: Callable[[W], Iterable[str]],
    *,
    match_task: Callable[[Task], bool],
    and_cancel: bool = False,
    get_scope: Callable[[W], trio.CancelScope | None] = _scope_of,
    seeds: Sequence[int] = (1,),
    sample: tuple[int, int] | None = None,
    settle_within: float | None = None,
    only: Token | str | None = None,
) -> Report:
    """Raise `InjectedCrashError` in a matching task at every step, or at every pair of steps with a cancellation.

    Pairs are what `and_cancel` asks for. If the world has an attribute `injected`, it is set to the error once it has
    been raised, so that `check` can ask whether it was reported or masked. The rest is as in `sweep_cancel`.
    """
    plan = _Plan(
        make_world=make_world,
        scenario=scenario,
        check=check,
        get_scope=get_scope,
        match_task=match_task,
        settle_within=settle_within,
    )
    return _sweep(plan, "pair" if and_cancel else "crash", seeds, sample, only)


def _sweep(
    plan: _Plan, kind: Kind, seeds: Sequence[int], sample: tuple[int, int] | None, only: Token | str | None
) -> Report:
    report = Report(kind=kind)
    token = Token.parse(only) if isinstance(only, str) else only
    if token is not None:
        _run_one(plan, token, report)
        return report
    cases: list[Token] = []
    for seed in seeds:
        steps = _dry_run(plan, seed, report)
        report.steps[seed] = steps
        if kind == "pair":
            cases += [Token(kind, seed, k, second) for k in range(steps) for second in range(steps)]
        else:
            cases += [Token(kind, seed, k) for k in range(steps)]
    if sample is not None and sample[0] < len(cases):
        cases = sorted(random.Random(sample[1]).sample(cases, sample[0]))  # noqa: S311 - reproducible on purpose
    for case in cases:
        _run_one(plan, case, report)
    return report


def _dry_run(plan: _Plan, seed: int, report: Report) -> int:
    """Without a fault the promises must hold, too; returns the number of steps."""
    world = plan.make_world()
    recorder, counter = SiteRecorder(), StepHook(lambda _, __: None)
    run(plan.scenario, world, seed=seed, instruments=[recorder, counter])
    report.sites |= recorder.sites
    for message in plan.check(world):
        report.violations.append(Violation(token=Token("none", seed, 0), site=None, message=message))
    return counter.k


def _run_one(plan: _Plan, token: Token, report: Report) -> None:
    world = plan.make_world()
    crash_error = InjectedCrashError(str(token))
    cancel_step = {"cancel": token.k, "pair": token.second}.get(token.kind)
    cancel = CancelAt(-1 if cancel_step is None else cancel_step, lambda: plan.get_scope(world))
    crash = CrashAt(token.k, plan.match_task, crash_error)
    plans: dict[Kind, list[Fault]] = {"cancel": [cancel], "crash": [crash], "pair": [cancel, crash], "none": []}
    faults = plans[token.kind]
    clock = trio.testing.MockClock(autojump_threshold=0)
    messages: list[str] = []
    try:
        run(plan.scenario, world, seed=token.seed, clock=clock, instruments=faults)
    except BaseException as error:  # noqa: BLE001, ASYNC103 - whatever escapes is a finding, not a failure of the kit
        messages.append(f"escaped: {type(error).__name__}: {error}")
    if crash.struck and hasattr(world, "injected"):
        world.injected = crash_error
    report.runs += 1
    struck = [fault for fault in faults if fault.struck]
    report.hits += len(struck) == len(faults)
    report.struck |= {fault.site for fault in struck if fault.site is not None}
    times = [fault.at for fault in struck if fault.at is not None]
    if times and plan.settle_within is not None and clock.current_time() - max(times) > plan.settle_within:
        messages.append(f"it took {clock.current_time() - max(times):.1f} virtual seconds to settle")
    messages += plan.check(world)
    site = struck[0].site if struck else None
    report.violations += [Violation(token=token, site=site, message=message) for message in messages]
