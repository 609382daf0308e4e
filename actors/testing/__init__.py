"""What tests are made with: models that play a script or ask a function."""

from greenroom.actors.testing.models import FunctionModel as FunctionModel
from greenroom.actors.testing.models import ScriptedModel as ScriptedModel
from greenroom.actors.testing.models import Step as Step
from greenroom.actors.testing.models import call as call
from greenroom.actors.testing.models import delay as delay
from greenroom.actors.testing.models import fail as fail
from greenroom.actors.testing.models import refuse as refuse
from greenroom.actors.testing.models import text as text
from greenroom.actors.testing.models import think as think
