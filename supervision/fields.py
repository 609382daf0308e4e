"""Checks of the fields of a specification. A refusal names the field, its value and what is allowed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any, TypeAlias

from attrs import Attribute

from .errors import InvalidSpec

Field: TypeAlias = "Attribute[Any]"
Check = Callable[[object, Field, object], None]
"""A validator of attrs."""


def did_you_mean(word: object, known: Iterable[str], *, quoted: bool = True) -> str:
    """A question for the middle of a message, with a blank behind it; empty if none of the known words is near."""
    near = get_close_matches(str(word)[:100], list(known), n=1)
    if not near:
        return ""
    return f"did you mean {near[0]!r}? " if quoted else f"did you mean {near[0]}? "


def at_least(least: float) -> Check:
    """The field is a number, and this one or more."""

    def check(_: object, attribute: Field, value: object) -> None:
        if not isinstance(value, int | float) or not value >= least:
            raise InvalidSpec(f"{attribute.name}={value!r:.100}: give {least} or more")

    return check


def more_than(bound: float) -> Check:
    """The field is a number above this one."""

    def check(_: object, attribute: Field, value: object) -> None:
        if not isinstance(value, int | float) or not value > bound:
            raise InvalidSpec(f"{attribute.name}={value!r:.100}: give more than {bound}")

    return check


def one_of(*known: str) -> Check:
    """The field is one of these words."""

    def check(_: object, attribute: Field, value: object) -> None:
        if value not in known:
            way = " or ".join(map(repr, known))
            raise InvalidSpec(f"{attribute.name}={value!r:.100} is not known; {did_you_mean(value, known)}use {way}")

    return check


def a_text(_: object, attribute: Field, value: object) -> None:
    """The field is a str."""
    if not isinstance(value, str):
        raise InvalidSpec(f"{attribute.name}={value!r:.100}: give a str")
