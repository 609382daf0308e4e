"""Servers that ask in the middle of a call: the question is a ticket, and an answer reaches the server once."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.testing import FunctionModel, call

from ..support.nasty_servers import Nasty

ERAS = ("modern", "handshake")
WAYS = ("streams", "port")
ADA = {"name": "Ada"}
CONTENT = {"name": "Ada", "times": 2}
"""The answer with the default of what it leaves out."""

pytestmark = pytest.mark.slow


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def agent(tool: str, server: gr.mcp.Server) -> gr.Agent[Any]:
    def answer(request: gr.ModelRequest) -> Any:
        last = request.messages[-1]
        return call(f"mcp__nasty__{tool}", id="C") if last.role == "user" else last.content

    return gr.Agent("a", model=FunctionModel(answer), toolsets=[server])


@asynccontextmanager
async def asked(nasty: Nasty, tool: str, **options: Any) -> AsyncIterator[tuple[Any, gr.Ticket]]:
    """A run whose call of a tool waits for an answer, and the ticket."""
    with trio.fail_after(20):
        with nasty.running():
            async with gr.open_runtime(agents=[agent(tool, nasty.toolset(**options))]) as runtime:
                run = await runtime.start("a", "go")
                yield run, await ticket_of(run)


async def ticket_of(run: Any) -> gr.Ticket:
    outcome = await run.wait()
    assert isinstance(outcome, gr.Waiting), outcome
    (ticket,) = outcome.tickets
    return ticket


async def text_of(run: Any) -> str:
    """What the model reads as the result of the call, once the run has ended."""
    outcome = await run.wait()
    assert isinstance(outcome, gr.Completed), outcome
    return str(outcome.output)


# --- both eras -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("MC-6", "MC-7")
@pytest.mark.parametrize("era", ERAS)
async def test_a_question_of_a_server_is_a_ticket_and_its_answer_has_the_defaults(era, way, tmp_path):
    nasty = Nasty(tmp_path, era, way)
    async with asked(nasty, "asks") as (run, ticket):
        assert (ticket.reason, ticket.message, ticket.live) == (
            "user_input",
            "nasty asks: Who are you?",
            era == "handshake",
        )
        assert ticket.response_schema["required"] == ["name"]
        assert ticket.parameters["server"] == "nasty"
        assert not nasty.executed
        refused = await run.decide(ticket.approve({"name": 7}))
        assert refused.code == "invalid_result"
        await run.decide(ticket.approve(ADA))
        assert json.loads(await text_of(run)) == {"who": {"action": "accept", "content": CONTENT}}
    assert nasty.executed == {"asks": 1}


@pytest.mark.rule("MC-6", "MC-7")
@pytest.mark.parametrize("era", ERAS)
async def test_an_address_is_shown_and_approved_without_a_result(era, way, tmp_path):
    nasty = Nasty(tmp_path, era, way)
    async with asked(nasty, "asks_url") as (run, ticket):
        assert "https://login.example/start" in ticket.message
        assert ticket.response_schema is None
        await run.decide(ticket.approve())
        assert json.loads(await text_of(run)) == {"login": {"action": "accept"}}


@pytest.mark.rule("MC-6", "MC-7")
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("tool", "words"), [("asks_bad_url", "people are only shown https://"), ("asks_nested", "the field 'a'")]
)
async def test_a_question_that_people_cannot_be_shown_fails_the_call(era, tool, words, tmp_path):
    nasty = Nasty(tmp_path, era, "streams")
    with trio.fail_after(20):
        async with gr.open_runtime(agents=[agent(tool, nasty.toolset())]) as runtime:
            text = await text_of(await runtime.start("a", "go"))
    assert "'nasty'" in text
    assert words in text
    assert not nasty.executed


@pytest.mark.rule("MC-6", "MC-7")
@pytest.mark.parametrize("era", ERAS)
async def test_a_server_that_asks_again_and_again_is_left_after_ten_rounds(era, way, tmp_path):
    nasty = Nasty(tmp_path, era, way)
    async with asked(nasty, "asks_again") as (run, _):
        for _ in range(10):
            await run.decide((await ticket_of(run)).approve(ADA))
        assert "asks again and again" in await text_of(run)
    assert not nasty.executed


# --- the modern era --------------------------------------------------------------------------------------------------


@pytest.mark.rule("MC-6")
async def test_several_requests_of_a_round_are_one_ticket(way, tmp_path):
    async with asked(Nasty(tmp_path, "modern", way), "asks_twice") as (run, ticket):
        assert [*ticket.response_schema["properties"]] == ["a", "b"]
        await run.decide(ticket.approve({"a": ADA, "b": True}))
        assert json.loads(await text_of(run)) == {
            "a": {"action": "accept", "content": CONTENT},
            "b": {"action": "accept"},
        }


@pytest.mark.rule("MC-6")
@pytest.mark.parametrize(("tool", "method"), [("samples", "sampling/createMessage"), ("roots", "roots/list")])
async def test_a_request_that_is_not_for_people_fails_the_call_and_is_named(tool, method, way, tmp_path):
    nasty = Nasty(tmp_path, "modern", way)
    with trio.fail_after(20):
        with nasty.running():
            async with gr.open_runtime(agents=[agent(tool, nasty.toolset())]) as runtime:
                text = await text_of(await runtime.start("a", "go"))
    assert f"{method!r} of this kind is not offered to servers" in text
    assert not nasty.executed


@pytest.mark.rule("MC-6")
async def test_a_state_that_is_too_large_to_be_kept_fails_the_call(tmp_path):
    nasty = Nasty(tmp_path, "modern", "streams")
    with trio.fail_after(20):
        async with gr.open_runtime(agents=[agent("asks_large", nasty.toolset())]) as runtime:
            text = await text_of(await runtime.start("a", "go"))
    assert "MCP server 'nasty' wants kept" in text
    assert "20," in text
    assert not nasty.executed


@pytest.mark.rule("MC-6")
async def test_a_denied_question_ends_the_call_and_the_server_is_not_asked_again(way, tmp_path):
    nasty = Nasty(tmp_path, "modern", way)
    async with asked(nasty, "asks") as (run, ticket):
        await run.decide(ticket.deny())
        await text_of(run)
    assert not nasty.executed


@pytest.mark.rule("MC-6")
async def test_a_modern_question_waits_over_a_restart_and_is_answered_without_the_agents(way, tmp_path):
    """Asked by one runtime, judged and decided by one without agents, and the call is repeated by a third."""
    nasty, store = Nasty(tmp_path, "modern", way), gr.SQLiteStore(tmp_path / "runs.db")
    with trio.fail_after(20):
        with nasty.running():
            async with gr.open_runtime(store, agents=[agent("asks", nasty.toolset())]) as runtime:
                run = await runtime.start("a", "go", run_id="r")
                ticket = await ticket_of(run)
            async with gr.open_runtime(store, agents=[]) as runtime:
                run = await runtime.get("r")
                assert (await run.decide(ticket.approve({}))).code == "invalid_result"
                assert (await run.decide(ticket.approve(ADA))).status == "accepted"
            async with gr.open_runtime(store, agents=[agent("asks", nasty.toolset())]) as runtime:
                run = await runtime.get("r")
                assert json.loads(await text_of(run))["who"]["content"] == CONTENT
                assert (await runtime.replay("r")).equal
    assert nasty.executed == {"asks": 1}


# --- the handshake era -----------------------------------------------------------------------------------------------


@pytest.mark.rule("MC-7")
async def test_a_denied_question_is_declined_and_the_server_goes_on(way, tmp_path):
    nasty = Nasty(tmp_path, "handshake", way)
    async with asked(nasty, "asks") as (run, ticket):
        await run.decide(ticket.deny())
        assert json.loads(await text_of(run)) == {"who": {"action": "decline"}}
    assert nasty.executed == {"asks": 1}


@pytest.mark.rule("MC-7")
async def test_a_question_of_a_session_is_withdrawn_by_a_restart(way, tmp_path):
    nasty, store = Nasty(tmp_path, "handshake", way), gr.SQLiteStore(tmp_path / "runs.db")
    with trio.fail_after(20):
        with nasty.running():
            async with gr.open_runtime(store, agents=[agent("asks", nasty.toolset())], drain=0) as runtime:
                run = await runtime.start("a", "go", run_id="r")
                ticket = await ticket_of(run)
                assert ticket.live
            async with gr.open_runtime(store, agents=[agent("asks", nasty.toolset())]) as runtime:
                run = await runtime.get("r")
                async with run.events() as events:
                    async for event in events:
                        if event.type == "run.approval.resolved":
                            break
                assert (event.payload["resolution"], event.payload["reason"][:10]) == ("withdrawn", "owner_lost")
                again = await ticket_of(run)
                assert again.reason == "outcome_unknown"
                late = await run.decide(ticket.approve(ADA))
                assert (late.status, late.code) == ("rejected", "already_decided")
                await run.decide(again.deny())
                await text_of(run)
    assert not nasty.executed


@pytest.mark.rule("MC-7")
async def test_two_runs_that_are_asked_by_one_address_get_their_own_questions(tmp_path):
    nasty = Nasty(tmp_path, "handshake", "port")
    with trio.fail_after(20):
        with nasty.running():
            async with gr.open_runtime(agents=[agent("asks", nasty.toolset())]) as runtime:
                runs = [await runtime.start("a", "go") for _ in range(2)]
                for number, run in enumerate(runs):
                    ticket = await ticket_of(run)
                    await run.decide(ticket.approve({"name": f"N{number}"}))
                for number, run in enumerate(runs):
                    assert json.loads(await text_of(run))["who"]["content"]["name"] == f"N{number}"
    assert nasty.executed == {"asks": 2}
