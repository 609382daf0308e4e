"""What all tests share: the seed, the marks, how far the sweeps go, and the Hypothesis profiles.

    pytest --seed 7          another seed for everything that draws lots (default: GREENROOM_SEED, else a fixed number)
    pytest --fast            without the tests that are marked slow
    GREENROOM_CHAOS=cover    each case of a scene runs on each store and in each mode; default: a seeded sample
                             (support/covering.py)
    GREENROOM_CHAOS=full     all scenes on all stores in all modes, all cases of the other tests, sweeps visit every
                             point, and Hypothesis tries many more examples
    GREENROOM_JUDGES=required  a test marked judge that would be skipped fails instead; the CI says so

pytest-trio runs in `trio_mode`: async tests and fixtures need no mark.
"""

import gc
import importlib
import logging
import os
import pkgutil
import random
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import TypeVar

import hypothesis
import pytest
from tests.support.chromium import chromium  # noqa: F401 - a fixture
from tests.support.covering import leave_out
from tests.support.postgres import _kept_schema, postgres_server, postgres_tables, postgres_url  # noqa: F401 - fixtures

import greenroom

T = TypeVar("T")

FIXED_SEED = 20_011  # any number does, as long as two people who run the tests get the same one
FULL = os.environ.get("GREENROOM_CHAOS") == "full"
COVER = os.environ.get("GREENROOM_CHAOS") == "cover"
MEASURED_CASES, MEASURED_UNIT_CASES = 2, 60
"""Cases of a scene and of another test whose coverage is measured."""
UNMEASURED = (
    "tests/chaos/", "tests/conformance/test_growth.py", "tests/e2e/console/", "tests/e2e/postgres/",
    "tests/e2e/test_attack_smoke.py", "tests/e2e/test_bench_smoke.py", "tests/e2e/test_docs.py",
    "tests/e2e/test_kill_nine.py", "tests/typing/", "tests/unit/contract/test_stepwise.py",
    "tests/unit/engine/test_positions.py", "tests/unit/engine/test_properties.py", "tests/unit/engine/test_replays.py",
    "tests/unit/test_house.py", "tests/unit/test_layering.py",
)  # fmt: skip
"""Tests whose coverage is not: sweeps and floods repeat what scenes do once, the console is JavaScript, and tests of
the source's text reach no line of the source."""
MEASURED = "tests/chaos/test_kernel_kit.py"
"""Its programs are small, and no other tests try the chaos kit itself."""
JUDGES_REQUIRED = os.environ.get("GREENROOM_JUDGES") == "required"
MOST_RERUNS = 4
"""Tests of a session that may fail once and pass when they run again. A busy machine explains no more of them."""

# Shared machines make every deadline flaky. "ci" tries the same examples each time, so that a red build can be had
# again; "full" looks for new ones.
hypothesis.settings.register_profile("ci", max_examples=40, derandomize=True, deadline=None, print_blob=True)
hypothesis.settings.register_profile("full", max_examples=2_000, deadline=None, print_blob=True)
hypothesis.settings.load_profile("full" if FULL else "ci")


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background of a script. Programs inherit that, and the tests send some of them an interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("greenroom")
    group.addoption(
        "--seed",
        type=int,
        default=int(os.environ.get("GREENROOM_SEED", FIXED_SEED)),
        help="seed of everything that draws lots (default: GREENROOM_SEED or %(default)s)",
    )
    group.addoption("--fast", action="store_true", help="leave out the tests that are marked slow")


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Each worker collects all tests, so the work is kept small.

    Coverage measures the import of the package and not that of the tests. The collector of garbage would visit the
    thousands of items, which stay, again and again, also during the tests.
    """
    control = getattr(session.config.pluginmanager.getplugin("_cov"), "cov_controller", None)
    measured = hasattr(session.config, "workerinput") and control is not None and control.started
    if measured:
        for module in pkgutil.walk_packages(greenroom.__path__, "greenroom."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
        control.pause()
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        if measured:
            control.resume()


def pytest_report_header(config: pytest.Config) -> str:
    sweeps = "in full" if FULL else "sampled"
    scenes = "in full" if FULL else "each once" if COVER else "sampled"
    return f"greenroom: --seed {config.getoption('--seed')}, sweeps {sweeps}, stores and modes {scenes}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seed = config.getoption("--seed")
    leave_out(config, items, seed, cover=COVER, full=FULL, judges_required=JUDGES_REQUIRED)
    _leave_unmeasured(items)
    if hasattr(config, "workerinput"):
        items.sort(key=_turn)
    if not config.getoption("--fast"):
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    config.hook.pytest_deselected(items=slow)
    items[:] = [item for item in items if item not in slow]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """With `--reruns` (the CI says so) a session of many reruns fails, though each test has passed in the end."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    rerun = {report.nodeid for report in reporter.stats.get("rerun", ())} if reporter else ()
    if len(rerun) > MOST_RERUNS and session.exitstatus == pytest.ExitCode.OK:
        reporter.write_line(f"\n{len(rerun)} tests have passed only when they ran again; {MOST_RERUNS} may", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _leave_unmeasured(items: Sequence[pytest.Item]) -> None:
    """Mark tests whose lines other tests reach as well: measuring coverage doubles the time of a test.

    Those are the later cases of a scene, sweeps, and tests that Hypothesis repeats with many values.
    """
    cases: Counter[str] = Counter()
    for item in items:
        if item.get_closest_marker("no_cover"):
            continue
        function = item.nodeid.partition("[")[0]
        cases[function] += 1
        scene = function.startswith("tests/conformance/")
        more = cases[function] > (MEASURED_CASES if scene else MEASURED_UNIT_CASES)
        drawn = hypothesis.is_hypothesis_test(getattr(item, "obj", None))
        if more or drawn or (function.startswith(UNMEASURED) and not function.startswith(MEASURED)):
            item.add_marker("no_cover")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """The mark no_cover, of pytest-cov, counts for the processes that a test starts, too."""
    if item.get_closest_marker("no_cover") is None:
        return (yield)
    taken = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("COVERAGE_PROCESS_")}
    try:
        return (yield)
    finally:
        os.environ.update(taken)


def _turn(item: pytest.Item) -> int:
    """The files whose tests start programs come first, so that no worker is left with one of them at the end."""
    folders = ("e2e/console", "e2e", "typing", "chaos", "conformance", "unit")
    place = item.nodeid.removeprefix("tests/")
    return next((turn for turn, folder in enumerate(folders) if place.startswith(f"{folder}/")), len(folders))


def pytest_configure(config: pytest.Config) -> None:
    if JUDGES_REQUIRED:
        config.pluginmanager.register(NoJudgeIsSkipped(), "no-judge-is-skipped")


class NoJudgeIsSkipped:
    """Where the judges are required, one that is missing is an error: a green build has received all of them."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if item.get_closest_marker("judge") and report.skipped and not hasattr(report, "wasxfail"):
            report.outcome, report.longrepr = "failed", f"this judge is required: {_reason(report)}"
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """A module that is skipped whole has no tests whose marks could be read: its name tells."""
        report = yield
        if report.outcome == "skipped" and "judge" in collector.path.name:
            report.outcome, report.longrepr = "failed", f"these judges are required: {_reason(report)}"
        return report


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    return str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)


@pytest.fixture(scope="session")
def root() -> Path:
    """The top folder of the repository."""
    return Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def seed(request: pytest.FixtureRequest) -> int:
    """The seed of this session, as the header prints it."""
    return int(request.config.getoption("--seed"))


@pytest.fixture
def rng(seed: int, request: pytest.FixtureRequest) -> random.Random:
    """A generator of this test's own: the same seed and test give the same draws, whatever ran before."""
    return random.Random(f"{seed} {request.node.nodeid}")


@pytest.fixture
def sampled(rng: random.Random) -> Callable[[Sequence[T], int], list[T]]:
    """`sampled(points, n)`: all points in a full sweep, else n of them drawn with the seed, in their own order."""

    def draw(points: Sequence[T], n: int) -> list[T]:
        if FULL or len(points) <= n:
            return list(points)
        return [points[i] for i in sorted(rng.sample(range(len(points)), n))]

    return draw


@pytest.fixture
def folder(tmp_path: Path) -> Generator[Path]:
    """Where files are made: in memory if there is such a place, for what is tested is not the disk."""
    shared = Path("/dev/shm")  # noqa: S108 - a fresh folder is made in it
    if not shared.is_dir():
        yield tmp_path
        return
    made = Path(tempfile.mkdtemp(prefix="greenroom-", dir=shared))
    yield made
    shutil.rmtree(made)


@pytest.fixture(autouse=True)
def loggers_as_before() -> Generator[None]:
    """Undo what a test or a command run in this process did to the logger: later tests of the worker read the log."""
    log = logging.getLogger("greenroom")
    level, propagate, handlers = log.level, log.propagate, log.handlers[:]
    yield
    log.setLevel(level)
    log.propagate, log.handlers[:] = propagate, handlers
