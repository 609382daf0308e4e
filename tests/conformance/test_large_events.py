"""A large event is made in steps: other tasks have their turns meanwhile, and the run's events are as they would be."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

import greenroom as gr
from greenroom.actors.contract.secrets.redaction import WHOLE
from greenroom.actors.contract.stepwise import WINDOW
from greenroom.testing import call

from ..support.runs import agent, events_of, home, payloads

LINES = "2026-01-01 INFO app: GET /v1/runs?limit=50 took 12 ms\n" * 20_000
ROWS = [{"id": number, "line": LINES[:1_000]} for number in range(1_000)]


class Sibling:
    """Counts its turns while a task works that has nothing to wait for."""

    def __init__(self) -> None:
        self.turns = 0

    async def run(self) -> None:
        while True:
            await trio.lowlevel.checkpoint()
            self.turns += 1


@gr.tool
async def look(rows: list[dict[str, Any]]) -> int:
    """Count."""
    return len(rows)


@gr.tool(needs_approval=True)
async def refund(rows: list[dict[str, Any]]) -> int:
    """Pay each row back."""
    return len(rows)


@gr.tool
async def fetch() -> list[str]:
    """Fetch."""
    return [LINES[:200_000]] * 12


@asynccontextmanager
async def sibling_of() -> AsyncIterator[Sibling]:
    """A task beside the block, which is cancelled at the block's end."""
    sibling = Sibling()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sibling.run)
        yield sibling
        nursery.cancel_scope.cancel()


async def turns(shelf: Any, helper: gr.Agent[str], text: str) -> tuple[int, list[Any]]:
    """Return the turns of a sibling task during a run, and the run's events."""
    async with home(shelf) as runtime:
        async with sibling_of() as sibling:
            run = await runtime.start(helper, text)
            assert (await run.result()).output
        return sibling.turns, await events_of(run)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["input", "answer", "arguments", "result"])
async def test_others_have_their_turns_while_a_large_event_is_made(shelf, what):
    helper = {
        "input": lambda: agent("done"),
        "answer": lambda: agent(LINES[:250_000]),
        "arguments": lambda: agent(call("look", rows=ROWS), "done", tools=[look]),
        "result": lambda: agent(call("fetch"), "done", tools=[fetch]),
    }[what]()
    size = {"input": WHOLE, "answer": 250_000, "arguments": 1_000_000, "result": 139_264}[what]
    counted, events = await turns(shelf, helper, LINES if what == "input" else "hi")
    few, _ = await turns(shelf, agent("done"), "hi")
    assert counted - few >= size / WINDOW - 2
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert events[-1].type == "run.completed"


async def test_inputs_behind_a_large_event_wait_for_it_in_order(shelf, autojump_clock):
    """Two large results and a small one arrive together; each is written once, and the run ends."""
    async with home(shelf) as runtime:
        asked = [call("fetch", id="c1"), call("look", rows=ROWS[:1], id="c2"), call("fetch", id="c3")]
        run = await runtime.start(agent(asked, "done", tools=[look, fetch]), LINES)
        await run.send(LINES + "again")
        assert (await run.result()).output == "done"
        events = await events_of(run)
    assert sorted(result["callId"] for result in payloads(events, "tool.result")) == ["c1", "c2", "c3"]
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))


async def test_a_run_that_is_closed_while_a_large_event_is_made_keeps_its_result(shelf, autojump_clock):
    ran: list[int] = []

    @gr.tool(effect="pay")
    async def pay() -> list[str]:
        """Pay."""
        ran.append(1)
        return [LINES[:200_000]] * 12

    helper = agent(call("pay", id="c1"), "done", tools=[pay])
    async with home(shelf) as runtime:
        run = await runtime.start(helper, "hi")
        while not ran:  # noqa: ASYNC110 - the run works in these turns
            await trio.lowlevel.checkpoint()
    async with home(shelf, agents=[helper]) as runtime:
        await trio.testing.wait_all_tasks_blocked()
        outcome = await (await runtime.get(run.id)).result()
    assert ran == [1]
    assert outcome


@pytest.mark.slow
@pytest.mark.parametrize("asked", ["view", "wait"])
async def test_others_have_their_turns_while_a_large_question_is_shown(shelf, asked):
    helper = agent(call("refund", rows=ROWS), "done", tools=[refund])
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        await run.wait()
        async with sibling_of() as sibling:
            tickets = (await getattr(run, asked)()).tickets
        assert sibling.turns >= 1_000_000 / WINDOW - 2
        assert tickets[0].arguments == {"rows": ROWS}


@pytest.mark.slow
async def test_others_have_their_turns_while_a_large_event_is_replayed(shelf):
    helper = agent(call("look", rows=ROWS), "done", tools=[look])
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        await run.result()
        async with sibling_of() as sibling:
            assert (await runtime.replay(run.id)).equal
        assert sibling.turns >= 1_000_000 / WINDOW - 2
