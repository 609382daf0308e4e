"""Flattening and collapsing exception groups, at any depth."""

from __future__ import annotations

import gc

import pytest
import trio

from greenroom.supervision import flatten, leaves, open_collapsing_nursery, passes_through, sole_cancellation


async def a_cancellation() -> trio.Cancelled:
    with trio.CancelScope() as scope:
        scope.cancel("why")
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as error:  # noqa: ASYNC103 - the caught leaf is what is tested
            return error  # noqa: ASYNC104 - the caught leaf is what is tested
    raise AssertionError


def nest(error, levels):
    for _ in range(levels):
        error = BaseExceptionGroup("level", [error])
    return error


async def test_nested_groups_of_five_thousand_levels_collapse_to_their_leaf():
    leaf = await a_cancellation()
    deep = nest(leaf, 5_000)
    try:
        assert sole_cancellation(deep) is leaf
        assert list(leaves(deep)) == [leaf]
        assert flatten(deep) is leaf
    finally:
        # unlink level by level: a chain of 5,000 groups is more than the interpreter frees recursively in comfort
        del deep
        gc.collect()


async def test_a_real_error_is_not_hidden_by_cancellations_beside_it():
    leaf, error = await a_cancellation(), ValueError("real")
    group = BaseExceptionGroup("", [leaf, BaseExceptionGroup("", [error, leaf])])
    assert sole_cancellation(group) is None
    assert flatten(group) is error


def test_several_real_errors_become_one_flat_group_in_order():
    one, two = ValueError(1), KeyError(2)
    flat = flatten(ExceptionGroup("g", [ExceptionGroup("h", [one]), two]))
    assert isinstance(flat, ExceptionGroup)
    assert flat.exceptions == (one, two)


def test_an_error_that_is_no_group_stays_itself():
    error = ValueError()
    assert flatten(error) is error


def test_a_broken_trio_passes_through_at_any_depth():
    assert passes_through(nest(trio.TrioInternalError(), 3))
    assert not passes_through(nest(ValueError(), 3))


async def test_a_collapsing_nursery_lets_one_error_out_bare():
    error = ValueError("bare")

    async def fail():
        raise error

    with pytest.raises(ValueError, match="bare") as caught:  # noqa: PT012
        async with open_collapsing_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            nursery.start_soon(fail)
    assert caught.value is error
    assert caught.value.__context__ is None


async def test_a_collapsing_nursery_keeps_a_group_that_a_task_has_raised_itself():
    own = ExceptionGroup("own", [ValueError()])

    async def fail():
        raise own

    with pytest.raises(ExceptionGroup) as caught:  # noqa: ASYNC401 - the group's shape is what is tested
        async with open_collapsing_nursery() as nursery:
            nursery.start_soon(fail)
    assert (caught.value.message, caught.value.exceptions) == ("own", own.exceptions)
