"""Rules of nested calls: a body asks before it acts, waits for the decision, and outlives none of its calls."""

from typing import Any

import attrs
import pytest
import trio

import greenroom as gr
from greenroom.testing import ScriptedModel, call

from ..support.scene_plugins import NestedRules
from ..support.scene_tools import FAR, TOOLS, petition, wonder
from ..support.scenes import RUN, Act, Down, Scene, after, approve, cancel, decide, deny, pause, send

pytestmark = pytest.mark.pace(5)
DOWN = Down(FAR)


def asked(call_id: str) -> Act:
    """The run has asked about the call: a process among others takes a run up a moment after its owner has gone."""

    async def act(scene: Scene) -> None:
        async with scene.run.events() as events:
            async for event in events:
                if event.type == "run.approval.requested" and event.payload["callId"] == call_id:
                    return

    return act


def coding(*asks: tuple[str, str], tool: str = "coder", **arguments: Any) -> Any:
    """The call `C` lets a program work, which asks for these tools."""
    return call(tool, asks=[list(one) for one in asks], id="C", **arguments)


BASH, WRITE, READ = ("Bash", "shell"), ("Write", "write"), ("Read", "read")
RULES: dict[str, Any] = {"plugins": [NestedRules()]}


@pytest.mark.rule("L-113", "L-114")
async def test_a_nested_call_waits_for_people_and_the_body_does_the_work(play, autojump_clock):
    life = await play([coding(BASH)], "done", do=[approve("C.1")], **RULES)
    assert life.calls == {"C": "new running succeeded", "C.1": "new suspended resuming running succeeded"}
    assert life.path == "running waiting running applying running completed"
    assert (life.effects, life.tool_texts) == (["C.1"], {"C": "Bash: did 0"})
    (asked,) = life.payloads("approval.requested")
    assert (asked["live"], asked["tool"], asked["callId"]) == (True, "Bash", "C.1")
    assert [payload.get("parentCallId") for payload in life.payloads("tool.call")] == [None, "C"]
    assert life.history[-2:] == ["C: Bash: did 0", "assistant: done"]


@pytest.mark.rule("L-115")
async def test_the_work_begins_after_its_start_is_durable(play, autojump_clock):
    """A process that ends before has done nothing, and one that ends afterwards has left the start in the log."""
    life = await play([coding(READ)], do=[after(1.5, DOWN)], **RULES)
    started = [payload["callId"] for payload in life.payloads("tool.started")]
    assert [name for name, _, _ in life.scene.outside.started] == ["C", "C.1"]
    assert started == ["C", "C.1"]


@pytest.mark.rule("L-114")
async def test_a_denial_is_the_answer_and_the_program_goes_on(play, autojump_clock):
    life = await play([coding(BASH, READ, ("Env", "secret"))], "done", do=[deny("C.1", "not now")], **RULES)
    assert life.effects == ["C.2"]
    texts = life.tool_texts["C"].split("; ")
    assert "Bash: The reviewer denied this call: not now" in texts
    assert "Env: that is a secret" in texts
    assert any(text.startswith("Read: did") for text in texts)


@pytest.mark.rule("L-116")
async def test_a_decision_edits_the_arguments(play, autojump_clock):
    acts = [decide("C.1", edited_arguments={"n": 7, "any": "object"})]
    life = await play([coding(BASH)], "done", do=acts, **RULES)
    assert life.tool_texts == {"C": "Bash: did 7"}


@pytest.mark.rule("L-116")
async def test_a_program_that_takes_no_edits_gets_none(play, autojump_clock):
    acts = [decide("C.1", edited_arguments={"n": 7}), approve("C.1")]
    life = await play([coding(BASH, editable=False)], "done", do=acts, **RULES)
    assert life.replies == ["rejected invalid_arguments", "accepted"]
    assert life.tool_texts == {"C": "Bash: did 0"}


async def test_many_questions_are_open_at_once_and_answered_in_any_order(play, autojump_clock):
    acts = [pause(1), approve("C.3"), decide("C.1", "cancel"), approve("C.2")]
    life = await play([coding(BASH, WRITE, BASH)], "done", do=acts, **RULES)
    assert {name: path.split()[-1] for name, path in life.calls.items()} == {
        "C": "succeeded", "C.1": "cancelled", "C.2": "succeeded", "C.3": "succeeded"
    }  # fmt: skip
    assert sorted(life.effects) == ["C.2", "C.3"]


@pytest.mark.rule("L-117")
async def test_new_input_supersedes_no_nested_call(play, autojump_clock):
    life = await play([coding(BASH)], "done", do=[send("and this"), approve("C.1")], on_new_input="supersede", **RULES)
    assert life.effects == ["C.1"]


@pytest.mark.rule("L-118")
async def test_a_cancel_withdraws_the_question_and_ends_the_nested_call_first(play, autojump_clock):
    life = await play([coding(BASH, READ)], do=[cancel(reason="enough")], **RULES)
    ended = [payload["callId"] for payload in life.payloads("tool.result")]
    assert ended[-1] == "C"
    assert {ending for _, ending in life.tickets.values()} == {"withdrawn"}
    assert life.scene.outside.running == []


@pytest.mark.rule("L-118")
async def test_a_cancel_names_the_work_that_was_under_way(play, autojump_clock):
    life = await play([coding(WRITE)], do=[approve("C.1"), after(7, cancel())], **RULES)
    assert life.outcome.outcome_unknown == ("C.1",)
    assert (life.effects, life.codes["C.1"]) == (["C.1"], "outcome_unknown")


@pytest.mark.rule("L-119")
async def test_after_a_crash_the_question_is_withdrawn_before_people_are_asked_about_the_parent(play, autojump_clock):
    acts = [DOWN, asked("C"), decide("r.t1"), approve("C", "as we saw it")]
    life = await play([coding(BASH)], "done", do=acts, **RULES)
    assert life.tickets == {"r.t1": ("tool_permission", "withdrawn"), "r.t2": ("outcome_unknown", "approved")}
    assert life.replies == ["rejected already_decided", "accepted"]
    assert (life.codes["C.1"], life.effects) == ("owner_lost", [])
    withdrawn = life.payloads("approval.resolved")[0]
    assert withdrawn["reason"].startswith("owner_lost")
    assert life.tool_texts == {"C": "as we saw it"}


@pytest.mark.rule("L-119")
async def test_work_that_a_crash_cuts_off_has_an_unknown_outcome(play, autojump_clock):
    life = await play([coding(WRITE)], do=[approve("C.1"), after(7, DOWN)], **RULES)
    assert (life.effects, life.codes) == (["C.1"], {"C.1": "outcome_unknown"})
    assert [ticket.reason for ticket in life.outcome.tickets] == ["outcome_unknown"]


@pytest.mark.rule("L-119")
async def test_a_body_that_may_be_repeated_asks_again(play, autojump_clock):
    life = await play([coding(BASH, tool="cheap")], "done", do=[DOWN, asked("C.2"), approve("C.2")], **RULES)
    assert life.calls["C.2"].split()[-1] == "succeeded"
    assert life.effects == ["C.2"]


@pytest.mark.rule("L-120")
async def test_a_run_rests_though_a_call_that_was_approved_stands_behind_a_body_that_waits(play, autojump_clock):
    """In sequence, the second call waits for the first one, and the first one for people."""

    async def rests(scene: Scene) -> None:
        assert isinstance(await scene.run.wait(), gr.Waiting)

    acts = [approve("S"), rests, approve("C.2")]
    life = await play([coding(BASH), call("sign", id="S")], "done", do=acts, **RULES)
    assert (life.calls["S"].split()[-1], life.outcome.output) == ("succeeded", "done")


@pytest.mark.rule("L-120")
async def test_the_run_keeps_its_slot_while_a_body_waits(play, autojump_clock):
    playing = attrs.evolve(play, runtime={**play.runtime, "max_running": 1})

    async def second(scene: Scene) -> None:
        other = await scene.runtime.start(scene.agent, "another", run_id="q")
        await trio.sleep(1)
        assert (await other.view()).status == "created"
        await other.cancel()
        await scene.runtime.join()

    life = await playing([coding(BASH)], "done", do=[second, approve("C.1")], **RULES)
    assert life.effects == ["C.1"]


@pytest.mark.rule("L-121")
async def test_nested_calls_count_in_the_budget_and_in_no_step(play, autojump_clock):
    budget: dict[str, Any] = {"plugins": [gr.Budget(tool_calls=1)]}
    life = await play([coding(READ)], "done", do=[], **budget)
    assert life.end["code"] == "budget_exhausted"
    assert life.effects == []


@pytest.mark.rule("L-122")
async def test_work_that_was_only_seen_is_reported_and_not_stopped(play, autojump_clock):
    life = await play([coding(BASH, BASH, WRITE, seen=True)], "done", **RULES)
    assert sorted(life.effects) == ["C.1", "C.2", "C.3"]
    assert [payload["reason"] for payload in life.payloads("degraded")] == ["not_asked", "not_asked"]
    assert life.tickets == {}


# --- questions -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("A-31", "A-32", "A-35")
async def test_a_body_asks_people_and_goes_on_with_the_decision(play, autojump_clock):
    life = await play([call("inquire", id="Q")], "done", do=[pause(60), approve("Q.1", "red")])
    assert life.tool_texts == {"Q": "resume red by ada"}
    assert life.calls == {"Q": "new running succeeded", "Q.1": "new suspended resuming succeeded"}
    assert life.path == "running waiting running completed"
    assert life.scene.outside.attempts("Q") == 1


@pytest.mark.rule("A-32")
async def test_a_denial_is_a_decision_like_another(play, autojump_clock):
    life = await play([call("inquire", id="Q")], "done", do=[deny("Q.1")])
    assert life.tool_texts == {"Q": "cancel None by ada"}


@pytest.mark.rule("A-32")
@pytest.mark.parametrize(("default", "text"), [(None, "cancel None by clock"), ("blue", "resume blue by clock")])
async def test_a_question_that_expires_is_decided_by_the_clock(play, autojump_clock, default, text):
    question = call("inquire", expires=60, id="Q", **({} if default is None else {"default": default}))
    life = await play([question], "done", do=[pause(70)])
    assert life.tool_texts == {"Q": text}


@pytest.mark.rule("A-33")
async def test_a_body_that_stops_waiting_withdraws_its_question(play, autojump_clock):
    life = await play([call("inquire", patience=20, id="Q")], "done", do=[after(25, decide("r.t1"))])
    assert life.tool_texts == {"Q": "nobody"}
    assert life.tickets == {"r.t1": ("user_input", "withdrawn")}
    assert life.replies == ["rejected already_decided"]


@pytest.mark.rule("A-34")
async def test_a_background_task_asks_nobody(play, autojump_clock):
    life = await play([call("petition", id="E")], "I see", "done", tools=[*TOOLS, petition])
    (finished,) = life.payloads("task.finished")
    assert "A background task cannot" in str(finished["result"])
    assert life.tickets == {}


@pytest.mark.rule("A-31")
async def test_a_sync_tool_asks_from_its_thread():
    model = ScriptedModel([call("wonder", id="W"), "done"])
    async with gr.open_runtime(agents=[gr.Agent("a", tools=[wonder], model=model)]) as runtime:
        run = await runtime.start("a", "hi", run_id=RUN)
        with trio.fail_after(10):
            waiting = await run.wait()
            assert waiting.tickets[0].live
            await run.decide(waiting.tickets[0].approve("red", by="ada"))
            await run.result()
        assert (await run.view()).messages[2].content == "resume red by ada"


async def test_a_live_ticket_is_decided_at_the_mirror_of_a_parent_run(play, autojump_clock):
    inner = play.agent([coding(BASH)], "inside done", key="inner", **RULES)
    tool = inner.as_tool(name="inner", description="Works inside.")

    async def look(scene: Scene) -> None:
        (ticket,) = (await scene.run.wait()).tickets
        assert (ticket.reason, ticket.live, ticket.tool) == ("child_approval", True, "Bash")

    life = await play([call("inner", input="go", id="P")], "done", do=[look, decide("r.t1")], tools=[tool])
    assert life.replies == ["accepted"]
    assert life.tool_texts == {"P": "inside done"}
