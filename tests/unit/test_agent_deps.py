"""An agent's `deps_type`: a function whose context names other dependencies is refused when the agent is defined."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

import attrs
import pytest

import greenroom as gr
from greenroom.actors.agents.options import HandoffOptions
from greenroom.actors.tools.named_deps import named_deps, provides
from greenroom.testing import ScriptedModel, call

from ..support.cases import case

if TYPE_CHECKING:
    from decimal import Decimal


@attrs.frozen
class Base:
    limit: int = 1


@attrs.frozen
class Deps(Base):
    name: str = "x"


@attrs.frozen
class Other:
    pass


class Limited(Protocol):
    limit: int


class Named(TypedDict):
    name: str


@gr.tool
async def based(ctx: gr.ToolContext[Base]) -> int:
    return ctx.deps.limit


@gr.tool
def foreign(ctx: gr.SyncToolContext[Other]) -> None: ...


@gr.tool
async def plain(ctx: gr.ToolContext, n: list[int]) -> None: ...


@gr.tool
async def either(ctx: gr.ToolContext[Other | Base]) -> None: ...


@gr.tool
async def limited(ctx: gr.ToolContext[Limited]) -> None: ...


@gr.tool
async def unknown(ctx: gr.ToolContext[Decimal]) -> None: ...


async def asks(ctx: gr.ToolContext[Other], arguments: Mapping[str, Any]) -> bool:
    return True


def enabled(ctx: gr.PhaseContext[Other]) -> bool:
    return True


@gr.tool(needs_approval=asks)
async def asking() -> None: ...


@gr.tool(is_enabled=enabled)
async def disabled() -> None: ...


@gr.tool_input_guardrail
async def judges_arguments(ctx: gr.GateContext[Other], arguments: Mapping[str, Any]) -> None: ...


@gr.tool_output_guardrail
async def judges_result(ctx: gr.PhaseContext[Other], result: object) -> None: ...


@gr.input_guardrail
async def judges_input(ctx: gr.PhaseContext[Other], text: str) -> None: ...


@gr.output_guardrail
async def judges_output(ctx: gr.PhaseContext[Other], output: str) -> None: ...


async def gives_over(ctx: gr.ToolContext[Other]) -> None: ...


class Manner:
    async def __call__(self, ctx: gr.PhaseContext[Other]) -> str:
        return "x"


class Audit(gr.Plugin):
    async def step_end(self, ctx: gr.PhaseContext[Other]) -> None: ...


MISFITS: list[tuple[dict[str, Any], str]] = [
    ({"tools": [based, foreign]}, "the tool 'foreign' takes"),
    ({"tools": [asking]}, "needs_approval of the tool 'asking' takes"),
    ({"tools": [disabled]}, "is_enabled of the tool 'disabled' takes"),
    (
        {"tools": [gr.tool(plain.function, name="plain", input_guardrails=[judges_arguments])]},
        "the guardrail 'judges_arguments' of the tool 'plain' takes",
    ),
    (
        {"tools": [gr.tool(plain.function, name="plain", output_guardrails=[judges_result])]},
        "the guardrail 'judges_result' of the tool 'plain' takes",
    ),
    ({"tools": [gr.Agent("clerk", deps_type=Other).as_tool()]}, "the tool 'clerk' takes"),
    ({"handoffs": [gr.Agent("clerk", deps_type=Other)]}, "the agent 'clerk' of a handoff takes"),
    ({"handoffs": [gr.handoff("clerk", on_handoff=gives_over)]}, "the tool 'transfer_to_clerk' takes"),
    ({"instructions": Manner()}, "the function of the instructions takes"),
    ({"input_guardrails": [judges_input]}, "the guardrail 'judges_input' takes"),
    ({"output_guardrails": [judges_output]}, "the guardrail 'judges_output' takes"),
    ({"plugins": [Audit()]}, "the plugin 'Audit' in step_end takes"),
]


@pytest.mark.rule("OU-13")
@pytest.mark.parametrize(("options", "words"), MISFITS, ids=case)
def test_a_function_that_names_other_dependencies_is_refused(options, words):
    with pytest.raises(gr.AgentDefinitionError) as caught:
        gr.Agent("desk", deps_type=Deps, **options)
    assert str(caught.value) == f"agent 'desk': deps_type=Deps: {words} dependencies of type Other"


@pytest.mark.rule("OU-13")
@pytest.mark.parametrize(("options", "words"), MISFITS, ids=case)
def test_without_deps_type_or_with_a_class_that_fits_it_is_taken(options, words):
    assert gr.Agent("desk", **options).deps_type is None
    assert gr.Agent("desk", deps_type=Other, **{**options, "tools": options.get("tools", [])[-1:]}).deps_type is Other


@pytest.mark.rule("OU-13")
@pytest.mark.parametrize("tool", [based, plain, either, limited, unknown], ids=lambda tool: tool.name)
def test_a_base_a_member_and_what_cannot_be_compared_are_taken(tool):
    assert gr.Agent("desk", deps_type=Deps, tools=[tool]).tools == (tool,)


@pytest.mark.rule("OU-13")
def test_names_of_the_place_of_definition_are_found():
    class Local:
        pass

    @gr.tool
    async def local(ctx: gr.ToolContext[Local]) -> None: ...

    with pytest.raises(gr.AgentDefinitionError, match=r"takes dependencies of type .*Local"):
        gr.Agent("desk", deps_type=Deps, tools=[local])


@pytest.mark.rule("OU-13")
@pytest.mark.parametrize("given", [Deps(), "Deps", 3], ids=case)
def test_deps_type_is_a_class(given):
    with pytest.raises(gr.AgentDefinitionError, match="give a class"):
        gr.Agent("desk", deps_type=given)


@pytest.mark.parametrize(
    ("given", "wanted", "fits"),
    [
        (Deps, Base, True),
        (Base, Deps, False),
        (Deps, Any, True),
        (Deps, object, True),
        (Deps, Other | None, False),
        (dict[str, int], Mapping[str, int], True),
        (dict, list, False),
        (Deps, Named, True),
        (Deps, Limited, True),
    ],
)
def test_a_type_provides_its_bases_and_what_cannot_be_compared(given, wanted, fits):
    assert provides(given, wanted) is fits


@pytest.mark.parametrize("function", [3, "text", len, lambda: 0, lambda ctx: 0, type, asking, plain.function], ids=case)
def test_what_names_no_dependencies_takes_any(function):
    assert named_deps(function) is Any


def test_type_checkers_know_the_options_that_there_are():
    """`HandoffOptions`, with `AgentOptions` in it, is written by hand; the fields are the truth."""
    fields = {field.alias for field in attrs.fields(gr.Agent) if field.init and field.kw_only}
    assert HandoffOptions.__annotations__.keys() | {"output_type", "deps_type"} == fields


def test_both_parameters_of_an_agent_have_defaults():
    assert gr.Agent[str] == gr.Agent[str, Any]
    assert gr.Agent[str, Deps].__args__ == (str, Deps)
    with pytest.raises(TypeError):
        gr.Agent[str, Deps, int]


async def test_dependencies_reach_the_functions(autojump_clock):
    model = ScriptedModel([call("based"), "done"])
    agent = gr.Agent(
        "desk", deps_type=Deps, instructions=lambda ctx: f"Serve {ctx.deps.name}.", tools=[based], model=model
    )
    outcome = await gr.run(agent, "x", deps=Deps(7, "Ada"))
    assert outcome.output == "done"
    assert [model.requests[-1].messages[at].content for at in (0, -1)] == ["Serve Ada.", "7"]
