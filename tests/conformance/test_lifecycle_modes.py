"""Rules of the execution modes: in which order the calls of one step are executed, and when decisions act."""

import pytest

from greenroom.testing import call

from ..support.scenes import Life, after, approve, decide, deny, pause, restart, send

SEQUENTIAL, BATCH, STREAMING = "sequential", "parallel_batch_approval", "parallel_streaming"
PARALLEL = pytest.mark.parametrize("mode", [BATCH, STREAMING])
A, B, C = call("pay", id="A"), call("sign", id="B"), call("look", id="C")


def only(*modes: str) -> pytest.MarkDecorator:
    """The rule holds in these modes."""
    return pytest.mark.parametrize("mode", modes)


def looks(*seconds: float) -> list:
    """Calls that take so long each, named L1, L2, ..."""
    return [call("look", seconds=each, id=f"L{number}") for number, each in enumerate(seconds, 1)]


def starts(life: Life) -> dict[str, float]:
    """Call -> when its newest body started, in seconds."""
    started = [event for event in life.events if event.type == "run.tool.started"]
    return {event.payload["callId"]: life.second(event) for event in started}


# --- the order of the bodies -----------------------------------------------------------------------------------------


@pytest.mark.rule("L-20")
@only(SEQUENTIAL)
async def test_in_sequence_one_body_runs_at_a_time_in_the_model_s_order(play, autojump_clock):
    life = await play(looks(3, 2, 1), "done")
    assert starts(life) == {"L1": 0.0, "L2": 3.0, "L3": 5.0}
    assert life.scene.outside.peak == 1


@pytest.mark.rule("L-20")
@only(BATCH, STREAMING)
async def test_in_parallel_all_bodies_run_at_once(play, autojump_clock):
    life = await play(looks(3, 2, 1), "done")
    assert starts(life) == {"L1": 0.0, "L2": 0.0, "L3": 0.0}
    assert life.effects == ["L3", "L2", "L1"]


async def test_results_enter_the_history_in_the_model_s_order(play, autojump_clock):
    life = await play(looks(3, 2, 1), "done")
    assert life.history[2:5] == ["L1: saw L1", "L2: saw L2", "L3: saw L3"]


@pytest.mark.rule("L-22")
async def test_a_failure_stops_no_other_call(play, autojump_clock):
    life = await play([call("fails", id="X", seconds=1), *looks(3)], "done")
    assert life.calls == {"X": "new running failed", "L1": "new running succeeded"}


@pytest.mark.rule("L-18")
async def test_a_run_may_have_another_mode_than_its_agent(play, autojump_clock):
    other = SEQUENTIAL if play.mode != SEQUENTIAL else STREAMING
    life = await play(looks(3, 2), "done", execution=other)
    assert life.scene.outside.peak == (1 if play.mode == SEQUENTIAL else 2)
    assert life.record.info.execution == play.mode


@pytest.mark.rule("L-18")
async def test_without_one_of_its_own_a_run_has_its_agent_s_mode(play, autojump_clock):
    life = await play(looks(3, 2), "done", execution=play.mode, start={"execution": None})
    assert life.record.info.execution == play.mode
    assert life.scene.outside.peak == (1 if play.mode == SEQUENTIAL else 2)


# --- a gate suspends -------------------------------------------------------------------------------------------------


@pytest.mark.rule("L-19")
async def test_all_calls_are_gated_first_and_their_tickets_appear_together(play, autojump_clock):
    life = await play([C, A, B])
    assert life.seconds("approval.requested", call_id="A") == life.seconds("approval.requested", call_id="B") == 0.0
    requested = life.types.index("approval.requested")
    assert requested < life.types.index("tool.started")
    assert list(life.tickets) == ["r.t1", "r.t2"]


async def test_what_is_allowed_runs_while_the_others_wait_for_people(play, autojump_clock):
    life = await play([A, B, C])
    assert life.calls == {"A": "new suspended", "B": "new suspended", "C": "new running succeeded"}
    assert life.path == "running waiting"
    assert life.seconds("waiting") == 10.0


@pytest.mark.rule("L-19")
async def test_gates_are_asked_in_the_model_s_order_one_at_a_time(play, autojump_clock):
    gates = [call("spend", cents=500, thinking=seconds, id=f"S{seconds}") for seconds in (3, 2, 1)]
    life = await play(gates)
    asked = [payload["callId"] for payload in life.payloads("approval.requested")]
    assert asked == ["S3", "S2", "S1"]
    assert life.seconds("approval.requested", call_id="S1") == 6.0
    assert life.scene.outside.peak == 1


async def test_a_run_does_not_rest_while_a_gate_is_being_asked(play, autojump_clock):
    life = await play([B, call("spend", cents=200, thinking=20, id="S")], do=[after(5, send("x"))])
    assert (life.path, life.seconds("waiting")) == ("running waiting", 20.0)


@pytest.mark.rule("L-19")
async def test_no_body_runs_before_all_gates_have_answered(play, autojump_clock):
    life = await play([C, call("spend", cents=1, thinking=7, id="S")], "done")
    assert starts(life)["C"] == 7.0


# --- a body suspends -------------------------------------------------------------------------------------------------


@pytest.mark.rule("L-21")
@only(SEQUENTIAL)
async def test_in_sequence_later_calls_stay_new_until_a_suspended_body_is_decided_and_then_run(play, autojump_clock):
    """They are put off, not failed: the model need not ask for them again."""
    life = await play([call("ask", id="D"), *looks(1, 1)])
    assert life.calls == {"D": "new running suspended", "L1": "new", "L2": "new"}
    assert life.path == "running waiting"


@only(SEQUENTIAL)
async def test_in_sequence_later_calls_run_in_order_after_the_decision(play, autojump_clock):
    life = await play([call("ask", id="D"), *looks(1, 1)], "done", do=[approve("D", "go on")])
    assert life.effects == ["D", "L1", "L2"]
    assert life.calls["L1"] == life.calls["L2"] == "new running succeeded"


@pytest.mark.rule("L-21")
@only(BATCH, STREAMING)
async def test_in_parallel_others_continue_beside_a_suspended_body(play, autojump_clock):
    life = await play([call("ask", id="D"), *looks(1, 1)])
    assert life.calls == {"D": "new running suspended", "L1": "new running succeeded", "L2": "new running succeeded"}
    assert life.path == "running waiting"


# --- when decisions act ----------------------------------------------------------------------------------------------


@pytest.mark.rule("L-23")
@only(SEQUENTIAL, STREAMING)
async def test_a_decision_acts_at_once_whatever_else_is_undecided(play, autojump_clock):
    life = await play([A, B], do=[approve("B")])
    assert life.calls == {"A": "new suspended", "B": "new suspended resuming running succeeded"}
    assert life.effects == ["B"]


@pytest.mark.rule("L-23", "A-23")
@only(BATCH)
async def test_in_a_batch_decisions_act_when_all_suspended_calls_are_decided(play, autojump_clock):
    life = await play([A, B], do=[approve("B")])
    assert life.calls == {"A": "new suspended", "B": "new suspended"}
    assert life.tickets == {"r.t1": ("tool_permission", "open"), "r.t2": ("tool_permission", "approved")}
    assert [ticket.call_id for ticket in life.outcome.tickets] == ["A"]


@only(BATCH)
async def test_in_a_batch_a_decision_waits_for_gates_that_have_not_answered_as_for_tickets(play, autojump_clock):
    """A is approved while it is still being found out whether B needs a person."""
    calls = [call("sign", id="A"), call("spend", cents=200, thinking=20, id="B")]
    life = await play(calls, "done", do=[after(5, decide("A")), after(35, decide("B"))])
    assert life.calls == dict.fromkeys("AB", "new suspended resuming running succeeded")
    assert life.seconds("tool.resumed", call_id="A") == life.seconds("tool.resumed", call_id="B") == 40.0


@only(BATCH)
async def test_in_a_batch_the_last_decision_lets_all_of_them_act_together(play, autojump_clock):
    life = await play([A, B], "done", do=[approve("B"), approve("A")])
    assert starts(life)["A"] == starts(life)["B"]
    assert life.path == "running waiting applying running completed"


@only(BATCH)
@pytest.mark.parametrize("last", ["approved", "denied", "expired"])
async def test_in_a_batch_a_denial_and_an_expiry_are_decisions_too(play, autojump_clock, last):
    """An approval is held until the other ticket is closed, in whatever way."""
    acts = {"approved": approve("D", "yes"), "denied": deny("D"), "expired": pause(100)}
    life = await play([B, call("ask", expires=50, id="D")], "done", do=[approve("B"), acts[last]])
    assert life.tickets["r.t2"] == ("user_input", last)
    assert life.calls["B"] == "new suspended resuming running succeeded"
    assert life.outcome.output == "done"


@only(BATCH)
async def test_in_a_batch_a_denial_waits_for_the_others_as_well(play, autojump_clock):
    life = await play([A, B], do=[deny("B")])
    assert life.calls["B"] == "new suspended"
    assert life.tickets["r.t2"] == ("tool_permission", "denied")


@only(BATCH)
@pytest.mark.parametrize("cents", [1, 200], ids=["runs", "asks"])
async def test_in_a_batch_a_decision_waits_for_gates_that_have_not_answered(play, autojump_clock, cents):
    """They may ask for another one."""
    asks = cents > 100
    step = [B, call("spend", cents=cents, thinking=20, id="S")]
    life = await play(step, "done", do=[after(5, approve("B")), *([pause(30), approve("S")] if asks else [])])
    assert life.seconds("approval.resolved") == 5.0
    assert life.seconds("tool.resumed", call_id="B") == (50.0 if asks else 20.0)
    assert life.outcome.output == "done"


@only(BATCH)
async def test_a_decision_that_is_held_survives_a_restart(play, autojump_clock):
    life = await play([A, B], "done", do=[approve("B"), restart, approve("A")])
    assert sorted(life.effects) == ["A", "B"]
    assert life.replies == ["accepted", "accepted"]


async def test_a_partial_set_of_decisions_loses_no_call(play, autojump_clock):
    """Of three, one is decided before a restart and one after it; the third is still asked for."""
    third = call("sign", cents=3, id="E")
    life = await play([A, B, third], do=[approve("A"), restart, approve("B")])
    assert [ticket.call_id for ticket in life.outcome.tickets] == ["E"]
    assert sorted(life.effects) == ([] if play.mode == BATCH else ["A", "B"])


@only(STREAMING, BATCH)
async def test_a_decision_acts_while_a_sibling_still_runs(play, autojump_clock):
    life = await play([B, C], "done", do=[after(2, approve("B"))])
    assert starts(life) == {"B": 2.0, "C": 0.0}
    assert life.path == "running completed"


@only(SEQUENTIAL)
async def test_in_sequence_a_decided_call_moves_at_once_and_its_body_waits_for_the_running_one(play, autojump_clock):
    life = await play([B, C], "done", do=[after(2, approve("B"))])
    assert life.seconds("tool.resumed") == 2.0
    assert starts(life) == {"B": 10.0, "C": 0.0}
    assert life.path == "running completed"


@only(SEQUENTIAL)
async def test_in_sequence_a_decided_call_does_not_wait_for_another_approval(play, autojump_clock):
    """Else the run would seem to work although nothing moves."""
    life = await play([call("ask", id="D"), B], do=[approve("B")])
    assert life.calls == {"D": "new running suspended", "B": "new suspended resuming running succeeded"}
    assert life.path == "running waiting running waiting"


async def test_decisions_act_in_the_order_in_which_they_were_accepted(play, autojump_clock):
    life = await play([A, B, C], "done", do=[after(2, decide("B")), after(0, decide("A"))])
    assert [payload["callId"] for payload in life.payloads("approval.resolved")] == ["B", "A"]
    resumed = [payload["callId"] for payload in life.payloads("tool.resumed")]
    assert resumed == (["A", "B"] if play.mode == BATCH else ["B", "A"])


# --- tools that want to be alone, or in order ------------------------------------------------------------------------


@pytest.mark.rule("L-24")
async def test_an_exclusive_call_waits_for_all_before_it_and_all_after_it_wait_for_it(play, autojump_clock):
    life = await play([*looks(3), call("alone", id="Z", seconds=2), call("look", id="L2", seconds=1)], "done")
    assert starts(life) == {"L1": 0.0, "Z": 3.0, "L2": 5.0}
    assert life.scene.outside.peak == 1


async def test_an_exclusive_call_waits_for_suspended_ones_before_it_too(play, autojump_clock):
    life = await play([B, call("alone", id="Z")])
    assert life.calls == {"B": "new suspended", "Z": "new"}
    assert life.path == "running waiting"


@pytest.mark.rule("L-25")
async def test_ordered_calls_run_one_at_a_time_in_the_model_s_order(play, autojump_clock):
    turns = [call("turn", seconds=seconds, id=f"T{seconds}") for seconds in (3, 2, 1)]
    life = await play(turns, "done")
    assert starts(life) == {"T3": 0.0, "T2": 3.0, "T1": 5.0}


@pytest.mark.rule("L-25")
@only(BATCH, STREAMING)
async def test_ordered_calls_run_beside_shared_ones(play, autojump_clock):
    life = await play([call("turn", id="T1"), call("turn", id="T2"), *looks(4)], "done")
    assert starts(life) == {"T1": 0.0, "T2": 10.0, "L1": 0.0}


@only(SEQUENTIAL, STREAMING)
async def test_an_approved_call_that_is_not_in_its_turn_is_held_and_the_run_continues_waiting(play, autojump_clock):
    oaths = [call("oath", id="O1"), call("oath", id="O2")]
    life = await play(oaths, do=[approve("O2")])
    assert life.calls == {"O1": "new suspended", "O2": "new suspended"}
    assert [ticket.call_id for ticket in life.outcome.tickets] == ["O1"]
    assert life.path == "running waiting"


async def test_calls_in_order_that_are_approved_in_the_other_order_run_in_theirs(play, autojump_clock):
    oaths = [call("oath", id="O1"), call("oath", id="O2")]
    life = await play(oaths, "done", do=[approve("O2"), approve("O1")])
    assert life.effects == ["O1", "O2"]


# --- the cap ---------------------------------------------------------------------------------------------------------


@pytest.mark.rule("L-26")
@only(BATCH, STREAMING)
async def test_no_more_bodies_run_at_once_than_the_cap(play, autojump_clock):
    life = await play(looks(3, 2, 1, 1), "done", max_bodies=2)
    assert starts(life) == {"L1": 0.0, "L2": 0.0, "L3": 2.0, "L4": 3.0}
    assert life.scene.outside.peak == 2


@pytest.mark.rule("L-26")
@only(BATCH, STREAMING)
async def test_sixteen_bodies_are_the_default_cap(play, autojump_clock):
    life = await play(looks(*[1] * 20), "done")
    assert life.scene.outside.peak == 16


@pytest.mark.rule("L-26")
@only(BATCH, STREAMING)
async def test_suspended_calls_and_gates_hold_no_slot(play, autojump_clock):
    life = await play([B, call("ask", id="D"), call("ask", id="E"), *looks(2, 2)], max_bodies=1)
    assert life.calls["L1"] == life.calls["L2"] == "new running succeeded"
