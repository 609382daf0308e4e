"""Pytest fixtures for tests of agents; pytest loads this module where Greenroom is installed.

The module is outside of the package, and imports nothing of it before a test asks for a fixture: the tests of other
projects in the same environment pay for nothing. `docs/testing.md` shows each fixture.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from trio.testing import MockClock

    from greenroom import Runtime
    from greenroom.testing import FaultServer, Offline

_CLOCKS = ("greenroom_clock", "autojump_clock", "mock_clock")


def pytest_configure(config: pytest.Config) -> None:
    """Called by pytest."""
    line = "greenroom_runtime(**options): options of open_runtime for the fixture greenroom_runtime, such as agents=[...]"
    config.addinivalue_line("markers", line)


@pytest.fixture
def greenroom_clock() -> MockClock:
    """Virtual time: the clock jumps whenever every task waits. Name the fixture as an argument of the test itself."""
    from trio.testing import MockClock

    return MockClock(autojump_threshold=0)


@pytest.fixture
async def greenroom_runtime(request: pytest.FixtureRequest) -> AsyncIterator[Runtime]:
    """A runtime on a store in memory, with the options of the marker `greenroom_runtime`; needs a trio test."""
    from greenroom import open_runtime

    options: dict[str, Any] = {"drain": 0.0}
    for marker in reversed(list(request.node.iter_markers("greenroom_runtime"))):
        if marker.args:
            raise pytest.UsageError(f"the marker greenroom_runtime takes options of open_runtime, not {marker.args}")
        options |= marker.kwargs
    async with open_runtime(**options) as runtime:
        yield runtime


@pytest.fixture
def greenroom_offline() -> Iterator[Offline]:
    """Refuse connections to other machines; the test fails if one was tried, also if its code has hidden the error."""
    from greenroom.actors.testing.offline import refuse_connections

    with refuse_connections() as offline:
        yield offline
    if offline.attempts:
        pytest.fail("\n".join(["this test is offline, and its code asked for", *offline.attempts]), pytrace=False)


@pytest.fixture
async def greenroom_faults(request: pytest.FixtureRequest) -> AsyncIterator[FaultServer]:
    """A model service on loopback; append its answers to `replies`. Needs a trio test in real time."""
    from greenroom.testing import open_fault_server

    virtual = next((name for name in _CLOCKS if name in request.fixturenames), None)
    if virtual is not None:
        raise pytest.UsageError(f"greenroom_faults has real sockets, and does not fit the virtual time of {virtual}")
    async with open_fault_server() as server:
        yield server
