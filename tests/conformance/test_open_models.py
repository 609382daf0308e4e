"""Models that hold something between requests: opened at the first one, in one task, and left with the runtime."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

import greenroom as gr
from greenroom.testing import ScriptedModel, call


class Holding(ScriptedModel):
    """Notes when it is opened and left, and in which task."""

    def __init__(self, *steps, failures=()):
        super().__init__(list(steps))
        self.diary = []
        self.failures = list(failures)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        self.diary.append("opens")
        await trio.lowlevel.checkpoint()
        if self.failures:
            raise self.failures.pop(0)
        task = trio.lowlevel.current_task()
        try:
            yield
        finally:
            assert trio.lowlevel.current_task() is task
            self.diary.append("leaves")


@pytest.mark.rule("M-12")
async def test_a_model_is_opened_at_its_first_use_and_left_after_the_last_run(autojump_clock):
    model = Holding("1", "1", "1")
    agents = [gr.Agent(key, model=model) for key in ("a", "b", "c")]
    async with gr.open_runtime(agents=agents) as runtime:
        assert model.diary == []
        runs = [await runtime.start(agent, "Go.") for agent in agents]
        assert [(await run.result()).output for run in runs] == ["1", "1", "1"]
        assert model.diary == ["opens"]
    assert model.diary == ["opens", "leaves"]


@pytest.mark.rule("M-12")
async def test_an_opening_that_fails_is_a_failure_of_the_request_and_tried_again(autojump_clock):
    model = Holding("done", "done", failures=[gr.ModelError("no capacity", kind="overloaded")])
    agent = gr.Agent("a", model=model)
    async with gr.open_runtime(agents=[agent]) as runtime:
        run = await runtime.start(agent, "Go.")
        outcome = await run.result()
    assert outcome.output == "done"
    assert outcome.usage.requests == 1, "nothing was sent by the first try"
    assert model.diary == ["opens", "opens", "leaves"]


async def test_a_bug_of_opening_is_a_bug_of_the_model(autojump_clock):
    model = Holding("done", failures=[ZeroDivisionError("oops")])
    outcome = await gr.run(gr.Agent("a", model=model), "Go.")
    assert outcome.code == "model_bug"
    assert "ZeroDivisionError: oops" in outcome.message


async def test_a_bug_of_leaving_is_logged_and_harms_nothing(autojump_clock, caplog):
    class Clumsy(ScriptedModel):
        @asynccontextmanager
        async def open(self) -> AsyncIterator[None]:
            try:
                yield
            finally:
                raise ZeroDivisionError("oops")

    outcome = await gr.run(gr.Agent("a", model=Clumsy(["done"])), "Go.")
    assert outcome.output == "done"
    assert "could not be closed: ZeroDivisionError: oops" in caplog.text


async def test_a_run_that_is_cancelled_while_its_model_opens_leaves_the_opening_to_the_others(autojump_clock):
    class Slow(Holding):
        @asynccontextmanager
        async def open(self) -> AsyncIterator[None]:
            async with super().open():
                await trio.sleep(10)
                yield

    model = Slow("1", "1")
    agents = [gr.Agent(key, model=model) for key in ("a", "b")]
    async with gr.open_runtime(agents=agents) as runtime:
        first, second = [await runtime.start(agent, "Go.") for agent in agents]
        await trio.sleep(1)
        await first.cancel()
        assert isinstance(await first.result(), gr.Cancelled)
        assert (await second.result()).output == "1"
        assert model.diary == ["opens"]


class Picky(ScriptedModel):
    """Refuses one setting."""

    def check(self, settings):
        return "it is too hot; give temperature=0" if settings.get("temperature") else None


@pytest.mark.rule("M-13")
async def test_settings_that_the_model_refuses_are_an_error_of_the_start(autojump_clock):
    async with gr.open_runtime() as runtime:
        with pytest.raises(gr.AgentDefinitionError, match="agent 'a': it is too hot; give temperature=0"):
            await runtime.start(gr.Agent("a", model=Picky(["x"]), settings={"temperature": 1}), "Go.")


@pytest.mark.rule("M-13")
async def test_a_run_that_is_taken_up_without_what_its_model_needs_is_left_as_it_is(tmp_path, autojump_clock):
    """The key of a provider may be missing in this process only: the run must not fail for that."""

    def asking(model):
        return gr.Agent("a", model=model, tools=[ask], settings={"temperature": 1})

    @gr.tool(needs_approval=True)
    async def ask() -> str:
        return "asked"

    store = gr.SQLiteStore(tmp_path / "runs.db", writer="inline")
    willing = ScriptedModel([call("ask", id="c"), "done"])
    async with gr.open_runtime(store, agents=[asking(willing)]) as runtime:
        run = await runtime.start("a", "Go.")
        waiting = await run.wait()
    async with gr.open_runtime(store, agents=[asking(Picky(["x"]))]) as runtime:
        run = await runtime.get(run.id)
        await run.decide(waiting.tickets[0].approve())
        with pytest.raises(gr.RunDegradedError, match="too hot"):
            await run.wait()
    async with gr.open_runtime(store, agents=[asking(willing)]) as runtime:
        run = await runtime.get(run.id)
        assert (await run.result()).output == "done"


async def test_a_check_that_raises_is_an_error_of_the_start(autojump_clock):
    class Broken(ScriptedModel):
        def check(self, settings):
            raise ZeroDivisionError("oops")

    async with gr.open_runtime() as runtime:
        with pytest.raises(gr.AgentDefinitionError, match="could not check its settings: ZeroDivisionError: oops"):
            await runtime.start(gr.Agent("a", model=Broken(["x"])), "Go.")
