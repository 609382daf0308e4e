"""Tools for tests: models that play a script or call a function, a service that fails as services do, and clocks."""

from typing import TYPE_CHECKING, Any

from greenroom.supervision.public import publish

from ..services.clock import Clock as Clock
from .auto import AutoModel as AutoModel
from .backend_kit import check_backend as check_backend
from .clocks import FakeWall as FakeWall
from .crash_points import crash_points as crash_points
from .fault_server import FaultReply as FaultReply
from .fault_server import FaultServer as FaultServer
from .fault_server import ReceivedRequest as ReceivedRequest
from .fault_server import open_fault_server as open_fault_server
from .fault_server import reply as reply
from .leaks import leak_check as leak_check
from .models import FunctionModel as FunctionModel
from .models import ScriptedModel as ScriptedModel
from .models import Step as Step
from .models import call as call
from .models import delay as delay
from .models import fail as fail
from .models import finish as finish
from .models import malformed as malformed
from .models import refuse as refuse
from .models import text as text
from .models import think as think
from .offline import Offline as Offline
from .offline import OfflineError as OfflineError
from .recorded import RecordedModel as RecordedModel
from .recorded import recorded as recorded
from .schema_values import UnsupportedSchema as UnsupportedSchema
from .toolset_kit import FakeToolset as FakeToolset
from .toolset_kit import check_toolset as check_toolset

__all__ = [
    "AutoModel",
    "Clock",
    "FakeToolset",
    "FakeWall",
    "FaultReply",
    "FaultServer",
    "FunctionModel",
    "Offline",
    "OfflineError",
    "ReceivedRequest",
    "RecordedModel",
    "ScriptedModel",
    "Step",
    "UnsupportedSchema",
    "call",
    "check_backend",
    "check_toolset",
    "crash_points",
    "delay",
    "fail",
    "finish",
    "leak_check",
    "malformed",
    "open_fault_server",
    "recorded",
    "refuse",
    "reply",
    "text",
    "think",
]

publish("greenroom.testing", globals(), __all__)

if TYPE_CHECKING:
    from .dialect_kit import check_dialect as check_dialect
    from .store_kit.kit import SHARED_SCENARIOS as SHARED_SCENARIOS
    from .store_kit.kit import STORE_SCENARIOS as STORE_SCENARIOS
    from .store_kit.kit import OpenStore as OpenStore
    from .store_kit.kit import Scenario as Scenario
    from .store_kit.kit import Steering as Steering
    from .store_kit.kit import check_store as check_store

_STORE_KIT = ("SHARED_SCENARIOS", "STORE_SCENARIOS", "OpenStore", "Scenario", "Steering", "check_store")
"""For authors of stores; loaded on demand, because the scenarios are large and tests of agents need none of them."""


def __getattr__(name: str) -> Any:
    if name == "check_dialect":  # for authors of dialects, and loaded on demand, too
        from .dialect_kit import check_dialect  # noqa: PLC0415 - see above

        return check_dialect
    if name not in _STORE_KIT:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .store_kit import kit as store_kit  # noqa: PLC0415 - see above

    return getattr(store_kit, name)
