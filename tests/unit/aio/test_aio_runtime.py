"""`greenroom.aio`: the facade on asyncio does what the one on trio does."""

import asyncio  # noqa: TID251 - the host of the tests
import inspect
import threading
from pathlib import Path

import pytest
import trio
from tests.support.in_asyncio import in_asyncio

import greenroom as gr
from greenroom import aio
from greenroom.testing import ScriptedModel, call


@gr.tool(needs_approval=True)
async def refund(order: str) -> str:
    """Refund an order."""
    await trio.lowlevel.checkpoint()
    return f"order {order} refunded"


@gr.tool
async def sleep() -> None:
    """Sleep."""
    await trio.sleep_forever()


def support() -> gr.Agent[str]:
    return gr.Agent("support", model=ScriptedModel([call("refund", order="7"), "It is done."]), tools=[refund])


def sleeper() -> gr.Agent[str]:
    return gr.Agent("sleeper", model=ScriptedModel([call("sleep"), "Good morning."]), tools=[sleep])


@in_asyncio
async def test_a_run_is_started_followed_decided_and_read() -> None:
    agent = support()
    async with aio.open_runtime(agents=[agent]) as runtime:
        run = await runtime.start(agent, "refund order 7", run_id="r1")
        types: list[str] = []

        async def follow() -> None:
            async with run.events() as events:
                types.extend([event.type async for event in events])

        following = asyncio.create_task(follow())
        waiting = await run.wait()
        assert isinstance(waiting, gr.Waiting)
        answer = await run.decide(waiting.tickets[0].approve(by="ann"))
        assert answer.status == "accepted"
        assert await run.result() == await (await runtime.get("r1")).wait()
        await following
        assert (types[0], types[-1]) == ("run.created", "run.completed")
        view = await run.view()
        assert view.last_sequence == len(types)
        assert [line.info.run_id for line in (await runtime.runs(agent="support")).runs] == ["r1"]
        fork = await runtime.fork("r1", step=1)
        assert fork != run
        assert fork.id == (await runtime.get(fork.id)).id
        assert (await runtime.reader.outcome("r1", final=True)) == await run.result()


@in_asyncio
async def test_errors_are_those_of_the_facade_on_trio() -> None:
    async with aio.open_runtime(agents=[support()]) as runtime:
        with pytest.raises(gr.UnknownRun):
            await runtime.view("r9")
        with pytest.raises(gr.UnknownAgent):
            await runtime.start("nobody", "hello")
        with pytest.raises(gr.UsageError, match="did you mean"):
            await runtime.cancel("r1", moed="now")  # type: ignore[call-arg]
        with pytest.raises(gr.UsageError, match="after"):
            async with runtime.follow("r1", after=-1):
                raise AssertionError("not opened")
    with pytest.raises(gr.RuntimeClosed):
        await runtime.view("r1")
    with pytest.raises(gr.UsageError, match="agents"):
        async with aio.open_runtime(agnets=[]):  # type: ignore[call-arg]
            raise AssertionError("not opened")


@in_asyncio
async def test_a_cancel_ends_the_wait_and_not_the_run() -> None:
    async with aio.open_runtime(agents=[sleeper()], drain=0.0) as runtime:
        run = await runtime.start("sleeper", "sleep")
        for wait in (run.wait, run.result, runtime.join):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await wait()
        assert (await run.view()).status is gr.RunStatus.RUNNING
        assert (await run.cancel()).status == "accepted"
        assert isinstance(await run.result(), gr.Cancelled)


@in_asyncio
async def test_the_exception_of_a_block_leaves_bare_and_closes_the_runtime() -> None:
    error = ValueError("mine")
    opened: list[aio.Runtime] = []

    async def block() -> None:
        async with aio.open_runtime(agents=[sleeper()], drain=0.0) as runtime:
            await runtime.start("sleeper", "sleep", run_id="r1")
            opened.append(runtime)
            raise error

    with pytest.raises(ValueError, match="mine") as caught:
        await block()
    assert caught.value is error
    with pytest.raises(gr.RuntimeClosed):
        await opened[0].view("r1")
    assert [thread.name for thread in threading.enumerate() if thread.name == "greenroom"] == []


@in_asyncio
async def test_a_run_continues_in_the_next_runtime(tmp_path: Path) -> None:
    agent = support()
    async with aio.open_runtime(tmp_path / "runs.db", agents=[agent]) as runtime:
        waiting = await (await runtime.start(agent, "refund order 7", run_id="r1")).wait()
    assert isinstance(waiting, gr.Waiting)
    async with aio.open_runtime(tmp_path / "runs.db", agents=[agent]) as runtime:
        answer = await runtime.decide("r1", waiting.tickets[0].ticket_id, "approve", reason="checked", by="ann")
        assert answer.status == "accepted"
        assert (await runtime.decide("r1", waiting.tickets[0].approve())).status == "rejected"
        assert isinstance(await (await runtime.get("r1")).result(), gr.Completed)


async def test_a_program_on_trio_is_told_which_runtime_is_its_own() -> None:
    with pytest.raises(gr.UsageError, match=r"for programs on asyncio.*greenroom.open_runtime"):
        async with aio.open_runtime():
            pass


@in_asyncio
async def test_one_run_without_a_runtime_of_ones_own() -> None:
    agent = gr.Agent("greeter", model=ScriptedModel(["Hello."]))
    outcome = await aio.run(agent, "hello")
    assert isinstance(outcome, gr.Completed)
    assert outcome.output == "Hello."


@pytest.mark.parametrize(
    ("ours", "theirs"), [(aio.Runtime, gr.Runtime), (aio.Run, gr.Run), (aio.RunReader, gr.RunReader)]
)
def test_every_async_method_of_the_facade_is_there_with_the_same_parameters(ours: type, theirs: type) -> None:
    """Parts of the runtime, and what is not awaited, are used in the thread, by `inner`."""
    names = {name for name in dir(theirs) if not name.startswith("_")}
    awaited = {name for name in names if inspect.iscoroutinefunction(getattr(theirs, name))}
    assert awaited <= set(dir(ours))
    for name in names & set(dir(ours)):
        mine, other = inspect.getattr_static(ours, name), inspect.getattr_static(theirs, name)
        if inspect.isfunction(other) and name != "decide":
            assert inspect.signature(mine).parameters.keys() == inspect.signature(other).parameters.keys(), name
            assert inspect.getdoc(mine), name
