"""Waiting for a run whose owner is here needs no look at the store: the owner's receipts say what is durable."""

from typing import Any, Literal

import trio
import trio.testing

import greenroom as gr
from greenroom.actors.contract.rows import RunRecord
from greenroom.testing import ScriptedModel, call, delay


class CountingStore(gr.MemoryStore):
    """Counts how often a run is loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.loads = 0

    async def load(self, run_id: str, *, calls: Literal["step", "all"] = "step") -> RunRecord | None:
        self.loads += 1
        return await super().load(run_id, calls=calls)


@gr.tool(needs_approval=True)
async def pay(cents: int) -> int:
    return cents


def paying() -> gr.Agent[Any]:
    return gr.Agent("paying", tools=[pay], model=ScriptedModel([call("pay", cents=5), "done"]))


async def test_a_run_that_works_here_is_waited_for_without_reading() -> None:
    store = CountingStore()
    agent = gr.Agent("short", model=ScriptedModel(["done"]))
    async with gr.open_runtime(store, agents=[agent]) as runtime:
        run = await runtime.start(agent, "hi")
        outcome = await run.wait()
        assert store.loads == 0
        assert outcome == await run.wait()  # it is gone by now: this one is read
        assert store.loads == 1


async def test_a_rest_is_read_for_a_command_may_be_in_the_inbox() -> None:
    store = CountingStore()
    agent = paying()
    async with gr.open_runtime(store, agents=[agent]) as runtime:
        run = await runtime.start(agent, "hi")
        first = await run.wait()
        assert isinstance(first, gr.Waiting)
        loads = store.loads
        assert loads == 1
        await run.decide(first.tickets[0].approve())
        outcome = await run.wait()
        assert isinstance(outcome, gr.Completed)
        assert outcome.output == "done"


async def test_a_run_that_waits_when_it_is_taken_up_is_at_rest_for_those_who_wait_already() -> None:
    """Its new owner writes nothing, and still says where it is."""
    store = CountingStore()
    agent = paying()
    async with gr.open_runtime(store, agents=[agent], drain=0) as runtime:
        run = await runtime.start(agent, "hi")
        await run.wait()
    async with gr.open_runtime(store, agents=[agent], drain=0) as runtime:
        again = await runtime.get(run.id)
        assert isinstance(await again.wait(), gr.Waiting)


async def test_joining_ends_when_a_run_turns_out_to_be_held(autojump_clock: Any) -> None:
    """A command may start the owner of a run before the process learns that another run has the thread."""
    agent = gr.Agent("slow", model=ScriptedModel([delay(100.0), "done"]))
    async with gr.open_runtime(gr.MemoryStore(), agents=[agent], drain=0) as runtime, trio.open_nursery() as nursery:
        run = await runtime.start(agent, "hi")
        joined = trio.Event()

        async def join() -> None:
            await runtime.join()
            joined.set()

        nursery.start_soon(join)
        await trio.testing.wait_all_tasks_blocked()
        assert not joined.is_set()
        runtime._parts.registry.hold(run.id)
        with trio.fail_after(1):
            await joined.wait()
        await run.cancel()
