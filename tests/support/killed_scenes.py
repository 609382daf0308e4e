"""A pytest plugin that plays scenes again, killed at a write, and replays the rest: `-p tests.support.killed_scenes`.

Each test that is collected runs once as it is, and its writes are counted. Then it runs again for points of these
writes, and dies there (`killing.py`). What the test itself says does not matter any more: it passes if every run that
the killed process left is replayed byte-equal when the next process has brought it to its end or rest. The tests that
their module names in FORGING are not killed: they write rows of which the record does not know.

Options come from the environment: GREENROOM_KILLS has the number of writes per scene (0: each, before or after it is
durable), and GREENROOM_SCENES the number of tests, drawn by the seed (0: all).
"""

import os
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from . import runs
from .killing import POINTS, Death

KILLS = int(os.environ.get("GREENROOM_KILLS", "0"))
SCENES = int(os.environ.get("GREENROOM_SCENES", "0"))

total: Counter[str] = Counter()
entries: set[str] = set()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if 0 < SCENES < len(items):
        dice = Random(config.getoption("--seed"))
        kept = {items[number] for number in dice.sample(range(len(items)), SCENES)}
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = [item for item in items if item in kept]


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    dice = Random(f"{item.config.getoption('--seed')} {item.nodeid}")
    reports, death = _played(item, Death())
    differences: list[str] = []
    forges = getattr(item, "originalname", None) in getattr(item.module, "FORGING", ())
    if all(report.passed for report in reports) and not forges:
        for at, point in _points(death.writes, dice):
            _, death = _played(item, Death(at, point, Random(dice.random()), unrecorded=_writes_runs(item)))
            differences += death.differences
            total.update(kills=death.store is not None, replays=death.replayed)
            total.update(reason.partition(": ")[2] for reason in death.skipped)
            entries.update(kind.__name__ for kind in death.entries)
    for report in reports:
        if report.when == "call" and differences:
            report.outcome, report.longrepr = "failed", "\n".join(differences)
    item.session._setupstate.teardown_exact(nextitem)
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _writes_runs(item: Any) -> bool:
    """Whether the module of a test writes runs without a runtime, and so without a record."""
    return hasattr(item.module, "Author")


def _played(item: Any, death: Death) -> tuple[list[pytest.TestReport], Death]:
    item._initrequest()
    runs.opener = death.open
    body = item.obj
    try:
        return runtestprotocol(item, log=False, nextitem=item.parent), death
    finally:
        item.obj = body  # pytest-trio wraps the body for one run


def _points(writes: int, dice: Random) -> Iterator[tuple[int, Any]]:
    for at in dice.sample(range(1, writes + 1), min(KILLS or writes, writes)):
        yield at, dice.choice(POINTS)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    said = ", ".join(f"{number} {what}" for what, number in total.items())
    terminalreporter.write_line(f"killed scenes: {said or 'none'}")
    terminalreporter.write_line(f"recorded: {' '.join(sorted(entries))}")
