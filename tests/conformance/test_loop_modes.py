"""Scenes of docs/loop.md: execution modes of the program's own."""

import itertools
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.actors.contract.spec import MODES
from greenroom.testing import call

from ..support.scene_tools import TOOLS, Context
from ..support.scenes import Play, approve, restart

MERGES: Any = ("at_once", "together")
COLUMNS = [
    gr.ExecutionMode(bodies=bodies, suspended_blocks=blocks, batch=batch, merges=merges)
    for bodies, blocks, batch, merges in itertools.product((1, 2, None), (False, True), (False, True), MERGES)
]
TOTAL = gr.StateKey("total", int, default=0)


def named(mode: gr.ExecutionMode) -> str:
    """The columns of a mode in a word."""
    return f"{mode.bodies}-{mode.suspended_blocks}-{mode.batch}-{mode.merges}"


async def plays(watched: Any, mode: Any, *script: Any, **options: Any) -> Any:
    """A scene in this mode."""
    return await Play(watched, mode)(*script, **options)


@pytest.mark.rule("LO-26")
@pytest.mark.parametrize("row", COLUMNS, ids=named)
async def test_every_row_of_columns_runs_suspends_restarts_and_ends(watched, autojump_clock, row):
    step = [call("ask", id="D"), call("look", id="C"), call("pay", id="A"), call("note", id="N"), call("fails", id="F")]
    do = [approve("A"), restart, approve("D", "yes")]
    life = await plays(watched, row, step, "done", do=do)
    assert life.outcome.output == "done"
    assert {name: life.calls[name].split()[-1] for name in life.calls} == {
        "D": "succeeded",
        "C": "succeeded",
        "A": "succeeded",
        "N": "succeeded",
        "F": "failed",
    }
    assert sorted(life.effects) == ["A", "C", "D", "N"]
    assert life.scene.outside.peak <= (row.bodies or 9)
    assert life.record.info.execution == row


@pytest.mark.rule("LO-26")
@pytest.mark.parametrize("name", MODES)
async def test_the_values_of_a_named_mode_are_that_mode(watched, autojump_clock, name):
    step = [call("ask", id="D"), call("look", id="C"), call("pay", id="A"), call("note", id="N", seconds=3)]
    do = [approve("A"), approve("D", "yes")]
    by_name = await plays(watched, name, step, "done", do=do)
    by_values = await plays(watched, MODES[name], step, "done", do=do, start={"run_id": "v", "thread_id": "v"})
    assert (by_values.calls, by_values.tool_texts) == (by_name.calls, by_name.tool_texts)
    assert by_values.scene.outside.peak == by_name.scene.outside.peak
    assert (by_values.statuses, sorted(by_values.types)) == (by_name.statuses, sorted(by_name.types))
    assert by_values.record.info.execution != by_name.record.info.execution


@pytest.mark.rule("LO-26")
@pytest.mark.parametrize("bodies", [1, 2, 3, None])
async def test_as_many_bodies_execute_as_the_mode_says(watched, autojump_clock, bodies):
    looks = [call("look", id=f"L{n}") for n in range(4)]
    life = await plays(watched, gr.ExecutionMode(bodies=bodies), looks, "done")
    assert life.scene.outside.peak == (bodies or 4)


@pytest.mark.rule("LO-26")
async def test_a_start_may_bring_a_mode_and_the_same_start_is_the_same_run(play, autojump_clock):
    mine = gr.ExecutionMode(bodies=2)
    looks = [call("look", id=f"L{n}") for n in range(4)]
    life = await play(looks, "done", start={"execution": mine}, do=[restart])
    assert (life.record.info.execution, life.scene.outside.peak) == (mine, 2)
    assert len(life.requests) == 2


@gr.tool
async def add(ctx: Context, seconds: float) -> int:
    """Read the total, wait, add one."""
    await trio.sleep(seconds)
    seen = ctx.state[TOTAL]
    ctx.state.set(TOTAL, seen + 1)
    return seen


@pytest.mark.rule("LO-27")
@pytest.mark.parametrize(("merges", "third"), [("at_once", "1"), ("together", "0")])
async def test_a_body_that_starts_later_reads_what_was_merged_at_once(watched, autojump_clock, merges, third):
    """Two lanes: the third body starts when the first has ended, while the second still runs."""
    mode = gr.ExecutionMode(bodies=2, merges=merges)
    step = [call("add", seconds=1, id="A"), call("look", seconds=30, id="L"), call("add", seconds=1, id="B")]
    life = await plays(watched, mode, step, "done", tools=[*TOOLS, add], state=[TOTAL])
    assert life.tool_texts["A"] == "0"
    assert life.tool_texts["B"].startswith(third)
    assert ("state_conflict" in life.tool_texts["B"]) is (merges == "together")


@pytest.mark.rule("LO-26")
@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"bodies": 0}, "bodies=0"),
        ({"bodies": True}, "bodies=True"),
        ({"batch": 1}, "batch=1"),
        ({"suspended_blocks": "no"}, "suspended_blocks='no'"),
        ({"merges": "never"}, "'at_once' or 'together'"),
    ],
)
def test_an_invalid_column_is_named(columns, words):
    with pytest.raises(gr.UsageError) as caught:
        gr.ExecutionMode(**columns)
    assert words in str(caught.value)


@pytest.mark.rule("LO-26")
def test_another_mode_is_another_digest():
    digests = {gr.Agent("a", execution=mode).spec.digest for mode in [*MODES, *COLUMNS]}
    assert len(digests) == len(MODES) + len(COLUMNS)
