"""Models for tests and the conformance kits: `greenroom.actors.testing` under its short name."""

from greenroom.actors.testing import FunctionModel as FunctionModel
from greenroom.actors.testing import ScriptedModel as ScriptedModel
from greenroom.actors.testing import Step as Step
from greenroom.actors.testing import call as call
from greenroom.actors.testing import delay as delay
from greenroom.actors.testing import fail as fail
from greenroom.actors.testing import refuse as refuse
from greenroom.actors.testing import text as text
from greenroom.actors.testing import think as think
