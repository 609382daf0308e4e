"""The account of a run from made-up logs: each kind of event, in every state of a call."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from greenroom.actors.contract.catalogue import CATALOGUE
from greenroom.actors.contract.envelope import Event
from greenroom.actors.evidence import account
from greenroom.actors.evidence import account as account_of
from greenroom.actors.evidence.account import _HANDLERS, LONGEST, AccountFold, RunEvidence

START = datetime(2031, 5, 1, 12, tzinfo=UTC)


def log(*events: tuple[str, dict[str, Any]]) -> list[Event]:
    """Events a second apart."""
    return [
        Event(
            id=f"r-{number}",
            sequence=number,
            type=type_,
            version=2,
            run_id="r",
            session_id=None,
            agent_id="coder",
            timestamp=START + timedelta(seconds=number),
            payload=payload,
        )
        for number, (type_, payload) in enumerate(events, 1)
    ]


def at(second: int) -> str:
    return f"2031-05-01T12:00:{second:02}.000Z"


CREATED = ("run.created", {"to": "created", "agent": "coder", "threadId": "t", "input": "tidy up", "by": "ada"})
CALLED = (
    "run.tool.call",
    {"callId": "A", "tool": "pay", "status": "new", "arguments": {"sum": 1}, "effect": "external", "step": 1},
)
ASKED = (
    "run.approval.requested",
    {
        "ticketId": "r.t1", "callId": "A", "tool": "pay", "arguments": {"sum": 1}, "fingerprint": "f1",
        "reason": "tool_permission", "message": "May it?", "resumeMode": "approve_or_deny",
    },
)  # fmt: skip
STARTED = ("run.tool.started", {"callId": "A", "status": "running", "attempt": 1})
RESULT = ("run.tool.result", {"callId": "A", "tool": "pay", "status": "succeeded", "attempts": 1, "durationMs": 5})


def test_every_type_that_is_read_is_in_the_catalogue():
    assert set(_HANDLERS) <= set(CATALOGUE)


def test_a_call_with_its_question_answer_and_end():
    answer = {
        "ticketId": "r.t1",
        "callId": "A",
        "resolution": "approved",
        "by": "bob",
        "reason": "fine",
        "edited": True,
    }
    resumed = {
        "callId": "A",
        "status": "resuming",
        "ticketId": "r.t1",
        "mode": "approve_or_deny",
        "arguments": {"sum": 2},
    }
    end = {"from": "running", "to": "completed", "by": "engine", "termination": "natural_end", "usage": {"input": 3}}
    story = account(
        "r",
        log(
            CREATED, CALLED, ASKED, ("run.approval.resolved", answer), ("run.tool.resumed", resumed), STARTED, RESULT,
            ("run.completed", end),
        ),
    )  # fmt: skip
    assert (story.by, story.agent, story.thread_id, story.input) == ("ada", "coder", "t", "tidy up")
    (call,) = story.calls
    assert (call.tool, call.effect, call.arguments, call.status) == ("pay", "external", {"sum": 2}, "succeeded")
    assert (call.requested_at, call.started_at, call.ended_at) == (at(2), (at(6),), at(7))
    (ticket,) = call.tickets
    assert (ticket.fingerprint, ticket.message, ticket.asked_at) == ("f1", "May it?", at(3))
    assert (ticket.resolution, ticket.by, ticket.why, ticket.edited, ticket.resolved_at) == (
        "approved", "bob", "fine", True, at(4),
    )  # fmt: skip
    assert (story.stage, story.termination, story.ended_at, story.usage) == (
        "completed", "natural_end", at(8), {"input": 3},
    )  # fmt: skip
    assert story.events == 8
    assert not call.ran_unasked


def test_a_call_that_ran_without_a_question_says_so():
    (call,) = account("r", log(CREATED, CALLED, STARTED, RESULT)).calls
    assert call.ran_unasked
    (call,) = account("r", log(CREATED, CALLED)).calls
    assert not call.ran_unasked


@pytest.mark.parametrize(
    ("event", "field", "text"),
    [
        (("run.gate.allowed", {"callId": "A", "plugin": "rules", "note": "rule 3"}), "allowed", "rules: rule 3"),
        (
            ("run.gate.overruled", {"callId": "A", "plugin": "x", "verdict": "allow", "by": "y"}),
            "overruled", "x: allow",
        ),
        (
            ("run.guardrail.tripped", {"kind": "tool_input", "guardrail": "g", "verdict": "reject", "step": 1,
                                       "callId": "A"}),
            "guardrails", "g: reject",
        ),
    ],
)  # fmt: skip
def test_verdicts_about_a_call_are_with_the_call(event, field, text):
    (call,) = account("r", log(CREATED, CALLED, event)).calls
    assert getattr(call, field) == (text,)


def test_a_gate_that_is_asked_again_says_the_same_once():
    note = ("run.gate.allowed", {"callId": "A", "plugin": "rules", "note": "rule 3"})
    (call,) = account("r", log(CREATED, CALLED, note, note)).calls
    assert call.allowed == ("rules: rule 3",)


def test_what_a_program_did_not_do_is_a_restriction_of_the_run():
    program = {"code": "runtime_unavailable", "runtime": "acme", "reason": "not logged in"}
    story = account(
        "r",
        log(
            CREATED,
            ("runtime.unavailable", program),
            ("runtime.timeout", {"runtime": "acme", "which": "idle", "seconds": 300.0}),
            ("schema.validation_failed", {"source": "acme", "line": 7, "rule": "json", "sample": "{"}),
        ),
    )
    assert story.restrictions == (
        "runtime_unavailable: acme: not logged in",
        "acme: no word for 300 s (idle)",
        "acme: line 7 breaks the rule json",
    )


def test_a_background_call_ends_with_its_task():
    task = {"taskId": "k", "callId": "A", "tool": "pay", "arguments": {}, "attempt": 1}
    done = {"taskId": "k", "callId": "A", "tool": "pay", "status": "failed", "code": "tool_error", "attempts": 1}
    events = log(CREATED, CALLED, RESULT, ("run.task.started", task), ("run.task.finished", done))
    (call,) = account("r", events[:4]).calls
    assert (call.background, call.status, call.ended_at) == (True, "running", None)
    (call,) = account("r", events).calls
    assert (call.status, call.code, call.ended_at) == ("failed", "tool_error", at(5))


def test_questions_about_no_call_commands_and_restrictions_are_the_run_s():
    pause = ("run.approval.requested", {**ASKED[1], "callId": None, "reason": "manual_pause", "tool": ""})
    story = account(
        "r",
        log(
            CREATED, pause, ("run.cancel.requested", {"commandId": "c", "mode": "now", "by": "eve", "reason": "stop"}),
            ("run.input.received", {"commandId": "d", "messageId": "m", "text": "x"}),
            ("run.pause.requested", {"commandId": "e", "by": "eve"}),
            ("run.degraded", {"reason": "agent_changed", "detail": "d"}),
            ("run.guardrail.tripped", {"kind": "input", "guardrail": "g", "verdict": "trip", "step": 1}),
        ),
    )  # fmt: skip
    assert [ticket.reason for ticket in story.tickets] == ["manual_pause"]
    assert story.commands == ("cancel by eve: stop", "input by an unnamed principal", "pause by eve")
    assert story.restrictions == ("agent_changed: d", "guardrail g: trip")


def test_long_texts_are_cut_and_say_their_length():
    long = "x" * (LONGEST + 1)
    created = ("run.created", {**CREATED[1], "input": long})
    story = account("r", log(created, ("run.tool.call", {**CALLED[1], "arguments": {"deep": [{"text": long}]}})))
    assert story.input == "x" * LONGEST + f" ({LONGEST + 1} characters)"
    assert len(str(story.calls[0].arguments)) < LONGEST + 100


def test_unknown_types_and_events_of_unknown_calls_change_nothing_but_the_count():
    stray = [STARTED, RESULT, ("run.approval.resolved", {"ticketId": "no", "resolution": "denied"}), ("run.new", {})]
    story = account("r", log(CREATED, *stray))
    assert (story.calls, story.tickets, story.events) == ((), (), 5)


def test_a_fold_grows_with_the_log():
    fold = AccountFold("r")
    for event in log(CREATED, CALLED):
        fold.add(event)
    assert repr(fold) == "<AccountFold of r: 2 events>"
    child = RunEvidence(run_id="child")
    assert fold.account((child,)).children == (child,)
    assert fold.account() == account_of("r", log(CREATED, CALLED))
