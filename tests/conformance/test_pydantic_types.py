"""Runs whose tools, questions, state and outputs have types of pydantic: what is stored is read as it was."""

from typing import Annotated, Any

import pydantic
import pytest

import greenroom as gr
from greenroom.testing import call

from ..support.runs import agent, home


class Item(pydantic.BaseModel):
    sku: str
    qty: int = pydantic.Field(default=1, ge=1, alias="quantity")


class Address(pydantic.BaseModel):
    city: str

    @pydantic.field_validator("city")
    @classmethod
    def _upper(cls, city: str) -> str:
        if not city[:1].isupper():
            raise ValueError("a city begins with a capital")
        return city


class Receipt(pydantic.BaseModel):
    items: list[Item]
    city: str
    word: pydantic.SecretStr | None = None


BASKET = gr.StateKey("basket", list[Item], default=[], scope="thread")


@gr.tool
async def order(ctx: gr.ToolContext[Any], items: list[Item], gift: Annotated[bool, "wrap it"] = False) -> Receipt:
    """Order items."""
    if ctx.decision is None:
        raise gr.Suspend(message="Where to?", response_schema=Address)
    address = ctx.decision.read(Address)
    ctx.state.set(BASKET, [*ctx.state[BASKET], *items])
    return Receipt(items=ctx.state[BASKET], city=address.city)


ITEMS = [{"sku": "tea", "quantity": 2}]
ANSWER = '{"items": [{"sku": "tea"}], "city": "Bern", "word": "s3"}'
WRONG = call("order", {"items": [{"sku": "tea", "quantity": 0}]}, id="w")


def shop() -> gr.Agent[Any]:
    return agent(
        WRONG,
        call("order", {"items": ITEMS}, id="o"),
        '{"items": [{}], "city": 3}',
        ANSWER,
        tools=[order],
        state=[BASKET],
        output_type=Receipt,
    )


@pytest.mark.rule("OU-16")
async def test_values_of_pydantic_pass_through_the_store_and_a_restart(shelf, autojump_clock):
    async with home(shelf, agents=[shop()]) as runtime:
        run = await runtime.start("helper", "tea", run_id="r", thread_id="t")
        (ticket,) = (await run.wait()).tickets
        assert ticket.response_schema is not None
        assert ticket.response_schema["required"] == ["city"]
        refused = await run.decide(ticket.approve(result={"town": "Bern"}))
        assert (refused.status, refused.code) == ("rejected", "invalid_result")
    async with home(shelf, agents=[shop()]) as runtime:
        run = await runtime.get("r")
        (ticket,) = (await run.wait()).tickets
        await run.decide(ticket.approve(result=Address(city="Bern")))
        outcome = await run.result()
        assert isinstance(outcome, gr.Completed)
        view = await run.view()
        assert (await runtime.replay("r")).equal
    receipt = outcome.output
    assert (receipt, type(receipt)) == (Receipt(items=[Item(sku="tea")], city="Bern", word="s3"), Receipt)  # type: ignore[arg-type]
    assert receipt.word.get_secret_value() == "s3"
    assert view.state == {"basket": ITEMS}
    texts = [message.content for message in view.messages if message.role == "tool"]
    fault = "Input should be greater than or equal to 1 - at `$.items[0].quantity`"
    assert texts == [
        f"Invalid arguments: {fault}. The arguments are: items, gift.",
        '{"items":[{"sku":"tea","quantity":2}],"city":"Bern","word":null}',
    ]
    asked = [message.content for message in view.messages if message.role == "user"]
    assert "Field required - at `$.items[0].sku`; Input should be a valid string - at `$.city`" in asked[-1]


@pytest.mark.rule("OU-16")
async def test_a_validator_judges_an_answer_when_the_body_reads_it(shelf, autojump_clock):
    async with home(shelf, agents=[shop()]) as runtime:
        run = await runtime.start("helper", "tea", run_id="r", thread_id="t")
        (ticket,) = (await run.wait()).tickets
        await run.decide(ticket.approve(result={"city": "bern"}))
        await run.result()
        view = await run.view()
    assert "the answer does not fit: a city begins with a capital - at `$.city`" in [
        message.content for message in view.messages if message.role == "tool"
    ]


@pytest.mark.rule("OU-16")
async def test_edited_arguments_are_checked_by_pydantic(shelf, autojump_clock):
    @gr.tool(needs_approval=True)
    async def buy(item: Item) -> int:
        return item.qty

    model = agent(call("buy", {"item": {"sku": "tea"}}, id="b"), "done", tools=[buy])
    async with home(shelf, agents=[model]) as runtime:
        run = await runtime.start("helper", "tea")
        (ticket,) = (await run.wait()).tickets
        refused = await run.decide(ticket.approve(edited_arguments={"item": {"sku": "tea", "quantity": 0}}))
        assert (refused.status, refused.code) == ("rejected", "invalid_arguments")
        assert "- at `$.item.quantity`" in str(refused.detail)
        await run.decide(ticket.approve(edited_arguments={"item": Item(sku="cup", quantity=3)}))
        await run.result()
        (text,) = (message.content for message in (await run.view()).messages if message.role == "tool")
    assert text.endswith("{'item': {'sku': 'cup', 'quantity': 3}} before the call ran.)\n3")
