"""`agent`: an agent whose work a backend does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ..agents.agent import Agent
from ..errors import AgentDefinitionError
from ..permission.plugin import Permission
from ..permission.rules import Rule
from .backend import Backend
from .driver import Driver

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
    root = getattr(backend, "folder", None)
    plugins = (Permission(rules, root=root), *options.pop("plugins", ()))
    driver = Driver(backend, tool.name)
    return Agent(key, model=driver, tools=(tool,), plugins=plugins, **{"on_deny": "cancel_run", **options})
