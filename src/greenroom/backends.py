"""Backends: coding agents and other programs that do the work of an agent, each of whose calls is asked about here.

coder = gr.backends.agent("coder", gr.backends.Claude(folder="/srv/checkout"), rules=[...])
"""

from greenroom.actors.backends.agent import agent as agent
from greenroom.actors.backends.backend import Backend as Backend
from greenroom.actors.backends.dialect import Dialect as Dialect
from greenroom.actors.backends.presets import Acp as Acp
from greenroom.actors.backends.presets import Claude as Claude
from greenroom.actors.backends.presets import Codex as Codex
from greenroom.actors.backends.presets import GeminiCLI as GeminiCLI
from greenroom.actors.backends.presets import OpenCode as OpenCode
from greenroom.actors.backends.presets import Plain as Plain
from greenroom.actors.backends.programs import Program as Program
from greenroom.supervision.public import publish as _publish

__all__ = ["Acp", "Backend", "Claude", "Codex", "Dialect", "GeminiCLI", "OpenCode", "Plain", "Program", "agent"]

_publish(__name__, globals(), __all__)
