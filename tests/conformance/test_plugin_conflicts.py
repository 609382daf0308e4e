"""Rules of the hooks of one phase: concurrent, on one frozen snapshot, one revision; conflicts never fail the run."""

import operator
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.testing import call

from ..support.scene_plugins import Scripted, diary, scripted
from ..support.scenes import after, approve, restart

LAST = gr.StateKey("last", str, default="")
WORDS = gr.StateKey("words", list[str], default=[])
COUNT = gr.StateKey("count", int, default=0, merge=gr.commutative(operator.add))
MUTATING = [phase.value for phase in gr.Phase if phase is not gr.Phase.TOOL_GATE]
EVERY_PHASE = pytest.mark.parametrize("phase", MUTATING)
PARALLEL = pytest.mark.parametrize("mode", ["parallel_batch_approval", "parallel_streaming"])
C = call("look", id="C")
STEP = ([C],)
STOP = {"stop": [gr.stop.MaxRounds(1)]}
"""One step with one call: every phase comes exactly once."""


class Watch:
    """Keeps, per hook, the value that it saw and when, by the clock of the scene."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Any]] = []
        self.times: list[tuple[float, float]] = []

    def appending(self, name: str, seconds: float = 0.0, *, phase: str, **more: Any) -> Scripted:
        """A plugin whose hook takes so long and appends its name to WORDS, as it saw them."""

        async def hook(ctx: gr.PhaseContext[Any]) -> gr.Mutation:
            begin = trio.current_time()
            before = ctx.state[WORDS]
            await trio.sleep(seconds)
            self.seen.append((name, ctx.state[WORDS]))
            self.times.append((begin, trio.current_time()))
            return gr.Mutation().set(WORDS, [*before, name])

        return scripted(name, **{phase: hook}, **more)


# --- together --------------------------------------------------------------------------------------------------------


@pytest.mark.rule("P-1")
@EVERY_PHASE
async def test_hooks_of_a_phase_run_at_once_on_one_snapshot_and_make_one_revision(play, autojump_clock, phase):
    saw: list[int] = []

    async def hook(ctx: gr.PhaseContext[Any]) -> gr.Mutation:
        first = ctx.state[COUNT]
        await trio.sleep(4)
        assert ctx.state[COUNT] == first
        saw.append(first)
        return gr.Mutation().update(COUNT, 1)

    life = await play(*STEP, plugins=[scripted(name, **{phase: hook}) for name in "abc"], **STOP)
    assert saw == [0, 0, 0]
    assert life.view.state["count"] == 3
    (changed,) = life.payloads("state.changed")
    assert (changed["revision"], list(changed["keys"]), changed["by"]) == (1, ["count"], phase)
    assert life.seconds("completed") == 14.0


async def test_gates_of_a_call_run_at_once_on_one_snapshot(play, autojump_clock):
    async def verdict(ctx: gr.GateContext) -> None:
        await trio.sleep(4)

    life = await play(*STEP, plugins=[scripted(name, tool_gate=verdict) for name in "abc"], **STOP)
    assert life.seconds("tool.started") == 4.0


async def test_a_phase_sees_what_the_phases_before_it_have_written(play, autojump_clock):
    seen: list[tuple[str, int]] = []

    def count(ctx: gr.PhaseContext[Any]) -> gr.Mutation | None:
        seen.append((str(ctx.phase), ctx.state[COUNT]))
        return None if ctx.phase is gr.Phase.TOOL_GATE else gr.Mutation().update(COUNT, 1)

    life = await play(*STEP, plugins=[scripted("x", **dict.fromkeys((p.value for p in gr.Phase), count))], **STOP)
    run_order = ["run_start", "step_start", "before_inference", "after_inference", "tool_gate", "before_tool_execute"]
    assert seen[:6] == list(zip(run_order, [0, 1, 2, 3, 4, 4], strict=True))
    assert life.view.state["count"] == 8
    assert life.record.row.revision == 8


async def test_a_hook_reads_what_the_tool_of_the_call_has_written_before_step_end(play, autojump_clock):
    @gr.tool
    async def put(ctx: gr.ToolContext) -> str:
        ctx.state.set(LAST, "tool")
        return "put"

    seen: list[str] = []
    plugin = scripted("x", step_end=lambda ctx: seen.append(ctx.state[LAST]))
    await play([call("put", id="P")], plugins=[plugin], tools=[put], **STOP)
    assert seen == ["tool"]


@gr.tool
async def peek(ctx: gr.ToolContext, seconds: float = 1.0) -> int:
    """Says the count that it sees, and adds a hundred."""
    seen = ctx.state[COUNT]
    await trio.sleep(seconds)
    ctx.state.update(COUNT, 100)
    return seen


async def test_a_body_sees_what_the_hooks_before_it_wrote_but_no_unmerged_write_of_a_sibling(play, autojump_clock):
    """In sequence each body sees all that was before it; side by side, only what the hooks wrote."""

    async def count(ctx: gr.PhaseContext[Any]) -> gr.Mutation:
        assert ctx.call is not None
        await trio.sleep(2 * int(ctx.call.call_id))
        return gr.Mutation().update(COUNT, 1)

    step = [call("peek", id=number) for number in "123"]
    plugin = scripted("x", before_tool_execute=count)
    life = await play(step, "done", plugins=[plugin], tools=[peek])
    apart = play.mode == "sequential"
    assert list(life.tool_texts.values()) == (["1", "102", "203"] if apart else ["1", "2", "3"])
    assert life.view.state["count"] == 303


# --- conflicts -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("P-2")
@EVERY_PHASE
async def test_hooks_that_lose_a_conflict_about_an_exclusive_key_run_again_one_by_one(play, autojump_clock, phase):
    """In the order of registration, whichever was ready first, each on what the ones before it have written."""
    watch = Watch()
    plugins = [watch.appending("a", 3, phase=phase), watch.appending("b", 2, phase=phase)]
    plugins.append(watch.appending("c", 1, phase=phase))
    plugins.insert(1, scripted("other", **{phase: lambda ctx: gr.Mutation().set(LAST, "kept")}))
    life = await play(*STEP, plugins=plugins, **STOP)
    assert watch.seen == [("c", []), ("b", []), ("a", []), ("b", ["a"]), ("c", ["a", "b"])]
    assert watch.times[3][1] <= watch.times[4][0]
    assert (life.view.state["words"], life.view.state["last"]) == (["a", "b", "c"], "kept")
    assert len(life.payloads("state.changed")) == 1
    assert life.outcome.code == "max_rounds"


@pytest.mark.rule("P-3")
@EVERY_PHASE
async def test_updates_of_a_commutative_key_meet_and_no_hook_runs_twice(play, autojump_clock, phase):
    runs: list[str] = []

    def adding(name: str, amount: int) -> Scripted:
        def hook(ctx: gr.PhaseContext[Any]) -> gr.Mutation:
            runs.append(name)
            return gr.Mutation().update(COUNT, amount).update(COUNT, amount)

        return scripted(name, **{phase: hook})

    life = await play(*STEP, plugins=[adding("a", 1), adding("b", 10)], **STOP)
    assert (sorted(runs), life.view.state["count"]) == (["a", "b"], 22)


async def test_a_set_of_a_commutative_key_meets_no_update(play, autojump_clock):
    setting = scripted("set", step_start=lambda ctx: gr.Mutation().set(COUNT, 100))
    adding = scripted("add", step_start=lambda ctx: gr.Mutation().update(COUNT, ctx.state[COUNT] + 1))
    life = await play("done", plugins=[setting, adding])
    assert life.view.state["count"] == 201


async def test_nothing_else_of_an_answer_that_is_asked_for_again_counts(play, autojump_clock):
    """The second hook sees that the work is done, and asks for nothing any more."""

    def claim(name: str) -> Scripted:
        def hook(ctx: gr.PhaseContext[Any]) -> gr.Mutation | None:
            if ctx.state[LAST]:
                return None
            return gr.Mutation().set(LAST, name).add_message(f"from {name}").override(seed=name)

        return scripted(name, before_inference=hook)

    life = await play("done", plugins=[claim("a"), claim("b")])
    (request,) = life.requests
    assert [message.content for message in request.messages if message.role == "system"] == ["from a"]
    assert (life.view.state["last"], request.settings["seed"]) == ("a", "a")


async def test_the_order_of_registration_counts_also_for_hooks_that_were_asked_again(play, autojump_clock):
    """b clashes with a and answers last, but c was registered after it."""

    def hook(name: str, *, writes: bool) -> Scripted:
        made = gr.Mutation().add_message(name).override(temperature=name)
        made = made.set(LAST, name) if writes else made
        return scripted(name, before_inference=lambda ctx: made)

    life = await play("done", plugins=[hook("a", writes=True), hook("b", writes=True), hook("c", writes=False)])
    (request,) = life.requests
    assert [message.content for message in request.messages if message.role == "system"] == ["a", "b", "c"]
    assert request.settings["temperature"] == "c"
    assert life.view.state["last"] == "b"


async def test_the_end_that_the_first_registered_hook_asks_for_is_reported(play, autojump_clock):
    plugins = [
        scripted("w", step_start=lambda ctx: gr.Mutation().set(LAST, "w")),
        scripted("a", step_start=lambda ctx: gr.Mutation().set(LAST, "a").end("a is enough")),
        scripted("b", step_start=lambda ctx: gr.Mutation().end("b is enough")),
    ]
    life = await play("done", plugins=plugins)
    assert life.end["detail"] == "a is enough"


@pytest.mark.rule("P-2")
async def test_of_two_edits_of_one_call_the_second_hook_sees_the_first(play, autojump_clock):
    def more(ctx: gr.PhaseContext[Any]) -> gr.Mutation | None:
        if not ctx.calls:
            return None
        return gr.Mutation().edit_call("C", {"at": ctx.calls[0].arguments.get("at", "") + "x"})

    life = await play([C], "done", plugins=[scripted(name, after_inference=more) for name in "abc"])
    assert "saw xxx" in life.tool_texts["C"]
    assert [(payload["arguments"], payload["by"]) for payload in life.payloads("tool.edited")] == [({"at": "xxx"}, "c")]


@pytest.mark.rule("P-27")
@pytest.mark.parametrize("names", ["drop edit", "edit drop"])
async def test_what_one_hook_drops_no_other_revives(play, autojump_clock, names):
    """The one that is asked again sees the call as cancelled; one that does not look changes nothing either."""
    seen: list[str] = []

    def edit(ctx: gr.PhaseContext[Any]) -> gr.Mutation | None:
        seen.extend(str(facts.status) for facts in ctx.calls)
        return gr.Mutation().edit_call("C", {"at": "x"}) if ctx.calls else None

    hooks = {"drop": lambda ctx: gr.Mutation().drop_call("C") if ctx.calls else None, "edit": edit}
    life = await play([C], "done", plugins=[scripted(name, after_inference=hooks[name]) for name in names.split()])
    assert (life.calls, life.effects) == ({"C": "new cancelled"}, [])
    assert seen == (["new", "cancelled"] if names == "drop edit" else ["new"])


# --- another writer has written meanwhile -----------------------------------------------------------------------------


@pytest.mark.rule("P-4")
@PARALLEL
@pytest.mark.parametrize("phase", ["before_tool_execute", "after_tool_execute"])
async def test_a_hook_that_worked_on_an_old_revision_is_asked_again_on_the_new_one(play, autojump_clock, phase):
    """The hooks of two calls run side by side, and write one exclusive key: nothing is lost, nothing fails."""
    seen: list[tuple[str, list[str]]] = []

    async def hook(ctx: gr.PhaseContext[Any]) -> gr.Mutation:
        assert ctx.call is not None
        before = ctx.state[WORDS]
        await trio.sleep(1 if ctx.call.call_id == "L1" else 3)
        seen.append((ctx.call.call_id, before))
        return gr.Mutation().set(WORDS, [*before, ctx.call.call_id])

    life = await play([call("look", id="L1"), call("look", id="L2")], "done", plugins=[scripted("x", **{phase: hook})])
    assert seen == [("L1", []), ("L2", []), ("L2", ["L1"])]
    assert life.view.state["words"] == ["L1", "L2"]
    assert [payload["revision"] for payload in life.payloads("state.changed")] == [1, 2]
    assert (life.outcome.output, life.payloads("degraded", "state.conflict")) == ("done", [])


@PARALLEL
async def test_commutative_writes_of_hooks_side_by_side_are_rebased_and_no_person_is_asked_again(play, autojump_clock):
    book = diary("before_tool_execute", before_tool_execute=lambda ctx: gr.Mutation().update(COUNT, 1))
    life = await play([call("look", id=f"L{n}") for n in range(4)], "done", plugins=[book])
    assert (book.count("before_tool_execute"), life.view.state["count"]) == (4, 4)


@PARALLEL
async def test_what_an_asked_again_hook_asked_for_beside_its_writes_does_not_count(play, autojump_clock):
    """The first answer of L2's hook wants the run to end; the second one, on the new state, does not."""

    async def hook(ctx: gr.PhaseContext[Any]) -> gr.Mutation:
        assert ctx.call is not None
        await trio.sleep(1 if ctx.call.call_id == "L1" else 3)
        made = gr.Mutation().set(LAST, ctx.call.call_id)
        return made if ctx.state[LAST] or ctx.call.call_id == "L1" else made.end("nobody was here")

    plugin = scripted("x", before_tool_execute=hook)
    life = await play([call("look", id="L1"), call("look", id="L2")], "done", plugins=[plugin])
    assert (life.outcome.output, life.view.state["last"]) == ("done", "L2")


@pytest.mark.rule("P-5")
async def test_hooks_on_an_old_revision_never_fail_the_run_also_after_a_crash(play, autojump_clock):
    async def hook(ctx: gr.PhaseContext[Any]) -> gr.Mutation:
        assert ctx.call is not None
        await trio.sleep(1 if ctx.call.call_id == "L1" else 3)
        return gr.Mutation().set(WORDS, [*ctx.state[WORDS], ctx.call.call_id])

    calls = [call("look", id="L1"), call("look", id="L2")]
    life = await play(calls, "done", do=[after(2, restart)], plugins=[scripted("x", before_tool_execute=hook)])
    assert sorted(set(life.view.state["words"])) == ["L1", "L2"]
    assert life.outcome.output == "done"


# --- the state of a run ----------------------------------------------------------------------------------------------


async def test_what_hooks_wrote_is_there_in_the_next_process_exactly_once(play, autojump_clock):
    plugin = scripted("x", **{p: (lambda ctx: gr.Mutation().update(COUNT, 1)) for p in MUTATING})
    life = await play([call("sign", id="B")], "done", do=[restart, approve("B")], plugins=[plugin])
    hooks = 1 + 2 * 4 + 2 + 1
    assert life.view.state["count"] == hooks == life.record.row.revision
