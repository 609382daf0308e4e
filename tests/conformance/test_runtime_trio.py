"""What a trio program may rely on: checkpoints, and whose context user code runs in."""

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import assert_checkpoints, wait_all_tasks_blocked

import greenroom as gr
from greenroom.testing import call

from ..support.runs import KINDS, Outages, Shelf, agent, home


@gr.tool(needs_approval=True)
async def ask() -> str:
    return "asked"


@pytest.fixture(params=KINDS)
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Shelf:
    return Shelf(request.param, tmp_path)


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


async def test_a_command_to_a_closed_runtime_can_be_cancelled(shelf, autojump_clock):
    helper = agent("done")
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
    for send in commands(run):
        with trio.CancelScope() as scope:
            scope.cancel()
            await send()
        assert scope.cancelled_caught
