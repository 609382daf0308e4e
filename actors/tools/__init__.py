"""Tools: from a typed function to a call that a model makes and a person can decide about."""

from .arguments import ArgumentsError as ArgumentsError
from .context import SyncToolContext as SyncToolContext
from .context import ToolContext as ToolContext
from .definition import EFFECTS as EFFECTS
from .definition import Tool as Tool
from .definition import tool as tool
from .invoke import Invocation as Invocation
from .invoke import ToolFailed as ToolFailed
from .invoke import invoke as invoke
