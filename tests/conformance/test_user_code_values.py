"""What bodies, predicates, hooks and people are given is theirs: changing it changes no record and no other attempt.

A record that could be changed from outside would be another one than what was approved and what its store has.
"""

from typing import Any, cast

import pytest

import greenroom as gr
from greenroom.testing import ScriptedModel, call

from ..support.runs import home
from ..support.scene_plugins import scripted
from ..support.scenes import Act, Scene, approve, decide
from ..support.state_tools import KEYS, LAST

ASKED: dict[str, Any] = {"items": ["a"], "more": {"n": []}}


@gr.tool(replay="safe", on_conflict="retry")
async def spoil(ctx: gr.ToolContext, items: list[Any], more: dict[str, Any]) -> str:
    """Spoils its arguments, and runs again if another call has written."""
    seen = f"{items} {more}"
    items.append("spoilt")
    more["n"].append("spoilt")
    more["x"] = 1
    ctx.state.set(LAST, ctx.call_id)
    return seen


@gr.tool(needs_approval=True)
async def signed(items: list[Any], more: dict[str, Any]) -> str:
    """What a person has seen."""
    return f"{items} {more}"


@gr.tool(replay="safe", on_conflict="retry")
async def answered(ctx: gr.ToolContext) -> str:
    """Spoils what a person has answered."""
    if ctx.decision is None:
        raise gr.Suspend(message="what?")
    ctx.state.set(LAST, ctx.call_id)
    return str(ctx.decision.result.pop("city"))


@gr.tool
async def plain(items: list[Any], more: dict[str, Any]) -> str:
    """Nothing of interest."""
    return "plain"


OPTIONS: dict[str, Any] = {"tools": [spoil, signed, answered], "state": KEYS}


@pytest.mark.parametrize("mode", ["parallel_streaming", "parallel_batch_approval"])
async def test_each_attempt_of_a_body_has_arguments_of_its_own(play, autojump_clock, mode):
    life = await play([call("spoil", id="A", **ASKED), call("spoil", id="B", **ASKED)], "done", **OPTIONS)
    assert life.tool_texts == dict.fromkeys("AB", str(ASKED["items"]) + " " + str(ASKED["more"]))
    assert [payload["retried"] for payload in life.payloads("state.conflict")] == [True]
    assert [request.arguments for request in life.view.messages[1].calls] == [ASKED, ASKED]


@pytest.mark.parametrize("phase", ["after_inference", "tool_gate", "before_tool_execute", "after_tool_execute"])
async def test_a_hook_can_not_change_a_call_but_by_a_mutation(play, autojump_clock, phase):
    def change(ctx: gr.PhaseContext[Any]) -> None:
        for one in filter(None, (*ctx.calls, ctx.call)):
            one.arguments["items"].append(phase)

    plugins = [scripted("changes", **{phase: change})]
    life = await play([call("signed", id="A", **ASKED)], "done", do=[approve("A")], plugins=plugins, **OPTIONS)
    assert life.tool_texts == {"A": f"{ASKED['items']} {ASKED['more']}"}
    assert [request.arguments for request in life.view.messages[1].calls] == [ASKED]


async def test_a_hook_can_not_change_a_call_by_the_answer_that_asks_for_it(play, autojump_clock):
    def change(ctx: gr.PhaseContext[Any]) -> None:
        for one in ctx.messages[-1].calls:
            one.arguments["items"].append("changed")

    plugins = [scripted("changes", after_inference=change)]
    life = await play([call("signed", id="A", **ASKED)], "done", do=[approve("A")], plugins=plugins, **OPTIONS)
    assert life.tool_texts == {"A": f"{ASKED['items']} {ASKED['more']}"}


async def test_a_hook_can_not_change_the_calls_of_earlier_steps(play, autojump_clock):
    def change(ctx: gr.PhaseContext[Any]) -> None:
        for one in (request for message in ctx.messages for request in message.calls):
            one.arguments["items"].append("changed")

    plugins = [scripted("changes", step_start=change)]
    steps = [call("spoil", id="A", **ASKED)], [call("spoil", id="B", **ASKED)]
    life = await play(*steps, "done", plugins=plugins, **OPTIONS)
    assert [request.arguments for message in life.view.messages for request in message.calls] == [ASKED, ASKED]


async def test_a_gate_can_not_change_what_a_person_has_decided(play, autojump_clock):
    def change(ctx: gr.GateContext[Any]) -> None:
        if ctx.decision is not None:
            ctx.decision.result["city"] = "Rome"

    @gr.tool
    async def ask() -> gr.Suspend:
        return gr.Suspend(message="where?", resume_mode="use_decision_as_tool_result")

    plugins = [scripted("changes", tool_gate=change)]
    act = decide("A", result={"city": "Paris"})
    life = await play([call("ask", id="A")], "done", do=[act], plugins=plugins, tools=[ask])
    assert life.tool_texts == {"A": '{"city":"Paris"}'}


def changed_ticket() -> Act:
    async def act(scene: Scene) -> None:
        ticket: Any = await scene.ticket("A")
        ticket.arguments["items"].append("changed")
        ticket.arguments["more"]["x"] = 1
        scene.note(await scene.run.decide(ticket.approve(by="ada")))

    return act


async def test_what_runs_is_what_was_asked_for_whatever_is_done_to_a_ticket_that_was_shown(play, autojump_clock):
    life = await play([call("signed", id="A", **ASKED)], "done", do=[changed_ticket()], **OPTIONS)
    assert (life.replies, life.tool_texts) == (["accepted"], {"A": f"{ASKED['items']} {ASKED['more']}"})


async def test_words_for_a_denial_change_nothing_of_what_was_denied(play, autojump_clock):
    def denial(ticket: gr.Ticket, decision: gr.Decision) -> str:
        items: Any = ticket.arguments["items"]
        return f"not {items.pop()}, but {decision.result.pop('city')}"

    act = decide("A", "cancel", result={"city": "Paris"})
    life = await play([call("signed", id="A", **ASKED)], "done", do=[act], denial=denial, **OPTIONS)
    assert life.tool_texts == {"A": "not a, but Paris"}
    assert [request.arguments for request in life.view.messages[1].calls] == [ASKED]


async def test_a_view_shows_what_is_whatever_is_done_to_an_earlier_one(play, autojump_clock):
    async def change(scene: Scene) -> None:
        await scene.ticket("B")
        for one in (request for message in (await scene.run.view()).messages for request in message.calls):
            one.arguments["items"].append("changed")

    steps = [call("spoil", id="A", **ASKED)], [call("signed", id="B", **ASKED)]
    life = await play(*steps, "done", do=[change, approve("B")], **OPTIONS)
    assert [request.arguments for message in life.view.messages for request in message.calls] == [ASKED, ASKED]


@pytest.mark.parametrize("kind", [dict[str, Any], str])
async def test_an_outcome_is_what_it_is_whatever_is_done_to_an_earlier_one(play, autojump_clock, kind):
    seen: list[Any] = []

    async def change(scene: Scene) -> None:
        for _ in range(2):
            output: Any = (await scene.run.wait()).output
            seen.append(str(output))
            output["items"].append("changed")

    @gr.tool
    async def look() -> dict[str, Any]:
        """Its result is the output, whatever the type of that."""
        return {"items": ["a"]}

    options: dict[str, Any] = {"tools": [look], "output_type": kind, "tool_use": "stop_on_first_tool"}
    await play([call("look", id="A")], do=[change], **options)
    assert seen == ["{'items': ['a']}"] * 2


@pytest.mark.parametrize("mode", ["parallel_batch_approval"])
async def test_each_attempt_of_a_body_has_a_decision_of_its_own(play, autojump_clock, mode):
    calls = [call("answered", id="A"), call("answered", id="B")]
    acts = [decide(name, result={"city": f"Paris {name}"}) for name in "AB"]
    life = await play(calls, [call("answered", id="C")], do=acts, **OPTIONS)
    assert (life.tool_texts["A"], life.tool_texts["B"]) == ("Paris A", "Paris B")


class Careless(ScriptedModel):
    """Takes the arguments out of the calls in its request, as an adapter of a provider may."""

    async def _step(self, request: gr.ModelRequest) -> Any:
        for message in request.messages:
            for one in message.calls:
                cast("dict[str, Any]", one.arguments).clear()
        return await super()._step(request)


async def test_a_model_can_not_change_a_record_by_its_request(shelf, autojump_clock):
    script = [[call("plain", id="A", **ASKED)], [call("plain", id="B", **ASKED)], "done"]
    agent = gr.Agent("helper", tools=[plain], model=Careless(script))
    async with home(shelf, agents=[agent]) as runtime:
        for run_id in ("first", "second"):  # the second begins with the history of the first, read from the store
            run = await runtime.start(agent, "go", run_id=run_id, thread_id="t")
            await run.result()
        view = await run.view()
        assert [request.arguments for message in view.messages for request in message.calls] == [ASKED] * 4
        record = await runtime.reader.record("first", calls="all")
        assert [row.arguments for row in record.calls] == [ASKED, ASKED]
        for run_id in ("first", "second"):
            assert (await runtime.replay(run_id)).difference is None
