"""What WebSocket and REST do on the process that has the agent, they do on a gateway without agents: the same tests."""

import pytest

from ..support.elsewhere import play_elsewhere
from . import test_client, test_gateway
from .test_client import *  # noqa: F403 - its tests
from .test_gateway import *  # noqa: F403 - its tests

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def elsewhere(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    play_elsewhere(request, monkeypatch, test_gateway, test_client)
