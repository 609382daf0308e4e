"""Fixtures of the lifecycle suite: scenes are played on each kind of store, in each mode of execution.

A rule that holds in some of the modes only says so: `@pytest.mark.parametrize("mode", ["sequential"])`.
"""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from greenroom.actors.contract.spec import MODES

from ..support.recording_stores import WatchedShelf
from ..support.runs import KINDS, Shelf
from ..support.scenes import Play


@pytest.fixture(params=list(MODES))
def mode(request: pytest.FixtureRequest) -> str:
    """A mode of execution."""
    return str(request.param)


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
