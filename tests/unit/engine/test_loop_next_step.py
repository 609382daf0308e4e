"""What a step comes to: the table of docs/loop.md, and which of several failures ends the run."""

import itertools
from typing import Any

import pytest

from greenroom.actors.contract.calls import CallPosition, CallStatus
from greenroom.actors.contract.decisions import Ticket
from greenroom.actors.contract.facts import FinalOutput
from greenroom.actors.contract.messages import CallRequest
from greenroom.actors.contract.rows import CallRow, Handover
from greenroom.actors.contract.spec import AgentSpec, ToolSpec
from greenroom.actors.engine.body_inputs import CallRaised
from greenroom.actors.engine.calls import derive_stage
from greenroom.actors.engine.next_step import Interruption, NextStep, RunAgain, choose_next
from greenroom.actors.engine.step_calls import StepCalls

from .world import START, World, call

SPECS = {
    "run_model_again": "run_model_again",
    "stop_on_first_tool": "stop_on_first_tool",
    "stop at b": frozenset({"b"}),
}
ENDS = {
    "succeeded": (CallPosition.SETTLED, CallStatus.SUCCEEDED),
    "failed": (CallPosition.SETTLED, CallStatus.FAILED),
    "cancelled": (CallPosition.SETTLED, CallStatus.CANCELLED),
    "after": (CallPosition.AFTER, CallStatus.SUCCEEDED),
    "body": (CallPosition.BODY, None),
    "new": (CallPosition.NEW, None),
    "gating": (CallPosition.GATING, None),
    "parked": (CallPosition.PARKED, None),
    "decided": (CallPosition.DECIDED, None),
}
ENDED, WAITING = ("succeeded", "failed", "cancelled"), ("parked", "decided")
MOVING = ("after", "body", "gating")


def row(index: int, how: str) -> CallRow:
    """A call of the tools a, b, c in this condition; its result is the tool's name."""
    at, outcome = ENDS[how]
    name = "abc"[index]
    ticket = Ticket(
        ticket_id=f"t{index}",
        run_id="r",
        call_id=name,
        tool=name,
        arguments={},
        reason="tool_permission",
        fingerprint="",
        requested_at=START,
    )
    return CallRow(
        call_id=name,
        index=index,
        step=1,
        tool=name,
        arguments={},
        fingerprint="",
        requested=CallRequest(call_id=name, tool=name, arguments={}),
        at=at,
        outcome=outcome,
        result=f"result of {name}",
        attempts=1 if how == "body" else 0,
        ticket=ticket if how in WAITING else None,
    )


def comes_to(rule: Any, *hows: str, text: str = "said", **tools: Any) -> NextStep | None:
    """What a step with these calls comes to."""
    spec = AgentSpec(key="k", tools={name: ToolSpec(name=name, **tools) for name in "abc"}, tool_use=rule)
    calls = StepCalls(row(index, how) for index, how in enumerate(hows))
    return choose_next(spec, calls, derive_stage(calls), text)


@pytest.mark.rule("LO-4")
@pytest.mark.parametrize("rule", SPECS.values(), ids=list(SPECS))
@pytest.mark.parametrize("text", ["said", ""])
def test_without_calls_the_last_text_is_the_output_also_an_empty_one(rule: Any, text: str) -> None:
    assert comes_to(rule, text=text) == FinalOutput(text)


@pytest.mark.rule("LO-1", "LO-2", "LO-3")
@pytest.mark.parametrize("rule", SPECS.values(), ids=list(SPECS))
@pytest.mark.parametrize("hows", list(itertools.product(ENDS, repeat=2)), ids=" ".join)
def test_the_first_row_that_holds_decides(rule: Any, hows: tuple[str, str]) -> None:
    found = comes_to(rule, *hows)
    first = 1 if rule == frozenset({"b"}) else 0
    results = [n for n, how in enumerate(hows) if how == "succeeded" and n >= first]
    if any(how in MOVING for how in hows) or ("new" in hows and not any(how in WAITING for how in hows)):
        assert found is None
    elif any(how in WAITING for how in hows):
        assert found == Interruption(tuple(f"t{n}" for n, how in enumerate(hows) if how == "parked"))
    elif rule != "run_model_again" and results:
        assert found == FinalOutput(f"result of {'abc'[results[0]]}")
    else:
        assert found == RunAgain()


@pytest.mark.rule("LO-2")
def test_a_tool_whose_result_is_no_output_is_passed_over() -> None:
    assert comes_to("stop_on_first_tool", "succeeded", output=False) == RunAgain()


@pytest.mark.rule("LO-28")
@pytest.mark.parametrize("rule", SPECS.values(), ids=list(SPECS))
@pytest.mark.parametrize("hows", list(itertools.product(ENDS, repeat=2)), ids=" ".join)
def test_a_handoff_comes_after_waiting_calls_and_before_an_output_of_tools(rule: Any, hows: tuple[str, str]) -> None:
    spec = AgentSpec(key="k", tools={name: ToolSpec(name=name) for name in "abc"}, tool_use=rule)
    calls = StepCalls(row(index, how) for index, how in enumerate(hows))
    handoff = Handover(agent="other", call_id="a")
    found = choose_next(spec, calls, derive_stage(calls), "said", handoff=handoff)
    without = choose_next(spec, calls, derive_stage(calls), "said")
    settled = all(how in ENDED for how in hows)
    assert found == (handoff if settled else without)


def test_no_result_counts_while_a_sibling_waits() -> None:
    assert comes_to("stop_on_first_tool", "succeeded", "parked") == Interruption(("t1",))


# --- which failure ends the run --------------------------------------------------------------------------------------

SPEC = AgentSpec(key="k", tools={"look": ToolSpec(name="look")})


def running(*names: str) -> World:
    """A run with these bodies running."""
    w = World(SPEC, execution="parallel_streaming", deadline=50)
    w.says(calls=[call(name, "look") for name in names])
    return w


def raises(w: World, name: str, *, fatal: bool = True) -> None:
    """A body fails, possibly while the work is being stopped."""
    w.dying.pop(("call", name), None)
    w.outstanding.pop(("call", name), None)
    w.feed(CallRaised(call_id=name, attempt=1, code="tool_error", shown=f"{name} is broken", fatal=fatal))


@pytest.mark.rule("LO-11")
@pytest.mark.parametrize("order", list(itertools.permutations("ABC")), ids="".join)
def test_of_several_failures_the_first_in_the_models_order_is_reported(order: tuple[str, ...]) -> None:
    w = running("A", "B", "C")
    for name in order:
        raises(w, name)
    w.stopped()
    assert (w.last().code, w.last().message) == ("tool_error", "look: A is broken")
    (result,) = (e.payload for e in w.store.events[1:] if e.type == "run.tool.result" and e.payload.call_id == "A")
    assert w.last().error_id == result.error_id
    w.check_end()


@pytest.mark.rule("LO-11")
def test_a_failure_that_the_model_may_read_is_not_reported_as_the_end() -> None:
    w = running("A", "B")
    raises(w, "B")
    raises(w, "A", fatal=False)
    w.stopped()
    assert w.last().message == "look: B is broken"


@pytest.mark.parametrize(
    ("end", "code"), [(World.cancel, None), (lambda w: w.tick(100), "run_timeout")], ids=["cancel", "deadline"]
)
def test_another_reason_for_the_end_stays(end: Any, code: str | None) -> None:
    w = running("A", "B")
    end(w)
    raises(w, "A")
    w.stopped()
    assert w.last().code == code
