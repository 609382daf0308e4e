"""An agent of one call: its input, its ends, and what cannot be one."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

import greenroom as gr
from greenroom.testing import FakeToolset


@gr.tool_input_guardrail
def below_a_hundred(ctx: gr.GateContext, arguments: Mapping[str, Any]) -> gr.Reject | None:
    return gr.Reject("Too much.") if arguments["cents"] >= 100 else None


@gr.tool(needs_approval=True, effect="publish", input_guardrails=[below_a_hundred])
async def pay(cents: int, to: str = "ada") -> dict[str, Any]:
    """Pay somebody."""
    if to == "nobody":
        raise gr.ToolError("there is no such account")
    return {"paid": cents, "to": to}


PAY = gr.tool_agent(pay)


def test_the_agent_has_name_description_and_schema_of_the_tool() -> None:
    assert (PAY.key, PAY.description) == ("pay", "Pay somebody.")
    assert PAY.model.input_schema == pay.schema
    assert repr(PAY.model) == "<ToolModel of <Tool 'pay'>>"
    other = gr.tool_agent(pay, "payments", description="Pays.")
    assert (other.key, other.description) == ("payments", "Pays.")


def test_a_model_that_reads_any_text_has_no_schema_of_the_input() -> None:
    assert gr.Model.input_schema is None


@pytest.mark.trio
@pytest.mark.parametrize("edited", [None, {"cents": 3, "to": "bob"}])
async def test_the_result_of_the_approved_call_is_the_output_of_the_run(edited: dict[str, Any] | None) -> None:
    async with gr.open_runtime(agents=[PAY]) as runtime:
        run = await runtime.start("pay", json.dumps({"cents": 5}))
        waiting = await run.wait()
        assert isinstance(waiting, gr.Waiting)
        (ticket,) = waiting.tickets
        assert (ticket.tool, ticket.arguments) == ("pay", {"cents": 5})
        await run.decide(ticket.approve(edited_arguments=edited, by="ada"))
        outcome = await run.result()
        assert isinstance(outcome, gr.Completed)
        assert outcome.output == ({"paid": 5, "to": "ada"} if edited is None else {"paid": 3, "to": "bob"})
        report = await runtime.replay(run.id)
        assert isinstance(report, gr.ReplayReport)
        assert report.difference is None


@pytest.mark.trio
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hello", "the arguments are not JSON"),
        ("[5]", "the arguments are an array, not a JSON object"),
        ("{}", "Invalid arguments"),
        ('{"cents": "many"}', "Invalid arguments"),
    ],
)
async def test_arguments_that_do_not_fit_fail_the_run_with_their_fault(text: str, words: str) -> None:
    async with gr.open_runtime(agents=[PAY]) as runtime:
        outcome = await (await runtime.start("pay", text)).wait()
    assert isinstance(outcome, gr.Failed)
    assert outcome.code == "model_refusal"
    assert words in outcome.message


@pytest.mark.trio
async def test_a_body_that_fails_fails_the_run() -> None:
    async with gr.open_runtime(agents=[PAY]) as runtime:
        run = await runtime.start("pay", '{"cents": 5, "to": "nobody"}')
        waiting = await run.wait()
        assert isinstance(waiting, gr.Waiting)
        await run.decide(waiting.tickets[0].approve(by="ada"))
        outcome = await run.wait()
    assert isinstance(outcome, gr.Failed)
    assert outcome.code == "tool_error"
    assert "there is no such account" in outcome.message


@pytest.mark.trio
@pytest.mark.parametrize("words", [{}, {"reason": "not today"}, {"text": "Ask next week."}], ids=str)
async def test_a_denied_call_has_no_output(words: dict[str, str]) -> None:
    async with gr.open_runtime(agents=[PAY]) as runtime:
        run = await runtime.start("pay", '{"cents": 5}')
        waiting = await run.wait()
        assert isinstance(waiting, gr.Waiting)
        await run.decide(waiting.tickets[0].deny(by="ada", **words))
        outcome = await run.wait()
    if "text" in words:
        assert isinstance(outcome, gr.Failed)
        assert (outcome.code, "Ask next week." in outcome.message) == ("model_refusal", True)
    else:
        assert isinstance(outcome, gr.Cancelled)


@pytest.mark.trio
async def test_the_text_of_a_guardrail_that_rejects_the_call_is_the_output() -> None:
    async with gr.open_runtime(agents=[PAY]) as runtime:
        outcome = await (await runtime.start("pay", '{"cents": 500}')).wait()
    assert isinstance(outcome, gr.Completed)
    assert outcome.output == "Too much."


@pytest.mark.trio
async def test_later_runs_of_a_thread_read_their_own_input() -> None:
    doubler = gr.Tool.from_schema(double, schema={"type": "object", "properties": {"n": {"type": "integer"}}})
    agent = gr.tool_agent(doubler)
    async with gr.open_runtime(agents=[agent]) as runtime:
        outputs = []
        for number in (1, 4):
            run = await runtime.start(agent, json.dumps({"n": number}), thread_id="t")
            outcome = await run.result()
            assert isinstance(outcome, gr.Completed)
            outputs.append(outcome.output)
    assert outputs == [2, 8]


async def double(ctx: gr.ToolContext, arguments: dict[str, Any]) -> int:
    """Double a number."""
    return int(arguments["n"]) * 2


@gr.tool(background=True)
async def crawl() -> str:
    """Runs beside its run."""
    return ""


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        (double, "give a function decorated with @gr.tool"),
        (gr.handoff("other"), "give a function decorated with @gr.tool"),
        (FakeToolset("found"), "give a function decorated with @gr.tool"),
        (crawl, "define the tool without background=True"),
    ],
    ids=["a function", "a handoff", "a toolset", "a background tool"],
)
def test_what_cannot_be_an_agent_of_one_call_is_named(tool: Any, words: str) -> None:
    with pytest.raises(gr.AgentDefinitionError, match=words):
        gr.tool_agent(tool)


def test_options_that_the_call_decides_are_refused() -> None:
    options: dict[str, Any] = {"model": "openai:gpt-5-mini"}
    with pytest.raises(gr.AgentDefinitionError, match=r"'model'.*description, plugins, state, deps_type"):
        gr.tool_agent(pay, **options)
