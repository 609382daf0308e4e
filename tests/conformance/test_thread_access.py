"""Whose words a thread takes: `may_join` is asked for each run of which the caller would be read a message."""

from datetime import timedelta

import pytest
import trio

import greenroom as gr
from greenroom.testing import FunctionModel, call

from ..support.runs import home

SECRET = "the-safe-is-0000"


@gr.tool(needs_approval=True)
async def pay() -> str:
    return "paid"


def echo():
    def repeats(request):
        said = [str(message.content) for message in request.messages]
        return call("pay", id="c1") if said[-1] == "pay" else "; ".join(said)

    return gr.Agent("echo", model=FunctionModel(repeats), tools=[pay])


def seen_by(*names):
    return lambda info: info.by in names


async def done(runtime, run_id, thread, by, text="hi"):
    run = await runtime.start("echo", text, run_id=run_id, thread_id=thread, by=by)
    await run.result()
    return run


async def forked(runtime, run_id, by, new_run_id, sees, step=1):
    run = await runtime.fork(run_id, step=step, new_run_id=new_run_id, by=by, may_join=sees)
    return (await run.result()).output


async def refused(call_, *args, **options):
    with pytest.raises(gr.ThreadForbidden, match="is not open to 'bob'"):
        await call_(*args, **options)


async def test_a_fork_of_a_run_behind_a_hidden_one_is_refused_and_one_before_it_is_not(shelf, autojump_clock):
    """What a fork copies decides, and not what its thread has besides."""
    async with home(shelf, agents=[echo()]) as runtime:
        await done(runtime, "b1", "t", "bob")
        await done(runtime, "a1", "t", "ann", SECRET)
        await done(runtime, "b2", "t", "bob")
        assert await forked(runtime, "b1", "bob", "f1", seen_by("bob"), step=0) == "hi"
        await refused(runtime.fork, "b2", step=0, by="bob", may_join=seen_by("bob"))
        await refused(runtime.fork, "b2", step=1, by="bob", may_join=seen_by("bob"))
        assert SECRET in await forked(runtime, "b2", "bob", "f2", seen_by("bob", "ann"), step=0)
        assert [one.info.run_id for one in (await runtime.runs()).runs] == ["f2", "f1", "b2", "a1", "b1"]


async def test_the_thread_of_a_fork_is_as_open_as_what_the_fork_has_copied(shelf, autojump_clock):
    """Also through a fork of a fork; the forks themselves are visible."""
    async with home(shelf, agents=[echo()]) as runtime:
        await done(runtime, "a1", "t", "ann", SECRET)
        for before, new in (("a1", "f1"), ("f1", "f2")):
            await (await runtime.fork(before, step=0, new_run_id=new, by="root")).result()
            thread = f"{new}.thread"
            mine, all_ = seen_by("bob", "root"), seen_by("bob", "root", "ann")
            await refused(runtime.start, "echo", "repeat", thread_id=thread, by="bob", may_join=mine)
            await refused(runtime.fork, new, step=0, by="bob", may_join=mine)
            info = (await runtime.store.load(new)).info
            await refused(runtime.reader.check_thread, info, "bob", mine)
            await runtime.reader.check_thread(info, "bob", all_)
            await (
                await runtime.start("echo", "x", run_id=f"b-{new}", thread_id=thread, by="bob", may_join=all_)
            ).result()


async def test_a_hidden_run_that_waits_behind_a_run_does_not_shut_it(shelf, autojump_clock):
    """The model of the run in front has read nothing of it; a new run would."""
    async with home(shelf, agents=[echo()]) as runtime:
        first = await runtime.start("echo", "pay", run_id="b1", thread_id="t", by="bob")
        await first.wait()
        await runtime.start("echo", SECRET, run_id="a1", thread_id="t", by="ann")
        await trio.sleep(1)
        info = (await runtime.store.load("b1")).info
        await runtime.reader.check_thread(info, "bob", seen_by("bob"))
        await refused(runtime.start, "echo", "x", thread_id="t", by="bob", may_join=seen_by("bob"))


@pytest.mark.parametrize("pruned", ["a1", "a1 and b1"])
async def test_what_a_pruned_hidden_run_has_left_is_not_copied(pruned, shelf, autojump_clock):
    async with home(shelf, agents=[echo()]) as runtime:
        await done(runtime, "a1", "t", "ann", SECRET)
        if pruned == "a1 and b1":
            await done(runtime, "b0", "t", "bob")
        await trio.sleep(10)
        middle = runtime.clock.now()
        await trio.sleep(10)
        await done(runtime, "b1", "t", "bob")
        assert (await runtime.store.prune(middle)).runs >= 1
        await refused(runtime.fork, "b1", step=0, by="bob", may_join=seen_by("bob"))


async def test_a_fork_outlives_the_run_that_it_was_made_of(shelf, autojump_clock):
    """Its owner was asked when it was made; for others the pruned run counts as hidden."""
    async with home(shelf, agents=[echo()]) as runtime:
        await done(runtime, "b1", "t", "bob")
        await trio.sleep(10)
        middle = runtime.clock.now()
        await trio.sleep(10)
        await forked(runtime, "b1", "bob", "f1", seen_by("bob"))
        assert (await runtime.store.prune(middle + timedelta(seconds=1))).runs == 1
        more = await runtime.start("echo", "x", thread_id="f1.thread", by="bob", may_join=seen_by("bob"))
        await more.result()
        with pytest.raises(gr.ThreadForbidden):
            await runtime.start("echo", "x", thread_id="f1.thread", by="carl", may_join=seen_by("bob", "carl"))
