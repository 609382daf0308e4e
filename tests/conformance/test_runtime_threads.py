"""Threads of the conversation kind, and slots: who may work, who waits for whom, and what they know of each other."""

from datetime import timedelta

import pytest
import trio

import greenroom as gr
from greenroom.testing import FunctionModel, call, delay

from ..support.runs import agent, events_of, home, types


@gr.tool(needs_approval=True)
async def ask() -> str:
    return "asked"


def echo(request: gr.ModelRequest):
    """Says what it received last; after a second."""
    return [delay(1), f"heard {request.messages[-1].content}"]


def contents(request: gr.ModelRequest) -> list[str]:
    return [message.content for message in request.messages]


async def test_a_thread_continues_after_a_restart_and_with_another_agent(shelf, autojump_clock):
    first, second = (gr.Agent(key, model=FunctionModel(echo)) for key in ("first", "second"))
    async with home(shelf, agents=[first, second]) as runtime:
        await (await runtime.start(first, "one", thread_id="t")).result()
    async with home(shelf, agents=[first, second]) as runtime:
        await (await runtime.start(second, "two", thread_id="t")).result()
    assert contents(second.model.requests[0]) == ["one", "heard one", "two"]


@pytest.mark.parametrize("options", [{}, {"max_running": 1}], ids=["slots for all", "one slot"])
async def test_a_run_whose_thread_is_freed_before_its_creator_continues_works(shelf, autojump_clock, options):
    """The store has held it back, its thread's run ends, and only then it has an owner here."""
    store, helper = shelf.open(), gr.Agent("helper", model=FunctionModel(echo))
    create = store.create_run

    async def create_and_dawdle(new, created, **options):
        made = await create(new, created, **options)
        await trio.sleep(5 if new.info.run_id == "two" else 0)
        return made

    store.create_run = create_and_dawdle
    async with home(store, agents=[helper], **options) as runtime:
        for word in ("one", "two", "three"):
            await runtime.start(helper, word, thread_id="t", run_id=word)
        assert (await (await runtime.get("three")).result()).output == "heard three"
    assert contents(helper.model.requests[-1]) == ["one", "heard one", "two", "heard two", "three"]


async def test_a_waiting_run_keeps_its_thread(shelf, autojump_clock):
    helper = agent(call("ask", id="c1"), "done", tools=[ask])
    second = agent("second", key="second")
    async with home(shelf, agents=[helper, second]) as runtime:
        one = await runtime.start(helper, "one", thread_id="t")
        two = await runtime.start(second, "two", thread_id="t")
        await one.wait()
        await trio.sleep(100)
        assert (await two.view()).stage == "planned"
        await runtime.join()
        await one.decide("c1", "resume")
        assert (await two.result()).output == "second"


@pytest.mark.parametrize("how", ["resumed", "commanded"])
async def test_a_degraded_run_that_is_taken_up_still_waits_for_its_thread(shelf, autojump_clock, how):
    slow, late = agent([delay(50), "slow"], key="slow"), agent("late", key="late")
    async with home(shelf, agents=[slow, late], drain=0) as runtime:
        await runtime.start(slow, "one", thread_id="t", run_id="r1")
        await runtime.start(late, "two", thread_id="t", run_id="r2")
        await trio.sleep(1)
    async with home(shelf, agents=[slow]) as runtime:
        first, second = await runtime.get("r1"), await runtime.get("r2")
        await trio.sleep(1)
        assert (await second.view()).degraded == "agent_unknown"
        await (await runtime.start(late, "elsewhere")).result()  # now the agent is known
        if how == "resumed":
            await runtime.resume("r2")
        else:
            assert (await second.send("hurry")).ok
        await trio.sleep(1)
        assert [(await run.view()).stage for run in (first, second)] == ["running", "planned"]
        assert (await second.result()).output == "late"
        assert (await first.view()).stage == "completed"


# --- slots -----------------------------------------------------------------------------------------------------------


async def test_a_decision_does_not_wait_behind_new_work(shelf, autojump_clock):
    waits = agent(call("ask", id="c1"), "done", tools=[ask], key="waits")
    slow = agent([delay(1000), "slow"], key="slow")
    async with home(shelf, agents=[waits, slow], max_running=1, drain=0) as runtime:
        first = await runtime.start(waits, "hi")
        await first.wait()
        for _ in range(3):
            await runtime.start(slow, "hi")
        await first.decide("c1", "resume")
        assert (await first.result()).output == "done"
        assert trio.current_time() < 10


async def test_waiting_runs_that_are_taken_up_again_hold_no_slot(shelf, autojump_clock):
    waits, helper = agent(call("ask", id="c1"), "done", tools=[ask], key="waits"), agent("hello")
    async with home(shelf, agents=[waits, helper]) as runtime:
        for number in range(5):
            await (await runtime.start(waits, "hi", run_id=f"w{number}")).wait()
    async with home(shelf, agents=[waits, helper], max_running=1) as runtime:
        for number in range(3):
            run = await runtime.start(helper, "hi", run_id=f"r{number}")
            assert (await run.result()).output == "hello"
        await (await runtime.get("w3")).decide("c1", "resume")
        assert (await (await runtime.get("w3")).result()).output == "done"


async def test_a_run_that_waits_for_a_slot_can_be_cancelled(shelf, autojump_clock):
    slow, helper = agent([delay(100), "slow"], key="slow"), agent("hello")
    async with home(shelf, agents=[slow, helper], max_running=1) as runtime:
        first = await runtime.start(slow, "hi")
        second = await runtime.start(helper, "hi")
        third = await runtime.start(helper, "hi")
        await second.cancel()
        assert isinstance(await second.result(), gr.Cancelled)
        assert types(await events_of(second))[-1] == "cancelled"
        assert (await first.view()).stage == "running"
        assert (await third.result()).output == "hello"


async def test_a_run_that_fails_gives_its_slot_back(shelf, autojump_clock):
    fails, helper = agent(call("nothing", id="c1"), on_unknown_tool="raise", key="fails"), agent("hello")
    async with home(shelf, agents=[fails, helper], max_running=1) as runtime:
        for _ in range(3):
            await runtime.start(fails, "hi")
        assert (await (await runtime.start(helper, "hi")).result()).output == "hello"


COMMANDS = {
    "send": lambda run: run.send("more"),
    "pause": lambda run: run.pause(),
    "cancel": lambda run: run.cancel(),
    "cancel after the step": lambda run: run.cancel(mode="after_step"),
}


@pytest.mark.rule("L-112")
@pytest.mark.parametrize("how", COMMANDS)
@pytest.mark.parametrize(
    "waits", ["behind a run", "behind a run of a paused queue", "paused queue", "full queue", "later"]
)
async def test_a_command_about_a_run_that_waits_for_its_turn_does_not_begin_the_run(shelf, autojump_clock, how, waits):
    helper = gr.Agent("helper", model=FunctionModel(lambda _: [delay(10), "done"]))
    async with home(shelf, agents=[helper]) as runtime:
        await runtime.store.set_queue("later", max_running=1 if waits == "full queue" else None)
        first = await runtime.start(helper, "one", thread_id="t", queue="later" if waits == "full queue" else None)
        await trio.sleep(2)  # in which a process looks into its queues
        await runtime.store.set_queue("later", max_running=1, paused="paused" in waits)
        at = runtime.clock.now() + timedelta(hours=1) if waits == "later" else None
        thread = "t" if "behind" in waits else "other"
        second = await runtime.start(helper, "two", thread_id=thread, queue="later", at=at)
        await trio.sleep(1)
        assert (await COMMANDS[how](second)).status == "accepted"
        await trio.sleep(5)
        assert (await first.view()).status == "running"
        stage = (await second.view()).stage
        assert len(helper.model.requests) == 1
        if "cancel" in how:
            assert stage == "cancelled"
            assert {*types(await events_of(second))} & {"started", "step.started"} == set()
            return
        assert stage == ("planned" if waits == "behind a run" else "created")
        await first.result()
        await trio.sleep(5)
        its_turn = waits in ("behind a run", "full queue")
        assert len(helper.model.requests) == (2 if its_turn and how == "send" else 1)
