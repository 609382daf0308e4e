"""The two machines and what is derived from them, held against design page 2 as it is written there."""

from itertools import product

import pytest

from greenroom.actors.contract.calls import CALLS, SETTLED, CallStatus
from greenroom.actors.contract.catalogue import CATALOGUE, LIFECYCLE_EVENT, TERMINAL_EVENTS
from greenroom.actors.contract.failures import FAILURES
from greenroom.actors.contract.lifecycle import (
    APPLYING_EFFECTS,
    STAGES,
    STATUS,
    TERMINAL,
    TERMINATION_STAGE,
    RunStatus,
    Stage,
    TerminationKind,
)
from greenroom.actors.contract.phases import RUN_POSITIONS, Phase

# stage | status | may go to; copied from the design, not from the program
RUN_TABLE = """
created        | created | planned, failed, cancelled
planned        | created | accepted, failed, cancelled
accepted       | created | preparing, failed, cancelled
preparing      | created | running, failed, cancelled
running        | running | needs_approval, applying, completed, failed, cancelled
needs_approval | waiting | running, applying, failed, cancelled
applying       | running | running, needs_approval, completed, failed, cancelled
completed      | done    |
failed         | done    |
cancelled      | done    |
"""
CALL_TABLE = """
new       | running, suspended, succeeded, failed, cancelled
running   | suspended, succeeded, failed, cancelled
suspended | resuming, cancelled
resuming  | running, suspended, succeeded, failed, cancelled
succeeded |
failed    |
cancelled |
"""
TERMINATIONS = """
natural_end        | completed
behavior_requested | completed
stopped            | completed
cancelled          | cancelled
blocked            | failed
suspended          | needs_approval
error              | failed
"""
SEED_CODES = """runtime_unavailable workspace_outside_allowlist permission_denied approval_rejected run_timeout
    schema_validation_failed target_offline"""
OUR_CODES = """model_error model_bug model_behavior_error model_refusal guardrail_tripped tool_error plugin_error
    state_conflict    budget_exhausted lease_lost outcome_unknown internal_error runtime_failed"""


def rows(text):
    return [[cell.strip() for cell in line.split("|")] for line in text.strip().splitlines()]


def names(cell):
    return {name.strip() for name in cell.split(",") if name.strip()}


RUN = {stage: names(following) for stage, _, following in rows(RUN_TABLE)}
CALL = {status: names(following) for status, following in rows(CALL_TABLE)}


@pytest.mark.parametrize(("source", "target"), [*product(Stage, Stage)], ids=lambda stage: stage.value)
def test_a_run_moves_exactly_where_the_design_lets_it(source, target):
    assert (target in STAGES[source]) == (target.value in RUN[source.value])


@pytest.mark.parametrize(("source", "target"), [*product(CallStatus, CallStatus)], ids=lambda status: status.value)
def test_a_call_moves_exactly_where_the_design_lets_it(source, target):
    assert (target in CALLS[source]) == (target.value in CALL[source.value])


def test_both_tables_have_a_row_for_each_state_and_no_other():
    assert set(STAGES) == set(Stage) == set(RUN)
    assert set(CALLS) == set(CallStatus) == set(CALL)


def test_nothing_leaves_a_terminal_state():
    assert {stage.value for stage in TERMINAL} == {"completed", "failed", "cancelled"}
    assert {status.value for status in SETTLED} == {"succeeded", "failed", "cancelled"}
    assert not any(STAGES[stage] for stage in TERMINAL)
    assert not any(CALLS[status] for status in SETTLED)


@pytest.mark.parametrize("table", [STAGES, CALLS], ids=["run", "call"])
def test_each_state_can_be_reached_from_the_first_and_can_come_to_an_end(table):
    def reach(start):
        seen, todo = {start}, [start]
        while todo:
            for one in table[todo.pop()] - seen:
                seen.add(one)
                todo.append(one)
        return seen

    ends = {state for state in table if not table[state]}
    assert reach(next(iter(table))) == set(table)
    assert all(reach(state) & ends for state in table)


def test_a_run_can_be_cancelled_and_can_fail_wherever_it_is_not_over():
    for stage in set(Stage) - TERMINAL:
        assert {Stage.CANCELLED, Stage.FAILED} <= STAGES[stage]


def test_the_status_is_the_one_that_the_design_gives_each_stage():
    assert {stage.value: status.value for stage, status in STATUS.items()} == {
        stage: status for stage, status, _ in rows(RUN_TABLE)
    }


def test_every_way_out_of_the_loop_has_the_stage_that_the_design_gives_it():
    assert {kind.value: stage.value for kind, stage in TERMINATION_STAGE.items()} == dict(rows(TERMINATIONS))
    assert set(TERMINATION_STAGE) == set(TerminationKind)
    waiting = [kind for kind, stage in TERMINATION_STAGE.items() if STATUS[stage] is RunStatus.WAITING]
    assert waiting == [TerminationKind.SUSPENDED]


def test_the_effect_classes_that_apply_are_those_of_the_design():
    assert {"write", "patch", "shell", "publish", "deploy"} == APPLYING_EFFECTS


def test_the_nine_phases_stand_in_their_fixed_order():
    assert [phase.value for phase in Phase] == [
        *("run_start", "step_start", "before_inference", "after_inference"),
        *("tool_gate", "before_tool_execute", "after_tool_execute"),
        *("step_end", "run_end"),
    ]


def test_each_phase_is_run_level_under_its_own_name_or_is_per_call():
    hooks = {position: row.hooks for position, row in RUN_POSITIONS.items() if row.hooks is not None}
    assert all(position.value == phase.value for position, phase in hooks.items())
    assert set(Phase) - set(hooks.values()) == {*(Phase.TOOL_GATE, Phase.BEFORE_TOOL_EXECUTE, Phase.AFTER_TOOL_EXECUTE)}
    assert list(hooks.values()) == [phase for phase in Phase if phase in hooks.values()]


def test_each_stage_is_announced_by_an_event_of_the_catalogue_and_each_end_by_its_own():
    assert set(LIFECYCLE_EVENT) == set(Stage)
    assert set(LIFECYCLE_EVENT.values()) <= set(CATALOGUE)
    assert len(set(LIFECYCLE_EVENT.values())) == len(Stage)
    assert {LIFECYCLE_EVENT[stage] for stage in TERMINAL} == TERMINAL_EVENTS


@pytest.mark.parametrize("state", [*Stage, *CallStatus, *TerminationKind, *Phase])
def test_a_state_prints_as_its_value(state):
    assert f"{state}" == str(state) == state.value


def test_the_failure_catalogue_has_exactly_the_codes_of_the_design():
    assert set(FAILURES) == set(SEED_CODES.split()) | set(OUR_CODES.split())


@pytest.mark.parametrize("code", sorted(FAILURES))
def test_each_failure_says_what_happened_and_what_to_do_in_both_languages(code):
    row = FAILURES[code]
    assert row.code == code
    for text in (row.meaning, row.message, row.recovery, row.message_zh, row.recovery_zh):
        assert text.strip() == text != ""
    assert (row.message + row.recovery).isascii()
    assert all(any("\u4e00" <= letter <= "\u9fff" for letter in text) for text in (row.message_zh, row.recovery_zh))
    assert "something went wrong" not in row.message.lower()
