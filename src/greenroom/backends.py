"""Backends: coding agents and other programs that do the work of an agent, each of whose calls is asked about here.

coder = gr.backends.agent("coder", gr.backends.Claude(folder="/srv/checkout"), rules=[...])
"""

from greenroom.actors.backends.a2a import A2A as A2A
from greenroom.actors.backends import items as items
from greenroom.actors.backends.agent import agent as agent
from greenroom.actors.backends.backend import Backend as Backend
from greenroom.actors.backends.dialect import Declined as Declined
from greenroom.actors.backends.dialect import Dialect as Dialect
from greenroom.actors.backends.dialect import Granted as Granted
from greenroom.actors.backends.dialect import Launch as Launch
from greenroom.actors.backends.dialect import ProgramExit as ProgramExit
from greenroom.actors.backends.dialect import ProgramVerdict as ProgramVerdict
from greenroom.actors.backends.dialect import Prompt as Prompt
from greenroom.actors.backends.dialect import Supplied as Supplied
from greenroom.actors.backends.driver import new_parts as new_parts
from greenroom.actors.backends.presets import Acp as Acp
from greenroom.actors.backends.presets import Claude as Claude
from greenroom.actors.backends.presets import Codex as Codex
from greenroom.actors.backends.presets import GeminiCLI as GeminiCLI
from greenroom.actors.backends.presets import OpenCode as OpenCode
from greenroom.actors.backends.presets import Plain as Plain
from greenroom.actors.backends.programs import Program as Program
from greenroom.supervision.public import publish as _publish

__all__ = [
    "A2A",
    "Acp",
    "Backend",
    "Claude",
    "Codex",
    "Declined",
    "Dialect",
    "GeminiCLI",
    "Granted",
    "Launch",
    "OpenCode",
    "Plain",
    "Program",
    "ProgramExit",
    "ProgramVerdict",
    "Prompt",
    "Supplied",
    "agent",
    "items",
    "new_parts",
]

_publish(__name__, globals(), __all__)
