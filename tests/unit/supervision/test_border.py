"""What passes the border to user code, and what is the failure of that code."""

from __future__ import annotations

import functools
import signal

import pytest
import trio

from greenroom.supervision import failure_of, failure_of_call, is_interrupt
from greenroom.supervision.border import note_handler
from greenroom.supervision.exits import STRAY

from ...support.stray_cancels import ESCAPES, ctrl_c, foreign_cancellation, to_its_end


def caught(act):
    try:
        act()
    except BaseException as error:  # noqa: BLE001, ASYNC103 - what is caught is what is tested
        return error  # noqa: ASYNC104 - the border has raised what passes
    raise AssertionError


def raising(error):
    def act():
        raise error

    return act


async def a_real_one():
    return caught(ctrl_c)


@pytest.mark.parametrize("kind", ESCAPES)
@pytest.mark.parametrize("judge", [failure_of, failure_of_call])
async def test_any_exception_of_user_code_is_its_failure(kind, judge):
    error = caught(raising(kind()))
    assert judge(error) is error


@pytest.mark.parametrize("kind", ESCAPES)
async def test_any_exception_in_a_group_is_a_failure_of_user_code(kind):
    inside = caught(raising(kind()))
    assert failure_of(BaseExceptionGroup("one", [inside])) is inside
    both = failure_of(BaseExceptionGroup("outer", [BaseExceptionGroup("two", [inside, ValueError()])]))
    assert isinstance(both, BaseExceptionGroup)
    assert both.exceptions[0] is inside


@pytest.mark.parametrize("judge", [failure_of, failure_of_call])
async def test_a_real_interrupt_passes_and_also_out_of_a_group(judge):
    real = await a_real_one()
    assert is_interrupt(real)
    for error in (real, BaseExceptionGroup("two", [ValueError(), real])):
        with pytest.raises(KeyboardInterrupt) as seen:
            judge(error)
        assert seen.value is real


async def test_an_interrupt_that_replaces_a_real_interrupt_is_real():
    def act():
        try:
            ctrl_c()
        except KeyboardInterrupt:
            raise KeyboardInterrupt("again") from None

    assert is_interrupt(caught(act))


async def test_an_interrupt_in_a_circular_chain_of_causes_is_judged():
    error = caught(raising(KeyboardInterrupt()))
    error.__cause__ = error
    assert not is_interrupt(error)


def test_an_interrupt_that_trio_delivers_to_the_main_task_is_real():
    """A signal that meets protected code is raised in the main task, at its next checkpoint."""
    seen = []
    protected = trio.lowlevel.enable_ki_protection(lambda: ctrl_c() or None)

    async def main():
        try:
            protected()
            await trio.sleep(10)
        except KeyboardInterrupt as error:
            seen.append(is_interrupt(error))

    trio.run(main)
    assert seen == [True]


def test_an_interrupt_of_a_programs_own_handler_is_real():
    def handler(number, frame):
        raise KeyboardInterrupt

    class Handler:
        def __call__(self, number, frame):
            raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    try:
        for one in (handler, Handler(), functools.partial(handler)):
            signal.signal(signal.SIGINT, one)
            assert not is_interrupt(caught(raising(KeyboardInterrupt())))
            note_handler(signal.getsignal(signal.SIGINT), bare=False)
            assert is_interrupt(caught(ctrl_c))
    finally:
        signal.signal(signal.SIGINT, before)


def test_where_the_default_handler_leaves_no_trace_every_interrupt_is_real():
    try:
        note_handler(signal.default_int_handler, bare=True)
        assert is_interrupt(caught(raising(KeyboardInterrupt())))
    finally:
        note_handler(signal.default_int_handler, bare=False)
    assert not is_interrupt(caught(raising(KeyboardInterrupt())))


def test_outside_of_trio_a_coroutine_that_is_closed_is_no_failure():
    with pytest.raises(GeneratorExit):
        failure_of(GeneratorExit())


async def test_a_cancellation_passes_if_a_scope_around_it_is_cancelled():
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as error:
            failure_of(error)
            raise AssertionError from None  # noqa: ASYNC104 - the border has raised what passes
    assert scope.cancelled_caught


@pytest.mark.parametrize("grouped", [False, True])
async def test_a_foreign_cancellation_is_a_failure(grouped):
    async def scene():
        error = await foreign_cancellation()
        assert str(failure_of(BaseExceptionGroup("one", [error]) if grouped else error)) == STRAY
        assert str(failure_of_call(error)) == STRAY

    await to_its_end(scene)
