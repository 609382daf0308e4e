"""Tools for tests: models that play a script or call a function, a service that fails as services do, and clocks."""

from greenroom.supervision.public import publish

from ..run.clock import Clock as Clock
from .clocks import FakeWall as FakeWall
from .fault_server import FaultReply as FaultReply
from .fault_server import FaultServer as FaultServer
from .fault_server import ReceivedRequest as ReceivedRequest
from .fault_server import open_fault_server as open_fault_server
from .fault_server import reply as reply
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

publish("greenroom.testing", globals(), __all__)
