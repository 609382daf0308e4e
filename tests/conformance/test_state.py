"""State written by tools: what they see of each other, what is merged, what is dropped and who learns of it."""

from typing import Any

import pytest

import greenroom as gr
from greenroom.testing import call

from ..support.runs import agent, home
from ..support.scene_plugins import gate, scripted
from ..support.scene_tools import Speechless
from ..support.scenes import Life, Scene, after, approve, cancel, restart
from ..support.state_tools import BOOKS, KEYS, LAST, LEDGER, TOTAL, later

parallel = pytest.mark.parametrize("mode", ["parallel_batch_approval", "parallel_streaming"])
sequential = pytest.mark.parametrize("mode", ["sequential"])


def conflicts(life: Life) -> list[tuple[Any, ...]]:
    """(key, writer, other, retried) of each conflict."""
    found = life.payloads("state.conflict")
    return [(one["key"], one["writer"], one.get("other"), one.get("retried", False)) for one in found]


def merged(life: Life) -> list[str]:
    """Whose writes were merged, in order."""
    return [payload["by"] for payload in life.payloads("state.changed")]


# --- what is seen ----------------------------------------------------------------------------------------------------


@pytest.mark.rule("S-18")
@sequential
async def test_one_at_a_time_each_call_sees_what_the_calls_before_it_wrote(play, autojump_clock):
    life = await play([call("keep", last="a", add=1, id="A"), call("keep", last="b", add=2, id="B")], "done", **BOOKS)
    assert life.tool_texts == {"A": "- 0 -", "B": "a 1 -"}
    assert (life.view.state, conflicts(life)) == ({"last": "b", "total": 3}, [])


@pytest.mark.rule("S-21")
async def test_a_hook_after_a_call_sees_what_it_wrote_only_where_calls_run_one_at_a_time(play, mode, autojump_clock):
    """Side by side the write is merged later: if the hook has written the same key, the hook's value stays."""
    seen: list[str | None] = []

    def hook(ctx: gr.PhaseContext[Any]) -> gr.Mutation:
        seen.append(ctx.state[LAST])
        return gr.Mutation().set(LAST, "hook")

    plugin = scripted("x", after_tool_execute=hook)
    life = await play([call("keep", last="a", id="A")], "done", **BOOKS, plugins=[plugin])
    alone = mode == "sequential"
    assert (seen, life.view.state["last"]) == (["a" if alone else "-"], "hook")
    assert [conflict[:2] for conflict in conflicts(life)] == ([] if alone else [("last", "A")])


@pytest.mark.rule("S-15", "S-19")
@parallel
async def test_side_by_side_no_call_sees_what_another_one_writes_however_late_it_is(play, autojump_clock):
    calls = [call("keep", add=1, seconds=1, id="A"), call("keep", add=2, id="B"), call("keep", add=4, id="C")]
    life = await play(calls, [call("keep", id="D")], "done", **BOOKS)
    assert life.tool_texts == {"A": "- 0 -", "B": "- 0 -", "C": "- 0 -", "D": "- 7 -"}


@pytest.mark.rule("S-15")
async def test_a_body_reads_its_own_writes(play, autojump_clock):
    @gr.tool
    async def twice(ctx: gr.ToolContext) -> str:
        ctx.state.update(TOTAL, 1)
        ctx.state.update(TOTAL, 1)
        ctx.state.set(LAST, "x")
        return f"{ctx.state[TOTAL]} {ctx.state[LAST]} {LAST in ctx.state}"

    life = await play([call("twice", id="A")], "done", tools=[twice], state=KEYS)
    assert life.tool_texts == {"A": "2 x True"}


async def test_a_tool_in_a_worker_thread_reads_and_writes_too(watched, mode):
    @gr.tool
    def count(ctx: gr.SyncToolContext) -> int:
        ctx.state.update(TOTAL, 1)
        return ctx.state[TOTAL]

    script = [call("count", id="A"), call("count", id="B")], [call("count", id="C")], "done"
    async with home(watched) as runtime:  # in real time: threads know no other
        run = await runtime.start(agent(*script, tools=[count]), "hi", execution=mode)
        await run.result()
        view = await run.view()
    texts = [message.content for message in view.messages if message.role == "tool"]
    assert (texts, view.state) == (["1", "2" if mode == "sequential" else "1", "3"], {"total": 3})


async def test_the_state_is_in_the_view_and_changing_what_the_view_shows_changes_nothing(play, autojump_clock):
    async def spoil(scene: Scene) -> None:
        view: Any = await scene.run.view()
        assert view.state["seen"] == ["a"]
        view.state["seen"].append("from outside")

    script = [call("keep", see="a", id="A")], [call("sign", id="S")], "done"
    life = await play(*script, **BOOKS, do=[spoil, approve("S")])
    assert (life.tool_texts["S"], life.view.state) == ("- 0 a 0", {"seen": ["a"]})


@pytest.mark.rule("S-4")
async def test_a_key_of_the_run_hides_one_of_the_thread_in_the_view(play, autojump_clock):
    mine, ours = gr.StateKey("k", int), gr.StateKey("k", int, scope="thread")

    @gr.tool
    async def both(ctx: gr.ToolContext) -> str:
        ctx.state.set(ours, 2)
        ctx.state.set(mine, 1)
        return f"{ctx.state[mine]} {ctx.state[ours]}"

    life = await play([call("both", id="A")], "done", tools=[both])
    assert (life.tool_texts, life.view.state) == ({"A": "1 2"}, {"k": 1})
    assert life.payloads("state.changed")[0]["keys"] == ["k", "thread:k"]


# --- what is merged --------------------------------------------------------------------------------------------------


@pytest.mark.rule("S-3", "S-23")
async def test_updates_of_a_commutative_key_are_reduced_in_the_models_order(play, autojump_clock):
    calls = [call("keep", add=n, see=str(n), seconds=10 - n, id=f"C{n}") for n in (1, 2, 3)]
    life = await play(calls, "done", **BOOKS)
    assert life.view.state == {"seen": ["1", "2", "3"], "total": 6}
    assert (merged(life), conflicts(life)) == (["C1", "C2", "C3"], [])


@pytest.mark.rule("S-2", "S-24", "S-26")
@parallel
async def test_of_two_writers_of_an_exclusive_key_the_later_is_dropped_and_its_result_stays(play, autojump_clock):
    calls = [call("keep", last="a", add=1, id="A"), call("keep", last="b", add=2, seconds=1, id="B")]
    life = await play(calls, "done", **BOOKS)
    assert life.view.state == {"last": "a", "total": 1}
    assert conflicts(life) == [("last", "B", "A", False)]
    result, note = life.tool_texts["B"].split("\n")
    assert result == "- 0 -"
    assert note.startswith("(state_conflict: state key 'last' was changed meanwhile by A.")
    assert life.calls["B"] == "new running succeeded"
    assert [payload["result"] for payload in life.payloads("tool.result") if payload["callId"] == "B"] == ["- 0 -"]
    assert sorted(life.effects) == ["A", "B"]
    assert life.requests[-1].messages[-1].content == life.tool_texts["B"]


@parallel
async def test_a_gate_that_is_asked_again_merges_what_was_written_before_its_call_and_nothing_else(
    play, autojump_clock
):
    """C has ended by then, B has not: in the model's order B is the first that writes."""

    def closed(ctx: gr.GateContext[Any]) -> Any:
        return gr.SetResult("closed") if ctx.call_id == "P" and not ctx.state[TOTAL] else None

    calls = [
        call("keep", add=1, seconds=4, id="A"),
        call("keep", id="P"),
        call("keep", last="b", see="b", seconds=30, id="B"),
        call("keep", last="c", see="c", seconds=2, id="C"),
    ]
    life = await play(calls, "done", **BOOKS, plugins=[gate("closed", closed)])
    assert (life.tool_texts["P"], life.view.state) == ("- 1 -", {"last": "b", "seen": ["b"], "total": 1})
    assert (merged(life), conflicts(life)) == (["A", "B"], [("last", "C", "B", False)])


@pytest.mark.rule("S-27")
@parallel
async def test_a_tool_that_retries_runs_again_alone_and_has_one_result(play, autojump_clock):
    calls = [call("keep", last="a", id="A"), call("retry", last="b", add=1, id="B"), call("keep", add=1, id="C")]
    life = await play(calls, "done", **BOOKS)
    assert life.view.state == {"last": "b", "total": 2}
    assert conflicts(life) == [("last", "B", "A", True)]
    assert life.tool_texts["B"] == "a 1 -"
    (done,) = [payload for payload in life.payloads("tool.result") if payload["callId"] == "B"]
    assert (done["attempts"], life.calls["B"]) == (2, "new running running succeeded")
    assert life.scene.outside.peak == 3


@parallel
async def test_several_that_retry_run_one_after_the_other_each_on_what_the_one_before_it_wrote(play, autojump_clock):
    calls = [call("retry", last=name, id=name.upper()) for name in "abc"]
    life = await play(calls, "done", **BOOKS)
    assert life.tool_texts == {"A": "- 0 -", "B": "a 0 -", "C": "b 0 -"}
    assert conflicts(life) == [("last", "B", "A", True), ("last", "C", "A", True)]
    assert [life.scene.outside.attempts(name) for name in "ABC"] == [1, 2, 2]
    assert life.view.state == {"last": "c"}


@pytest.mark.rule("S-27")
async def test_a_tool_that_has_run_again_does_not_do_so_a_second_time(play, autojump_clock):
    """Beside one that runs alone only background tasks write."""
    calls = [call("later", last="t", seconds=5, id="T"), call("later", title="u", seconds=15, id="U")]
    calls += [call("retry", last="r", title="r", id="R")]
    life = await play(calls, "wait", "wait", "done", tools=[*LEDGER, later], state=KEYS)
    assert conflicts(life) == [("last", "R", "T.task1", True), ("thread:title", "R", "U.task1", False)]
    assert (life.scene.outside.attempts("R"), life.calls["R"]) == (2, "new running running succeeded")
    assert life.tool_texts["R"].startswith("t 0 -\n(state_conflict: state key 'thread:title'")
    assert life.view.state == {"last": "t", "title": "u"}


@pytest.mark.parametrize("mode", ["parallel_streaming"])
async def test_what_is_approved_while_a_tool_runs_again_alone_waits_for_it(play, autojump_clock):
    calls = [call("keep", last="a", id="A"), call("retry", last="b", id="B"), call("sign", id="S")]
    life = await play(calls, "done", do=[after(15, approve("S"))], **BOOKS)
    assert life.tool_texts["B"] == "a 0 -"
    assert life.seconds("tool.resumed", call_id="S") == 15.0
    assert life.seconds("tool.started", call_id="S") == 20.0


@sequential
async def test_one_at_a_time_nothing_is_ever_retried(play, autojump_clock):
    life = await play([call("retry", last="a", id="A"), call("retry", last="b", id="B")], "done", **BOOKS)
    assert (life.view.state, conflicts(life), life.effects) == ({"last": "b"}, [], ["A", "B"])


@pytest.mark.rule("S-20")
async def test_a_tool_that_runs_alone_sees_the_writes_of_all_before_it(play, autojump_clock):
    calls = [
        call("keep", last="a", id="A"),
        call("keep", add=1, id="B"),
        call("alone", last="c", id="C"),
        call("keep", last="d", id="D"),
    ]
    life = await play(calls, "done", **BOOKS)
    assert (life.tool_texts["C"], life.tool_texts["D"]) == ("a 1 -", "c 1 -")
    assert (life.view.state, conflicts(life)) == ({"last": "d", "total": 1}, [])


@pytest.mark.rule("S-25")
@parallel
@pytest.mark.parametrize(
    ("error", "said"),
    [
        (Speechless(), "Speechless: (its message cannot be shown)."),
        (ValueError("half \ud800 a character"), "ValueError: half ? a character."),
        (ValueError("x" * 100_000), f"ValueError: {'x' * 1_999}…."),
    ],
    ids=["no text", "no utf-8", "long"],
)
async def test_a_reducer_may_fail_in_any_words_and_harms_no_run(play, autojump_clock, error, said):
    def fails(value: int, more: int) -> int:
        if value:
            raise error
        return more

    @gr.tool
    async def add(ctx: gr.ToolContext) -> str:
        ctx.state.update(key, 1)
        return "added"

    key = gr.StateKey("fragile", int, default=0, merge=gr.commutative(fails))
    life = await play([call("add", id="A"), call("add", id="B")], "done", tools=[add], state=[key])
    assert life.tool_texts["B"].startswith(f"added\n(state_conflict: the reducer of state key 'fragile' failed: {said}")
    assert (life.outcome.output, life.view.state) == ("done", {"fragile": 1})


# --- background tasks ------------------------------------------------------------------------------------------------


async def test_what_a_task_wrote_is_merged_when_it_succeeds_and_not_before(play, autojump_clock):
    script = [call("later", last="t", add=1, seconds=15, id="T")], *([call("keep", id=name)] for name in "KLM"), "done"
    life = await play(*script, tools=[*LEDGER, later], state=KEYS)
    assert [life.tool_texts[name] for name in "KLM"] == ["- 0 -", "- 0 -", "t 1 -"]
    assert merged(life) == ["T.task1"]


async def test_what_a_task_wrote_that_is_cancelled_is_dropped(play, autojump_clock):
    script = [call("later", last="t", seconds=15, id="T")], [call("cancel_task", task_id="T.task1", id="X")], "done"
    life = await play(*script, "done", tools=[*LEDGER, later], state=KEYS)
    assert (life.view.state, merged(life), conflicts(life)) == ({}, [], [])


@pytest.mark.parametrize("tool", ["once", "retry"])
async def test_a_task_whose_key_was_written_meanwhile_is_reported_and_never_runs_again(play, autojump_clock, tool):
    @gr.tool
    async def boss(ctx: gr.ToolContext[Any]) -> str:
        return await ctx.spawn(tool, last="t", add=1, seconds=15)

    calls = [call("boss", id="B"), call("keep", last="c", id="C")]
    life = await play(calls, "wait", "done", tools=[*LEDGER, boss], state=KEYS)
    assert conflicts(life) == [("last", "B.task1", "C", False)]
    assert (life.scene.outside.attempts("B"), life.view.state) == (1, {"last": "c"})
    (note,) = [line for line in life.history if "[Background task B.task1" in line]
    assert "succeeded.]\n- 0 -\n(state_conflict: state key 'last' was changed meanwhile by C." in note


# --- what is dropped -------------------------------------------------------------------------------------------------


@pytest.mark.rule("S-16")
async def test_what_a_body_wrote_that_suspends_is_dropped_and_it_reads_afresh_when_it_continues(play, autojump_clock):
    calls = [call("keep", last="a", add=1, id="A"), call("hold", last="h", add=10, id="H")]
    life = await play(calls, "done", **BOOKS, do=[approve("H")])
    assert life.tool_texts["H"] == "a 1 -"
    assert (life.view.state, conflicts(life)) == ({"last": "h", "total": 11}, [])


async def test_a_suspended_body_has_written_nothing_that_others_see(play, autojump_clock):
    life = await play([call("hold", last="h", add=10, id="H")], **BOOKS)
    assert life.view.state == {}
    assert merged(life) == []


@pytest.mark.rule("S-16")
async def test_what_a_body_wrote_that_fails_is_dropped(play, autojump_clock):
    calls = [call("broken", last="x", add=5, id="X"), call("keep", add=1, id="A")]
    life = await play(calls, "done", **BOOKS)
    assert (life.view.state, life.codes["X"], merged(life)) == ({"total": 1}, "tool_error", ["A"])


@pytest.mark.rule("S-8")
async def test_a_wrong_value_is_the_tools_error_and_tells_the_model_which_key_and_where(play, autojump_clock):
    @gr.tool
    async def wrong(ctx: gr.ToolContext) -> None:
        ctx.state.set(gr.StateKey("log", dict[str, list[int]]), {"a": [1, "x"]})  # type: ignore[dict-item]

    life = await play([call("wrong", id="W")], "done", tools=[wrong])
    assert life.codes["W"] == "tool_error"
    assert "state key 'log'" in life.tool_texts["W"]
    assert "expected int, not str 'x' @ $['a'][1]" in life.tool_texts["W"]


@parallel
@pytest.mark.parametrize("how", ["cancelled", "failed"])
async def test_what_calls_had_written_when_the_run_ends_early_stays(play, autojump_clock, how):
    calls = [
        call("retry", last="a", add=1, seconds=1, id="A"),
        call("keep", last="b", add=1, seconds=2, id="B"),
        call("fatal", seconds=5, id="F"),
        call("keep", last="c", add=1, seconds=60, id="C"),
    ]
    life = await play(calls, "done", **BOOKS, do=[after(3, cancel())] if how == "cancelled" else [])
    assert life.end["to"] == how
    assert life.view.state == {"last": "a", "total": 1}
    assert conflicts(life) == [("last", "B", "A", False)]
    assert "state_conflict" in life.tool_texts["B"]


@sequential
async def test_what_calls_one_at_a_time_had_written_when_the_run_ends_early_stays(play, autojump_clock):
    calls = [call("keep", last="a", seconds=1, id="A"), call("keep", last="b", seconds=60, id="B")]
    life = await play(calls, "done", **BOOKS, do=[after(3, cancel())])
    assert (life.end["to"], life.view.state) == ("cancelled", {"last": "a"})


@pytest.mark.rule("S-17")
async def test_a_write_after_the_body_has_ended_is_an_error_of_the_writer(play, autojump_clock):
    kept: list[gr.WritableState] = []

    @gr.tool
    async def leak(ctx: gr.ToolContext) -> None:
        kept.append(ctx.state)

    life = await play([call("leak", id="A")], "done", tools=[leak])
    with pytest.raises(gr.StateError, match="state key 'total' cannot be written: the body has ended"):
        kept[0].update(TOTAL, 1)
    assert life.view.state == {}


@pytest.mark.rule("S-29")
async def test_a_predicate_reads_the_state_and_a_write_of_it_means_that_a_person_must_look(play, autojump_clock):
    def over(ctx: gr.ToolContext, arguments: Any) -> bool:
        return ctx.state[TOTAL] > 5

    def writes(ctx: gr.ToolContext, arguments: Any) -> bool:
        ctx.state.update(TOTAL, 1)
        return False

    async def body() -> str:
        return "done"

    tools = [*LEDGER, gr.tool(body, name="a", needs_approval=over), gr.tool(body, name="b", needs_approval=writes)]
    script = [call("keep", add=5, id="K")], [call("a", id="A1")], [call("keep", add=1, id="K2")], [call("a", id="A2")]
    life = await play(*script, [call("b", id="B")], "done", do=[approve("A2"), approve("B")], tools=tools, state=KEYS)
    assert [call_id for call_id, path in life.calls.items() if "suspended" in path] == ["A2", "B"]
    assert life.view.state == {"total": 6}


@pytest.mark.rule("S-28")
@pytest.mark.parametrize("down", [False, True])
async def test_a_predicate_that_said_no_is_asked_again_when_a_call_before_it_has_written(play, autojump_clock, down):
    def over(ctx: gr.ToolContext, arguments: Any) -> bool:
        asked.append(ctx.state[TOTAL])
        return ctx.state[TOTAL] > 5

    async def body() -> str:
        return "done"

    asked: list[int] = []
    script = [call("keep", add=6, id="K"), call("a", id="A"), call("a", id="B")], "done"
    acts = [*([after(0.1, restart)] if down else []), approve("A"), approve("B")]
    tools = [*LEDGER, gr.tool(body, name="a", needs_approval=over)]
    life = await play(*script, do=acts, tools=tools, state=KEYS, max_bodies=1)
    assert asked == [0, 0, 6, 6]
    assert [life.calls[name] for name in "AB"] == ["new suspended resuming running succeeded"] * 2


@pytest.mark.rule("S-10")
def test_an_agent_refuses_two_keys_of_one_name():
    with pytest.raises(gr.AgentDefinitionError, match="two different state keys are named 'last'"):
        gr.Agent("a", state=[LAST, gr.StateKey("last", int)])
