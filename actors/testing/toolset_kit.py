"""A toolset for tests, and the conformance suite of the port, for the author of a toolset.

await check_toolset(lambda: MyToolset("tickets", url))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import attrs
import msgspec

from ..agents.checks import check_toolsets
from ..contract.phases import Phase
from ..contract.rows import RunInfo
from ..errors import AgentDefinitionError
from ..plugins.contexts import PhaseContext
from ..tools.definition import Tool
from ..tools.toolset import Toolset
from ..user_code.toolsets import DESCRIPTION_LIMIT, MOST, SCHEMA_LIMIT, misfit, offered_tool

_FOUND: Final = 20
"""Tools that are also looked for by name."""
_UNKNOWN: Final = "no-tool-has-this-name"


@attrs.define(eq=False)
class FakeToolset(Toolset):
    """A toolset with the tools of a list, which a test may change at any time.

    Attributes:
        name: its name.
        now: The tools that it offers now.
        fault: raised in place of an answer; None: it answers.
        on_unavailable: as in `Toolset`.
    """

    name: str
    now: list[Tool[..., Any]] = attrs.field(factory=list)
    fault: BaseException | None = None
    on_unavailable: Any = "skip"

    async def tools(self, ctx: PhaseContext[Any]) -> Sequence[Tool[..., object]]:
        """Return the list as it is now, or raise."""
        if self.fault is not None:
            raise self.fault
        return [*self.now]

    async def find(self, info: RunInfo, name: str) -> Tool[..., object] | None:
        """Return the tool of this name, or raise."""
        if self.fault is not None:
            raise self.fault
        return next((tool for tool in self.now if tool.name == name), None)


async def check_toolset(open_toolset: Callable[[], Toolset], *, context: PhaseContext[Any] | None = None) -> None:
    """Check the promises of a toolset that is available: its answers, and what two openings of it have in common.

    Args:
        open_toolset: makes a toolset, on the same source each time, as two processes would.
        context: the context of the step in which it is asked; default: the first step of a run.

    Raises:
        AssertionError: the toolset breaks a promise; the sentence states which.
        BaseException: raised by the toolset.
    """
    ctx = context or PhaseContext(
        phase=Phase.BEFORE_INFERENCE, run_id="r", thread_id="t", agent="a", by="local", step=1
    )
    first, second = open_toolset(), open_toolset()
    try:
        check_toolsets("agent 'a'", (first,))
    except AgentDefinitionError as error:
        raise AssertionError(str(error)) from error
    async with first.open() as inside:
        source = first if inside is None else inside
        definitions = _definitions(first, await source.tools(ctx))
        again = _definitions(first, await source.tools(ctx))
    _expect(again == definitions, f"two answers of one step differ in {_differences(definitions, again)}")
    info = RunInfo(
        run_id="r", thread_id="t", agent="a", agent_digest="", created_at=datetime.now(UTC), execution="sequential"
    )
    async with second.open() as inside:
        source = second if inside is None else inside
        for name in [*definitions][:_FOUND]:
            tool = await source.find(info, name)
            _expect(tool is not None, f"find({name!r}) is None in another process, so a call cannot go on there")
            other = {} if tool is None else _definitions(second, [tool])
            why = "it has another definition in another process: people would be asked again"
            _expect(other.get(name) == definitions[name], f"tool {name!r}: {why}")
        _expect(await source.find(info, _UNKNOWN) is None, f"find({_UNKNOWN!r}) returned a tool")


def _definitions(toolset: Toolset, answer: object) -> dict[str, str]:
    """Return name -> digest of the definition, of tools without a fault."""
    _expect(isinstance(answer, Sequence), f"tools() returned {answer!r:.100}; return a list of tools")
    tools: Iterable[Any] = answer if isinstance(answer, Sequence) else ()
    definitions: dict[str, str] = {}
    for tool in tools:
        fault = misfit(tool)
        _expect(fault is None, f"toolset {toolset.name!r}: {fault}")
        _expect(tool.name not in definitions, f"two tools are named {tool.name!r}")
        size = len(tool.description.encode())
        _expect(size <= DESCRIPTION_LIMIT, f"tool {tool.name!r}: its description has {size:,} bytes and would be cut")
        size = len(msgspec.json.encode(tool.schema))
        _expect(size <= SCHEMA_LIMIT, f"tool {tool.name!r}: its schema has {size:,} bytes: the tool would be left out")
        definitions[tool.name] = offered_tool(tool, toolset.name).definition
    _expect(len(definitions) <= MOST, f"it has {len(definitions):,} tools; the first {MOST:,} are offered")
    return definitions


def _differences(one: dict[str, str], other: dict[str, str]) -> str:
    names = sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))
    return ", ".join(names[:10])


def _expect(holds: bool, sentence: str) -> None:
    if not holds:
        raise AssertionError(sentence)
