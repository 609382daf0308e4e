"""Tools for tests: models that play a script or call a function, and clocks."""

from greenroom.supervision.public import publish

from ..run.clock import Clock as Clock
from .clocks import FakeWall as FakeWall
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

publish("greenroom.testing", globals(), __all__)
