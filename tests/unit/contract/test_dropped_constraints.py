"""Parts of types that only pydantic applies, and types whose constraints no library would apply: these are refused."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, NewType
from uuid import UUID

import annotated_types
import attrs
import msgspec
import pydantic
import pydantic.dataclasses
import pytest
from typing_extensions import TypedDict  # pydantic reads those of `typing` from Python 3.12 on

from greenroom.actors.agents.agent import Agent
from greenroom.actors.agents.handoff import handoff
from greenroom.actors.contract.codec import normalise_result
from greenroom.actors.contract.decisions import Suspend
from greenroom.actors.contract.user_types.choice import forget_forms
from greenroom.actors.contract.user_types.constraints import Reader, dropped_constraint, pydantic_part
from greenroom.actors.contract.user_types.pydantic_type import PydanticType
from greenroom.actors.errors import AgentDefinitionError, StateError, ToolDefinitionError, UsageError
from greenroom.actors.state.keys import StateKey
from greenroom.actors.tools import tool

from ...support.cases import case

Positive = Annotated[int, pydantic.Field(ge=0)]


class Model(pydantic.BaseModel):
    amount: Positive = 0


@pydantic.dataclasses.dataclass
class Checked:
    amount: Positive = 0


class Aliased(pydantic.BaseModel):
    word: pydantic.SecretStr = pydantic.Field(serialization_alias="theWord")
    at: UUID


@dataclass
class Plain:
    amount: Positive = 0


@attrs.frozen
class Frozen:
    amount: Positive = 0


@attrs.frozen
class Converted:
    amount: int = attrs.field(default=0, converter=abs)


class Typed(TypedDict):
    amount: Positive


class Noted(TypedDict):
    name: Annotated[str, "a name"]
    amount: Positive


@pydantic.with_config(extra="forbid")
class Closed(TypedDict):
    amount: int


class Named(NamedTuple):
    amount: Positive


class Struct(msgspec.Struct):
    amount: Positive = 0


@attrs.define
class Linked:
    """Names its own class, so that a walk without a memory would not end."""

    amounts: list[Positive]
    following: "Linked | None" = None


OF_PYDANTIC = [
    (Positive, "Annotated[...] with FieldInfo("),
    (Annotated[int, annotated_types.Ge(0)], "Annotated[...] with Ge(ge=0)"),
    (pydantic.PositiveInt, "Gt(gt=0)"),
    (Annotated[int, msgspec.Meta(ge=0), annotated_types.Le(9)], "Le(le=9)"),
    (list[Positive], "FieldInfo("),
    (dict[str, Positive] | None, "FieldInfo("),
    (NewType("Amount", Positive), "FieldInfo("),  # type: ignore[valid-newtype]
    (Plain, "Plain.amount: "),
    (Frozen, "Frozen.amount: "),
    (Typed, "Typed.amount: "),
    (Named, "Named.amount: "),
    (Struct, "Struct.amount: "),
    (list[Linked], "Linked.amounts: "),
    (list[Model], "Model"),
    (Checked, "Checked"),
    (pydantic.SecretStr, "SecretStr"),
    (Closed, "Closed"),
]


@pytest.mark.rule("OU-15")
@pytest.mark.parametrize(("kind", "text"), OF_PYDANTIC, ids=case)
def test_the_part_of_a_type_that_only_pydantic_applies_is_named_with_its_place(kind: Any, text: str):
    assert text in str(pydantic_part(kind))


DROPPED: list[tuple[Any, Reader, str]] = [
    (list[Annotated[str, "a name"]], "msgspec", "msgspec.Meta(description=...)"),
    (Converted, "msgspec", "Converted.amount: its converter would not be called"),
    (Noted, "pydantic", "Noted.name: Annotated[...] with 'a name' would not be applied; write Annotated[..., pydantic"),
    (Frozen, "pydantic", "pydantic, which reads this type, knows no class of attrs as Frozen"),
    (Struct, "pydantic", "knows no class of msgspec as Struct"),
    (list[Linked], "pydantic", "knows no class of attrs as Linked"),
    (Annotated[int, msgspec.Meta(ge=0), annotated_types.Le(9)], "pydantic", "Annotated[...] with msgspec.Meta(ge=0)"),
    (Annotated[int, msgspec.Meta(ge=0)], "cattrs", "pydantic.Field(...)"),
]


@pytest.mark.rule("OU-15")
@pytest.mark.parametrize(("kind", "reader", "text"), DROPPED, ids=case)
def test_a_constraint_that_the_reader_of_its_type_drops_is_named(kind: Any, reader: Reader, text: str):
    assert text in str(dropped_constraint(kind, reader=reader))


KEPT = [
    Annotated[int, msgspec.Meta(ge=0)],
    Literal["Annotated"],
    dict[str, list[int | None]],
    attrs.make_class("Bounded", {"a": attrs.field(validator=[])}),
]


@pytest.mark.parametrize("kind", KEPT, ids=case)
def test_msgspec_reads_a_type_without_such_constraints(kind: Any):
    assert (pydantic_part(kind), dropped_constraint(kind)) == (None, None)


def _parameter(kind: Any) -> object:
    async def pay(amount: Any) -> None: ...

    pay.__annotations__["amount"] = kind
    return tool(pay)


def _parameters_of_an_agent(kind: Any) -> object:
    return Agent("clerk").as_tool(parameters=kind, build_input=str)


def _input_of_a_handoff(kind: Any) -> object:
    return handoff("clerk", on_handoff=lambda ctx, given: None, input_type=kind)


DOORS = [
    (_parameter, ToolDefinitionError),
    (_parameters_of_an_agent, ToolDefinitionError),
    (_input_of_a_handoff, AgentDefinitionError),
    (lambda kind: Agent("a", output_type=kind), AgentDefinitionError),
    (lambda kind: StateKey("k", kind), StateError),
    (lambda kind: Suspend(response_schema=kind), UsageError),
]


@pytest.mark.rule("OU-15")
@pytest.mark.parametrize(("define", "error"), DOORS, ids=case)
def test_every_function_that_takes_types_refuses_a_constraint_that_would_be_dropped(
    define: Callable[[Any], object], error: type[Exception]
):
    with pytest.raises(error, match=r"knows no class of attrs as Frozen; write the class with pydantic or"):
        define(Frozen)


@pytest.mark.rule("OU-15")
@pytest.mark.parametrize("kind", [Plain, Model], ids=case)
@pytest.mark.parametrize(("define", "error"), DOORS, ids=case)
def test_every_function_that_takes_types_names_the_extra_where_pydantic_is_missing(
    define: Callable[[Any], object], error: type[Exception], kind: Any, monkeypatch: pytest.MonkeyPatch
):
    define(kind)
    monkeypatch.setitem(sys.modules, PydanticType.__module__, None)
    forget_forms()
    with pytest.raises(error, match=r"pydantic applies .*pip install 'greenroom\[pydantic\]', or write constraints as"):
        define(kind)


def test_a_type_that_msgspec_cannot_read_names_the_extra_where_pydantic_is_missing(monkeypatch: pytest.MonkeyPatch):
    class Unknown: ...

    with pytest.raises(UsageError) as present:
        Suspend(response_schema=Unknown)
    assert "greenroom[pydantic]" not in str(present.value)
    monkeypatch.setitem(sys.modules, "pydantic", None)
    with pytest.raises(UsageError, match=r"pydantic knows more types \(pip install 'greenroom\[pydantic\]'\)"):
        Suspend(response_schema=Unknown)


def test_a_default_that_pydantic_alone_reads_is_refused():
    async def pay(amount: int = pydantic.Field(ge=0)) -> None: ...

    with pytest.raises(ToolDefinitionError, match=r"parameter 'amount': pydantic alone reads the default"):
        tool(pay)


def test_a_state_key_keeps_a_dataclass_that_pydantic_checks():
    key = StateKey("k", Checked)
    assert key.decode(key.encode(Checked(3))) == Checked(3)
    with pytest.raises(StateError, match="greater than or equal to 0"):
        key.decode({"amount": -5})


@pytest.mark.rule("OU-15")
@pytest.mark.parametrize(
    ("value", "data"),
    [
        (Model(amount=3), {"amount": 3}),
        ([Model(amount=3)], [{"amount": 3}]),
        ({"paid": Model(amount=3)}, {"paid": {"amount": 3}}),
        (Checked(3), {"amount": 3}),
        (Aliased(word=pydantic.SecretStr("s"), at=UUID(int=7)), {"theWord": "**********", "at": str(UUID(int=7))}),
        ((pydantic.SecretStr("s"), pydantic.AnyUrl("http://x/")), ["**********", "http://x/"]),
    ],
    ids=case,
)
def test_a_model_of_pydantic_that_a_tool_returns_is_stored_as_the_data_that_it_writes(value: Any, data: Any):
    assert normalise_result(value) == (data, (), None)
