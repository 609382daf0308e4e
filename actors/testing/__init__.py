"""What tests are made with: models that play a script or ask a function, and clocks."""

from greenroom.actors.run.clock import Clock as Clock
from greenroom.actors.testing.clocks import FakeWall as FakeWall
from greenroom.actors.testing.models import FunctionModel as FunctionModel
from greenroom.actors.testing.models import ScriptedModel as ScriptedModel
from greenroom.actors.testing.models import Step as Step
from greenroom.actors.testing.models import call as call
from greenroom.actors.testing.models import delay as delay
from greenroom.actors.testing.models import fail as fail
from greenroom.actors.testing.models import finish as finish
from greenroom.actors.testing.models import malformed as malformed
from greenroom.actors.testing.models import refuse as refuse
from greenroom.actors.testing.models import text as text
from greenroom.actors.testing.models import think as think

__all__ = [
    "Clock",
    "FakeWall",
    "FunctionModel",
    "ScriptedModel",
    "Step",
    "call",
    "delay",
    "fail",
    "finish",
    "malformed",
    "refuse",
    "text",
    "think",
]
