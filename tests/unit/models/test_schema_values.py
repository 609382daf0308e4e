"""Values that are made from a JSON Schema are valid against it, and where none can be made an error names the place."""

import datetime as dt
import decimal
import enum
import re
import uuid
from typing import Annotated, Any, Literal

import attrs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import greenroom as gr
from greenroom.actors.contract.json_schema.faults import schema_fault
from greenroom.actors.testing.schema_merging import merged
from greenroom.actors.testing.schema_values import value_for
from greenroom.testing import UnsupportedSchema

Meta = msgspec.Meta


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@attrs.frozen
class Branch:
    value: int
    branches: list["Branch"] = attrs.Factory(list)
    parent: "Branch | None" = None


class Square(msgspec.Struct, tag="square"):
    side: Annotated[int, Meta(gt=3, multiple_of=4)]


class Circle(msgspec.Struct, tag="circle"):
    radius: Annotated[float, Meta(gt=0, lt=1)]


TYPES = [
    *(int, str, float, bool, None, Any, Colour, Branch, Branch | None, Square | Circle, list[Square | Circle]),
    *(dict[str, int], set[int], frozenset[str], tuple[int, str], tuple[int, ...], dt.date, dt.timedelta),
    *(uuid.UUID, decimal.Decimal, Literal[1, "a"] | None, Annotated[dt.datetime, Meta(tz=True)]),
    Annotated[str, Meta(pattern=r"^[A-Z]{2}-\d+$")],
    Annotated[str, Meta(pattern="a.c", min_length=10)],
    Annotated[str, Meta(pattern=r"^(yes|no|\w{3,5})?!$")],
    Annotated[str, Meta(min_length=3, max_length=4)],
    Annotated[list[int], Meta(min_length=3, max_length=5)],
    Annotated[set[int], Meta(min_length=3)],
    Annotated[dict[str, int], Meta(min_length=2)],
    Annotated[int, Meta(ge=5, le=5)],
    Annotated[int, Meta(lt=-7)],
    Annotated[float, Meta(ge=0.1, le=0.1)],
    Annotated[float, Meta(ge=10, multiple_of=0.5)],
]


@pytest.mark.rule("TK-4")
@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_arguments_of_each_type_pass_the_check_of_the_tool(type_):
    async def body(value):
        return "done"

    body.__annotations__["value"] = type_
    tool = gr.tool(name="made")(body)
    for seed in range(12):
        arguments = value_for(tool.schema, str(seed))
        assert tool.check(arguments) is None, arguments


@pytest.mark.rule("TK-4")
def test_the_same_seed_makes_the_same_value_and_seeds_differ():
    schema = msgspec.json.schema(Branch)
    made = [value_for(schema, str(seed)) for seed in range(8)]
    assert made == [value_for(schema, str(seed)) for seed in range(8)]
    assert len({str(value) for value in made}) > 4


def test_a_reference_is_followed_inside_of_the_schema():
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/properties/b", "minimum": 90}, "b": {"type": "integer", "maximum": 91}},
        "required": ["a"],
    }
    assert value_for(schema, "1")["a"] in (90, 91)


@pytest.mark.parametrize(
    ("schema", "path", "words"),
    [
        ({"type": "object", "properties": {"a": False}, "required": ["a"]}, "$.a", "no value is valid here"),
        ({"type": "string", "minLength": 5, "maxLength": 2}, "$", "no text has 5 to 2"),
        ({"type": "array", "items": {"$ref": "https://a.example/x"}}, "$", "invalid: $ref 'https://a.example/x'"),
        (
            {
                "type": "object",
                "properties": {"a": {"$id": "https://a.example/b", "$defs": {"c": {}}, "$ref": "#/$defs/c"}},
                "required": ["a"],
            },
            "$.a",
            "leads nowhere",
        ),
        ({"$ref": "#"}, "$", "leads back to itself"),
        ({"type": "integer", "minimum": 3, "maximum": 2}, "$", "no number"),
        ({"type": "number", "exclusiveMinimum": 3, "maximum": 3}, "$", "no number"),
        ({"enum": [1, 2], "minimum": 3}, "$", "none of"),
        ({"type": "string", "pattern": "(?!)"}, "$", "no text was found"),
        ({"type": "string", "minLength": 10**9}, "$", "no text of 1,000,000,000 characters is made"),
        ({"type": "string", "pattern": "^(([a-z]{99}){99}){99}$"}, "$", "no text of more than 100,000 characters"),
        ({"type": "array", "minItems": 10**9}, "$", "at most 20,000 items are made"),
        ({"type": "array", "contains": {}, "minContains": 10**9}, "$", "at most 20,000 items are made"),
        ({"type": "string", "pattern": "^(a+)+b{99}c$", "maxLength": 90}, "$", "no text was found"),
        ({"type": "string", "pattern": "^a$", "minLength": 3}, "$", "no text was found"),
        ({"type": "string", "not": {"type": "string"}}, "$", "no value was found"),
        ({"type": "array", "items": {"enum": [1]}, "uniqueItems": True, "minItems": 2}, "$[1]", "too few different"),
        ({"anyOf": []}, "$", "invalid"),
        ({"type": "nothing"}, "$", "invalid"),
        ({"anyOf": [False, {"type": "string", "pattern": "(?<!a)(?(1)b)"}]}, "$", "invalid"),
        ({"type": "string", "pattern": "(a)?(?(1)b|c)"}, "$", "no text is made for"),
    ],
)
@pytest.mark.rule("TK-4")
def test_a_schema_without_a_value_is_an_error_that_names_the_place(schema, path, words):
    with pytest.raises(UnsupportedSchema, match=re.escape(words)) as caught:
        value_for(schema, "0")
    assert caught.value.path == path
    assert isinstance(caught.value, gr.UsageError)


@pytest.mark.rule("TK-4")
def test_a_schema_whose_values_never_end_is_an_error():
    schema = {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}
    with pytest.raises(UnsupportedSchema, match="limits") as caught:
        value_for(schema, "0")
    assert caught.value.path.startswith("$.a.a.a")


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [{"type": "number", "multipleOf": 4}, {"type": "integer", "multipleOf": 6, "minimum": 1}]},
        {"allOf": [{"anyOf": [{"const": 1}, {"const": 2}]}, {"anyOf": [{"const": 2}, {"const": 3}]}]},
        {"oneOf": [{"type": "integer", "maximum": 5}, {"type": "integer", "minimum": 3}]},
        {"type": "integer", "minimum": 0, "maximum": 9, "not": {"minimum": 5}, "allOf": [{"not": {"maximum": 1}}]},
        {"type": "array", "contains": {"const": 7}, "items": {"type": "integer"}, "minItems": 2},
        {"$schema": "http://json-schema.org/draft-07/schema#", "type": "array", "items": [{"type": "string"}],
         "additionalItems": False, "minItems": 1},
        {"type": "array", "prefixItems": [{"type": "string"}], "items": False},
        {"type": "object", "patternProperties": {"^x[0-9]$": {"type": "integer"}}, "additionalProperties": False,
         "minProperties": 3},
        {"type": "object", "propertyNames": {"pattern": "^[a-c]+$"}, "minProperties": 2},
        {"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a"], "dependentRequired": {"a": ["b"]}},
        {"type": "object", "required": ["a"], "additionalProperties": {"type": "integer"}, "maxProperties": 1},
        {"if": {"type": "string"}, "then": {"minLength": 4}, "type": ["string", "null"]},
        {"type": ["null", "array"], "items": {"type": ["integer", "null"]}},
        {"pattern": r"^(?:a|b)*?c+[^x\d]{2}$"},
        {"format": "ipv6"},
        {"type": "array", "items": {"$ref": "#a"}, "minItems": 1, "$defs": {"x": {"$anchor": "a", "type": "null"}}},
        {"properties": {"a": {"$ref": "#/$defs/t"}}, "required": ["a"],
         "$defs": {"t": {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/t"}, "minItems": 1}, {"const": 0}]}}},
        {"exclusiveMinimum": 0, "exclusiveMaximum": 1e-9, "type": "number"},
        {"maximum": -1000.5},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.rule("TK-4")
def test_keywords_are_kept_alone_and_together(schema):
    for seed in range(8):
        assert schema_fault(schema, value_for(schema, str(seed))) is None


def test_a_text_that_is_filled_up_is_searched_in_linear_time():
    """`re` would try each way to share the letters among the groups."""
    made = str(value_for({"type": "string", "pattern": "^(a+)+$", "minLength": 5_000}, "0"))
    assert set(made) == {"a"}
    assert len(made) >= 5_000


def test_a_pattern_of_a_class_may_have_a_back_reference():
    """`re` judges the arguments of such a tool; a schema of the program's own is searched in linear time."""
    pattern = r"^(?P<one>[^a-z])\1\d{2}[\s\S]$"
    for seed in range(8):
        assert re.search(pattern, str(value_for({"type": "string", "pattern": pattern}, str(seed))))


# --- any schema ------------------------------------------------------------------------------------------------------

NUMBERS = st.integers(-20, 20)
NAMES = st.sampled_from(["a", "b", "c d", "e~/f"])


@st.composite
def bounded(draw: Any, least: str, most: str) -> dict[str, int]:
    low = draw(st.integers(0, 3))
    return draw(st.sampled_from([{}, {least: low}, {most: low + 2}, {least: low, most: low + draw(st.integers(0, 3))}]))


def numbers(draw: Any) -> dict[str, Any]:
    low = draw(NUMBERS)
    bounds = draw(
        st.sampled_from([{}, {"minimum": low}, {"exclusiveMaximum": low}, {"minimum": low, "maximum": low + 9}])
    )
    step = draw(st.sampled_from([{}, {"multipleOf": 3}, {"multipleOf": 0.5}]))
    return {"type": draw(st.sampled_from(["integer", "number"])), **bounds, **step}


@st.composite
def leaves(draw: Any) -> dict[str, Any]:
    match draw(st.integers(0, 5)):
        case 0:
            return {"const": draw(st.one_of(NUMBERS, st.text(max_size=3), st.none()))}
        case 1:
            return {"enum": draw(st.lists(st.one_of(NUMBERS, st.text(max_size=3)), min_size=1, unique_by=repr))}
        case 2:
            return {"type": "string", **draw(bounded("minLength", "maxLength"))}
        case 3:
            return {"type": "string", "pattern": draw(st.sampled_from(["^a+$", "[0-9]{3}", "^(x|yz)?-", r"\d.\d"]))}
        case 4:
            return {"type": draw(st.sampled_from(["boolean", "null"]))}
        case _:
            return numbers(draw)


@st.composite
def objects(draw: Any, inner: Any) -> dict[str, Any]:
    properties = draw(st.dictionaries(NAMES, inner, max_size=3))
    required = [name for name in properties if draw(st.booleans())]
    more = draw(st.one_of(st.booleans(), inner))
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": more}


def arrays(inner: Any) -> Any:
    return st.builds(
        lambda items, size: {"type": "array", "items": items, **size}, inner, bounded("minItems", "maxItems")
    )


def tuples(inner: Any) -> Any:
    heads = st.lists(inner, min_size=1, max_size=3)
    return st.builds(lambda items: {"type": "array", "prefixItems": items, "minItems": len(items)}, heads)


SCHEMAS = st.recursive(
    leaves(),
    lambda inner: st.one_of(
        objects(inner),
        arrays(inner),
        tuples(inner),
        st.builds(lambda parts: {"anyOf": parts}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda part: {"$ref": "#/$defs/x", "$defs": {"x": part}}, leaves()),
    ),
    max_leaves=8,
)


def rooted(schema: Any, found: dict[str, Any]) -> Any:
    """The schema with its `$defs` at the root, where its references look for them."""
    if isinstance(schema, dict):
        if "$defs" in schema:
            name = f"x{len(found)}"
            found[name] = schema["$defs"]["x"]
            return {"$ref": f"#/$defs/{name}"}
        return {key: rooted(value, found) for key, value in schema.items()}
    return [rooted(value, found) for value in schema] if isinstance(schema, list) else schema


@given(SCHEMAS, st.integers(0, 5))
@pytest.mark.rule("TK-4")
def test_a_value_of_any_schema_is_valid(schema, seed):
    definitions = dict[str, Any]()
    schema = {**rooted(schema, definitions), "$defs": definitions}
    assert schema_fault(schema, value_for(schema, str(seed))) is None


@given(SCHEMAS, st.integers(0, 5))
@pytest.mark.rule("TK-4")
def test_a_tool_with_a_given_schema_accepts_the_arguments(schema, seed):
    definitions = dict[str, Any]()
    parameters = {"type": "object", "properties": {"value": rooted(schema, definitions)}, "required": ["value"]}

    def body(ctx, arguments):
        return "done"

    tool = gr.Tool.from_schema(body, name="made", schema={**parameters, "$defs": definitions})
    assert tool.check(value_for(tool.schema, str(seed))) is None


@given(leaves(), leaves(), st.one_of(NUMBERS, st.text(max_size=3), st.floats(-5, 5), st.none(), st.booleans()))
def test_a_value_valid_against_two_schemas_is_valid_against_the_merged_schema(one, other, value):
    if schema_fault(one, value) is None and schema_fault(other, value) is None:
        whole = merged(one, other)
        assert schema_fault(whole, value) is None
