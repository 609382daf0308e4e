"""Rules of handoffs: the call that hands a run over, its turn, its callback, and what is whose afterwards."""

import threading
from typing import Any

import attrs
import pytest
import trio

import greenroom as gr
from greenroom.testing import ScriptedModel, call, delay, text

from ..support.handoff_scenes import Callback, H, agents_of, handed, other, read
from ..support.scene_plugins import diary, scripted
from ..support.scene_tools import TOOLS
from ..support.scenes import after, approve, cancel, deny, restart, send

SEQUENTIAL = pytest.mark.parametrize("mode", ["sequential"])
LOOK, NOTE, PAY = call("look", id="L"), call("note", id="N"), call("pay", id="P")


@pytest.mark.rule("HA-2", "HA-10", "HA-12", "LO-28")
async def test_the_next_step_is_the_other_agents(play, autojump_clock):
    desk = other(LOOK, "done", instructions="You know.")
    life = await play([text("I hand over."), H], instructions="You ask.", handoffs=[desk])
    assert life.outcome.output == "done"
    assert handed(life) == [("helper", "other", "H", 1)]
    assert life.payloads("tool.call")[0]["effect"] == "handoff"
    result = life.payloads("tool.result")[0]
    assert (result["status"], result["result"]) == ("succeeded", {"agent": "other"})
    assert life.calls["H"] == "new running succeeded"
    assert agents_of(life) == [(1, None), (2, "other"), (3, "other")]
    assert [payload.get("agent") for payload in life.payloads("inference.started")] == [None, "other", "other"]
    assert read(desk, 0) == ["system: You know.", "user: hi", "assistant: I hand over. (H)", 'H: {"agent":"other"}']
    assert (life.view.agent, life.view.active_agent) == ("helper", "other")
    assert {event.agent_id for event in life.events} == {"helper"}
    order = life.types.index("handoff")
    assert life.types[order - 1 : order + 2] == ["tool.result", "handoff", "step.finished"]
    commit = next(commit for commit in life.log if any(event.type == "run.handoff" for event in commit.events))
    assert {event.type for event in commit.events} >= {"run.tool.result", "run.step.finished", "run.step.started"}


@pytest.mark.rule("HA-4", "HA-10")
async def test_a_handoff_starts_when_all_other_calls_have_settled(play, autojump_clock):
    desk = other("done")
    life = await play([H, LOOK, NOTE], handoffs=[desk])
    started = [payload["callId"] for payload in life.payloads("tool.started")]
    assert (started[-1], sorted(started)) == ("H", ["H", "L", "N"])
    finished = [payload["callId"] for payload in life.payloads("tool.result")]
    assert finished[-1] == "H"
    assert read(desk)[1:] == ["assistant: (H, L, N)", 'H: {"agent":"other"}', "L: saw L", "N: noted N"]


@pytest.mark.rule("HA-4")
async def test_a_handoff_waits_for_a_call_that_people_are_asked_about(play, autojump_clock):
    desk = other("done")
    life = await play([H, PAY], handoffs=[desk], do=[approve("P")])
    assert [payload["callId"] for payload in life.payloads("tool.result")] == ["P", "H"]
    assert life.outcome.output == "done"


@gr.tool(concurrency="exclusive", needs_approval=True)
async def vote(ctx: gr.ToolContext[Any]) -> str:
    """Runs beside nothing else, and needs an approval."""
    await ctx.deps.work(ctx)
    return "voted"


@pytest.mark.rule("HA-4")
async def test_an_exclusive_call_behind_a_handoff_does_not_wait_for_it(play, autojump_clock):
    desk = other("done")
    life = await play([H, call("vote", id="V")], tools=[vote], handoffs=[desk], do=[approve("V")])
    assert [payload["callId"] for payload in life.payloads("tool.result")] == ["V", "H"]
    assert life.outcome.output == "done"


@pytest.mark.rule("HA-5")
async def test_the_first_of_several_handoffs_is_carried_out(play, autojump_clock):
    first, second = other("first"), other("second", key="second")
    life = await play([call("transfer_to_second", id="S"), H, LOOK], handoffs=[first, second])
    assert handed(life) == [("helper", "second", "S", 1)]
    assert life.codes == {"L": None, "S": None, "H": "handoff_ignored"}
    assert life.calls["H"] == "new failed"
    assert "ignored" in life.tool_texts["H"]
    assert life.outcome.output == "second"


@pytest.mark.rule("HA-5", "HA-6")
async def test_a_handoff_that_waits_for_an_approval_is_the_first_until_it_is_refused(play, autojump_clock):
    first, second = other("first"), other("second", key="second")
    asked = gr.handoff(second, needs_approval=True)
    script = [call("transfer_to_second", id="S"), H]
    life = await play(script, handoffs=[first, asked], do=[approve("S")])
    assert (handed(life)[0][1], life.codes["H"]) == ("second", "handoff_ignored")
    assert life.calls["S"] == "new suspended resuming running succeeded"


@pytest.mark.rule("HA-5", "HA-6")
async def test_a_denied_handoff_makes_room_for_the_next_one(play, autojump_clock):
    first, second = other("first"), other("second", key="second")
    asked = gr.handoff(second, needs_approval=True)
    life = await play([call("transfer_to_second", id="S"), H], handoffs=[first, asked], do=[deny("S", "no")])
    assert (handed(life)[0][1], life.codes["S"]) == ("other", "approval_rejected")
    assert life.outcome.output == "first"


@pytest.mark.rule("HA-5")
async def test_a_handoff_that_waits_behind_the_first_is_withdrawn(play, autojump_clock):
    first, second = other("first"), other("second", key="second")
    asked = gr.handoff(second, needs_approval=True)
    life = await play([H, call("transfer_to_second", id="S")], handoffs=[first, asked])
    assert (life.calls["S"], life.codes["S"]) == ("new suspended cancelled", "handoff_ignored")
    assert life.tickets == {"r.t1": ("tool_permission", "withdrawn")}
    assert life.outcome.output == "first"


REFUSALS = {
    "denied by a gate": ({"plugins": [scripted("no", tool_gate=lambda _: gr.Deny("no"))]}, H, "permission_denied"),
    "a gate supplies the result": (
        {"plugins": [scripted("set", tool_gate=lambda _: gr.SetResult({"agent": "other"}))]},
        H,
        None,
    ),
    "arguments that do not fit": ({}, call("transfer_to_other", id="H", order=7), "invalid_arguments"),
}


@pytest.mark.rule("HA-2", "HA-6", "HA-7")
@pytest.mark.parametrize("name", REFUSALS)
async def test_a_refused_handoff_hands_nothing_over(play, autojump_clock, name):
    options, step, code = REFUSALS[name]
    life = await play(step, "mine", handoffs=[other("done")], **options)
    assert (handed(life), life.codes["H"], life.outcome.output) == ([], code, "mine")
    assert agents_of(life) == [(1, None), (2, None)]
    assert life.view.active_agent == "helper"


@pytest.mark.rule("HA-6")
async def test_a_decision_that_supplies_the_result_hands_nothing_over(play, autojump_clock):
    life = await play(
        H, "mine", handoffs=[gr.handoff(other("done"), needs_approval=True)], do=[approve("H", "no need")]
    )
    assert handed(life) == [] or life.tool_texts["H"] == '{"agent":"other"}'


@pytest.mark.rule("HA-2")
async def test_an_approval_lets_a_handoff_pass(play, autojump_clock):
    desk = other("done")
    do = [restart, approve("H"), after(0, restart)]
    life = await play(H, handoffs=[gr.handoff(desk, needs_approval=True)], do=do)
    assert life.path == "running waiting running completed"
    assert (handed(life)[0][1], life.outcome.output) == ("other", "done")


# --- is_enabled ------------------------------------------------------------------------------------------------------


@pytest.mark.rule("HA-3")
async def test_a_disabled_handoff_is_not_offered(play, autojump_clock):
    handoff = gr.handoff(other("done"), is_enabled=lambda ctx: ctx.step > 1)
    life = await play(LOOK, H, handoffs=[handoff])
    offered = [any(tool.name == "transfer_to_other" for tool in request.tools) for request in life.requests]
    assert offered == [False, True]
    assert life.outcome.output == "done"


@pytest.mark.rule("HA-3")
async def test_a_handoff_that_was_disabled_meanwhile_fails(play, autojump_clock):
    asked: list[int] = []
    handoff = gr.handoff(other("done"), is_enabled=lambda ctx: not asked.append(1) and len(asked) < 2)
    life = await play(H, "mine", handoffs=[handoff])
    assert (life.codes["H"], handed(life), life.outcome.output) == ("tool_disabled", [], "mine")


# --- callback and input ----------------------------------------------------------------------------------------------


@attrs.frozen
class Order:
    """What the model gives with a handoff."""

    number: int


WORD = gr.StateKey("word", str, default="")


@pytest.mark.rule("HA-7")
async def test_a_callback_is_called_before_the_run_is_handed_over(play, autojump_clock):
    async def write(ctx: Any) -> str:
        ctx.state.set(WORD, "written")
        return "ignored"

    life = await play(H, handoffs=[gr.handoff(other("done"), on_handoff=write)])
    assert life.tool_texts["H"] == '{"agent":"other"}'
    assert life.view.state == {"word": "written"}
    assert life.outcome.output == "done"


@pytest.mark.rule("HA-7")
async def test_a_sync_callback_runs_in_a_worker_thread():
    threads: list[str] = []
    handoff = gr.handoff(
        other("done", tools=[]), on_handoff=lambda ctx: threads.append(threading.current_thread().name)
    )
    outcome = await gr.run(gr.Agent("helper", handoffs=[handoff], model=ScriptedModel([H])), "hi")
    assert isinstance(outcome, gr.Completed)
    assert (outcome.output, len(threads)) == ("done", 1)
    assert threads != [threading.current_thread().name]


@pytest.mark.rule("HA-7")
async def test_the_input_of_a_handoff_is_validated_like_arguments(play, autojump_clock):
    callback, desk = Callback(), other("done")
    handoff = gr.handoff(desk, on_handoff=callback.typed, input_type=Order)
    bad, good = call("transfer_to_other", id="bad", number="x"), call("transfer_to_other", id="good", number=7)
    life = await play(bad, good, handoffs=[handoff])
    assert (life.codes["bad"], life.codes["good"]) == ("invalid_arguments", None)
    assert callback.given == [Order(7)]
    assert life.requests[0].tools[-1].schema["properties"] == {"number": {"type": "integer"}}


@pytest.mark.rule("HA-8")
async def test_a_callback_that_raises_hands_nothing_over(play, autojump_clock):
    callback = Callback(error=gr.ToolError("no luck"))
    handoff = gr.handoff(other("done"), on_handoff=callback.plain)
    life = await play(H, "mine", handoffs=[handoff])
    assert (life.codes["H"], life.tool_texts["H"]) == ("tool_error", "no luck")
    assert (handed(life), life.outcome.output, callback.begun) == ([], "mine", 1)


@pytest.mark.rule("HA-2", "HA-8")
@SEQUENTIAL
async def test_a_callback_that_raises_may_end_the_run(play, autojump_clock):
    callback = Callback(error=RuntimeError("no luck"))
    handoff = gr.handoff(other("done"), on_handoff=callback.plain, on_error="raise")
    life = await play(H, handoffs=[handoff])
    assert (life.outcome.code, "transfer_to_other" in life.outcome.message) == ("tool_error", True)


@pytest.mark.rule("HA-9")
async def test_a_callback_is_not_called_again_after_a_crash(play, autojump_clock):
    callback = Callback(seconds=10.0)
    handoff = gr.handoff(other("done"), on_handoff=callback.plain)
    life = await play(H, "mine", handoffs=[handoff], do=[after(7, restart), deny("H")])
    assert life.tickets == {"r.t1": ("outcome_unknown", "denied")}
    assert (callback.begun, callback.effects, handed(life), life.outcome.output) == (1, 1, [], "mine")


@pytest.mark.rule("HA-9")
async def test_people_may_let_a_callback_run_again(play, autojump_clock):
    callback = Callback(seconds=10.0)
    handoff = gr.handoff(other("done"), on_handoff=callback.plain)
    life = await play(H, handoffs=[handoff], do=[after(3, restart), approve("H")])
    assert (callback.begun, callback.effects, len(handed(life)), life.outcome.output) == (2, 1, 1, "done")


@pytest.mark.rule("HA-10")
async def test_a_cancel_in_a_callback_hands_nothing_over(play, autojump_clock):
    callback = Callback(seconds=10.0)
    handoff = gr.handoff(other("done"), on_handoff=callback.plain)
    life = await play(H, handoffs=[handoff], do=[after(3, cancel())])
    assert (life.view.stage, handed(life), callback.effects) == ("cancelled", [], 0)
    assert life.view.active_agent == "helper"


# --- whose is what ---------------------------------------------------------------------------------------------------


@pytest.mark.rule("HA-11")
async def test_the_hooks_of_the_run_are_the_first_agents_and_all_others_the_active_agents(play, autojump_clock):
    mine, theirs = diary(name="mine"), diary(name="theirs")
    life = await play(H, handoffs=[other(LOOK, "done", plugins=[theirs])], plugins=[mine])
    assert life.outcome.output == "done"
    assert [line for line in mine.lines if line.startswith("run_")] == ["run_start", "run_end"]
    assert mine.count("step_end") == 1
    assert not any(line.startswith("run_") for line in theirs.lines)
    assert theirs.count("step_end") == 2
    assert theirs.count("tool_gate L") == 1
    assert "tool_gate H" in mine.lines


@pytest.mark.rule("HA-10", "HA-11")
async def test_stop_conditions_are_the_first_agents(play, autojump_clock):
    desk = other(LOOK, LOOK, "done", stop=[gr.stop.MaxRounds(1)])
    life = await play(H, handoffs=[desk], stop=[gr.stop.MaxRounds(3)])
    assert (life.outcome.code, life.end["steps"]) == ("max_rounds", 3)


@pytest.mark.rule("HA-11")
@SEQUENTIAL
async def test_a_budget_is_the_first_agents(play, autojump_clock):
    desk = other(LOOK, "done", plugins=[gr.Budget(requests=1)])
    life = await play(H, handoffs=[desk], plugins=[gr.Budget(requests=2)])
    assert (life.outcome.code, life.view.usage.requests) == ("budget_exhausted", 2)


@pytest.mark.rule("HA-11")
async def test_input_guardrails_are_the_first_agents_and_not_asked_for_a_handoff(play, autojump_clock):
    asked: list[tuple[str, str]] = []

    def guard(name: str) -> Any:
        return gr.input_guardrail(name=name)(lambda ctx, given: asked.append((name, given)))

    desk = other([delay(5), LOOK], "done", input_guardrails=[guard("theirs")])
    life = await play(H, handoffs=[desk], input_guardrails=[guard("mine")], do=[after(3, send("and this"))])
    assert (life.outcome.output, asked) == ("done", [("mine", "hi"), ("mine", "and this")])


@pytest.mark.rule("HA-11")
async def test_output_guardrails_and_the_output_type_are_the_active_agents(play, autojump_clock):
    judged: list[Any] = []
    theirs = gr.output_guardrail(name="theirs")(lambda ctx, output: judged.append(output))
    mine = gr.output_guardrail(name="mine")(lambda ctx, output: gr.Trip("no"))
    desk = other("many", "7", output_type=int, output_guardrails=[theirs])
    life = await play([text("I hand over."), H], handoffs=[desk], output_guardrails=[mine])
    assert (life.outcome.output, judged) == (7, [7])


@pytest.mark.rule("HA-11")
async def test_tool_choice_counts_for_each_agent_and_a_handoff_is_no_use(play, autojump_clock):
    desk = other(LOOK, call("transfer_to_helper", id="back"), tool_choice="required", handoffs=["helper"])
    life = await play(H, call("note", id="N"), "done", handoffs=[desk], tool_choice="required")
    assert [request.tool_choice for request in life.requests] == ["required", "required", "auto"]
    assert [request.tool_choice for request in desk.model.requests] == ["required", "auto"]
    assert agents_of(life) == [(1, None), (2, "other"), (3, "other"), (4, None), (5, None)]
    assert handed(life) == [("helper", "other", "H", 1), ("other", "helper", "back", 3)]
    assert life.view.active_agent == "helper"


@pytest.mark.rule("HA-11")
async def test_a_handoff_wins_over_an_output_of_tools(play, autojump_clock):
    life = await play([LOOK, H], handoffs=[other("done")], tool_use="stop_on_first_tool")
    assert life.outcome.output == "done"


@pytest.mark.rule("HA-11")
async def test_deps_stay(play, autojump_clock):
    life = await play(H, handoffs=[other(NOTE, "done")])
    assert life.effects == ["N"]


@pytest.mark.rule("HA-12")
@SEQUENTIAL
async def test_a_stop_after_the_handoff_leaves_the_thread_with_the_other_agent(play, autojump_clock):
    life = await play([text("Soon."), H], handoffs=[other("done")], stop=[gr.stop.MaxRounds(1)])
    assert (life.outcome.code, life.outcome.output, life.view.active_agent) == ("max_rounds", "Soon.", "helper")
    assert len(handed(life)) == 1


# --- tasks, decisions, children --------------------------------------------------------------------------------------


@gr.tool(background=True, replay="safe")
async def crawl(ctx: gr.ToolContext[Any], seconds: float = 20.0) -> str:
    """A task."""
    await trio.sleep(seconds)
    return "crawled"


@pytest.mark.rule("HA-4", "HA-23")
@pytest.mark.parametrize("when", [None, 5.0])
async def test_a_task_keeps_the_tools_of_its_agent(play, autojump_clock, when):
    do = [] if when is None else [after(when, restart)]
    life = await play([call("crawl", id="C"), H], handoffs=[other([delay(8), "soon"], "done")], tools=[crawl], do=do)
    (finished,) = life.payloads("task.finished")
    assert (finished["status"], finished["result"]) == ("succeeded", "crawled")
    assert life.outcome.output == "done"


@pytest.mark.rule("HA-24")
async def test_edited_arguments_are_judged_by_the_tools_of_the_active_agent(play, autojump_clock):
    life = await play(
        H,
        tools=[tool for tool in TOOLS if tool.name != "pay"],
        handoffs=[other(PAY, "done")],
        do=[approve("P", edited_arguments={"cents": "x"}), approve("P", edited_arguments={"cents": 3})],
    )
    assert [reply.split()[0] for reply in life.replies] == ["rejected", "accepted"]
    assert life.tool_texts["P"].endswith("paid 3")


@pytest.mark.rule("HA-25")
async def test_a_child_run_may_be_handed_over(play, autojump_clock):
    expert = other(call("transfer_to_deep", id="D"), key="expert", handoffs=[other("deep down", key="deep")])
    life = await play(call("expert", input="do it", id="K"), "done", tools=[expert.as_tool()])
    assert life.tool_texts["K"] == "deep down"


# --- restarts --------------------------------------------------------------------------------------------------------


@pytest.mark.rule("HA-20", "HA-22")
@pytest.mark.parametrize("seconds", [1.0, 4.0, 12.0])
async def test_a_restart_continues_with_the_active_agent(play, autojump_clock, seconds):
    desk = other([delay(3), LOOK], [delay(3), PAY], "done")
    life = await play([delay(2), H], handoffs=[desk], do=[after(seconds, restart), approve("P")])
    assert (life.outcome.output, life.view.active_agent, len(handed(life))) == ("done", "other", 1)
    assert life.effects == ["L", "P"] or life.effects == ["L", "L", "P"]


@pytest.mark.rule("HA-20")
@SEQUENTIAL
async def test_a_release_without_the_active_agent_leaves_the_run_as_it_is(play, watched, autojump_clock):
    life = await play(H, handoffs=[other(PAY, "done")])
    without = play.agent(H, handoffs=[other(key="another")])
    async with gr.open_runtime(watched.open(), agents=[without], deps=life.scene.outside) as runtime:
        run = await runtime.get(life.scene.run.id)
        await run.decide((await run.view()).tickets[0].deny())
        with pytest.raises(gr.RunDegradedError) as raised:
            await run.wait()
    assert raised.value.reason == "agent_unknown"
