"""The wall jumps at any moment."""

from __future__ import annotations

from datetime import timedelta

import trio
from tests.conformance import test_clock_steps as table
from trio.testing import MockClock

import greenroom as gr
from greenroom.testing import FakeWall

from .core import Dice, must


async def while_clocks_jump(dice: Dice) -> None:
    """A run in some waiting state, with a deadline, and a wall that is set a few times."""
    wall = FakeWall()
    async with table.opened(None, wall) as runtime:
        deadline = runtime.clock.now() + timedelta(seconds=table.LONG)
        state = dice.choice(sorted(table.WAITING))
        run = await table.WAITING[state](runtime, deadline)
        early = True
        for _ in range(dice.randint(1, 4)):
            await trio.sleep(dice.choice((0, 0.3, 5, 70)))
            done = (await run.view()).termination is not None
            early = early and wall() < deadline
            must(not done or not early, f"{state}: ended before its deadline")
            wall.step(dice.choice((-3600.0, 8 * 3600.0, -1.0, 59.0, -6 * 3600.0)))
        remaining = max(0.0, (deadline - wall()).total_seconds())
        with trio.move_on_after(remaining + table.SOON + 0.5) as limit:
            outcome = await run.result()
        must(not limit.cancelled_caught, f"{state}: still not ended after its deadline")
        must(isinstance(outcome, gr.Failed) and outcome.code == "run_timeout", f"{state}: {outcome}")
        await table.ordered(run)


def clocks(dice: Dice) -> None:
    """Deadlines in every waiting state, while the wall is set back and forth."""
    trio.run(while_clocks_jump, dice, clock=MockClock(autojump_threshold=0))
