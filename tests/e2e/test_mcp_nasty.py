"""A server that misbehaves: each fault has a name, no effect is repeated unasked, and nothing of ours hangs."""

import logging
from contextlib import AsyncExitStack
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.testing import FunctionModel, call
from greenroom.transport.client import connect

from ..support.gateway import TOKEN, gateway
from ..support.nasty_servers import UNASKED, Nasty

ERAS, WAYS = ("modern", "handshake"), ("streams", "port")
EDITED = "(The arguments were changed to {'text': 'edited'} before the call ran.)\nedited"
SAFE = gr.mcp.Rule(needs_approval=False, replay="safe")

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """The log says what the server does wrong."""
    caplog.set_level(logging.CRITICAL, "greenroom")


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=WAYS)
def nasty(request: pytest.FixtureRequest, era: str, tmp_path: Any) -> Nasty:
    return Nasty(tmp_path, era, request.param)


@pytest.fixture
def program(era: str, tmp_path: Any) -> Nasty:
    return Nasty(tmp_path, era, "streams")


def agent(
    server: gr.Toolset, *tools: str, seen: list[gr.ModelRequest] | None = None, **arguments: str
) -> gr.Agent[Any]:
    """An agent that calls one tool in each step, and ends with the text of the last result."""

    def answer(request: gr.ModelRequest) -> Any:
        if seen is not None:
            seen.append(request)
        done = sum(message.role == "tool" for message in request.messages)
        if done < len(tools):
            return call(f"mcp__nasty__{tools[done]}", arguments, id=f"C{done}")
        return request.messages[-1].content

    return gr.Agent("a", model=FunctionModel(answer), toolsets=[server])


async def said(nasty: Nasty, *tools: str, rule: gr.mcp.Rule = UNASKED, **options: Any) -> str:
    """The output of a run that calls the tools: what the model reads of the last one."""
    with nasty.running(), trio.fail_after(20):
        outcome = await gr.run(agent(nasty.toolset(rule, **options), *tools), "go")
    assert isinstance(outcome, gr.Completed), outcome
    return str(outcome.output)


# --- calls -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("MC-8")
@pytest.mark.parametrize("answer", ["deny", "result"])
async def test_a_server_that_dies_in_a_call_is_not_called_again_unasked(program, answer):
    with trio.fail_after(20):
        async with gr.open_runtime(agents=[agent(program.toolset(), "dies")]) as runtime:
            run = await runtime.start("a", "go")
            (ticket,) = (await run.wait()).tickets
            assert (ticket.reason, program.executed) == ("outcome_unknown", {"dies": 1})
            assert "'nasty'" in ticket.message
            await run.decide(ticket.approve("as we saw it") if answer == "result" else ticket.deny())
            outcome = await run.wait()
    assert (answer == "deny") or outcome.output == "as we saw it"
    assert program.executed == {"dies": 1}


@pytest.mark.rule("MC-8")
async def test_a_call_that_may_be_repeated_is_made_once_more(program):
    assert await said(program, "dies_once", rule=SAFE) == "dies_once ran 2 times"
    assert program.executed == {"dies_once": 2}


@pytest.mark.rule("MC-8")
async def test_a_call_that_may_be_repeated_fails_when_the_server_dies_twice(program):
    assert "twice in one call" in await said(program, "dies", rule=SAFE)
    assert program.executed == {"dies": 2}


@pytest.mark.rule("MC-8")
async def test_a_server_that_hangs_is_left_after_the_limit_of_its_tool(nasty):
    limited = gr.mcp.Rule(needs_approval=False, timeout=0.2)
    text = await said(nasty, "hangs", "count", tools={"hangs": limited, "*": UNASKED})
    assert (text, nasty.executed) == ("count ran 1 times", {"hangs": 1, "count": 1})


@pytest.mark.rule("MC-8")
async def test_a_server_that_says_nothing_is_left_after_its_idle_time(nasty):
    assert "said nothing for 0.2 s" in await said(nasty, "hangs", idle=0.2)


@pytest.mark.rule("MC-8")
async def test_a_run_that_waits_for_a_server_that_hangs_is_cancelled(nasty):
    with nasty.running(), trio.fail_after(20):
        async with gr.open_runtime(agents=[agent(nasty.toolset(), "hangs")]) as runtime:
            run = await runtime.start("a", "go")
            async with run.events() as events:
                async for event in events:
                    if event.type == "run.tool.started":
                        break
            await run.cancel()
            assert isinstance(await run.wait(), gr.Cancelled)


@pytest.mark.rule("MC-5")
async def test_a_flood_of_a_server_harms_no_call(program):
    """Progress that nobody reads in time, notifications that nobody knows, answers that nobody has asked for."""
    assert await said(program, "floods", "count") == "count ran 1 times"


@pytest.mark.rule("MC-4")
async def test_a_result_of_10_mb_fails_its_call_and_no_other(nasty):
    text = await said(nasty, "big")
    assert len(text) < 2_000
    assert "10" in text or "bytes" in text
    assert await said(nasty, "big", "count") == "count ran 1 times"


@pytest.mark.rule("MC-4")
@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("bad_result", "has sent an invalid result"),
        ("bad_output", "does not fit the tool's outputSchema"),
        ("fails", "the disk is full"),
    ],
)
async def test_a_result_that_is_wrong_is_a_failed_call(nasty, tool, words):
    assert words in await said(nasty, tool)


@pytest.mark.rule("MC-8")
async def test_an_error_of_the_server_is_no_lost_connection_whatever_its_code(nasty):
    """The code -32000, of which the SDK also makes a lost connection, is a usual one."""
    assert "has refused the call: the error has" in await said(nasty, "refuses")
    assert nasty.executed == {"refuses": 1}


@pytest.mark.rule("MC-4")
async def test_structured_content_is_the_result(nasty):
    assert await said(nasty, "structured") == '{"n":7}'


# --- lists -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("MC-2")
async def test_1000_tools_are_offered_in_the_order_of_the_server(program):
    seen: list[gr.ModelRequest] = []
    with trio.fail_after(20):
        outcome = await gr.run(agent(program.toolset(many=1_000), "tool_999", seen=seen), "go")
    assert outcome.output == "tool_999 ran 1 times"
    names = [tool.name for tool in seen[0].tools]
    assert [name for name in names if "__tool_" in name] == [f"mcp__nasty__tool_{number}" for number in range(1_000)]


@pytest.mark.rule("MC-2", "TS-6")
async def test_of_two_tools_with_one_name_the_first_counts_and_an_invalid_schema_leaves_its_tool_out(nasty):
    seen: list[gr.ModelRequest] = []
    with nasty.running(), trio.fail_after(20):
        async with gr.open_runtime(agents=[agent(nasty.toolset(), "twin", seen=seen)]) as runtime:
            run = await runtime.start("a", "go")
            assert (await run.result()).output == "twin ran 1 times"
            async with run.events() as events:
                degraded = [event.payload["reason"] async for event in events if event.type == "run.degraded"]
    assert degraded == ["tool_name_taken"]
    texts = [tool.description for tool in seen[0].tools if tool.name == "mcp__nasty__twin"]
    assert texts == ["The first twin."]
    assert not [tool for tool in seen[0].tools if tool.name.endswith("bad_schema")]


@pytest.mark.rule("TS-4", "MC-3")
@pytest.mark.parametrize(("age", "restarts"), [("modern", True), ("modern", False), ("handshake", True)])
@pytest.mark.parametrize("way", WAYS)
async def test_a_description_that_changes_behind_an_approval_is_asked_about_again(age, restarts, way, tmp_path):
    nasty, store = Nasty(tmp_path, age, way), gr.MemoryStore()
    with nasty.running(), trio.fail_after(20):
        working = agent(nasty.toolset(gr.mcp.Rule()), "shifting")
        async with AsyncExitStack() as stack:
            runtime = await stack.enter_async_context(gr.open_runtime(store, agents=[working]))
            run = await runtime.start("a", "go", run_id="r")
            (ticket,) = (await run.wait()).tickets
            nasty.describe("Deletes all.")
            if restarts:
                await stack.aclose()
                runtime = await stack.enter_async_context(gr.open_runtime(store, agents=[working]))
            run = await runtime.get("r")
            await run.decide(ticket.approve())
            (again,) = (await run.wait()).tickets
            texts = str(again.parameters)
            assert "Deletes nothing." in texts
            assert "Deletes all." in texts
            assert not nasty.executed
            await run.decide(again.approve())
            assert (await run.result()).output == "shifting ran 1 times"
    assert nasty.executed == {"shifting": 1}


@pytest.mark.rule("TS-3", "MC-2")
async def test_a_description_that_changes_behind_a_running_step_counts_in_the_next_one(nasty):
    seen: list[gr.ModelRequest] = []

    def answer(request: gr.ModelRequest) -> Any:
        seen.append(request)
        if len(seen) == 1:
            nasty.describe("Deletes all.")
            return call("mcp__nasty__shifting", id="C")
        return "done"

    with nasty.running(), trio.fail_after(20):
        outcome = await gr.run(gr.Agent("a", model=FunctionModel(answer), toolsets=[nasty.toolset()]), "go")
    assert (outcome.output, nasty.executed) == ("done", {"shifting": 1})
    texts = [tool.description for request in seen for tool in request.tools if tool.name.endswith("shifting")]
    # a server of the handshake era has not said that its list has changed, so the list is kept for a minute
    assert texts == ["Deletes nothing.", "Deletes all." if nasty.era == "modern" else "Deletes nothing."]


# --- decisions, replays, forks ---------------------------------------------------------------------------------------


@pytest.mark.rule("TS-2", "MC-3")
async def test_a_call_is_decided_with_edited_arguments_without_its_agents_and_replayed_and_forked_without_its_server(
    nasty,
):
    store = gr.MemoryStore()
    with trio.fail_after(20):
        with nasty.running():
            working = agent(nasty.toolset(gr.mcp.Rule()), "echo", text="as called")
            async with gr.open_runtime(store, agents=[working]) as runtime:
                run = await runtime.start("a", "go", run_id="r")
                (ticket,) = (await run.wait()).tickets
            async with gr.open_runtime(store, agents=[]) as runtime, gateway(runtime) as address:
                async with connect(address.url, token=TOKEN) as client:
                    wrong = await client.decide("r", ticket.ticket_id, "approve", edited_arguments={"text": 7})
                    assert wrong.code == "invalid_arguments"
                    edited = {"text": "edited"}
                    done = await client.decide("r", ticket.ticket_id, "approve", edited_arguments=edited)
                    assert done.status == "accepted"
            async with gr.open_runtime(store, agents=[working]) as runtime:
                assert (await (await runtime.get("r")).result()).output == EDITED
        async with gr.open_runtime(store, agents=[agent(nasty.toolset())]) as runtime:
            assert (await runtime.replay("r")).equal
            fork = await runtime.fork("r", step=1)
            assert (await fork.result()).output == EDITED
