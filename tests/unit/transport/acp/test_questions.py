"""Tickets as requests to an editor, and its answers as decisions."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.actors.contract.decisions import Ticket
from greenroom.actors.contract.json_schema.faults import schema_fault
from greenroom.actors.permission.remembered import Always
from greenroom.transport.acp.forms import PROPERTIES, form_of
from greenroom.transport.acp.questions import EditorQuestion, Unaskable, question_of, verdict_of
from greenroom.transport.terminal.difference_text import ProposedDifference

REMEMBERED = {"permission": {"remember": True, "command": "make test"}}


def ticket(**fields: Any) -> Ticket:
    facts: dict[str, Any] = {
        "ticket_id": "t1",
        "run_id": "r",
        "call_id": "c1",
        "tool": "pay",
        "arguments": {"cents": 5},
        "fingerprint": "f",
        "reason": "tool_permission",
        "requested_at": datetime(2026, 1, 1, tzinfo=UTC),
    }
    return Ticket(**facts | fields)


def asked(forms: bool = True, **fields: Any) -> EditorQuestion:
    question = question_of(ticket(**fields), "s", "r:c1", principal="ann", forms=forms)
    assert isinstance(question, EditorQuestion)
    return question


def options(question: EditorQuestion) -> list[tuple[str, str]]:
    return [(option["kind"], option["name"]) for option in question.params["options"]]


@pytest.mark.rule("ACP-6")
def test_the_options_name_what_a_yes_and_a_no_come_to():
    assert options(asked()) == [("allow_once", "Allow"), ("reject_once", "Reject")]
    unknown = asked(reason="outcome_unknown")
    assert options(unknown) == [("allow_once", "Run it again"), ("reject_once", "Cancel the call")]
    assert unknown.params["toolCall"]["title"] == "Did pay take effect?"
    held = asked(call_id=None, tool="", arguments={}, reason="manual_pause", message="The shop is closed.")
    assert options(held) == [("allow_once", "Continue"), ("reject_once", "End the run")]
    assert held.params["toolCall"]["title"] == "The shop is closed."
    assert "rawInput" not in held.params["toolCall"]


@pytest.mark.rule("ACP-7")
def test_always_is_offered_in_the_form_that_a_rule_would_have():
    question = asked(parameters=REMEMBERED)
    assert options(question)[1] == ("allow_always", "Always allow this command in this session")
    answer = verdict_of(question, {"outcome": {"outcome": "selected", "optionId": "allow_always"}})
    assert answer is not None
    assert answer.remember == Always(form="argv")
    assert answer.decision.action == "resume"
    forged = verdict_of(asked(), {"outcome": {"outcome": "selected", "optionId": "allow_always"}})
    assert forged is None  # this ticket has not offered it


@pytest.mark.rule("ACP-6")
def test_a_question_shows_exactly_what_would_happen():
    change = ProposedDifference(proposal="p", text="diff --git a/x b/x\n@@ -1 +1 @@\n-old\n+new\n")
    question = question_of(
        ticket(message="Really\u202e?", reviewers=("ann",)), "s", "r:c1", principal="ann", forms=True, change=change
    )
    assert isinstance(question, EditorQuestion)
    (part,) = question.params["toolCall"]["content"]
    text = part["content"]["text"]
    assert r"Really\u202e?" in text
    assert "cents: 5" in text
    assert "+new" in text


@pytest.mark.rule("ACP-8")
@pytest.mark.parametrize(
    "answer",
    [
        None,
        "yes",
        {},
        {"outcome": None},
        {"outcome": {"outcome": "cancelled"}},
        {"outcome": {"outcome": "cancelled", "optionId": "allow_once"}},
        {"outcome": {"outcome": "selected"}},
        {"outcome": {"outcome": "selected", "optionId": "yes"}},
        {"outcome": {"outcome": "selected", "optionId": ["allow_once"]}},
        {"action": "accept"},
    ],
)
def test_an_answer_that_selects_no_option_decides_nothing(answer: Any):
    assert verdict_of(asked(), answer) is None


@pytest.mark.rule("ACP-8")
@pytest.mark.parametrize("answer", [None, {}, {"action": "cancel"}, {"action": "later"}, {"outcome": "selected"}])
def test_a_form_that_is_neither_accepted_nor_declined_decides_nothing(answer: Any):
    question = asked(reason="user_input", resume_mode="pass_decision_to_tool")
    assert question.method == "elicitation/create"
    assert verdict_of(question, answer) is None


@pytest.mark.rule("ACP-8")
def test_what_cannot_be_asked_here_says_why():
    other = question_of(ticket(reviewers=("bob",)), "s", "r:c1", principal="ann", forms=True)
    assert isinstance(other, Unaskable)
    assert "Only bob may decide" in other.reason
    bare = question_of(ticket(response_schema={"type": "string"}), "s", "r:c1", principal="ann", forms=False)
    assert isinstance(bare, Unaskable)
    assert "form" in bare.reason


# --- forms -----------------------------------------------------------------------------------------------------------

TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=8)
FIELDS = st.one_of(
    st.fixed_dictionaries({"type": st.just("string")}, optional={"title": TEXT, "maxLength": st.integers(8, 20)}),
    st.builds(lambda names: {"type": "string", "enum": sorted(names)}, st.sets(TEXT, min_size=1, max_size=4)),
    st.fixed_dictionaries({"type": st.sampled_from(("number", "integer"))}, optional={"minimum": st.integers(-9, 0)}),
    st.just({"type": "boolean"}),
)
NESTED = st.one_of(
    st.builds(lambda part: {"type": "array", "items": part}, FIELDS),
    st.builds(
        lambda part: {"type": "object", "properties": {"a": {"type": "object", "properties": {"b": part}}}}, FIELDS
    ),
    st.builds(lambda part: {"anyOf": [part, {"type": "null"}]}, FIELDS),
    st.just({"type": "string", "format": "ipv4"}),
    st.just({}),
)
FLAT = st.builds(
    lambda parts, needed: {"type": "object", "properties": parts, **({"required": [*parts]} if needed else {})},
    st.dictionaries(TEXT, FIELDS, min_size=1, max_size=5),
    st.booleans(),
)


def value_of(part: Any) -> Any:
    """A value that a person may give for a field."""
    match part["type"]:
        case "string":
            return part.get("enum", [""])[0]
        case "boolean":
            return True
        case _:
            return 3


@pytest.mark.rule("ACP-6")
@given(schema=FLAT)
def test_the_content_of_a_flat_form_is_the_answer_and_satisfies_the_schema(schema: Any):
    form = form_of(schema)
    assert form.content == "answer"
    content = {name: value_of(part) for name, part in form.schema["properties"].items()}
    assert schema_fault(form.schema, content) is None
    assert schema_fault(schema, form.answer(content)) is None


@pytest.mark.rule("ACP-6")
@given(schema=FIELDS)
def test_a_form_for_one_value_holds_that_value(schema: Any):
    form = form_of(schema)
    assert form.content == "value"
    assert schema_fault(schema, form.answer({"result": value_of(schema)})) is None


@pytest.mark.rule("ACP-6")
@given(schema=NESTED | st.none())
def test_of_any_other_schema_the_form_asks_for_the_json_text(schema: Any):
    form = form_of(schema)
    assert form.content == "text"
    assert form.answer({"result": '{"a": [1]}'}) == {"a": [1]}
    assert form.answer({"result": "no JSON"}) == "no JSON"
    assert form.answer({}) is None


def test_a_schema_of_too_many_fields_is_no_form():
    many = {str(number): {"type": "boolean"} for number in range(PROPERTIES + 1)}
    assert form_of({"type": "object", "properties": many}).content == "text"
    assert form_of({"type": "object", "properties": {}}).content == "text"
    assert form_of({"type": "object", "properties": {"a": True}}).content == "text"
    assert form_of({"type": "object", "properties": {"a": {"type": ["string"]}}}).content == "text"
