"""A program on asyncio is cancelled at each of its steps: nothing is left behind, and the next attempt ends the run."""

import asyncio  # noqa: TID251 - the host of the tests
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator
from pathlib import Path
from typing import Any

import pytest

import greenroom as gr
from greenroom import aio
from greenroom.testing import ScriptedModel, call


class CancelledAt:
    """Awaits a coroutine, and cancels its task at one of its waits."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], step: int) -> None:
        self.coroutine, self.step, self.steps = coroutine, step, 0

    def __await__(self) -> Generator[Any, Any, Any]:
        inner = self.coroutine.__await__()
        send: Callable[[], Any] = lambda: next(inner)  # noqa: E731
        while True:
            try:
                waited = send()
            except StopIteration as stop:
                return stop.value
            if self.steps == self.step:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
            self.steps += 1
            try:
                value = yield waited
            except BaseException as error:  # noqa: BLE001, ASYNC103 - thrown into the coroutine
                send = lambda error=error: inner.throw(error)  # noqa: E731
            else:
                send = lambda value=value: inner.send(value)  # noqa: E731


def shop(effects: list[str]) -> gr.Agent[str]:
    @gr.tool(loop="asyncio", replay="safe")
    async def price(order: str) -> int:
        """Look up a price."""
        await asyncio.sleep(0.001)
        return 5

    @gr.tool(needs_approval=True, effect="write")
    async def refund(ctx: gr.ToolContext, order: str) -> str:
        """Refund an order."""
        effects.append(ctx.idempotency_key)
        return "refunded"

    steps = [call("price", order="7", id="c1"), call("refund", order="7", id="c2"), "Done."]
    return gr.Agent("shop", model=ScriptedModel(steps), tools=[price, refund])


async def serve_customer(place: Path, effects: list[str]) -> str:
    """A program that begins from wherever the one before has ended; all of its ids are fixed."""
    agent = shop(effects)
    async with aio.open_runtime(place, agents=[agent], drain=0.0) as runtime:
        run = await runtime.start(agent, "refund order 7", run_id="r1")
        async with run.events(until="rest") as events:
            seen = [event.sequence async for event in events]
        assert seen == list(range(1, len(seen) + 1))
        outcome = await run.wait()
        if isinstance(outcome, gr.Waiting):
            await run.decide(outcome.tickets[0].ticket_id, "approve", decision_id="d1")
        result = await run.result()
        assert isinstance(result, gr.Completed)
        return result.output


async def attempt(program: Awaitable[Any]) -> Any:
    return await program


def play(place: Path, step: int) -> int:
    """Cancel the first attempt at a step; return the number of its steps."""
    effects: list[str] = []

    async def main() -> int:
        program = CancelledAt(serve_customer(place, effects), step)
        task = asyncio.create_task(attempt(program))
        try:
            await task
        except asyncio.CancelledError:  # noqa: ASYNC103 - that of the task
            assert task.cancelled()
        assert [thread for thread in threading.enumerate() if thread.name == "greenroom"] == []
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert await serve_customer(place, effects) == "Done."
        assert len(set(effects)) == len(effects) == 1, "approved once, done once"
        return program.steps

    return asyncio.run(main())


@pytest.mark.slow
def test_a_program_that_is_cancelled_at_any_step_is_finished_by_the_next_one(
    tmp_path: Path, sampled: Callable[[range, int], list[int]]
) -> None:
    steps = play(tmp_path / "whole.db", -1)
    assert steps > 8
    for step in sampled(range(steps), 12):
        play(tmp_path / f"{step}.db", step)
