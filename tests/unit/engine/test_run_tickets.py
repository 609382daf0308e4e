"""Tickets of the run itself, as scenarios: pauses, and hooks that hold the run."""

from datetime import timedelta
from typing import Any

import pytest

from greenroom.actors.contract.decisions import Command, SetResult, Suspend, Ticket
from greenroom.actors.contract.lifecycle import RunStatus
from greenroom.actors.contract.messages import CallRequest
from greenroom.actors.contract.phases import Phase, RunPosition
from greenroom.actors.contract.spec import AgentSpec, ToolSpec
from greenroom.actors.contract.stop import MaxRounds
from greenroom.actors.engine import inputs as inp

from .world import World, call

LOOK, PAY = call("L", "look"), call("A", "pay")
FORM = {"type": "object", "required": ["to"]}


def agent(**more: Any) -> AgentSpec:
    tools = (ToolSpec(name="look", replay_safe=True), ToolSpec(name="pay", gate="always"))
    return AgentSpec(key="a", digest="one", tools={tool.name: tool for tool in tools}, **more)


def paused(*calls: CallRequest, **more: Any) -> World:
    """A run that was paused in its first step, and is before the second one."""
    w = World(agent(**more))
    w.pause("lunch")
    w.says(calls=calls or (LOOK,))
    w.returns((calls or (LOOK,))[-1].call_id)
    return w


def held(phase: Phase = Phase.STEP_START, **wish: Any) -> World:
    """A run that a hook holds."""
    w = World(agent(hooked=frozenset({phase})))
    w.asks_to_hold(phase, Suspend(**wish))
    return w


def of_run(w: World) -> Ticket:
    """The newest ticket of the run itself."""
    return [ticket for ticket in w.store.tickets.values() if ticket.call_id is None][-1]


def contents(w: World) -> list[str]:
    return [f"{message.role}: {message.content}" for message in w.store.messages]


# --- a pause ---------------------------------------------------------------------------------------------------------


def test_a_pause_lets_the_step_end_and_no_other_begin() -> None:
    w = World(agent())
    w.pause("lunch")
    assert (w.row.status, w.row.run_tickets) == (RunStatus.RUNNING, ())
    w.says(calls=[LOOK])
    assert w.statuses() == {"L": "running"}
    w.returns("L")
    assert (w.row.stage, w.row.position, w.row.step, not w.outstanding) == (
        "needs_approval",
        RunPosition.PAUSED,
        1,
        True,
    )
    ticket = of_run(w)
    assert (ticket.reason, ticket.call_id, ticket.tool, ticket.arguments) == ("manual_pause", None, "", {})
    assert (ticket.action, ticket.resume_mode, ticket.reviewers) == ("run:resume", "replay_tool_call", ())
    assert ticket.message == "ann paused the run: lunch"
    assert w.last().tickets == (ticket.ticket_id,)


def test_resume_lets_the_next_step_begin_and_says_by_whom() -> None:
    w = paused()
    w.decide(of_run(w).ticket_id)
    assert (w.row.stage, w.row.step, w.row.run_tickets) == ("running", 2, ())
    resumed = next(event.payload for event in w.store.events[1:] if event.type == "run.resumed")
    assert resumed.by == "ann"
    w.says("done")
    assert contents(w)[-1] == "assistant: done"
    w.check_end()


@pytest.mark.parametrize(
    ("result", "text"), [("It is done by hand.", "It is done by hand."), ({"to": 7}, '{"to":7}'), (0, "0")]
)
def test_the_result_of_a_resumed_pause_is_an_input_of_the_model(result: Any, text: str) -> None:
    w = paused()
    w.decide(of_run(w).ticket_id, result=result)
    assert contents(w)[-1] == f"user: {text}"
    assert [e.payload.text for e in w.store.events[1:] if e.type == "run.input.received"] == [text]
    w.says("done")
    w.check_end()


@pytest.mark.parametrize("result", ["", " \n"], ids=repr)
def test_a_blank_result_is_no_message(result: str) -> None:
    w = paused()
    w.decide(of_run(w).ticket_id, result=result)
    assert not [e for e in w.store.events[1:] if e.type == "run.input.received"]
    w.says("done")
    w.check_end()


def test_cancel_ends_the_run_as_rejected() -> None:
    w = paused()
    w.decide(of_run(w).ticket_id, "cancel", reason="not today")
    w.stopped()
    assert (w.row.stage, w.last().code, w.last().by, w.last().reason) == (
        "cancelled",
        "approval_rejected",
        "ann",
        "not today",
    )
    assert of_run(w).status == "denied"
    w.check_end()


def test_a_run_that_waits_is_held_at_once_and_both_tickets_stand() -> None:
    w = World(agent())
    w.says(calls=[PAY])
    w.pause()
    assert {ticket.reason for ticket in w.store.tickets.values() if ticket.status == "open"} == {
        "tool_permission",
        "manual_pause",
    }
    w.decide("A")
    assert w.statuses() == {"A": "running"}
    w.returns("A")
    assert (w.row.stage, w.row.position, w.last().tickets) == (
        "needs_approval",
        RunPosition.PAUSED,
        (of_run(w).ticket_id,),
    )


def test_resuming_while_a_call_waits_leaves_the_call_waiting() -> None:
    w = World(agent())
    w.says(calls=[PAY])
    w.pause()
    w.decide(of_run(w).ticket_id, result="I am back")
    assert (w.row.stage, w.row.position) == ("needs_approval", RunPosition.TOOLS)
    w.decide("A")
    w.returns("A")
    assert (w.row.stage, w.row.step, contents(w)[-1]) == ("running", 2, "user: I am back")


def test_a_pause_takes_effect_when_the_run_comes_to_wait_in_the_middle_of_its_step() -> None:
    w = World(agent())
    w.pause()
    w.says(calls=[PAY])
    assert set(w.last().tickets) == {w.ticket("A").ticket_id, of_run(w).ticket_id}


def test_a_second_pause_joins_the_first_before_and_after_it_takes_effect() -> None:
    w = World(agent())
    w.pause()
    w.pause()
    w.says(calls=[LOOK])
    w.returns("L")
    w.pause()
    joins = [event.payload.joins for event in w.store.events[1:] if event.type == "run.pause.requested"]
    assert joins == [None, "p1", of_run(w).ticket_id]
    assert len(w.store.tickets) == 1


def test_a_run_can_be_paused_again_after_a_resume() -> None:
    w = paused()
    w.decide(of_run(w).ticket_id)
    w.pause()
    w.says(calls=[call("M", "look")])
    w.returns("M")
    assert (w.row.position, len(w.store.tickets)) == (RunPosition.PAUSED, 2)


def test_an_answer_is_not_held_back_and_the_pause_is_refused() -> None:
    w = World(agent())
    w.pause()
    w.says("done")
    assert w.row.stage == "completed"
    assert w.types()[-2:] == ["run.decision.refused", "run.completed"]
    refused = w.store.events[-2].payload
    assert (refused.command_id, refused.target, refused.code) == ("p1", "r", "unused")
    w.check_end()


def test_a_stop_condition_is_not_held_back() -> None:
    w = paused(stop=(MaxRounds(1),))
    assert (w.row.stage, w.last().code) == ("completed", "max_rounds")
    w.check_end()


def test_a_stopping_run_refuses_a_pause() -> None:
    w = World(agent())
    w.feed(inp.DeadlinePassed())
    assert (w.pause().code, len(w.store.inbox)) == ("run_done", 0)


def test_a_pause_that_meets_the_end_is_refused_in_the_log() -> None:
    """It was accepted before the way out was durable."""
    w = World(agent())
    w.post(Command(command_id="p", kind="pause"))
    w.feed(inp.DeadlinePassed())
    w.deliver_all()
    w.stopped()
    refused = [event.payload for event in w.store.events[1:] if event.type == "run.decision.refused"]
    assert [(result.command_id, result.code) for result in refused] == [("p", "run_done")]
    w.check_end()


def test_a_pause_before_the_first_step_holds_that() -> None:
    w = World(agent(), admitted=False)
    w.pause()
    w.feed(inp.Admit())
    assert (w.row.position, w.row.step, w.types().count("run.step.started")) == (RunPosition.PAUSED, 0, 0)
    w.decide(of_run(w).ticket_id)
    assert (w.row.position, w.row.step) == (RunPosition.INFERENCE, 1)


# --- while it is held ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["queue", "supersede"])
def test_input_waits_in_line_while_the_run_is_held(policy: Any) -> None:
    w = paused(on_new_input=policy)
    w.send("and this")
    assert (w.row.position, of_run(w).status) == (RunPosition.PAUSED, "open")
    w.decide(of_run(w).ticket_id, result="go")
    assert contents(w)[-2:] == ["user: and this", "user: go"]


@pytest.mark.parametrize("mode", ["now", "after_step"])
def test_a_held_run_can_be_cancelled(mode: str) -> None:
    w = paused()
    w.cancel(mode)
    w.stopped()
    assert (w.row.stage, of_run(w).status) == ("cancelled", "withdrawn")
    w.check_end()


def test_a_cancel_after_the_step_is_stronger_than_a_pause() -> None:
    w = World(agent())
    w.pause()
    w.cancel("after_step")
    w.says(calls=[LOOK])
    w.returns("L")
    assert (w.row.stage, w.store.tickets) == ("cancelled", {})
    w.check_end()


def test_a_cancel_after_the_step_that_came_before_the_first_step_is_not_held_up() -> None:
    w = World(agent(hooked=frozenset({Phase.RUN_START})))
    w.cancel("after_step")
    w.asks_to_hold(Phase.RUN_START, Suspend())
    assert (w.row.stage, of_run(w).status) == ("cancelled", "withdrawn")
    w.check_end()


def test_the_deadline_passes_while_the_run_is_held() -> None:
    w = World(agent(), deadline=100)
    w.pause()
    w.says(calls=[LOOK])
    w.returns("L")
    assert w.row.next_due is not None
    w.tick(200)
    assert (w.row.stage, w.last().code, of_run(w).status) == ("failed", "run_timeout", "withdrawn")
    w.check_end()


def test_waiting_is_no_active_time() -> None:
    w = paused()
    w.tick(1000)
    w.decide(of_run(w).ticket_id)
    w.says("done")
    assert w.last().active_seconds == 0


def test_a_held_run_waits_on_after_a_crash_and_asks_for_nothing() -> None:
    w = paused()
    before = w.row
    w.crash()
    assert w.row == before
    assert not w.outstanding
    w.decide(of_run(w).ticket_id)
    assert w.row.step == 2


def test_a_pause_that_waits_for_the_end_of_the_step_survives_a_crash() -> None:
    w = World(agent())
    w.pause()
    w.crash()
    w.says(calls=[LOOK])
    w.returns("L")
    assert w.row.position is RunPosition.PAUSED


def test_nothing_can_be_edited_about_a_run() -> None:
    w = paused()
    answer = w.decide(of_run(w).ticket_id, edited_arguments={"n": 1})
    assert (answer.code, "holds the run itself" in (answer.detail or "")) == ("invalid_arguments", True)


def test_a_decision_for_another_action_is_refused() -> None:
    w = paused()
    assert w.decide(of_run(w).ticket_id, fingerprint="another").code == "fingerprint_mismatch"
    assert w.decide(of_run(w).ticket_id, fingerprint=of_run(w).fingerprint).ok


def test_two_tickets_of_a_run_have_two_fingerprints() -> None:
    w = paused()
    first = of_run(w)
    w.decide(first.ticket_id)
    w.pause()
    w.says(calls=[call("M", "look")])
    w.returns("M")
    assert of_run(w).fingerprint != first.fingerprint


def test_the_second_decision_comes_too_late() -> None:
    w = paused()
    name = of_run(w).ticket_id
    w.decide(name)
    assert w.decide(name, "cancel").code == "already_decided"


def test_of_two_decisions_that_wait_for_the_owner_only_the_first_is_journaled() -> None:
    w = paused()
    w.lazy = True
    name = of_run(w).ticket_id
    w.decide(name)
    assert w.decide(name, "cancel").code == "already_decided"
    w.ack_all()
    assert w.row.step == 2


# --- a hook that holds the run ---------------------------------------------------------------------------------------


def test_a_hook_of_before_inference_holds_the_run_once() -> None:
    w = held(message="the build", parameters={"build": 7}, response_schema=FORM, reviewers=("ann",))
    ticket = of_run(w)
    assert (w.row.stage, w.row.position, w.row.step) == ("needs_approval", RunPosition.STEP_START, 1)
    assert (ticket.reason, ticket.message, ticket.parameters, ticket.reviewers) == (
        "external_event",
        "the build",
        {"build": 7},
        ("ann",),
    )
    w.crash()
    assert not w.outstanding, "its hooks have answered"
    assert w.decide(ticket.ticket_id, result={"to": 1}, by="bob").code == "not_allowed"
    assert w.decide(ticket.ticket_id, result={"from": 1}).code == "invalid_result"
    assert w.decide(ticket.ticket_id, result={"to": 1}).ok
    assert (w.row.position, w.row.step, contents(w)) == (RunPosition.INFERENCE, 1, ['user: {"to":1}'])
    w.says("done")
    w.check_end()


@pytest.mark.parametrize("phase", [Phase.RUN_START, Phase.STEP_END])
def test_a_hook_at_another_boundary_holds_the_next_step(phase: Phase) -> None:
    w = World(agent(hooked=frozenset({phase})))
    if phase is Phase.STEP_END:
        w.says(calls=[LOOK])
        w.returns("L")
    step = w.row.step
    w.asks_to_hold(phase, Suspend())
    assert (w.row.position, w.row.step) == (RunPosition.PAUSED, step)
    w.crash()
    w.decide(of_run(w).ticket_id)
    assert (w.row.position, w.row.step) == (RunPosition.INFERENCE, step + 1)


def test_a_hook_does_not_hold_back_an_answer() -> None:
    w = World(agent(hooked=frozenset({Phase.STEP_END})))
    w.says("done")
    w.asks_to_hold(Phase.STEP_END, Suspend())
    assert (w.row.stage, of_run(w).status) == ("completed", "withdrawn")
    w.check_end()


def test_a_hook_and_a_pause_hold_the_run_together() -> None:
    w = held()
    w.pause()
    first, second = w.row.run_tickets
    w.decide(first.ticket_id)
    assert w.row.stage == "needs_approval"
    w.decide(second.ticket_id)
    assert (w.row.position, w.row.step) == (RunPosition.INFERENCE, 1)


def test_a_pause_during_the_hooks_of_a_step_holds_the_run_before_the_next_step() -> None:
    w = World(agent(hooked=frozenset({Phase.STEP_START})))
    w.pause()
    assert w.row.run_tickets == ()
    w.phase(Phase.STEP_START)
    assert w.row.position is RunPosition.INFERENCE


# --- expiry ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_expiry", ["deny", "cancel_run"])
def test_a_ticket_of_the_run_without_a_decision_ends_it(on_expiry: Any) -> None:
    w = held(expires_after=30, on_expiry=on_expiry)
    assert w.row.next_due == w.now + timedelta(seconds=30)
    w.tick(29)
    assert not w.ended
    w.tick(2)
    w.stopped()
    assert (w.row.stage, w.last().by, w.last().code) == ("cancelled", "clock", "approval_rejected")
    assert of_run(w).status == "expired"
    w.check_end()


def test_a_default_lets_the_run_continue_without_anybody() -> None:
    w = held(expires_after=30, on_expiry=SetResult("nobody was there"))
    w.tick(31)
    assert (w.row.position, contents(w), w.row.next_due) == (RunPosition.INFERENCE, ["user: nobody was there"], None)
    w.says("done")
    w.check_end()


def test_a_ticket_that_expires_without_an_owner_expires_at_recovery() -> None:
    w = held(expires_after=30)
    w.lose_owner()
    w.now += timedelta(seconds=31)
    w.feed(inp.Activate(agent_digest="one"))
    assert w.decide(of_run(w).ticket_id).code == "expired"
    w.tick(0)
    w.stopped()
    assert w.row.stage == "cancelled"


def test_the_first_of_an_expiry_and_a_decision_closes_the_ticket() -> None:
    w = held(expires_after=30)
    w.now += timedelta(seconds=29)
    w.lazy = True
    assert w.decide(of_run(w).ticket_id).ok
    w.now += timedelta(seconds=2)
    w.post_expiries()
    w.deliver_all()
    w.ack_all()
    assert (of_run(w).status, w.row.stage) == ("approved", "running")


# --- a run that waits for its tasks ----------------------------------------------------------------------------------


def with_task(*, phase: Phase | None = None) -> World:
    """A run whose model has nothing more to say while a task lives; with hooks of `phase`, these have yet to answer."""
    tools = {"dig": ToolSpec(name="dig", replay_safe=True, background=True)}
    w = World(AgentSpec(key="a", tools=tools, hooked=frozenset({phase} if phase else ())))
    w.says(calls=[call("D", "dig")])
    if phase is not None:
        w.phase(phase)
    w.says("I wait")
    return w


@pytest.mark.parametrize("how", ["pause before", "pause", "hook"])
@pytest.mark.parametrize("crash", [False, True])
def test_a_pause_holds_a_run_that_waits_for_tasks_immediately(how: str, crash: bool) -> None:
    """People see that it waits for them; what its tasks say meanwhile waits for the decision."""
    w = with_task(phase=None if how == "pause" else Phase.STEP_END)
    if how == "pause before":
        w.pause()
        w.phase(Phase.STEP_END)
    elif how == "hook":
        w.asks_to_hold(Phase.STEP_END, Suspend())
    else:
        w.pause()
    assert (w.row.status, w.last().tickets) == (RunStatus.WAITING, (of_run(w).ticket_id,))
    if crash:
        w.crash()
    w.task_returns("D.task1", "gold")
    assert (w.row.status, w.row.step, len(w.row.pending_input)) == (RunStatus.WAITING, 2, 1)
    w.decide(of_run(w).ticket_id)
    assert (w.row.status, w.row.step) == (RunStatus.RUNNING, 3)
    assert contents(w)[-1].endswith("gold")


def test_a_run_that_was_held_continues_waiting_for_its_tasks() -> None:
    w = with_task()
    w.pause()
    w.decide(of_run(w).ticket_id)
    assert (w.row.status, w.row.position, w.row.step) == (RunStatus.RUNNING, RunPosition.TASKS, 2)
    w.task_returns("D.task1")
    assert w.row.step == 3
