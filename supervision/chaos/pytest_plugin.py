"""A pytest plugin: the fixture `chaos`, a marker for its options, and the replay of a token from the command line.

Projects enable the plugin with one line in the root `conftest.py`; other projects do not import it:

    pytest_plugins = ["greenroom.supervision.chaos.pytest_plugin"]

    pytest --chaos full                      every case; --chaos 200: at most 200 per sweep (the default: 100)
    pytest --chaos-seed 7                    other cases of the sample
    pytest test_x.py::test_y --chaos-replay cancel:1:17    this one case, with its trace
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

import pytest
from attrs import frozen

from .report import CaseToken, Kind, Report
from .sweep import Check, nothing_more, sweep_cancel, sweep_crash, sweep_schedules

W = TypeVar("W")
SAMPLE: Final = 100
"""Default number of cases per sweep."""
_OPTIONS: Final = ("sample", "seeds", "settle_within", "io_budget")


def _cases(text: str) -> int | None:
    """Return the value of --chaos: a number of cases, or None for all."""
    if text == "full":
        return None
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise pytest.UsageError(f"--chaos {text}: give 'full' or a number of cases, 1 or more")
    return int(text)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Called by pytest."""
    group = parser.getgroup("chaos", "fault injection (greenroom.supervision.chaos)")
    group.addoption("--chaos", metavar="N", help=f"cases of each sweep, or 'full' for all (default: {SAMPLE})")
    group.addoption("--chaos-seed", type=int, default=1, help="chooses the cases of a sample (default: %(default)s)")
    group.addoption("--chaos-replay", metavar="TOKEN", help="replay one case of the selected test and print its trace")


def pytest_configure(config: pytest.Config) -> None:
    """Called by pytest."""
    line = f"chaos({'=, '.join(_OPTIONS)}=): options of the sweeps of a test; see greenroom.supervision.chaos"
    config.addinivalue_line("markers", line)
    text = config.getoption("--chaos")
    if text is not None:
        _cases(text)
    token = config.getoption("--chaos-replay")
    if token is not None:
        try:
            CaseToken.parse(token)
        except ValueError as error:
            raise pytest.UsageError(f"--chaos-replay: {error}") from error


@frozen(kw_only=True)
class Chaos:
    """Sweeps of one test: each sweep runs its cases, prints the report, and fails the test if a promise was broken.

    The arguments are those of `sweep_cancel`, `sweep_crash` and `sweep_schedules`; the command line and the marker
    supply omitted ones.
    """

    _options: dict[str, Any]
    _sample_seed: int
    _replay: str | None
    _name: str

    def cancel(
        self,
        make_world: Callable[[], W],
        scenario: Callable[[W], Awaitable[object]],
        check: Check[W] = nothing_more,
        **options: object,
    ) -> Report:
        """Cancel the scenario before every step.

        Raises:
            AssertionError: A promise was broken, or no fault struck. The message has the tokens and the command that
                replays one.
        """
        if not self._wanted("cancel"):
            return Report(kind="cancel")
        return self._done(sweep_cancel(make_world, scenario, check, **self._merged(options)))

    def crash(
        self,
        make_world: Callable[[], W],
        scenario: Callable[[W], Awaitable[object]],
        check: Check[W] = nothing_more,
        **options: object,
    ) -> Report:
        """Crash a task at every step.

        Raises:
            AssertionError: As in `cancel`.
        """
        kind: Kind = "pair" if options.get("and_cancel") else "crash"
        if not self._wanted(kind):
            return Report(kind=kind)
        return self._done(sweep_crash(make_world, scenario, check, **self._merged(options)))

    def schedules(
        self,
        make_world: Callable[[], W],
        scenario: Callable[[W], Awaitable[object]],
        check: Check[W] = nothing_more,
        **options: object,
    ) -> Report:
        """Run the scenario under many orders of its tasks, without a fault; as many orders as a sample has cases.

        Raises:
            AssertionError: A promise was broken.
        """
        if not self._wanted("schedule"):
            return Report(kind="schedule")
        sample = self._options.get("sample")
        all_options = {"seeds": range(SAMPLE if sample is None else sample)} | self._merged(options)
        all_options.pop("sample", None)
        all_options.pop("settle_within", None)
        return self._done(sweep_schedules(make_world, scenario, check, **all_options))

    def _wanted(self, kind: Kind) -> bool:
        """Return False if the command line replays a case of another kind; any sweep replays a case without a fault."""
        return self._replay is None or CaseToken.parse(self._replay).kind in (kind, "schedule")

    def _merged(self, options: dict[str, Any]) -> dict[str, Any]:
        all_options = {**self._options, **options}
        sample: int | tuple[int, int] | None = all_options.pop("sample", None)
        if isinstance(sample, int):
            sample = (sample, self._sample_seed)
        if sample is not None:
            all_options["sample"] = sample
        if self._replay is not None:
            all_options["only"] = self._replay
        return all_options

    def _done(self, report: Report) -> Report:
        print(report)  # noqa: T201 - pytest shows the output of failing tests, and all output with -s
        if report.violations:
            token = report.violations[0].token
            raise AssertionError(f"{report}\nreplay: pytest '{self._name}' --chaos-replay {token}")
        return report if self._replay is not None else report.require()


@pytest.fixture
def chaos(request: pytest.FixtureRequest) -> Chaos:
    """Return sweeps with the options of the command line and of the test's marker `chaos`."""
    config, options = request.config, dict[str, Any]()
    for marker in reversed(list(request.node.iter_markers("chaos"))):
        unknown: Sequence[str] = sorted(set(marker.kwargs) - set(_OPTIONS))
        if unknown or marker.args:
            raise pytest.UsageError(f"the marker chaos takes {', '.join(_OPTIONS)}, not {(*marker.args, *unknown)}")
        options |= marker.kwargs
    cases = config.getoption("--chaos")
    if cases is not None:
        options["sample"] = _cases(cases)
    elif "sample" not in options:
        options["sample"] = SAMPLE
    return Chaos(
        options=options,
        sample_seed=config.getoption("--chaos-seed"),
        replay=config.getoption("--chaos-replay"),
        name=request.node.nodeid,
    )
