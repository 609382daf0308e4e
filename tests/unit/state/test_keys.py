"""State keys: what is written is what is read, or it is refused with the key and the place."""

import copy
import enum
import math
import operator
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, Literal, NamedTuple
from uuid import UUID

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.actors.errors import StateError
from greenroom.actors.state.keys import NAME_LIMIT, StateKey, commutative

from ...support.cases import case


class Colour(enum.Enum):
    RED = "r"
    BLUE = "b"


class Mood(str, enum.Enum):  # noqa: UP042 - as people write it who know older Pythons
    CALM = "calm"


class Size(enum.IntEnum):
    LARGE = 2


class Pair(NamedTuple):
    a: int
    b: str


@attrs.frozen
class Point:
    x: int
    tags: tuple[str, ...] = ()


@attrs.frozen
class Map:
    home: Point
    roads: dict[str, list[int]] = attrs.field(factory=dict)
    named: Point | None = None


@attrs.define(eq=False)
class Bag:
    things: list[str]


NOON = datetime(2031, 5, 1, 12, tzinfo=timezone(timedelta(hours=2)))

FITTING: list[tuple[Any, Any]] = [
    (int, 0),
    (int, -(2**63)),
    (int, 2**64 - 1),
    (float, 1.5),
    (float, 3),
    (str, "日本 \x00 \U0001f600"),
    (bool, True),
    (bytes, b"\x00\xff"),
    (list[int], [1, 2]),
    (list[list[str]], [["a"], []]),
    (tuple[int, ...], (1, 2)),
    (tuple[int, str], (1, "a")),
    (set[str], {"b", "a", "c"}),
    (frozenset[int], frozenset({3, 1})),
    (dict[str, int], {"a": 1}),
    (dict[str, Any], {"a": [None, {"b": 1.5}]}),
    (dict[Colour, int], {Colour.RED: 1}),
    (Any, {"a": [1, None, "x"]}),
    (int | None, None),
    (int | None, 4),
    (int | str, "a"),
    (Literal["a", "b"], "b"),
    (Colour, Colour.BLUE),
    (Mood, Mood.CALM),
    (Mood | None, Mood.CALM),
    (Size, Size.LARGE),
    (Point, Point(1, ("a", "b"))),
    (Point | None, Point(1)),
    (Map, Map(Point(1), {"a": [1, 2]}, Point(2))),
    (list[Map], [Map(Point(1))]),
    (Pair, Pair(1, "a")),
    (datetime, NOON),
    (datetime, datetime(2031, 5, 1, tzinfo=UTC)),
    (date, date(2031, 5, 1)),
    (time, time(12, 30)),
    (timedelta, timedelta(seconds=1.5)),
    (list[Decimal], [Decimal("1.50")]),
    (dict[str, UUID], {"a": UUID(int=7)}),
]


@pytest.mark.rule("S-7")
@pytest.mark.parametrize(("kind", "value"), FITTING, ids=case)
def test_a_value_is_read_as_it_was_written(kind: Any, value: Any) -> None:
    key = StateKey("k", kind, default=value)
    assert key.decode(key.encode(value)) == value == key.initial()
    assert type(key.decode(key.encode(value))) is type(value)


WRONG: list[tuple[Any, Any, str]] = [
    (int, True, "True is no int: expected int, not bool True"),
    (int, 1.0, "expected int, not float 1.0"),
    (int, "1", "expected int, not str '1'"),
    (int, None, "expected int, not NoneType None"),
    (int, 2**64, "an integer of more than 64 bits has no form as JSON"),
    (Any, -(2**63) - 1, "an integer of more than 64 bits"),
    (float, math.nan, "nan has no form as JSON @ $"),
    (float | None, math.inf, "inf has no form as JSON"),
    (dict[str, Any], {"a": [1, math.nan]}, "nan has no form as JSON @ $['a'][1]"),
    (str, "\ud800", "a lone surrogate"),
    (dict[str, int], {"\ud800": 1}, "a lone surrogate"),
    (str, b"x", "it would be read as 'eA=='"),
    (list[str], "abc", "it would be read as ['a', 'b', 'c']"),
    (set[str], "ab", "it would be read as {'a', 'b'}"),
    (list[int], {1}, "it would be read as [1]"),
    (list[int], [1, "x"], "[1, 'x'] is no list[int]: expected int, not str 'x' @ $[1]"),
    (tuple[int, str], (1,), "Not enough values"),
    (dict[str, int], {"a": "x"}, "expected int, not str 'x' @ $['a']"),
    (dict[str, int], {1: 1}, "the key 1 is no text"),
    (dict[Any, str], {1: "a"}, "the key 1 is no text"),
    (dict[str, int], [("a", 1)], "no dict[str, int]"),
    (int | str, 1.5, "no int | str"),
    (int | None, "x", "expected int, not str 'x'"),
    (Literal["a", "b"], "c", "c not in literal"),
    (Colour, "r", "it would be read as <Colour.RED: 'r'>"),
    (Colour, "z", "'z' is not a valid Colour"),
    (Mood, "angry", "'angry' is not a valid Mood"),
    (list[Size], [3], "3 is not a valid Size @ $[0]"),
    (dict[Mood, int], {"angry": 1}, "'angry' is not a valid Mood"),
    (Point, Point("x"), "expected int, not str 'x' @ $.x"),  # type: ignore[arg-type]
    (Point, {"x": 1}, "it would be read as Point(x=1, tags=())"),
    (Point, Map(Point(1)), "required field missing @ $.x"),
    (Map, Map(Point(1), {"a": [1, "x"]}), "expected int, not str 'x' @ $.roads['a'][1]"),  # type: ignore[list-item]
    (datetime, datetime(2031, 5, 1), "has no time zone"),
    (datetime, "2031-05-01T00:00:00Z", "it would be read as"),
    (Any, object(), "unsupported"),
]


@pytest.mark.rule("S-8")
@pytest.mark.parametrize(("kind", "value", "text"), WRONG, ids=case)
def test_a_value_that_does_not_fit_is_refused_with_the_key_and_the_place(kind: Any, value: Any, text: str) -> None:
    with pytest.raises(StateError) as caught:
        StateKey("its-name", kind).encode(value)
    assert "state key 'its-name': " in str(caught.value)
    assert text in str(caught.value)
    with pytest.raises(StateError):
        StateKey("k", kind, default=value)


def test_a_circular_or_very_deep_value_is_refused() -> None:
    itself: list[Any] = []
    itself.append(itself)
    deep: Any = 1
    for _ in range(100):
        deep = [deep]
    deeper = deep
    for _ in range(50_000):
        deeper = [deeper]
    for value in (itself, deep, deeper):
        with pytest.raises(StateError, match="nested more than 64 levels deep, or it holds itself"):
            StateKey("k", Any).encode(value)


def test_a_class_without_equality_is_compared_by_what_it_holds() -> None:
    key = StateKey("k", Bag)
    assert key.decode(key.encode(Bag(["a"]))).things == ["a"]


def test_equal_sets_are_equal_data() -> None:
    key = StateKey("k", set[str])
    assert key.encode({"b", "a", "c"}) == key.encode({"c", "b", "a"}) == ["a", "b", "c"]


json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(json)
def test_any_json_is_kept_as_it_is_and_never_shared(value: Any) -> None:
    key = StateKey("k", Any)
    data = key.encode(value)
    found = key.decode(data)
    assert found == value
    assert repr(found) == repr(value), "True is not 1"
    for one in (value, found):
        if isinstance(one, list):
            one.append("more")
        elif isinstance(one, dict):
            one["more"] = one
    assert "more" not in (data if isinstance(data, list | dict) else ())


@pytest.mark.parametrize("kind", [Any, list, dict, dict[str, Any], list[list[int]]])
def test_a_read_value_shares_nothing_with_the_stored_value(kind: Any) -> None:
    key = StateKey("k", kind)
    value: Any = [[1]] if kind in (Any, list) or "list[list" in str(kind) else {"a": [1]}
    data = key.encode(value)
    inner = key.decode(data)["a" if isinstance(value, dict) else 0]
    inner.append(2)
    assert key.decode(data) == value


# --- definitions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"name": ""}, "state key '': use 1 to 128 printable characters without spaces"),
        ({"name": "a b"}, "without spaces"),
        ({"name": "a\n"}, "printable"),
        ({"name": "x" * (NAME_LIMIT + 1)}, "use 1 to 128"),
        ({"name": 3}, "state key 3: "),
        ({"name": "\ud800"}, "printable"),
        ({"scope": "global"}, "scope='global' is not known; use 'run' or 'thread'"),
        ({"merge": "sum"}, "merge='sum' is not known; use 'exclusive' or gr.commutative(function)"),
        ({"merge": operator.add}, "gr.commutative(function)"),
        ({"persistent": 1}, "persistent=1: give True or False"),
        ({"default": "x"}, "'x' is no int: expected int, not str 'x'"),
        ({"type": object}, "values of <class 'object'> cannot be kept as JSON"),
        ({"type": list[slice]}, "values of <class 'slice'> cannot be kept"),
        ({"type": dict[int, str]}, "has keys of int, which JSON does not have; use text keys"),
        ({"type": list[dict[tuple[int, int], str] | None]}, "has keys of tuple, which JSON does not have"),
        ({"type": 3}, "values of 3 cannot be kept"),
        ({"merge": commutative(operator.add, object)}, "values of <class 'object'> cannot be kept"),
    ],
)
def test_a_key_that_is_wrong_is_refused_with_its_name_and_the_way_out(options: dict[str, Any], text: str) -> None:
    with pytest.raises(StateError) as caught:
        StateKey(**{"name": "k", "type": int, **options})
    assert text in str(caught.value)


def test_a_reducer_is_a_function() -> None:
    with pytest.raises(StateError, match=r"commutative\(3\): give a function of \(value, update\)"):
        commutative(3)  # type: ignore[arg-type]


@pytest.mark.rule("S-1")
def test_each_read_of_a_default_is_a_new_copy() -> None:
    given: list[str] = ["a"]
    key = StateKey("k", list[str], default=given)
    given.append("b")
    key.initial().append("c")
    assert key.initial() == ["a"]
    with pytest.raises(StateError, match="state key 'k' has not been written and has no default; give it one"):
        StateKey("k", int).initial()


def test_none_is_a_default_like_any_other() -> None:
    assert StateKey("k", int | None, default=None).initial() is None


def test_an_exclusive_key_takes_no_updates() -> None:
    with pytest.raises(StateError, match=r"is exclusive and takes no updates; use set\(key, ...\)"):
        StateKey("k", int).encode_update(1)


@pytest.mark.rule("S-3")
def test_an_update_has_a_type_of_its_own() -> None:
    key = StateKey("k", list[str], merge=commutative(lambda value, more: [*value, more], str))
    assert key.encode_update("a") == "a"
    with pytest.raises(StateError, match=r"update of state key 'k': \['a'\] is no str"):
        key.encode_update(["a"])


def test_a_reducer_gets_copies_and_cannot_change_the_stored_value() -> None:
    def spoil(value: list[Any], more: list[Any]) -> list[Any]:
        assert isinstance(value, list)
        value.append("spoilt")
        more.append("spoilt")
        return [*value, *more]

    key = StateKey("k", list[Any], merge=commutative(spoil))
    current, update = [1], [2]
    reduce = key.spec.reduce
    assert reduce is not None
    assert reduce(current, update) == [1, "spoilt", 2, "spoilt"]
    assert (current, update) == ([1], [2])


def test_the_result_of_a_reducer_must_fit_the_type_of_the_key() -> None:
    key = StateKey("k", int, merge=commutative(lambda value, more: f"{value}{more}"))
    reduce = key.spec.reduce
    assert reduce is not None
    with pytest.raises(StateError, match="state key 'k': '12' is no int"):
        reduce(1, 2)


@pytest.mark.rule("S-37")
def test_data_of_another_type_is_an_error_with_key_and_path() -> None:
    with pytest.raises(StateError) as caught:
        StateKey("k", Map).decode({"home": {"x": 1, "tags": ["a", 3]}})
    assert str(caught.value) == "state key 'k' holds a value that is no Map: expected str, not int 3 @ $.home.tags[1]"


def test_a_newer_class_reads_what_was_written_before_it_got_a_field_with_a_default() -> None:
    assert StateKey("k", Point).decode({"x": 1}) == Point(1)


def test_a_copy_of_a_key_is_the_key() -> None:
    key = StateKey("k", int)
    assert copy.copy(key) is copy.deepcopy([key])[0] is key
