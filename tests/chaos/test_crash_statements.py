"""A crash of the sweep is an error of the program's own code: correct programs pass, planted crash bugs are found."""

from __future__ import annotations

import contextlib
import sys

import pytest
import trio

from greenroom.supervision import chaos


class Tools:
    """What the programs hold; none of it may stay held or lost when a program has crashed."""

    def __init__(self):
        self.held, self.taken, self.done = [], [], []
        self.lock, self.semaphore, self.limiter = trio.Lock(), trio.Semaphore(1), trio.CapacityLimiter(1)
        self.condition = trio.Condition()
        self.send, self.receive = trio.open_memory_channel(10)


def check(tools):
    if tools.lock.locked() or tools.condition.locked():
        yield "a lock is held"
    if tools.semaphore.value != 1 or tools.limiter.borrowed_tokens:
        yield "a place is taken"
    if tools.held:
        yield f"held: {tools.held}"
    if sorted(tools.taken) != sorted(tools.done):
        yield f"taken {tools.taken}, done {tools.done}"


async def three(work, tools):
    async with trio.open_nursery() as nursery:
        for number in range(3):
            nursery.start_soon(work, tools, number)


# --- correct programs ------------------------------------------------------------------------------------------------


async def guarded(tools, number):
    for _ in range(3):
        async with tools.lock:
            await trio.sleep(0.1)
        async with tools.semaphore:
            await trio.lowlevel.checkpoint()
        async with tools.limiter:
            await trio.sleep(0.1)
        async with tools.condition:
            tools.condition.notify()


@contextlib.asynccontextmanager
async def holding(tools, number):
    async with tools.lock:
        tools.held.append(number)
        try:
            yield number
        finally:
            tools.held.remove(number)


class Guard:
    """A context manager with methods: `__aenter__` returns as soon as it has the place."""

    def __init__(self, tools):
        self.tools = tools

    async def __aenter__(self):
        await self.tools.semaphore.acquire()
        return self

    async def __aexit__(self, *_):
        self.tools.semaphore.release()


async def by_hand(tools, number):
    async with holding(tools, number) as mine, Guard(tools):
        await trio.sleep(0.1)
        assert mine == number
    await tools.lock.acquire()
    try:
        await trio.sleep(0.1)
    finally:
        with trio.CancelScope(shield=True):
            await trio.sleep(0.1)  # noqa: ASYNC102 - a clean-up that takes time is what is tested
        tools.lock.release()


@pytest.mark.parametrize("program", [guarded, by_hand])
def test_a_program_that_holds_things_in_blocks_only_is_called_correct(program):
    report = chaos.sweep_crash(Tools, lambda tools: three(program, tools), check, seeds=(1, 2)).require()
    assert report.hits > 30


# --- planted bugs ----------------------------------------------------------------------------------------------------


async def no_finally(tools, number):
    await tools.lock.acquire()
    await trio.sleep(0.1)
    tools.lock.release()


async def too_early(tools, number):
    await tools.semaphore.acquire()
    tools.held.append(number)  # outside of the block that gives both back
    try:
        await trio.sleep(0.1)
    finally:
        tools.held.remove(number)
        tools.semaphore.release()


async def two_steps(tools, number):
    tools.taken.append(number)
    await trio.sleep(0.1)
    tools.done.append(number)


async def fetch(tools):
    return await tools.receive.receive()


async def from_a_helper(tools, number):
    await tools.send.send(number)
    number = await fetch(tools)  # `fetch` has no statement after its operation; the next one is here
    tools.taken.append(number)
    tools.done.append(number + len(str(number)) - 1)
    await trio.lowlevel.checkpoint()


async def in_a_loop(tools, number):
    for step in range(3):
        tools.taken.append(step)
        await trio.sleep(0.1)
        if step >= 0:
            tools.done.append(step)


BUGS = {no_finally: "a lock is held", too_early: "a place is taken", two_steps: "taken", in_a_loop: "taken"}


@pytest.mark.parametrize("program", BUGS)
def test_every_planted_crash_bug_is_found_and_its_token_replays_it(program):
    def scenario(tools):
        return three(program, tools)

    report = chaos.sweep_crash(Tools, scenario, check)
    found = [violation for violation in report.violations if BUGS[program] in violation.message]
    assert found, report
    assert all(violation.place.startswith("at test_crash_statements.py:") for violation in found)
    again = chaos.sweep_crash(Tools, scenario, check, only=str(found[0].token))
    assert [str(violation) for violation in again.violations if BUGS[program] in violation.message] == [str(found[0])]


def test_a_frame_that_only_returns_is_passed_and_its_caller_s_next_statement_raises():
    report = chaos.sweep_crash(Tools, lambda tools: three(from_a_helper, tools))
    assert any(site.endswith(":fetch") for site in report.struck), report  # where the task waited


def test_the_modules_whose_statements_crash_can_be_chosen():
    nowhere = chaos.sweep_crash(Tools, lambda tools: three(no_finally, tools), check, inside=["elsewhere"])
    assert nowhere.hits == 0
    here = chaos.sweep_crash(Tools, lambda tools: three(no_finally, tools), check, inside=[__name__])
    assert here.violations


def test_a_trace_function_of_the_program_is_put_back():
    before = sys.gettrace()
    chaos.sweep_crash(Tools, lambda tools: three(two_steps, tools), check)
    assert sys.gettrace() is before
