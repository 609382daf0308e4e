"""Tools and hooks of asyncio: their bodies run in the host's loop, and everything around them is as on trio."""

import asyncio  # noqa: TID251 - the host of the tests
import threading
from contextvars import ContextVar
from typing import Any

import pytest
import trio
from tests.support.in_asyncio import in_asyncio

import greenroom as gr
from greenroom import aio
from greenroom.testing import ScriptedModel, call

NAME: ContextVar[str] = ContextVar("NAME", default="")


def agent_with(*tools: gr.Tool[..., Any], **options: Any) -> gr.Agent[Any]:
    steps = [call(tools[0].name), "Done."]
    return gr.Agent("helper", model=ScriptedModel(steps), tools=list(tools), **options)


async def answer_of(agent: gr.Agent[Any]) -> str:
    """What the tool answered the model."""
    async with aio.open_runtime(agents=[agent], drain=0.0) as runtime:
        run = await runtime.start("helper", "go")
        await run.result()
        (message,) = [message for message in (await run.view()).messages if message.role == "tool"]
        return message.content


@in_asyncio
async def test_a_body_runs_in_the_loop_of_the_host_with_its_context_variables() -> None:
    loop = asyncio.get_running_loop()

    @gr.tool(loop="asyncio")
    async def where(ctx: gr.ToolContext) -> str:
        """Say where."""
        assert asyncio.get_running_loop() is loop
        async with asyncio.timeout(60):
            await asyncio.sleep(0)
        return f"{threading.current_thread().name} {NAME.get()} {ctx.run_id != ''}"

    NAME.set("opened here")
    assert await answer_of(agent_with(where)) == "MainThread opened here True"


@in_asyncio
async def test_the_methods_of_the_context_are_awaited_as_anywhere() -> None:
    @gr.tool(background=True)
    async def aside() -> None:
        """Work beside."""
        await trio.sleep_forever()

    @gr.tool(loop="asyncio")
    async def report(ctx: gr.ToolContext) -> str:
        """Report."""
        assert isinstance(ctx, gr.ToolContext)
        await ctx.progress(0.5, "half")
        await ctx.output("a piece")
        await ctx.save({"half": True})
        artifact = await ctx.artifact("note.txt", "text")
        texts = [message.role for message in await ctx.messages()]
        task = await ctx.spawn("aside")
        ids = [view.task_id for view in await ctx.tasks()]
        return f"{artifact.name} {texts} {ids == [task]} {await ctx.cancel_task(task)}"

    agent = agent_with(report, aside)
    async with aio.open_runtime(agents=[agent]) as runtime:
        run = await runtime.start("helper", "go")
        async with run.events() as events:
            types = [event.type async for event in events]
        messages = (await run.view()).messages
    assert "note.txt ['user'] True True" in [message.content for message in messages]
    assert {"run.tool.progress", "run.tool.output.delta"} <= set(types)


@in_asyncio
async def test_a_person_is_asked_in_a_body_of_asyncio() -> None:
    @gr.tool(loop="asyncio")
    async def ask(ctx: gr.ToolContext) -> str:
        """Ask."""
        decision = await ctx.ask(gr.Suspend(message="Which order?"))
        return str(decision.result)

    async with aio.open_runtime(agents=[agent_with(ask)]) as runtime:
        run = await runtime.start("helper", "go")
        async with run.events(until="rest") as events:
            assert [event async for event in events]
        await run.decide((await run.view()).tickets[0].approve(result="order 7"))
        await run.result()
        assert "order 7" in [message.content for message in (await run.view()).messages]


@pytest.mark.parametrize("end", ["cancel", "timeout", "close"])
def test_a_task_of_the_host_ends_with_its_call(end: str) -> None:
    notes: list[str] = []
    began = asyncio.Event()

    @gr.tool(loop="asyncio", timeout=0.05 if end == "timeout" else None)
    async def sleep(ctx: gr.ToolContext) -> None:
        """Sleep."""
        notes.append("began")
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)  # noqa: ASYNC102 - what is shown: the call waits
            notes.append("ended")

    @in_asyncio
    async def scene() -> None:
        async with aio.open_runtime(agents=[agent_with(sleep)], drain=0.0) as runtime:
            run = await runtime.start("helper", "go")
            await began.wait()
            if end != "close":
                if end == "cancel":
                    await run.cancel()
                assert isinstance(await run.result(), gr.Cancelled if end == "cancel" else gr.Completed)
                assert notes == ["began", "ended"]
        assert notes == ["began", "ended"]
        assert asyncio.all_tasks() == {asyncio.current_task()}

    scene()


@pytest.mark.parametrize("error", [ValueError("boom"), SystemExit(3), asyncio.CancelledError("by itself")])
def test_what_a_body_raises_is_its_failure(error: BaseException) -> None:
    @gr.tool(loop="asyncio")
    async def fail() -> None:
        """Fail."""
        await asyncio.sleep(0)
        raise error

    @in_asyncio
    async def scene() -> None:
        text = await answer_of(agent_with(fail))
        assert ("cancelled" if isinstance(error, asyncio.CancelledError) else str(error)) in text

    scene()


@in_asyncio
async def test_a_body_may_suspend() -> None:
    @gr.tool(loop="asyncio")
    async def ask(ctx: gr.ToolContext) -> str:
        """Ask."""
        await asyncio.sleep(0)
        if ctx.decision is None:
            raise gr.Suspend(message="May I?")
        return "You said so."

    async with aio.open_runtime(agents=[agent_with(ask)]) as runtime:
        run = await runtime.start("helper", "go")
        waiting = await run.wait()
        assert isinstance(waiting, gr.Waiting)
        await run.decide(waiting.tickets[0].approve())
        assert isinstance(await run.result(), gr.Completed)


async def test_a_runtime_on_trio_refuses_the_agent_and_names_the_road() -> None:
    @gr.tool(loop="asyncio")
    async def sleep() -> None:
        """Sleep."""

    agent = agent_with(sleep)
    with pytest.raises(gr.AgentDefinitionError, match=r"'sleep' of agent 'helper' runs on asyncio.*aio\.open_runtime"):
        async with gr.open_runtime(agents=[agent]):
            raise AssertionError("not opened")
    async with gr.open_runtime() as runtime:
        with pytest.raises(gr.AgentDefinitionError, match=r"aio\.open_runtime"):
            await runtime.start(agent, "go")
        assert dict(runtime.agents) == {}


def test_a_sync_function_has_no_loop() -> None:
    with pytest.raises(gr.ToolDefinitionError, match="async def"):

        @gr.tool(loop="asyncio")
        def sleep() -> None:
            """Sleep."""

    with pytest.raises(gr.ToolDefinitionError, match="did you mean 'asyncio'"):

        @gr.tool(loop="asyncoi")  # type: ignore[call-overload]
        async def doze() -> None:
            """Doze."""


async def test_a_library_of_asyncio_under_trio_is_told_the_road() -> None:
    @gr.tool
    async def doze() -> None:
        """Doze."""
        await asyncio.sleep(0.01)

    async with gr.open_runtime(agents=[agent_with(doze)]) as runtime:
        run = await runtime.start("helper", "go")
        await run.result()
        texts = [message.content for message in (await run.view()).messages]
    assert any("trio" in text and "gr.tool(loop='asyncio')" in text for text in texts), texts


@in_asyncio
async def test_hooks_and_predicates_run_in_the_host_too() -> None:
    places: list[str] = []

    def note(what: str) -> None:
        asyncio.get_running_loop()
        places.append(f"{what} {threading.current_thread().name}")

    class Audit(gr.Plugin):
        """Audits."""

        @aio.in_host
        async def after_inference(self, ctx: gr.PhaseContext) -> None:
            await asyncio.sleep(0)
            await ctx.stored_values("none")
            note("hook")

    @aio.in_host
    async def must_ask(ctx: gr.ToolContext, arguments: dict[str, Any]) -> bool:
        await asyncio.sleep(0)
        note("predicate")
        return False

    @gr.tool(needs_approval=must_ask)
    async def work() -> str:
        """Work."""
        await trio.lowlevel.checkpoint()
        return "worked"

    assert await answer_of(agent_with(work, plugins=[Audit()])) == "worked"
    assert places == ["hook MainThread", "predicate MainThread", "hook MainThread"]
    assert await must_ask(gr.ToolContext(), {}) is False  # in asyncio, the function itself
