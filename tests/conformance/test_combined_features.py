"""Plugins, state, background tasks and pauses in one run: what holds where they meet, and through restarts."""

from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.testing import call, delay

from ..support.runs import agent, home
from ..support.scene_plugins import diary, scripted, slow
from ..support.scene_tools import FAR, TOOLS, Context, Outside
from ..support.scenes import (
    RUN,
    Life,
    Play,
    Scene,
    after,
    approve,
    decide,
    pause,
    pause_run,
    restart,
)
from ..support.state_tools import KEYS, LAST, LEDGER, SEEN, TOTAL
from .test_tasks import MINE, ends, notes

SEQUENTIAL = pytest.mark.parametrize("mode", ["sequential"])
PARALLEL = pytest.mark.parametrize("mode", ["parallel_streaming"])


@gr.tool(background=True, replay="safe")
async def counts(ctx: Context, add: int = 1, last: str = "", seconds: float = 10.0) -> str:
    """A task that writes state."""
    before = f"{ctx.state[LAST]} {ctx.state[TOTAL]}"
    ctx.state.update(TOTAL, add)
    if last:
        ctx.state.set(LAST, last)
    await trio.sleep(seconds)
    return before


@gr.tool(replay="safe", on_conflict="retry")
async def boss_again(ctx: Context, last: str = "", seconds: float = 1.0) -> str:
    """Spawns, writes, and runs again if another body wrote meanwhile."""
    before = ctx.state[LAST]
    name = await ctx.spawn(counts, add=10)
    ctx.state.set(LAST, last)
    await trio.sleep(seconds)
    return f"{before} {name} {ctx.attempt}"


@gr.tool(replay="safe", on_conflict="retry", needs_approval=True)
async def signed_again(ctx: Context, last: str = "", seconds: float = 1.0) -> str:
    """Approved once, and runs again if another body wrote meanwhile."""
    before = ctx.state[LAST]
    ctx.state.set(LAST, last)
    await trio.sleep(seconds)
    return f"{before} {ctx.attempt}"


HERE = (counts, boss_again, signed_again)
N = call("counts", id="N")


async def played(play: Play, *script: Any, **options: Any) -> Life:
    """A scene with all the tools."""
    tools = {tool.name: tool for tool in (*TOOLS, *MINE, *LEDGER, *HERE)}
    return await play(*script, *["done"] * 3, **{"tools": list(tools.values()), "state": KEYS, **options})


# --- tasks that write, while the run rests ---------------------------------------------------------------------------


def holding(phase: str = "step_start", step: int = 2, **wish: Any) -> gr.Plugin:
    wish = {"message": "wait", **wish}
    return scripted(
        "holder", **{phase: lambda ctx: gr.Mutation().hold(gr.Suspend(**wish)) if ctx.step == step else None}
    )


@SEQUENTIAL
@pytest.mark.parametrize("down", [False, True])
async def test_a_task_that_ends_while_a_plugin_holds_the_run_has_written_and_is_reported(play, autojump_clock, down):
    acts = [pause(30), *([restart] if down else []), decide("r.t1", result="go")]
    life = await played(play, [N], "done", plugins=[holding()], do=acts)
    assert (life.view.stage, life.view.state["total"], ends(life)) == ("completed", 1, {"N.task1": "succeeded"})
    assert [line for line in life.history if "task" in line or "go" in line][-2:] == [notes(life)[0], "user: go"]


@SEQUENTIAL
@pytest.mark.parametrize("down", [False, True])
async def test_a_task_that_ends_while_the_run_is_paused(play, autojump_clock, down):
    acts = [after(5, pause_run()), *([restart] if down else []), pause(60), decide("r.t1")]
    life = await played(play, [N, call("look", id="A")], "done", do=acts)
    assert (life.view.stage, life.view.state["total"], ends(life)) == ("completed", 1, {"N.task1": "succeeded"})


HOLDS = {
    "paused": (after(5, pause_run()), [], 5.0),
    "paused before its last word": (after(2, pause_run()), [], 4.0),
    "held by a plugin": (pause(2), [holding("step_end")], 4.0),
}
"""How a run is held that has nothing to do but to wait for its task: an act, its plugins, and when that is."""


@pytest.mark.rule("L-63")
@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize("long", [False, True], ids=["ends meanwhile", "ends later"])
@pytest.mark.parametrize("how", HOLDS)
async def test_a_run_that_only_waits_for_its_task_is_held_at_once_and_the_task_continues(
    play, autojump_clock, how, long, down
):
    act, plugins, second = HOLDS[how]
    acts = [act, *([restart] if down else []), pause(60), decide("r.t1", result="go")]
    script = [[call("counts", seconds=200 if long else 10, id="N")], [delay(4), "so far"]]
    life = await played(play, *script, plugins=plugins, do=acts)
    assert life.path == "running waiting running completed"
    assert life.seconds("waiting") == second
    assert ends(life) == {"N.task1": "succeeded"}
    reported = ["user: go", "assistant: done", notes(life)[0], "assistant: done"]
    assert life.history[4:] == (reported if long else [notes(life)[0], "user: go", "assistant: done"])
    assert life.seconds("step.started", step=3) > 60


@SEQUENTIAL
@pytest.mark.parametrize("down", [False, True])
async def test_a_task_that_ends_while_a_call_waits_for_a_person(play, autojump_clock, down):
    acts = [*([restart] if down else []), pause(60), approve("A")]
    life = await played(play, [N, call("sign", id="A")], "done", do=acts)
    assert (life.view.stage, life.view.state["total"], ends(life)) == ("completed", 1, {"N.task1": "succeeded"})
    assert life.tool_texts["A"] == "- 1 - 0"


@SEQUENTIAL
async def test_a_task_and_a_call_that_write_one_key_clash_and_one_is_reported(play, autojump_clock):
    calls = [call("counts", last="task", seconds=5, id="N"), call("keep", last="call", seconds=20, id="A")]
    life = await played(play, calls, "done")
    assert len(life.payloads("state.conflict")) == 1
    assert (life.view.stage, life.view.state["last"], life.view.state["total"]) == ("completed", "task", 1)


@SEQUENTIAL
@pytest.mark.parametrize("patience", [1.0, 15.0])
@pytest.mark.parametrize(("on_expiry", "stage"), [("deny", "cancelled"), (gr.SetResult("late"), "completed")])
async def test_a_held_run_that_has_left_memory_is_woken_by_its_ticket(play, autojump_clock, patience, on_expiry, stage):
    play.runtime["passivate_after"] = patience
    plugin = holding(expires_after=60, on_expiry=on_expiry)
    life = await played(play, [N], "done", plugins=[plugin], do=[pause(100)])
    assert (life.view.stage, life.tickets) == (stage, {"r.t1": ("external_event", "expired")})
    assert life.view.state["total"] == 1


# --- retries ---------------------------------------------------------------------------------------------------------


@PARALLEL
async def test_what_a_body_spawned_that_runs_again_alone_is_not_spawned_twice(play, autojump_clock):
    calls = [call("keep", last="k", id="A"), call("boss_again", last="b", id="B")]
    life = await played(play, calls, "done")
    assert life.tool_texts["B"] == "k B.task1 2"
    assert (life.view.state, ends(life)) == ({"last": "b", "total": 10}, {"B.task1": "succeeded"})


@pytest.mark.parametrize("mode", ["parallel_streaming", "parallel_batch_approval"])
@pytest.mark.parametrize("down", [False, True])
async def test_an_approved_call_that_runs_again_is_not_asked_about_again(play, autojump_clock, down):
    calls = [call("keep", last="k", seconds=20, id="A"), call("signed_again", last="s", id="B")]
    acts = [after(1, approve("B")), *([after(2, restart)] if down else [])]
    life = await played(play, calls, "done", do=acts)
    assert (life.view.stage, len(life.tickets)) == ("completed", 1)
    assert (life.view.state["last"], life.tool_texts["B"]) == (("k", "- 1") if down else ("s", "k 2"))


# --- hooks and calls -------------------------------------------------------------------------------------------------


@SEQUENTIAL
@pytest.mark.parametrize("what", ["tasks", "pause", "both"])
@pytest.mark.parametrize(
    "phase", ["step_start", "before_inference", "after_inference", "after_tool_execute", "step_end"]
)
async def test_a_hook_ends_the_run_whatever_else_lives(play, autojump_clock, what, phase):
    seen = []

    async def hook(ctx):
        await trio.sleep(5)
        seen.append(ctx.step)
        return gr.Mutation().set(LAST, "ended").end("enough") if len(seen) == 2 else None

    plugin = scripted("ender", **{phase: hook})
    first = call("counts", seconds=FAR / 2, id="N") if what != "pause" else call("look", id="N")
    acts = [after(12, pause_run())] if what != "tasks" else []
    life = await played(
        play, [first, call("look", seconds=1, id="A")], [call("look", id="B")], "done", plugins=[plugin], do=acts
    )
    if life.view.stage == "needs_approval":
        assert what != "tasks"
        return
    assert (life.view.stage, life.view.termination.kind) == ("completed", "behavior_requested")
    assert life.view.state["last"] == "ended"


@pytest.mark.parametrize("seconds", [1, 6, 11, 16, 21, 26])
async def test_a_restart_with_hooks_and_tasks_and_parked_calls_loses_nothing(play, autojump_clock, seconds):
    plugin = diary(every=slow(2))
    script = [[N, call("sign", id="A"), call("keep", last="k", add=2, id="K")], "done"]
    life = await played(
        play, *script, plugins=[plugin], do=[after(seconds, restart), after(3, restart), pause(1), approve("A")]
    )
    assert (life.view.stage, life.view.state["total"]) == ("completed", 3)


@pytest.mark.parametrize("phase", [phase.value for phase in gr.Phase])
@pytest.mark.parametrize("verb", ["cancel", "cancel_after", "send", "pause", "decide"])
async def test_a_hook_may_say_something_to_its_own_run(play, autojump_clock, phase, verb):
    said, here = [], []

    async def hook(ctx):
        if ctx.call is not None and ctx.call.call_id != "A":
            return None
        if not said:
            said.append(verb)
            run = await here[0].runtime.get(RUN)
            match verb:
                case "cancel":
                    said.append(await run.cancel())
                case "cancel_after":
                    said.append(await run.cancel(mode="after_step"))
                case "send":
                    said.append(await run.send("and this"))
                case "pause":
                    said.append(await run.pause())
                case "decide":
                    said.append(await run.decide("A", "resume"))
        return None if phase == "tool_gate" else gr.Mutation().update(TOTAL, 1)

    async def known(scene: Scene) -> None:
        here.append(scene)

    plugin = scripted("talker", **{phase: hook})
    first = scripted("first", run_start=slow(1))
    life = await played(
        play,
        [N, call("sign", id="A")],
        "done",
        plugins=[first, plugin],
        do=[after(0, known), pause(100), decide("r.t1"), pause(10), decide("r.t2")],
    )
    assert life.view.stage in ("completed", "cancelled"), (life.view.stage, life.tickets, said)
    assert said[1:], said


# --- tools of a step -------------------------------------------------------------------------------------------------


@SEQUENTIAL
@pytest.mark.parametrize("how", ["include", "exclude"])
async def test_the_tools_about_tasks_are_tools_like_others(play, autojump_clock, how):
    change = (
        gr.Mutation().include_tools("counts")
        if how == "include"
        else gr.Mutation().exclude_tools("list_tasks", "cancel_task")
    )
    plugin = scripted("narrow", before_inference=lambda ctx: change)
    calls = [call("counts", id="N"), call("list_tasks", id="L"), call("cancel_task", task_id="N.task1", id="X")]
    life = await played(play, calls, "done", plugins=[plugin])
    assert "not available" in life.tool_texts["L"]
    assert "not available" in life.tool_texts["X"]
    assert ends(life) == {"N.task1": "succeeded"}


@SEQUENTIAL
async def test_a_gates_result_in_place_of_a_background_call_begins_no_task(play, autojump_clock):
    plugin = scripted("gate", tool_gate=lambda ctx: gr.SetResult("known"))
    life = await played(play, [N], "done", plugins=[plugin])
    assert (life.tool_texts["N"], ends(life), life.view.state) == ("known", {}, {})


@pytest.mark.parametrize("down", [False, True])
async def test_the_hook_after_a_tool_sees_the_end_of_the_call_not_of_its_task(play, autojump_clock, down):
    seen = []

    async def hook(ctx):
        seen.append((ctx.call.call_id, ctx.call.status))
        await trio.sleep(3)
        return gr.Mutation().update(TOTAL, 5)

    life = await played(
        play, [N], "done", plugins=[scripted("after", after_tool_execute=hook)], do=[after(2, restart)] if down else []
    )
    assert (life.view.stage, life.view.state["total"], ends(life)) == ("completed", 6, {"N.task1": "succeeded"})
    assert set(seen) == {("N", "succeeded")}


# --- threads ---------------------------------------------------------------------------------------------------------


@gr.tool
async def mark(ctx: gr.ToolContext[Any], name: str, seconds: float = 1.0) -> str:
    """Writes to the thread's state."""
    before = "".join(ctx.state[SEEN])
    ctx.state.update(SEEN, [name])
    await trio.sleep(seconds)
    return before


def marking(key: str, *names: str) -> gr.Agent[Any]:
    return agent(
        *([call("mark", name=name, seconds=10, id=f"{key}{name}")] for name in names),
        "done",
        key=key,
        tools=[mark],
        state=KEYS,
    )


@pytest.mark.parametrize("how", ["cancel", "end"])
async def test_a_queued_run_reads_what_the_run_before_it_left_in_the_thread(watched, mode, autojump_clock, how):
    one, two = marking("one", "a", "b"), marking("two", "c")
    async with home(watched, agents=[one, two]) as runtime:
        first = await runtime.start(one, "hi", thread_id="t", execution=mode)
        second = await runtime.start(two, "hi", thread_id="t", execution=mode)
        await trio.sleep(15)
        if how == "cancel":
            await first.cancel()
        await second.result()
        seen = ["a", "c"] if how == "cancel" else ["a", "b", "c"]
        assert (await second.view()).state == {"seen": seen}
        third = await runtime.start(two, "hi", thread_id="t", execution=mode)
        await third.result()
        assert (await third.view()).state == {"seen": [*seen, "c"]}


@SEQUENTIAL
async def test_a_run_that_is_cancelled_in_the_queue_leaves_nothing_in_the_thread(watched, mode, autojump_clock):
    one, two, three = marking("one", "a"), marking("two", "b"), marking("three", "c")
    async with home(watched, agents=[one, two, three], max_running=1) as runtime:
        runs = [await runtime.start(who, "hi", thread_id="t") for who in (one, two, three)]
        await trio.sleep(5)
        await runs[1].cancel()
        await runs[2].result()
        assert (await runs[2].view()).state == {"seen": ["a", "c"]}


@SEQUENTIAL
@pytest.mark.parametrize("max_running", [1, 2])
async def test_a_held_run_whose_task_continues_gives_its_slot_and_gets_it_again(
    watched, mode, autojump_clock, max_running
):
    plugin = holding()
    tools = [counts, *(tool for tool in TOOLS if tool.name == "look")]
    one = agent([N], "done", "done", "done", key="one", tools=tools, state=KEYS, plugins=[plugin])
    two = agent([call("look", seconds=50, id="L")], "done", key="two", tools=tools)
    async with home(watched, agents=[one, two], max_running=max_running, deps=Outside()) as runtime:
        first = await runtime.start(one, "hi", run_id="r", thread_id="t1")
        assert isinstance(await first.wait(), gr.Waiting)
        second = await runtime.start(two, "hi", thread_id="t2")
        await trio.sleep(5)
        await first.decide("r.t1", "resume", result="go")
        assert (await first.result()).output == "done"
        assert (await second.result()).output == "done"
