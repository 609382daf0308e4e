"""Checks of an agent's parts. Each raises AgentDefinitionError; `where` is the agent, as the message names it."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, get_args

import attrs

from greenroom.supervision.fields import did_you_mean

from ..contract.ids import content_digest
from ..contract.sizes import VALUE_LIMIT, too_large
from ..contract.stop import StopCondition, StopOnTool
from ..errors import AgentDefinitionError
from ..tools.background import built_in
from ..tools.definition import Tool
from ..tools.toolset import Toolset
from .handoff import Handoff, fault_of


def _fault(where: str, what: str) -> AgentDefinitionError:
    return AgentDefinitionError(f"{where}: {what}")


def check_text(where: str, name: str, value: object, way: str) -> None:
    """Check that a part is a text."""
    if not isinstance(value, str):
        raise _fault(where, f"{name}={value!r}: {way}")
    if len(value) > VALUE_LIMIT:
        raise _fault(where, f"{name} is too large: {too_large(len(value))}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise _fault(where, f"{name} has bytes that are not text: {error}; decode it with errors='replace'") from error


def instructs(value: object) -> bool:
    """Return True for a function that may return instructions."""
    return (
        callable(value)
        and not isinstance(value, str | type | Tool)
        and not inspect.isgeneratorfunction(value)
        and not inspect.isasyncgenfunction(value)
        and _takes(value, None)
    )


def check_denial(where: str, denial: object) -> None:
    """Check the function of the texts about denied calls."""
    if denial is not None and (
        not callable(denial) or inspect.iscoroutinefunction(denial) or not _takes(denial, None, None)
    ):
        raise _fault(where, f"denial={denial!r}: give a function, (ticket, decision) -> str, that does not await")


def _takes(function: Callable[..., Any], *arguments: object) -> bool:
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        return False
    except ValueError:  # a builtin without a signature: accepted
        pass
    return True


def check_settings(where: str, settings: object) -> None:
    """Check that the settings of the model are plain JSON data."""
    if not isinstance(settings, Mapping):
        raise _fault(where, f"settings={settings!r}: give a dict")
    try:
        content_digest(settings)
    except (TypeError, ValueError) as error:
        raise _fault(where, f"settings={settings!r}: give plain JSON data ({error})") from error


def tool_name(where: str, name: object) -> str:
    """Return the name of a tool as it was given."""
    if not isinstance(name, str):
        raise _fault(where, f"tool({name!r:.100}): decorate with @gr.tool, and give tools=[...]")
    return name


def check_tools(where: str, tools: object, handoffs: Sequence[Handoff]) -> None:
    """Check the tools and handoffs, and that the tools that are built in have different names."""
    if not isinstance(tools, tuple):
        raise _fault(where, f"tools={tools!r}: give a list of tools")
    names: set[str] = set()
    for tool in tools:
        if not isinstance(tool, Tool):
            way = "decorate it with @gr.tool" if callable(tool) else "give functions decorated with @gr.tool"
            raise _fault(where, f"{getattr(tool, '__name__', tool)!r} is not a tool; {way}")
        if isinstance(tool, Handoff):
            raise _fault(where, f"{tool!r} is a handoff; give it in handoffs=[...]")
        if tool.name in names:
            raise _fault(where, f"two tools are named {tool.name!r}; rename one with @gr.tool(name=...)")
        names.add(tool.name)
    wrong = fault_of(handoffs, names)
    if wrong is not None:
        raise _fault(where, wrong)
    for tool in built_in(tools):
        if tool.name in names:
            raise _fault(
                where,
                f"a tool is named {tool.name!r}, which agents with background tools have built in; rename yours with "
                "@gr.tool(name=...)",
            )


def check_needed_plugins(where: str, tools: Iterable[Tool[..., object]], plugins: Iterable[str]) -> None:
    """Check that the agent has the plugins without which no agent may have its tools."""
    for tool in tools:
        if tool.plugin is not None and tool.plugin not in plugins:
            way = "add an instance of it to plugins=[...]"
            raise _fault(where, f"the tool {tool.name!r} acts only under the plugin {tool.plugin!r}; {way}")


_TOOLSET_NAME: Final = re.compile("[a-z][a-z0-9_-]{0,31}")


def check_toolsets(where: str, toolsets: object) -> None:
    """Check the toolsets."""
    if not isinstance(toolsets, tuple):
        raise _fault(where, f"toolsets={toolsets!r}: give a list of toolsets")
    names: set[str] = set()
    for toolset in toolsets:
        if not isinstance(toolset, Toolset):
            raise _fault(where, f"toolsets: {toolset!r:.200} is no toolset; derive its class from gr.Toolset")
        name = getattr(toolset, "name", None)
        if not isinstance(name, str) or not _TOOLSET_NAME.fullmatch(name):
            raise _fault(where, f"toolset name {name!r:.200}: a letter of a-z, then up to 31 of a-z 0-9 _ and -")
        if name in names:
            raise _fault(where, f"two toolsets are named {name!r}; rename one")
        names.add(name)
        if toolset.on_unavailable not in ("skip", "fail"):
            near = f"toolset {name!r}: on_unavailable={toolset.on_unavailable!r:.200}"
            raise _fault(where, f"{near}: use 'skip' or 'fail'")
        if toolset.scope not in ("runtime", "run"):
            raise _fault(where, f"toolset {name!r}: scope={toolset.scope!r:.200}: use 'runtime' or 'run'")


def check_use(where: str, use: object, tools: Sequence[Tool[..., object]], *, offers: bool) -> None:
    """Check the rule about the results of tools. `offers`: toolsets may offer tools with other names."""
    if isinstance(use, frozenset):
        _check_names(where, sorted(use), "tool_use", tools, offers=offers)
    elif callable(use):
        if inspect.iscoroutinefunction(use) or not _takes(use, ()):
            raise _fault(where, f"tool_use={use!r}: give a function, (results) -> gr.FinalOutput | None, not async")
    elif use not in ("run_model_again", "stop_on_first_tool"):
        raise _fault(
            where,
            f"tool_use={use!r}: use 'run_model_again', 'stop_on_first_tool', gr.stop_at_tools('name', ...), or a "
            "function of the results",
        )


def check_choice(
    where: str, choice: object, reset: object, tools: Sequence[Tool[..., object]], *, offers: bool
) -> None:
    """Check the choice of tools that the model is asked for; `tools` are the tools and handoffs."""
    if not isinstance(choice, str):
        raise _fault(where, f"tool_choice={choice!r}: use 'auto', 'required', 'none', or the name of a tool")
    if choice not in ("auto", "required", "none"):
        _check_names(where, [choice], "tool_choice", tools, offers=offers)
    if choice == "required" and not tools and not offers:
        raise _fault(where, "tool_choice='required': the agent has no tool to call")
    if not isinstance(reset, bool):
        raise _fault(where, f"reset_tool_choice={reset!r}: use True or False")


def _check_names(
    where: str, names: Sequence[str], part: str, tools: Sequence[Tool[..., object]], *, offers: bool
) -> None:
    if offers:
        return
    tool_names = [tool.name for tool in tools]
    for name in names:
        if name not in tool_names:
            near = did_you_mean(name, tool_names)
            names_known = ", ".join(tool_names) or "none"
            raise _fault(where, f"{part} names the tool {name!r:.200}; {near}the tools are: {names_known}")


def check_stop(where: str, stop: object, tools: Sequence[Tool[..., object]], *, offers: bool) -> None:
    """Check the stop conditions."""
    if not isinstance(stop, tuple):
        raise _fault(where, f"stop={stop!r}: give a list of conditions, such as [gr.stop.MaxRounds(8)]")
    for condition in stop:
        if not isinstance(condition, get_args(StopCondition)):
            raise _fault(
                where, f"stop: {condition!r} is not a stop condition; make one with gr.stop, as gr.stop.MaxRounds(8)"
            )
        if isinstance(condition, StopOnTool):
            _check_names(where, [condition.name], "stop", tools, offers=offers)
            continue
        for name, value in attrs.asdict(condition).items():
            if name != "pattern" and value is not None and not _is_limit(value, whole=name != "seconds"):
                raise _fault(where, f"stop: {condition!r}: {name} is a number, 0 or more; 0 or None switches it off")


def _is_limit(value: object, *, whole: bool) -> bool:
    kinds = int if whole else (int, float)
    finite = isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
    return finite and isinstance(value, kinds) and not isinstance(value, bool) and value >= 0
