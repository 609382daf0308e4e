"""Rules of background tasks: they belong to their run, their results are messages, and none is repeated silently."""

import threading
from typing import Any

import attrs
import pytest
import trio

import greenroom as gr
from greenroom.testing import FunctionModel, call, delay

from ..support.runs import Outages, agent, events_of, home, payloads
from ..support.scene_plugins import scripted
from ..support.scene_tools import FAR, TOOLS, Context
from ..support.scenes import (
    RUN,
    Act,
    Life,
    Play,
    Scene,
    after,
    approve,
    cancel,
    decide,
    deny,
    pause,
    pause_run,
    restart,
    send,
)

pytestmark = pytest.mark.parametrize("mode", ["sequential"])


@gr.tool(background=True, replay="safe")
async def fetch(ctx: Context, url: str = "x", seconds: float = 10.0) -> str:
    """A task that may be repeated."""
    await ctx.progress(0.5, "half")
    await ctx.deps.work(named(ctx), seconds, url=url)
    return f"fetched {url}"


@gr.tool(background=True)
async def crawl(ctx: Context, url: str = "x", seconds: float = 10.0) -> str:
    """A task that must not be repeated."""
    await ctx.output("going\n")
    await ctx.deps.work(named(ctx), seconds, url=url)
    return f"crawled {url}"


@gr.tool(background=True, needs_approval=True)
async def publish(ctx: Context) -> str:
    """A task that a person approves."""
    await ctx.deps.work(named(ctx))
    return f"published, attempt {ctx.attempt}"


@gr.tool(background=True, grace=2.0)
async def tidy_up(ctx: Context, seconds: float = 1.0) -> str:
    """A task that cleans up when it is cancelled: for longer than its grace, if so configured."""
    with ctx.deps.body(named(ctx)):
        try:
            await trio.sleep(FAR)
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(seconds)
    return "never"


@gr.tool(background=True, timeout=5.0)
async def stalls(ctx: Context) -> str:
    """A task with a time limit, which it overruns."""
    await trio.sleep(FAR)
    return "never"


@gr.tool(background=True)
async def wonders(ctx: Context) -> str:
    """A task that wants a decision."""
    raise gr.Suspend(message="shall I?")


@gr.tool(background=True, on_error="raise")
async def collapses(ctx: Context) -> str:
    """A task whose failure ends the run."""
    await trio.sleep(5)
    raise RuntimeError("beyond repair")


@gr.tool(replay="safe")
async def boss(ctx: Context, urls: list[str], seconds: float = 0.0) -> str:
    """Spawns a task for each; may be repeated."""
    names = [await ctx.spawn(crawl, url=url) for url in urls]
    await trio.sleep(seconds)
    return " ".join(names)


MINE = (fetch, crawl, publish, tidy_up, stalls, wonders, collapses, boss)


def named(ctx: Context) -> Context:
    """The context under the name of the task, for the world outside to count by."""
    return attrs.evolve(ctx, call_id=ctx.task_id or ctx.call_id)


F, C = call("fetch", id="F"), call("crawl", id="C")


async def played(play: Play, *script: Any, **options: Any) -> Life:
    """A scene with the tools above beside the cast."""
    return await play(*script, **{"tools": [*TOOLS, *MINE], **options})


def ends(life: Life) -> dict[str, str]:
    """Task -> how it ended."""
    return {
        payload["taskId"]: f"{payload['status']} {payload.get('code', '')}".strip()
        for payload in life.payloads("task.finished")
    }


def notes(life: Life) -> list[str]:
    """The messages about tasks."""
    return [line for line in life.history if line.startswith("user: [Background task")]


# --- the whole life --------------------------------------------------------------------------------------------------


async def test_the_result_of_a_task_comes_to_the_model_as_a_message(play, autojump_clock):
    life = await played(play, F, "I wait", "x is there")
    assert life.history == [
        "user: hi",
        "assistant: (F)",
        'F: {"task":"F.task1","status":"running"}',
        "assistant: I wait",
        "user: [Background task F.task1 (fetch) succeeded.]\nfetched x",
        "assistant: x is there",
    ]
    assert (life.outcome.output, life.path) == ("x is there", "running completed")
    assert life.seconds("completed") == 10.0
    assert life.requests[-1].messages[-1].content.endswith("fetched x")


async def test_steps_continue_beside_a_task(play, autojump_clock):
    life = await played(play, F, call("look", id="L", seconds=4), "I wait", "done")
    assert life.seconds("tool.result", call_id="L") == 4.0
    assert life.seconds("task.finished") == 10.0


@pytest.mark.parametrize("rule", ["stop_on_first_tool", gr.stop_at_tools("fetch", "look")])
async def test_that_a_task_runs_is_never_the_output(play, autojump_clock, rule):
    life = await played(play, F, call("look", id="L", seconds=1), "never", tool_use=rule)
    assert (life.outcome.output, ends(life)) == ("saw L", {"F.task1": "cancelled cancelled"})


async def test_a_task_reports_under_its_own_name(play, autojump_clock):
    life = await played(play, [F, C], "I wait", *["done"] * 2)
    (progress,), (output,) = life.payloads("task.progress"), life.payloads("task.output.delta")
    assert (progress["taskId"], progress["fraction"], progress["text"]) == ("F.task1", 0.5, "half")
    assert (output["taskId"], output["text"]) == ("C.task1", "going\n")
    assert set(life.effects) == {"F.task1", "C.task1"}


async def test_a_sync_tool_continues_in_the_background_too(play):
    """In real time: a thread does not know virtual time."""
    gate = threading.Event()

    @gr.tool(background=True)
    def slow() -> str:
        gate.wait(10)
        return "from a thread"

    @gr.tool
    def opens(ctx: gr.SyncToolContext) -> str:
        (task,) = ctx.tasks()
        other = ctx.spawn(slow)
        gate.set()
        return f"{task.task_id} {other} {ctx.cancel_task('nothing')}"

    helper = agent([call("slow", id="S")], [call("opens", id="O")], *["done"] * 3, tools=[slow, opens])
    async with gr.open_runtime(play.shelf.open()) as runtime:
        run = await runtime.start(helper, "hi")
        assert isinstance(await run.wait(), gr.Completed)
        events = await events_of(run)
    assert [payload["result"] for payload in payloads(events, "tool.result")][1] == "S.task1 O.task1 False"
    assert [payload["result"] for payload in payloads(events, "task.finished")] == ["from a thread"] * 2


async def test_an_approved_call_continues_in_the_background(play, autojump_clock):
    life = await played(play, call("publish", id="P"), "I wait", "done", do=[approve("P")])
    assert life.calls["P"] == "new suspended resuming running succeeded"
    assert life.path == "running waiting running completed"
    assert (ends(life), life.effects) == ({"P.task1": "succeeded"}, ["P.task1"])
    assert notes(life)[0].endswith("published, attempt 1")


async def test_a_denied_call_starts_no_task(play, autojump_clock):
    life = await played(play, call("publish", id="P"), "done", do=[deny("P")])
    assert life.payloads("task.started") == []


async def test_each_task_has_a_key_of_its_own_for_the_world(play, autojump_clock):
    keys: list[str] = []

    @gr.tool(background=True, replay="safe")
    async def keyed(ctx: gr.ToolContext) -> str:
        keys.append(ctx.idempotency_key)
        await trio.sleep(10)
        return "done"

    await played(play, call("keyed", id="K"), "I wait", "done", tools=[keyed], do=[after(5, restart)])
    assert keys == ["r/K.task1"] * 2


# --- failures --------------------------------------------------------------------------------------------------------


async def test_a_task_keeps_the_time_limit_of_its_tool(play, autojump_clock):
    life = await played(play, call("stalls", id="S"), "I wait", "done")
    assert (ends(life), life.seconds("task.finished")) == ({"S.task1": "failed tool_timeout"}, 5.0)


async def test_a_task_that_wants_a_decision_fails_with_the_way_out(play, autojump_clock):
    life = await played(play, call("wonders", id="W"), "I wait", "done")
    assert (ends(life), life.tickets) == ({"W.task1": "failed task_suspended"}, {})
    assert "needs_approval" in notes(life)[0]


async def test_a_task_whose_failure_is_fatal_ends_the_run_and_the_other_tasks(play, autojump_clock):
    life = await played(play, [call("collapses", id="X"), F], "I wait")
    assert (life.outcome.code, life.seconds("failed")) == ("tool_error", 5.0)
    assert ends(life) == {"X.task1": "failed tool_error", "F.task1": "cancelled cancelled"}
    assert life.scene.outside.running == []


async def test_one_task_too_many_is_refused(play, autojump_clock):
    life = await played(play, [F, C], "I wait", "done", max_tasks=1)
    assert life.codes == {"F": None, "C": "too_many_tasks"}
    assert (life.calls["C"], life.effects) == ("new failed", ["F.task1"])


async def test_a_task_that_is_refused_has_not_run_its_tool(play, autojump_clock):
    life = await played(play, [F], [C], "I wait", "done", max_tasks=1, stop=[gr.stop.StopOnTool("crawl")])
    assert (life.end["termination"], life.outcome.output) == ("natural_end", "done")


async def test_a_task_that_a_person_has_approved_may_be_one_too_many_then(play, autojump_clock):
    calls = [call("publish", id="P"), call("fetch", seconds=FAR, id="F")]
    life = await played(play, calls, "I wait", do=[approve("P")], max_tasks=1)
    assert (life.calls["P"], life.codes["P"]) == ("new suspended resuming failed", "too_many_tasks")


# --- built-in tools --------------------------------------------------------------------------------------------------


async def test_the_model_sees_and_cancels_tasks(play, autojump_clock):
    script = [C, call("list_tasks", id="L"), call("cancel_task", id="X", task_id="C.task1"), "I wait", "done"]
    life = await played(play, *script)
    assert life.tool_texts["L"] == '[{"task":"C.task1","tool":"crawl","status":"running"}]'
    assert ends(life) == {"C.task1": "cancelled cancelled"}
    assert life.effects == []
    assert life.scene.outside.running == []
    assert {"list_tasks", "cancel_task"} <= {tool.name for tool in life.requests[0].tools}


async def test_to_cancel_what_never_was_is_reported(play, autojump_clock):
    life = await played(play, call("cancel_task", id="X", task_id="nothing"), "done")
    assert "No task nothing is running" in life.tool_texts["X"]


async def test_a_task_that_is_cancelled_has_its_grace(play, autojump_clock):
    script = [call("tidy_up", id="T"), call("cancel_task", id="X", task_id="T.task1"), "I wait", "done"]
    life = await played(play, *script)
    assert life.seconds("task.finished") == 1.0
    assert life.payloads("cleanup.overrun") == []


async def test_a_task_that_overruns_its_grace_is_named(play, autojump_clock):
    script = [call("tidy_up", id="T", seconds=30), call("cancel_task", id="X", task_id="T.task1"), "I wait", "done"]
    life = await played(play, *script)
    (overrun,) = life.payloads("cleanup.overrun")
    assert (overrun["callId"], overrun["tool"]) == ("T.task1", "tidy_up")
    assert (life.seconds("task.finished"), life.outcome.output) == (3.0, "done")
    assert life.end["stubborn"] == ["T.task1"]


@pytest.mark.parametrize("how", ["cancelled", "let be"])
async def test_a_fatal_failure_of_a_task_that_was_being_cancelled_ends_nothing_else(play, autojump_clock, how):
    @gr.tool(background=True, on_error="raise")
    async def sulks(ctx: Context) -> str:
        try:
            await trio.sleep(5)
        finally:
            raise RuntimeError("I was busy")

    cancelling = [[call("cancel_task", task_id="S.task1", id="X")]] if how == "cancelled" else []
    life = await played(play, call("sulks", id="S"), *cancelling, "I wait", "done", tools=[*MINE, sulks])
    assert ends(life) == {"S.task1": "failed tool_error"}
    assert life.path == ("running completed" if how == "cancelled" else "running failed")


async def test_the_last_words_of_a_cancelled_task_are_reported(play, autojump_clock):
    """Also what might have been the beginning of a secret, and waited for what follows."""

    @gr.tool(background=True)
    async def mutters(ctx: gr.ToolContext) -> str:
        await ctx.output("the token is sk-")
        await trio.sleep(FAR)
        return "never"

    script = [call("mutters", id="M"), [delay(5), call("cancel_task", id="X", task_id="M.task1")], "I wait", "done"]
    life = await play(*script, tools=[mutters])
    assert "".join(payload["text"] for payload in life.payloads("task.output.delta")) == "the token is sk-"
    assert life.types.index("task.output.delta") < life.types.index("task.finished")


async def test_a_task_that_is_cancelled_before_its_start_is_stored_never_begins(play, autojump_clock):
    outages = Outages()
    play.store = {"faults": outages}

    async def begin(_: Scene) -> None:
        outages.error = OSError("the disk is full")

    async def end(_: Scene) -> None:
        outages.error = None

    script = [[delay(10), C], call("cancel_task", id="X", task_id="C.task1"), "I wait", "done"]
    life = await played(play, *script, do=[after(5, begin), after(15, end)])
    assert ends(life) == {"C.task1": "cancelled cancelled"}
    assert life.scene.outside.started == []


# --- spawning --------------------------------------------------------------------------------------------------------


async def test_a_body_spawns_tasks_of_the_run(play, autojump_clock):
    life = await played(play, call("boss", id="B", urls=["a", "b"]), "I wait", *["done"] * 2)
    assert life.tool_texts["B"] == "B.task1 B.task2"
    assert ends(life) == {"B.task1": "succeeded", "B.task2": "succeeded"}
    assert [payload["callId"] for payload in life.payloads("task.started")] == ["B", "B"]


async def test_a_body_that_runs_again_after_a_crash_spawns_nothing_twice(play, autojump_clock):
    """The tasks must not be repeated: their outcome is unknown, and that is reported."""
    script = [call("boss", id="B", urls=["a", "b"], seconds=20), "I wait", *["done"] * 3]
    life = await played(play, *script, do=[after(7, restart)])
    assert (life.tool_texts["B"], sorted(life.effects)) == ("B.task1 B.task2", ["B.task1", "B.task2"])
    assert set(ends(life).values()) == {"failed outcome_unknown"}


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        ("sign", "needs_approval"),
        ("spend", "needs_approval"),
        ("turn", "'turn' is ordered"),
        ("alone", "'alone' is exclusive"),
        ("nothing", "no tool named 'nothing'"),
        ("hangs", "Invalid arguments"),
    ],
)
async def test_a_refused_spawn_is_a_failure_that_the_model_reads(play, autojump_clock, tool, said):
    @gr.tool
    async def bold(ctx: gr.ToolContext) -> str:
        return await ctx.spawn(tool, **({"no": 1} if tool == "hangs" else {}))

    life = await played(play, call("bold", id="B"), "done", tools=[*TOOLS, bold])
    assert (life.codes["B"], said in life.tool_texts["B"]) == ("tool_error", True), life.tool_texts
    assert ends(life) == {}


# --- who waits -------------------------------------------------------------------------------------------------------


async def view_of(scene: Scene) -> gr.RunView:
    return await scene.run.view()


async def test_a_run_that_waits_for_its_tasks_is_running_and_shows_them(play, autojump_clock):
    views: list[gr.RunView] = []

    async def look(scene: Scene) -> None:
        views.append(await scene.run.view())

    life = await played(play, F, "I wait", "done", do=[after(5, look)])
    assert (views[0].stage, views[0].step) == (gr.Stage.RUNNING, 2)
    assert views[0].tasks == {"F.task1": gr.TaskView(task_id="F.task1", tool="fetch", status="running")}
    assert life.view.tasks == {}


async def test_new_input_comes_to_the_model_while_a_task_runs(play, autojump_clock):
    life = await played(play, F, "I wait", "still waiting", "done", do=[after(5, send("and?"))])
    assert life.seconds("step.started", step=3) == 5.0
    assert (life.outcome.output, ends(life)) == ("done", {"F.task1": "succeeded"})


@pytest.mark.parametrize("options", [{}, {"mode": "after_step"}], ids=["now", "after_step"])
async def test_a_cancel_leaves_no_task_alive(play, autojump_clock, options):
    """Also none that a body has spawned, and none in its clean-up."""
    calls = [F, call("boss", id="B", urls=["a"]), call("tidy_up", id="T")]
    life = await played(play, calls, "I wait", do=[after(3, cancel(**options))])
    assert isinstance(life.outcome, gr.Cancelled)
    assert set(ends(life).values()) == {"cancelled cancelled"}
    assert (len(ends(life)), life.scene.outside.running, life.effects) == (3, [], [])
    assert life.seconds("cancelled") == 4.0


async def test_the_deadline_leaves_no_task_alive(play, autojump_clock):
    life = await played(play, F, "I wait", start={"deadline": 3})
    assert (life.outcome.code, ends(life)) == ("run_timeout", {"F.task1": "cancelled cancelled"})
    assert life.scene.outside.running == []


async def test_a_stop_condition_leaves_no_task_alive(play, autojump_clock):
    life = await played(play, F, call("look", id="L", seconds=1), stop=[gr.stop.MaxRounds(2)])
    assert (life.outcome.code, ends(life)) == ("max_rounds", {"F.task1": "cancelled cancelled"})
    assert life.scene.outside.running == []


@pytest.mark.parametrize("more", [False, True])
async def test_a_stop_condition_that_is_met_while_the_run_waits_for_a_task_leaves_its_last_word(
    play, autojump_clock, more
):
    """To wait for a task is active time. What is to be reported is in the thread, and the model is not asked again."""
    slow_one = call("fetch", url="x", seconds=60, id="F")
    acts = [after(40, send("and?"))] if more else []
    life = await played(play, slow_one, "so far", "never", stop=[gr.stop.Timeout(30)], do=acts)
    assert (life.outcome.code, life.outcome.output, len(life.requests)) == ("timeout", "so far", 2)
    assert life.seconds("completed") == (40.0 if more else 60.0)
    assert ends(life) == {"F.task1": "cancelled cancelled" if more else "succeeded"}
    assert life.history[-len(notes(life)) - more :] == [*(["user: and?"] * more), *notes(life)]


async def test_a_task_that_overruns_the_runs_end_is_named_by_it(play, autojump_clock):
    life = await played(play, call("tidy_up", id="T", seconds=30), "I wait", do=[after(3, cancel())])
    assert life.end["stubborn"] == ["T.task1"]
    assert ends(life) == {"T.task1": "cancelled outcome_unknown"}


async def test_people_are_asked_while_a_task_runs(play, autojump_clock):
    life = await played(play, [F, call("sign", id="S")], "I wait", "done", do=[approve("S")])
    assert life.seconds("approval.resolved") == 0.0
    assert life.path == "running waiting running completed"


@pytest.mark.parametrize("how", ["pause", "hook"])
async def test_a_run_that_is_held_learns_of_its_tasks_when_it_continues(play, autojump_clock, how):
    hold = gr.Mutation().hold(gr.Suspend(message="wait"))
    plugins = [scripted("x", step_end=lambda ctx: hold if ctx.step == 2 else None)] if how == "hook" else []
    do = [*([after(5, pause_run())] if how == "pause" else []), after(15, decide("r.t1"))]
    life = await played(play, F, "I wait", "done", do=do, plugins=plugins)
    assert (life.path, life.types.count("waiting")) == ("running waiting running completed", 1)
    assert (life.seconds("task.finished"), life.outcome.output) == (10.0, "done")
    assert life.seconds("step.started", step=3) == (20.0 if how == "pause" else 15.0)
    assert life.end["activeSeconds"] == (5.0 if how == "pause" else 0.0)


async def test_a_run_with_a_task_does_not_leave_memory_though_it_waits(play, autojump_clock):
    play.runtime = {"passivate_after": 1.0}
    life = await played(play, [C, call("sign", id="S")], *["done"] * 2, do=[after(30, approve("S"))])
    assert (ends(life), life.effects) == ({"C.task1": "succeeded"}, ["C.task1", "S"])


# --- crashes ---------------------------------------------------------------------------------------------------------


async def test_after_a_restart_a_task_that_may_be_repeated_runs_again(play, autojump_clock):
    life = await played(play, F, "I wait", "done", do=[after(7, restart)])
    assert [payload["attempt"] for payload in life.payloads("task.started")] == [1, 2]
    assert (ends(life), life.seconds("task.finished")) == ({"F.task1": "succeeded"}, 17.0)


async def test_after_a_restart_the_model_is_reported_any_other_that_the_outcome_is_unknown(play, autojump_clock):
    life = await played(play, C, "I wait", "I will look", do=[after(7, restart)])
    assert (ends(life), life.effects) == ({"C.task1": "failed outcome_unknown"}, ["C.task1"])
    assert "may or may not have taken effect" in notes(life)[0]
    assert life.outcome.output == "I will look"


async def test_after_a_restart_a_task_that_was_being_cancelled_is_cancelled(play, autojump_clock):
    """Whatever its tool says: it does not run again."""

    @gr.tool(background=True, replay="safe", grace=100)
    async def lingers(ctx: Context) -> str:
        with ctx.deps.body(ctx):
            try:
                await trio.sleep(FAR)
            finally:
                with trio.CancelScope(shield=True):
                    await trio.sleep(50)
        return "never"

    script = [call("lingers", id="T"), call("cancel_task", task_id="T.task1", id="X"), "I wait", "done"]
    life = await played(play, *script, tools=[*MINE, lingers], do=[after(5, restart)])
    assert (ends(life), life.types.count("task.started")) == ({"T.task1": "cancelled outcome_unknown"}, 1)
    assert (life.scene.outside.attempts("T"), life.outcome.output) == (1, "done")


async def test_a_run_that_waits_for_a_person_is_taken_up_for_its_task(play, autojump_clock):
    """The task continues though no decision comes."""
    life = await played(play, [F, call("sign", id="S")], do=[after(7, restart), pause(30)])
    assert (ends(life), life.path) == ({"F.task1": "succeeded"}, "running waiting")


async def test_an_orderly_shutdown_lets_a_task_end_if_it_does_so_in_time(play, autojump_clock):
    play.runtime = {"drain": 20.0}
    life = await played(play, C, "I wait", "done", do=[after(3, restart)])
    assert (ends(life), life.effects) == ({"C.task1": "succeeded"}, ["C.task1"])
    assert len(life.payloads("task.started")) == 1


async def test_a_body_that_asks_in_its_clean_up_is_not_left_waiting(play, autojump_clock):
    """Its run has no owner any more, who could answer."""
    received: list[str] = []

    @gr.tool(background=True, replay="safe")
    async def curious(ctx: gr.ToolContext) -> str:
        try:
            await trio.sleep(10)
        finally:
            with trio.CancelScope(shield=True):
                try:
                    received.append(str(len(await ctx.tasks())))
                except gr.ToolError as error:
                    received.append(str(error))
        return "done"

    life = await play(call("curious", id="Q"), "I wait", "done", tools=[curious], do=[after(5, restart)])
    assert received == ["The run has no owner here any more: nothing can be asked of it.", "1"]
    assert ends(life) == {"Q.task1": "succeeded"}


def until(number: int) -> Act:
    """Waits until so many events are stored, or the run has ended."""

    async def act(scene: Scene) -> None:
        async with scene.run.events() as events:
            async for event in events:
                if event.sequence >= number:
                    return

    return act


@pytest.mark.rule("L-80")
@pytest.mark.parametrize("pace", [0.0, 1.0], ids=["at once", "later"])
@pytest.mark.parametrize("number", range(2, 50))
async def test_after_a_crash_at_any_event_every_task_has_one_end_and_no_effect_comes_twice(
    play, autojump_clock, number, pace
):
    calls = [F, C, call("boss", id="B", urls=["a"], seconds=3)]
    life = await played(play, calls, "I wait", *["done"] * 4, do=[after(0, until(number)), after(pace, restart)])
    assert isinstance(life.outcome, gr.Completed)
    assert sorted(ends(life)) == ["B.task1", "C.task1", "F.task1"]
    assert ends(life)["F.task1"] == "succeeded"
    assert all(life.effects.count(name) <= 1 for name in ("C.task1", "B.task1"))
    assert all(name in life.effects for name, end in ends(life).items() if end == "succeeded")
    assert len(notes(life)) == 3


async def test_a_fork_has_no_tasks_of_its_parent(play, autojump_clock):
    def says(request: gr.ModelRequest) -> Any:
        return "done" if any(message.role == "tool" for message in request.messages) else F

    helper = gr.Agent("helper", model=FunctionModel(says), tools=MINE)
    scene = Scene(play, helper)
    async with home(play.shelf, agents=[helper], deps=scene.outside) as runtime:
        run = await runtime.start(helper, "hi", run_id=RUN)
        await trio.sleep(5)
        fork = await runtime.fork(run.id, step=1)
        assert isinstance(await fork.wait(), gr.Completed)
        assert (await fork.view()).tasks == {}
        assert (await fork.view()).calls == {}
        texts = [message.content for message in (await fork.view()).messages if message.role == "user"]
        text = (
            "[Background task F.task1 (fetch) stays with the run that this one was forked from; "
            "nothing of it comes here.]"
        )
        assert texts[1:] == [text]
        assert not payloads(await events_of(fork), "task.started", "task.finished")
        await run.wait()
        assert len(payloads(await events_of(run), "task.finished")) == 1
        later = await runtime.fork(run.id, step=2)
        await later.wait()
        texts = [message.content for message in (await later.view()).messages if message.role == "user"]
        assert not any("stays with" in text for text in texts), "it had ended by then"


async def test_a_fork_knows_a_task_whose_arguments_were_edited(play, autojump_clock):
    """The message of its call begins with what was changed."""

    @gr.tool(background=True, needs_approval=True)
    async def mirror(url: str) -> str:
        """Copy a site."""
        await trio.sleep(10)
        return "copied"

    def says(request: gr.ModelRequest) -> Any:
        return (
            "done" if any(message.role == "tool" for message in request.messages) else call("mirror", id="M", url="x")
        )

    helper = gr.Agent("helper", model=FunctionModel(says), tools=[mirror])
    scene = Scene(play, helper)
    async with home(play.shelf, agents=[helper], deps=scene.outside) as runtime:
        run = await runtime.start(helper, "hi", run_id=RUN)
        rest = await run.wait()
        assert isinstance(rest, gr.Waiting)
        await run.decide(rest.tickets[0].approve(edited_arguments={"url": "y"}))
        await trio.sleep(5)
        (started,) = [message for message in (await run.view()).messages if message.role == "tool"]
        assert "were changed to" in started.content
        assert (started.kind, started.task_id) == ("task_started", "M.task1")
        fork = await runtime.fork(run.id, step=1)
        await fork.wait()
        (note,) = [message for message in (await fork.view()).messages if message.kind == "task_left"]
        assert note.task_id == "M.task1"
        assert note.content.startswith("[Background task M.task1 (mirror) stays with the run")


# --- definitions -----------------------------------------------------------------------------------------------------


async def test_an_agent_without_background_tools_is_not_offered_the_built_in_ones(play, autojump_clock):
    @gr.tool
    async def list_tasks() -> str:
        """My own."""
        return "mine"

    life = await play(call("list_tasks", id="L"), delay(0), tools=[list_tasks])
    assert life.tool_texts["L"] == "mine"
    assert [tool.name for tool in life.requests[0].tools] == ["list_tasks"]


@pytest.mark.parametrize("turns", range(5))
async def test_a_spawn_whose_answer_was_lost_is_the_same_one_when_it_is_repeated(shelf, mode, autojump_clock, turns):
    """Wherever the cancel strikes: a body that gives up waiting and tries again has one task."""
    ran: list[str] = []

    @gr.tool
    async def note(url: str) -> str:
        """A task."""
        ran.append(url)
        return url

    @gr.tool
    async def impatient(ctx: gr.ToolContext) -> list[str]:
        """Spawns, is cancelled, and spawns again what it has received nothing of."""
        names: list[str] = []

        async def spawn() -> None:
            names.append(await ctx.spawn(note, url="x"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(spawn)
            for _ in range(turns):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        if not names:
            await spawn()
        await spawn()
        return [*names, await ctx.spawn(note, url="y")]

    helper = agent(call("impatient", id="i"), "one", "two", "three", "four", tools=[note, impatient])
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        await run.result()
        (result,) = payloads(await events_of(run), "tool.result")
    assert result["result"] == ["i.task1", "i.task2", "i.task3"]
    assert sorted(ran) == ["x", "x", "y"]
