"""Validators for the fields of a specification. An error names the field, the value and the allowed values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Final, TypeAlias

from attrs import Attribute

from .errors import InvalidSpec

_NO_SYNONYMS: Final[Mapping[str, str]] = {}
_LONGEST: Final = 100
"""Characters of a word that are compared, which takes quadratic time."""

Field: TypeAlias = "Attribute[Any]"
Check = Callable[[object, Field, object], None]
"""An attrs validator."""


_NEAR: Final = 0.6
"""Least ratio of equal characters, as difflib counts them, to a word with the same first letter ("denied", "deny")."""
_NEARER: Final = 0.75
"""The same to a word with another first letter: such words mostly share an ending only, and would mislead ("stop" has
0.67 to "top_p", "result_type" 0.7 to "deps_type")."""


def nearest(word: object, choices: Iterable[str], *, synonyms: Mapping[str, str] = _NO_SYNONYMS) -> str | None:
    """Return the known word that `word` probably stands for; None if no known word is similar.

    Args:
        word: The given word.
        choices: The words that would be valid.
        synonyms: Words of other libraries, each with the word of this one; a synonym of a known word counts as similar.
    """
    text, words = str(word)[:_LONGEST], list(choices)
    if synonyms.get(text) in words:
        return synonyms[text]
    first = text.lstrip("-")[:1].lower()
    alike = [known_word for known_word in words if known_word.lstrip("-")[:1].lower() == first]
    near = get_close_matches(text, alike, 1, _NEAR) or get_close_matches(text, words, 1, _NEARER)
    return near[0] if near else None


def did_you_mean(
    word: object, choices: Iterable[str], *, quoted: bool = True, synonyms: Mapping[str, str] = _NO_SYNONYMS
) -> str:
    """Return "did you mean ...? " with a trailing blank for a message; empty if `nearest` finds no word."""
    near = nearest(word, choices, synonyms=synonyms)
    if near is None:
        return ""
    return f"did you mean {near!r}? " if quoted else f"did you mean {near}? "


def at_least(least: float) -> Check:
    """Return a validator for numbers that are at least `least`."""

    def check(_: object, attribute: Field, value: object) -> None:
        if not isinstance(value, int | float) or not value >= least:
            raise InvalidSpec(f"{attribute.name}={value!r:.100}: give {least} or more")

    return check


def more_than(limit: float) -> Check:
    """Return a validator for numbers greater than `limit`."""

    def check(_: object, attribute: Field, value: object) -> None:
        if not isinstance(value, int | float) or not value > limit:
            raise InvalidSpec(f"{attribute.name}={value!r:.100}: give more than {limit}")

    return check


def one_of(*choices: str) -> Check:
    """Return a validator for one of the words `choices`."""

    def check(_: object, attribute: Field, value: object) -> None:
        if value not in choices:
            way = " or ".join(map(repr, choices))
            raise InvalidSpec(f"{attribute.name}={value!r:.100} is not known; {did_you_mean(value, choices)}use {way}")

    return check


def a_text(_: object, attribute: Field, value: object) -> None:
    """Validate that a field is a str."""
    if not isinstance(value, str):
        raise InvalidSpec(f"{attribute.name}={value!r:.100}: give a str")
