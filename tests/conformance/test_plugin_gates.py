"""Rules of the gates: block > deny > suspend > set_result > allow, on the newest state, again whenever it has changed.

A gate never lets a call pass because it failed.
"""

import operator
from itertools import product
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.testing import ScriptedModel, call, text

from ..support.scene_plugins import Scripted, diary, gate, scripted, slow
from ..support.scene_tools import TOOLS
from ..support.scenes import after, approve, cancel, decide, deny, pause, restart, send

A, B, C = call("pay", id="A"), call("sign", id="B"), call("look", id="C")
PARALLEL = pytest.mark.parametrize("mode", ["parallel_batch_approval", "parallel_streaming"])
OPEN = gr.StateKey("open", bool, default=False)
SEEN = gr.StateKey("seen", int, default=0, merge=gr.commutative(operator.add))
VERDICTS: dict[str, Any] = {
    "block": gr.Block("not here"),
    "deny": gr.Deny("not this one"),
    "suspend": gr.Suspend(message="may it?"),
    "set_result": gr.SetResult("so be it"),
    "allow": gr.Allow(),
    "nothing": None,
}
RANK = {"block": 4, "deny": 3, "suspend": 2, "set_result": 1, "allow": 0, "nothing": 0}


async def _unlock(ctx: gr.ToolContext[Any]) -> str:
    """Lets the gates of `key_gate` open."""
    await trio.sleep(1)
    ctx.state.set(OPEN, True)
    return "unlocked"


unlock: Any = gr.tool(_unlock, name="unlock")


@gr.tool
async def lock(ctx: gr.ToolContext[Any]) -> str:
    """Closes them again."""
    await trio.sleep(1)
    ctx.state.set(OPEN, False)
    return "locked"


WITH_KEYS = (*TOOLS, unlock, lock)


def key_gate(verdict: Any, tool: str = "look", asked: list[Any] | None = None) -> Scripted:
    """Says the verdict about calls of a tool while OPEN is False."""

    def look(ctx: gr.GateContext) -> Any:
        if ctx.tool != tool:
            return None
        if asked is not None:
            asked.append((ctx.call_id, ctx.state[OPEN]))
        return None if ctx.state[OPEN] else verdict

    return gate("key", look)


def what_became(life: Any, call_id: str = "C") -> str:
    """The verdict that counted, as it can be seen from outside."""
    if life.view.termination is not None and life.view.termination.kind == "blocked":
        return "block"
    return {"new suspended": "suspend", "new succeeded": "set_result", "new failed": "deny"}.get(
        life.calls[call_id], "allow"
    )


# --- which verdict counts --------------------------------------------------------------------------------------------


@pytest.mark.rule("P-28")
@pytest.mark.parametrize(("first", "second"), list(product(VERDICTS, repeat=2)))
async def test_the_strongest_verdict_counts_and_the_other_one_is_recorded(play, autojump_clock, first, second):
    life = await play([C], "done", plugins=[gate("first", VERDICTS[first]), gate("second", VERDICTS[second])])
    winner, loser = (second, first) if RANK[second] > RANK[first] else (first, second)
    names = ("second", "first") if winner is second and RANK[second] > RANK[first] else ("first", "second")
    assert what_became(life) == ("allow" if winner == "nothing" else winner)
    overruled = [(payload["plugin"], payload["verdict"], payload["by"]) for payload in life.payloads("gate.overruled")]
    assert overruled == ([(names[1], loser, names[0])] if RANK[loser] else [])


@pytest.mark.rule("P-28")
async def test_of_equal_verdicts_the_one_of_the_first_registered_plugin_counts(play, autojump_clock):
    """Whichever answers first."""

    async def slow(ctx: gr.GateContext) -> gr.SetResult:
        await trio.sleep(3)
        return gr.SetResult("slow")

    life = await play([C], "done", plugins=[scripted("slow", tool_gate=slow), gate("quick", gr.SetResult("quick"))])
    assert life.tool_texts["C"] == "slow"


@pytest.mark.rule("P-34")
@pytest.mark.parametrize("verdict", VERDICTS)
@pytest.mark.parametrize("tool", ["sign", "spend"])
async def test_a_tool_s_own_approval_is_the_gate_that_is_registered_last(play, autojump_clock, verdict, tool):
    """Whether the tool always wants one, or finds out by a predicate."""
    life = await play([call(tool, cents=500, id="C")], "done", plugins=[gate("x", VERDICTS[verdict])])
    became = what_became(life)
    assert became == (verdict if verdict in ("block", "deny") else "suspend")
    if became == "suspend":
        (ticket,) = life.view.tickets
        assert ticket.message == ("may it?" if verdict == "suspend" else "This call needs an approval.")
        assert ticket.reason == "tool_permission"
    overruled = [(payload["plugin"], payload["verdict"], payload["by"]) for payload in life.payloads("gate.overruled")]
    assert overruled == ([("x", "set_result", "(approval)")] if verdict == "set_result" else [])


@pytest.mark.rule("P-33")
async def test_a_predicate_that_wants_no_approval_leaves_it_to_the_plugins(play, autojump_clock):
    life = await play([call("spend", cents=5, id="C")], "done", plugins=[gate("x", gr.SetResult("free"))])
    assert life.tool_texts["C"] == "free"


@pytest.mark.rule("P-32")
async def test_a_result_that_a_gate_sets_may_be_a_failure(play, autojump_clock):
    """A policy says no: the call fails, the model reads why, the run continues."""
    life = await play([C, A], "done", plugins=[gate("x", gr.SetResult("not on a Sunday", code="permission_denied"))])
    assert life.calls["C"] == "new failed"
    assert (life.codes["C"], life.tool_texts["C"]) == ("permission_denied", "not on a Sunday")
    assert life.calls["A"] == "new suspended"


@pytest.mark.rule("P-31", "A-4")
async def test_a_gate_may_raise_its_suspension_and_demand_what_any_ticket_may(play, autojump_clock):
    def ask(ctx: gr.GateContext) -> None:
        raise gr.Suspend(action="look at it", message="may it?", reviewers=("bob",), expires_after=50)

    life = await play([C], do=[approve("C")], plugins=[gate("x", ask)])
    assert life.replies == ["rejected not_allowed"]
    (one,) = life.payloads("approval.requested")
    assert (one["action"], list(one["reviewers"])) == ("look at it", ["bob"])


@pytest.mark.parametrize("verdict", [True, "yes", gr.Block, gr.SetResult(1, code=3), gr.Block(3), gr.Deny(3)])  # type: ignore[arg-type]
async def test_what_is_no_verdict_is_a_failure_of_the_gate(play, autojump_clock, verdict):
    life = await play([C], "done", plugins=[gate("x", lambda ctx: verdict)])
    assert (life.end["code"], life.effects) == ("plugin_error", [])
    assert "plugin 'x' in tool_gate: it returned" in life.end["message"]


# --- asked again: state ----------------------------------------------------------------------------------------------


@pytest.mark.rule("P-36")
@pytest.mark.parametrize("verdict", ["block", "deny", "set_result"])
async def test_an_earlier_call_of_the_step_may_unlock_a_later_one(play, autojump_clock, verdict):
    """What is said behind calls that may yet run is provisional, and asked again after them."""
    asked: list[Any] = []
    plugins = [key_gate(VERDICTS[verdict], asked=asked)]
    life = await play([call("unlock", id="U"), C], "done", plugins=plugins, tools=WITH_KEYS)
    assert asked == [("C", False), ("C", True)]
    assert life.calls["C"] == "new running succeeded"
    assert life.outcome.output == "done"


@pytest.mark.parametrize("verdict", ["block", "deny", "set_result"])
async def test_what_no_earlier_call_has_unlocked_is_what_the_gate_said(play, autojump_clock, verdict):
    plugins = [key_gate(VERDICTS[verdict])]
    life = await play([call("note", id="N"), C], "done", plugins=plugins)
    assert what_became(life) == verdict
    assert life.effects == ["N"]


async def test_a_verdict_with_nothing_before_it_counts_at_once(play, autojump_clock):
    life = await play([C, call("unlock", id="U")], plugins=[key_gate(VERDICTS["block"])], tools=WITH_KEYS)
    assert (life.view.termination.kind, life.calls["U"]) == ("blocked", "new cancelled")
    assert life.seconds("failed") == 0.0


@pytest.mark.rule("S-28")
async def test_what_the_hooks_after_an_earlier_call_wrote_unlocks_as_well(play, autojump_clock):
    async def after_note(ctx: gr.PhaseContext[Any]) -> gr.Mutation:
        await trio.sleep(2)
        return gr.Mutation().set(OPEN, True)

    plugins = [key_gate(VERDICTS["block"]), scripted("opens", after_tool_execute=after_note)]
    life = await play([call("note", id="N"), C], "done", plugins=plugins)
    assert life.calls["C"] == "new running succeeded"


async def test_what_the_hooks_after_a_call_that_did_not_run_wrote_unlocks_a_later_call(play, autojump_clock):
    """The hook still runs when the next gate is asked."""
    plugins = [
        key_gate(VERDICTS["block"]),
        scripted("opens", after_tool_execute=slow(2, gr.Mutation().set(OPEN, True))),
    ]
    life = await play([call("nothing", id="X"), C], "done", plugins=plugins)
    assert life.calls == {"X": "new failed", "C": "new running succeeded"}


@PARALLEL
async def test_what_is_asked_again_sees_the_writes_before_it_while_calls_after_it_still_run(play, autojump_clock):
    asked: list[Any] = []
    step = [call("unlock", id="U"), C, call("note", id="N", seconds=20)]
    life = await play(step, "done", plugins=[key_gate(VERDICTS["block"], asked=asked)], tools=WITH_KEYS)
    assert (asked, life.calls["C"]) == ([("C", False), ("C", True)], "new running succeeded")
    assert life.seconds("tool.started", call_id="C") == 1.0


@gr.tool(concurrency="ordered")
async def unbar(ctx: gr.ToolContext[Any]) -> None:
    """Lets the gates of `key_gate` open; in its turn."""
    await trio.sleep(1)
    ctx.state.set(OPEN, True)


@PARALLEL
@pytest.mark.parametrize("verdict", ["block", "set_result"])
async def test_what_an_earlier_call_wrote_unlocks_also_if_it_is_not_merged_yet(play, autojump_clock, verdict):
    """The gate allows at first; a hook's write makes it look again, while N keeps what U wrote from being merged."""
    barred = gr.StateKey("barred", bool, default=False)
    asked: list[Any] = []

    def look(ctx: gr.GateContext) -> Any:
        if ctx.call_id != "T" or not ctx.state[barred]:
            return None
        asked.append(ctx.state[OPEN])
        return None if ctx.state[OPEN] else VERDICTS[verdict]

    bars = scripted("bars", after_tool_execute=lambda ctx: gr.Mutation().set(barred, True))
    step = [call("unbar", id="U"), call("turn", id="T"), call("note", id="N", seconds=20)]
    life = await play(step, "done", plugins=[gate("x", look), bars], tools=(*TOOLS, unbar))
    assert (asked[:2], life.calls["T"]) == ([False, True], "new running succeeded")
    assert life.outcome.output == "done"


@pytest.mark.rule("P-35")
async def test_a_suspension_makes_its_ticket_at_once_although_calls_before_it_may_unlock_it(play, autojump_clock):
    life = await play(
        [call("unlock", id="U"), C], plugins=[key_gate(VERDICTS["suspend"])], tools=WITH_KEYS, do=[after(0.5, cancel())]
    )
    assert life.seconds("approval.requested") == 0.0


async def test_a_provisional_verdict_survives_a_crash(play, autojump_clock):
    asked: list[Any] = []
    do = [after(5, restart)]
    step = [call("look", id="L1"), call("unlock", id="U"), call("turn", id="T")]
    plugins = [key_gate(VERDICTS["block"], tool="turn", asked=asked)]
    life = await play(step, "done", do=do, plugins=plugins, tools=WITH_KEYS)
    assert (life.calls["T"], life.outcome.output) == ("new running succeeded", "done")
    assert asked[0] == ("T", False)
    assert asked[-1] == ("T", True)


@pytest.mark.rule("P-37")
async def test_after_a_body_that_waits_for_an_answer_a_provisional_result_waits_too(play, autojump_clock):
    """The body continues with the answer, and may unlock it yet."""
    step = [call("note", id="N"), call("ask", id="D"), C]
    life = await play(step, "done", do=[approve("D", "yes")], plugins=[key_gate(gr.SetResult("closed"))])
    assert life.tool_texts["C"] == "closed"
    result = [payload["callId"] for payload in life.payloads("tool.result")]
    assert result.index("C") > result.index("D")


@pytest.mark.rule("P-38")
@pytest.mark.parametrize("mode", ["sequential"])
async def test_an_allowed_call_is_asked_again_if_the_state_changed_before_it_starts(play, autojump_clock):
    asked: list[Any] = []

    def look(ctx: gr.GateContext) -> Any:
        asked.append((ctx.call_id, ctx.state.revision))
        return gr.SetResult("too late") if ctx.call_id == "C" and ctx.state[OPEN] else None

    life = await play([call("unlock", id="U"), C], "done", plugins=[gate("x", look)], tools=WITH_KEYS)
    assert asked == [("U", 0), ("C", 0), ("C", 1)]
    assert (life.tool_texts["C"], life.effects) == ("too late", [])


@pytest.mark.parametrize("mode", ["sequential"])
async def test_a_call_that_is_being_asked_again_is_not_overtaken_whatever_comes_meanwhile(play, autojump_clock):
    async def look(ctx: gr.GateContext) -> None:
        await trio.sleep(5 if ctx.call_id == "C" and ctx.state[OPEN] else 0)

    step = [call("unlock", id="U"), C, call("note", id="N")]
    life = await play(step, "done", plugins=[gate("x", look)], tools=WITH_KEYS, do=[after(3, send("x"))])
    assert (life.effects, life.seconds("tool.started", call_id="C")) == (["C", "N"], 6.0)


@gr.tool(needs_approval=lambda ctx, arguments: bool(ctx.state[OPEN]))
async def pick(ctx: gr.ToolContext[Any]) -> str:
    """Needs an approval while OPEN is True."""
    await ctx.deps.work(ctx)
    return "picked"


@pytest.mark.rule("P-38")
@pytest.mark.parametrize("plugins", [[], [gate("x", None)]], ids=["alone", "beside a plugin"])
@pytest.mark.parametrize("mode", ["sequential"])
async def test_a_predicate_is_asked_again_if_the_state_changed_whether_there_are_plugins_or_not(
    play, autojump_clock, plugins
):
    tools = (*WITH_KEYS, pick)
    step = [call("unlock", id="U"), call("pick", id="P")]
    life = await play(step, "done", do=[approve("P")], tools=tools, plugins=plugins)
    assert life.calls["P"] == "new suspended resuming running succeeded"
    assert life.tickets == {"r.t1": ("tool_permission", "approved")}


@pytest.mark.parametrize("verdict", VERDICTS)
@pytest.mark.parametrize("mode", ["sequential"])
async def test_every_verdict_may_come_the_second_time(play, autojump_clock, verdict):
    def look(ctx: gr.GateContext) -> Any:
        return VERDICTS[verdict] if ctx.call_id == "C" and ctx.state[OPEN] else None

    life = await play([call("unlock", id="U"), C], "done", plugins=[gate("x", look)], tools=WITH_KEYS)
    assert what_became(life) == ("allow" if verdict == "nothing" else verdict)


@PARALLEL
async def test_calls_that_the_cap_holds_back_are_asked_again_together(play, autojump_clock):
    asked: list[Any] = []
    plugin = gate("x", lambda ctx: asked.append((ctx.call_id, ctx.state[OPEN])))
    step = [call("unlock", id="U"), call("look", id="L1"), call("look", id="L2")]
    before = scripted("w", after_tool_execute=lambda ctx: gr.Mutation().set(OPEN, True))
    life = await play(step, "done", plugins=[plugin, before], tools=WITH_KEYS, max_bodies=1)
    assert asked[:3] == [("U", False), ("L1", False), ("L2", False)]
    assert ("L1", True) in asked
    assert ("L2", True) in asked
    assert life.outcome.output == "done"


async def test_a_gate_is_not_asked_again_while_nothing_was_written(play, autojump_clock):
    book = diary("tool_gate")
    await play([C, call("look", id="L")], "done", plugins=[book])
    assert book.lines == ["tool_gate C", "tool_gate L"]


# --- asked again: decisions ------------------------------------------------------------------------------------------


@pytest.mark.rule("P-39")
async def test_on_resume_the_gates_are_asked_again_with_the_decision(play, autojump_clock):
    seen: list[Any] = []

    def look(ctx: gr.GateContext) -> Any:
        seen.append(None if ctx.decision is None else (ctx.decision.action, ctx.decision.decided_by))
        return gr.Suspend(message="may it?") if ctx.decision is None else None

    life = await play([C], "done", do=[approve("C")], plugins=[gate("x", look)])
    assert seen == [None, ("resume", "ada")]
    assert life.calls["C"] == "new suspended resuming running succeeded"


@pytest.mark.rule("P-39")
async def test_a_gate_may_suspend_again_with_a_new_ticket(play, autojump_clock):
    def second(ctx: gr.GateContext) -> Any:
        boss = ctx.decision is not None and ctx.decision.decided_by == "boss"
        return None if boss else gr.Suspend(message="ask the boss" if ctx.decision else "ask anybody")

    do = [approve("C"), restart, decide("C", by="boss")]
    life = await play([C], "done", do=do, plugins=[gate("x", second)])
    assert life.calls["C"] == "new suspended resuming suspended resuming running succeeded"
    assert life.tickets == {"r.t1": ("tool_permission", "approved"), "r.t2": ("tool_permission", "approved")}


@pytest.mark.parametrize(
    ("mode_of_resume", "result", "text", "began"),
    [
        ("replay_tool_call", None, "saw C", [("C", 1, {"at": ""})]),
        ("use_decision_as_tool_result", "by hand", "by hand", []),
        ("pass_decision_to_tool", {"at": "there"}, "saw there", [("C", 1, {"at": "there"})]),
    ],
)
async def test_a_gate_s_ticket_resumes_in_each_of_the_three_ways(
    play, autojump_clock, mode_of_resume, result, text, began
):
    def look(ctx: gr.GateContext) -> Any:
        return gr.Suspend(resume_mode=mode_of_resume) if ctx.decision is None else None

    life = await play([C], "done", do=[restart, approve("C", result)], plugins=[gate("x", look)])
    assert life.tool_texts["C"].endswith(text)
    assert life.scene.outside.started == began


@pytest.mark.parametrize("tool", ["turn", "alone"])
async def test_a_result_that_people_bring_needs_no_turn_for_no_body_runs(play, autojump_clock, tool):
    """The calls run in their order, or alone; the second one is decided first."""
    suspend = gr.Suspend(resume_mode="use_decision_as_tool_result")
    step = [call(tool, id="T1"), call(tool, id="T2")]
    do = [approve("T2", "two"), pause(10), approve("T1", "one")]
    life = await play(step, "done", plugins=[gate("x", lambda ctx: None if ctx.decision else suspend)], do=do)
    at_once = play.mode != "parallel_batch_approval"
    assert life.tool_texts == {"T1": "one", "T2": "two"}
    assert life.seconds("tool.result", call_id="T2") == (0.0 if at_once else 10.0)
    assert life.effects == []


@pytest.mark.rule("A-20")
async def test_edited_arguments_pass_the_gates(play, autojump_clock):
    def large(ctx: gr.GateContext) -> Any:
        return gr.SetResult("too much", code="permission_denied") if ctx.arguments.get("cents", 1) > 9 else None

    life = await play([B], "done", do=[approve("B", edited_arguments={"cents": 50})], plugins=[gate("x", large)])
    assert (life.calls["B"], life.effects) == ("new suspended resuming failed", [])
    assert "too much" in life.tool_texts["B"]


@pytest.mark.parametrize("verdict", ["set_result", "block"])
async def test_what_a_person_approved_a_gate_may_still_refuse(play, autojump_clock, verdict):
    def look(ctx: gr.GateContext) -> Any:
        return None if ctx.decision is None else VERDICTS[verdict]

    life = await play([B], "done", do=[approve("B")], plugins=[gate("x", look)])
    assert life.effects == []
    assert life.calls["B"].startswith("new suspended resuming ")
    assert what_became(life, "B") == "block" if verdict == "block" else life.tool_texts["B"] == "so be it"


async def test_an_approval_of_the_plugin_s_ticket_is_the_tool_s_approval_too(play, autojump_clock):
    """A person has approved exactly this action: one ticket is enough."""

    def look(ctx: gr.GateContext) -> Any:
        return gr.Suspend(message="may it?") if ctx.decision is None else None

    life = await play([B], "done", do=[approve("B")], plugins=[gate("x", look)])
    assert list(life.tickets) == ["r.t1"]
    assert life.effects == ["B"]


async def test_a_suspension_by_a_gate_can_be_denied(play, autojump_clock):
    book = diary()
    life = await play([C], "done", do=[deny("C", "no")], plugins=[book, gate("x", VERDICTS["suspend"])])
    assert (life.tool_texts["C"], life.effects) == ("The reviewer denied this call: no", [])
    assert book.count("after_tool_execute") == 0


async def test_a_gate_that_is_being_asked_is_asked_again_by_the_next_process(play, autojump_clock):
    book = diary("tool_gate", tool_gate=slow(10))
    life = await play([C], "done", do=[after(5, restart)], plugins=[book])
    assert book.lines == ["tool_gate C", "tool_gate C"]
    assert life.effects == ["C"]


# --- block -----------------------------------------------------------------------------------------------------------


def blocking(call_id: str, seconds: float = 0.0) -> Scripted:
    """Blocks one call, on the way back from a person."""

    async def look(ctx: gr.GateContext) -> Any:
        return gr.Block("not here") if ctx.call_id == call_id and ctx.decision is not None else None

    return scripted("guard", tool_gate=look)


@pytest.mark.rule("P-29")
async def test_block_fails_its_call_and_cancels_all_others_and_the_run_fails(play, autojump_clock):
    """Running ones too, new ones, and suspended ones with their tickets; what has ended keeps its result."""
    step = [call("look", seconds=1, id="L"), call("look", seconds=50, id="R"), B, A, call("alone", id="N")]
    book = diary("after_tool_execute", "run_end")
    batch = play.mode == "parallel_batch_approval"  # nothing acts before A is decided as well
    do = [after(5, approve("B")), *([after(0, approve("A"))] if batch else [])]
    life = await play([text("all"), *step], do=do, plugins=[blocking("B"), book])
    assert life.calls == {
        "L": "new running succeeded",
        "R": "new running cancelled",
        "B": "new suspended resuming failed",
        "A": "new suspended resuming cancelled" if batch else "new suspended cancelled",
        "N": "new cancelled",
    }
    other = "approved" if batch else "withdrawn"
    assert life.tickets == {"r.t1": ("tool_permission", "approved"), "r.t2": ("tool_permission", other)}
    assert isinstance(life.outcome, gr.Failed)
    assert (life.outcome.code, life.view.termination.kind) == ("permission_denied", "blocked")
    assert (life.codes["B"], life.tool_texts["B"]) == ("permission_denied", "Blocked: not here")
    assert "not here" in life.end["message"]
    assert list(life.tool_texts) == ["L", "R", "B", "A", "N"]
    assert book.lines == ["after_tool_execute L", "run_end"]
    assert life.seconds("failed") < 10


async def test_a_blocked_call_has_no_hooks_after_it(play, autojump_clock):
    """The run is on its way out; nothing runs beside run_end."""
    book = diary("after_tool_execute", "run_end")
    await play([C], plugins=[gate("x", VERDICTS["block"]), book])
    assert book.lines == ["run_end"]


async def test_beside_run_end_no_hook_begins_that_waited_for_a_slow_disk(tmp_path):
    """The hook after the blocked call was asked for, and the run had continued when its commit was written."""
    book, model = diary("after_tool_execute", "run_end"), ScriptedModel([C])
    agent = gr.Agent("helper", tools=[*TOOLS], model=model, plugins=[gate("x", VERDICTS["block"]), book])
    with trio.fail_after(120):
        async with gr.open_runtime(gr.SQLiteStore(tmp_path / "runs.db"), agents=[agent]) as runtime:
            await (await runtime.start(agent, "hi")).result()
    assert book.lines == ["run_end"]


# --- gates that fail -------------------------------------------------------------------------------------------------


def broken(kind: str) -> Any:
    """A gate that fails in one of the ways in which it can."""

    async def look(ctx: gr.GateContext) -> Any:
        match kind:
            case "raises":
                raise RuntimeError("no \udc80 idea")
            case "hangs":
                await trio.sleep(1000)
            case "groups":
                raise ExceptionGroup("two", [ValueError("one"), KeyError("two")])
            case _:
                return "maybe"
        return None

    return look


FAILURES = ["raises", "hangs", "groups", "answers nonsense"]


@pytest.mark.rule("P-43")
@pytest.mark.parametrize("kind", FAILURES)
async def test_a_gate_that_fails_fails_the_run_and_names_itself(play, autojump_clock, kind):
    life = await play([C], "done", plugins=[gate("x", broken(kind), timeout=3.0)])
    assert (life.end["code"], life.effects) == ("plugin_error", [])
    assert "plugin 'x' in tool_gate" in life.end["message"]
    assert life.calls["C"] == "new cancelled"


@pytest.mark.rule("P-43")
@pytest.mark.parametrize("kind", FAILURES)
async def test_a_gate_whose_failures_are_ignored_asks_a_person(play, autojump_clock, kind):
    life = await play([C], plugins=[gate("x", broken(kind), timeout=3.0, on_error="ignore")])
    assert (life.calls["C"], life.effects) == ("new suspended", [])
    (ticket,) = life.view.tickets
    assert "plugin 'x' in tool_gate" in ticket.message
    assert [payload["reason"] for payload in life.payloads("degraded")] == ["plugin_error"]


async def test_when_a_person_has_looked_the_call_runs(play, autojump_clock):
    plugins = [gate("x", broken("raises"), on_error="ignore")]
    life = await play([C], "done", do=[approve("C")], plugins=plugins)
    assert (life.effects, life.outcome.output) == (["C"], "done")


async def test_what_a_person_approved_covers_the_approved_action_only(play, autojump_clock):
    """The edited call has another fingerprint, but who edits it approves it."""
    plugins = [gate("x", broken("raises"), on_error="ignore")]
    life = await play([C], "done", do=[approve("C", edited_arguments={"at": "there"})], plugins=plugins)
    assert life.effects == ["C"]
    assert "saw there" in life.tool_texts["C"]


async def test_a_failed_gate_does_not_weaken_the_block_of_another(play, autojump_clock):
    plugins = [gate("x", broken("raises"), on_error="ignore"), gate("y", VERDICTS["block"])]
    life = await play([C], plugins=plugins)
    assert what_became(life) == "block"


async def test_the_predicate_of_a_tool_that_raises_asks_a_person_beside_plugins_too(play, autojump_clock):
    def explode(ctx: Any, arguments: Any) -> bool:
        raise RuntimeError("who knows")

    @gr.tool(needs_approval=explode)
    async def risky(ctx: gr.ToolContext[Any]) -> str:
        return "risked"

    life = await play([call("risky", id="C")], plugins=[gate("x", None)], tools=[risky])
    assert life.calls["C"] == "new suspended"
