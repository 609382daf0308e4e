"""Models for tests and the conformance kits: `greenroom.actors.testing` under its short name."""

from greenroom.actors.testing import Clock as Clock
from greenroom.actors.testing import FakeWall as FakeWall
from greenroom.actors.testing import FaultReply as FaultReply
from greenroom.actors.testing import FaultServer as FaultServer
from greenroom.actors.testing import FunctionModel as FunctionModel
from greenroom.actors.testing import ReceivedRequest as ReceivedRequest
from greenroom.actors.testing import ScriptedModel as ScriptedModel
from greenroom.actors.testing import Step as Step
from greenroom.actors.testing import call as call
from greenroom.actors.testing import delay as delay
from greenroom.actors.testing import fail as fail
from greenroom.actors.testing import finish as finish
from greenroom.actors.testing import malformed as malformed
from greenroom.actors.testing import open_fault_server as open_fault_server
from greenroom.actors.testing import refuse as refuse
from greenroom.actors.testing import reply as reply
from greenroom.actors.testing import text as text
from greenroom.actors.testing import think as think

__all__ = [
    "Clock",
    "FakeWall",
    "FaultReply",
    "FaultServer",
    "FunctionModel",
    "ReceivedRequest",
    "ScriptedModel",
    "Step",
    "call",
    "delay",
    "fail",
    "finish",
    "malformed",
    "open_fault_server",
    "refuse",
    "reply",
    "text",
    "think",
]
