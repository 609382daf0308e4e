"""Rules of plugins through the end of a process: hooks are asked again, the state is what it would have been.

A process is killed at every write of a run with plugins, and the next one finishes the run: it must come to the same
outcome, with the state that was written exactly once per phase.
"""

import operator
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.testing import ScriptedModel, call, delay

from ..support.process_death import Mortal
from ..support.scene_plugins import Scripted, diary, scripted, slow
from ..support.scene_tools import TOOLS
from ..support.scenes import Down, after, approve, restart

B, C = call("sign", id="B"), call("look", id="C")
COUNT = gr.StateKey("count", int, default=0, merge=gr.commutative(operator.add))
TRAIL = gr.StateKey("trail", list[str], default=[])
PHASES = [phase.value for phase in gr.Phase]


# --- asked again -----------------------------------------------------------------------------------------------------


@pytest.mark.rule("L-77", "P-6")
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("away", [0.0, 500.0])
async def test_a_hook_that_runs_when_the_process_ends_is_asked_again(play, autojump_clock, phase, away):
    started: list[float] = []

    async def hook(ctx: gr.PhaseContext[Any]) -> gr.Mutation | None:
        started.append(trio.current_time())
        await trio.sleep(20)
        return None if phase == "tool_gate" else gr.Mutation().update(COUNT, 1)

    book = diary("run_start", "run_end", "step_start")
    life = await play([C], "done", do=[after(15, Down(away))], plugins=[scripted("x", **{phase: hook}), book])
    once = 2 if phase in ("step_start", "before_inference", "after_inference", "step_end") else 1
    assert len(started) == once + 1
    assert life.view.state.get("count") == (None if phase == "tool_gate" else once)
    assert (life.outcome.output, book.count("step_start")) == ("done", 2 + (phase == "step_start"))
    assert (book.count("run_start"), book.count("run_end")) == (1 + (phase == "run_start"), 1 + (phase == "run_end"))
    assert life.payloads("degraded") == []


@pytest.mark.rule("P-6")
async def test_what_a_process_had_merged_is_not_merged_again(play, autojump_clock):
    plugin = scripted("x", step_start=lambda ctx: gr.Mutation().update(COUNT, 1))
    life = await play([delay(10), C], "done", do=[after(5, restart)], plugins=[plugin])
    assert life.view.state["count"] == 2


async def test_a_program_that_shuts_down_while_a_hook_runs_leaves_the_run_to_the_next_one(play, autojump_clock):
    """Drained, the runtime waits for no hook: the phase is asked for again."""
    play.runtime = {"drain": 3}
    book = diary("step_start", step_start=slow(10))
    life = await play("done", do=[after(5, restart)], plugins=[book])
    assert book.count("step_start") == 2
    assert life.outcome.output == "done"


async def test_a_plugin_that_the_next_program_does_not_have_is_not_asked(play, autojump_clock):
    """What it had in its hands continues without it, and the log says that the agent is another one."""

    async def without(scene: Any) -> None:
        scene.agent = play.agent([C], "done")

    life = await play([C], "done", do=[after(5, without), after(0, restart)], plugins=[diary(), slow_in("tool_gate")])
    assert (life.outcome.output, life.effects) == ("done", ["C"])
    assert [payload["reason"] for payload in life.payloads("degraded")] == ["agent_changed"]


@pytest.mark.parametrize("phase", PHASES)
async def test_wherever_a_run_is_it_continues_without_its_plugins(play, autojump_clock, phase):
    async def without(scene: Any) -> None:
        scene.agent = play.agent([C], "done")

    life = await play([C], "done", do=[after(5, without), after(7, restart)], plugins=[slow_in(phase)])
    assert life.outcome.output == "done"


@pytest.mark.parametrize("phase", PHASES)
async def test_wherever_a_run_is_it_continues_with_plugins_that_are_new(play, autojump_clock, phase):
    book = diary()

    async def with_them(scene: Any) -> None:
        scene.agent = play.agent([C], "done", plugins=[slow_in(phase), book])

    life = await play([C], "done", do=[after(5, with_them), after(0, restart)])
    assert life.outcome.output == "done"
    assert book.count("run_end") == 1
    assert book.count("run_start") == 0


def slow_in(phase: str) -> Scripted:
    """A plugin that takes ten seconds in one phase."""
    return scripted("slow", **{phase: slow(10)})


async def test_state_that_hooks_wrote_is_of_the_thread_if_the_key_says_so(play, autojump_clock):
    key = gr.StateKey("seen", int, default=0, scope="thread")
    plugin = scripted("x", run_start=lambda ctx: gr.Mutation().set(key, ctx.state[key] + 1))
    life = await play([B], "done", do=[restart, approve("B")], plugins=[plugin])
    assert life.view.state["seen"] == 1


# --- killed at every write -------------------------------------------------------------------------------------------


@gr.tool(replay="safe")
async def count_up(ctx: gr.ToolContext[Any]) -> str:
    """Writes the same key as the hooks."""
    await trio.sleep(1)
    ctx.state.update(COUNT, 100)
    return "up"


@gr.tool(replay="safe", needs_approval=True)
async def agree(ctx: gr.ToolContext[Any]) -> str:
    """Needs an approval."""
    await trio.sleep(1)
    return "agreed"


@gr.tool(replay="safe")
async def consult(ctx: gr.ToolContext[Any]) -> str:
    """Asks for a decision."""
    if ctx.decision is None:
        raise gr.Suspend(message="what?")
    await trio.sleep(1)
    return f"told {ctx.decision.result}"


class Clerk(gr.Plugin):
    """Counts every phase, keeps an exclusive trail beside another plugin, gates by state, changes each request."""

    name = "clerk"
    state = (COUNT, TRAIL)

    def trail(self, ctx: gr.PhaseContext[Any]) -> gr.Mutation:
        """One line more, and one counted."""
        where = f"{self.name}:{ctx.phase}" if ctx.call is None else f"{self.name}:{ctx.phase}:{ctx.call.call_id}"
        return gr.Mutation().set(TRAIL, [*ctx.state[TRAIL], where]).update(COUNT, 1)

    async def run_start(self, ctx: gr.PhaseContext[Any]) -> gr.Mutation:
        return self.trail(ctx)

    async def before_inference(self, ctx: gr.PhaseContext[Any]) -> gr.Mutation:
        await trio.sleep(0.1)
        return self.trail(ctx).add_message("Be brief.").exclude_tools("pay").override(temperature=ctx.step)

    async def after_inference(self, ctx: gr.PhaseContext[Any]) -> gr.Mutation:
        made = self.trail(ctx)
        return (
            made.drop_call("D") if any(facts.call_id == "D" for facts in ctx.calls) and self.name == "clerk" else made
        )

    async def tool_gate(self, ctx: gr.GateContext[Any]) -> Any:
        await trio.sleep(0.1)
        return gr.SetResult("closed") if ctx.tool == "look" and ctx.state[COUNT] < 100 else None

    async def before_tool_execute(self, ctx: gr.PhaseContext[Any]) -> gr.Mutation:
        await trio.sleep(0.1)
        return self.trail(ctx)

    async def after_tool_execute(self, ctx: gr.PhaseContext[Any]) -> gr.Mutation:
        return self.trail(ctx)

    async def step_end(self, ctx: gr.PhaseContext[Any]) -> gr.Mutation:
        return self.trail(ctx)

    async def run_end(self, ctx: gr.PhaseContext[Any]) -> gr.Mutation:
        await trio.sleep(0.1)
        return self.trail(ctx)


class Second(Clerk):
    """The same again, under another name: all of it clashes."""

    name = "second"


SCRIPT = (
    [call("count_up", id="U"), call("look", id="C"), call("agree", id="B"), call("pay", id="P"), call("note", id="D")],
    [call("consult", id="Q")],
    "done",
)


def clerked(mode: Any) -> gr.Agent:
    """The agent of the killed runs."""
    tools = [*TOOLS, count_up, agree, consult]
    return gr.Agent(
        "helper", tools=tools, model=ScriptedModel(list(SCRIPT)), plugins=[Clerk(), Second()], execution=mode
    )


async def one_process(place: Mortal, mode: Any) -> Any:
    """Open, start or find the run, decide what is asked, until it ends."""
    with place.scope, trio.fail_after(100_000):
        async with gr.open_runtime(place.store, agents=[clerked(mode)], deps=place.outside, drain=0) as runtime:
            run = await runtime.start("helper", "go", run_id="r", thread_id="t")
            while isinstance(await run.wait(), gr.Waiting):
                for ticket in (await run.view()).tickets:
                    result = "yes" if ticket.call_id == "Q" else None
                    await run.decide(ticket.ticket_id, "resume", result=result, decision_id=f"d:{ticket.ticket_id}")
            view = await run.view()
            text = {message.call_id: message.content for message in view.messages if message.role == "tool"}
            return view.stage, view.state["count"], view.state["trail"], text
    return None


def expected(found: Any) -> Any:
    """What does not depend on the moments at which side-by-side hooks came."""
    stage, count, trail, reported = found
    return stage, count, sorted(trail), reported


@pytest.mark.no_cover
@pytest.mark.parametrize(("kind", "point"), [("memory", "before_commit"), ("sqlite", "after_commit")])
async def test_a_kill_at_every_write_comes_to_the_same_outcome_and_state(
    folder, autojump_clock, kind, mode, point, sampled
):
    """A body that was cut runs again, with hooks of its own before it: those are the only lines that may be more."""
    whole = None
    kills: list[int | None] = [None]
    while kills:
        kill_at = kills.pop(0)
        where = folder / f"{kill_at}"
        where.mkdir()
        place, seen = Mortal(kind, where), 0

        def on_write(at: str, place: Mortal = place, limit: int | None = kill_at) -> None:
            nonlocal seen
            seen += at == point
            if limit is not None and seen == limit and at == point:
                place.kill()

        place.on_write = on_write
        found = await one_process(place, mode)
        if kill_at is None:
            whole, kills = found, sampled(range(1, seen + 1), 8)
        elif place.reopen():
            found = await one_process(place, mode)
        assert found is not None
        stage, count, trail, reported = expected(found)
        again = [line for line in trail if ":before_tool_execute:" not in line]
        assert (stage, reported) == (whole[0], whole[3]), kill_at
        assert again == [line for line in sorted(whole[2]) if ":before_tool_execute:" not in line], kill_at
        assert count == 100 + len(trail), kill_at
