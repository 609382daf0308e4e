"""A tool's result may be anything; what the run keeps of it is JSON data, and making it so never fails."""

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import json
import math
import pathlib
import re
import types
import uuid
from typing import NamedTuple

import attrs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.actors.contract import codec
from greenroom.actors.contract.codec import normalise

from .strategies import JSON, examples


class Colour(enum.Enum):
    RED = "red"


class Size(enum.IntEnum):
    BIG = 3


class Tone(enum.StrEnum):
    DARK = "dark\ud800"


@attrs.frozen
class Point:
    x: object
    y: object = 0


@dataclasses.dataclass
class Line:
    start: object


class Struct(msgspec.Struct):
    field: object


class Pair(NamedTuple):
    a: object
    b: object


class Text(str):
    __slots__ = ()

    def encode(self, *_):
        raise RuntimeError("no bytes of me")

    def isascii(self):
        raise RuntimeError("nor letters")


class Number(int):
    def __int__(self):
        raise RuntimeError("not a number")


SHOWN = [
    (None, None),
    (True, True),
    (7, 7),
    (-(2**63), -(2**63)),
    (2**64 - 1, 2**64 - 1),
    (2**64, "18446744073709551616"),
    (10**5000, hex(10**5000)),
    (1.5, 1.5),
    (math.nan, "nan"),
    (math.inf, "inf"),
    (-math.inf, "-inf"),
    ("\ud800x\udfff", "?x?"),
    ("grün ✓ 好 \U0001f600 \0", "grün ✓ 好 \U0001f600 \0"),
    (b"caf\xc3\xa9 \xff", "café \ufffd"),
    (bytearray(b"ab"), "ab"),
    (memoryview(b"ab"), "ab"),
    ((1, (2,)), [1, [2]]),
    ({3}, [3]),
    (frozenset({"a"}), ["a"]),
    (collections.deque([1]), [1]),
    (collections.OrderedDict(a=1), {"a": 1}),
    (collections.Counter("aa"), {"a": 2}),
    (types.MappingProxyType({"a": (1,)}), {"a": [1]}),
    ({1: "a", None: "b", Colour.RED: "c", "\udc80": "d"}, {"1": "a", "None": "b", "red": "c", "?": "d"}),
    ({}.keys(), []),
    (Pair(1, b"x"), [1, "x"]),
    (Colour.RED, "red"),
    (Size.BIG, 3),
    (Tone.DARK, "dark?"),
    (Text("x"), "x"),
    (Number(5), 5),
    (Point(1, math.nan), {"x": 1, "y": "nan"}),
    (Point(Point({1})), {"x": {"x": [1], "y": 0}, "y": 0}),
    (Line(Point(Colour.RED)), {"start": {"x": "red", "y": 0}}),
    (Struct(dt.date(2025, 1, 2)), {"field": "2025-01-02"}),
    (dt.datetime(2025, 1, 2, tzinfo=dt.UTC), "2025-01-02T00:00:00Z"),
    (dt.date(2025, 1, 2), "2025-01-02"),
    (dt.timedelta(days=3), "P3D"),
    (decimal.Decimal("1.50"), "1.50"),
    (decimal.Decimal("NaN"), "NaN"),
    (uuid.UUID(int=5), "00000000-0000-0000-0000-000000000005"),
    (pathlib.PurePosixPath("/a/b"), "/a/b"),
    (ValueError("no"), "ValueError: no"),
    ([ExceptionGroup("two", [ValueError("\ud800")])], ["ExceptionGroup: two (1 sub-exception)"]),
]


@pytest.mark.parametrize(("value", "data"), SHOWN, ids=[f"{n}-{type(v).__name__}" for n, (v, _) in enumerate(SHOWN)])
def test_a_value_is_shown_as_the_data_that_it_holds(value, data):
    assert normalise(value) == (data, None)


class BadRepr:
    def __repr__(self):
        raise RuntimeError("no words")


class BadError(Exception):
    def __str__(self):
        raise RuntimeError("no words")


class BadMeta(type):
    @property
    def __name__(cls):
        raise RuntimeError("no name")


class Nameless(metaclass=BadMeta):
    pass


class Liar:
    @property
    def __class__(self):
        raise RuntimeError("no class")


class BadMapping(collections.abc.Mapping):
    def __getitem__(self, key):
        raise BadError

    def __iter__(self):
        return iter("ab")

    def __len__(self):
        return 2


class Endless(list):
    def __iter__(self):
        while True:
            yield 1


class BadKey:
    def __str__(self):
        raise RuntimeError("no key")


class ListInside:
    def __init__(self):
        self.inner = self


def itself_list():
    value = []
    value.append(value)
    return value


def itself_dict():
    value = {}
    value["me"] = [value, value]
    return value


def itself_attrs():
    @attrs.define(eq=False)
    class Node:
        next: object = None

    node = Node()
    node.next = [node]
    return node


def deep(levels, value=1):
    for _ in range(levels):
        value = [value]
    return value


def bomb():
    value = [1]
    for _ in range(50):
        value = [value, value]
    return value


HIDDEN = {
    "object": object(),
    "bad repr": BadRepr(),
    "bad repr inside": {"a": [BadRepr()]},
    "bad class": Liar(),
    "bad metaclass": Nameless(),
    "bad mapping": BadMapping(),
    "bad key": {BadKey(): 1},
    "function": print,
    "class": BadRepr,
    "iterator": iter([1]),
    "generator": (n for n in ()),
    "complex": 1j,
    "holds itself": ListInside(),
    "list in itself": itself_list(),
    "dict in itself": itself_dict(),
    "attrs in itself": itself_attrs(),
    "65 levels": deep(codec.MAX_DEPTH + 1),
    "100,000 levels": deep(100_000),
    "a date that would be the 65th": deep(codec.MAX_DEPTH, dt.date(2025, 1, 2)),
    "exception that cannot be told": BadError,
}


@pytest.mark.parametrize("name", HIDDEN)
def test_a_value_that_cannot_be_shown_is_a_text_that_says_so_and_a_reason(name):
    data, why = normalise(HIDDEN[name])
    assert re.fullmatch("<a .* that cannot be shown>", data)
    assert why
    msgspec.json.encode([data, why])


@pytest.mark.parametrize("value", [bomb(), Endless([1])], ids=["shared parts", "endless"])
def test_a_value_with_too_many_items_comes_to_an_end(value, monkeypatch):
    monkeypatch.setattr(codec, "MAX_ITEMS", 10_000)
    assert normalise(value) == (
        f"<a {type(value).__name__} that cannot be shown>",
        "ValueError: more than 10000 items",
    )


def test_an_exception_that_cannot_be_shown_is_shown_by_its_name():
    assert normalise(BadError()) == ("BadError", None)


def test_a_type_without_a_name_is_called_a_value():
    assert normalise(Nameless())[0] == "<a value that cannot be shown>"


def test_a_value_of_the_greatest_depth_is_shown_and_can_be_read_again():
    value, why = normalise(deep(codec.MAX_DEPTH))
    assert why is None
    assert json.loads(msgspec.json.encode(value)) == value


@given(JSON)
def test_json_data_stays_as_it_is(value):
    assert normalise(value) == (value, None)


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.decimals()
    | st.datetimes()
    | st.timedeltas()
    | st.uuids()
    | st.sampled_from([Colour.RED, Size.BIG, Tone.DARK, Text("x")])
    | st.builds(BadError)
    | st.builds(object)
)
ANYTHING = st.recursive(
    SCALARS | st.characters(categories=["Cs"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers() | st.none(), inner, max_size=3)
        | st.builds(Point, inner, inner)
        | st.builds(Line, inner)
        | st.builds(Struct, inner)
    ),
    max_leaves=12,
)


def built_in(value):
    match value:
        case dict():
            return type(value) is dict and all(type(k) is str and built_in(v) for k, v in value.items())
        case list():
            return type(value) is list and all(map(built_in, value))
        case _:
            return type(value) in {str, int, float, bool, type(None)}


@examples(300)
@given(ANYTHING)
def test_normalise_returns_json_of_built_in_types_for_any_value(value):
    data, why = normalise(value)
    assert built_in(data)
    assert why is None or why.encode()
    again = json.loads(json.dumps(data, allow_nan=False).encode())
    assert again == data == msgspec.json.decode(msgspec.json.encode(data))
    assert normalise(data) == (data, None)
