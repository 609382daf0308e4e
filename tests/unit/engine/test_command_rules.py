"""The judge: each code by itself, the order of the checks for every two faults at once, and what is not a fault."""

from datetime import UTC, datetime, timedelta
from itertools import combinations

import attrs
import pytest
from msgspec.structs import replace

from greenroom.actors.contract import codec
from greenroom.actors.contract.calls import SETTLED, CallPosition, CallStatus
from greenroom.actors.contract.decisions import REJECTIONS, Command, CommandResult, Decision, Ticket
from greenroom.actors.contract.json_schema.faults import schema_fault
from greenroom.actors.contract.lifecycle import TERMINAL, Stage
from greenroom.actors.contract.messages import CallRequest
from greenroom.actors.contract.rows import CallRow, CommandContext
from greenroom.actors.engine.command_rules import MAX_PENDING, CommandRules, accept

NOW = datetime(2025, 1, 2, tzinfo=UTC)
ARGUMENTS = {"order": "A-17", "amount": 5}
SCHEMA = {"type": "object", "properties": {"amount": {"type": "integer", "maximum": 10}}, "required": ["amount"]}


def check(tool, arguments):
    return None if isinstance(arguments.get("amount"), int) else f"{tool}: $.amount: an integer is missing"


judge = CommandRules(now=NOW, check_arguments=check)


def of_status(call, status):
    """The call where it has this status."""
    places = {
        CallStatus.NEW: {"at": CallPosition.NEW},
        CallStatus.RUNNING: {"at": CallPosition.BODY, "attempts": 1},
        CallStatus.SUSPENDED: {"at": CallPosition.PARKED},
        CallStatus.RESUMING: {"at": CallPosition.ALLOWED, "resumed_at": 0},
    }
    found = replace(call, **places.get(status, {"at": CallPosition.SETTLED, "outcome": status}))
    assert found.status is status
    return found


CALL = CallRow(
    call_id="call_1",
    index=0,
    step=1,
    tool="refund",
    arguments=ARGUMENTS,
    fingerprint="f1",
    requested=CallRequest(call_id="call_1", tool="refund", arguments=ARGUMENTS),
    at=CallPosition.PARKED,
)
TICKET = Ticket(
    ticket_id="r.t1",
    run_id="r",
    call_id="call_1",
    tool="refund",
    arguments=ARGUMENTS,
    fingerprint="f1",
    reason="tool_permission",
    requested_at=NOW - timedelta(hours=1),
    expires_at=NOW + timedelta(hours=1),
    response_schema=SCHEMA,
    reviewers=("ann", "bob"),
)
FACTS = CommandContext(stage=Stage.NEEDS_APPROVAL, pending=0, ticket=TICKET, call=CALL)
DECISION = TICKET.approve({"amount": 7}, reason="fine")


def deciding(decision=DECISION, *, command_id="d1", by="ann", **fields):
    return Command(command_id=command_id, kind="decide", decision=decision, by=by, posted_at=NOW, **fields)


GOOD = deciding()
EXPIRE = Command(command_id="x1", kind="expire", decision=TICKET.deny("expired"), posted_at=NOW)
ACCEPTED = CommandResult(status="accepted", command_id="d1")


def with_decision(command, **changes):
    return attrs.evolve(command, decision=attrs.evolve(command.decision, **changes))


def with_ticket(facts, **changes):
    return facts if facts.ticket is None else attrs.evolve(facts, ticket=replace(facts.ticket, **changes))


def prior(kind, **fields):
    first = attrs.evolve(GOOD if kind == "decide" else EXPIRE, command_id="d0", by="bob", **fields)
    return lambda facts, command: (attrs.evolve(facts, prior=first), command)


# (code, which way, what to do to good facts and a good command), in the order of the design
FAULTS = [
    ("not_allowed", "another principal", lambda f, c: (f, attrs.evolve(c, by="eve"))),
    ("not_allowed", "nobody", lambda f, c: (f, attrs.evolve(c, by=None))),
    (
        "decision_id_conflict",
        "the id is taken",
        lambda f, c: (attrs.evolve(f, known=(with_decision(GOOD, reason="other"), ACCEPTED)), c),
    ),
    ("unknown_target", "neither ticket nor call", lambda f, c: (attrs.evolve(f, ticket=None, call=None), c)),
    (
        "unknown_target",
        "the call ended without a ticket",
        lambda f, c: (attrs.evolve(f, ticket=None, call=of_status(CALL, CallStatus.FAILED)), c),
    ),
    ("already_decided", "approved", lambda f, c: (with_ticket(f, status="approved", decided_by="bob"), c)),
    ("already_decided", "denied", lambda f, c: (with_ticket(f, status="denied", decided_by="bob"), c)),
    ("already_decided", "withdrawn", lambda f, c: (with_ticket(f, status="withdrawn"), c)),
    ("already_decided", "a decision is journaled", prior("decide")),
    ("run_done", "completed", lambda f, c: (attrs.evolve(f, stage=Stage.COMPLETED), c)),
    ("run_done", "failed", lambda f, c: (attrs.evolve(f, stage=Stage.FAILED), c)),
    ("run_done", "cancelled", lambda f, c: (attrs.evolve(f, stage=Stage.CANCELLED), c)),
    ("expired", "the clock has decided", lambda f, c: (with_ticket(f, status="expired"), c)),
    ("expired", "an expiry is journaled", prior("expire")),
    ("expired", "its time is over", lambda f, c: (with_ticket(f, expires_at=NOW), c)),
    ("fingerprint_mismatch", "another action", lambda f, c: (f, with_decision(c, fingerprint="f2"))),
    ("invalid_arguments", "edited", lambda f, c: (f, with_decision(c, edited_arguments={"amount": "much"}))),
    ("invalid_result", "schema", lambda f, c: (f, with_decision(c, result={"amount": 70}))),
    ("busy", "full inbox", lambda f, c: (attrs.evolve(f, pending=MAX_PENDING), c)),
]
NAMES = [f"{code}: {way}" for code, way, _ in FAULTS]


def test_a_decision_without_a_fault_is_accepted():
    assert judge(FACTS, GOOD) == CommandResult(status="accepted", code=None, detail=None, command_id="d1")


@pytest.mark.parametrize(("code", "way", "spoil"), FAULTS, ids=NAMES)
def test_each_fault_has_its_code_and_says_why(code, way, spoil):
    answer = judge(*spoil(FACTS, GOOD))
    assert (answer.status, answer.code, answer.command_id, answer.ok) == ("rejected", code, "d1", False)
    assert answer.detail


PAIRS = [
    (one, other)
    for one, other in combinations(FAULTS, 2)
    if one[0] != other[0] and not (one[0] == "not_allowed" and other[0] == "unknown_target")
]


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=[f"{a[0]} {a[1]} | {b[0]} {b[1]}" for a, b in PAIRS])
def test_the_first_of_two_faults_of_a_command_is_reported(first, second):
    facts, command = first[2](*second[2](FACTS, GOOD))
    if first[1] == "withdrawn" and second[0] == "run_done":  # no one has decided it: it went with its run
        first = second
    if first[0] == "already_decided" and second[1] == "the clock has decided":
        facts = with_ticket(facts, status=facts.ticket.status)
    assert judge(facts, command).code == first[0]


def test_the_codes_are_listed_in_the_order_of_the_checks_and_the_judge_says_all_but_two_of_them():
    order = list(dict.fromkeys(code for code, _, _ in FAULTS))
    assert order == [code for code in REJECTIONS if code not in ("store_unavailable", "unknown_agent")]


@pytest.mark.parametrize(
    ("way", "detail"),
    {
        "another principal": "'eve' may not decide r.t1: its reviewers are named",
        "nobody": "a command without a principal may not decide r.t1: its reviewers are named",
        "the id is taken": "the id 'd1' was used for another command; take a new one",
        "neither ticket nor call": "no ticket or call of this run is named 'r.t1'",
        "the call ended without a ticket": "call_1 is failed and never asked for a decision",
        "approved": "r.t1 was approved by bob",
        "withdrawn": "r.t1 was withdrawn",
        "a decision is journaled": "r.t1 was approved by bob at 2025-01-02T00:00:00+00:00",
        "an expiry is journaled": "the ticket expired at 2025-01-02T00:00:00+00:00",
        "its time is over": "r.t1 expired at 2025-01-02T00:00:00+00:00",
        "another action": "decided f2, but the action is f1",
        "edited": "refund: $.amount: an integer is missing",
        "schema": "$.amount: 70 is greater than the maximum of 10",
        "full inbox": "256 commands wait for this run; try again shortly",
    }.items(),
)
def test_the_detail_names_the_value_that_was_wrong(way, detail):
    (spoil,) = (spoil for _, name, spoil in FAULTS if name == way)
    assert judge(*spoil(FACTS, GOOD)).detail == detail


def test_a_second_reviewer_is_shown_who_decided_and_when():
    facts = with_ticket(FACTS, status="approved", decided_by="bob", decided_at=NOW)
    detail = judge(facts, GOOD).detail
    assert detail == "r.t1 was approved by bob at 2025-01-02T00:00:00+00:00"


def test_a_withdrawn_ticket_is_reported_as_closed_and_not_as_decided():
    facts = with_ticket(FACTS, status="withdrawn", decided_by="bob", decision_reason="the run was cancelled: enough")
    answer = judge(facts, GOOD)
    assert (answer.code, answer.detail) == (
        "already_decided",
        "r.t1 was withdrawn by bob (the run was cancelled: enough)",
    )
    answer = judge(attrs.evolve(facts, stage=Stage.CANCELLED), GOOD)
    assert (answer.code, answer.detail) == (
        "run_done",
        "the run is cancelled; r.t1 was withdrawn by bob (the run was cancelled: enough)",
    )


@pytest.mark.parametrize("result", [{"amount": 7}, {}, "x"])
def test_edited_arguments_beside_a_result_that_stands_for_the_arguments_are_refused(result):
    facts = with_ticket(FACTS, resume_mode="pass_decision_to_tool", response_schema=None)
    both = with_decision(GOOD, result=result, edited_arguments={"amount": 3})
    answer = judge(facts, both)
    assert answer.code == "invalid_arguments"
    assert (answer.detail or "").endswith("edited_arguments are given beside it; give one of the two")
    for one in (with_decision(both, result=None), with_decision(both, edited_arguments=None)):
        assert judge(facts, one).ok is (result == {"amount": 7} or one.decision.result is None)
    assert judge(facts, with_decision(both, action="cancel", result="text")).ok


# --- the same command again ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", Stage)
@pytest.mark.parametrize("first", [ACCEPTED, attrs.evolve(ACCEPTED, code="early")], ids=["accepted", "early"])
def test_the_same_command_again_gets_the_first_answer_in_every_stage(stage, first):
    """Also when the run is done, the ticket decided by this very command, and the inbox full."""
    facts = attrs.evolve(
        FACTS,
        stage=stage,
        pending=MAX_PENDING,
        known=(GOOD, first),
        prior=GOOD,
        ticket=replace(TICKET, status="approved", decided_by="ann"),
    )
    assert judge(facts, GOOD) == attrs.evolve(first, status="duplicate")
    assert judge(facts, GOOD).ok


def test_the_same_command_from_another_sender_at_another_time_is_a_duplicate():
    again = attrs.evolve(GOOD, by="bob", posted_at=NOW + timedelta(hours=3))
    assert judge(attrs.evolve(FACTS, known=(GOOD, ACCEPTED)), again).status == "duplicate"


def test_a_command_is_a_duplicate_of_its_journaled_json():
    first = deciding(attrs.evolve(DECISION, result=({"amount": 7}, (1, 2)), edited_arguments={"b": (1,), "a": 1}))
    stored = codec.load(Command, codec.dump(first))
    assert stored != first
    assert judge(attrs.evolve(FACTS, known=(stored, ACCEPTED)), first).status == "duplicate"


CHANGES = [
    {"action": "cancel"},
    {"result": {"amount": 8}},
    {"result": None},
    {"reason": "other"},
    {"edited_arguments": {"amount": 1}},
    {"target": "r.t2"},
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_another_content_under_the_same_id_is_a_conflict_whatever_differs(change):
    command = deciding(attrs.evolve(DECISION, **change))
    assert judge(attrs.evolve(FACTS, known=(GOOD, ACCEPTED)), command).code == "decision_id_conflict"


def test_content_tells_kinds_and_their_own_fields_apart():
    def content(kind, **fields):
        return Command(command_id="c", kind=kind, **fields).content()

    assert content("cancel", mode="now") != content("cancel", mode="after_step")
    assert content("send", text="a") != content("send", text="b")
    assert content("send", text="a", mode="now") == content("send", text="a", mode="after_step")
    assert content("send") != content("cancel")
    assert GOOD.content() != attrs.evolve(GOOD, kind="expire").content()


def test_content_of_values_that_json_does_not_have_can_still_be_compared():
    odd = deciding(attrs.evolve(DECISION, result={"x": float("nan"), "y": {1, 2}, "z": object()}))
    assert odd.content() == odd.content()


# --- early -----------------------------------------------------------------------------------------------------------

EARLY = attrs.evolve(FACTS, ticket=None, call=of_status(CALL, CallStatus.NEW))
BY_CALL = deciding(Decision(target="call_1", action="resume", result={"amount": 70}), by="eve")


@pytest.mark.parametrize("status", sorted(set(CallStatus) - SETTLED - {CallStatus.SUSPENDED}))
def test_a_decision_for_a_call_without_a_ticket_is_early(status):
    """Its result and its sender are judged when the ticket is there to say what is wanted."""
    facts = attrs.evolve(EARLY, call=of_status(CALL, status))
    assert judge(facts, BY_CALL) == CommandResult(status="accepted", code="early", command_id="d1")
    assert facts.target_key == "call:call_1"


@pytest.mark.parametrize("status", sorted(SETTLED))
def test_a_decision_for_a_call_that_ended_without_a_ticket_has_no_target(status):
    facts = attrs.evolve(EARLY, call=of_status(CALL, status))
    assert judge(facts, BY_CALL).code == "unknown_target"


def test_an_early_decision_is_bound_to_the_calls_action_and_its_edited_arguments_are_checked():
    assert judge(EARLY, with_decision(BY_CALL, fingerprint="f2")).code == "fingerprint_mismatch"
    assert judge(EARLY, with_decision(BY_CALL, fingerprint="f1")).code == "early"
    assert judge(EARLY, with_decision(BY_CALL, edited_arguments={})).code == "invalid_arguments"
    assert judge(EARLY, with_decision(BY_CALL, edited_arguments={"amount": 1})).code == "early"


def test_a_second_early_decision_comes_too_late():
    facts = attrs.evolve(EARLY, prior=attrs.evolve(BY_CALL, command_id="d0"))
    assert judge(facts, BY_CALL).code == "already_decided"


def test_an_early_decision_of_a_done_run_is_refused():
    assert judge(attrs.evolve(EARLY, stage=Stage.FAILED), BY_CALL).code == "run_done"


def test_a_decision_by_call_id_for_a_suspended_call_is_judged_by_its_ticket():
    assert judge(FACTS, BY_CALL).code == "not_allowed"
    assert judge(FACTS, attrs.evolve(BY_CALL, by="ann")).code == "invalid_result"
    assert judge(FACTS, with_decision(attrs.evolve(BY_CALL, by="ann"), result={"amount": 1})).code is None
    assert FACTS.target_key == "ticket:r.t1"


# --- expiry ----------------------------------------------------------------------------------------------------------


def test_the_clock_may_expire_an_open_ticket_with_any_reviewers_at_any_time():
    for expires_at in (None, NOW, NOW - timedelta(days=1)):
        assert judge(with_ticket(FACTS, expires_at=expires_at), EXPIRE).status == "accepted"


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        (with_ticket(FACTS, status="approved"), "already_decided"),
        (with_ticket(FACTS, status="expired"), "expired"),
        (attrs.evolve(FACTS, prior=GOOD), "already_decided"),
        (attrs.evolve(FACTS, prior=attrs.evolve(EXPIRE, command_id="x0")), "expired"),
        (attrs.evolve(FACTS, stage=Stage.CANCELLED), "run_done"),
        (attrs.evolve(FACTS, pending=MAX_PENDING), "busy"),
    ],
)
def test_the_clock_comes_too_late_like_anybody_else(facts, code):
    assert judge(facts, EXPIRE).code == code


def test_an_expiry_that_is_posted_twice_is_a_duplicate():
    facts = attrs.evolve(with_ticket(FACTS, status="expired"), known=(EXPIRE, ACCEPTED))
    assert judge(facts, EXPIRE).status == "duplicate"


def test_a_ticket_is_open_until_the_very_moment_of_its_expiry():
    assert judge(with_ticket(FACTS, expires_at=NOW + timedelta(microseconds=1)), GOOD).ok
    assert judge(with_ticket(FACTS, expires_at=NOW), GOOD).code == "expired"
    assert judge(with_ticket(FACTS, expires_at=None), GOOD).ok


# --- what the decision carries ---------------------------------------------------------------------------------------

PASSING = with_ticket(FACTS, resume_mode="pass_decision_to_tool", response_schema=None)


@pytest.mark.parametrize(
    ("result", "detail"),
    [
        (None, "refund takes the result as its arguments: give an object, not NoneType"),
        ([1], "refund takes the result as its arguments: give an object, not list"),
        ("x", "refund takes the result as its arguments: give an object, not str"),
        ({"amount": "x"}, "refund: $.amount: an integer is missing"),
    ],
)
def test_a_result_that_becomes_the_arguments_is_checked_as_arguments(result, detail):
    answer = judge(PASSING, deciding(TICKET.approve(result)))
    assert (answer.code, answer.detail) == ("invalid_arguments", detail)


def test_arguments_that_are_right_pass_as_the_result_or_as_edited_ones_and_a_cancel_needs_none():
    assert judge(PASSING, deciding(TICKET.approve({"amount": 1}))).ok
    assert judge(PASSING, deciding(attrs.evolve(TICKET.approve(), edited_arguments={"amount": 1}))).ok
    assert judge(PASSING, deciding(TICKET.deny("no"))).ok


@pytest.mark.parametrize("mode", ["replay_tool_call", "use_decision_as_tool_result"])
def test_in_the_other_modes_a_result_is_not_taken_for_arguments(mode):
    facts = with_ticket(FACTS, resume_mode=mode, response_schema=None)
    assert judge(facts, deciding(TICKET.approve("anything"))).ok
    assert judge(facts, deciding(TICKET.approve())).ok


def test_a_cancel_needs_no_result():
    assert judge(FACTS, deciding(TICKET.deny("no"))).ok


@pytest.mark.parametrize(
    ("schema", "value", "fault"),
    [
        (SCHEMA, {"amount": 1}, None),
        (SCHEMA, {}, "$: 'amount' is a required property"),
        (SCHEMA, [], "$: [] is not of type 'object'"),
        (
            {"properties": {"a": {"items": {"properties": {"b c": {"type": "string"}}}}}},
            {"a": [{}, {"b c": 1}]},
            "$.a[1]['b c']: 1 is not of type 'string'",
        ),
        ({"$defs": {"n": {"type": "number"}}, "items": {"$ref": "#/$defs/n"}}, [1, "x"], "$[1]: 'x' is not of type"),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "const": 1}, 2, "$: 1 was expected"),
    ],
)
def test_a_result_that_breaks_its_schema_is_refused_with_the_path(schema, value, fault):
    found = schema_fault(schema, value)
    assert found == fault or found.startswith(fault)
    facts = with_ticket(FACTS, response_schema=schema)
    assert judge(facts, deciding(TICKET.approve(value))).code == (None if fault is None else "invalid_result")


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "no such type"},
        {"pattern": "("},
        {"$ref": "#/nowhere"},
        {"$ref": "https://example.invalid/schema.json"},
        {"properties": 5},
    ],
    ids=str,
)
def test_a_schema_that_cannot_be_used_refuses_every_result_and_raises_nothing(schema):
    facts = with_ticket(FACTS, response_schema=schema)
    answer = judge(facts, deciding(TICKET.approve("x") if "pattern" in schema else TICKET.approve({"a": 1})))
    assert answer.code == "invalid_result"
    assert answer.detail.startswith("the ticket's response_schema cannot be used (")
    assert judge(facts, deciding(TICKET.deny("no"))).ok


# --- the other commands ----------------------------------------------------------------------------------------------

OTHERS = [
    Command(command_id="c1", kind="cancel", mode="after_step", reason="enough"),
    Command(command_id="s1", kind="send", text="hello"),
]
PLAIN = CommandContext(stage=Stage.RUNNING, pending=0)


@pytest.mark.parametrize("command", OTHERS, ids=lambda command: command.kind)
@pytest.mark.parametrize("stage", Stage)
def test_a_run_takes_cancels_and_input_until_the_run_is_done(stage, command):
    answer = judge(attrs.evolve(PLAIN, stage=stage), command)
    assert answer.code == ("run_done" if stage in TERMINAL else None)
    assert answer.command_id == command.command_id


@pytest.mark.parametrize("command", OTHERS, ids=lambda command: command.kind)
def test_the_other_commands_are_known_again_and_wait_for_room_too(command):
    known = attrs.evolve(PLAIN, known=(command, accept(command)), stage=Stage.COMPLETED, pending=MAX_PENDING)
    assert judge(known, command) == attrs.evolve(accept(command), status="duplicate")
    assert judge(known, attrs.evolve(command, reason="another")).code == "decision_id_conflict"
    assert judge(attrs.evolve(PLAIN, pending=MAX_PENDING - 1), command).ok
    assert judge(attrs.evolve(PLAIN, pending=MAX_PENDING), command).code == "busy"


@pytest.mark.parametrize("kind", ["decide", "expire"])
def test_a_command_that_should_carry_a_decision_and_does_not_is_a_bug(kind):
    with pytest.raises(ValueError, match=f"command 'd1' of kind '{kind}' carries no decision"):
        judge(FACTS, Command(command_id="d1", kind=kind, by="ann"))


def test_an_action_that_is_not_known_is_refused_when_the_decision_is_made():
    with pytest.raises(ValueError, match=r"action='maybe' is not known; use 'approve' \(or 'resume'\), or 'deny'"):
        Decision(target="t", action="maybe")


def test_a_tickets_own_decisions_carry_its_fingerprint():
    for decision, action in ((TICKET.approve(1, by="ann"), "resume"), (TICKET.deny("no", by="ann"), "cancel")):
        assert (decision.target, decision.action) == ("r.t1", action)
        assert (decision.fingerprint, decision.decided_by) == ("f1", "ann")
