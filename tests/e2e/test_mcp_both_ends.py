"""Our MCP client at our MCP server: a question of the far run is a ticket of the near run, over a restart of both."""

from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.testing import FunctionModel, call

from ..support.gateway import TOKEN, gateway

pytestmark = pytest.mark.slow
PAYER = "mcp__far__payer"


def payer(paid: list[int]) -> gr.Agent[Any]:
    """The far agent: it pays when people allow it, and asks them for a colour."""

    @gr.tool(needs_approval=True)
    async def pay(invoice: int) -> str:
        paid.append(invoice)
        return f"invoice {invoice} is paid"

    @gr.tool
    async def colour(ctx: gr.ToolContext[Any]) -> str:
        schema = {"type": "object", "properties": {"colour": {"type": "string", "default": "red"}}}
        if ctx.decision is None:
            raise gr.Suspend(message="Which colour?", response_schema=schema)
        return f"it is {ctx.decision.result}"

    def answer(request: gr.ModelRequest) -> Any:
        last = request.messages[-1]
        if last.role == "user":
            return call("pay", invoice=7) if "pay" in last.content else call("colour")
        return last.content

    return gr.Agent("payer", model=FunctionModel(answer), tools=[pay, colour], description="Pays.")


def clerk(url: str, text: str) -> gr.Agent[Any]:
    """The near agent, whose only tool is the far one."""

    def answer(request: gr.ModelRequest) -> Any:
        last = request.messages[-1]
        return call(PAYER, {"input": text}, id="C") if last.role == "user" else last.content

    rules = {"*": gr.mcp.Rule(needs_approval=False)}
    server = gr.mcp.Server("far", url=f"{url}/v1/mcp", headers={"Authorization": f"Bearer {TOKEN}"}, tools=rules)
    return gr.Agent("clerk", model=FunctionModel(answer), toolsets=[server])


async def ticket_of(run: Any) -> gr.Ticket:
    outcome = await run.wait()
    assert isinstance(outcome, gr.Waiting), outcome
    (ticket,) = outcome.tickets
    return ticket


@pytest.mark.rule("MC-6", "MS-4")
@pytest.mark.parametrize("decision", ["approve", "deny"])
async def test_a_permission_of_the_far_run_is_given_at_the_near_run_over_a_restart_of_both(decision, tmp_path):
    paid: list[int] = []
    far, near = gr.SQLiteStore(tmp_path / "far.db"), gr.SQLiteStore(tmp_path / "near.db")
    with trio.fail_after(30):
        async with gr.open_runtime(far, agents=[payer(paid)]) as there, gateway(there) as address:
            async with gr.open_runtime(near, agents=[clerk(address.url, "pay 7")]) as here:
                ticket = await ticket_of(await here.start("clerk", "go", run_id="r"))
                assert ticket.response_schema["properties"]["decision"]["enum"] == ["approve", "deny"]
                assert '{"invoice":7}' in ticket.message
        async with gr.open_runtime(far, agents=[payer(paid)]) as there, gateway(there) as address:
            async with gr.open_runtime(near, agents=[clerk(address.url, "pay 7")]) as here:
                run = await here.get("r")
                await run.decide(ticket.approve({"decision": decision}))
                text = str((await run.result()).output)
    assert (text, paid) == ("invoice 7 is paid", [7]) if decision == "approve" else (paid == [] and "denied" in text)


@pytest.mark.rule("MC-6", "MS-4")
async def test_a_question_of_the_far_run_is_answered_at_the_near_run_with_its_default():
    with trio.fail_after(30):
        async with gr.open_runtime(agents=[payer([])]) as there, gateway(there) as address:
            async with gr.open_runtime(agents=[clerk(address.url, "a colour")]) as here:
                run = await here.start("clerk", "go")
                ticket = await ticket_of(run)
                assert "Which colour?" in ticket.message
                await run.decide(ticket.approve({}))
                assert (await run.result()).output == "it is {'colour': 'red'}"


@pytest.mark.rule("MC-6", "MS-6")
async def test_what_was_decided_at_the_far_run_meanwhile_is_what_the_near_run_gets():
    paid: list[int] = []
    with trio.fail_after(30):
        async with gr.open_runtime(agents=[payer(paid)]) as there, gateway(there) as address:
            async with gr.open_runtime(agents=[clerk(address.url, "pay 7")]) as here:
                run = await here.start("clerk", "go")
                ticket = await ticket_of(run)
                (far,) = [line.run_id for line in (await there.runs()).runs]
                far_run = await there.get(far)
                await far_run.decide((await ticket_of(far_run)).deny())
                await far_run.wait()
                await run.decide(ticket.approve({"decision": "approve"}))
                assert "denied" in str((await run.result()).output)
    assert paid == []
