"""A run whose owner goes as run_end begins: nothing waits for a child that has no task left, and nothing is blamed."""

from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

import greenroom as gr
from greenroom.actors.engine.inputs import Unfinished
from greenroom.actors.services.children import Child, Children, OverrunBody

from ..support.runs import agent, events_of, home
from ..support.scene_plugins import scripted

READ = 1.0
"""Virtual seconds that a look at a thread takes; a cancel does not cut it short, as with a worker thread."""


class SlowReads(gr.MemoryStore):
    """A store in whose messages no reader is quick, and that can be made to fail."""

    failing = False

    async def messages(self, *args: Any, **kwargs: Any) -> Any:
        with trio.CancelScope(shield=True):
            await trio.sleep(READ)
            return await super().messages(*args, **kwargs)

    def submit(self, *args: Any, **kwargs: Any) -> None:
        if self.failing:
            self.failing = False
            raise RuntimeError("a commit that cannot be taken")
        super().submit(*args, **kwargs)


async def in_run_end(store: gr.Store, helper: gr.Agent[Any], asked: list[float]) -> None:
    """Leave a run in the middle of its run_end hook."""
    async with home(store, agents=[helper], drain=0) as runtime:
        await runtime.start(helper, "hi", run_id="r1")
        while not asked:  # noqa: ASYNC110 - virtual time
            await trio.sleep(0.1)


def patient(asked: list[float]) -> gr.Agent[Any]:
    async def run_end(ctx: Any) -> None:
        asked.append(trio.current_time())
        await trio.sleep(3)

    return agent("done", plugins=[scripted("x", run_end=run_end)])


async def test_leaving_the_runtime_as_run_end_begins_does_not_wait_for_its_limit(autojump_clock):
    store, asked = SlowReads(), list[float]()
    helper = patient(asked)
    await in_run_end(store, helper, asked)
    asked.clear()
    async with home(store, agents=[helper], drain=0):
        await trio.sleep(READ / 2)
        left = trio.current_time()
    assert trio.current_time() - left == pytest.approx(READ / 2)
    assert asked == []  # a hook whose run is being left is not asked


async def test_a_crash_of_the_owner_as_run_end_begins_blames_no_plugin(autojump_clock):
    store, asked = SlowReads(), list[float]()
    helper = patient(asked)
    await in_run_end(store, helper, asked)
    asked.clear()
    async with home(store, agents=[helper], drain=0) as runtime:
        await trio.sleep(READ / 2)
        run, began = await runtime.get("r1"), trio.current_time()
        store.failing = True
        await run.send("more")
        assert (await run.result()).output == "done"
        end = [event.payload for event in await events_of(run)][-1]
        assert end.get("stubborn", ()) in ((), [])
        assert trio.current_time() - began < 3 * READ + 3  # the read that was begun, one of the next owner, the hook
        assert len(asked) == 1


async def test_a_body_that_waited_for_an_older_attempt_does_not_begin_if_it_is_cancelled_meanwhile(nursery):
    began, ended = list[str](), trio.Event()
    item = Unfinished(call_id="a", tool="t", grace=5.0, stack="")
    children = Children(nursery, lambda: None, lambda text: (len(text), ""), {"call:a": OverrunBody(item, ended)})

    async def body(_: Child) -> None:
        began.append("a")

    child = children.start("call:a", body, broke=None)
    await wait_all_tasks_blocked()
    ended.set()
    child.scope.cancel()  # both in one stretch: the wait for the older one returns
    await child.ended.wait()
    assert began == []


async def test_what_a_child_starts_when_the_owner_has_gone_never_begins(nursery):
    began = list[str]()
    children = Children(nursery, lambda: None, lambda text: (len(text), ""))
    await children.end(wait=True)

    async def body(_: Child) -> None:
        began.append("a")

    await children.start("late", body, broke=None).ended.wait()
    assert began == []
