"""`agent`: an agent whose work a backend does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import attrs

from ..agents.agent import Agent
from ..errors import AgentDefinitionError
from ..permission.plugin import Permission
from ..permission.rules import Rule
from ..workspaces.tools.changes import apply_end, change_tools
from .backend import Backend
from .driver import APPLY, Driver
from .programs import SESSION

_REFUSED: Final = {
    "model": "the backend answers",
    "tools": "the program has its own tools",
    "handoffs": "a program hands no run over; let another agent hand over to this one",
    "tool_choice": "the driver chooses",
    "tool_use": "the driver answers after a tool",
}
"""Option of `Agent` -> why an agent of a backend does not take it."""


def agent(key: str, backend: Backend, *, rules: Sequence[Rule] | None = None, **options: Any) -> Agent[Any]:
    """Return an agent whose work a backend does: an ordinary `Agent`, with a tool of the backend and a `Permission`.

    Each call of a program that asks is a nested call, which the rules judge. A denial without a text ends the run
    (`on_deny="cancel_run"`), one with a text goes on: the program reads the text.

    Args:
        key: The agent's key.
        backend: What does the work, such as `gr.backends.Claude()`.
        rules: The rules of the agent.
        options: As of `Agent`, but those which the backend itself decides: model, tools, handoffs, tool_choice,
            tool_use.

    Raises:
        AgentDefinitionError: an option is one of those, or invalid.
        UsageError: a rule is invalid.
    """
    for name, why in _REFUSED.items():
        if name in options:
            raise AgentDefinitionError(f"agent({key!r}, {name}=...): {why}; leave {name}= out")
    tool = backend.tool()
    tools, read = [tool], None
    if backend.proposes:
        apply = next(one for one in change_tools() if one.name == APPLY)
        tools, read = [tool, attrs.evolve(apply, on_error="raise")], apply_end
    permission = Permission(rules, root=getattr(backend, "folder", None))
    return Agent(
        key,
        model=Driver(backend, tool.name, read),
        tools=tools,
        plugins=(permission, *options.pop("plugins", ())),
        state=(SESSION, *options.pop("state", ())),
        **{"on_deny": "cancel_run", **options},
    )
