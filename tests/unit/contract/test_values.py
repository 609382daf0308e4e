"""The small values of the contract: what they refuse, and what they derive."""

from datetime import UTC, datetime, timedelta

import attrs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.actors.contract.calls import CallStatus
from greenroom.actors.contract.casing import wire
from greenroom.actors.contract.commits import Commit, EventDraft
from greenroom.actors.contract.converters import converter
from greenroom.actors.contract.decisions import Command, CommandResult, Decision, InboxItem, SetResult, Suspend, Ticket
from greenroom.actors.contract.lifecycle import STATUS, RunStatus, Stage
from greenroom.actors.contract.messages import CallRequest, Usage
from greenroom.actors.contract.rows import CallRow, CommandContext, RunInfo, RunRecord, RunRow
from greenroom.actors.contract.spec import MODES
from greenroom.actors.contract.stop import ContentMatch

from .strategies import field_names, instances

AT = datetime(2025, 1, 2, tzinfo=UTC)
INFO = RunInfo(run_id="r", thread_id="t", agent="a", agent_digest="d", created_at=AT, execution="sequential")
ITEM = InboxItem(position=1, command=Command(command_id="c", kind="send"))


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"resume_mode": "again"}, "resume_mode='again' is not known; use one of replay_tool_call, use_decision_as"),
        ({"expires_after": 0}, "expires_after=0 seconds: give a positive number, or None to wait for ever"),
        ({"expires_after": float("nan")}, "expires_after=nan seconds"),
        ({"expires_after": timedelta(minutes=5)}, r"seconds=300.* give a positive number, or None to wait for ever"),
        ({"expires_after": "1h"}, "expires_after='1h' seconds: give a positive number"),
        ({"expires_after": True}, "expires_after=True seconds: give a positive number"),
        ({"on_expiry": "shrug"}, "on_expiry='shrug' is not known; use 'deny', 'cancel_run' or gr.SetResult"),
    ],
)
def test_an_invalid_suspend_is_refused_when_it_is_made(wrong, complaint):
    with pytest.raises(ValueError, match=complaint):
        Suspend(**wrong)


def test_a_suspension_can_be_returned_or_raised():
    suspend = Suspend(message="may I?", expires_after=5, on_expiry=SetResult("no"))
    with pytest.raises(Suspend) as caught:
        raise suspend
    assert caught.value is suspend
    assert suspend.on_expiry == SetResult("no")


def test_an_expression_that_does_not_compile_is_refused_where_it_is_written():
    with pytest.raises(ValueError, match=r"ContentMatch\('\('\) is not a regular expression"):
        ContentMatch("(")


@given(instances(Usage), instances(Usage), instances(Usage))
def test_usages_add_up_in_any_order(one, two, three):
    assert one + two == two + one
    assert (one + two) + three == one + (two + three)
    assert one + Usage() == one
    assert (one + two).total == one.total + two.total


@given(st.sampled_from(Stage), st.booleans())
def test_a_run_is_at_rest_when_it_is_done_or_waits_and_nothing_is_in_its_inbox(stage, pending):
    record = RunRecord(info=INFO, row=RunRow(stage=stage), inbox=(ITEM,) if pending else ())
    assert record.row.status is STATUS[stage]
    if stage is Stage.NEEDS_APPROVAL:
        assert record.at_rest == (not pending)
    else:
        assert record.at_rest == (record.row.status is RunStatus.DONE)


@given(st.integers(0, 1000), st.integers(0, 5))
def test_a_commit_ends_at_the_sequence_of_its_last_event(before, number):
    commit = Commit(run_id="r", expected_last=before, at=AT, row=RunRow(), events=(EventDraft("x", None),) * number)
    assert commit.last == before + number


@given(st.none() | instances(CallRow))
def test_without_a_ticket_a_decision_occupies_its_call(call):
    key = CommandContext(stage=Stage.RUNNING, pending=0, call=call).target_key
    assert key == (None if call is None else f"call:{call.call_id}")


@pytest.mark.parametrize(("status", "ok"), [("accepted", True), ("duplicate", True), ("rejected", False)])
def test_an_answer_is_ok_when_the_command_is_journaled(status, ok):
    assert CommandResult(status=status).ok is ok


def test_the_execution_modes_are_the_three_columns_of_the_design():
    assert {name: attrs.astuple(row) for name, row in MODES.items()} == {
        "sequential": (1, True, False, "at_once"),
        "parallel_batch_approval": (None, False, True, "together"),
        "parallel_streaming": (None, False, False, "together"),
    }


@pytest.mark.parametrize("value", [INFO, RunRow(), ITEM, Decision(target="t", action="cancel"), Usage()])
def test_values_of_the_contract_are_frozen(value):
    name = field_names(type(value))[0]
    with pytest.raises(AttributeError):
        setattr(value, name, None)


def test_a_call_begins_in_position_new_with_the_request_of_the_model():
    request = CallRequest(call_id="c", tool="t", arguments={"a": 1})
    call = CallRow(call_id="c", index=0, step=1, tool="t", arguments={"a": 1}, fingerprint="f", requested=request)
    assert (call.status, call.attempts, call.edited) == (CallStatus.NEW, 0, False)


def test_a_ticket_makes_decisions_for_exactly_its_action():
    ticket = Ticket(
        ticket_id="r.t1", run_id="r", call_id="c", tool="pay", arguments={"cents": 9}, fingerprint="f",
        reason="tool_permission", requested_at=AT,
    )  # fmt: skip
    yes = ticket.approve({"n": 1}, edited_arguments={"cents": 5}, reason="ok", by="ada")
    assert (yes.target, yes.action, yes.fingerprint, yes.decided_by) == ("r.t1", "resume", "f", "ada")
    assert (yes.result, yes.edited_arguments, yes.reason) == ({"n": 1}, {"cents": 5}, "ok")
    no = ticket.deny("too much", by="bob")
    assert (no.target, no.action, no.fingerprint, no.reason, no.decided_by) == (
        "r.t1",
        "cancel",
        "f",
        "too much",
        "bob",
    )


def test_a_count_that_is_unset_is_in_no_json():
    """An event, a row and a document of a usage without incomplete requests are those of earlier releases."""
    known = {"requests": 1, "input": 0, "output": 0, "cached": 0, "reasoning": 0}
    assert wire(Usage(requests=1)) == converter.unstructure(Usage(requests=1)) == known
    assert msgspec.to_builtins(Usage(requests=1)) == known
    cut = Usage(requests=1, incomplete=1)
    assert wire(cut) == known | {"incomplete": 1}
    assert converter.structure(known | {"incomplete": 1}, Usage) == cut
    assert converter.structure(known, Usage) == Usage(requests=1)
    kept = Usage(input=9, stored=4)
    assert wire(kept) == {**dict.fromkeys(known, 0), "input": 9, "stored": 4}
    assert converter.structure(wire(kept), Usage) == kept
    assert (Usage() + kept).stored == (kept + Usage()).stored == 4
    assert (kept + kept + cut).stored == 8
    assert repr(Usage(requests=1, input=2)) == "Usage(requests=1, input=2, output=0, cached=0, reasoning=0)"
    assert repr(kept) == "Usage(requests=0, input=9, output=0, cached=0, reasoning=0, stored=4)"
