"""Judging values by JSON Schemas: what a schema must be, and that no value freezes the process."""

import re
import time

import pytest

import greenroom as gr
from greenroom.actors.contract.json_schema import judge
from greenroom.actors.contract.json_schema.faults import LARGEST, schema_fault, schema_faults, unusable_schema
from greenroom.actors.contract.patterns import linear

pytestmark = pytest.mark.no_cover

PATTERN = "^(a+)+$"
"""Takes `re` 2**n steps for n letters that do not match."""
HARD = "a" * 5_000 + "b"
ITEM = {"properties": {"op": {"const": "a"}, "left": {"$ref": "#"}}, "required": ["op"]}
OTHER = {"properties": {"op": {"const": "b"}, "left": {"$ref": "#"}}, "required": ["op"]}


def doubled(levels: int) -> dict[str, object]:
    """Return a schema whose references double the parts that apply to a value, so many times."""
    parts: dict[str, object] = {f"a{levels}": {"type": "object"}}
    for level in range(levels):
        both = [{"$ref": f"#/$defs/a{level + 1}"}] * 2
        parts[f"a{level}"] = {"allOf": [dict(one) for one in both]}
    return {"type": "object", "$defs": parts, "$ref": "#/$defs/a0"}


def tree(depth: int) -> dict[str, object]:
    value: dict[str, object] = {"op": "c"}
    for _ in range(depth):
        value = {"op": "c", "left": value}
    return value


UNUSABLE = [
    ({"properties": {"a": {"pattern": "(?=a)b"}}}, "the pattern '(?=a)b' cannot be searched in linear time"),
    ({"patternProperties": {"(a)\\1": {}}}, "cannot be searched in linear time"),
    ({"properties": {"a": {"pattern": "(["}}}, "$.properties.a.pattern: '([' is not a 'regex'"),
    ({"description": "x" * LARGEST}, "bytes; give one of at most 262,144"),
    ({"$schema": 5}, "$['$schema']: 5 is not of type 'string'"),
    ({"$ref": "#"}, "leads back to itself"),
    ({"properties": {"a": {"anyOf": [{"type": "null"}, {"$ref": "#/properties/a"}]}}}, "leads back to itself"),
    ({"if": {"type": "string"}, "then": {"$ref": "#"}}, "leads back to itself"),
    ({"dependentSchemas": {"a": {"$ref": "#"}}}, "leads back to itself"),
    ({"$dynamicRef": "#nowhere"}, "$dynamicRef '#nowhere' leads to no part of the schema"),
    ({"enum": [[1]], "$ref": "#/enum"}, "$ref '#/enum' leads to no schema"),
    ({"foo": {"type": 5}, "$ref": "#/foo"}, "$.type: 5 is not valid"),
    (doubled(40), "of its parts apply to one value"),
    ({"patternProperties": {"^a": {}}, "unevaluatedProperties": False}, "use additionalProperties"),
]


@pytest.mark.rule("OU-7")
@pytest.mark.parametrize(("schema", "text"), UNUSABLE)
def test_a_schema_that_cannot_judge_is_refused_at_each_door(schema, text):
    found = unusable_schema(schema)
    assert found is not None
    assert text in found
    assert len(found) < 3_000
    with pytest.raises(gr.AgentDefinitionError, match=re.escape(text)):
        gr.Agent("a", output_type=schema)

    def body(ctx: gr.SyncToolContext, arguments: dict[str, object]) -> None: ...

    with pytest.raises(gr.ToolDefinitionError, match=re.escape(text)):
        gr.Tool.from_schema(body, schema={"type": "object", **schema})


USABLE = [
    {"type": "object", "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}},
    {"items": {"$ref": "#"}},
    {"anyOf": [ITEM, OTHER]},
    doubled(6),
    {"$defs": {"x": {"$anchor": "x", "type": "integer"}}, "properties": {"a": {"$ref": "#x"}}},
    {"allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": False},
    {"$schema": "http://json-schema.org/draft-07/schema#", "dependencies": {"a": ["b"], "c": {"required": ["d"]}}},
    {"pattern": r"^[\u4e00-\u9fa5]+$"},
]


@pytest.mark.parametrize("schema", USABLE)
def test_a_schema_that_goes_down_with_the_value_is_valid(schema):
    assert unusable_schema(schema) is None


HEAVY = [
    ({"pattern": PATTERN}, HARD, "(pattern)"),
    ({"patternProperties": {PATTERN: False}}, {HARD: 1}, None),
    ({"patternProperties": {PATTERN: {}}, "additionalProperties": False}, {HARD: 1}, "(additionalProperties)"),
    ({"propertyNames": {"pattern": PATTERN}}, {HARD: 1}, "(pattern)"),
    ({"anyOf": [ITEM, OTHER]}, tree(40), "takes too long"),
    ({"oneOf": [ITEM, OTHER]}, tree(40), "takes too long"),
    ({"uniqueItems": True}, [{"a": number} for number in range(20_000)], None),
    ({"contains": {}, "unevaluatedItems": False}, list(range(50_000)), "takes too long"),
    ({"items": {"enum": list(range(20_000))}}, [0] * 50_000 + [-1], "takes too long"),
]


@pytest.mark.rule("OU-10")
@pytest.mark.slow
@pytest.mark.parametrize(("schema", "value", "fault"), HEAVY)
def test_no_value_freezes_the_judge(schema, value, fault):
    assert unusable_schema(schema) is None
    began = time.process_time()
    found = schema_fault(schema, value)
    several = schema_faults(schema, value, most=5)
    assert time.process_time() - began < 20  # seconds; without a bound each of them takes minutes to years
    assert (found is None) == (fault is None) == (several == ())
    assert fault is None or (found is not None and fault in found)
    assert all(len(text) < 3_000 for text in (found or "", *several))


def test_a_value_that_is_nested_too_deep_is_the_fault_not_the_schema():
    value: list[object] = []
    for _ in range(300):
        value = [value]
    assert (
        schema_fault({"allOf": [{"items": {"$ref": "#"}}]}, value) == "$: the value is nested too deep for the schema"
    )
    assert schema_faults({"items": {"$ref": "#"}}, value, most=5) == (
        "`$`: the value is nested too deep for the schema",
    )


def test_the_path_of_a_fault_is_bounded():
    """The keys of a value are a model's or a client's."""
    found = schema_fault({"additionalProperties": {"type": "string"}}, {"k" * 1_000_000: 1})
    assert found is not None
    assert len(found) < 3_000


@pytest.mark.parametrize(
    ("items", "unique"),
    [
        ([1, 1.0], False),
        ([1, True], True),
        ([0, False, None, "", [], {}], True),
        ([{"a": 1, "b": [True]}, {"b": [True], "a": 1.0}], False),
        ([{"a": 1}, {"a": True}], True),
        ([[1, 2], [2, 1]], True),
        (["1", 1], True),
        ([["a"], {"a": "a"}], True),
    ],
)
def test_items_are_equal_as_json_values_are(items, unique):
    assert (schema_fault({"uniqueItems": True}, items) is None) == unique


def test_properties_by_patterns_are_judged_as_by_names():
    schema = {
        "properties": {"a": {"type": "string"}},
        "patternProperties": {"^n": {"type": "integer"}, "x$": {"minimum": 5}},
        "additionalProperties": {"type": "null"},
    }
    assert schema_fault(schema, {"a": "", "nx": 7, "x": 8, "other": None}) is None
    assert schema_fault(schema, {"nx": 3}) == "$.nx: 3 is less than the minimum of 5"
    assert schema_fault(schema, {"n": ""}) == "$.n: '' is not of type 'integer'"
    assert schema_fault(schema, {"other": 1}) == "$.other: 1 is not of type 'null'"


def test_the_work_is_counted_for_each_judgement():
    value, schema = list(range(20_000)), {"items": {"type": "integer"}}
    for _ in range(30):
        assert schema_fault(schema, value) is None
    assert 30 * len(value) > judge.STEPS


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        (r"^[\u4e00-\u9fa5]$", "中", True),
        (r"^\\u4e00$", r"\u4e00", True),
        (r"^\\\u4e00$", "\\\u4e00", True),
        (r"^\/\-$", "/-", True),
        ("a", "\udc80", False),
    ],
)
def test_patterns_are_written_as_in_json_schemas(pattern, text, found):
    assert linear(pattern)(text) == found
