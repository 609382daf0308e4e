"""What type checkers must know of agents as tools; checked by test_typing.py, never run."""

from typing import Any, assert_type

import attrs

import greenroom as gr


@attrs.frozen
class Order:
    number: int


clerk = gr.Agent("clerk", output_type=int)


def in_words(order: Order) -> str:
    return f"order {order.number}"


async def later(text: str) -> str:
    return text


def doubled(completed: gr.Completed[int]) -> int:
    return completed.output * 2


plain = clerk.as_tool()
assert_type(plain, gr.Tool[..., Any])
clerk.as_tool(name="shop", description="Sells.", parameters=Order, build_input=in_words, extract=doubled)
clerk.as_tool(build_input=later, needs_approval=True, timeout=30.0, on_error="raise", grace=60.0, effect="publish")
clerk.as_tool(replay="safe")  # type: ignore[call-overload]
clerk.as_tool(on_error="ignore")  # type: ignore[call-overload]
gr.Agent("boss", tools=[plain])


async def asked(run: gr.Run[str]) -> None:
    for ticket in (await run.view()).tickets:
        assert_type(ticket.child_run_id, str | None)
        assert_type(ticket.child_ticket_id, str | None)
