"""Values that a definition refuses where they are given: with a typed error, a short one, and the way out."""

from collections.abc import Callable
from typing import Any

import pytest

import greenroom as gr

SURROGATE = "\ud800"
LONG = "x" * 1_000_000


@gr.tool
async def plain() -> str:
    """A tool."""
    return ""


def described() -> str:
    return ""


described.__doc__ = SURROGATE


def given(ctx: gr.SyncToolContext, arguments: dict[str, Any]) -> None: ...


def judge(ctx: Any, value: Any) -> None: ...


def of(**options: Any) -> gr.Agent[Any]:
    return gr.Agent("a", **{"model": "x:y", **options})


DESK = of()
REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: gr.tool(plain.function, description=SURROGATE), "tool 'plain': its description has a lone surrogate"),
    (lambda: gr.tool(described), "tool 'described': its description has a lone surrogate"),
    (lambda: gr.Tool.from_schema(given, schema={"type": "object"}, description=SURROGATE), "has a lone surrogate"),
    (lambda: DESK.as_tool(description=SURROGATE), "tool 'a': its description has a lone surrogate"),
    (lambda: gr.handoff(DESK, tool_description=SURROGATE), "handoff to 'a': tool 'transfer_to_a': its description"),
    (lambda: gr.tool(plain.function, name=LONG), "use 1 to 64 of a-z A-Z 0-9 _ and -"),
    (lambda: gr.tool(plain.function, effect=LONG), "an identifier of your own, of at most 64 characters"),
    (lambda: gr.tool(plain.function, **{LONG: 1}), "there is no such option"),
    (lambda: gr.Agent(LONG, model="x:y"), "use 1 to 64 printable characters without spaces"),
    (lambda: of(tool_choice=LONG), "the tools are: none"),
    (lambda: of(stop=[gr.stop.TokenBudget(-(10**400))]), "total is a number, 0 or more"),
    (lambda: gr.handoff(LONG), "no agent has such a key: use 1 to 64 printable characters"),
    (lambda: gr.handoff(""), "handoff(''): no agent has such a key"),
    (lambda: gr.handoff("a b"), "handoff('a b'): no agent has such a key"),
    (lambda: gr.handoff(SURROGATE), "no agent has such a key"),
    (lambda: gr.handoff(DESK, tool_name=LONG), "has more than 64 characters; give a shorter one as tool_name="),
    (lambda: gr.input_guardrail(name=LONG)(judge), "has 1,000,000 characters; give one of at most 128"),
    (lambda: gr.output_guardrail(name=LONG)(judge), "give one of at most 128 characters with name="),
    (lambda: gr.tool_input_guardrail(name=LONG)(judge), "give one of at most 128 characters with name="),
    (lambda: gr.tool_output_guardrail(name=LONG)(judge), "give one of at most 128 characters with name="),
    (lambda: gr.Fallback("x:y", on=5), "Fallback(on=5): the kinds are rate_limited"),  # type: ignore[arg-type]
    (lambda: gr.Fallback("x:y", on=[[]]), "Fallback(on=[]): the kinds are rate_limited"),  # type: ignore[list-item]
    (lambda: gr.Budget(cost=1, prices=5), "Budget(prices=5): give a dict"),  # type: ignore[arg-type]
    (lambda: gr.Budget(cost=1, prices={5: gr.Price(1, 1)}), "Budget(prices={5: "),  # type: ignore[dict-item]
    (lambda: gr.ContextWindow(5, count=5), "ContextWindow(count=5): give a function"),  # type: ignore[arg-type]
    (lambda: gr.Compaction(5, count=5), "Compaction(count=5): give a function"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("make", "words"), REFUSED)
def test_the_value_and_the_way_out_are_named(make, words):
    with pytest.raises(gr.UsageError) as caught:
        make()
    assert words in str(caught.value)
    assert len(str(caught.value)) < 1_000


def test_a_whole_number_of_any_size_is_a_limit():
    assert of(stop=[gr.stop.MaxRounds(10**400)]).stop == (gr.stop.MaxRounds(10**400),)
