"""What the chat protocols do on the process that has the agent, they do on a gateway without agents: the same tests."""

import pytest

from ..support.elsewhere import play_elsewhere
from . import test_gateway_ag_ui, test_gateway_ai_sdk
from .test_gateway_ag_ui import *  # noqa: F403 - its tests
from .test_gateway_ai_sdk import *  # noqa: F403 - its tests

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def elsewhere(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    play_elsewhere(request, monkeypatch, test_gateway_ag_ui, test_gateway_ai_sdk)
