"""Fixtures of the lifecycle suite: scenes are played on each kind of store, in each mode of execution.

A rule that holds in some of the modes only says so: `@pytest.mark.parametrize("mode", ["sequential"])`.
"""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from greenroom.actors.contract.spec import MODES, ExecutionMode

from ..support.recording_stores import WatchedShelf
from ..support.runs import KINDS, Shelf
from ..support.scenes import OWN, Play


@pytest.fixture(params=[*MODES, "own"])
def mode(request: pytest.FixtureRequest) -> str | ExecutionMode:
    """A mode of execution: one that has a name, or one of the program's own."""
    return OWN if request.param == "own" else str(request.param)


@pytest.fixture(params=KINDS)
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Shelf:
    """A place for runs that outlives the runtimes that are opened on it."""
    return Shelf(request.param, tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where files are made: in memory if there is such a place, for what is tested is not the disk."""
    shared = Path("/dev/shm")  # noqa: S108 - a fresh folder is made in it
    if not shared.is_dir():
        yield tmp_path
        return
    made = Path(tempfile.mkdtemp(prefix="greenroom-", dir=shared))
    yield made
    shutil.rmtree(made)


@pytest.fixture(params=KINDS)
def watched(request: pytest.FixtureRequest, folder: Path) -> WatchedShelf:
    """A place of storage that notes all commits."""
    return WatchedShelf(request.param, folder)


@pytest.fixture
def play(watched: WatchedShelf, mode: Any) -> Play:
    """Plays scenes, in virtual time: who plays takes `autojump_clock`, too."""
    return Play(watched, mode)
