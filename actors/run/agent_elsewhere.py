"""An agent that other processes have: as much of it as a start needs, in the text that processes publish.

Theory of operation. A run is created with its agent's key, digest and execution mode. A process without the agent has
no `Agent`, so each process publishes these facts with its agents (`Store.publish`): the digest, and behind a blank the
mode as JSON, unless it is the default.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec
from cattrs import BaseValidationError

from ..agent import Agent
from ..contract.converters import converter
from ..contract.spec import AgentSpec, Execution, execution_data

_DEFAULT = AgentSpec(key="").execution


def published(agent: Agent[object]) -> str:
    """Return what a process publishes of an agent."""
    digest, execution = agent.spec.digest, agent.execution
    return digest if execution == _DEFAULT else f"{digest} {msgspec.json.encode(execution_data(execution)).decode()}"


def agent_elsewhere(key: str, text: str) -> AgentSpec:
    """Return an agent as published by another process: key, digest and execution mode.

    A mode that only a newer release has counts as the default.
    """
    digest, _, mode = text.partition(" ")
    execution: Execution = _DEFAULT
    if mode:
        with suppress(BaseValidationError, msgspec.DecodeError, LookupError, ValueError, TypeError):
            execution = converter.structure(msgspec.json.decode(mode), Execution)  # type: ignore[arg-type]
    return AgentSpec(key=key, digest=digest, execution=execution)
