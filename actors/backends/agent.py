"""`agent`: an agent whose work a backend does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal, TypedDict, Unpack

import attrs

from ..agents.agent import Agent
from ..agents.options import Instructs
from ..contract.decisions import Decision, Ticket
from ..contract.plain import JSONObject
from ..contract.stop import StopCondition
from ..errors import AgentDefinitionError
from ..permission.plugin import Permission
from ..permission.rules import Rule
from ..plugins.guardrails import InputGuardrail, OutputGuardrail
from ..plugins.plugin import Plugin
from ..state.keys import StateKey
from ..workspaces.tools.changes import apply_end, change_tools
from .backend import Backend
from .driver import APPLY, Driver
from .programs import SESSION

_REFUSED: Final = {
    "model": "the backend answers",
    "tools": "the backend has its own tools",
    "toolsets": "the backend has its own tools",
    "handoffs": "a backend hands no run over; let another agent hand over to this one",
    "tool_choice": "the driver chooses",
    "tool_use": "the driver answers after a tool",
}
"""Option of `Agent` -> why an agent of a backend does not take it."""


class BackendAgentOptions(TypedDict, total=False):
    """The options of `Agent` that an agent of a backend takes, documented there."""

    instructions: str | Instructs[Any]
    stop: Iterable[StopCondition]
    output_type: type[Any] | JSONObject
    output_retries: int
    on_deny: Literal["continue", "cancel_run"]
    denial: Callable[[Ticket, Decision], str] | None
    on_new_input: Literal["queue", "supersede"]
    description: str
    plugins: Iterable[Plugin]
    state: Iterable[StateKey[Any]]
    input_guardrails: Iterable[InputGuardrail[Any, Any]]
    output_guardrails: Iterable[OutputGuardrail[Any, Any, Any]]
    deps_type: type[Any] | None


def agent(
    key: str, backend: Backend, *, rules: Sequence[Rule] | None = None, **options: Unpack[BackendAgentOptions]
) -> Agent[Any]:
    """Return an agent whose work a backend does: an ordinary `Agent`, with a tool of the backend and a `Permission`.

    Each call of a program that asks is a nested call, which the rules judge. A denial without a text ends the run
    (`on_deny="cancel_run"`), one with a text goes on: the program reads the text.

    Args:
        key: The agent's key.
        backend: What does the work, such as `gr.backends.Claude()`.
        rules: The rules of the agent. None: the defaults, or those of a `Permission` among the plugins.
        options: As of `Agent`, but those which the backend itself decides, such as model and tools.

    Raises:
        AgentDefinitionError: an option is one of those, or invalid; or there are rules and a `Permission`.
        UsageError: a rule is invalid.
    """
    settings: dict[str, Any] = {"on_deny": "cancel_run", **options}
    for name, why in _REFUSED.items():
        if name in settings:
            raise AgentDefinitionError(f"agent({key!r}, {name}=...): {why}; leave {name}= out")
    plugins = (*settings.pop("plugins", ()),)
    if not any(isinstance(plugin, Permission) for plugin in plugins):
        plugins = (Permission(rules, root=getattr(backend, "folder", None)), *plugins)
    elif rules is not None:
        raise AgentDefinitionError(f"agent({key!r}, rules=...): plugins= has a Permission; give the rules to that one")
    tool = attrs.evolve(backend.tool(), prepare=backend.prepare)
    tools, read = [tool], None
    if backend.proposes:
        apply = next(one for one in change_tools() if one.name == APPLY)
        tools, read = [tool, attrs.evolve(apply, on_error="raise")], apply_end
    state = (SESSION, *settings.pop("state", ()))
    return Agent(key, model=Driver(backend, tool.name, read), tools=tools, plugins=plugins, state=state, **settings)
