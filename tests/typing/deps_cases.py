"""What type checkers must know of the dependencies and the output of an agent; checked by test_typing.py, never run."""

from typing import Any, assert_type

import attrs

import greenroom as gr
from greenroom.testing import ScriptedModel


@attrs.frozen
class Base:
    limit: int


@attrs.frozen
class Deps(Base):
    name: str


@attrs.frozen
class Report:
    title: str


SCHEMA: dict[str, Any] = {"type": "object"}


@gr.tool
async def limited(ctx: gr.ToolContext[Base]) -> int:
    return ctx.deps.limit


async def greet(ctx: gr.PhaseContext[Deps]) -> str:
    assert_type(ctx.deps, Deps)
    return f"You serve {ctx.deps.name}."


def short(ctx: gr.PhaseContext[Base]) -> str:
    return f"At most {ctx.deps.limit}."


@gr.input_guardrail
async def modest(ctx: gr.PhaseContext[Base], text: str) -> gr.Trip | None:
    return gr.Trip() if len(text) > ctx.deps.limit else None


@gr.output_guardrail
async def titled(ctx: gr.PhaseContext[Deps], output: Report) -> gr.Trip | None:
    return None if output.title else gr.Trip(ctx.deps.name)


@gr.output_guardrail
async def anything(ctx: gr.PhaseContext, output: object) -> None: ...


# --- an agent knows its output and its dependencies; both have defaults ----------------------------------------------

assert_type(gr.Agent("a"), gr.Agent[str, Any])
assert_type(gr.Agent("a"), gr.Agent[str])
assert_type(gr.Agent("a", output_type=Report), gr.Agent[Report, Any])
assert_type(gr.Agent("a", deps_type=Deps), gr.Agent[str, Deps])
assert_type(gr.Agent("a", deps_type=Deps, output_type=list[int]), gr.Agent[list[int], Deps])
assert_type(gr.Agent("a", output_type=SCHEMA), gr.Agent[Any, Any])
assert_type(gr.Agent("a", output_type={"type": "integer"}), gr.Agent[Any, Any])
assert_type(gr.Agent("a", output_type=SCHEMA, deps_type=Deps), gr.Agent[Any, Deps])
assert_type(gr.Agent("a", output_type=SCHEMA).parse_output({}), Any)
assert_type(gr.Agent("a", instructions=greet), gr.Agent[str, Deps])
given: gr.Agent[Report, Deps] = gr.Agent("a", output_type=Report, model=ScriptedModel([]), tools=[limited])
gr.Agent("a", deps_type=Deps(1, "x"))  # type: ignore[call-overload]
gr.Agent("a", deps_type=Deps, instruction="x")  # type: ignore[call-overload]
gr.Agent("a", output_type=3)  # type: ignore[call-overload]

# --- functions of an agent take its dependencies, or a base of theirs ------------------------------------------------

full = gr.Agent(
    "full",
    deps_type=Deps,
    output_type=Report,
    instructions=greet,
    tools=[limited],
    input_guardrails=[modest],
    output_guardrails=[titled, anything],
)
assert_type(full, gr.Agent[Report, Deps])
assert_type(gr.Agent("a", deps_type=Deps, instructions=short), gr.Agent[str, Deps])
assert_type(gr.Agent("a", deps_type=Deps, instructions=lambda ctx: ctx.deps.name), gr.Agent[str, Deps])
gr.Agent("a", deps_type=Base, instructions=greet)  # type: ignore[arg-type]
gr.Agent("a", deps_type=Deps, instructions=lambda ctx: ctx.deps.nam)  # type: ignore[attr-defined]
gr.Agent("a", instructions=lambda ctx: 3)  # type: ignore[arg-type, return-value]
gr.Agent("a", deps_type=Base, output_type=Report, output_guardrails=[titled])  # type: ignore[misc]
gr.Agent("a", deps_type=Deps, output_type=int, output_guardrails=[titled])  # type: ignore[misc]
gr.Agent("a", deps_type=Deps, output_guardrails=[titled])  # type: ignore[list-item]


# --- starts take the dependencies; runs know the output --------------------------------------------------------------


async def starts(runtime: gr.Runtime) -> None:
    run = await runtime.start(full, "x", deps=Deps(1, "x"), run_id="r")
    assert_type(run, gr.Run[Report])
    assert_type(await run.result(), gr.Completed[Report] | gr.Failed | gr.Cancelled)
    assert_type((await run.result()).output, Report)
    assert_type(await runtime.start("full", "x", deps=object()), gr.Run[Any])
    assert_type(await runtime.start(gr.Agent("a", output_type=SCHEMA), "x"), gr.Run[Any])
    assert_type(await runtime.start(gr.Agent("a"), "x", deps={"any": "thing"}), gr.Run[str])
    assert_type(await runtime.start(gr.Agent("a", deps_type=Base), "x", deps=Deps(1, "x")), gr.Run[str])
    assert_type((await gr.run(full, "x", deps=Deps(1, "x"))).output, Report)
    await runtime.start(full, "x")  # those of the runtime
    await runtime.start(full, "x", deps=Base(1))  # type: ignore[misc]
    await runtime.start(full, "x", deps=7)  # type: ignore[misc]
    await runtime.start(full, "x", dep=7)  # type: ignore[call-overload]
    await gr.run(full, "x", deps=Base(1))  # type: ignore[misc]
    assert (await run.result()).output.name  # type: ignore[attr-defined]


async def opens() -> None:
    async with gr.open_runtime(agents=[full, gr.Agent("b")], deps=Deps(1, "x")) as runtime:
        assert_type(runtime, gr.Runtime)


# --- agents as tools -------------------------------------------------------------------------------------------------


def in_words(report: Report) -> str:
    return report.title


def title(completed: gr.Completed[Report]) -> str:
    return completed.output.title


def number(completed: gr.Completed[int]) -> int:
    return completed.output


assert_type(full.as_tool(parameters=Report, build_input=in_words, extract=title), gr.Tool[..., Any])
full.as_tool(build_input=lambda text: text.upper())
full.as_tool(parameters=Report, build_input=lambda report: report.title)
full.as_tool(extract=number)  # type: ignore[arg-type]
full.as_tool(build_input=in_words)  # type: ignore[arg-type]
full.as_tool(parameters=Report)  # type: ignore[call-overload]
full.as_tool(parameters=Deps, build_input=in_words)  # type: ignore[arg-type]
gr.Agent("boss", tools=[full.as_tool()], deps_type=Deps)


# --- hooks -----------------------------------------------------------------------------------------------------------


class Audit(gr.Plugin):
    async def run_start(self, ctx: gr.PhaseContext[Deps]) -> gr.Mutation | None:
        assert_type(ctx.deps, Deps)
        return None

    async def tool_gate(self, ctx: gr.GateContext[Deps]) -> gr.Deny | None:
        assert_type(ctx.deps.name, str)
        return gr.Deny("no") if ctx.deps.limit else None


assert_type(gr.Agent("a", plugins=[Audit()], deps_type=Deps), gr.Agent[str, Deps])
