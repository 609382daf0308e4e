"""Tickets as forms of MCP: every schema is a form that hosts can show, and each answer is one decision."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.actors.contract.decisions import Ticket
from greenroom.actors.contract.json_schema.faults import schema_fault
from greenroom.transport.frontends.mcp.forms import FormDecision, decision_of, form, is_flat, message_of

from ...support.mcp_rules import check_form

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
NAMES = st.text("abcdefgh_", min_size=1, max_size=8)
CHOICES = st.lists(TEXTS, min_size=1, max_size=4, unique=True)
FIELDS: Any = st.one_of(
    st.fixed_dictionaries({"type": st.just("string")}, optional={"title": TEXTS, "maxLength": st.integers(0, 99)}),
    st.fixed_dictionaries({"type": st.just("string"), "format": st.sampled_from(["email", "date", "hostname"])}),
    st.fixed_dictionaries({"type": st.just("string"), "enum": CHOICES}),
    st.fixed_dictionaries({"type": st.sampled_from(["integer", "number"])}, optional={"minimum": st.integers()}),
    st.fixed_dictionaries({"type": st.just("boolean")}, optional={"default": st.booleans()}),
    st.builds(lambda names: {"type": "array", "items": {"type": "string", "enum": names}}, CHOICES),
    st.just({"type": "object", "properties": {"a": {"type": "string"}}}),
    st.just({"type": ["string", "null"]}),
    st.just({"anyOf": [{"type": "string"}]}),
    st.just({"type": "string", "pattern": "a"}),
)
OBJECTS = st.builds(
    lambda fields, required, more: {
        "type": "object",
        "properties": fields,
        "required": [name for name in fields if required],
        **more,
    },
    st.dictionaries(NAMES, FIELDS, max_size=4),
    st.booleans(),
    st.sampled_from([{}, {"additionalProperties": False}, {"title": "T"}, {"minProperties": 1}]),
)
SCHEMAS: Any = st.none() | FIELDS | OBJECTS
MODES = st.sampled_from(["replay_tool_call", "use_decision_as_tool_result", "pass_decision_to_tool"])


def ticket(**fields: Any) -> Ticket:
    own: dict[str, Any] = {
        "ticket_id": "r.t1",
        "run_id": "r",
        "call_id": "c",
        "tool": "pay",
        "arguments": {"invoice": 7},
        "fingerprint": "f",
        "reason": "tool_permission",
        "requested_at": datetime(2026, 1, 1, tzinfo=UTC),
    }
    return Ticket(**{**own, **fields})


@given(schema=SCHEMAS, mode=MODES, lists=st.booleans())
def test_every_ticket_has_a_form_that_hosts_can_show(schema, mode, lists):
    asked = ticket(response_schema=schema, resume_mode=mode)
    params = form(asked, lists=lists)
    check_form(params)
    if not lists:
        assert "array" not in [field["type"] for field in params["requestedSchema"]["properties"].values()]


@given(schema=OBJECTS, lists=st.booleans(), data=st.data())
def test_the_content_of_a_flat_form_is_the_result(schema, lists, data):
    asked = ticket(response_schema=schema, resume_mode="use_decision_as_tool_result")
    if not is_flat(schema, lists=lists):
        return
    assert form(asked, lists=lists)["requestedSchema"]["properties"] == schema["properties"]
    content = {name: data.draw(TEXTS | st.integers()) for name in schema["properties"]}
    assert decision_of(asked, {"action": "accept", "content": content}, lists=lists) == FormDecision(
        action="resume", result=content
    )


@given(value=st.recursive(st.none() | st.booleans() | st.integers(-9, 9) | TEXTS, st.lists))
def test_other_values_are_answered_as_json_text(value):
    asked = ticket(response_schema={"anyOf": [{}, {"type": "null"}]}, resume_mode="use_decision_as_tool_result")
    answer = {"action": "accept", "content": {"result": json.dumps(value)}}
    assert decision_of(asked, answer, lists=True) == FormDecision(action="resume", result=value)


@given(
    schema=SCHEMAS,
    mode=MODES,
    lists=st.booleans(),
    answer=st.recursive(
        st.none() | st.booleans() | st.integers() | TEXTS,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["action", "content", "decision", "result", "reason"]), inner, max_size=4)
        ),
        max_leaves=8,
    )
    | st.fixed_dictionaries(
        {
            "action": st.sampled_from(["accept", "decline", "cancel"]),
            "content": st.dictionaries(
                st.sampled_from(["decision", "result", "reason"]),
                st.sampled_from(["approve", "deny", "x", "1", 1, None]),
            ),
        }
    ),
)
def test_any_answer_is_a_decision_a_dismissal_or_a_misfit(schema, mode, lists, answer):
    asked = ticket(response_schema=schema, resume_mode=mode)
    decision = decided(asked, answer, lists)
    if isinstance(decision, ValueError):
        assert str(decision)
    elif decision is None:
        assert answer["action"] == "cancel"
    elif answer["action"] == "decline":
        assert decision == FormDecision(action="cancel")
    else:
        assert answer["action"] == "accept"


def decided(asked: Ticket, answer: object, lists: bool) -> Any:
    """The decision of an answer, or its fault."""
    try:
        return decision_of(asked, answer, lists=lists)
    except ValueError as misfit:
        return misfit


def test_a_permission_is_approved_by_the_word_only():
    for content in ({}, {"decision": "Approve"}, {"decision": True}, {"decision": ["approve"]}, {"approved": True}):
        with pytest.raises(ValueError, match="is neither approve nor deny"):
            decision_of(ticket(), {"action": "accept", "content": content}, lists=True)
    yes = {"action": "accept", "content": {"decision": "approve", "reason": "fine"}}
    assert decision_of(ticket(), yes, lists=True) == FormDecision(action="resume", reason="fine")


def test_the_outcome_of_a_cut_call_may_come_with_the_approval():
    asked = ticket(reason="outcome_unknown")
    assert set(form(asked, lists=True)["requestedSchema"]["properties"]) == {"decision", "result", "reason"}
    for text, result in ((None, None), ("", None), ('{"paid": 7}', {"paid": 7})):
        content = {"decision": "approve", **({} if text is None else {"result": text})}
        decision = decision_of(asked, {"action": "accept", "content": content}, lists=True)
        assert decision == FormDecision(action="resume", result=result)
    with pytest.raises(ValueError, match=r"content\.result is not JSON"):
        decision_of(asked, {"action": "accept", "content": {"decision": "approve", "result": "paid"}}, lists=True)


def test_a_question_without_a_schema_is_approved_with_or_without_a_result():
    asked = ticket(resume_mode="use_decision_as_tool_result", reason="user_input")
    for content, result in (({}, None), ({"result": "[1]"}, [1])):
        answer = {"action": "accept", "content": {"decision": "approve", **content}}
        assert decision_of(asked, answer, lists=True) == FormDecision(action="resume", result=result)
    arguments = ticket(resume_mode="pass_decision_to_tool", reason="user_input")
    assert list(form(arguments, lists=True)["requestedSchema"]["properties"]) == ["result"]


@pytest.mark.parametrize("kind", ["string", "integer", "number", "boolean"])
def test_one_plain_value_is_one_field(kind):
    asked = ticket(response_schema={"type": kind}, resume_mode="use_decision_as_tool_result")
    schema = form(asked, lists=True)["requestedSchema"]
    assert schema["properties"] == {"result": {"type": kind}}
    value = {"string": "x", "integer": 7, "number": 1.5, "boolean": False}[kind]
    assert schema_fault(schema, {"result": value}) is None
    decision = decision_of(asked, {"action": "accept", "content": {"result": value}}, lists=True)
    assert decision == FormDecision(action="resume", result=value)


def test_the_message_shows_the_action_and_is_bounded():
    assert message_of(ticket(message="Pay it?", parameters={"to": "ann"})) == 'Pay it?\npay {"invoice":7}\n{"to":"ann"}'
    assert message_of(ticket(tool="", arguments={}, action="manual", reason="manual_pause")) == "manual"
    assert message_of(ticket(tool="", arguments={}, reason="manual_pause")) == "The run asks: manual_pause"
    long = ticket(message="m" * 9_000, arguments={"a": "x" * 100_000}, parameters={"b": "y" * 100_000})
    assert len(message_of(long)) == 4_000
    assert message_of(long).endswith("…")
