"""The clock of scenes in real time: fast, and not for the stretches in which the machine does not let trio work."""

import time

import pytest
import trio
from tests.support.paced_clock import STALL, PacedClock

PACE = 10.0


def played(function):
    """Run an async function with a paced clock; returns what it returns."""
    return trio.run(function, clock=PacedClock(PACE))


def test_a_wait_takes_its_part_of_real_time():
    async def wait():
        began = time.monotonic()
        await trio.sleep(2)
        return time.monotonic() - began

    assert played(wait) >= 2 / PACE - 0.001


def test_the_time_in_which_threads_work_counts():
    async def wait():
        began = trio.current_time()
        await trio.to_thread.run_sync(time.sleep, 0.2)  # noqa: TID251 - as a statement
        return trio.current_time() - began

    assert played(wait) >= 0.2 * PACE - 0.01


@pytest.mark.parametrize("sleeper", [False, True])
def test_the_clock_stands_still_while_trio_gets_no_processor(sleeper):
    """A task that blocks the thread stands for that; a timer that is due meanwhile is not late by the clock."""

    async def stall():
        began = trio.current_time()
        late = []

        async def sleep():
            await trio.sleep(1)
            late.append(trio.current_time() - began - 1)

        async with trio.open_nursery() as nursery:
            if sleeper:
                nursery.start_soon(sleep)
                await trio.sleep(0.5)
            before = trio.current_time()
            time.sleep(0.3)  # noqa: TID251, ASYNC251 - the machine is busy
            stalled = trio.current_time() - before
        return stalled, late

    stalled, late = played(stall)
    assert stalled <= STALL * PACE + 0.01
    assert all(seconds <= 3 * STALL * PACE for seconds in late)
