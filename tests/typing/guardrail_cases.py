"""What type checkers must know of guardrails; checked by test_typing.py, never run."""

from collections.abc import Mapping
from typing import Any, assert_type

import attrs

import greenroom as gr


@attrs.frozen
class Deps:
    limit: int


@gr.tool_input_guardrail
async def small(ctx: gr.GateContext[Deps], arguments: Mapping[str, Any]) -> gr.Reject | None:
    assert_type(ctx.deps, Deps)
    return gr.Reject("too much") if arguments["cents"] > ctx.deps.limit else None


@gr.tool_input_guardrail(name="quick", timeout=1.0)
def quick(ctx: gr.GateContext, arguments: Mapping[str, Any]) -> gr.Trip | gr.Reject | gr.Allow:
    assert_type(ctx.deps, Any)
    return gr.Allow()


@gr.tool_output_guardrail
async def masked(ctx: gr.PhaseContext[Deps], result: Any) -> gr.Trip | None:
    return None


@gr.tool_output_guardrail(timeout=5)
def plain(ctx: gr.PhaseContext[Deps], result: Any) -> gr.Reject:
    return gr.Reject("no")


async def calls(ctx: gr.GateContext[Deps]) -> None:
    assert_type(await small(ctx, {}), gr.Reject | None)
    assert_type(plain(ctx, 1), gr.Reject)
    assert_type(small.name, str)
    await small(ctx)  # type: ignore[call-arg]


@gr.tool_input_guardrail  # type: ignore[type-var]
def returns_a_bool(ctx: gr.GateContext[Deps], arguments: Mapping[str, Any]) -> bool:
    return True


@gr.tool_input_guardrail  # type: ignore[arg-type]
def takes_one(ctx: gr.GateContext[Deps]) -> None: ...


@gr.tool(input_guardrails=[small, quick], output_guardrails=[masked, plain])
async def pay(cents: int) -> str:
    return "paid"


@gr.tool(input_guardrails=[masked])  # type: ignore[list-item]
async def mixed(cents: int) -> str:
    return "paid"


async def paid() -> None:
    assert_type(await pay(cents=1), str)


# --- of agents -------------------------------------------------------------------------------------------------------


@attrs.frozen
class Report:
    title: str


@gr.input_guardrail
async def on_topic(ctx: gr.PhaseContext[Deps], text: str) -> gr.Trip | None:
    assert_type(ctx.deps, Deps)
    return gr.Trip({"at": 1}) if "x" in text else None


@gr.input_guardrail(blocking=True, timeout=5)
def short(ctx: gr.PhaseContext, text: str) -> gr.Allow | gr.Trip:
    return gr.Allow()


@gr.output_guardrail
async def titled(ctx: gr.PhaseContext[Deps], output: Report) -> gr.Trip | None:
    return None if output.title else gr.Trip("no title")


async def judged(ctx: gr.PhaseContext[Deps]) -> None:
    assert_type(await on_topic(ctx, "x"), gr.Trip | None)
    assert_type(await titled(ctx, Report("x")), gr.Trip | None)
    assert_type(on_topic.blocking, bool)
    await on_topic(ctx, 5)  # type: ignore[arg-type]
    await titled(ctx, "x")  # type: ignore[arg-type]


@gr.input_guardrail  # type: ignore[type-var]
def rejects(ctx: gr.PhaseContext[Deps], text: str) -> gr.Reject:
    return gr.Reject("for tools only")


assert_type(gr.Agent("a", input_guardrails=[short], output_type=Report), gr.Agent[Report])
guarded = gr.Agent("a", deps_type=Deps, input_guardrails=[on_topic], output_guardrails=[titled], output_type=Report)
assert_type(guarded, gr.Agent[Report, Deps])
gr.Agent("a", deps_type=Deps, input_guardrails=[on_topic, short])
gr.Agent("a", output_guardrails=[titled])  # type: ignore[list-item]
gr.Agent("a", deps_type=int, input_guardrails=[on_topic])  # type: ignore[misc]
gr.Agent("a", input_guardrails=[titled])  # type: ignore[list-item]
gr.Agent("a", output_guardrails=[on_topic])  # type: ignore[list-item]
gr.Agent("a", input_guardrails=[small])  # type: ignore[list-item]
gr.input_guardrail(blocking="yes")  # type: ignore[call-overload]
