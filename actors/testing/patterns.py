"""Texts that match a regular expression, for `schema_values`.

The syntax tree of Python's own parser is walked, and each node yields a text that fits. Lookarounds and anchors yield
nothing; the caller compares the result with the expression and draws again.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Iterable, Mapping
from random import Random
from re import _constants, _parser  # type: ignore[attr-defined]  # the stubs leave the parser out
from typing import Any, Final, TypeAlias

_Node: TypeAlias = Any
"""An operator of the parser, or its argument."""
_POOL: Final = string.ascii_lowercase + string.digits + string.ascii_uppercase + string.punctuation + " \n"
"""Characters that a class by exclusion is drawn from, in the order of preference."""
_WORD: Final = string.ascii_letters + string.digits + "_"
_CATEGORIES: Final[Mapping[_Node, Callable[[str], bool]]] = {
    _constants.CATEGORY_DIGIT: str.isdigit,
    _constants.CATEGORY_NOT_DIGIT: lambda one: not one.isdigit(),
    _constants.CATEGORY_SPACE: str.isspace,
    _constants.CATEGORY_NOT_SPACE: lambda one: not one.isspace(),
    _constants.CATEGORY_WORD: lambda one: one in _WORD,
    _constants.CATEGORY_NOT_WORD: lambda one: one not in _WORD,
}
_EMPTY: Final[frozenset[_Node]] = frozenset(
    {_constants.AT, _constants.ASSERT, _constants.ASSERT_NOT, _constants.FAILURE}
)
"""Parts that take no character. The last one is `(?!)` since Python 3.13: no text fits, as the final check finds."""


LONGEST: Final = 100_000
"""Most characters of a text that is made."""


class UnknownPattern(Exception):
    """The expression is invalid, or has a part for which no text can be made."""


class PatternText:
    """Draws texts for one regular expression.

    Args:
        pattern: the expression, in Python's syntax.
        rng: decides every choice.

    Raises:
        UnknownPattern: the expression is invalid.
    """

    def __init__(self, pattern: str, rng: Random) -> None:
        self._room = 0
        try:
            self._tree = _parser.parse(pattern)
        except (_constants.error, RecursionError, OverflowError) as error:
            raise UnknownPattern(f"the pattern {pattern!r} is invalid: {error}") from error
        self._rng = rng
        self._groups: dict[int, str] = {}
        self._more = 0

    def draw(self, more: int) -> str:
        """Return a text; each repetition has at most `more` beyond its least.

        Raises:
            UnknownPattern: no text can be made for a part of the expression.
        """
        self._groups, self._more, self._room = {}, more, LONGEST
        return self._all(self._tree)

    def _all(self, nodes: Iterable[tuple[_Node, _Node]]) -> str:
        return "".join(self._one(op, value) for op, value in nodes)

    def _one(self, op: _Node, value: _Node) -> str:
        self._room -= 1
        if self._room < 0:
            raise UnknownPattern(f"no text of more than {LONGEST:,} characters is made for a pattern")
        if op is _constants.LITERAL:
            return chr(value)
        if op in (_constants.NOT_LITERAL, _constants.ANY, _constants.IN):
            return self._character(op, value)
        if op in (_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT):
            least, most, inner = value
            most = least + self._more if most is _constants.MAXREPEAT else min(most, least + self._more)
            return "".join(self._all(inner) for _ in range(self._rng.randint(least, most)))
        if op in _EMPTY:
            return ""
        return self._composed(op, value)

    def _composed(self, op: _Node, value: _Node) -> str:
        if op is _constants.SUBPATTERN:
            number, _, _, inner = value
            text = self._all(inner)
            if number is not None:
                self._groups[number] = text
            return text
        if op is _constants.BRANCH:
            return self._all(self._rng.choice(value[1]))
        if op is _constants.ATOMIC_GROUP:
            return self._all(value)
        if op is _constants.GROUPREF and value in self._groups:
            return self._groups[value]
        raise UnknownPattern(f"no text is made for {str(op).lower()} in a pattern")

    def _character(self, op: _Node, value: _Node) -> str:
        if op is _constants.ANY:
            return self._rng.choice(string.ascii_lowercase)
        if op is _constants.NOT_LITERAL:
            return self._from_pool(lambda one: ord(one) != value)
        if value[0][0] is _constants.NEGATE:
            return self._from_pool(lambda one: not any(_fits(one, *item) for item in value[1:]))
        branch, argument = self._rng.choice(value)
        if branch is _constants.LITERAL:
            return chr(argument)
        if branch is _constants.RANGE:
            return chr(self._rng.randint(*argument))
        return self._from_pool(lambda one: _fits(one, branch, argument))

    def _from_pool(self, fits: Callable[[str], bool]) -> str:
        fitting = [one for one in _POOL if fits(one)]
        if not fitting:
            raise UnknownPattern("no plain character fits a class of the pattern")
        return self._rng.choice(fitting[:26])


def _fits(one: str, op: _Node, value: _Node) -> bool:
    if op is _constants.LITERAL:
        return bool(ord(one) == value)
    if op is _constants.RANGE:
        return bool(value[0] <= ord(one) <= value[1])
    return bool(op is _constants.CATEGORY and _CATEGORIES[value](one))
