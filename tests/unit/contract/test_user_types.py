"""Every type that a user may bring, at every place: its schema, what is accepted and refused, there and back again."""

import dataclasses
import re
from collections.abc import Callable
from typing import Annotated, Any

import attrs
import jsonschema
import msgspec
import pydantic
import pytest

from greenroom.actors.agents.agent import Agent
from greenroom.actors.agents.handoff import handoff
from greenroom.actors.contract.codec import SchemaError, normalise_result
from greenroom.actors.contract.decisions import Decision, Suspend
from greenroom.actors.contract.json_schema.faults import schema_fault
from greenroom.actors.contract.user_types.choice import chosen_reader
from greenroom.actors.contract.user_types.constraints import without_note
from greenroom.actors.contract.user_types.pydantic_type import PydanticType
from greenroom.actors.errors import StateError, ToolDefinitionError, ToolError
from greenroom.actors.models.codecs.strict_schemas import strict_schema
from greenroom.actors.services.sanitize import suspend_of
from greenroom.actors.state.keys import StateKey, commutative
from greenroom.actors.testing.schema_values import value_for
from greenroom.actors.tools import Tool, tool
from greenroom.actors.tools.arguments import ArgumentsError

from ...support.user_types import (
    UNSET,
    USER_TYPES,
    Aliased,
    Bike,
    Box,
    Car,
    Checked,
    Closed,
    Computed,
    Item,
    Limited,
    Moments,
    Named,
    Node,
    Order,
    Pair,
    Point,
    UserType,
)

every_type = pytest.mark.parametrize("case", USER_TYPES, ids=str)


def parameter(case: UserType) -> Tool[..., object]:
    async def use(value: Any) -> None: ...

    use.__annotations__["value"] = case.kind
    return tool(use)


def same(value: object, expected: object) -> bool:
    return value == expected and type(value) is type(expected)


@every_type
def test_the_schema_of_a_parameter_accepts_what_the_check_accepts(case: UserType):
    schema = parameter(case).schema
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema_fault(schema, {"value": case.data}) is None
    assert schema["additionalProperties"] is False


@every_type
def test_a_parameter_gets_the_value_of_its_type(case: UserType):
    use = parameter(case)
    assert same(use.convert({"value": case.data})["value"], case.value)
    assert use.check({"value": case.data}) is None


@every_type
def test_a_parameter_refuses_other_data_and_names_the_path(case: UserType):
    if case.bad is UNSET:
        return
    with pytest.raises(ArgumentsError) as raised:
        parameter(case).convert({"value": case.bad})
    assert case.fault.replace("`$", "`$.value") in str(raised.value)


@every_type
def test_a_result_is_stored_as_the_data_of_its_type(case: UserType):
    assert normalise_result(case.value) == (case.result, (), None)


@every_type
def test_an_output_is_stored_and_read_as_the_value_of_its_type(case: UserType):
    agent = Agent("a", output_type=case.kind)
    if case.kind is str:
        return
    stored, why = agent._output.check(msgspec.json.encode(case.data).decode())
    assert (stored, why) == (case.stored, None)
    assert same(agent.parse_output(stored), case.value)
    if case.bad is not UNSET:
        _, why = agent._output.check(msgspec.json.encode(case.bad).decode())
        assert case.fault in str(why)


@every_type
def test_a_state_key_keeps_the_value_of_its_type(case: UserType):
    if case.state:
        with pytest.raises(StateError, match=re.escape(case.state)):
            StateKey("k", case.kind).encode(case.value)
        return
    key = StateKey("k", case.kind)
    assert same(key.decode(key.encode(case.value)), case.kept)


@every_type
def test_an_answer_to_a_question_is_read_as_the_value_of_its_type(case: UserType):
    question = suspend_of(Suspend(response_schema=case.kind))
    assert question.response_schema is not None
    assert schema_fault(question.response_schema, case.data) is None
    assert same(Decision(target="t", action="resume", result=case.data).read(case.kind), case.value)
    if case.bad is not UNSET and schema_fault(question.response_schema, case.bad) is None:
        with pytest.raises(ToolError) as raised:
            Decision(target="t", action="resume", result=case.bad).read(case.kind)
        assert case.fault in str(raised.value)


@every_type
def test_pydantic_reads_only_the_types_that_need_it(case: UserType):
    kind, _ = without_note(case.kind)
    assert (chosen_reader(kind) is not None) is case.pydantic


class Arbitrary(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    point: Point


class Unfinished(pydantic.BaseModel):
    other: "Missing"  # type: ignore[name-defined]  # noqa: F821 - the point


@attrs.frozen
class Holder:
    item: Item


REFUSED: list[tuple[Any, str]] = [
    (object, "has no JSON form"),
    (Callable[[], int], "has no JSON form"),
    (Item | Callable[[], int], "pydantic cannot read"),
    (Holder, "knows no class of attrs as Holder"),
    (list[Item | Point], "knows no class of attrs as Point"),
    (Arbitrary, "pydantic cannot read"),
    (Unfinished, "is not fully defined"),
    (Annotated[int, pydantic.Field(alias="n")], "'alias' attribute"),
    (Annotated[Limited, msgspec.Meta(description="x")], "msgspec.Meta(description='x') would not be applied"),
    (dict[str, Annotated[str, "a name"]], "'a name' would not be applied"),
    (Annotated[str, pydantic.Field(pattern="(")], "pydantic cannot read"),
]


@pytest.mark.parametrize(("kind", "text"), REFUSED, ids=[str(kind)[:60] for kind, _ in REFUSED])
def test_a_type_that_no_library_reads_is_refused_with_its_parameter(kind: Any, text: str):
    async def use(value: Any) -> None: ...

    use.__annotations__["value"] = kind
    with pytest.raises(ToolDefinitionError, match="tool 'use', parameter 'value': ") as raised:
        tool(use)
    assert text in str(raised.value)


def test_defaults_and_descriptions_are_in_the_schema():
    @tool
    async def use(
        item: Item = Item(sku="a"),  # noqa: B008 - a frozen default is the point
        count: Annotated[int, pydantic.Field(ge=1, description="of pieces")] = 3,
        name: Annotated[str, "of the customer"] = "Ada",
        plain: Annotated[int, pydantic.Field(ge=1)] = -1,
    ) -> None:
        """Use it.

        Args:
            item: what is bought
            name: not read, for the annotation says more
            plain: as it is
        """

    parts = use.schema["properties"]
    assert parts["item"]["default"] == {"sku": "a", "qty": 1}
    assert parts["item"]["description"] == "what is bought"
    assert parts["item"]["properties"]["qty"]["description"] == "how many"
    assert parts["count"] == {"description": "of pieces", "minimum": 1, "type": "integer", "default": 3}
    assert parts["name"] == {"type": "string", "description": "of the customer", "default": "Ada"}
    assert parts["plain"] == {"minimum": 1, "type": "integer", "description": "as it is"}  # the default is outside
    assert "required" not in use.schema or use.schema["required"] == []
    assert use.convert({}) == {}


def test_a_default_in_the_annotation_is_refused():
    async def use(count: Annotated[int, pydantic.Field(default=3)]) -> None: ...

    with pytest.raises(ToolDefinitionError, match=r"is not that of the parameter; write it in the signature, `count: "):
        tool(use)


def test_two_classes_of_one_name_are_refused():
    class Outer(pydantic.BaseModel):
        class Pair(pydantic.BaseModel):
            a: int

        pairs: list[Pair]
        more: list[Pair]

    async def use(mine: list[Pair], also: tuple[Pair, Pair], theirs: Outer) -> None: ...

    use.__annotations__.update(mine=list[Pair], also=tuple[Pair, Pair], theirs=Outer)
    with pytest.raises(ToolDefinitionError, match=r"two classes of the parameters are named 'Pair'"):
        tool(use)


class Rude(pydantic.BaseModel):
    what: str

    @pydantic.field_validator("what")
    @classmethod
    def _raise(cls, what: str) -> str:
        raise {"key": KeyError("key"), "exit": SystemExit(3), "cancel": GeneratorExit()}.get(what, RuntimeError(what))


@pytest.mark.parametrize("what", ["key", "exit", "cancel", "boom"])
def test_a_validator_may_raise_anything(what: str):
    async def use(value: Rude) -> None: ...

    use.__annotations__["value"] = Rude
    fault = tool(use).check({"value": {"what": what}})
    assert fault is not None
    assert fault.startswith("Invalid arguments: ")
    assert "- at `$.value`. The arguments are: value." in fault
    key = StateKey("k", Rude)
    with pytest.raises(StateError):
        key.decode({"what": what})
    assert Agent("a", output_type=Rude)._output.check(f'{{"what": "{what}"}}')[1] is not None


def test_objects_of_pydantic_inside_of_other_classes_are_written_as_they_write_themselves():
    item, data, secret = Item(sku="a"), {"sku": "a", "qty": 1}, pydantic.SecretStr("s")
    values: list[Any] = [
        attrs.make_class("Frozen", {"item": attrs.field(type=Any), "key": attrs.field(type=Any)})(item, secret),
        dataclasses.make_dataclass("Data", [("item", Item), ("key", Any)])(item, secret),
        msgspec.defstruct("Struct", [("item", Any), ("key", Any)])(item, secret),
        {"item": item, "key": secret},
    ]
    for value in (*values, *map(list, zip(values))):
        shown = {"item": data, "key": "**********"}
        assert normalise_result(value) == ([shown] if isinstance(value, list) else shown, (), None)


def test_a_model_reads_five_faults_and_the_number_of_the_others():
    case = UserType(kind=list[Item], data=[], bad=[{}] * 9, fault="")
    fault = parameter(case).check({"value": case.bad})
    assert str(fault).count("Field required") == 5
    assert "; and 4 more. The arguments are: value." in str(fault)


def test_a_value_of_too_many_items_or_faults_is_refused_with_their_number():
    read = PydanticType.of(list[Item]).read
    with pytest.raises(SchemaError, match=r"^it has 6,000 faults; give a value of the form .* - at `\$`$"):
        read([{}] * 6_000)
    with pytest.raises(SchemaError, match=r"^it has more than 100,000 items; give a smaller value - at `\$\.items`$"):
        read([{"sku": "a"}] * 50_001, "$.items")
    assert len(read([{"sku": "a"}] * 50_000)) == 50_000
    assert PydanticType.of(Item).read({"sku": "," * 200_000}).sku.startswith(",")


def test_faults_of_several_parameters_are_named_together():
    @tool
    async def use(item: Item, amount: Annotated[int, pydantic.Field(ge=0)]) -> None: ...

    fault = use.check({"item": {}, "amount": -5})
    faults = ("Field required - at `$.item.sku`", "Input should be greater than or equal to 0 - at `$.amount`")
    assert str(fault).startswith(f"Invalid arguments: {'; '.join(faults)}. ")


class Ring(pydantic.BaseModel):
    following: "Ring | None" = None


def test_a_value_that_holds_itself_is_reported_and_not_followed():
    ring = Ring()
    ring.following = ring
    data, _, why = normalise_result(ring)
    assert (data, why) == ("<a Ring that cannot be shown>", "ValueError: Circular reference detected (id repeated)")
    with pytest.raises(StateError, match="Circular reference"):
        StateKey("k", Ring).encode(ring)
    deep: Any = None
    for _ in range(60):
        deep = {"following": deep}
    assert isinstance(Agent("a", output_type=Ring).parse_output(deep), Ring)


def test_a_value_of_another_class_is_no_value_of_a_state_key():
    for value in ({"sku": "a"}, Pair(1, 2), None):
        with pytest.raises(StateError, match="is no Item"):
            StateKey("k", Item).encode(value)


def test_a_commutative_key_has_updates_of_pydantic():
    key = StateKey("k", list[Item], default=[], merge=commutative(lambda items, item: [*items, item], Item))
    with pytest.raises(StateError, match="greater than or equal to 1"):
        key.encode_update(Item.model_construct(sku="a", qty=0))
    data = key._reduce([], key.encode_update(Item(sku="a")))
    assert key.decode(data) == [Item(sku="a")]


@pytest.mark.parametrize("kind", [Item, Limited, Named | Pair], ids=str)
def test_a_class_describes_the_arguments_of_an_agent_as_a_tool_and_of_a_handoff(kind: Any):
    if kind == Named | Pair:
        with pytest.raises(ToolDefinitionError, match="not an object with named properties"):
            Agent("clerk").as_tool(parameters=kind, build_input=str)
        return
    ask = Agent("clerk").as_tool(parameters=kind, build_input=str)
    assert ask.schema["type"] == "object"
    assert "title" not in ask.schema
    assert "Invalid arguments: Field required - at `$." in str(ask.check({}))
    to = handoff("clerk", on_handoff=lambda ctx, order: None, input_type=kind)
    assert to.schema == ask.schema


@pytest.mark.parametrize("kind", [Point, Item, Closed], ids=str)
def test_a_question_has_the_fields_of_its_type_at_the_root_of_its_schema(kind: Any):
    schema = Suspend(response_schema=kind).response_schema
    assert schema is not None
    assert schema["type"] == "object"
    assert schema["properties"]
    assert "$defs" not in schema


def test_a_class_that_names_itself_describes_arguments():
    ask = Agent("clerk").as_tool(parameters=Ring, build_input=str)
    jsonschema.Draft202012Validator.check_schema(ask.schema)
    assert schema_fault(ask.schema, {"following": {"following": None}}) is None
    assert isinstance(ask.convert({"following": {}})["input"], Ring)


STRICT = (Item, Order, Aliased, Node, Box[Item], Car | Bike, Checked, Moments, Limited, Computed)


@pytest.mark.parametrize("kind", STRICT, ids=str)
def test_the_schemas_of_pydantic_have_the_strict_form_of_openai(kind: Any):
    (case,) = (case for case in USER_TYPES if case.kind == kind)
    use = parameter(case)
    form = strict_schema(use.schema, limits=True)
    assert form is not None
    jsonschema.Draft202012Validator.check_schema(form)
    assert schema_fault(form, {"value": case.stored}) is None
    assert same(use.convert({"value": case.stored})["value"], case.value)
    use_default = {"value": {**case.data, "qty": None}} if kind is Item else {"value": case.data}
    assert use.check(use_default) is None  # null stands for a default


UNSAID = {"Even", "Validated", "Encoded", "datetime", "Record"}
"""Types that demand more than their schemas say: a validator, base64, JSON in a text, a time (of msgspec)."""


@every_type
def test_the_test_kit_makes_arguments_of_every_type(case: UserType):
    use = parameter(case)
    if str(case) in UNSAID or case.kind is Any:
        return
    for seed in ("a", "b", "c"):
        arguments = value_for(use.schema, seed)
        assert use.check(arguments) is None, arguments
