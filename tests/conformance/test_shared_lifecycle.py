"""The lifecycle of a run on a shared store: the same scenes, and the process is one of many.

Left out are scenes about what differs there: runs that wait for room have no owner, processes look for work when they
wait, and a parent run with mirrors stays in memory.
"""

from pathlib import Path

import pytest

from ..support.recording_stores import WatchedShelf
from ..support.runs import Shelf
from .test_lifecycle_cancel import *  # noqa: F403 - its tests
from .test_lifecycle_decisions import *  # noqa: F403 - its tests
from .test_lifecycle_outcome_unknown import *  # noqa: F403 - its tests
from .test_lifecycle_recovery import *  # noqa: F403 - its tests
from .test_lifecycle_run import *  # noqa: F403 - its tests


@pytest.fixture(params=["peers"])
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Shelf:
    """Storage that several processes may have open."""
    return Shelf(request.param, tmp_path)


@pytest.fixture(params=["peers"])
def watched(request: pytest.FixtureRequest, tmp_path: Path) -> WatchedShelf:
    """The same, and all commits are noted."""
    return WatchedShelf(request.param, tmp_path)
