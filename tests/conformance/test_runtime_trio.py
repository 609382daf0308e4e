"""What a trio program may rely on: checkpoints, and whose context user code runs in."""

from contextvars import ContextVar
from typing import Any

import pytest
import trio
from trio.testing import assert_checkpoints, wait_all_tasks_blocked

import greenroom as gr
from greenroom.actors.contract.spec import MODES
from greenroom.testing import call

from ..support.event_writer import Author
from ..support.runs import Outages, agent, home


@gr.tool(needs_approval=True)
async def ask() -> str:
    return "asked"


user: ContextVar[str] = ContextVar("user", default="nobody")


# --- checkpoints -----------------------------------------------------------------------------------------------------


def commands(run: gr.Run[Any]) -> list[Any]:
    """Every command, as a function that sends it."""
    return [
        lambda: run.decide("c1", "resume"),
        lambda: run.decide("c1", "resume", edited_arguments={"a": object()}),
        lambda: run.decide("c1", "resume", result=object()),
        run.cancel,
        run.pause,
        lambda: run.send("more"),
    ]


async def test_who_repeats_a_command_that_is_refused_at_once_lets_others_run(shelf, autojump_clock):
    faults, helper = Outages(), agent(call("ask", id="c1"), "done", tools=[ask])
    async with home(shelf.open(faults=faults), agents=[helper]) as runtime, trio.open_nursery() as nursery:
        run = await runtime.start(helper, "hi")
        await run.wait()
        faults.error = OSError("no room")
        nursery.start_soon(run.send, "meets the beginning")
        await wait_all_tasks_blocked()
        for send in commands(run):
            with assert_checkpoints():
                assert (await send()).status == "rejected"
        faults.error = None
    for send in commands(run):
        with assert_checkpoints():
            assert (await send()).status == "rejected"
    with assert_checkpoints():
        await runtime.closed()


async def test_a_command_to_a_closed_runtime_can_be_cancelled(shelf, autojump_clock):
    helper = agent("done")
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
    for send in commands(run):
        with trio.CancelScope() as scope:
            scope.cancel()
            await send()
        assert scope.cancelled_caught


# --- contexts --------------------------------------------------------------------------------------------------------


@pytest.mark.rule("L-86")
@pytest.mark.parametrize("passivate_after", [None, 1.0])
async def test_user_code_sees_the_context_of_the_opener_of_the_runtime(shelf, autojump_clock, passivate_after):
    """Whether a run has left memory meanwhile, or the process has ended, must not show: else a body would see now who
    started its run, now who approved it.
    """
    seen: list[str] = []

    def look(where: str) -> None:
        seen.append(f"{where}: {user.get()}")

    @gr.tool(needs_approval=True)
    async def sign() -> str:
        look("tool")
        return "signed"

    class Looks(gr.Plugin):
        async def step_end(self, ctx: gr.PhaseContext[Any]) -> None:
            look("hook")

    def provider(info: gr.RunInfo) -> str:
        look("provider")
        return "deps"

    async def as_(name: str, act: Any) -> None:
        user.set(name)
        await act()

    async def by(name: str, act: Any) -> None:
        async with trio.open_nursery() as nursery:  # noqa: ASYNC112 - a task has a context of its own
            nursery.start_soon(as_, name, act)

    helper = agent(call("sign", id="a"), call("sign", id="b"), "done", tools=[sign], plugins=[Looks()])
    options = {"agents": [helper], "deps": provider, "passivate_after": passivate_after}
    user.set("ada")
    async with home(shelf, **options) as runtime:
        await by("bob", lambda: runtime.start(helper, "hi", run_id="r1"))
        run = await runtime.get("r1")
        await run.wait()
        await trio.sleep(5)
        await by("eve", lambda: run.decide("a", "resume"))
        await run.wait()
    async with home(shelf, **options) as runtime:
        run = await runtime.get("r1")
        await by("eve", lambda: run.decide("b", "resume"))
        await run.result()
    assert {line.partition(": ")[2] for line in seen} == {"ada"}
    assert {line.partition(": ")[0] for line in seen} == {"tool", "hook", "provider"}


# --- following -------------------------------------------------------------------------------------------------------


async def test_a_follower_sees_a_cancel_at_the_next_event(shelf, autojump_clock):
    helper, given = agent("done"), []
    async with home(shelf, agents=[helper], drain=0) as runtime:
        author = await Author.create(runtime, helper, "r1")
        await author.write(["text"] * 200)
        run = await runtime.get("r1")
        with trio.CancelScope() as scope:
            async with run.events() as events:
                async for event in events:
                    given.append(event.sequence)
                    if len(given) == 10:
                        scope.cancel()
        assert scope.cancelled_caught
    assert given == list(range(1, 11))


@pytest.mark.parametrize("execution", MODES)
@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_body_does_not_see_the_context_variables_of_the_bodies_before_it(shelf, execution, kind):
    """Neither those of the same step, nor those of an earlier step or run; each sees what the opener had set."""
    seen: list[str] = []

    def look(mark: str) -> str:
        seen.append(user.get())
        user.set(mark)
        return user.get()

    @gr.tool
    async def later(mark: str) -> str:
        look(mark)
        await wait_all_tasks_blocked()  # the other body of the step has begun, if it may run beside this one
        return user.get()

    @gr.tool
    def at_once(mark: str) -> str:
        return look(mark)

    class Marks(gr.Plugin):
        async def step_end(self, ctx: gr.PhaseContext[Any]) -> None:
            look("hook")

    tool = later if kind == "async" else at_once
    steps = [[call(tool.name, id=f"c{2 * n + i}", mark=f"body {n} {i}") for i in range(2)] for n in range(2)]
    helper = agent(*steps, "done", tools=[tool], plugins=[Marks()], execution=execution)
    user.set("ada")
    async with home(shelf, agents=[helper]) as runtime:
        for _ in range(2):
            run = await runtime.start(helper, "hi", thread_id="t")
            await run.result()
            said = [message.content for message in (await run.view()).messages if message.role == "tool"]
            assert sorted(said[-4:]) == sorted(f"body {n} {i}" for n in range(2) for i in range(2))
    assert len(seen) == 2 * (4 + 3)  # two runs: four bodies and three ends of a step each
    assert set(seen) == {"ada"}
    assert user.get() == "ada"
