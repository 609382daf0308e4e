"""Hypothesis strategies for every value of the contract, built from the type hints of its class."""

import types
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import attrs
import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
MOMENTS = st.datetimes(datetime(1990, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))
NUMBERS = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(TEXT, JSON, max_size=3)

PLAIN: Mapping[Any, st.SearchStrategy[Any]] = {
    str: TEXT,
    int: st.integers(0, 2**31),
    float: st.floats(0, 1e9),
    bool: st.booleans(),
    datetime: MOMENTS,
    type(None): st.none(),
    msgspec.UnsetType: st.just(msgspec.UNSET),
    bytes: st.nothing(),  # no row holds the bytes of a part
    Any: JSON,
}


@cache
def values(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a type hint as the contract's classes use them."""
    if hint in PLAIN:
        return PLAIN[hint]
    origin, args = get_origin(hint), get_args(hint)
    match origin:
        case types.UnionType:
            return st.one_of([values(arg) for arg in args])
        case _ if origin is Union:
            return st.one_of([values(arg) for arg in args])
        case _ if origin is Annotated:
            return values(args[0])
        case _ if origin is Literal:
            return st.sampled_from(args)
        case _ if origin is tuple:
            return st.lists(values(args[0]), max_size=3).map(tuple)
        case _ if origin is Mapping:
            return st.dictionaries(TEXT, values(args[1]), max_size=3)
        case _ if isinstance(hint, type) and issubclass(hint, Enum):
            return st.sampled_from(hint)
        case _ if isinstance(hint, type) and (attrs.has(hint) or issubclass(hint, msgspec.Struct)):
            return instances(hint)
    raise TypeError(f"no strategy for {hint!r}")


def field_names(cls: Any) -> tuple[str, ...]:
    """The fields of an attrs class or struct, in order."""
    if issubclass(cls, msgspec.Struct):
        return cls.__struct_fields__
    return tuple(field.name for field in attrs.fields(cls))


def instances(cls: type, **fixed: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Objects of an attrs class or struct: each field drawn by its hint, unless it is given."""
    hints = get_type_hints(cls, include_extras=True)
    return st.builds(cls, **{name: values(hint) for name, hint in hints.items()} | fixed)


def examples(number: int) -> settings:
    """Try so many examples; GREENROOM_CHAOS=full tries 20 times as many, as it does everywhere."""
    share = number * settings().max_examples // 100
    return settings(max_examples=share, suppress_health_check=[HealthCheck.too_slow])
