"""Fixtures of the lifecycle suite: scenes are played on each kind of store, in each mode of execution.

A rule that holds in some of the modes only says so: `@pytest.mark.parametrize("mode", ["sequential"])`.
"""

from pathlib import Path
from typing import Any, TypeVar

import pytest
import trio
from trio.testing import MockClock

from greenroom.actors.contract.spec import MODES, ExecutionMode

from ..support.elsewhere import play_elsewhere
from ..support.paced_clock import PACE, PacedClock
from ..support.recording_stores import WatchedShelf
from ..support.runs import KINDS, LIVE, PEERS, SERVED, Shelf
from ..support.scenes import OWN, Play

T = TypeVar("T", bound=Shelf)

MEASURING = ("test_lifecycle_expiry", "test_lifecycle_pauses", "test_lifecycle_stops")
"""Modules of the lifecycle suite whose scenes measure time."""
SHARED = tuple(
    f"test_lifecycle_{subject}"
    for subject in ("cancel", "decisions", "nested", "outcome_unknown", "preparing", "recovery", "run")
)
"""Modules of the lifecycle suite that are also played by a process among others.

Left out are scenes about what differs there: runs that wait for room have no owner, processes look for work when they
wait, and a parent run with mirrors stays in memory.
"""
_INSTANT = "two things come in the same moment, to the millisecond"
_STEPS = "it counts the steps of all tasks, and a store among others takes its turns"
NOT_LIVE = {
    "test_from_its_time_on_a_decision_is_too_late": _INSTANT,
    "test_a_limit_that_is_reached_and_not_passed_does_not_stop": _INSTANT,
    "test_a_task_that_was_being_cancelled_when_the_process_ended_may_have_taken_effect": _INSTANT,
    "test_a_task_that_overran_its_grace_may_take_effect_later": _INSTANT,
    "test_a_run_that_waits_does_nothing": _STEPS,
    "test_a_run_that_waits_on_after_an_expiry_does_nothing": _STEPS,
}
"""Scenes that real time cannot play, and why; each is played in virtual time, also on shared stores."""


@pytest.fixture(params=[*MODES, "own"])
def mode(request: pytest.FixtureRequest) -> str | ExecutionMode:
    """A mode of execution: one that has a name, or one of the program's own."""
    return OWN if request.param == "own" else str(request.param)


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each scene its kinds of stores; the lifecycle suite and the sizes are also played on PostgreSQL, twice.

    Under virtual time, scenes that measure time to the millisecond, or count the steps of an idle runtime, are not: a
    process among others takes a turn every few seconds, and claims what a timer has woken after a drawn pause. In real
    time (`LIVE`) all are that need no virtual time (`NOT_LIVE`).
    """
    kinds: tuple[str, ...] = KINDS
    if "test_lifecycle_" in metafunc.module.__name__ or metafunc.module.__name__.endswith("test_sizes"):
        kinds += () if metafunc.module.__name__.endswith(MEASURING) else (SERVED,)
        kinds += () if metafunc.function.__name__ in NOT_LIVE else (LIVE,)
        kinds += (PEERS,) if metafunc.module.__name__.endswith(SHARED) else ()
    for name in ("shelf", "watched"):
        if name in metafunc.fixturenames and not hasattr(metafunc.module, name):
            metafunc.parametrize(name, kinds, indirect=True)


@pytest.fixture(params=["owner", "edge"])
def gateways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gateways of the process that has the agents, and of one on the same store that has none."""
    if request.param == "edge":
        play_elsewhere(request, monkeypatch)


@pytest.fixture
def autojump_clock(request: pytest.FixtureRequest) -> trio.abc.Clock:
    """Virtual time, or real time for a scene that is played live; the mark pace(...) says how fast that is."""
    call = getattr(request.node, "callspec", None)
    if call is None or LIVE not in call.params.values():
        return MockClock(autojump_threshold=0)
    mark = request.node.get_closest_marker("pace")
    return PacedClock(PACE if mark is None else mark.args[0])


@pytest.fixture
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Shelf:
    """A place for runs that outlives the runtimes that are opened on it."""
    return placed(Shelf(request.param, tmp_path), request)


def placed(shelf: T, request: pytest.FixtureRequest) -> T:
    """Give a shelf its tables, if its kind has a server."""
    if shelf.kind in (SERVED, LIVE):
        shelf.url = str(request.getfixturevalue("postgres_tables"))
    return shelf


@pytest.fixture
def watched(request: pytest.FixtureRequest, folder: Path) -> WatchedShelf:
    """A place of storage that notes all commits."""
    return placed(WatchedShelf(request.param, folder), request)


@pytest.fixture
def play(watched: WatchedShelf, mode: Any) -> Play:
    """Plays scenes, in virtual time: who plays takes `autojump_clock`, too."""
    return Play(watched, mode)
