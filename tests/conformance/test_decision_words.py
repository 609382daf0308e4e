"""A decision has four words, two for each action, on every road; a wrong word is refused with the nearest one."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

import greenroom as gr
from greenroom.actors.contract.decisions import ACTION_WORDS
from greenroom.testing import call
from greenroom.transport import Address, connect

from ..support.gateway import TOKEN, gateway, http, welcomed
from ..support.runs import agent

pytestmark = pytest.mark.slow

WORDS = tuple(ACTION_WORDS)
Road = Callable[[gr.Run[Any], Address, str, str], Awaitable[str]]
"""(run, gateway, word, id of the decision) -> the status of the answer, or the text of the refusal."""


@gr.tool(needs_approval=True, effect="write")
async def refund(order: str) -> str:
    """Pay back."""
    return f"paid for {order}"


async def by_run(run: gr.Run[Any], address: Address, word: str, name: str) -> str:
    try:
        return (await run.decide("c1", word, decision_id=name)).status  # type: ignore[call-overload]
    except gr.UsageError as error:
        return str(error)


async def by_whole_decision(run: gr.Run[Any], address: Address, word: str, name: str) -> str:
    try:
        decision = gr.Decision(target="c1", action=word, decision_id=name)  # type: ignore[arg-type]
    except gr.UsageError as error:
        return str(error)
    return (await run.decide_all([decision]))[0].status


async def by_client(run: gr.Run[Any], address: Address, word: str, name: str) -> str:
    async with connect(address.url, token=TOKEN) as client:
        try:
            return (await client.decide(run.id, "c1", word, decision_id=name)).status  # type: ignore[call-overload]
        except gr.UsageError as error:
            return str(error)


async def by_frame(run: gr.Run[Any], address: Address, word: str, name: str) -> str:
    async with welcomed(address) as talk:
        answer = await talk.ask("decide", id=name, run=run.id, target="c1", action=word)
    return str(answer.get("status") or answer["message"])


async def by_post(run: gr.Run[Any], address: Address, word: str, name: str) -> str:
    body = {"type": "decide", "target": "c1", "action": word}
    path, key = f"/v1/runs/{run.id}/commands", {"Idempotency-Key": name}
    found = (await http(address, "POST", path, body=body, headers=key)).json()
    return str(found.get("status") or found["error"]["message"])


ROADS: tuple[Road, ...] = (by_run, by_whole_decision, by_client, by_frame, by_post)


@asynccontextmanager
async def waiting() -> AsyncIterator[tuple[gr.Run[Any], Address]]:
    clerk = agent(call("refund", order="7", id="c1"), "done", tools=[refund])
    async with gr.open_runtime(agents=[clerk]) as runtime, gateway(runtime) as address:
        run = await runtime.start(clerk, "hi", thread_id="th")
        await run.wait()
        yield run, address


async def came_to(run: gr.Run[Any]) -> str:
    await run.result()
    return str((await run.view()).calls["c1"].value)


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("road", ROADS)
async def test_each_word_decides_on_each_road(road: Road, word: str) -> None:
    async with waiting() as (run, address):
        assert await road(run, address, word, "d1") == "accepted"
        assert await came_to(run) == ("succeeded" if word in ("approve", "resume") else "cancelled")


@pytest.mark.parametrize("first", WORDS)
@pytest.mark.parametrize("road", ROADS)
async def test_the_two_words_of_an_action_are_one_decision(road: Road, first: str) -> None:
    async with waiting() as (run, address):
        assert await by_run(run, address, first, "d1") == "accepted"
        same = next(word for word in WORDS if word != first and ACTION_WORDS[word] == ACTION_WORDS[first])
        assert await road(run, address, same, "d1") == "duplicate"


@pytest.mark.parametrize("road", ROADS)
async def test_a_wrong_word_is_refused_with_the_nearest_one_and_decides_nothing(road: Road) -> None:
    async with waiting() as (run, address):
        for wrong, near in (("aprove", "approve"), ("denied", "deny"), ("resumes", "resume"), ("cancle", "cancel")):
            assert f"'{wrong}' is not known; did you mean '{near}'?" in (await road(run, address, wrong, "d1")).replace(
                "action=", ""
            )
        assert len((await run.view()).tickets) == 1


@pytest.mark.parametrize("word", [*WORDS, "aprove"])
async def test_an_ag_ui_answer_takes_the_words_as_its_action(word: str) -> None:
    async with waiting() as (run, address):
        (ticket,) = (await run.view()).tickets
        entry = {"interruptId": ticket.ticket_id, "status": "resolved", "payload": {"action": word}}
        body = {"threadId": "th", "runId": "n2", "messages": [], "state": {}, "tools": [], "context": []}
        body |= {"forwardedProps": {}, "protocolVersion": "1.0", "resume": [entry]}
        reply = await http(address, "POST", "/v1/ag-ui/agents/helper/run", body=body)
        if word == "aprove":
            assert b"payload.action='aprove' is not known; did you mean 'approve'?" in reply.body
            assert len((await run.view()).tickets) == 1
        else:
            assert await came_to(run) == ("succeeded" if word in ("approve", "resume") else "cancelled")
