"""How a run ends, and how it continues after its owner was lost, as scenarios."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from greenroom.actors.contract import stop
from greenroom.actors.contract.decisions import Block, Command, InboxItem, Suspend
from greenroom.actors.contract.failures import FAILURES
from greenroom.actors.contract.lifecycle import RunStatus, TerminationKind
from greenroom.actors.contract.messages import ModelResponse, Usage
from greenroom.actors.contract.phases import Phase, RunPosition
from greenroom.actors.contract.spec import AgentSpec, ToolSpec
from greenroom.actors.engine import effects as fx
from greenroom.actors.engine import inputs as inp

from .world import World, call

ALL = frozenset(Phase)
TOOLS = (
    ToolSpec(name="look", replay_safe=True),
    ToolSpec(name="write", effect="write"),
    ToolSpec(name="pay", gate="always"),
    ToolSpec(name="perhaps", gate="ask"),
    ToolSpec(name="crawl", background=True, output=False),
)


def agent(**more: Any) -> AgentSpec:
    return AgentSpec(key="a", digest="one", tools={tool.name: tool for tool in TOOLS}, **more)


def works(w: World, tool: str = "look", *, fails: bool = False, text: str = "") -> None:
    """One step with one call."""
    name = f"c{w.row.step}"
    w.says(*([text] if text else []), calls=[call(name, tool)])
    if fails:
        w.raises(name)
    else:
        w.returns(name)


# --- natural ends ----------------------------------------------------------------------------------------------------


def test_a_text_is_the_final_output_the_last_of_several() -> None:
    w = World(agent())
    w.says("first", "second")
    assert (w.last().output, w.last().termination) == ("second", "natural_end")
    assert [m.content for m in w.store.messages] == ["firstsecond"]
    w.check_end()


def test_no_text_and_no_call_is_an_empty_answer() -> None:
    w = World(agent())
    w.says()
    assert (w.row.stage, w.last().output) == ("completed", "")


def test_text_next_to_a_call_is_not_the_final_answer() -> None:
    w = World(agent())
    works(w, text="let me look")
    assert w.row.position is RunPosition.INFERENCE


def test_input_that_came_meanwhile_is_answered_before_the_run_ends() -> None:
    w = World(agent())
    w.send("one more thing")
    w.says("done")
    assert w.row.position is RunPosition.INFERENCE
    w.says("that too")
    assert (w.last().output, w.last().steps) == ("that too", 2)


@pytest.mark.parametrize(
    ("tool_use", "tools", "output"),
    [
        ("run_model_again", ("look",), None),
        ("stop_on_first_tool", ("look", "write"), "from look"),
        (frozenset({"write"}), ("look", "write"), "from write"),
        (frozenset({"write"}), ("look",), None),
    ],
)
def test_a_tool_may_bring_the_final_output(tool_use: Any, tools: tuple[str, ...], output: str | None) -> None:
    w = World(agent(tool_use=tool_use))
    w.says(calls=[call(tool, tool) for tool in tools])
    for tool in tools:
        w.returns(tool, f"from {tool}")
    if output is None:
        assert w.row.position is RunPosition.INFERENCE
    else:
        assert (w.row.stage, w.last().output, w.last().termination) == ("completed", output, "natural_end")
        w.check_end()


def test_a_failed_tool_brings_no_output() -> None:
    w = World(agent(tool_use="stop_on_first_tool"))
    works(w, fails=True)
    assert w.row.position is RunPosition.INFERENCE


def form(text: str) -> tuple[Any, str | None]:
    return ({"n": int(text)}, None) if text.isdigit() else (None, "$: not a number")


def test_an_answer_of_the_wrong_form_is_asked_for_again_so_often() -> None:
    w = World(agent(check_output=form, output_retries=2))
    w.says("one")
    assert "$: not a number" in w.store.messages[-1].content
    w.says("two")
    w.says("3")
    assert w.last().output == {"n": 3}
    w.check_end()


def test_too_many_answers_of_the_wrong_form_fail_the_run() -> None:
    w = World(agent(check_output=form, output_retries=1))
    w.says("one")
    w.says("two")
    assert (w.last().code, w.row.counters.output_retries) == ("model_behavior_error", 1)
    w.check_end()


# --- stop conditions -------------------------------------------------------------------------------------------------


def same(w: World) -> None:
    w.says(calls=[call("c", "look", n=1)])
    w.returns(next(key[1] for key in w.outstanding))


@pytest.mark.parametrize(
    ("condition", "steps"),
    [
        (stop.MaxRounds(2), [works, works]),
        (stop.Timeout(60.0), [works, lambda w: (w.tick(61), works(w))]),
        (stop.TokenBudget(29), [works, works]),
        (stop.ConsecutiveErrors(2), [lambda w: works(w, fails=True)] * 2),
        (stop.StopOnTool("write"), [works, lambda w: works(w, "write")]),
        (stop.ContentMatch("st.p"), [works, lambda w: works(w, text="please stop now")]),
        (stop.LoopDetection(2), [works, same, same]),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, list) else "",
)
def test_each_stop_condition_stops_after_the_step_that_meets_it(
    condition: Any, steps: list[Callable[[World], None]]
) -> None:
    w = World(agent(stop=(condition,)))
    for number, step in enumerate(steps, 1):
        assert w.row.counters.rounds == number - 1, "stopped too early"
        step(w)
    code = "".join("_" + c.lower() if c.isupper() else c for c in type(condition).__name__).removeprefix("_")
    assert (w.row.stage, w.last().termination, w.last().code) == ("completed", "stopped", code)
    w.check_end()


@pytest.mark.parametrize(
    "off", [stop.MaxRounds(0), stop.MaxRounds(None), stop.Timeout(0), stop.TokenBudget(None), stop.LoopDetection(None)]
)
def test_zero_and_none_switch_a_condition_off(off: Any) -> None:
    w = World(agent(stop=(off,)))
    for _ in range(5):
        same(w)
    assert w.row.position is RunPosition.INFERENCE


def test_loop_detection_looks_back_as_far_as_its_window() -> None:
    w = World(agent(stop=(stop.LoopDetection(70),)))
    for _ in range(70):
        assert not w.ended
        same(w)
    assert w.last().code == "loop_detection"


def test_max_rounds_that_meets_a_plain_final_text_is_a_natural_end() -> None:
    w = World(agent(stop=(stop.MaxRounds(1),)))
    w.says("done")
    assert (w.last().termination, w.last().output) == ("natural_end", "done")


def test_the_first_condition_in_the_list_wins() -> None:
    w = World(agent(stop=(stop.TokenBudget(1), stop.MaxRounds(1))))
    works(w)
    assert w.last().code == "token_budget"


def test_time_that_a_person_takes_is_not_active_time() -> None:
    w = World(agent(stop=(stop.Timeout(60.0),)))
    w.says(calls=[call("A", "pay")])
    w.tick(1000)
    w.decide("A")
    w.tick(10)
    w.returns("A")
    assert w.row.position is RunPosition.INFERENCE
    w.says("done")
    assert w.last().active_seconds == 10.0


def test_a_stopped_run_has_no_output_of_the_wrong_form() -> None:
    w = World(agent(stop=(stop.MaxRounds(1),), check_output=form))
    works(w, text="thinking")
    assert (w.last().termination, w.last().output) == ("stopped", None)


# --- cancel ----------------------------------------------------------------------------------------------------------


def waiting(w: World) -> None:
    w.says(calls=[call("A", "pay")])


def hooked_at(phase: Phase) -> Callable[[], World]:
    def make() -> World:
        w = World(agent(hooked=frozenset({phase})))
        for _ in range(3):
            if any(key[0] == "phase" for key in w.outstanding):
                return w
            if any(key[0] == "model" for key in w.outstanding):
                w.says("done" if phase in (Phase.RUN_END, Phase.STEP_END) else "", calls=calls_for(phase))
            else:
                w.returns("A")
        raise AssertionError(phase)

    return make


def calls_for(phase: Phase) -> list[Any]:
    return [] if phase in (Phase.RUN_END, Phase.STEP_END) else [call("A", "look")]


def at(*acts: Callable[[World], Any], admitted: bool = True) -> Callable[[], World]:
    def make() -> World:
        w = World(agent(), admitted=admitted)
        for act in acts:
            act(w)
        return w

    return make


def beside_a_task(w: World) -> None:
    """The model has nothing more to say, and a task lives."""
    w.says(calls=[call("A", "crawl")])
    w.says("done")


def paused(w: World) -> None:
    """Between two steps."""
    w.pause()
    works(w)


def held_by_a_hook() -> World:
    w = World(agent(hooked=frozenset({Phase.STEP_START})))
    w.asks_to_hold(Phase.STEP_START, Suspend())
    return w


def refused(w: World) -> None:
    response = ModelResponse(refusal="I will not", usage=Usage(input=3))
    w.answer(inp.ModelAnswered(message_id=w.in_flight(), response=response))


def guarded(*acts: Callable[[World], Any], **guardrails: tuple[str, ...]) -> Callable[[], World]:
    """A run with a text for its first step, whose guardrails have not answered."""

    def make() -> World:
        w = World(agent(**guardrails), admitted=False)
        w.send("hi")
        w.feed(inp.Admit())
        for act in acts:
            act(w)
        assert any(key[0] == "guards" for key in w.outstanding)
        return w

    return make


LOOK = [call("A", "look")]
PLACES: dict[str, Callable[[], World]] = {
    "guardrails before the model": guarded(blocking_guardrails=("b",), input_guardrails=("i",)),
    "guardrails beside the model": guarded(input_guardrails=("i", "j")),
    "guardrails and calls": guarded(lambda w: w.says("so", calls=LOOK), input_guardrails=("i",)),
    "guardrails and an answer": guarded(lambda w: w.says("so"), input_guardrails=("i",)),
    "guardrails and a refusal": guarded(refused, input_guardrails=("i",)),
    "guardrails of the output": guarded(lambda w: w.says("so"), output_guardrails=("o",)),
    "planned": at(admitted=False),
    "inference": at(),
    "body": at(lambda w: w.says(calls=[call("A", "write")])),
    "gate": at(lambda w: w.says(calls=[call("A", "perhaps")])),
    "waiting": at(waiting),
    "tasks": at(beside_a_task),
    "paused": at(paused),
    "paused and waiting": at(lambda w: (waiting(w), w.pause())),
    "held by a hook": held_by_a_hook,
    "stopping": at(lambda w: w.feed(inp.DeadlinePassed())),
    **{f"hooks of {phase.value}": hooked_at(phase) for phase in Phase},
}


@pytest.mark.parametrize("place", PLACES)
def test_cancel_now_ends_the_run_wherever_it_is(place: str) -> None:
    w = PLACES[place]()
    assert w.cancel(reason="enough").status == "accepted"
    late = place in ("stopping", "hooks of run_end")  # the first reason wins
    if ("cancel",) in w.outstanding:
        w.stopped()
    if any(key[1] == Phase.RUN_END.value for key in w.outstanding):
        w.phase(Phase.RUN_END)
    assert w.ended
    assert "run.cancel.requested" in w.types()
    if not late:
        assert (w.row.stage, w.last().termination, w.last().by) == ("cancelled", "cancelled", "ann")
        assert w.last().reason == "enough"
    w.check_end()
    assert w.cancel().code == "run_done"


@pytest.mark.parametrize("place", PLACES)
def test_the_deadline_ends_the_run_wherever_it_is(place: str) -> None:
    w = PLACES[place]()
    w.feed(inp.DeadlinePassed())
    if ("cancel",) in w.outstanding:
        w.stopped()
    if any(key[1] == Phase.RUN_END.value for key in w.outstanding):
        w.phase(Phase.RUN_END)
    assert w.ended
    if place != "hooks of run_end":
        assert (w.last().code, w.row.stage) == ("run_timeout", "failed")
    w.check_end()


def test_the_deadline_is_noticed_by_the_clock_also_while_waiting() -> None:
    w = World(agent(), deadline=100.0)
    waiting(w)
    w.tick(99)
    assert w.row.status is RunStatus.WAITING
    w.tick(1)
    w.stopped()
    assert w.last().code == "run_timeout"


def test_cancel_after_the_step_lets_the_calls_finish() -> None:
    w = World(agent())
    w.says(calls=[call("A", "look")])
    w.cancel("after_step")
    assert not w.ended
    w.returns("A", "result")
    assert (w.row.stage, w.statuses(), w.last().steps) == ("cancelled", {"A": "succeeded"}, 1)
    w.check_end()


@pytest.mark.parametrize("first", ["cancel", "wait"])
def test_cancel_after_the_step_does_not_wait_for_people(first: str) -> None:
    w = World(agent())
    if first == "cancel":
        w.cancel("after_step")
        waiting(w)
    else:
        waiting(w)
        w.cancel("after_step")
    w.stopped()
    assert (w.row.stage, w.statuses()) == ("cancelled", {"A": "cancelled"})


def test_a_body_that_ends_while_the_run_stops_keeps_its_result() -> None:
    w = World(agent(hooked=frozenset({Phase.AFTER_TOOL_EXECUTE})), execution="parallel_streaming")
    w.says(calls=[call("A", "write"), call("B", "write")])
    w.cancel()
    w.feed(inp.CallReturned(call_id="A", attempt=1, result="ok", shown="ok"))
    w.stopped("B")
    assert w.statuses() == {"A": "succeeded", "B": "cancelled"}
    assert w.last().stubborn == ("B",)
    assert "run.cleanup.overrun" in w.types()
    w.check_end()


@pytest.mark.parametrize("lives", [True, False])
def test_a_run_with_an_overrun_body_asks_for_the_living_bodies_before_the_end(lives: bool) -> None:
    w = World(agent())
    w.says(calls=[call("A", "write")])
    w.raises("A")
    w.feed(inp.BodyOverran(item=inp.Unfinished(call_id="A", tool="write", grace=0.5, stack="here")))
    w.feed(inp.BodyOverran(item=inp.Unfinished(call_id="A", tool="write", grace=0.5, stack="still here")))
    assert w.types().count("run.cleanup.overrun") == 1
    w.says("done")
    assert w.row.stage == "running"  # the answer is here; the end waits for the owner's word
    w.stopped(*(["A"] if lives else []))
    assert (w.row.stage, w.last().stubborn) == ("completed", ("A",) if lives else ())
    assert w.types().count("run.cleanup.overrun") == 1
    w.check_end()


def test_run_end_runs_only_if_run_start_began() -> None:
    w = World(agent(hooked=frozenset({Phase.RUN_END})), admitted=False)
    w.cancel()
    w.stopped()
    assert w.ended


def test_input_that_comes_during_run_end_is_not_lost() -> None:
    w = World(agent(hooked=frozenset({Phase.RUN_END})))
    w.says("done")
    w.send("thanks")
    w.phase(Phase.RUN_END)
    assert [m.content for m in w.store.messages] == ["done", "thanks"]
    w.check_end()


def test_a_failed_hook_of_run_end_degrades_the_run_and_keeps_the_outcome() -> None:
    w = World(agent(hooked=frozenset({Phase.RUN_END})))
    w.says("done")
    w.phase(Phase.RUN_END, failure="p: boom")
    assert (w.row.stage, w.last().output) == ("completed", "done")
    assert "run.degraded" in w.types()


def test_a_terminal_commit_that_met_a_command_is_taken_back_and_the_command_consumed() -> None:
    """Also if what ends the run is itself a command: it must not end the run before the next one, for ever."""
    w = World(agent(on_deny="cancel_run"))
    waiting(w)
    w.lazy = True
    w.decide("A", "cancel")
    w.post(LATE)
    w.stopped()
    assert w.ended
    w.ack_all()
    assert (w.row.inbox, w.finished) == (2, True)
    w.check_end()


LATE = Command(command_id="late", kind="send", text="wait")


# --- failures --------------------------------------------------------------------------------------------------------


def test_a_model_that_may_be_asked_again_is_asked_three_times() -> None:
    w = World(agent())
    delays = []
    for _ in range(2):
        w.answer(inp.ModelFailed(message_id=w.in_flight(), kind="overloaded", text="x", retryable=True))
        effect = w.outstanding["model", w.in_flight()]
        assert isinstance(effect, fx.CallModel)
        delays.append(effect.delay)
    w.answer(inp.ModelFailed(message_id=w.in_flight(), kind="overloaded", text="x", retryable=True))
    assert (delays, w.last().code, w.last().message) == ([0.5, 1.0], "model_error", "overloaded: x")
    w.check_end()


def model_fails(w: World, text: str = "x", *, retryable: bool = True) -> None:
    w.answer(inp.ModelFailed(message_id=w.in_flight(), kind="overloaded", text=text, retryable=retryable))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_failures_of_the_model_in_a_row_stop_the_run_in_place_of_asking_again(n: int) -> None:
    """Of two limits that are met at once the one that the agent declares wins."""
    w = World(agent(stop=(stop.MaxRounds(), stop.ConsecutiveErrors(n))))
    for number in range(n):
        assert not w.ended
        model_fails(w, f"the {number + 1}th")
    assert (w.last().termination, w.last().code) == ("stopped", "consecutive_errors")
    assert w.last().detail == f"{n} failed steps; the last one: overloaded: the {n}th"
    assert w.row.counters.errors == n
    w.check_end()


def test_the_first_of_two_failure_limits_ends_the_run() -> None:
    w = World(agent(stop=(stop.ConsecutiveErrors(4),)))
    for _ in range(3):
        model_fails(w)
    assert w.last().code == "model_error"


def test_a_failure_of_the_model_that_cannot_pass_fails_the_run_whatever_is_counted() -> None:
    w = World(agent(stop=(stop.ConsecutiveErrors(1),)))
    model_fails(w, retryable=False)
    assert w.last().code == "model_error"
    w.check_end()


@pytest.mark.parametrize("off", [0, None])
def test_consecutive_errors_can_be_switched_off_for_the_model_too(off: int | None) -> None:
    w = World(agent(stop=(stop.ConsecutiveErrors(off),)))
    for _ in range(3):
        model_fails(w)
    assert w.last().code == "model_error"


def test_model_failures_and_failed_steps_share_a_counter_that_a_good_step_resets() -> None:
    w = World(agent(stop=(stop.ConsecutiveErrors(3),)))
    model_fails(w)
    w.says(calls=[call("A", "look")])
    w.raises("A")
    assert w.row.counters.errors == 2
    w.says(calls=[call("B", "look")])
    w.returns("B")
    assert w.row.counters.errors == 0
    model_fails(w)
    model_fails(w)
    w.crash()
    assert w.row.counters.errors == 2, "an interruption is no failure, and forgets none"
    model_fails(w)
    assert w.last().code == "consecutive_errors"
    w.check_end()


def test_text_of_an_answer_that_broke_is_discarded() -> None:
    w = World(agent())
    w.feed(inp.ModelStreamed(message_id=w.in_flight(), text="once"))
    w.answer(inp.ModelFailed(message_id=w.in_flight(), kind="broken", text="x", retryable=True))
    assert "run.message.discarded" in w.types()
    w.says("again")
    assert [m.content for m in w.store.messages] == ["again"]


def blocked(w: World) -> None:
    w.says(calls=[call("A", "perhaps")])
    w.phase(Phase.TOOL_GATE, "A", verdict=Block("never"))


ENDS: dict[str, tuple[Callable[[World], Any], str, str | None]] = {
    "natural_end": (lambda w: w.says("done"), "completed", None),
    "behavior_requested": (lambda w: w.phase(Phase.STEP_START, end="that is all"), "completed", None),
    "stopped": (works, "completed", "max_rounds"),
    "cancelled": (lambda w: (w.cancel(), w.stopped()), "cancelled", None),
    "blocked": (blocked, "failed", "permission_denied"),
    "error": (lambda w: (w.says(calls=[call("A", "look")]), w.raises("A", fatal=True)), "failed", "tool_error"),
}


@pytest.mark.parametrize("kind", [kind for kind in TerminationKind if kind is not TerminationKind.SUSPENDED])
def test_every_kind_of_termination_is_produced(kind: TerminationKind) -> None:
    act, stage, code = ENDS[kind.value]
    hooked = frozenset({Phase.STEP_START}) if kind is TerminationKind.BEHAVIOR_REQUESTED else frozenset()
    w = World(agent(hooked=hooked, stop=(stop.MaxRounds(1),)))
    act(w)
    assert (w.last().termination, w.row.stage, w.last().code if kind != "behavior_requested" else None) == (
        kind,
        stage,
        code,
    )
    assert code is None or stage == "completed" or code in FAILURES
    w.check_end()


def test_a_refusal_fails_the_run_and_its_tokens_count() -> None:
    w = World(agent())
    refused(w)
    assert (w.last().code, w.last().message) == ("model_refusal", "I will not")
    assert w.last().usage == Usage(requests=1, input=3)


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.RUN_END])
@pytest.mark.parametrize(("what", "code"), [("failure", "plugin_error"), ("end", None)])
def test_a_hook_may_fail_the_run_or_end_it(phase: Phase, what: str, code: str | None) -> None:
    w = hooked_at(phase)()
    call_id = "A" if phase.value.startswith(("tool_", "before_tool", "after_tool")) else None
    w.phase(phase, call_id, **{what: "because"})
    assert w.ended
    assert w.last().code == code
    w.check_end()


def test_a_hook_that_ends_a_finished_run_keeps_its_checked_output() -> None:
    w = World(agent(hooked=frozenset({Phase.STEP_END}), check_output=form))
    w.says("3")
    w.phase(Phase.STEP_END, end="enough")
    assert (w.last().termination, w.last().output) == ("behavior_requested", {"n": 3})


# --- a new owner -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", PLACES)
def test_a_run_continues_from_everywhere_after_a_crash(place: str) -> None:
    w = PLACES[place]()
    asked = {key for key in w.outstanding if key[0] in ("phase", "guards")}
    w.crash()
    assert {key for key in w.outstanding if key[0] in ("phase", "guards")} == asked
    if place == "inference":
        assert w.types()[-2:] == ["run.inference.retried", "run.inference.started"]
    if place == "body":
        assert w.ticket("A").reason == "outcome_unknown"
    if place == "waiting":
        assert (w.row.status, w.parked) == (RunStatus.WAITING, {"A"})
    w.crash()
    w.cancel()
    if ("cancel",) in w.outstanding:
        w.stopped()
    if any(key[1] == Phase.RUN_END.value for key in w.outstanding):
        w.phase(Phase.RUN_END)
    w.check_end()


def test_a_body_that_is_safe_to_repeat_runs_again() -> None:
    w = World(agent())
    w.says(calls=[call("A", "look")])
    w.crash()
    assert w.running("A").attempt == 2
    w.feed(inp.CallReturned(call_id="A", attempt=1, result="old", shown="old"))
    assert w.statuses() == {"A": "running"}
    w.returns("A", "new")
    assert w.tool_texts() == {"A": "new"}


@pytest.mark.parametrize(
    ("action", "result", "status", "attempt"),
    [("resume", None, "running", 2), ("resume", "it did", "succeeded", 1), ("cancel", None, "cancelled", 1)],
)
def test_an_unknown_outcome_is_decided_by_a_person(action: str, result: Any, status: str, attempt: int) -> None:
    w = World(agent())
    w.says(calls=[call("A", "write")])
    w.crash()
    w.decide("A", action, result)
    assert (w.statuses()["A"], w.store.calls["A"].attempts) == (status, attempt)


def test_a_crash_before_the_receipt_undoes_the_commit() -> None:
    w = World(agent())
    w.lazy = True
    w.says(calls=[call("A", "write")])
    assert ("call", "A") not in w.outstanding, "an unsafe body waits for its receipt"
    w.crash()
    assert not w.store.calls
    assert w.row.position is RunPosition.INFERENCE


def test_another_spec_is_recorded_and_accepted() -> None:
    w = World(agent())
    w.crash(digest="two")
    degraded = [e.payload for e in w.store.events[1:] if e.type == "run.degraded"]
    assert [payload.reason for payload in degraded] == ["agent_changed"]


def test_hooks_that_the_new_spec_has_not_are_not_waited_for() -> None:
    for phase in Phase:
        w = hooked_at(phase)()
        w.spec = agent()
        w.crash()
        assert not any(key[0] == "phase" for key in w.outstanding), phase


def test_the_time_without_an_owner_is_not_active_time() -> None:
    w = World(agent())
    works(w)
    w.tick(10)
    works(w)
    w.lose_owner()
    w.now += timedelta(seconds=1000)
    w.feed(inp.Activate(agent_digest="one"))
    w.says("done")
    assert w.last().active_seconds == 10.0


@pytest.mark.parametrize("place", PLACES)
def test_an_owner_that_gives_up_fails_the_run_from_everywhere(place: str) -> None:
    w = PLACES[place]()
    w.lose_owner()
    w.feed(inp.FailUnrecoverable(detail="crashed three times"))
    w.stopped()
    assert (w.row.stage, w.last().code) == ("failed", "internal_error")
    w.check_end()


def test_a_run_without_an_owner_obeys_a_cancel() -> None:
    w = World(agent())
    waiting(w)
    w.lose_owner()
    w.spec = AgentSpec(key="a")
    w.post(LATE)
    w.post(Command(command_id="x", kind="cancel"))
    items = tuple(InboxItem(position=n, command=c) for n, (c, _) in enumerate(w.store.inbox, 1))
    w.feed(inp.CancelUnowned(items=items))
    w.stopped()
    assert w.row.stage == "cancelled"
    w.check_end()


def test_an_ended_run_takes_no_input() -> None:
    w = World(agent())
    w.says("done")
    for message in (
        inp.Activate(),
        inp.Admit(),
        inp.DeadlinePassed(),
        inp.WorkStopped(),
        inp.FailUnrecoverable(detail="x"),
    ):
        w.feed(message)  # the world checks that nothing comes of it


def test_each_position_has_a_place_in_these_tests() -> None:
    assert {PLACES[place]().row.position for place in PLACES} == set(RunPosition) - {RunPosition.ENDED}


def test_suspended_calls_are_reported_in_the_history_after_a_cancel() -> None:
    w = World(agent())
    w.says(calls=[call("A", "pay"), call("B", "write")])
    w.suspends("B", Suspend())
    w.cancel()
    w.stopped()
    assert w.tool_texts() == dict.fromkeys("AB", "This call was cancelled before it finished.")
    w.check_end()
