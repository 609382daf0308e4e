"""Models for tests and the conformance kits: `greenroom.actors.testing` under its short name."""

from greenroom.actors.testing import AutoModel as AutoModel
from greenroom.actors.testing import Clock as Clock
from greenroom.actors.testing import FakeToolset as FakeToolset
from greenroom.actors.testing import FakeWall as FakeWall
from greenroom.actors.testing import Offline as Offline
from greenroom.actors.testing import OfflineError as OfflineError
from greenroom.actors.testing import crash_points as crash_points
from greenroom.actors.testing import leak_check as leak_check
from greenroom.actors.testing import FaultReply as FaultReply
from greenroom.actors.testing import FaultServer as FaultServer
from greenroom.actors.testing import FunctionModel as FunctionModel
from greenroom.actors.testing import ReceivedRequest as ReceivedRequest
from greenroom.actors.testing import RecordedModel as RecordedModel
from greenroom.actors.testing import ScriptedModel as ScriptedModel
from greenroom.actors.testing import Step as Step
from greenroom.actors.testing import UnsupportedSchema as UnsupportedSchema
from greenroom.actors.testing import call as call
from greenroom.actors.testing import check_backend as check_backend
from greenroom.actors.testing import check_toolset as check_toolset
from greenroom.actors.testing import delay as delay
from greenroom.actors.testing import fail as fail
from greenroom.actors.testing import finish as finish
from greenroom.actors.testing import malformed as malformed
from greenroom.actors.testing import open_fault_server as open_fault_server
from greenroom.actors.testing import recorded as recorded
from greenroom.actors.testing import refuse as refuse
from greenroom.actors.testing import reply as reply
from greenroom.actors.testing import text as text
from greenroom.actors.testing import think as think

__all__ = [
    "leak_check",
    "crash_points",
    "OfflineError",
    "Offline",
    "AutoModel",
    "Clock",
    "FakeToolset",
    "FakeWall",
    "FaultReply",
    "FaultServer",
    "FunctionModel",
    "ReceivedRequest",
    "RecordedModel",
    "ScriptedModel",
    "Step",
    "UnsupportedSchema",
    "call",
    "check_backend",
    "check_toolset",
    "delay",
    "fail",
    "finish",
    "malformed",
    "open_fault_server",
    "recorded",
    "refuse",
    "reply",
    "text",
    "think",
]
