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

from ..support.lives import Play
from ..support.runs import KINDS
from ..support.watched import WatchedShelf


@pytest.fixture(params=list(MODES))
def mode(request: pytest.FixtureRequest) -> str:
    """A mode of execution."""
    return str(request.param)


@pytest.fixture(params=KINDS)
def watched(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[WatchedShelf]:
    """A place of storage that notes all commits; files are made in memory where there is such a place."""
    shared = Path("/dev/shm")  # noqa: S108 - a fresh folder is made in it
    if request.param == "memory" or not shared.is_dir():
        yield WatchedShelf(request.param, tmp_path)
        return
    folder = Path(tempfile.mkdtemp(prefix="greenroom-", dir=shared))
    yield WatchedShelf(request.param, folder)
    shutil.rmtree(folder)


@pytest.fixture
def play(watched: WatchedShelf, mode: Any) -> Play:
    """Plays scenes, in virtual time: who plays takes `autojump_clock`, too."""
    return Play(watched, mode)
