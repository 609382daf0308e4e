"""The tool layer: from a typed function to a call that a model can make and a person can stop."""

from greenroom.actors.tools.arguments import ArgumentsError as ArgumentsError
from greenroom.actors.tools.context import SyncToolContext as SyncToolContext
from greenroom.actors.tools.context import ToolContext as ToolContext
from greenroom.actors.tools.definition import EFFECTS as EFFECTS
from greenroom.actors.tools.definition import Tool as Tool
from greenroom.actors.tools.definition import tool as tool
from greenroom.actors.tools.invoke import Invocation as Invocation
from greenroom.actors.tools.invoke import ToolFailed as ToolFailed
from greenroom.actors.tools.invoke import invoke as invoke
from greenroom.actors.tools.invoke import wants_approval as wants_approval
