"""Replays of runs whose tools, tasks and plugins wrote to state, judged calls, edited them, and ended the run.

That each of these scenes replays equal is checked where it is played (`support/scenes.py`). Here is that the scene is
what it should be.
"""

from typing import Any

import pytest

import greenroom as gr
from greenroom.testing import call

from ..support.programs import WORD, Busy, Careless, again, crawl, put
from ..support.runs import agent, home
from ..support.scene_tools import TOOLS
from ..support.scenes import Play, after, approve, restart

PARALLEL = pytest.mark.parametrize("mode", ["parallel_batch_approval", "parallel_streaming"])
STATEFUL = {"tools": [*TOOLS, put, again, crawl]}


class Steady(Busy):
    """Never holds the run."""

    async def step_end(self, ctx: Any) -> Any:
        return gr.Mutation().set(WORD, f"step {ctx.step}")


async def test_plugins_that_do_all_that_plugins_do(play: Play, autojump_clock: Any) -> None:
    first = [call("put", id="A", word="a"), call("crawl", id="B", word="b", seconds=1.0), call("note", id="C")]
    acts, plugins = [approve("D"), after(1, restart)], [Careless(), Steady()]
    life = await play(first, [call("look", id="D")], "done", plugins=plugins, do=acts, **STATEFUL)
    assert life.codes == {"A": None, "B": "dropped", "C": "unknown_tool", "D": None}
    wanted = {"state.changed", "tool.edited", "gate.overruled", "degraded", "approval.requested"}
    assert wanted <= set(life.types)
    assert {payload["by"] for payload in life.payloads("state.changed")} > {
        "run_start",
        "before_inference",
        "step_end",
        "A",
    }


@PARALLEL
async def test_writes_that_clash_and_a_tool_that_tries_again(play: Play, autojump_clock: Any) -> None:
    calls = [call("put", id="A", word="a"), call("again", id="B", word="b"), call("put", id="C", word="c", seconds=1)]
    life = await play(calls, "done", **STATEFUL)
    found = [
        (payload["writer"], payload["other"], payload.get("retried", False))
        for payload in life.payloads("state.conflict")
    ]
    assert found == [("B", "A", True), ("C", "A", False)]
    assert life.tool_texts["B"] == "put b"


async def test_a_task_that_writes_what_hooks_have_written_meanwhile(play: Play, autojump_clock: Any) -> None:
    class Overwriting(gr.Plugin):
        async def before_inference(self, ctx: Any) -> Any:
            return gr.Mutation().set(WORD, f"step {ctx.step}")

    script = [call("crawl", id="A", word="a", seconds=3)], [call("look", id="B", seconds=1)], "done", "done"
    life = await play(*script, plugins=[Overwriting()], **STATEFUL)
    (clash,) = life.payloads("state.conflict")
    assert (clash["writer"], clash["other"]) == ("A.task1", "before_inference")
    assert "state_conflict" in life.view.messages[-2].content


@PARALLEL
async def test_who_wrote_a_key_is_forgotten_with_the_process(play: Play, autojump_clock: Any) -> None:
    """A batch that waits for another body clashes, at the next owner, with what a task wrote at the one before it."""
    calls = [call("crawl", id="A", word="a", seconds=1.0), call("put", id="B", word="b"), call("look", id="C")]
    life = await play(calls, "done", "done", do=[after(4, restart)], **STATEFUL)
    (clash,) = life.payloads("state.conflict")
    assert (clash["writer"], clash.get("other")) == ("B", None)
    assert "an earlier write" in clash["detail"]


async def test_an_agent_whose_plugins_are_gone_is_distinguished_from_the_one_that_had_them(
    play: Play, autojump_clock: Any
) -> None:
    await play([call("look", id="A")], "done", plugins=[Steady()], do=[approve("A")], **STATEFUL)
    async with home(play.shelf.open()) as runtime:
        found = (await runtime.replay("r", agent(**STATEFUL))).difference
        assert found is not None
        assert found.recorded is not None
        assert (found.recorded.type, found.recorded.payload["by"]) == ("run.state.changed", "run_start")


async def test_a_spawn_whose_arguments_are_secret_is_replayed(watched: Any, autojump_clock: Any) -> None:
    """Events hide them, the record has them."""

    @gr.tool(background=True)
    async def login(ctx: gr.ToolContext[Any], password: str) -> str:
        return "in"

    @gr.tool
    async def spawn(ctx: gr.ToolContext[Any]) -> str:
        await ctx.spawn("login", password="swordfish")
        return "spawned"

    helper = gr.Agent("helper", model=agent([call("spawn", id="A")], "done", "done").model, tools=[login, spawn])
    async with home(watched.open(), agents=[helper]) as runtime:
        await (await runtime.start(helper, "hi", run_id="r")).wait()
        assert not any(b"swordfish" in frame for frame in await runtime.store.events("r"))
        assert (await runtime.replay("r")).equal
