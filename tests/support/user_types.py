"""Types that users bring, each with JSON data that fits, the value that it is, and data that does not fit."""

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,  # pydantic reads those of `typing` from Python 3.12 on
    TypeVar,
)
from uuid import UUID

import annotated_types
import attrs
import msgspec
import pydantic
import pydantic.dataclasses
from typing_extensions import TypedDict

T = TypeVar("T")
UNSET: Any = object()


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@attrs.frozen
class Point:
    x: int
    y: int = 0


@attrs.frozen
class Path2:
    points: tuple[Point, ...]
    colour: Colour = Colour.RED


@attrs.frozen
class Even:
    number: int = attrs.field()

    @number.validator
    def _even(self, _: object, value: int) -> None:
        if value % 2:
            raise ValueError("it is odd")


@dataclasses.dataclass
class Pair:
    left: int
    right: int


@dataclasses.dataclass
class Named:
    name: str
    tags: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Limited:
    amount: Annotated[int, pydantic.Field(ge=0)]


class Record(msgspec.Struct):
    key: str
    at: datetime


class Closed(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    order_id: int


class Cat(msgspec.Struct, tag="cat"):
    lives: int


class Dog(msgspec.Struct, tag="dog"):
    tricks: list[str]


class Tree(msgspec.Struct):
    value: int
    children: list["Tree"] = []


class Movie(TypedDict):
    title: str
    year: NotRequired[int]


class Rated(TypedDict):
    stars: Annotated[int, pydantic.Field(ge=1, le=5)]


class Spot(NamedTuple):
    row: int
    seat: str = "A"


class Item(pydantic.BaseModel):
    sku: str
    qty: int = pydantic.Field(default=1, ge=1, description="how many")


class Order(pydantic.BaseModel):
    items: list[Item] = pydantic.Field(min_length=1)
    note: str | None = None


class Aliased(pydantic.BaseModel):
    order_id: int = pydantic.Field(alias="orderId")


class Renamed(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(alias_generator=lambda name: name.upper(), populate_by_name=True)
    amount: int


class OneWay(pydantic.BaseModel):
    word: str = pydantic.Field(validation_alias="in", serialization_alias="out")


class Sealed(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)
    a: int


class Open(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    a: int


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    at: datetime
    n: int


class Validated(pydantic.BaseModel):
    low: int
    high: int

    @pydantic.field_validator("low")
    @classmethod
    def _small(cls, value: int) -> int:
        if value > 100:
            raise ValueError("it is above 100")
        return value

    @pydantic.model_validator(mode="after")
    def _ordered(self) -> "Validated":
        if self.low > self.high:
            raise ValueError("low is above high")
        return self


class Computed(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    width: int

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def area(self) -> int:
        return self.width**2


class Secret(pydantic.BaseModel):
    key: pydantic.SecretStr


class Node(pydantic.BaseModel):
    name: str
    below: list["Node"] = []


class Box(pydantic.BaseModel, Generic[T]):
    content: T


class Car(pydantic.BaseModel):
    kind: Literal["car"]
    doors: int


class Bike(pydantic.BaseModel):
    kind: Literal["bike"]
    gears: int


class Names(pydantic.RootModel[list[str]]):
    pass


class Moments(pydantic.BaseModel):
    at: datetime
    day: date
    lasts: timedelta
    price: Decimal
    number: UUID
    colour: Colour


class Mixed(pydantic.BaseModel):
    pair: Pair
    movie: Movie
    spot: Spot


@pydantic.dataclasses.dataclass
class Checked:
    amount: int = pydantic.Field(ge=0)
    name: str = pydantic.Field(default="x", alias="theName")


class Encoded(pydantic.BaseModel):
    data: pydantic.Base64Bytes
    inner: pydantic.Json[list[int]]


NOON = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)
SEVEN = UUID(int=7)


@attrs.frozen(kw_only=True)
class UserType:
    """A type and examples.

    Attributes:
        kind: The type.
        data: JSON data that fits.
        value: The value of the data; UNSET: the data itself.
        stored: JSON data of the value; UNSET: `data`.
        bad: JSON data that does not fit.
        fault: A part of the text of the fault, with the path below the value.
        state: A part of the error of a state key; "" if the type can be that of a key.
        kept: The value that a state key returns; UNSET: `value`.
        result: JSON data of the value as a result; UNSET: `stored`.
        reader: The library that reads parameters.
    """

    kind: Any
    data: Any
    value: Any = UNSET
    stored: Any = UNSET
    bad: Any
    fault: str
    state: str = ""
    kept: Any = UNSET
    result: Any = UNSET
    pydantic: bool = False

    def __attrs_post_init__(self) -> None:
        for name, other in (("value", "data"), ("stored", "data"), ("result", "stored"), ("kept", "value")):
            if getattr(self, name) is UNSET:
                object.__setattr__(self, name, getattr(self, other))

    def __str__(self) -> str:
        return str(getattr(self.kind, "__name__", self.kind))[:60]


def plain(kind: Any, data: Any, value: Any = UNSET, *, bad: Any, fault: str, **more: Any) -> UserType:
    """A type that msgspec reads."""
    return UserType(kind=kind, data=data, value=value, bad=bad, fault=fault, **more)


def of_pydantic(kind: Any, data: Any, value: Any = UNSET, *, bad: Any, fault: str, **more: Any) -> UserType:
    """A type that pydantic reads."""
    return UserType(kind=kind, data=data, value=value, bad=bad, fault=fault, pydantic=True, **more)


PLAIN = (
    plain(str, "a", bad=1, fault="Expected `str`, got `int` - at `$`"),
    plain(int, 3, bad="3", fault="Expected `int`, got `str` - at `$`"),
    plain(float, 1.5, bad="x", fault="Expected `float`, got `str` - at `$`"),
    plain(bool, True, bad=1, fault="Expected `bool`, got `int` - at `$`"),
    plain(int | None, None, bad="x", fault="Expected `int | null`, got `str`"),
    plain(str | int | list[int], [1], bad=[None], fault="- at `$["),
    plain(list[int], [1, 2], bad=[1, "x"], fault="- at `$[1]`"),
    plain(tuple[int, str], [1, "a"], (1, "a"), bad=[1], fault="length 2"),
    plain(tuple[int, ...], [1, 2], (1, 2), bad=["x"], fault="- at `$["),
    plain(set[str], ["a"], {"a"}, bad="a", fault="got `str`"),
    plain(frozenset[int], [1], frozenset({1}), bad=["x"], fault="`$["),
    plain(dict[str, int], {"a": 1}, bad={"a": "x"}, fault="- at `$["),
    plain(Mapping[str, float], {"a": 1.5}, bad=[], fault="Expected `object`"),
    plain(Sequence[str], ["a"], kept=("a",), bad=[1], fault="- at `$[0]`"),
    plain(Any, {"a": [1]}, bad=UNSET, fault=""),
    plain(Literal["a", "b", 3], "b", bad="c", fault="Invalid enum value 'c'"),
    plain(Colour, "red", Colour.RED, bad="green", fault="Invalid enum value 'green'"),
    plain(Level, 2, Level.HIGH, bad=3, fault="Invalid enum value 3"),
    plain(datetime, "2026-01-02T12:00:00Z", NOON, bad="noon", fault="Invalid RFC3339"),
    plain(date, "2026-01-02", date(2026, 1, 2), bad="x", fault="Invalid "),
    plain(UUID, str(SEVEN), SEVEN, bad="x", fault="Invalid UUID"),
    plain(Decimal, "1.50", Decimal("1.50"), bad="x", fault="Invalid decimal"),
    plain(NewType("UserId", int), 3, bad="x", fault="Expected `int`"),
    plain(Annotated[int, msgspec.Meta(ge=0)], 3, bad=-1, fault="Expected `int` >= 0", state="would not be applied"),
    plain(Annotated[str, msgspec.Meta(pattern="^a+$")], "aa", bad="b", fault="matching regex", state="not be applied"),
    plain(Annotated[int, "how many"], 3, bad="x", fault="Expected `int`"),
    plain(Point, {"x": 1, "y": 2}, Point(1, 2), bad={"y": 1}, fault="missing required field `x`"),
    plain(
        Path2,
        {"points": [{"x": 1, "y": 0}], "colour": "blue"},
        Path2((Point(1),), Colour.BLUE),
        bad={"points": [{"x": "a"}]},
        fault="- at `$.points[0].x`",
    ),
    plain(Even, {"number": 2}, Even(2), bad={"number": 3}, fault="it is odd"),
    plain(list[Point], [{"x": 1, "y": 0}], [Point(1)], bad=[{}], fault="- at `$[0]`"),
    plain(Pair, {"left": 1, "right": 2}, Pair(1, 2), bad={"left": 1}, fault="missing required field `right`"),
    plain(Named | None, {"name": "a", "tags": ["b"]}, Named("a", ["b"]), bad={"name": 1}, fault="- at `$.name`"),
    plain(
        Record,
        {"key": "a", "at": "2026-01-02T12:00:00Z"},
        Record("a", NOON),
        bad={"key": "a", "at": "x"},
        fault="- at `$.at`",
    ),
    plain(Closed, {"orderId": 7}, Closed(7), bad={"orderId": 7, "b": 1}, fault="unknown field `b`"),
    plain(
        Cat | Dog,
        {"type": "cat", "lives": 9},
        Cat(9),
        bad={"type": "cow"},
        fault="Invalid value 'cow'",
        state="cannot be kept",
    ),
    plain(
        Tree,
        {"value": 1, "children": [{"value": 2, "children": []}]},
        Tree(1, [Tree(2)]),
        bad={"value": 1, "children": [{}]},
        fault="- at `$.children[0]`",
    ),
    plain(Movie, {"title": "M", "year": 1931}, bad={"year": 1}, fault="missing required field `title`"),
    plain(Spot, [3, "B"], Spot(3, "B"), bad=["x"], fault="- at `$[0]`"),
)

PYDANTIC = (
    of_pydantic(Item, {"sku": "a", "qty": 2}, Item(sku="a", qty=2), bad={"sku": "a", "qty": 0}, fault="- at `$.qty`"),
    of_pydantic(
        Order,
        {"items": [{"sku": "a", "qty": 1}], "note": None},
        Order(items=[Item(sku="a")]),
        bad={"items": [{"qty": 0}]},
        fault="Field required - at `$.items[0].sku`; Input should be greater than or equal to 1 - at `$.items[0].qty`",
    ),
    of_pydantic(list[Item], [{"sku": "a", "qty": 1}], [Item(sku="a")], bad=[{}], fault="required - at `$[0].sku`"),
    of_pydantic(Item | None, None, bad=3, fault="should be an object - at `$`"),
    of_pydantic(Aliased, {"orderId": 7}, Aliased(orderId=7), bad={"order_id": 7}, fault="required - at `$.orderId`"),
    of_pydantic(Renamed, {"AMOUNT": 7}, Renamed(amount=7), bad={"AMOUNT": "x"}, fault="- at `$.AMOUNT`"),
    of_pydantic(
        OneWay,
        {"in": "a"},
        OneWay(**{"in": "a"}),
        bad={},
        fault="- at `$.in`",
        result={"out": "a"},
        state="not read as it is written: Field required - at `$.in`",
    ),
    of_pydantic(Sealed, {"a": 1}, Sealed(a=1), bad={"a": 1, "b": 2}, fault="Extra inputs are not permitted - at `$.b`"),
    of_pydantic(Open, {"a": 1, "b": 2}, Open(a=1, b=2), bad={"a": "x"}, fault="- at `$.a`"),  # type: ignore[call-arg]
    of_pydantic(
        Strict,
        {"at": "2026-01-02T12:00:00Z", "n": 1},
        Strict(at=NOON, n=1),
        bad={"at": "2026-01-02T12:00:00Z", "n": "1"},
        fault="Input should be a valid integer - at `$.n`",
    ),
    of_pydantic(
        Validated,
        {"low": 1, "high": 2},
        Validated(low=1, high=2),
        bad={"low": 3, "high": 2},
        fault="low is above high - at `$`",
    ),
    of_pydantic(
        Computed,
        {"width": 3},
        Computed(width=3),
        bad={"width": 3, "area": 9},
        fault="- at `$.area`",
        result={"width": 3, "area": 9},
    ),
    of_pydantic(
        Secret,
        {"key": "k"},
        Secret(key=pydantic.SecretStr("k")),
        bad={"key": 1},
        fault="- at `$.key`",
        result={"key": "**********"},
        state="its type masks a part of it",
    ),
    of_pydantic(
        Node,
        {"name": "a", "below": [{"name": "b", "below": []}]},
        Node(name="a", below=[Node(name="b")]),
        bad={"name": "a", "below": [{}]},
        fault="- at `$.below[0].name`",
    ),
    of_pydantic(Box[int], {"content": 1}, Box[int](content=1), bad={"content": "x"}, fault="- at `$.content`"),
    of_pydantic(
        Box[Item],
        {"content": {"sku": "a", "qty": 1}},
        Box[Item](content=Item(sku="a")),
        bad={"content": {}},
        fault="- at `$.content.sku`",
    ),
    of_pydantic(
        Car | Bike,
        {"kind": "bike", "gears": 3},
        Bike(kind="bike", gears=3),
        bad={"kind": "bike", "gears": "x"},
        fault="- at `$.gears`",
    ),
    of_pydantic(
        Annotated[Car | Bike, pydantic.Field(discriminator="kind")],
        {"kind": "car", "doors": 3},
        Car(kind="car", doors=3),
        bad={"kind": "car", "doors": "x"},
        fault="an integer - at `$.doors`",
    ),
    of_pydantic(Names, ["a"], Names(["a"]), bad=[1], fault="- at `$[0]`"),
    of_pydantic(
        Moments,
        {
            "at": "2026-01-02T12:00:00Z",
            "day": "2026-01-02",
            "lasts": "PT5S",
            "price": "1.50",
            "number": str(SEVEN),
            "colour": "red",
        },
        Moments(
            at=NOON,
            day=date(2026, 1, 2),
            lasts=timedelta(seconds=5),
            price=Decimal("1.50"),
            number=SEVEN,
            colour=Colour.RED,
        ),
        bad={"at": "x"},
        fault="- at `$.at`",
    ),
    of_pydantic(
        Mixed,
        {"pair": {"left": 1, "right": 2}, "movie": {"title": "M"}, "spot": [3, "B"]},
        Mixed(pair=Pair(1, 2), movie={"title": "M"}, spot=Spot(3, "B")),
        bad={"pair": {"left": 1}, "movie": {"title": "M"}, "spot": [3]},
        fault="- at `$.pair.right`",
    ),
    of_pydantic(
        Checked, {"amount": 3, "theName": "b"}, Checked(3, theName="b"), bad={"amount": -1}, fault="- at `$.amount`"
    ),
    of_pydantic(
        Encoded,
        {"data": "aGk=", "inner": "[1]"},
        Encoded.model_validate({"data": "aGk=", "inner": "[1]"}),
        bad={"data": "aGk=", "inner": "{"},
        fault="- at `$.inner`",
        result={"data": "aGk=", "inner": [1]},
    ),
    of_pydantic(Limited, {"amount": 3}, Limited(3), bad={"amount": -3}, fault="equal to 0 - at `$.amount`"),
    of_pydantic(Rated, {"stars": 3}, bad={"stars": 9}, fault="less than or equal to 5 - at `$.stars`"),
    of_pydantic(Annotated[int, pydantic.Field(ge=0)], 3, bad=-5, fault="greater than or equal to 0 - at `$`"),
    of_pydantic(Annotated[str, annotated_types.MaxLen(2)], "ab", bad="abc", fault="at most 2 characters - at `$`"),
    of_pydantic(pydantic.conint(ge=1, multiple_of=2), 4, bad=3, fault="multiple of 2 - at `$`"),
    of_pydantic(pydantic.constr(pattern="^a+$"), "aa", bad="b", fault="match pattern"),
    of_pydantic(list[Annotated[int, pydantic.Field(gt=0)]], [1], bad=[1, 0], fault="- at `$[1]`"),
    of_pydantic(dict[str, Annotated[int, pydantic.Field(gt=0)]], {"a": 1}, bad={"a": 0}, fault="- at `$.a`"),
    of_pydantic(
        pydantic.AnyUrl, "http://x.org/a", pydantic.AnyUrl("http://x.org/a"), bad="x", fault="valid URL", state=""
    ),
    of_pydantic(Named | Pair, {"left": 1, "right": 2}, Pair(1, 2), bad={"left": 1}, fault="- at `$.right`"),
    of_pydantic(Path, "/a/b", Path("/a/b"), bad=3, fault="not a valid path"),
)
USER_TYPES = (*PLAIN, *PYDANTIC)
