"""Named programs: scenes in which, all together, everything happens to runs that a record can hold and a log can show.

A program is played in one mode of execution and opens its runtimes by `runs.home`, so that its process can be killed at
a write (`killing.py`). It asserts nothing about a kill: it ends where its process dies.
"""

import operator
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import attrs
import trio

import greenroom as gr
from greenroom.actors.contract.ids import child_run_id
from greenroom.actors.engine.recording import ForcedEndEntry
from greenroom.testing import FakeWall, FunctionModel, ScriptedModel, call, delay, fail, text, think

from .artifact_scenes import PUBLISHED, publish, publishes_late
from .child_scenes import in_child, with_expert
from .handoff_scenes import Callback, H, only, other
from .part_scenes import AT, CHART, DRAWS, TABLE
from .runs import agent, home
from .scene_plugins import NestedRules, hide, scripted, slow
from .scene_surroundings import MISSING, PREPARING, Shop, probe, raising
from .scene_tools import FAR, TOOLS, Context, Outside, petition
from .scenes import RUN, Play, after, another, approve, cancel, decide, deny, pause, pause_run, restart, send
from .toolsets import MAKE, Github

Program = Callable[[Play], Awaitable[None]]
PROGRAMS: dict[str, tuple[str, Program]] = {}
"""Name -> mode of execution, and the program."""


def program(mode: str = "sequential") -> Callable[[Program], Program]:
    """Enter a function in `PROGRAMS`."""

    def enter(function: Program) -> Program:
        PROGRAMS[function.__name__] = mode, function
        return function

    return enter


# --- tools and keys --------------------------------------------------------------------------------------------------

WORD = gr.StateKey("word", str, default="")
COUNT = gr.StateKey("count", int, default=0, merge=gr.commutative(operator.add))
TOPIC = gr.StateKey("topic", str, default="", scope="thread")


@gr.tool(replay="safe")
async def put(ctx: Context, word: str, seconds: float = 0.0) -> str:
    """Writes three keys."""
    await trio.sleep(seconds)
    ctx.state.set(WORD, word)
    ctx.state.update(COUNT, 1)
    ctx.state.set(TOPIC, word)
    return f"put {word}"


again = attrs.evolve(put, name="again", on_conflict="retry")


@gr.tool
async def reports(ctx: Context) -> str:
    """Says how far it is, and what it finds."""
    for fraction in (0.25, 0.75):
        await ctx.progress(fraction, "so far")
        await ctx.output(f"line {fraction}\n")
        await trio.sleep(2)
    return "there"


@gr.tool(background=True, replay="safe")
async def crawl(ctx: Context, word: str = "x", seconds: float = 5.0) -> str:
    """A task that reports, writes, and may be repeated."""
    await ctx.progress(0.5, "half")
    await ctx.output("going\n")
    await trio.sleep(seconds)
    ctx.state.set(WORD, word)
    return f"crawled {word}"


@gr.tool(background=True, grace=2.0)
async def deaf(ctx: Context) -> str:
    """A task that overruns its grace when it is cancelled."""
    with trio.CancelScope(shield=True):
        await trio.sleep(FAR / 10)
    return "late"


@gr.tool(replay="safe")
async def boss(ctx: Context) -> str:
    """Spawns two tasks, lists them and cancels one."""
    first = await ctx.spawn(crawl, word="spawned", seconds=30.0)
    await ctx.spawn(deaf)
    names = [task.task_id for task in await ctx.tasks()]
    await ctx.cancel_task(first)
    return " ".join(names)


@gr.tool(timeout=5.0, grace=2.0)
async def hides(ctx: Context) -> str:
    """A body that hides from its time limit."""
    await hide(50)
    return "too late"


@gr.tool
async def login(ctx: Context, password: str) -> dict[str, str]:
    """Shows a secret."""
    await ctx.output(f"with {password}")
    return {"token": password}


MORE: dict[str, Any] = {"tools": [*TOOLS, put, again, reports, crawl, deaf, boss, hides, petition]}


# --- decisions and commands ------------------------------------------------------------------------------------------


@program("parallel_batch_approval")
async def images_and_files(play: Play) -> None:
    """In the input, in more input, in results of calls, of a background task and of a child run."""

    async def more(scene: Any) -> None:
        scene.note(await scene.run.send("and this", attachments=[TABLE], by="ada"))

    expert = gr.Agent("expert", model=ScriptedModel(["so"]))
    tools = [*DRAWS["tools"], draws_later, expert.as_tool(extract=lambda completed: [completed.output, CHART])]
    first = [call("chart", id="A"), call("draws_later", id="B"), call("expert", id="C", input="do it")]
    second = [call("chart", id="D", kind="deep"), call("sign", id="E")]
    options: Any = {"attachments": [CHART, AT, TABLE]}
    await play(
        first,
        second,
        "so far",
        "done",
        do=[after(1, more), restart, approve("E"), pause(10)],
        start=options,
        tools=tools,
    )


@gr.tool(background=True, replay="safe")
async def draws_later(seconds: float = 3.0) -> list[Any]:
    """Draws beside the run."""
    await trio.sleep(seconds)
    return [CHART]


@program("parallel_streaming")
async def artifacts(play: Play) -> None:
    """Of each kind of place, the same twice, from a body that runs again, and from a task, which cannot."""
    calls = [call("publish", id=name, what=what) for name, what in zip("ABCDE", PUBLISHED, strict=True)]
    tools = [*TOOLS, publish, publishes_late]
    await play(
        calls,
        [call("publish", id="F", seconds=8.0), call("publishes_late", id="G")],
        "so far",
        "done",
        tools=tools,
        do=[after(5, restart)],
    )


@program("parallel_batch_approval")
async def approvals_denials_and_edits(play: Play) -> None:
    """Every way to decide: also early, with other arguments, and refused; a question that expires."""
    first = [call("pay", id="A"), call("sign", id="B"), call("ask", id="C", times=2), call("spend", id="D", cents=500)]
    second = [call("ask", id="E", expires=30.0), call("ask", id="F", mode="use_decision_as_tool_result")]
    third = [call("ask", id="G", mode="pass_decision_to_tool"), call("ask", id="H", expires=30.0, default="late")]
    acts = [
        after(0.001, decide("Z", "resume")),
        approve("A", edited_arguments={"cents": 3}),
        deny("B", "no"),
        approve("D"),
        approve("C", "x"),
        approve("C", "y"),
        decide("F", "resume", result={"said": 1}),
        pause(60),
        decide("G", "resume", result={"said": "x"}),
        pause(60),
    ]
    await play(first, second, third, "done", do=acts)


@program()
async def input_and_pauses(play: Play) -> None:
    """New input while the run works, two pauses of which one joins, and the decisions that end them."""
    script = [delay(4), call("look", id="A")], "so far", "done", "done"
    acts = [
        after(2, send("and this")),
        after(0, pause_run(reason="wait")),
        after(0, pause_run()),
        decide("r.t1", result="go"),
        after(3, send("more")),
    ]
    await play(*script, do=acts)


@program("parallel_streaming")
async def cancels_at_each_stage(play: Play) -> None:
    """In the model's answer, in bodies, while people are asked, in a hook, in the queue, after the step, and twice."""
    script = [delay(5), call("tidy", id="A"), call("sign", id="B")], "done"
    helper = agent(*script, tools=TOOLS, plugins=[scripted("x", step_end=slow(5))])
    async with home(play.shelf.open(), agents=[helper], deps=Outside(), drain=0, max_running=4) as runtime:
        for number, seconds in enumerate((0.0, 2.0, 6.0, 12.0)):
            options: Any = {"run_id": f"c{number}", "execution": play.mode}
            run = await runtime.start(helper, "hi", **options)
            await runtime.start(helper, "hi", run_id=f"q{number}", thread_id=run.thread_id)
            await trio.sleep(seconds)
            await run.cancel(mode="after_step" if number == 2 else "now", by="ada", reason="enough")
            await run.cancel(by="bob")
            await (await runtime.get(f"q{number}")).cancel()
            await run.wait()
    await play([delay(5), call("note", id="A")], "done", do=[after(8, restart), after(1, cancel(by="ada"))])


# --- plugins and state -----------------------------------------------------------------------------------------------


class Busy(gr.Plugin):
    """Writes in every phase, edits and drops calls, takes a tool away, and asks for decisions."""

    async def run_start(self, ctx: Any) -> Any:
        return gr.Mutation().set(WORD, "begun")

    async def before_inference(self, ctx: Any) -> Any:
        return gr.Mutation().update(COUNT, 1).exclude_tools("note").add_message("Be brief.")

    async def after_inference(self, ctx: Any) -> Any:
        mutation = gr.Mutation().set(TOPIC, "answered")
        for one in ctx.calls:
            if one.tool == "put":
                mutation = mutation.edit_call(one.call_id, {"word": "edited"})
            if one.tool == "crawl":
                mutation = mutation.drop_call(one.call_id, "not now")
        return mutation

    async def tool_gate(self, ctx: Any) -> Any:
        return gr.Suspend(message="may it?") if ctx.tool == "look" and not ctx.decision else None

    async def before_tool_execute(self, ctx: Any) -> Any:
        return gr.Mutation().update(COUNT, 10)

    async def after_tool_execute(self, ctx: Any) -> Any:
        return gr.Mutation().update(COUNT, 100)

    async def step_end(self, ctx: Any) -> Any:
        mutation = gr.Mutation().set(WORD, f"step {ctx.step}")
        return mutation.hold(gr.Suspend(message="go on?")) if ctx.step == 1 else mutation

    async def run_end(self, ctx: Any) -> Any:
        return gr.Mutation().set(WORD, "over")


class Careless(gr.Plugin):
    """Fails, which is declared to be nothing; its gate gives way."""

    on_error = "ignore"

    async def step_start(self, ctx: Any) -> Any:
        raise ValueError("oh")

    async def tool_gate(self, ctx: Any) -> Any:
        return gr.SetResult("as I say") if ctx.tool == "look" and not ctx.decision else None


@program()
async def plugins_in_every_phase(play: Play) -> None:
    """Hooks that write, edit, drop, gate, hold and fail."""
    first = [call("put", id="A", word="a"), call("crawl", id="B"), call("note", id="C")]
    acts = [decide("r.t1", result="go"), approve("D"), after(1, restart)]
    await play(first, [call("look", id="D")], "done", plugins=[Careless(), Busy()], do=acts, **MORE)


@program("parallel_streaming")
async def state_that_clashes(play: Play) -> None:
    """Bodies that write the same keys, one of which runs again; keys that the agent does not declare."""
    calls = [call("put", id="A", word="a"), call("again", id="B", word="b"), call("put", id="C", word="c", seconds=1)]
    await play(calls, [call("put", id="D", word="d")], "done", **MORE)


@program("parallel_streaming")
async def state_that_is_declared(play: Play) -> None:
    """The same keys as part of the agent: their reducers run again in a replay."""
    calls = [call("put", id="A", word="a"), call("put", id="B", word="b"), call("crawl", id="N", word="n")]
    await play(calls, "waiting", "done", state=[WORD, COUNT, TOPIC], do=[after(2, restart)], **MORE)


@program("parallel_streaming")
async def writers_that_are_forgotten(play: Play) -> None:
    """A batch that waits for another body clashes, at the next owner, with what a task wrote at the one before it."""
    calls = [call("crawl", id="A", word="a", seconds=1.0), call("put", id="B", word="b"), call("look", id="C")]
    await play(calls, "done", "done", do=[after(4, restart)], **MORE)


@program()
async def commands_at_the_end(play: Play) -> None:
    """Input that comes while the last hook ends: the store may refuse the end until the run has read it."""
    helper = agent("done", "done", tools=TOOLS, plugins=[scripted("x", run_end=slow(5))])
    async with home(play.shelf.open(), agents=[helper], deps=Outside()) as runtime:
        handles = [await runtime.start(helper, "hi", run_id=f"r{number}") for number in range(6)]
        await trio.sleep(5)
        async with trio.open_nursery() as nursery:
            for run in handles:
                nursery.start_soon(run.send, "and this")
        for run in handles:
            await run.result()


@program()
async def a_hook_that_ends_the_run(play: Play) -> None:
    """And a hook that fails it."""
    end = scripted("ender", after_tool_execute=lambda _: gr.Mutation().set(WORD, "x").end("enough"))
    await play([call("look", id="A")], "done", plugins=[end])
    broken = agent("done", key="broken", plugins=[scripted("x", step_start=lambda _: 1 / 0)])
    async with home(play.shelf.open(), agents=[broken]) as runtime:
        await (await runtime.start(broken, "hi", run_id="broken")).wait()


# --- tasks -----------------------------------------------------------------------------------------------------------


@program()
async def background_tasks(play: Play) -> None:
    """Tasks that report, write, are spawned, listed, cancelled, and overrun their grace."""
    first = [call("crawl", id="N"), call("boss", id="B"), call("list_tasks", id="L")]
    await play(first, "I wait", "done", "done", "done", do=[after(3, pause_run()), pause(200), decide("r.t1")], **MORE)


@program()
async def tasks_through_a_restart(play: Play) -> None:
    """One runs again, the outcome of the other is unknown; a cancel ends both."""
    script = [call("crawl", id="N", seconds=100.0), call("deaf", id="D")], "I wait", "done"
    await play(*script, do=[after(5, restart), after(5, cancel(by="ada"))], **MORE)


@program()
async def nested_calls(play: Play) -> None:
    """A body asks for two calls, one of which is denied; another asks people, and waits no longer."""
    asks = [["Bash", "shell"], ["Write", "write"]]
    script = [call("coder", id="C", asks=asks)], [call("inquire", id="Q", patience=20.0)], "done"
    await play(*script, do=[approve("C.1"), deny("C.2")], plugins=[NestedRules()])


@program()
async def toolsets(play: Play) -> None:
    """An approval of an offered tool over a restart, a tool that changes before its body, a toolset that fails once."""
    github = Github(options={"needs_approval": True}, faults=[None, OSError("no route")])

    async def change(_: Any) -> None:
        github.text = "Make an issue, and tell everybody."

    script = [MAKE, call("github__list", id="L")], [call("look", id="C")], "done"
    await play(*script, do=[change, restart, approve("M"), approve("M")], toolsets=[github])


@gr.tool(effect="delegate")
async def informer(ctx: Context) -> str:
    """Lets a program work that notes everything that a body can note."""
    now = "2031-05-01T12:00:00.000Z"
    await ctx.reports.note("run.file.read", path="a.txt", read_at=now, bytes=2, lines=1)
    await ctx.reports.note("run.degraded", reason="little_evidence", detail="it says nothing of its reads")
    await ctx.reports.note("runtime.timeout", runtime="acme", which="idle", seconds=300.0)
    await ctx.reports.note("runtime.unavailable", code="runtime_unavailable", runtime="acme", reason="not logged in")
    await ctx.reports.note("schema.validation_failed", source="acme", line=7, rule="json", sample="{")
    changed = {"path": "a.txt", "change": "modified", "added": 1, "removed": 1}
    await ctx.reports.note(
        "run.diff.ready", proposal="p", base="b", target="t", files=[changed], summary="1 file: +1 -1"
    )
    for status in ("proposed", "applied", "conflicted", "discarded"):
        await ctx.reports.note(f"run.patch.{status}", proposal="p", files=["a.txt"], status=status)
    return "told"


@program()
async def reports_of_bodies(play: Play) -> None:
    """Bodies whose programs say, note and keep things, one of which runs again; the failure of another ends the run."""
    allows = scripted("allows", tool_gate=lambda _: gr.Allow(note="a rule"))
    tells = {"says": ["I look.", "I write...."], "used": 7}
    script = (
        [call("herald", id="H", **tells), call("informer", id="I")],
        [call("envoy", id="E", fails="target_offline", **tells)],
    )
    await play(*script, do=[after(4, restart)], plugins=[allows], tools=[*TOOLS, informer])


@program()
async def preparations(play: Play) -> None:
    """One is cut off by the end of its process, one fails, one is cancelled; a tool prepares itself."""
    shop, probed = Shop(), list[Any]()
    play = attrs.evolve(play, runtime={**play.runtime, "workspaces": shop})
    tool = probe(probed, gr.Preparation(facts={"program": "1.2"}, doubts={"untested_version": "it is new"}))
    await play("done", do=[after(PREPARING / 2, restart)], start={"workspace": "shop"}, tools=[tool, *TOOLS])
    helper = agent("done", key="other", tools=TOOLS)
    async with home(play.shelf.open(), agents=[helper], deps=Outside(), workspaces=shop) as runtime:
        run = await runtime.start(helper, "hi", run_id="cancelled", workspace="shop")
        await trio.sleep(PREPARING / 2)
        await run.cancel(by="ada")
        await run.result()
        shop.ends = raising(MISSING)
        await (await runtime.start(helper, "hi", run_id="failed", workspace="shop/web")).result()


# --- models and bodies -----------------------------------------------------------------------------------------------


@program()
async def torn_streams_and_retries(play: Play) -> None:
    """Reasoning, deltas, a stream that breaks, one that the end of the process tears, and a model that gives up."""
    first = [think("hm"), text("half, "), delay(10), text("whole, "), delay(3), call("reports", id="A")]
    broken = [text("an"), delay(1), fail("overloaded", retry_after=2.0)]
    await play(first, broken, "better", do=[after(5, restart), after(11, restart)], **MORE)
    refused = agent([fail("invalid_request", "no such model")], key="refused")
    async with home(play.shelf.open(), agents=[refused]) as runtime:
        await (await runtime.start(refused, "hi", run_id="refused")).wait()


@program("parallel_streaming")
async def bodies_that_fail_and_hide(play: Play) -> None:
    """Errors for the model, time limits, a body that overruns its grace, arguments that do not fit, a fatal error."""
    first = [call("fails", id="A"), call("hangs", id="B"), call("hides", id="C"), call("pay", id="D", cents="x")]
    await play([*first, call("nothing", id="E")], [call("breaks", id="F")], do=[after(45, restart)], **MORE)


@program()
async def outcomes_that_are_not_known(play: Play) -> None:
    """The process ends in bodies that must not be repeated."""
    first = [call("note", id="A"), call("write", id="B"), call("look", id="C")]
    await play(first, "done", do=[after(5, restart), decide("r.t1"), after(1, restart), decide("r.t2", "cancel")])


@program()
async def long_texts(play: Play) -> None:
    """An answer and a result of which events hold the ends only."""

    @gr.tool
    async def big(ctx: Context) -> str:
        return "é" * 700_000

    await play([text("x" * 600_000), call("big", id="A")], "done", tools=[big])


@program()
async def secrets(play: Play) -> None:
    """What the redactor hides."""
    helper = agent(["swordfish", call("login", id="A", password="swordfish")], "swordfish", tools=[login])
    async with home(play.shelf.open(), agents=[helper], deps=Outside(), secrets=["swordfish"]) as runtime:
        await (await runtime.start(helper, "use swordfish", run_id="r", title="swordfish")).wait()


# --- guardrails, child runs, policies --------------------------------------------------------------------------------


async def slowly(ctx: Any, value: Any) -> gr.Trip | None:
    """A judge that takes a second, and trips on what is evil."""
    await trio.sleep(1)
    return gr.Trip("evil") if "evil" in str(value) else None


@gr.tool_input_guardrail
def refuses(ctx: Any, arguments: Any) -> gr.Reject:
    """Refuses every call."""
    return gr.Reject("not this one")


@gr.tool_output_guardrail
async def covers(ctx: Any, result: Any) -> gr.Reject:
    """Refuses every result."""
    await trio.sleep(1)
    return gr.Reject("covered")


@program("parallel_streaming")
async def guardrails_of_every_kind(play: Play) -> None:
    """Judges that pass beside the model and before it, that refuse a call and a result, and that trip."""
    covered, refused = (
        attrs.evolve(put, name=name, **{kind: (guardrail,)})
        for name, kind, guardrail in (
            ("covered", "output_guardrails", covers),
            ("refused", "input_guardrails", refuses),
        )
    )
    guards: dict[str, Any] = {
        "input_guardrails": [
            gr.input_guardrail(name="before", blocking=True)(slowly),
            gr.input_guardrail(name="beside")(slowly),
        ],
        "output_guardrails": [gr.output_guardrail(name="after")(slowly)],
    }
    tools = [*MORE["tools"], covered, refused]
    calls = [call("covered", id="A", word="a"), call("refused", id="B", word="b")]
    await play(calls, "done", "evil", do=[after(1, restart), after(4, send("and this"))], tools=tools, **guards)
    helper = agent([delay(2), call("look", id="A")], "evil", key="judged", tools=TOOLS, **guards)
    async with home(play.shelf.open(), agents=[helper], deps=Outside()) as runtime:
        for name, word in (("input", "evil"), ("output", "good")):
            await (await runtime.start(helper, word, run_id=name)).wait()


@program("parallel_streaming")
async def child_runs_that_ask(play: Play) -> None:
    """The question of the first is answered in its parent, that of the second in the child itself."""
    tools = with_expert(["so ", call("pay", id="P", cents=5)], "paid")
    calls = [call("expert", id="K", input="pay"), call("look", id="L")], [call("expert", id="M", input="again")]
    await play(
        *calls,
        "done",
        do=[after(3, restart), decide("r.t1"), in_child("P", run_id=child_run_id(RUN, "M"))],
        tools=tools,
    )


@program()
async def child_runs_that_are_cancelled(play: Play) -> None:
    """With their parent, while they wait; and one that fails."""
    await play(
        [call("expert", id="K", input="sign")],
        "done",
        do=[after(3, cancel(by="ada"))],
        tools=with_expert([call("tidy", id="S")], "signed"),
    )
    broken = with_expert([fail("invalid_request", "no such model")])
    helper = agent([call("expert", id="K", input="try")], "done", key="parent", tools=broken)
    async with home(play.shelf.open(), agents=[helper], deps=Outside()) as runtime:
        await (await runtime.start(helper, "hi", run_id="parent")).wait()


@program()
async def histories_that_are_too_long(play: Play) -> None:
    """A window, a summary that a model makes, and one for which the model fails."""
    looks = [call("look", id=name) for name in "ABC"]
    await play(*looks, "done", plugins=[gr.ContextWindow(messages=3)])
    for name, summary in (("summed", ["they looked"] * 3), ("unsummed", [[fail("overloaded")]])):
        plugins = [gr.Compaction(2, keep=1, model=ScriptedModel(summary), count=lambda _: 1)]
        helper = agent(*looks, "done", key=name, tools=TOOLS, plugins=plugins)
        async with home(play.shelf.open(), agents=[helper], deps=Outside()) as runtime:
            await (await runtime.start(helper, "hi", run_id=name)).wait()


@program()
async def instructions_that_are_asked(play: Play) -> None:
    """A function makes the instructions of each step; its text outlives failures of the model and the process."""
    form = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

    async def instructions(ctx: gr.PhaseContext[Any]) -> str:
        await trio.sleep(1)
        return f"step {ctx.step} of {ctx.run_id}"

    script = [call("look", id="A"), [fail("overloaded")], [delay(5), "no form"], '{"n": "1"}', '{"n": 1}']
    acts = [after(0.5, restart), after(15, restart)]
    await play(*script, do=acts, instructions=instructions, output_type=form, output_retries=2)


@program()
async def policies_of_the_request(play: Play) -> None:
    """Tries, a text that continues, a fallback, an answer that was cut by its length, and a budget that is spent."""
    plugins = [gr.Retry(attempts=2), gr.Fallback(FunctionModel(lambda _: "from the other")), gr.ContinueTruncated()]
    torn = [text("half, "), fail("interrupted")], [text("whole"), call("look", id="A")]
    await play(*torn, [fail("overloaded")], [fail("overloaded")], plugins=plugins)
    helper = agent(call("look", id="A"), call("look", id="B"), "done", key="spends", plugins=[gr.Budget(requests=2)])
    async with home(play.shelf.open(), agents=[helper], deps=Outside()) as runtime:
        await (await runtime.start(helper, "hi", run_id="spends")).wait()


# --- ends ------------------------------------------------------------------------------------------------------------


@program()
async def stop_conditions(play: Play) -> None:
    """A limit of rounds, the first tool, an output that does not fit."""
    await play([call("look", id="A")], [call("look", id="B")], "done", stop=[gr.stop.MaxRounds(1)])
    first = agent([call("look", id="A")], key="first", tools=TOOLS, tool_use="stop_on_first_tool")
    typed = agent("many", "7", key="typed", output_type=int)
    async with home(play.shelf.open(), agents=[first, typed], deps=Outside()) as runtime:
        await (await runtime.start(first, "hi", run_id="first")).wait()
        await (await runtime.start(typed, "hi", run_id="typed")).wait()


@program()
async def deadlines(play: Play) -> None:
    """In a body, while people are asked, and when the clock jumps over it."""
    await play([call("tidy", id="A")], "done", start={"deadline": 15.0})
    wall = FakeWall()
    clock = gr.testing.Clock(wall)
    helper = agent([delay(5), call("sign", id="A")], "done", key="other", tools=TOOLS)
    async with home(play.shelf.open(), agents=[helper], deps=Outside(), clock=clock) as runtime:
        run = await runtime.start(helper, "hi", run_id="d", deadline=clock.now() + timedelta(seconds=4_000))
        await trio.sleep(2)
        wall.step(600)
        await run.wait()
        await run.send("x")
        wall.step(8 * 3600)
        await run.result()


# --- other agents ----------------------------------------------------------------------------------------------------


@program("parallel_streaming")
async def handoffs_to_and_fro(play: Play) -> None:
    """A handoff with callback and filter beside a task, another that is ignored, one back, and one that fails."""
    script = [call("crawl", id="N"), H, call("transfer_to_third", id="T")], call("put", id="P", word="p"), "done"
    back = call("transfer_to_helper", id="back")
    desk = other(call("look", id="L"), [delay(2), back], handoffs=["helper"], tools=MORE["tools"], state=[WORD])
    callback = Callback()
    handoffs = [gr.handoff(desk, on_handoff=callback.plain, input_filter=only("user")), other("third", key="third")]
    life = await play(*script, handoffs=handoffs, do=[after(6, restart), after(8, restart)], **MORE)
    async with home(play.shelf.open(), agents=[life.scene.agent], deps=Outside()) as runtime:
        await (await runtime.fork("r", step=2, new_run_id="f")).wait()
        await (await runtime.start(None, "more", run_id="n", thread_id="t", execution=play.mode)).wait()


# --- threads, forks, owners ------------------------------------------------------------------------------------------


@program()
async def threads_and_forks(play: Play) -> None:
    """Runs that queue for their thread, a fork, a fork of the fork, and a prune of what is over."""
    life = await play(
        [call("put", id="A", word="a")], "done", behind=20.0, do=[after(1, another("me too")), pause(60.0)], **MORE
    )
    crew = [life.scene.agent, *life.scene.crew.values(), agent(key="front")]
    async with home(play.shelf.open(), agents=crew, deps=Outside()) as runtime:
        await (await runtime.fork("r", step=1, new_run_id="f1")).wait()
        await (await runtime.fork("f1", step=0, new_run_id="f2")).wait()
        await runtime.store.prune(life.events[-1].timestamp - timedelta(seconds=1))


@program()
async def runs_without_their_agent(play: Play) -> None:
    """A cancel and a deadline end them; another agent continues with one."""
    script = [call("sign", id="A")], "done"
    helper = agent(*script, tools=TOOLS)
    clock = gr.testing.Clock()
    async with home(play.shelf.open(), agents=[helper], deps=Outside(), drain=0, clock=clock) as runtime:
        for name in ("cancelled", "continued"):
            await (await runtime.start(helper, "hi", run_id=name)).wait()
        late = clock.now() + timedelta(seconds=50)
        await (await runtime.start(helper, "hi", run_id="late", deadline=late)).wait()
    async with home(play.shelf.open(), clock=clock) as runtime:
        await (await runtime.get("cancelled")).cancel(by="ada")
        await trio.sleep(100)
    other = agent(*script, tools=TOOLS, stop=[gr.stop.MaxRounds(9)])
    async with home(play.shelf.open(), agents=[other], deps=Outside(), clock=clock) as runtime:
        run = await runtime.get("continued")
        await run.decide("A", "resume", by="ada")
        await run.wait()


@program()
async def owners_that_crash(play: Play) -> None:
    """Once, again and again, and so that not even the end can be written."""
    store, helper = play.shelf.open(), agent("one", tools=TOOLS)
    async with home(store, agents=[helper], deps=Outside()) as runtime:
        for name, times in (("once", 1), ("again", 3), ("not-even-its-end", 999)):
            run = await runtime.start(helper, "hi", run_id=name)
            crashing(store, name, times)
            await trio.sleep(100)
            await run.send("more")
            await run.cancel()
            await run.result()


def crashing(store: Any, run_id: str, times: int) -> None:
    """The next commits of a run raise, unless they are its forced end: its owner crashes there."""
    submit, left = store.submit, times

    def raising(claim: Any, commit: Any, frames: Any, deliver: Any) -> None:
        nonlocal left
        forced = any(isinstance(entry.entry, ForcedEndEntry) for entry in commit.taken)
        if commit.run_id == run_id and left and not forced:
            left -= 1
            raise RuntimeError("the owner crashes here")
        submit(claim, commit, frames, deliver)

    store.submit = raising


@program()
async def a_record_that_begins_late(play: Play) -> None:
    """Off, then on, and on, then off: the stretch that was not recorded is named."""
    helper = agent([call("sign", id="A")], "done", tools=TOOLS)
    for first, second in ((False, True), (True, False)):
        name = f"{first}-{second}"
        async with home(play.shelf.open(), agents=[helper], deps=Outside(), record=first) as runtime:
            await (await runtime.start(helper, "hi", run_id=name)).wait()
        async with home(play.shelf.open(), agents=[helper], deps=Outside(), record=second) as runtime:
            run = await runtime.get(name)
            await run.decide("A", "resume", by="ada")
            await run.wait()
