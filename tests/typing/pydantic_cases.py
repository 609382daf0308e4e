"""What type checkers must know of types of pydantic; checked by test_typing.py, never run."""

from typing import Annotated, Any, assert_type

import attrs
from pydantic import BaseModel, Field

import greenroom as gr


class Item(BaseModel):
    sku: str
    quantity: int = Field(default=1, ge=1)


@attrs.frozen
class Note:
    text: str


basket = gr.StateKey("basket", list[Item], default=[])


@gr.tool
async def put(ctx: gr.ToolContext[Item], item: Item, pieces: Annotated[int, Field(ge=1)] = 1) -> Item:
    """Put an item into the basket."""
    assert_type(ctx.state[basket], list[Item])
    assert_type(ctx.deps, Item)
    ctx.state.set(basket, [*ctx.state[basket], item])
    ctx.state.set(basket, ["tea"])  # type: ignore[misc]
    raise gr.Suspend(response_schema=Item)


@gr.tool
async def ask(ctx: gr.ToolContext) -> str:
    """Ask a person."""
    decision = await ctx.ask(gr.Suspend(response_schema=Note))
    assert_type(decision.read(Note), Note)
    assert_type(decision.read(int), int)
    gr.Suspend(response_schema={"type": "string"})
    gr.Suspend(response_schema="string")  # type: ignore[arg-type]
    return decision.read(Item).sku


desk = gr.Agent("desk", tools=[put, ask], output_type=Item, deps_type=Item, state=[basket])
assert_type(desk, gr.Agent[Item, Item])
clerk = gr.Agent("clerk", tools=[desk.as_tool(parameters=Item, build_input=lambda item: item.sku)])
gr.handoff(clerk, on_handoff=lambda ctx, item: item.sku, input_type=Item)


async def ended(runtime: gr.Runtime) -> None:
    outcome = await (await runtime.start(desk, "x", deps=Item(sku="a"))).wait()
    assert_type(outcome.tickets, tuple[gr.Ticket, ...])
    assert_type(outcome.output, Item)


class Car(BaseModel):
    doors: int


class Bike(BaseModel):
    gears: int


assert_type(gr.Agent("a", output_type=Car | Bike), gr.Agent[Car | Bike])
assert_type(gr.Agent("a", output_type=list[Car] | None), gr.Agent[list[Car] | None])
assert_type(gr.Agent("a", output_type=Annotated[int, Field(ge=0)]), gr.Agent[int])
assert_type(gr.Agent("a", output_type={"type": "string"}), gr.Agent[Any])
