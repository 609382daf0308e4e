"""Validators for the fields of a specification. An error names the field, the value and the allowed values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any, TypeAlias

from attrs import Attribute

from .errors import InvalidSpec

Field: TypeAlias = "Attribute[Any]"
Check = Callable[[object, Field, object], None]
"""An attrs validator."""


def did_you_mean(word: object, known: Iterable[str], *, quoted: bool = True) -> str:
    """Return "did you mean ...? " with a trailing blank for a message; empty if no known word is similar."""
    near = get_close_matches(str(word)[:100], list(known), n=1)
    if not near:
        return ""
    return f"did you mean {near[0]!r}? " if quoted else f"did you mean {near[0]}? "


def at_least(least: float) -> Check:
    """Return a validator for numbers that are at least `least`."""

    def check(_: object, attribute: Field, value: object) -> None:
        if not isinstance(value, int | float) or not value >= least:
            raise InvalidSpec(f"{attribute.name}={value!r:.100}: give {least} or more")

    return check


def more_than(bound: float) -> Check:
    """Return a validator for numbers greater than `bound`."""

    def check(_: object, attribute: Field, value: object) -> None:
        if not isinstance(value, int | float) or not value > bound:
            raise InvalidSpec(f"{attribute.name}={value!r:.100}: give more than {bound}")

    return check


def one_of(*known: str) -> Check:
    """Return a validator for one of the words `known`."""

    def check(_: object, attribute: Field, value: object) -> None:
        if value not in known:
            way = " or ".join(map(repr, known))
            raise InvalidSpec(f"{attribute.name}={value!r:.100} is not known; {did_you_mean(value, known)}use {way}")

    return check


def a_text(_: object, attribute: Field, value: object) -> None:
    """Validate that a field is a str."""
    if not isinstance(value, str):
        raise InvalidSpec(f"{attribute.name}={value!r:.100}: give a str")
