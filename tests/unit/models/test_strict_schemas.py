"""The strict form of schemas for OpenAI, and the nulls that models say in it for what they leave out."""

import time
from typing import Annotated, Any, Literal

import attrs
import jsonschema
import msgspec
import pydantic
import pytest
from openai.lib._pydantic import to_strict_json_schema
from tests.support.user_types import USER_TYPES

import greenroom as gr
from greenroom.actors.contract.json_schema.optional import without_nulls
from greenroom.actors.models.answers import read_output_type
from greenroom.actors.models.codecs.strict_schemas import MEMO, MOST_PROPERTIES, StrictForms, strict_schema
from greenroom.models import OpenAIChat, OpenAIResponses
from greenroom.testing import ScriptedModel, call, open_fault_server, reply


def strict(schema: Any, *, limits: bool = True) -> Any:
    return strict_schema(schema, limits=limits)


def an_object(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def tool_of(kind: Any) -> Any:
    async def body(value: kind, more: kind = None) -> str:  # type: ignore[valid-type]
        return "ok"

    return gr.tool(body)


# --- the form --------------------------------------------------------------------------------------------------------


@pytest.mark.rule("M-22")
def test_every_property_is_demanded_and_an_optional_one_may_be_null():
    schema = an_object(
        ("a",),
        a={"type": "integer", "description": "A number.", "title": "A"},
        b={"type": "string", "default": "x", "description": "A text."},
        c={"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
        d={"enum": ["p", "q"], "default": "p"},
        e={"$ref": "#/$defs/E", "description": "An E."},
    ) | {"$defs": {"E": an_object(n={"type": "number"})}}
    number = {"type": ["number", "null"]}
    assert strict(schema) == {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "description": "A number.", "title": "A"},
            "b": {"type": ["string", "null"], "description": 'A text. Null stands for "x".'},
            "c": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "d": {
                "description": 'Null stands for "p".',
                "anyOf": [{"enum": ["p", "q"], "type": "string"}, {"type": "null"}],
            },
            "e": {"description": "An E.", "anyOf": [{"$ref": "#/$defs/E"}, {"type": "null"}]},
        },
        "required": ["a", "b", "c", "d", "e"],
        "additionalProperties": False,
        "$defs": {
            "E": {"type": "object", "properties": {"n": number}, "required": ["n"], "additionalProperties": False}
        },
    }


class Inner(pydantic.BaseModel):
    n: int
    kind: Literal["a", "b"]


class Outer(pydantic.BaseModel):
    """As a user of the SDK has it: nothing is optional."""

    inner: Inner
    many: list[Inner]
    either: int | str | None
    size: Annotated[int, pydantic.Field(ge=1, le=9, description="How many.")]


def test_the_form_is_that_of_the_official_sdk_where_nothing_is_optional():
    assert strict(Outer.model_json_schema()) == to_strict_json_schema(Outer)


NO_FORM = {
    "properties of any name": an_object(a={"type": "object", "additionalProperties": {"type": "integer"}}),
    "an open object": an_object() | {"additionalProperties": True},
    "an object without properties": an_object(a={"type": "object"}),
    "anything": an_object(a={}),
    "a tuple": an_object(a={"type": "array", "prefixItems": [{"type": "integer"}]}),
    "a list without items": an_object(a={"type": "array"}),
    "a pattern that looks ahead": an_object(a={"type": "string", "pattern": "a(?=b)"}),
    "many values with many characters": an_object(a={"enum": [f"{n:060}" for n in range(251)]}),
    "a list of anything": an_object(a={"type": "array", "items": {}}),
    "a limit of length": an_object(a={"type": "string", "maxLength": 9}),
    "a format of another kind": an_object(a={"type": "string", "format": "uri"}),
    "an intersection": an_object(a={"allOf": [{"type": "integer"}, {"minimum": 1}]}),
    "a union at the root": {"anyOf": [an_object(), an_object()]},
    "mixed values": an_object(a={"enum": ["a", 1]}),
    "a reference elsewhere": an_object(a={"$ref": "https://example.org/x"}),
    "conditions": an_object() | {"if": {}, "then": {}},
    "too many properties": an_object(**{f"p{n}": {"type": "integer"} for n in range(MOST_PROPERTIES + 1)}),
    "too many values": an_object(a={"enum": [f"v{n}" for n in range(1_001)]}),
    "too many characters": an_object(a={"enum": ["x" * 120_001]}),
    "schemas that are none": an_object(a=True),
    "a union of unions": an_object(a={"anyOf": [{"anyOf": [{"type": "integer"}]}]}),
    "a list or null without items": an_object(a={"type": ["array", "null"]}),
    "definitions that are none": an_object() | {"$defs": [1]},
    "names that are none": {"type": "object", "properties": [1]},
    "values that are none": an_object(a={"enum": 7}),
    "alternatives that are none": an_object(a={"anyOf": 7}),
    "a pattern that is none": an_object(a={"type": "string", "pattern": 7}),
}


@pytest.mark.rule("M-22")
@pytest.mark.parametrize("name", NO_FORM)
def test_a_schema_that_says_more_has_no_strict_form(name):
    assert strict(NO_FORM[name]) is None


def test_an_object_may_be_nested_ten_levels_deep():
    schema = an_object(a={"type": "integer"})
    for _ in range(9):
        schema = an_object(a=schema)
    assert strict(schema) is not None
    assert strict(an_object(a=an_object(a=schema))) is None


@pytest.mark.rule("M-22")
def test_limits_are_for_openai_alone():
    schema = an_object(("a",), a={"type": "integer", "minimum": 1})
    assert strict(schema)["properties"]["a"] == {"type": "integer", "minimum": 1}
    assert strict(schema, limits=False) is None


def test_a_form_is_written_once_per_schema_and_only_some_are_kept():
    forms, schema = StrictForms("limits", "small"), an_object(a={"type": "integer"})
    assert forms.of(schema) is forms.of(schema)
    for _ in range(3 * MEMO):
        assert forms.of(an_object(a={"type": "string"})) != forms.of(schema)
    assert StrictForms("never", "small").of(schema) is None


def test_a_fine_tuned_model_gets_no_limits():
    limited, plain = an_object(a={"type": "integer", "minimum": 1}), an_object(a={"type": "integer"})
    tuned = StrictForms("limits", "ft:gpt-4o:me")
    assert (tuned.of(limited), tuned.of(plain) is None) == (None, False)
    assert StrictForms("limits", "gpt-4o").of(limited) is not None


TOOLS = [(tool_of(one.kind), one.data) for one in USER_TYPES]
FORMS = [(tool, data, form) for tool, data in TOOLS if (form := strict(tool.schema)) is not None]


def test_most_types_of_users_have_a_strict_form():
    assert len(FORMS) > len(TOOLS) / 2


@pytest.mark.parametrize(("tool", "data", "form"), FORMS)
def test_the_forms_of_users_types_take_the_same_values(tool, data, form):
    """With null for each property that the data leave out, nested ones too, and the tool then reads the data."""
    demanding(form)
    said = completed(form, {"value": data}, form)
    jsonschema.validate(said, form)
    assert without_nulls(tool.schema, said)["value"] == without_nulls(tool.schema, {"value": data})["value"]
    assert tool._arguments.check(said) is None


def demanding(form: Any) -> None:
    """Each object of a form demands all of its properties, and no schema is empty."""
    if isinstance(form, list):
        for one in form:
            demanding(one)
    elif isinstance(form, dict):
        if form.get("type") == "object":
            assert form["required"] == list(form["properties"])
            assert form["additionalProperties"] is False
        for key, value in form.items():
            if key in ("properties", "$defs"):
                demanding(list(value.values()))
            elif key in ("items", "anyOf"):
                demanding(value)


def completed(form: Any, data: Any, root: Any) -> Any:
    """The data with null for every property that they leave out."""
    while "$ref" in form:
        form = root if form["$ref"] == "#" else root["$defs"][form["$ref"].removeprefix("#/$defs/")]
    if "anyOf" in form:
        for branch in form["anyOf"]:
            made = completed(branch, data, root)
            if jsonschema.Draft202012Validator({**branch, "$defs": root.get("$defs", {})}).is_valid(made):
                return made
        return data
    if isinstance(data, dict) and "properties" in form:
        return {
            name: completed(part, data[name], root) if name in data else None
            for name, part in form["properties"].items()
        }
    if isinstance(data, list) and "items" in form:
        return [completed(form["items"], item, root) for item in data]
    return data


# --- nulls -----------------------------------------------------------------------------------------------------------

NULLS = [
    (an_object(a={"type": "integer"}), {"a": None}, {}),
    (an_object(("a",), a={"type": "integer"}), {"a": None}, {"a": None}),
    (an_object(a={"type": ["integer", "null"]}), {"a": None}, {"a": None}),
    (an_object(a={}), {"a": None}, {"a": None}),
    (an_object(a={"enum": [None, 1]}, b={"enum": [1]}), {"a": None, "b": None}, {"a": None}),
    (an_object(a={"const": None}, b={"const": 1}), {"a": None, "b": None}, {"a": None}),
    (an_object(), {"a": None}, {"a": None}),
    (
        an_object(a={"type": "array", "items": an_object(b={"type": "string"})}),
        {"a": [{"b": None}, {"b": "x"}]},
        {"a": [{}, {"b": "x"}]},
    ),
    (
        an_object(a={"anyOf": [an_object(("k",), k={"const": "p"}, b={"type": "integer"}), {"type": "null"}]}),
        {"a": {"k": "p", "b": None}},
        {"a": {"k": "p"}},
    ),
    (
        {"$ref": "#/$defs/N", "$defs": {"N": an_object(("v",), v={"type": "integer"}, next={"$ref": "#/$defs/N"})}},
        {"v": 1, "next": {"v": 2, "next": None}},
        {"v": 1, "next": {"v": 2}},
    ),
]


@pytest.mark.parametrize(("schema", "value", "fitting"), NULLS)
def test_nulls_are_left_out_where_a_value_may_be_missing(schema, value, fitting):
    assert without_nulls(schema, value) == fitting
    if value == fitting:
        assert without_nulls(schema, value) is value


def test_a_union_that_refers_to_itself_has_an_end():
    schema = {"$defs": {"U": {"anyOf": [{"$ref": "#/$defs/U"}]}}, **an_object(a={"$ref": "#/$defs/U"})}
    assert without_nulls(schema, {"a": None, "b": {"a": None}}) == {"b": {"a": None}}


def test_a_union_of_many_unions_is_looked_at_once():
    """Each refers to all: by recursion there would be more ways than atoms."""
    names = [f"U{n}" for n in range(40)]
    union = {"anyOf": [*({"$ref": f"#/$defs/{name}"} for name in names), {"type": "integer"}]}
    schema = {"$defs": dict.fromkeys(names, union), **an_object(a={"$ref": "#/$defs/U0"}, b={"type": "string"})}
    assert without_nulls(schema, {"a": None, "b": None}) == {}
    assert strict(schema) is not None


@pytest.mark.parametrize(
    "part", [{"properties": 7}, {"required": 7}, {"anyOf": 7}, {"type": 7}, {"items": 7}, {"enum": 7}]
)
def test_a_schema_that_is_none_leaves_nulls_as_they_are_or_out(part):
    value = {"a": {"b": None, "c": [{}]}}
    assert without_nulls(an_object(a=part), value) == value


def test_leaving_nulls_out_is_linear():
    item = an_object(a={"type": "integer"}, b={"type": "string"})
    schema = an_object(many={"type": "array", "items": item})
    deep: Any = {}
    for _ in range(5_000):
        deep = {"a": deep}

    def seconds(count: int) -> float:
        value = {"many": [{"a": None, "b": "x"}] * count}
        before = time.process_time()
        without_nulls(schema, value)
        return time.process_time() - before

    assert min(seconds(8_000) for _ in range(3)) < 20 * max(0.001, min(seconds(1_000) for _ in range(3)))
    assert without_nulls({"$ref": "#/$defs/D", "$defs": {"D": an_object(a={"$ref": "#/$defs/D"})}}, deep) is deep


@attrs.frozen
class Bread:
    kind: str = "rye"
    slices: int = 3
    note: str | None = None


@gr.tool
async def bake(bread: Bread, oven: int = 200, tags: list[str] | None = None) -> str:
    """Bake.

    Args:
        bread: What.
        oven: Degrees.
        tags: Words.
    """
    return f"{bread} at {oven} {tags}"


@pytest.mark.rule("M-22")
async def test_null_for_a_parameter_with_a_default_is_the_default():
    loaf = {"kind": None, "slices": 4, "note": None}
    model = ScriptedModel([call("bake", bread=loaf, oven=None, tags=None, id="c"), "Done."])
    outcome = await gr.run(gr.Agent("baker", model=model, tools=[bake]), "Bake.")
    assert outcome.output == "Done."
    result = model.requests[1].messages[-1].content
    assert result == "Bread(kind='rye', slices=4, note=None) at 200 None"


@pytest.mark.rule("M-22")
def test_a_null_for_what_has_no_default_is_a_fault_of_the_whole_value():
    fault = bake._arguments.check({"bread": None})
    assert "Expected `object`, got `null` - at `$.bread`" in fault


@pytest.mark.rule("M-22")
def test_null_in_an_answer_is_the_default():
    value, fault = read_output_type("a", Bread).check('{"kind": null, "slices": null, "note": null}')
    assert (value, fault) == ({"kind": "rye", "slices": 3, "note": None}, None)
    own = an_object(("n",), n={"type": "integer"}, m={"type": "integer"})
    assert read_output_type("a", own).check('{"n": 1, "m": null}') == ({"n": 1}, None)
    assert "None is not of type 'integer'" in str(read_output_type("a", own).check('{"n": null, "m": null}')[1])
    assert "Input data was truncated" in str(read_output_type("a", Bread).check('{"kind": nul')[1])


# --- what is sent ----------------------------------------------------------------------------------------------------


@pytest.mark.rule("M-22")
@pytest.mark.parametrize("kind", [OpenAIChat, OpenAIResponses])
async def test_a_tool_is_strict_if_its_schema_has_the_form(kind):
    @gr.tool
    async def free(words: dict[str, str]) -> str:
        return "ok"

    name = "chat" if kind is OpenAIChat else "responses"

    async def sent(**options: Any) -> Any:
        async with open_fault_server(reply('{"kind":"x","slices":1,"note":null}')) as server:
            model = kind("small", base_url=server.base_url(name), api_key="k", **options)
            outcome = await gr.run(gr.Agent("a", model=model, tools=[bake, free], output_type=Bread), "Hi")
            assert outcome.output == Bread("x", 1)
            return server.requests[0].body

    body = await sent(strict=True)
    tools = [tool.get("function", tool) for tool in body["tools"]]
    assert [tool.get("strict", False) for tool in tools] == [True, False]
    assert tools[0]["parameters"]["required"] == ["bread", "oven", "tags"]
    form = body["response_format"]["json_schema"] if name == "chat" else body["text"]["format"]
    assert (form["strict"], form["schema"]["required"]) == (True, ["kind", "slices", "note"])
    for options in ({}, {"strict": False}):  # another host: nothing is known of it
        body = await sent(**options)
        assert not any(tool.get("function", tool).get("strict") for tool in body["tools"])
        assert '"required": ["bread"]' in msgspec.json.format(msgspec.json.encode(body["tools"]), indent=0).decode()
