"""Inputs that the scenes of the whole runtime bring seldom or never, in their order: one test per branch."""

from typing import Any

import pytest

from greenroom.actors.contract.decisions import Command, InboxItem
from greenroom.actors.contract.phases import Phase, RunPosition
from greenroom.actors.contract.spec import AgentSpec, ToolSpec
from greenroom.actors.engine import inputs as inp

from .world import World, call

TOOLS = (
    ToolSpec(name="pay", effect="publish", gate="always"),
    ToolSpec(name="look", replay_safe=True),
    ToolSpec(name="fetch", background=True, output=False, replay_safe=True),
)


def world(tool: str, **more: Any) -> World:
    """A run whose model has asked for one call, A."""
    w = World(AgentSpec(key="a", tools={tool.name: tool for tool in TOOLS}, **more))
    w.says(calls=[call("A", tool, n=1)])
    return w


@pytest.mark.parametrize(
    ("action", "arguments", "status"),
    [("resume", {"n": 9}, "suspended"), ("resume", {"n": 1}, "running"), ("cancel", {"n": 9}, "cancelled")],
)
def test_an_early_approval_is_bound_to_the_arguments_before_an_edit(action: str, arguments: Any, status: str) -> None:
    """A hook edits the call after a person approved it: that was not for these arguments. A denial is one of any."""
    w = world("pay", hooked=frozenset({Phase.AFTER_INFERENCE}))
    w.decide("A", action)
    w.phase(Phase.AFTER_INFERENCE, edits=(inp.CallEdit(call_id="A", by="p", arguments=arguments),))
    assert w.statuses() == {"A": status}
    refused = [e.payload.code for e in w.store.events[1:] if e.type == "run.decision.refused"]
    assert refused == (["fingerprint_mismatch"] if status == "suspended" else [])


@pytest.mark.parametrize("denial", [lambda *_: 1 / 0, lambda *_: None, lambda *_: b"no", lambda: "no"])
def test_a_formatter_that_fails_leaves_an_event_and_the_sentence(denial: Any) -> None:
    w = world("pay", denial=denial)
    w.decide("A", "cancel", reason="no")
    assert w.tool_texts() == {"A": "The reviewer denied this call: no"}
    (degraded,) = [event.payload for event in w.store.events[1:] if event.type == "run.degraded"]
    assert (degraded.reason, "r.t1" in degraded.detail) == ("denial_failed", True)
    w.says("fine")
    w.check_end()


def test_the_result_of_an_older_attempt_of_a_task_is_ignored() -> None:
    w = world("fetch")
    w.says("done")
    w.crash()
    assert (w.row.position, w.task("A.task1").attempt) == (RunPosition.TASKS, 2)
    w.feed(inp.CallReturned(call_id="A.task1", attempt=1, result="old", shown="old"))
    assert w.row.tasks
    w.task_returns("A.task1")
    w.says("done")
    assert w.store.fold.finished == {"A.task1": ("succeeded", None)}
    w.check_end()


def test_a_task_spawns_tasks_that_outlive_it_and_its_row_keeps_their_marks() -> None:
    w = world("fetch")
    w.says("done")
    answer = w.spawns("A.task1", "look")
    assert answer is not None
    assert answer.value == "A.task1.task1"
    assert [len(task.spawned) for task in w.row.tasks] == [1, 0]
    w.task_returns("A.task1")
    assert [task.task_id for task in w.row.tasks] == ["A.task1.task1"]


@pytest.mark.parametrize("kind", ["send", "pause"])
def test_a_run_without_an_owner_reads_what_came_before_its_cancel(kind: Any) -> None:
    w = world("pay")
    w.lose_owner()
    w.spec = AgentSpec(key="a")
    w.post(Command(command_id="late", kind=kind, text="wait" if kind == "send" else None))
    w.post(Command(command_id="x", kind="cancel"))
    items = tuple(InboxItem(position=n, command=c) for n, (c, _) in enumerate(w.store.inbox, 1))
    w.feed(inp.CancelUnowned(items=items))
    w.stopped()
    assert w.row.stage == "cancelled"
    w.check_end()
