"""Check that the functions of an agent name dependencies that the agent's `deps_type` provides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import get_origin

from ..contract.phases import Phase
from ..plugins.guardrails import Guardrail
from ..plugins.plugin import Plugin, has_hook, name_of
from ..tools.definition import Tool
from ..tools.named_deps import ANY, named_deps, provides
from .handoff import Handoff


def misfit(
    deps_type: object,
    instructions: object,
    tools: Iterable[Tool[..., object]],
    plugins: Iterable[Plugin],
    guardrails: Iterable[Guardrail],
) -> str | None:
    """Return what is wrong with `deps_type`, or with the first function whose dependencies it does not provide."""
    if not isinstance(get_origin(deps_type) or deps_type, type):
        return "give a class"
    for what, annotation in _named(instructions, tools, plugins, guardrails):
        if not provides(deps_type, annotation):
            return f"{what} takes dependencies of type {_shown(annotation)}"
    return None


def _named(
    instructions: object, tools: Iterable[Tool[..., object]], plugins: Iterable[Plugin], guardrails: Iterable[Guardrail]
) -> Iterator[tuple[str, object]]:
    """Yield each function and the dependencies that it names."""
    for tool in tools:
        if isinstance(tool, Handoff) and not isinstance(tool.agent, str):  # the run keeps its dependencies
            yield f"the agent {tool.key!r} of a handoff", tool.agent.deps_type or ANY
        yield f"the tool {tool.name!r}", tool.deps_type
        for option in ("needs_approval", "is_enabled"):
            yield f"{option} of the tool {tool.name!r}", named_deps(getattr(tool, option))
        for guardrail in (*tool.input_guardrails, *tool.output_guardrails):
            yield f"the guardrail {guardrail.name!r} of the tool {tool.name!r}", named_deps(guardrail.function)
    yield "the function of the instructions", named_deps(instructions)
    for guardrail in guardrails:
        yield f"the guardrail {guardrail.name!r}", named_deps(guardrail.function)
    for plugin in plugins:
        for phase in Phase:
            if has_hook(plugin, phase):
                yield f"the plugin {name_of(plugin)!r} in {phase.value}", named_deps(getattr(plugin, phase.value))


def _shown(annotation: object) -> str:
    return str(getattr(annotation, "__qualname__", annotation))
