"""The contexts of tools: facts, reports and their limits."""

import math

import pytest
import trio

from greenroom.actors.errors import ToolError, UsageError
from greenroom.actors.tools import SyncToolContext, ToolContext


def test_a_context_for_a_unit_test_needs_no_more_than_deps():
    ctx = ToolContext(deps={"a": 1})
    assert ctx.deps == {"a": 1}
    assert (ctx.attempt, ctx.decision) == (1, None)


def test_the_idempotency_key_is_the_same_in_every_attempt():
    first = ToolContext(run_id="r", call_id="c", attempt=1)
    second = SyncToolContext(run_id="r", call_id="c", attempt=2)
    assert first.idempotency_key == second.idempotency_key != ToolContext(run_id="r", call_id="d").idempotency_key


def test_a_task_has_a_key_of_its_own():
    task = ToolContext(run_id="r", call_id="c", task_id="c.task1")
    assert task.idempotency_key == "r/c.task1" != ToolContext(run_id="r", call_id="c").idempotency_key


async def test_only_a_tool_can_be_spawned():
    with pytest.raises(ToolError, match=r"spawn\(<built-in function print>\): that is no tool; give a tool"):
        await ToolContext().spawn(print)


async def test_a_context_made_by_hand_says_that_it_runs_no_tasks():
    for ask in (lambda: ToolContext().spawn("crawl"), lambda: ToolContext().cancel_task("x"), ToolContext().tasks):
        with pytest.raises(UsageError, match=r"made by hand runs no tasks; give it start_task="):
            await ask()
    for ask in (
        lambda: SyncToolContext().spawn("crawl"),
        lambda: SyncToolContext().cancel_task("x"),
        SyncToolContext().tasks,
    ):
        with pytest.raises(UsageError, match=r"made by hand runs no tasks; give it start_task="):
            ask()


async def test_a_unit_test_learns_what_a_body_spawns():
    received = []

    async def start(tool, arguments):
        received.append((tool, arguments))
        return "t"

    with trio.testing.assert_checkpoints():
        assert await ToolContext(start_task=start).spawn("crawl", url="x", tool="y") == "t"
    assert received == [("crawl", {"url": "x", "tool": "y"})]


async def test_reports_of_a_body_reach_the_listener_in_order():
    received = []

    async def progress(fraction, text):
        received.append((fraction, text))

    async def output(text):
        received.append(text)

    ctx = ToolContext(report_progress=progress, report_output=output)
    await ctx.progress(0, "start")
    await ctx.output("a")
    await ctx.progress(1)
    assert received == [(0.0, "start"), "a", (1.0, "")]
    await ToolContext().progress(0.5, "nobody hears")
    await ToolContext().output("nobody hears")


async def test_a_report_is_a_checkpoint_and_a_cancelled_one_is_not_sent():
    received = []

    async def output(text):
        received.append(text)

    ctx = ToolContext(report_output=output)
    with trio.testing.assert_checkpoints():
        await ctx.output("a")
    with trio.testing.assert_checkpoints():
        await ctx.progress(0.1)
    with trio.CancelScope() as scope:
        scope.cancel()
        await ctx.output("b")
    assert received == ["a"]


@pytest.mark.parametrize("fraction", [-0.1, 1.1, math.nan, math.inf, "half", None, True], ids=str)
async def test_progress_out_of_range_is_refused_with_the_range(fraction):
    with pytest.raises(ValueError, match=r"0\.0 to 1\.0"):
        await ToolContext().progress(fraction)
    with pytest.raises(ValueError, match=r"0\.0 to 1\.0"):
        SyncToolContext().progress(fraction)


async def test_output_and_progress_texts_must_be_str():
    with pytest.raises(ValueError, match="str, not bytes"):
        await ToolContext().output(b"x")
    with pytest.raises(ValueError, match="str, not bytes"):
        SyncToolContext().output(b"x")
    with pytest.raises(ValueError, match="str, not int"):
        await ToolContext().progress(0.5, 3)


def test_the_context_of_a_sync_tool_has_plain_functions():
    received = []
    ctx = SyncToolContext(
        report_progress=lambda fraction, text: received.append((fraction, text)), report_output=received.append
    )
    ctx.progress(0.5, "half")
    ctx.output("a")
    ctx.check_cancelled()
    assert received == [(0.5, "half"), "a"]
    SyncToolContext().progress(0.5)
    SyncToolContext().output("nobody hears")
