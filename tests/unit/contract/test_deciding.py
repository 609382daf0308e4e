"""What the arguments to `decide` mean, and what they receive when they mean nothing."""

import re
from datetime import UTC, datetime
from typing import Any

import pytest

import greenroom as gr
from greenroom.actors.contract.decisions import decision_of

TICKET = gr.Ticket(
    ticket_id="r.t1",
    run_id="r",
    call_id="c",
    tool="pay",
    arguments={},
    fingerprint="f",
    reason="tool_permission",
    requested_at=datetime(2026, 1, 1, tzinfo=UTC),
)
NAMES = ("result", "reason", "decision_id", "by")


def test_a_whole_decision_is_itself() -> None:
    decision = TICKET.approve(by="ann")
    assert decision_of(decision, None, {}, NAMES) is decision
    assert decision_of(decision, None, {"by": None}, NAMES) is decision


def test_options_become_the_decision() -> None:
    found = decision_of("c", "resume", {"by": "ann", "decision_id": "d", "result": 3}, NAMES)
    assert found == gr.Decision(target="c", action="resume", result=3, decided_by="ann", decision_id="d")


@pytest.mark.parametrize(
    ("target", "action", "options", "said"),
    [
        (TICKET, None, {}, "the ticket r.t1 is not a decision yet; approve it with .approve(...)"),
        (TICKET, "resume", {}, "or name it: decide('r.t1', ...)"),
        (
            TICKET.approve(),
            None,
            {"by": "ann"},
            "a whole Decision was given, and by beside it; say it in ticket.approve",
        ),
        (TICKET.approve(), "cancel", {}, "a whole Decision was given, and an action beside it"),
        (
            "c",
            "aprove",
            {},
            "action='aprove' is not known; did you mean 'approve'? use 'approve' (or 'resume'), or 'deny'",
        ),
        ("c", "go", {}, "action='go' is not known; use 'approve'"),
        ("c", None, {}, "action=None is not known; use 'approve'"),
        ("c", ["approve"], {}, "action=['approve'] is not known; did you mean 'approve'?"),
        (
            "c",
            "resume",
            {"arguments": {}},
            "decide() has no option 'arguments'; it has result, reason, decision_id, by",
        ),
    ],
)
def test_a_contradictory_decision_is_refused_with_the_way_out(
    target: Any, action: Any, options: Any, said: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        decision_of(target, action, options, NAMES)


def test_a_wish_to_suspend_has_a_reason_of_the_list() -> None:
    with pytest.raises(ValueError, match="reason='because' is not known; use one of tool_permission, user_input"):
        gr.Suspend(reason="because")  # type: ignore[arg-type]
