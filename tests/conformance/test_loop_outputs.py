"""Scenes of docs/outputs.md: the form of the final answer, as a class and as a JSON Schema."""

from typing import Any

import attrs
import msgspec
import pytest

import greenroom as gr
from greenroom.actors.contract.codec import SchemaError
from greenroom.testing import FunctionModel, call, delay, fail, text

from ..support.scenes import Life, after, approve, restart, send

A, C = call("pay", id="A"), call("look", id="C")
FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "number": {"type": "integer", "default": 1},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/Line"}},
    },
    "required": ["number"],
    "$defs": {"Line": {"type": "object", "properties": {"cents": {"type": "integer", "minimum": 1}}}},
}
GOOD = '{"number": 7, "lines": [{"cents": 3}]}'
VALUE = {"number": 7, "lines": [{"cents": 3}]}


@attrs.frozen
class Line:
    cents: int


@attrs.frozen
class Receipt:
    number: int
    lines: list[Line] = attrs.field(factory=list)


FORMS = {"a class": Receipt, "a schema": FORM}
either = pytest.mark.parametrize("form", FORMS.values(), ids=list(FORMS))


def notes(life: Life) -> list[str]:
    """What the model read about its answers."""
    asked = (one.content for one in life.view.messages if one.role == "user")
    return [content for content in asked if content.startswith("Your answer does not have the demanded form: ")]


@pytest.mark.rule("OU-6")
@pytest.mark.parametrize(
    ("form", "value"), [(Receipt, Receipt(7, [Line(3)])), (FORM, VALUE)], ids=["a class", "a schema"]
)
async def test_the_output_has_the_form(play, autojump_clock, form, value):
    life = await play(C, GOOD, output_type=form)
    assert life.outcome.output == value
    assert life.end["output"] == VALUE
    assert (notes(life), life.effects) == ([], ["C"])


VALUES = {
    "an object": (
        {"type": "object"},
        '{"b": {"a": [1, 2.5, null, true, "x"]}}',
        {"b": {"a": [1, 2.5, None, True, "x"]}},
    ),
    "an array": ({"type": "array"}, "[]", []),
    "a number": ({"type": "number"}, " 3 ", 3),
    "a text": ({"type": "string"}, '"x"', "x"),
    "null": ({"type": "null"}, "null", None),
    "any value": ({}, "false", False),
    "in a fence": ({"type": "integer"}, "```json\n3\n```", 3),
    "no defaults": (FORM, '{"number": 2}', {"number": 2}),
    "no formats": ({"type": "string", "format": "date"}, '"soon"', "soon"),
    "of draft 7": (
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "definitions": {"n": {"type": "integer"}},
            "items": [{"$ref": "#/definitions/n"}],
        },
        '[1, "x"]',
        [1, "x"],
    ),
}


@pytest.mark.rule("OU-6")
@pytest.mark.parametrize(("form", "answer", "value"), VALUES.values(), ids=list(VALUES))
def test_with_a_schema_the_value_stays_plain(form, answer, value):
    agent = gr.Agent("a", output_type=form)
    found, fault = agent.spec.check_output(answer)
    assert (found, fault, type(found)) == (value, None, type(value))
    assert agent.parse_output(found) is found


@pytest.mark.rule("OU-6")
async def test_output_guardrails_judge_the_plain_value(play, autojump_clock):
    judged: list[Any] = []

    @gr.output_guardrail
    async def keeps(ctx: gr.PhaseContext[Any], output: Any) -> gr.Trip | None:
        judged.append(output)
        return gr.Trip("too much") if output["number"] > 6 else None

    life = await play(GOOD, output_type=FORM, output_guardrails=[keeps])
    assert (judged, life.outcome.code) == ([VALUE], "guardrail_tripped")


@pytest.mark.rule("OU-6")
def test_an_agent_keeps_a_copy_of_its_schema():
    form = {"type": "object", "properties": {"a": {"type": "integer"}}}
    agent = gr.Agent("a", output_type=form)
    form["properties"]["a"]["type"] = "string"
    assert agent.output_schema == agent.output_type == {"type": "object", "properties": {"a": {"type": "integer"}}}
    assert agent.spec.check_output('{"a": 1}') == ({"a": 1}, None)


@pytest.mark.rule("OU-6")
def test_a_stored_value_of_another_form_is_an_error_with_the_path():
    with pytest.raises(SchemaError, match=r"`\$\.lines\[0\]\.cents`: 0 is less than"):
        gr.Agent("a", output_type=FORM).parse_output({"number": 1, "lines": [{"cents": 0}]})


# --- refused at the definition ---------------------------------------------------------------------------------------

REFUSED = {
    "a type": ({"properties": {"a": {"type": "strin"}}}, "$.properties.a.type: 'strin'"),
    "a pattern": ({"items": {"pattern": "("}}, "$.items.pattern: '(' is not a 'regex'"),
    "a reference": ({"items": {"$ref": "#/$defs/Line"}}, "$ref '#/$defs/Line' leads to no part of the schema"),
    "below a definition": ({"$defs": {"a": {"not": {"$ref": "#b"}}}}, "$ref '#b' leads to no part"),
    "another place": ({"$ref": "https://example.org/form.json"}, "'https://example.org/form.json' leads to no part"),
    "itself": ({"$ref": "#"}, "leads back to itself"),
    "no JSON": ({"const": object()}, "the JSON Schema is invalid"),
}


@pytest.mark.rule("OU-7")
@pytest.mark.parametrize(("form", "words"), REFUSED.values(), ids=list(REFUSED))
def test_an_invalid_schema_is_refused_with_the_place(form, words):
    with pytest.raises(gr.AgentDefinitionError) as caught:
        gr.Agent("clerk", output_type=form)
    assert "agent 'clerk': output_type: the JSON Schema is invalid: " in str(caught.value)
    assert words in str(caught.value)


@pytest.mark.rule("OU-7")
@pytest.mark.parametrize(
    "form",
    [
        {"properties": {"$ref": {"type": "string"}}},
        {"enum": [{"$ref": "nowhere"}]},
        {"$id": "https://a/b", "$defs": {"n": {"$id": "c", "type": "integer"}}, "items": {"$ref": "c"}},
        {"$defs": {"n": {"$anchor": "here"}}, "items": {"$ref": "#here"}},
        {"items": {"$ref": "#"}},
    ],
    ids=["a property", "data", "an id", "an anchor", "the schema itself"],
)
def test_references_inside_of_a_schema_are_found(form):
    answer = '{"$ref": "nowhere"}' if "enum" in form else "[]"
    value, fault = gr.Agent("a", output_type=form).spec.check_output(answer)
    assert (value, fault) == (msgspec.json.decode(answer), None)


# --- asked for again -------------------------------------------------------------------------------------------------

WRONG = {
    "no JSON": (Receipt, "Here it is:", ["JSON is malformed", "at `$`"]),
    "no JSON for a schema": (FORM, "Here it is:", ["JSON is malformed", "at `$`"]),
    "a type": (Receipt, '{"number": "7"}', ["Expected `int`, got `str`", "at `$.number`"]),
    "a root": (Receipt, "[]", ["Expected `object`, got `array`", "at `$`"]),
    "several places": (
        FORM,
        '{"lines": [{"cents": 1}, {"cents": 0}, {"cents": "x"}]}',
        [
            "`$`: 'number' is a required property",
            "`$.lines[1].cents`: 0 is less than the minimum of 1",
            "`$.lines[2].cents`: 'x' is not of type 'integer'",
        ],
    ),
}


@pytest.mark.rule("OU-8", "OU-9")
@pytest.mark.parametrize(("form", "answer", "words"), WRONG.values(), ids=list(WRONG))
async def test_a_wrong_answer_is_shown_what_is_wrong_and_where_and_so_is_the_program(
    play, autojump_clock, form, answer, words
):
    life = await play(answer, answer, output_type=form)
    (note,) = notes(life)
    assert all(word in note for word in words), note
    assert life.requests[1].messages[-1].content == note
    assert life.outcome.code == "model_behavior_error"
    assert all(word in life.outcome.message for word in words), life.outcome.message


@pytest.mark.rule("OU-8")
def test_a_model_reads_five_faults_at_most_and_long_ones_shortened():
    agent = gr.Agent("a", output_type={"items": {"type": "integer"}})
    _, fault = agent.spec.check_output('["x", 1, "y", "z", "a", "b", "c"]')
    assert [f"`$[{n}]`" in fault for n in range(7)] == [True, False, True, True, True, True, False]
    _, fault = agent.spec.check_output('["%s"]' % ("x" * 100_000))
    assert len(fault) < 3_000


@pytest.mark.rule("OU-8")
@either
@pytest.mark.parametrize("retries", [0, 1, 3])
async def test_output_retries_bounds_how_often_a_run_asks_again(play, autojump_clock, form, retries):
    life = await play(*["no"] * 6, output_type=form, output_retries=retries)
    assert (len(life.requests), len(notes(life))) == (retries + 1, retries)
    assert (life.outcome.code, life.view.step) == ("model_behavior_error", retries + 1)


@pytest.mark.rule("OU-8")
@either
async def test_no_tool_runs_again(play, autojump_clock, form):
    life = await play([A, C], "no", GOOD, output_type=form, do=[approve("A")])
    assert (sorted(life.effects), len(notes(life)), life.end["output"]) == (["A", "C"], 1, VALUE)
    assert life.calls.keys() == {"A", "C"}


@pytest.mark.rule("OU-8")
@either
async def test_an_answer_may_call_tools_when_it_is_asked_for_again(play, autojump_clock, form):
    life = await play("no", C, GOOD, output_type=form)
    assert (life.effects, life.end["output"]) == (["C"], VALUE)


@pytest.mark.rule("OU-8")
@either
async def test_text_beside_a_call_is_not_judged(play, autojump_clock, form):
    life = await play([text("no form"), C], GOOD, output_type=form, output_retries=0)
    assert (notes(life), life.end["output"]) == ([], VALUE)


@pytest.mark.rule("OU-8")
@either
async def test_a_restart_while_the_model_answers_again_counts_once(play, autojump_clock, form):
    life = await play("no", [delay(20), GOOD], output_type=form, do=[after(10, restart)])
    assert (len(life.requests), len(notes(life)), life.end["output"]) == (3, 1, VALUE)


@pytest.mark.rule("OU-8")
@either
async def test_what_is_sent_meanwhile_is_read_after_the_note(play, autojump_clock, form):
    life = await play([delay(20), "no"], GOOD, output_type=form, do=[after(10, send("Hurry."))])
    asked = [one.content for one in life.requests[1].messages if one.role == "user"]
    assert asked == ["hi", notes(life)[0], "Hurry."]


@pytest.mark.rule("OU-8")
async def test_a_form_that_broke_begins_anew(play, autojump_clock):
    life = await play([text('{"number"'), delay(1), fail("interrupted")], GOOD, output_type=FORM)
    assert (life.outcome.output, life.types.count("message.discarded")) == (VALUE, 1)


@pytest.mark.rule("OU-10")
@pytest.mark.parametrize("form", [list, {}], ids=["a class", "a schema"])
@pytest.mark.parametrize("answer", ["[" * 70 + "]" * 70, "[" * 900 + "]" * 900, "[" * 9_999, f"[{10**30}]", "[NaN]"])
async def test_a_value_that_no_row_can_hold_is_of_another_form(play, autojump_clock, form, answer):
    life = await play(answer, "[1]", output_type=form)
    assert (life.outcome.output, len(notes(life))) == ([1], 1)


@pytest.mark.rule("OU-10")
async def test_the_deepest_value_is_stored(play, autojump_clock):
    deep = "[" * 64 + "]" * 64
    life = await play(deep, output_type={})
    assert str(life.outcome.output) == deep


# --- requests, and outputs of tools ----------------------------------------------------------------------------------


@pytest.mark.rule("OU-11")
@pytest.mark.parametrize("structured", ["native", "prompt"])
async def test_every_request_has_the_schema(play, autojump_clock, structured):
    answers = iter([C, "no", GOOD])
    model = FunctionModel(lambda request: next(answers))
    model.structured = structured
    life = await play(model=model, output_type=FORM, instructions="be kind")
    assert [request.output_schema for request in life.requests] == [FORM] * 3
    for request in life.requests:
        system = request.messages[0].content
        assert system.startswith("be kind")
        assert ('"$defs":{"Line"' in system) == (structured == "prompt")


@pytest.mark.rule("OU-12")
@either
@pytest.mark.parametrize("use", ["stop_on_first_tool", lambda results: gr.FinalOutput(results[0].result)])
async def test_the_output_of_a_tool_is_taken_as_it_is(play, autojump_clock, form, use):
    life = await play(C, GOOD, output_type=form, tool_use=use)
    assert (life.outcome.output, len(life.requests), notes(life)) == ("saw C", 1, [])


@pytest.mark.rule("OU-12")
async def test_the_output_of_a_tool_that_has_the_form_is_an_object_of_the_class(play, autojump_clock):
    life = await play(C, GOOD, output_type=Receipt, tool_use=lambda results: gr.FinalOutput(VALUE))
    assert life.outcome.output == Receipt(7, [Line(3)])
