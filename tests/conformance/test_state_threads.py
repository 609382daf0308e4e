"""The scopes of state: a run's own keys end with it; those of a thread are there for every later run of the thread."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.actors.abc import Store
from greenroom.testing import call

from ..support.runs import agent, home
from ..support.scene_plugins import scripted
from ..support.scene_tools import Outside
from ..support.state_tools import BOOKS, LAST, SEEN, TITLE


class House:
    """Runs of one process, in threads of their own or in one."""

    def __init__(self, runtime: gr.Runtime, mode: Any) -> None:
        self.runtime, self.mode = runtime, mode

    async def begin(
        self, name: str, *script: Any, thread: str = "t", plugins: Sequence[gr.Plugin] = (), **options: Any
    ) -> gr.Run[Any]:
        made = agent(*script, "done", key=name, plugins=plugins, **BOOKS)
        return await self.runtime.start(made, "hi", run_id=name, thread_id=thread, execution=self.mode, **options)


@pytest.fixture
def process(watched, mode) -> Callable[[], Any]:
    """A process on the place of storage."""

    @asynccontextmanager
    async def opened(**options: Any) -> AsyncIterator[House]:
        async with home(watched, deps=Outside(), **options) as runtime:
            yield House(runtime, mode)

    return opened


async def reads(run: gr.Run[Any]) -> list[str]:
    """What the calls of a run read, in order."""
    view = await run.view()
    return [m.content for m in view.messages if m.role == "tool" and m.producer.run_id == run.id]


def look(name: str = "L") -> Any:
    return call("keep", seconds=1, id=name)


@pytest.mark.rule("S-5")
async def test_the_next_run_of_a_thread_begins_with_what_the_one_before_it_left(process, autojump_clock):
    async with process() as house:
        first = await house.begin("r1", [call("keep", last="a", see="x", title="one", id="A")])
        await first.result()
        second = await house.begin("r2", [look()], [call("keep", see="y", id="B")], [look("L2")])
        await second.result()
        assert await reads(second) == ["- 0 x", "- 0 x", "- 0 xy"]
        assert (await second.view()).state == {"seen": ["x", "y"], "title": "one"}
        assert (await first.view()).state["last"] == "a"


async def test_a_run_in_another_process_begins_with_what_the_thread_has(process, autojump_clock):
    async with process() as house:
        await (await house.begin("r1", [call("keep", last="a", see="x", id="A")])).result()
    async with process() as house:
        run = await house.begin("r2", [look()])
        await run.result()
        assert await reads(run) == ["- 0 x"]


@pytest.mark.rule("S-31")
async def test_a_run_that_has_to_wait_for_its_thread_sees_what_the_run_before_it_wrote(process, autojump_clock):
    """Also what that wrote after this one had been started."""
    async with process() as house:
        await house.begin("r1", [call("keep", see="x", id="A")], [call("keep", see="y", id="B")])
        second = await house.begin("r2", [call("keep", see="z", id="C")])
        third = await house.begin("r3", [look()])
        await third.result()
        assert (await reads(second), await reads(third)) == (["- 0 xy"], ["- 0 xyz"])


async def test_a_run_that_waited_for_its_thread_through_a_restart_sees_what_the_run_before_it_wrote(
    process, autojump_clock
):
    script = [call("keep", see="x", id="A")], [call("keep", see="y", id="B")]
    async with process(drain=0) as house:
        await house.begin("r1", *script)
        await house.begin("r2", [look()])
        await trio.sleep(15)
    crew = [agent(*script, "done", key="r1", **BOOKS), agent([look()], "done", key="r2", **BOOKS)]
    async with process(agents=crew) as house:
        second = await house.runtime.get("r2")
        await second.result()
        assert await reads(second) == ["- 0 xy"]


async def test_a_run_that_waits_for_a_slot_sees_what_was_written_meanwhile(process, autojump_clock):
    async with process(max_running=1) as house:
        await house.begin("busy", [call("keep", id="A")], thread="elsewhere")
        await house.begin("r1", [call("keep", see="x", id="A")])
        second = await house.begin("r2", [look()])
        await second.result()
        assert await reads(second) == ["- 0 x"]


@pytest.mark.rule("S-30")
@pytest.mark.parametrize("how", ["cancelled", "failed"])
async def test_what_a_run_wrote_stays_however_it_ended(process, how, autojump_clock):
    async with process() as house:
        last = call("fatal", id="F") if how == "failed" else call("keep", seconds=100, id="F")
        first = await house.begin("r1", [call("keep", see="x", id="A")], [last])
        second = await house.begin("r2", [look()])
        await trio.sleep(15)
        if how == "cancelled":
            await first.cancel()
        await second.result()
        assert (await first.view()).status == "done"
        assert (await first.view()).stage == how
        assert await reads(second) == ["- 0 x"]


async def test_a_run_that_was_cancelled_before_it_began_is_passed_over(process, autojump_clock):
    async with process() as house:
        await house.begin("r1", [call("keep", see="x", id="A")])
        second = await house.begin("r2", [call("keep", see="y", id="A")])
        third = await house.begin("r3", [look()])
        await second.cancel()
        await third.result()
        assert await reads(third) == ["- 0 x"]


@pytest.mark.rule("S-32")
async def test_other_threads_see_nothing_of_it(process, autojump_clock):
    async with process() as house:
        await (await house.begin("r1", [call("keep", see="x", id="A")])).result()
        for name, thread in (("r2", "u"), ("r3", None)):
            run = await house.begin(name, [look()], thread=thread)  # type: ignore[arg-type]
            await run.result()
            assert await reads(run) == ["- 0 -"]


async def test_a_run_that_waits_for_people_keeps_its_thread_and_sees_it_as_it_left_it(process, autojump_clock):
    async with process(passivate_after=10) as house:
        script = [call("keep", last="a", add=3, see="x", id="A")], [call("sign", id="S")]
        made = agent(*script, "done", key="r1", **BOOKS)
        run = await house.runtime.start(made, "hi", run_id="r1", thread_id="t")
        second = await house.begin("r2", [look()])
        await run.wait()
        await trio.sleep(100)
        assert (await second.view()).stage == "planned"
        await run.decide("S", "resume")
        await second.result()
        assert (await reads(run))[-1] == "a 3 x 0"
        assert await reads(second) == ["- 0 x"]


@pytest.mark.rule("S-33")
async def test_a_fork_has_both_scopes_as_they_were_and_writes_into_a_thread_of_its_own(process, autojump_clock):
    async with process() as house:
        script = [call("keep", last="a", see="x", id="A")], [call("keep", last="b", see="y", id="B")]
        first = await house.begin("r1", *script)
        await first.result()
        fork = await house.runtime.fork("r1", step=1, new_run_id="f")
        await fork.result()
        assert await reads(fork) == ["a 0 x", "a 0 xx"]  # its model plays the script from its beginning
        assert (await fork.view()).state == {"last": "b", "seen": ["x", "x", "y"]}
        third = await house.begin("r3", [look()])
        await third.result()
        assert await reads(third) == ["- 0 xy"]


@pytest.mark.rule("S-33")
async def test_what_run_end_hooks_write_is_of_no_step_and_a_fork_has_none_of_it(process, autojump_clock):
    def close(ctx: gr.PhaseContext[Any]) -> gr.Mutation:
        return gr.Mutation().set(TITLE, "closed").set(LAST, "closed")

    async with process() as house:
        plugins = [scripted("closer", run_end=close)]
        first = await house.begin("r1", [call("keep", last="a", title="one", id="A")], plugins=plugins)
        await first.result()
        forks = [await house.runtime.fork("r1", step=step, new_run_id=f"f{step}") for step in (1, 2)]
        born = [await house.runtime.store.state_at(fork.id, 0) for fork in forks]
        second = await house.begin("r2", [look()], [call("keep", last="b", id="B")])
        await second.result()
        views = [(await run.view()).state for run in (first, second)]
    assert [{write.key: write.value for write in one} for one in born] == [{"last": "a", "title": "one"}] * 2
    assert views == [{"last": "closed", "title": "closed"}, {"last": "b", "title": "closed"}]


@pytest.mark.rule("S-35")
async def test_a_thread_that_grows_costs_a_run_that_does_not_touch_it_nothing(process, watched, autojump_clock):
    async with process() as house:
        await (await house.begin("r1", [call("keep", see="x", title="t", id="A")])).result()
        written = len(watched.log)
        await (await house.begin("r2", [look()])).result()
        assert [commit.state for commit in watched.log[written:] if commit.state] == []


async def state_of(store: Store, run_id: str) -> dict[str, Any]:
    record = await store.load(run_id)
    assert record is not None
    return {f"{write.scope} {write.key}": (write.value, write.revision) for write in record.state}


async def test_a_revision_is_of_the_run_that_wrote_it(process, autojump_clock):
    async with process() as house:
        await (await house.begin("r1", [call("keep", see="x", title="one", id="A")])).result()
        await (await house.begin("r2", [call("keep", add=1, id="A")], [call("keep", title="two", id="B")])).result()
        kept = await state_of(house.runtime.store, "r2")
    assert kept == {
        f"thread {SEEN.name}": (["x"], 0),
        f"thread {TITLE.name}": ("two", 2),
        "run total": (1, 1),
    }
