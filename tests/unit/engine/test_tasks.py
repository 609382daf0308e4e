"""Background tasks, as scenarios: how they begin, what they come to, who waits for them, what crashes cost."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from greenroom.actors.contract import stop
from greenroom.actors.contract.decisions import Suspend
from greenroom.actors.contract.excerpt import Large
from greenroom.actors.contract.lifecycle import Stage
from greenroom.actors.contract.phases import Phase, RunPosition
from greenroom.actors.contract.spec import MODES, AgentSpec, ToolSpec
from greenroom.actors.contract.tasks import MAX_SPAWNS
from greenroom.actors.engine import effects as fx
from greenroom.actors.engine import inputs as inp
from greenroom.actors.engine.machine import step
from greenroom.actors.engine.step_calls import StepCalls

from ...support.growth import lines
from .world import World, call


def even(arguments: Any) -> str | None:
    return None if arguments.get("n", 0) % 2 == 0 else "$.n: not even"


def agent(**more: Any) -> AgentSpec:
    tools = (
        ToolSpec(name="crawl", background=True, output=False),
        ToolSpec(name="fetch", background=True, output=False, replay_safe=True),
        ToolSpec(name="mail", background=True, output=False, gate="always"),
        ToolSpec(name="boss"),
        ToolSpec(name="safe_boss", replay_safe=True),
        ToolSpec(name="even", check=even),
        ToolSpec(name="pay", gate="always"),
        ToolSpec(name="ordered", concurrency="ordered"),
        ToolSpec(name="look", replay_safe=True),
    )
    return AgentSpec(key="a", tools={tool.name: tool for tool in tools}, **more)


def crawling(*, then: str | None = "done", **more: Any) -> World:
    """A run with a task, whose model then has nothing more to say."""
    w = World(agent(**more))
    w.says(calls=[call("A", "crawl", url="x")])
    if then is not None:
        w.says(then)
    return w


def task_notes(w: World) -> list[str]:
    """What the model read about tasks."""
    return [m.content for m in w.store.messages if m.kind == "task_finished"]


@pytest.mark.no_cover
def test_the_end_of_a_task_costs_the_same_beside_few_tasks_and_beside_many() -> None:
    def cost(many: int) -> int:
        w = World(agent(max_tasks=many))
        w.says(calls=[call(f"c{number}", "fetch") for number in range(many)])
        ended = inp.CallReturned(call_id="c0.task1", attempt=1, result="ok", shown="ok")
        with lines() as found:
            step(w.spec, w.state, ended, w.now)
        return found.all

    assert cost(100) == cost(10)


# --- how they begin --------------------------------------------------------------------------------------------------


def test_a_background_call_ends_immediately_and_its_body_continues() -> None:
    w = crawling(then=None)
    assert w.statuses() == {"A": "succeeded"}
    assert w.tool_texts() == {"A": '{"task":"A.task1","status":"running"}'}
    assert (w.row.step, w.row.position) == (2, RunPosition.INFERENCE)
    task = w.task("A.task1")
    assert (task.call_id, task.tool, task.arguments, task.attempt) == ("A", "crawl", {"url": "x"}, 1)


@pytest.mark.parametrize("mode", list(MODES))
def test_calls_after_a_background_call_do_not_wait_for_its_task(mode: Any) -> None:
    w = World(agent(), execution=mode)
    w.says(calls=[call("A", "crawl"), call("B", "fetch"), call("C", "look"), call("D", "crawl")])
    w.returns("C")
    assert w.row.step == 2
    assert [task.task_id for task in w.row.tasks] == ["A.task1", "B.task1", "D.task1"]


def test_a_body_that_must_not_be_repeated_begins_when_its_start_is_stored() -> None:
    w = World(agent(), lazy=True)
    w.ack_all()
    w.says(calls=[call("A", "crawl"), call("B", "fetch")])
    assert ("task", "B.task1") in w.outstanding
    assert ("task", "A.task1") not in w.outstanding
    w.ack_all()
    assert ("task", "A.task1") in w.outstanding


def test_a_call_in_the_background_is_approved_like_any_other() -> None:
    w = World(agent())
    w.says(calls=[call("A", "mail", to="x")])
    assert w.row.stage is Stage.NEEDS_APPROVAL
    assert not w.row.tasks
    w.decide("A", edited_arguments={"to": "y"})
    assert w.task("A.task1").arguments == {"to": "y"}
    w.says("done")
    w.task_returns("A.task1")
    w.says("done")
    w.check_end()


def test_a_task_beyond_the_limit_of_the_run_is_refused_with_the_way_out() -> None:
    w = World(agent(max_tasks=1))
    w.says(calls=[call("A", "crawl"), call("B", "crawl")])
    assert w.statuses() == {"A": "succeeded", "B": "failed"}
    assert w.store.fold.results["B"][1] == "too_many_tasks"
    text = w.tool_texts()["B"]
    assert "max_tasks=1" in text
    assert "A.task1" in text
    w.task_returns("A.task1")
    w.says(calls=[call("C", "crawl")])
    assert w.statuses()["C"] == "succeeded"


def test_a_call_does_not_take_the_id_of_a_task() -> None:
    w = crawling(then=None)
    w.says(calls=[call("A.task1", "look")])
    (other,) = set(w.store.calls) - {"A"}
    assert other != "A.task1"


# --- what they come to -----------------------------------------------------------------------------------------------


def test_a_result_reaches_the_model_at_the_next_step() -> None:
    w = crawling(then=None)
    w.task_returns("A.task1", "42 pages")
    assert task_notes(w) == []
    w.says("done")
    assert task_notes(w) == ["[Background task A.task1 (crawl) succeeded.]\n42 pages"]
    assert w.row.position is RunPosition.INFERENCE
    assert w.store.fold.finished == {"A.task1": ("succeeded", None)}
    w.says("42 pages it is")
    assert w.last().output == "42 pages it is"
    w.check_end()


def test_messages_name_the_task_that_they_are_about() -> None:
    w = crawling(then=None)
    w.task_returns("A.task1", "42 pages")
    w.says("done")
    named = [(m.role, m.kind, m.task_id) for m in w.store.messages if m.kind != "text"]
    assert named == [("tool", "task_started", "A.task1"), ("user", "task_finished", "A.task1")]


def test_the_call_of_a_refused_task_is_about_none() -> None:
    w = World(agent(max_tasks=1))
    w.says(calls=[call("A", "crawl"), call("B", "crawl")])
    assert [m.task_id for m in w.store.messages if m.role == "tool"] == ["A.task1", None]


def test_a_failure_is_reported_with_its_code() -> None:
    w = crawling()
    w.answer(inp.CallRaised(call_id="A.task1", attempt=1, code="tool_timeout", shown="too slow"))
    assert task_notes(w) == ["[Background task A.task1 (crawl) failed (tool_timeout).]\ntoo slow"]
    w.says("well")
    w.check_end()


def test_a_failure_that_the_tool_declares_fatal_ends_the_run() -> None:
    w = crawling()
    w.answer(inp.CallRaised(call_id="A.task1", attempt=1, code="tool_error", shown="boom", fatal=True))
    assert (w.last().code, w.last().message) == ("tool_error", "crawl: boom")
    w.check_end()


def test_a_failure_in_the_clean_up_of_a_cancelled_task_does_not_end_the_run() -> None:
    """The model wanted the task to end, and nothing else."""
    w = World(agent())
    w.says(calls=[call("A", "crawl"), call("B", "safe_boss")])
    w.asks(inp.CancelAsked, task_id="A.task1")
    w.answer(inp.CallRaised(call_id="A.task1", attempt=1, code="tool_error", shown="boom", fatal=True))
    assert (w.store.fold.finished, w.row.stage) == ({"A.task1": ("failed", "tool_error")}, Stage.RUNNING)


def test_a_call_that_the_model_names_like_a_task_gets_another_id() -> None:
    """Both would have one idempotency key, and one address for what their bodies say."""
    w = World(agent())
    w.says(calls=[call("A", "crawl"), call("A.task1", "look"), call(".task7", "look"), call("A.task", "look")])
    assert list(w.statuses()) == ["A", "A.task1#2", ".task7#2", "A.task"]


def test_a_task_cannot_wait_for_a_decision_and_receives_the_way_out() -> None:
    w = crawling()
    w.answer(inp.CallSuspended(call_id="A.task1", attempt=1, suspend=Suspend(message="sure?")))
    assert not w.store.tickets
    assert w.store.fold.finished == {"A.task1": ("failed", "task_suspended")}
    assert "needs_approval" in task_notes(w)[0]


def test_reports_of_a_task_are_events_of_the_task() -> None:
    w = crawling()
    w.feed(inp.CallProgressed(call_id="A.task1", attempt=1, fraction=0.5, text="half"))
    w.feed(inp.CallPrinted(call_id="A.task1", attempt=1, index=0, text="line"))
    assert w.types()[-2:] == ["run.task.progress", "run.task.output.delta"]


def test_of_a_large_task_result_the_model_gets_head_and_tail() -> None:
    w = crawling()
    w.answer(inp.CallReturned(call_id="A.task1", attempt=1, result="x" * 9, shown="x..x", large=True))
    finished = next(e.payload for e in w.store.events[1:] if e.type == "run.task.finished")
    assert finished.result == Large("x" * 9)  # cut where it is redacted
    assert task_notes(w)[0].endswith("\nx..x")


# --- who waits for them ----------------------------------------------------------------------------------------------


def test_a_run_with_a_final_answer_waits_for_live_tasks_with_status_running() -> None:
    w = crawling()
    assert (w.row.position, w.row.stage, w.row.termination) == (RunPosition.TASKS, Stage.RUNNING, None)
    w.task_returns("A.task1")
    assert (w.row.position, w.row.step) == (RunPosition.INFERENCE, 3)
    w.says("done")
    assert w.row.stage is Stage.COMPLETED
    w.check_end()


def test_the_run_that_waits_is_woken_by_the_first_of_several_tasks() -> None:
    w = World(agent())
    w.says(calls=[call("A", "crawl"), call("B", "crawl")])
    w.says("let us wait")
    w.task_returns("B.task1")
    w.says("and wait")
    assert w.row.position is RunPosition.TASKS
    w.task_returns("A.task1")
    w.says("done")
    assert [text.split()[2] for text in task_notes(w)] == ["B.task1", "A.task1"]
    w.check_end()


def test_the_run_that_waits_is_woken_by_new_input() -> None:
    w = crawling()
    w.send("how is it going?")
    assert w.row.position is RunPosition.INFERENCE
    assert w.store.messages[-1].content == "how is it going?"
    w.says("fine")
    assert w.row.position is RunPosition.TASKS


@pytest.mark.parametrize("mode", ["now", "after_step"])
def test_a_cancel_ends_the_run_that_waits_and_its_task(mode: str) -> None:
    w = crawling()
    w.cancel(mode)
    w.stopped()
    assert (w.row.stage, w.store.fold.finished) == (Stage.CANCELLED, {"A.task1": ("cancelled", "cancelled")})
    assert task_notes(w) == ["[Background task A.task1 (crawl) cancelled.]\nIt was cancelled: the run ended."]
    w.check_end()


def test_the_deadline_ends_the_run_that_waits() -> None:
    w = crawling()
    w.feed(inp.DeadlinePassed())
    w.stopped()
    assert w.last().code == "run_timeout"
    w.check_end()


def test_a_cancel_after_the_step_does_not_wait_for_tasks() -> None:
    w = crawling(then=None)
    w.cancel("after_step")
    w.says("done")
    w.stopped()
    assert w.row.stage is Stage.CANCELLED
    w.check_end()


def test_a_person_is_asked_while_a_task_runs() -> None:
    w = World(agent())
    w.says(calls=[call("A", "crawl"), call("B", "pay")])
    assert w.row.stage is Stage.NEEDS_APPROVAL
    assert w.row.restless
    w.task_returns("A.task1")
    assert w.row.stage is Stage.NEEDS_APPROVAL
    assert not w.row.restless


@pytest.mark.parametrize(
    ("condition", "code"),
    [
        (stop.MaxRounds(2), "max_rounds"),
        (stop.TokenBudget(20), "token_budget"),
        (stop.ContentMatch("do"), "content_match"),
    ],
)
def test_a_stop_condition_does_not_wait_for_tasks(condition: Any, code: str) -> None:
    w = crawling(stop=(condition,))
    w.stopped()
    assert (w.last().termination, w.last().code, w.last().output) == ("stopped", code, "done")
    assert w.store.fold.finished == {"A.task1": ("cancelled", "cancelled")}
    w.check_end()


def test_a_stop_condition_that_is_met_while_the_run_waits_keeps_it_from_another_step() -> None:
    w = crawling(stop=(stop.Timeout(60.0),))
    w.tick(100)
    w.task_returns("A.task1")
    assert (w.last().code, w.last().output) == ("timeout", "done")
    w.check_end()


@pytest.mark.parametrize("rule", ["stop_on_first_tool", frozenset({"crawl", "look"})])
def test_the_id_of_a_task_is_no_output_but_the_result_of_another_tool_is(rule: Any) -> None:
    w = World(agent(tool_use=rule))
    w.says(calls=[call("A", "crawl")])
    assert w.row.position is RunPosition.INFERENCE
    w.says(calls=[call("B", "look")])
    w.returns("B", "seen")
    w.stopped()
    assert (w.last().termination, w.last().output) == ("natural_end", "seen")
    assert w.store.fold.finished["A.task1"][0] == "cancelled"
    w.check_end()


def test_a_hook_that_ends_the_run_ends_its_tasks() -> None:
    w = World(agent(hooked=frozenset({Phase.AFTER_INFERENCE})))
    w.says(calls=[call("A", "crawl")])
    w.phase(Phase.AFTER_INFERENCE)
    w.says("hm")
    w.phase(Phase.AFTER_INFERENCE, end="enough")
    w.stopped()
    assert w.last().termination == "behavior_requested"
    assert w.store.fold.finished["A.task1"][0] == "cancelled"
    w.check_end()


def test_a_task_result_between_the_cancel_and_the_end_of_the_run_counts() -> None:
    w = crawling()
    w.cancel()
    w.feed(inp.CallReturned(call_id="A.task1", attempt=1, result="made it", shown="made it"))
    w.stopped()
    assert w.store.fold.finished == {"A.task1": ("succeeded", None)}
    w.check_end()


def test_a_task_that_overruns_its_grace_is_named_by_the_runs_end() -> None:
    w = crawling()
    w.cancel()
    w.stopped("A.task1")
    assert w.last().stubborn == ("A.task1",)
    w.check_end()


# --- cancelling one --------------------------------------------------------------------------------------------------


def test_a_task_that_is_cancelled_ends_when_its_body_has() -> None:
    w = crawling()
    answer = w.asks(inp.CancelAsked, task_id="A.task1")
    assert answer is not None
    assert answer.value is True
    assert w.row.tasks[0].status == "cancelling"
    w.answer(inp.TaskStopped(task_id="A.task1", attempt=1))
    assert task_notes(w) == ["[Background task A.task1 (crawl) cancelled.]\nIt was cancelled."]


def test_the_result_of_a_task_that_ignores_its_cancel_counts() -> None:
    w = crawling()
    w.asks(inp.CancelAsked, task_id="A.task1")
    w.task_returns("A.task1")
    assert w.store.fold.finished == {"A.task1": ("succeeded", None)}
    before = w.state
    w.feed(inp.TaskStopped(task_id="A.task1", attempt=1))
    assert w.state == before


def test_cancelling_a_task_is_idempotent_and_false_for_an_unknown_task() -> None:
    w = crawling()
    values = [w.asks(inp.CancelAsked, task_id=name) for name in ("A.task1", "A.task1", "B.task1")]
    assert [answer.value for answer in values if answer is not None] == [True, True, False]


def test_the_end_of_a_task_that_was_not_cancelled_is_no_end() -> None:
    w = crawling()
    w.feed(inp.TaskStopped(task_id="A.task1", attempt=1))
    assert w.row.tasks


def test_the_tasks_that_live_are_reported() -> None:
    w = crawling()
    answer = w.asks(inp.TasksAsked)
    assert answer is not None
    assert [(one.task_id, one.tool, one.status) for one in answer.value] == [("A.task1", "crawl", "running")]


# --- spawning --------------------------------------------------------------------------------------------------------


def bossing(tool: str = "boss", **more: Any) -> World:
    """A body runs that may spawn."""
    w = World(agent(**more))
    w.says(calls=[call("B", tool)])
    return w


def spawned(answer: fx.AnswerBody | None) -> Any:
    assert answer is not None
    return answer.value if answer.fault is None else answer.fault


def test_a_body_spawns_tasks_and_learns_their_ids_when_they_are_stored() -> None:
    w = bossing()
    assert [spawned(w.spawns("B", "look", n=n)) for n in (1, 2)] == ["B.task1", "B.task2"]
    w.returns("B")
    w.says("done")
    w.task_returns("B.task1")
    w.task_returns("B.task2")
    w.says("done")
    w.says("done")
    w.check_end()


def test_the_answer_to_a_spawn_waits_for_the_store() -> None:
    w = bossing("safe_boss")
    w.lazy = True
    assert w.spawns("B", "look") is None
    w.ack_all()
    assert len(w.replies) == 1


def test_the_same_spawn_of_a_body_that_runs_again_is_the_same_task() -> None:
    w = bossing("safe_boss")
    w.spawns("B", "look", n=1)
    w.spawns("B", "look", n=2)
    w.spawns("B", "look", n=1, nth=2)
    w.task_returns("B.task1")
    w.crash()
    assert spawned(w.spawns("B", "look", n=2)) == "B.task2"  # whatever the order
    assert spawned(w.spawns("B", "look", n=1)) == "B.task1"  # it has ended, and is not started again
    assert spawned(w.spawns("B", "look", n=1, nth=2)) == "B.task3"
    assert spawned(w.spawns("B", "look", n=3)) == "B.task4"
    assert {task.task_id for task in w.row.tasks} == {"B.task2", "B.task3", "B.task4"}


def test_a_task_spawns_tasks_that_outlive_it() -> None:
    w = crawling()
    assert spawned(w.spawns("A.task1", "look")) == "A.task1.task1"
    assert w.task("A.task1.task1").call_id == "A"
    w.task_returns("A.task1")
    assert [task.task_id for task in w.row.tasks] == ["A.task1.task1"]


@pytest.mark.parametrize(
    ("tool", "arguments", "why"),
    [
        ("nothing", {}, "There is no tool named 'nothing'"),
        ("pay", {}, "needs_approval"),
        ("ordered", {}, "is ordered"),
        ("even", {"n": 1}, "not even"),
    ],
)
def test_a_spawn_of_an_unsuitable_tool_is_refused_with_the_way_out(tool: str, arguments: Any, why: str) -> None:
    w = bossing()
    assert why in spawned(w.spawns("B", tool, **arguments))
    assert not w.row.tasks


def test_a_spawn_over_the_limit_is_refused_and_may_be_tried_again() -> None:
    w = bossing(max_tasks=1)
    w.spawns("B", "look", n=1)
    assert "max_tasks=1" in spawned(w.spawns("B", "look", n=2))
    w.task_returns("B.task1")
    assert spawned(w.spawns("B", "look", n=2, nth=2)) == "B.task2"


def test_the_number_of_tasks_that_one_body_spawns_is_limited() -> None:
    w = bossing()
    many = replace(w.state.calls["B"], spawned=tuple(f"m{n}" for n in range(MAX_SPAWNS - 1)))
    w.state = msgspec.structs.replace(w.state, calls=StepCalls([many]))
    assert spawned(w.spawns("B", "look", n=1)) == f"B.task{MAX_SPAWNS}"
    assert str(MAX_SPAWNS) in spawned(w.spawns("B", "look", n=2))


def test_a_body_without_a_waiter_starts_nothing() -> None:
    w = bossing()
    late = w.running("B")
    w.cancel()
    who: dict[str, Any] = {"spawner": "B", "tool": "look", "arguments": {}, "mark": "m", "nth": 1}
    first = w.asks(inp.SpawnAsked, attempt=late.attempt, **who)
    second = w.asks(inp.SpawnAsked, attempt=late.attempt + 1, **who)
    w.stopped()
    assert [bool(answer and answer.fault) for answer in (first, second)] == [True, True]
    assert "run.task.started" not in w.types()


# --- crashes ---------------------------------------------------------------------------------------------------------


def test_after_a_crash_a_task_that_may_be_repeated_runs_again() -> None:
    w = World(agent())
    w.says(calls=[call("A", "fetch")])
    w.says("done")
    w.crash()
    assert (w.row.position, w.task("A.task1").attempt) == (RunPosition.TASKS, 2)
    w.feed(inp.CallReturned(call_id="A.task1", attempt=1, result="old", shown="old"))
    assert w.row.tasks, "the word of an older attempt"
    w.task_returns("A.task1")
    w.says("done")
    assert w.store.fold.finished == {"A.task1": ("succeeded", None)}
    w.check_end()


def test_after_a_crash_of_any_other_task_the_model_reads_that_the_outcome_is_unknown() -> None:
    w = crawling()
    w.crash()
    assert w.store.fold.finished == {"A.task1": ("failed", "outcome_unknown")}
    assert "may or may not have taken effect" in task_notes(w)[0]
    assert w.row.position is RunPosition.INFERENCE
    w.says("I will look")
    w.check_end()


def test_after_a_crash_a_task_that_was_being_cancelled_is_cancelled() -> None:
    w = World(agent())
    w.says(calls=[call("A", "fetch")])
    w.asks(inp.CancelAsked, task_id="A.task1")
    w.crash()
    assert w.store.fold.finished == {"A.task1": ("cancelled", "outcome_unknown")}


def test_after_a_crash_on_the_way_out_tasks_are_cancelled_with_the_run() -> None:
    w = crawling()
    w.cancel()
    w.crash()
    w.stopped()
    assert w.store.fold.finished == {"A.task1": ("cancelled", "outcome_unknown")}
    w.check_end()


def test_a_task_whose_start_was_not_stored_never_was() -> None:
    w = World(agent())
    w.lazy = True
    w.says(calls=[call("A", "crawl")])
    w.crash()
    w.ack_all()
    assert not w.row.tasks
    assert "run.task.started" not in w.types()
