"""The clocks of a program: which one runs out, and when."""

import pytest
import trio

from greenroom.actors.backends.clocks import ProgramClocks, ProgramLimits


@pytest.mark.parametrize(
    ("limits", "heard", "which", "at"),
    [
        (ProgramLimits(start=60, idle=3), 1, "idle", 4),
        (ProgramLimits(start=60, idle=3), 50, "idle", 53),
        (ProgramLimits(start=60, idle=3), None, "start", 60),
        (ProgramLimits(start=2, idle=300), None, "start", 2),
        (ProgramLimits(start=60, idle=300, work=5), 1, "work", 5),
    ],
)
async def test_a_clock_runs_out_on_time_whatever_the_others_are(autojump_clock, limits, heard, which, at):
    began = trio.current_time()

    def heard_at() -> float | None:
        return None if heard is None or trio.current_time() < began + heard else began + heard

    clocks = ProgramClocks(limits, heard_at, lambda: False)
    found, _ = await clocks.watch()
    assert (found, trio.current_time() - began) == (which, pytest.approx(at))


async def test_no_clock_runs_while_a_question_is_open(autojump_clock):
    began = trio.current_time()
    clocks = ProgramClocks(ProgramLimits(start=1, idle=3, work=10), lambda: began, lambda: False)
    async with trio.open_nursery() as nursery:

        async def ask() -> None:
            await trio.sleep(2)
            with clocks.waiting():
                await trio.sleep(100)

        nursery.start_soon(ask)
        assert (await clocks.watch())[0] == "idle"
    assert trio.current_time() - began == pytest.approx(105)
