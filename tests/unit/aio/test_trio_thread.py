"""Calls between asyncio and trio: results, errors, cancels, context variables, and nothing that is left behind."""

import asyncio  # noqa: TID251 - the host of the tests
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar

import pytest
import trio
from tests.support.in_asyncio import in_asyncio

import greenroom as gr
from greenroom.transport.bridge.host import HostTaskCancelled
from greenroom.transport.bridge.stream import MOST
from greenroom.transport.bridge.trio_thread import TrioThread, open_trio_thread

NAME: ContextVar[str] = ContextVar("NAME", default="")


def threads() -> int:
    return sum(thread.name == "greenroom" for thread in threading.enumerate())


async def forever(ended: list[str], name: str = "trio") -> None:
    """A trio function that takes its time to end."""
    try:
        await trio.sleep_forever()
    finally:
        with trio.CancelScope(shield=True):
            await trio.sleep(0.01)
        ended.append(name)


# --- asyncio calls trio ----------------------------------------------------------------------------------------------


@in_asyncio
async def test_a_call_returns_the_result_and_raises_the_error_itself() -> None:
    error = ValueError("mine")

    async def double(number: int) -> int:
        await trio.lowlevel.checkpoint()
        return 2 * number

    async def fail() -> None:
        raise error

    async def fail_twice() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail)
            nursery.start_soon(fail)

    async with open_trio_thread() as thread:
        assert await asyncio.gather(*(thread.run(double, number) for number in range(50))) == list(range(0, 100, 2))
        with pytest.raises(ValueError, match="mine") as caught:
            await thread.run(fail)
        assert caught.value is error
        with pytest.RaisesGroup(ValueError, ValueError):  # as trio raises it
            await thread.run(fail_twice)
    assert threads() == 0


@in_asyncio
async def test_a_cancelled_caller_waits_for_the_end_of_the_function() -> None:
    ended: list[str] = []
    async with open_trio_thread() as thread:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await thread.run(forever, ended)
        assert ended == ["trio"]
        task = asyncio.create_task(thread.run(forever, ended))
        for _ in range(5):  # impatience changes nothing
            await asyncio.sleep(0)
            task.cancel("now")
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        assert caught.value.args == ("now",)
        assert ended in (["trio"], ["trio", "trio"])  # the first cancels may come before the beginning


@in_asyncio
async def test_an_error_after_a_cancel_is_not_lost() -> None:
    async def stubborn() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("while it ended")

    async with open_trio_thread() as thread:
        task = asyncio.create_task(thread.run(stubborn))
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(ValueError, match="while it ended"):
            await task


@in_asyncio
async def test_a_call_sees_the_context_variables_of_its_caller() -> None:
    async def name() -> str:
        return NAME.get()

    NAME.set("opener")
    async with open_trio_thread() as thread:
        NAME.set("caller")
        assert await thread.run(name) == "caller"

        async def host_name() -> str:
            NAME.set("trio")
            return str(await thread.host.call(name))

        assert await thread.run(host_name) == "trio"
        assert NAME.get() == "caller"


@in_asyncio
async def test_calls_end_with_the_thread_and_later_ones_are_refused() -> None:
    ended: list[str] = []
    async with open_trio_thread() as thread:
        call = asyncio.create_task(thread.run(forever, ended))
        await asyncio.sleep(0.02)
    with pytest.raises(gr.RuntimeClosed):
        await call
    assert ended == ["trio"]
    with pytest.raises(gr.RuntimeClosed):
        await thread.run(forever, ended)
    assert threads() == 0


@in_asyncio
async def test_two_threads_live_in_one_loop() -> None:
    async with open_trio_thread() as one, open_trio_thread() as other:
        ids = [await thread.run(thread_id) for thread in (one, other)]
    assert len({*ids, threading.get_ident()}) == 3


async def thread_id() -> int:
    return threading.get_ident()


# --- blocks ----------------------------------------------------------------------------------------------------------


class Place:
    """A context manager of trio that notes what happens to it."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    @asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        await trio.lowlevel.checkpoint()
        try:
            yield "inside"
        except ValueError as error:
            self.notes.append(f"raised {error}")
            raise
        except trio.Cancelled:
            self.notes.append("cancelled")
            raise
        else:
            self.notes.append("left")
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(0.01)
            self.notes.append("closed")


@in_asyncio
async def test_a_block_inside_a_manager_of_trio_ends_as_in_trio() -> None:
    place, error = Place(), ValueError("mine")
    async with open_trio_thread() as thread:
        async with thread.enter(place.open) as value:
            assert value == "inside"
        assert place.notes == ["left", "closed"]
        with pytest.raises(ValueError, match="mine") as caught:
            async with thread.enter(place.open):
                raise error
        assert caught.value is error
        assert place.notes[2:] == ["raised mine", "closed"]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02), thread.enter(place.open):
                await asyncio.sleep(60)
        assert place.notes[4:] == ["cancelled", "closed"]


@in_asyncio
async def test_a_manager_that_fails_cancels_the_block_and_its_error_takes_the_place() -> None:
    @asynccontextmanager
    async def failing() -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail_soon)
            yield

    async def fail_soon() -> None:
        await trio.sleep(0.02)
        raise ValueError("trio failed")

    async with open_trio_thread() as thread:
        with pytest.RaisesGroup(pytest.RaisesExc(ValueError, match="trio failed")):
            async with thread.enter(failing):
                await asyncio.sleep(60)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await asyncio.sleep(0)  # no cancel is left over


@in_asyncio
async def test_a_manager_that_cannot_be_entered_raises_where_it_is_entered() -> None:
    @asynccontextmanager
    async def broken() -> AsyncIterator[None]:
        await trio.lowlevel.checkpoint()
        raise ValueError("closed today")
        yield

    @asynccontextmanager
    async def slow() -> AsyncIterator[None]:
        await trio.sleep_forever()
        yield

    async with open_trio_thread() as thread:
        with pytest.raises(ValueError, match="closed today"):
            async with thread.enter(broken):
                raise AssertionError("not entered")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01), thread.enter(slow):
                raise AssertionError("not entered")


@in_asyncio
async def test_the_thread_ends_however_often_its_block_is_cancelled() -> None:
    place = Place()
    entered = asyncio.Event()

    async def block() -> None:
        async with open_trio_thread() as thread, thread.enter(place.open):
            entered.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(block())
    await entered.wait()
    while not task.done():
        task.cancel()
        await asyncio.sleep(0)
    assert task.cancelled()
    assert place.notes == ["cancelled", "closed"]
    assert threads() == 0


# --- iterations ------------------------------------------------------------------------------------------------------


class Numbers:
    """An iteration of trio. `given`: how far it has come."""

    def __init__(self, end: int, error: Exception | None = None) -> None:
        self.end, self.error, self.given = end, error, 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[AsyncIterator[int]]:
        yield self.items()

    async def items(self) -> AsyncIterator[int]:
        while self.given < self.end:
            if self.given % 7 == 0:
                await trio.lowlevel.checkpoint()
            self.given += 1
            yield self.given
        if self.error is not None:
            raise self.error


@in_asyncio
async def test_an_iteration_has_every_item_once_and_its_error_at_the_end() -> None:
    async with open_trio_thread() as thread:
        async with thread.iterate(Numbers(1_000).open) as items:
            assert [number async for number in items] == list(range(1, 1_001))
        error = ValueError("at the end")
        async with thread.iterate(Numbers(1_000, error).open) as items:
            assert [await anext(items) for _ in range(1_000)] == list(range(1, 1_001))
            with pytest.raises(ValueError, match="at the end") as caught:
                await anext(items)
        assert caught.value is error


@in_asyncio
async def test_a_slow_reader_slows_the_iteration_and_a_cancelled_read_loses_nothing() -> None:
    source = Numbers(10_000)
    async with open_trio_thread() as thread, thread.iterate(source.open) as items:
        numbers = [await anext(items)]
        await asyncio.sleep(0.05)
        assert source.given <= MOST + 1
        while len(numbers) < 3_000:
            try:
                async with asyncio.timeout(0 if len(numbers) % 100 == 0 else None):
                    numbers.append(await anext(items))
            except TimeoutError:
                numbers.append(await anext(items))
    assert numbers == list(range(1, 3_001))
    assert source.given <= 3_000 + MOST + 1


# --- trio calls asyncio ----------------------------------------------------------------------------------------------


async def in_trio_with(thread: TrioThread, seconds: float, function: object) -> str:
    """Call a function of asyncio from trio, under a time limit."""
    with trio.move_on_after(seconds):
        return str(await thread.host.call(function))  # type: ignore[arg-type]
    return "cancelled"


@in_asyncio
async def test_trio_calls_asyncio_and_gets_its_result_and_its_error() -> None:
    error = KeyError("host")

    async def work() -> str:
        await asyncio.sleep(0.001)
        return threading.current_thread().name

    async def fail() -> None:
        await asyncio.sleep(0)
        raise error

    async with open_trio_thread() as thread:
        assert await thread.run(in_trio_with, thread, 60.0, work) == "MainThread"
        with pytest.raises(KeyError) as caught:
            await thread.run(in_trio_with, thread, 60.0, fail)
        assert caught.value is error


@in_asyncio
async def test_a_cancelled_call_of_asyncio_is_awaited_to_its_end() -> None:
    notes: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)  # noqa: ASYNC102 - what is shown: the caller waits
            notes.append("ended")

    async def heroic() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:  # noqa: ASYNC103 - what is shown
            return "done nevertheless"  # noqa: ASYNC104
        return ""

    async with open_trio_thread() as thread:
        assert await thread.run(in_trio_with, thread, 0.01, work) == "cancelled"
        assert notes == ["ended"]
        assert await thread.run(in_trio_with, thread, 0.01, heroic) == "done nevertheless"
        assert len(asyncio.all_tasks()) == 1


@in_asyncio
async def test_a_task_that_the_host_cancels_is_a_failure_of_the_call() -> None:
    async def work() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(60)

    async with open_trio_thread() as thread:
        with pytest.raises(HostTaskCancelled):
            await thread.run(in_trio_with, thread, 60.0, work)
