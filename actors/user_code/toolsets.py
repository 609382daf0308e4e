"""Ask the toolsets of an agent for the tools of a step, and for the tool of one call.

Theory of operation. Toolsets are asked concurrently, after the before_inference hooks, each within `LIMIT`. A toolset
that fails has no tools in the step. A tool that takes no place in an agent (`misfit`) is a failure of its toolset, for
the code of the toolset is wrong; a description or schema beyond its limit is foreign text, so only that tool suffers.
Of two tools with one name the first counts: the agent's own, then those of the toolsets in the agent's order.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary

import attrs
import msgspec
import trio

from greenroom.supervision import Raised, Returned

from ..agents.agent import Agent
from ..agents.checks import check_needed_plugins
from ..agents.handoff import Handoff
from ..contract.messages import ToolInfo
from ..contract.rows import RunInfo
from ..contract.spec import OfferedTool
from ..engine.inputs import ToolsetFault
from ..errors import ToolDefinitionError
from ..plugins.contexts import PhaseContext
from ..plugins.plugin import name_of
from ..services.sanitize import text_of
from ..state.values import shown
from ..tools.agent_tool import AgentTool
from ..tools.definition import Tool
from ..tools.invoke import shown_text
from ..tools.marks import definition_mark
from ..tools.toolset import Toolset
from .calls import Late, call_user, together
from .hook_deadlines import HookDeadlines

LIMIT: Final = 30.0
"""Seconds for a toolset to answer."""
MOST: Final = 2_000
"""Tools of one toolset in a step."""
DESCRIPTION_LIMIT: Final = 4 * 1024
"""Bytes of a description; a longer one is cut."""
SCHEMA_LIMIT: Final = 64 * 1024
"""Bytes of a schema in JSON; a tool with a larger one is left out."""
_MARK: Final = len("…".encode())
_MARK_LIMIT: Final = 200
"""Characters of the mark of a fault; the name of an exception's class has any length."""
_PIECE: Final = 50
"""Tools that are checked without a checkpoint."""

Open = Callable[[Toolset], Awaitable[Toolset]]
"""Waits until a toolset is open, and returns the one to ask."""
Report = Callable[[str, str, BaseException | None], None]
"""(toolset, the failure, its exception) -> None."""


@attrs.frozen(kw_only=True)
class StepTools:
    """The tools that the toolsets of an agent offer in one step.

    Attributes:
        agent: its key.
        step: the step.
        tools: by name; none has the name of a tool of the agent's own.
        toolsets: name of a tool -> name of its toolset.
        faults: what the step has to do without.
        unavailable: a toolset without which the run cannot go on failed, and how; else None.
    """

    agent: str
    step: int
    tools: Mapping[str, Tool[..., object]] = attrs.field(factory=dict)
    toolsets: Mapping[str, str] = attrs.field(factory=dict)
    faults: tuple[ToolsetFault, ...] = ()
    unavailable: str | None = None

    @property
    def infos(self) -> tuple[ToolInfo, ...]:
        """The tools as the model sees them."""
        return tuple(tool.info for tool in self.tools.values())

    def offered(self, names: Sequence[str]) -> tuple[OfferedTool, ...]:
        """Return the tools with these names as rows keep them; unknown names are passed over."""
        present = (name for name in dict.fromkeys(names) if name in self.tools)
        return tuple(offered_tool(self.tools[name], self.toolsets[name]) for name in present)


async def ask_toolsets(
    agent: Agent[object], ctx: PhaseContext, *, opened: Open, watch: HookDeadlines | None, report: Report
) -> StepTools:
    """Ask the toolsets of an agent for the tools of a step. Cancelled passes.

    Args:
        agent: The active agent.
        ctx: the context of the step.
        opened: waits until a toolset is open, and returns the one to ask.
        watch: notes which toolset is asked, and until when.
        report: A callback for each failure, and for each tool that is cut or left out.
    """
    answers = await together(agent.toolsets, lambda toolset: _ask(agent, toolset, ctx, opened, watch))
    tools, owners, faults = dict[str, Tool[..., object]](), dict[str, str](), list[ToolsetFault]()
    unavailable = None
    for toolset, answer in zip(agent.toolsets, answers, strict=True):
        if not isinstance(answer, list):
            why, error = answer or ("it was not asked", None)
            report(toolset.name, why, error)
            detail = text_of(f"toolset {toolset.name!r} is not available: {why}")
            if toolset.on_unavailable == "fail":
                unavailable = unavailable or detail
            mark = text_of(f"{toolset.name}: {type(error).__name__}", _MARK_LIMIT)
            faults.append(ToolsetFault(mark=mark, reason="toolset_unavailable", detail=detail))
            continue
        for tool, remark in await _checked(answer):
            if remark is not None:
                report(toolset.name, f"tool {tool.name!r}: {remark}", None)
            if _schema_size(tool) > SCHEMA_LIMIT:
                continue
            if tool.name in tools or agent.tool(tool.name) is not None:
                faults.append(_taken(toolset, tool, owners))
            else:
                tools[tool.name], owners[tool.name] = tool, toolset.name
        if len(answer) > MOST:
            report(toolset.name, f"it has {len(answer):,} tools; the first {MOST:,} are offered", None)
    return StepTools(
        agent=agent.key,
        step=ctx.step,
        tools=tools,
        toolsets=owners,
        faults=tuple(faults),
        unavailable=unavailable,
    )


async def find_tool(
    agent: Agent[object], offered: OfferedTool, info: RunInfo, *, opened: Open, of_step: Tool[..., object] | None = None
) -> Tool[..., object] | str | None:
    """Find the tool of a call whose step another owner has begun, or about which people were asked.

    Args:
        agent: The active agent.
        offered: The tool as it was called.
        info: the facts of the run.
        opened: waits until a toolset is open, and returns the one to ask.
        of_step: the tool that the step offered, which a toolset without a `find` of its own still has.

    Returns:
        The tool; None if there is none any more; or why the toolset did not answer. Cancelled passes.
    """
    toolset = next((one for one in agent.toolsets if one.name == offered.toolset), None)
    if toolset is None:
        return None
    owner = toolset

    async def find() -> Tool[..., object] | None:
        source = await opened(owner)
        if of_step is not None and type(source).find is Toolset.find:
            return of_step
        tool = await source.find(info, offered.name)
        _check_answer(agent, owner, [] if tool is None else [tool])
        return tool

    match await call_user(find, limit=LIMIT):
        case Returned(Tool() as tool) if tool.name == offered.name and _schema_size(tool) <= SCHEMA_LIMIT:
            return _within(tool)[0]  # a cut description is part of the definition that was called
        case Returned():
            return None
        case Raised(error):
            return text_of(f"toolset {toolset.name!r} is not available: {shown_text(error)}")
        case Late() as late:
            return f"toolset {toolset.name!r} did not answer {late}"


async def _ask(
    agent: Agent[object], toolset: Toolset, ctx: PhaseContext, opened: Open, watch: HookDeadlines | None
) -> list[Tool[..., object]] | tuple[str, BaseException | None]:
    """Return the tools of a toolset, or how it failed."""

    async def tools() -> list[Tool[..., object]]:
        source = await opened(toolset)
        return _check_answer(agent, toolset, await source.tools(ctx))

    match await call_user(tools, name=f"toolset {toolset.name}", limit=LIMIT, watch=watch):
        case Returned(list() as answer):
            return answer
        case Raised(error):
            return text_of(shown_text(error)), error
        case Late() as late:
            return f"it did not answer {late}", None
        case Returned(answer):
            return f"it returned {shown(answer)}", None


def _check_answer(agent: Agent[object], toolset: Toolset, answer: Any) -> list[Tool[..., object]]:
    """Return the tools as a list.

    Raises:
        ToolDefinitionError: an item is no tool, or one that a toolset cannot have.
        AgentDefinitionError: The agent lacks a plugin that a tool needs.
    """
    if not isinstance(answer, Sequence):
        raise ToolDefinitionError(f"toolset {toolset.name!r}: tools() returned {shown(answer)}; return a list of tools")
    tools = list(answer)
    for tool in tools:
        if (fault := misfit(tool)) is not None:
            raise ToolDefinitionError(f"toolset {toolset.name!r}: {fault}")
    check_needed_plugins(f"toolset {toolset.name!r}", tools, [*map(name_of, agent.plugins)])
    return tools


def misfit(tool: object) -> str | None:
    """Return why a toolset cannot have a tool; None if it can."""
    if not isinstance(tool, Tool):
        return f"{shown(tool)} is no tool; make it with gr.Tool.from_schema(...)"
    if isinstance(tool, AgentTool | Handoff):
        return f"{tool.name!r} is the tool of an agent, which has to be known at the start: give it in tools=[...]"
    if tool.background:
        return f"{tool.name!r} is a background tool, which has to be known at the start: give it in tools=[...]"
    if tool.prepare is not None:
        return f"{tool.name!r} has prepare, which runs before the first step: give it in tools=[...]"
    if tool.is_enabled is not True:
        return f"{tool.name!r} has is_enabled; leave the tool out of the answer in steps that do not offer it"
    return None


def _taken(toolset: Toolset, tool: Tool[..., object], owners: Mapping[str, str]) -> ToolsetFault:
    owner = f"of toolset {owners[tool.name]!r}" if tool.name in owners else "of the agent"
    detail = f"toolset {toolset.name!r} offers a tool {tool.name!r}, and so is a tool {owner} named, which counts"
    return ToolsetFault(mark=f"{toolset.name}.{tool.name}", reason="tool_name_taken", detail=detail)


# --- tools within their limits ---------------------------------------------------------------------------------------


@attrs.frozen
class _ToolFacts:
    """The facts of a tool that take time to find out: a toolset returns the same tools in each step."""

    schema_size: int
    definition: str


_facts: Final[WeakKeyDictionary[Tool[..., object], _ToolFacts]] = WeakKeyDictionary()
_cut: Final[WeakKeyDictionary[Tool[..., object], Tool[..., object]]] = WeakKeyDictionary()
"""A tool with a long description -> the same tool with its head."""


def _facts_of(tool: Tool[..., object]) -> _ToolFacts:
    facts = _facts.get(tool)
    if facts is None:
        facts = _facts[tool] = _ToolFacts(len(msgspec.json.encode(tool.schema)), definition_mark(tool))
    return facts


def _schema_size(tool: Tool[..., object]) -> int:
    return _facts_of(tool).schema_size


def offered_tool(tool: Tool[..., object], toolset: str) -> OfferedTool:
    """Return a tool of a toolset as the row of a call keeps it."""
    spec = tool.spec
    return OfferedTool(
        name=tool.name,
        toolset=toolset,
        schema=tool.schema,
        definition=_facts_of(tool).definition,
        description=tool.description,
        effect=spec.effect,
        replay_safe=spec.replay_safe,
        gate=spec.gate,
        concurrency=spec.concurrency,
        fatal=spec.fatal,
        grace=spec.grace,
        on_conflict=spec.on_conflict,
        guarded=spec.guarded,
    )


async def _checked(tools: Sequence[Tool[..., object]]) -> list[tuple[Tool[..., object], str | None]]:
    """Return the first `MOST` tools within their limits, each with a remark about what was done to it."""
    out: list[tuple[Tool[..., object], str | None]] = []
    for number, tool in enumerate(tools[:MOST]):
        if number % _PIECE == _PIECE - 1:
            await trio.lowlevel.checkpoint()
        out.append(_within(tool))
    return out


def _within(tool: Tool[..., object]) -> tuple[Tool[..., object], str | None]:
    size = _schema_size(tool)
    if size > SCHEMA_LIMIT:
        return tool, f"its schema has {size:,} bytes; at most {SCHEMA_LIMIT:,} are offered: it is left out"
    length = len(tool.description.encode())
    if length <= DESCRIPTION_LIMIT:
        return tool, None
    cut = _cut.get(tool)
    if cut is None:
        head = tool.description.encode()[: DESCRIPTION_LIMIT - _MARK].decode(errors="ignore")
        cut = _cut[tool] = attrs.evolve(tool, description=f"{head}…")
    return cut, f"its description has {length:,} bytes; the model reads {DESCRIPTION_LIMIT:,}"
