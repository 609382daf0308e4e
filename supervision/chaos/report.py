"""Results of a sweep: tokens that name single runs, violations, and the report that groups the violations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from attrs import define, field, frozen

from .sites import TraceStep

Kind = Literal["cancel", "crash", "pair", "schedule", "commit"]

_GROUPS: Final = 10
"""Maximum number of groups of violations that are printed."""
_TOKENS: Final = 4
"""Maximum number of tokens printed per group."""
_BEFORE: Final = 30
_AFTER: Final = 15
"""Steps of a trace that are printed before and after the fault."""


@frozen(order=True)
class CaseToken:
    """The name of one run of a sweep; sufficient to replay the run while the program is unchanged.

    Attributes:
        kind: The fault; "schedule" means no fault, "commit" the end of the process after a write of its store.
        seed: The schedule.
        k: Step of the fault; of a pair: step of the crash; of a commit: its number, from 0.
        second: The step of the cancellation, in a pair.
    """

    kind: Kind
    seed: int
    k: int = 0
    second: int | None = None

    def __str__(self) -> str:
        if self.kind == "schedule":
            return f"schedule:{self.seed}"
        tail = "" if self.second is None else f":{self.second}"
        return f"{self.kind}:{self.seed}:{self.k}{tail}"

    @classmethod
    def parse(cls, text: str) -> CaseToken:
        """Parse a token from the text that `str(token)` returned.

        Raises:
            ValueError: The text is not a token.
        """
        kind, *numbers = text.split(":")
        length = {"cancel": 2, "crash": 2, "pair": 3, "schedule": 1, "commit": 2}.get(kind)
        if length != len(numbers) or not all(number.isascii() and number.isdigit() for number in numbers):
            raise ValueError(f"{text!r} is no token; tokens look like cancel:1:17, pair:1:17:20 or schedule:3")
        seed, *steps = (int(number) for number in numbers)
        return cls(kind, seed, *steps)  # type: ignore[arg-type]  # checked above


@frozen(kw_only=True)
class Violation:
    """One broken promise of one run.

    Attributes:
        token: Names the run.
        site: Await site at which the fault struck; None if no fault struck.
        task: Name of the task that was about to run at the strike.
        message: The broken promise.
    """

    token: CaseToken
    site: str | None = None
    task: str | None = None
    message: str

    @property
    def place(self) -> str:
        """The place of the strike, in words."""
        return "without a fault" if self.site is None else f"at {self.site} in task {self.task!r}"

    def __str__(self) -> str:
        return f"[{self.token}] {self.place}: {self.message}"


@define(kw_only=True)
class Report:
    """The result of a sweep.

    Attributes:
        steps: Steps of the scenario without a fault, per seed; of a sweep over commits: its commits.
        schedules: Different orders of steps among the runs without a fault.
        runs: Runs with a planned fault (of a sweep over schedules: all).
        hits: Runs in which the fault struck (of a sweep over schedules: all).
        sites: Await sites seen without a fault.
        struck: Await sites at which a fault struck.
        violations: Broken promises.
        trace: The steps of a replay.
        struck_at: The steps of a replay before which the faults struck.
    """

    kind: Kind
    steps: dict[int, int] = field(factory=dict)
    schedules: int = 0
    runs: int = 0
    hits: int = 0
    sites: set[str] = field(factory=set)
    struck: set[str] = field(factory=set)
    violations: list[Violation] = field(factory=list)
    trace: Sequence[TraceStep] = ()
    struck_at: Sequence[int] = ()

    def __str__(self) -> str:
        return "\n".join([self._head(), *self._groups(), *self._trace_lines()])

    def _head(self) -> str:
        if self.trace:
            return f"{self.kind} replay: {len(self.trace)} steps, {len(self.violations)} violations"
        did = (
            f"{self.runs} runs, {self.schedules} different orders"
            if self.kind == "schedule"
            else f"{self.runs} runs, {self.hits} struck, {len(self.sites & self.struck)} of {len(self.sites)} sites"
        )
        summary = f"{len(self.violations)} violations"
        points = "commits" if self.kind == "commit" else "steps"
        return f"{self.kind} sweep: {sum(self.steps.values())} {points} under {len(self.steps)} seeds, {did}, {summary}"

    def _groups(self) -> list[str]:
        """Return the lines of the violations, grouped by place and message, the most frequent first."""
        groups: dict[tuple[str, str], list[Violation]] = {}
        for violation in self.violations:
            groups.setdefault((violation.place, violation.message), []).append(violation)
        lines = []
        for (place, message), members in sorted(groups.items(), key=lambda item: -len(item[1]))[:_GROUPS]:
            tokens = ", ".join(str(violation.token) for violation in members[:_TOKENS])
            more = f" and {len(members) - _TOKENS} more" if len(members) > _TOKENS else ""
            text = message.replace("\n", "\n    ")
            lines += [f"  {len(members)} x {place}: {text}", f"    replay: {tokens}{more}"]
        if len(groups) > _GROUPS:
            lines.append(f"  and {len(groups) - _GROUPS} more places")
        return lines

    def _trace_lines(self) -> list[str]:
        if not self.trace:
            return []
        middle = self.struck_at[0] if self.struck_at else len(self.trace)
        lines = ["  trace: step, task, where the task waits after the step"]
        for step in self.trace[max(0, middle - _BEFORE) : middle + _AFTER]:
            lines += [f"  {'-' * 5}  the fault strikes here"] * self.struck_at.count(step.k)
            lines.append(f"  {step}")
        return lines

    def require(self) -> Report:
        """Return the report if no promise was broken.

        Raises:
            AssertionError: A promise was broken, or no fault struck; the message has the tokens.
        """
        if self.violations:
            raise AssertionError(str(self))
        if not self.hits:
            raise AssertionError(f"{self}\nno fault has struck: the sweep has shown nothing")
        return self
