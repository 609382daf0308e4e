"""Conditions of rules on one text of a subject, and an index that finds all conditions which a text meets.

Theory of operation. The conditions of all rules of a kind on one field are indexed together: exact texts, folders,
hosts and programs by dictionaries, patterns by a tree of unions, whose root tells in one search that none of them
matches. A set of rules is an int with one bit for each rule. So a call costs a few searches, not one for each rule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, get_args

import attrs

from greenroom.supervision.fields import did_you_mean

from ..contract.patterns import WAY_OUT, whole
from ..errors import UsageError
from .commands import Step, subcommand
from .subject import host_of

Matcher: TypeAlias = str | Sequence[str] | Mapping[str, str | Sequence[str]]
"""A text (exact), a list of words (argv), or a mapping with one of the keys glob, regex, under, host and argv."""
Kind = Literal["text", "glob", "regex", "under", "host", "argv"]
KINDS: Final[tuple[str, ...]] = get_args(Kind)[1:]
FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "tool": ("text", "glob", "regex"),
    "path": ("text", "glob", "regex", "under"),
    "folder": ("text", "glob", "regex", "under"),
    "command": ("text", "glob", "regex"),
    "argv": ("argv",),
    "host": ("text", "glob", "regex", "host"),
    "url": ("text", "glob", "regex"),
}
"""Field of a subject -> the kinds of matchers that it takes."""
_OF_PATHS: Final = ("path", "folder")
PATTERN_LIMIT: Final = 4_096
"""Most characters of a text or pattern of a rule."""


@attrs.frozen
class Condition:
    """One condition of a rule: a field, the kind of the matcher, and its value (words for argv)."""

    field: str
    kind: Kind
    value: str | tuple[str, ...]

    def __str__(self) -> str:
        value = self.value if isinstance(self.value, str) else list(self.value)
        return f"{self.field} {value!r}" if self.kind in ("text", "argv") else f"{self.field} {self.kind} {value!r}"

    def expression(self, *, anywhere: bool) -> str:
        """Return the regular expression of a glob or regex, in RE2's syntax.

        Args:
            anywhere: a relative glob without a slash also matches the last name of an absolute path.
        """
        assert isinstance(self.value, str)  # noqa: S101 - for the type checker: argv has no expression
        if self.kind == "regex":
            return self.value
        if self.field not in _OF_PATHS:
            return "(?s:" + _translated(self.value, ".*", ".*", ".") + ")"
        inner = _translated(self.value, "[^/]*", ".*", "[^/]")
        if "/" in self.value.rstrip("/"):
            return f"(?s:{inner})"
        return f"(?s:(?:.*/)?{inner})" if anywhere else f"(?s:(?:[^/]+/)*{inner})"


def condition_of(field: str, given: object) -> Condition:
    """Return the condition for a field and a matcher.

    Raises:
        UsageError: the matcher is invalid, or the field does not take it; the message names the value and the way out.
    """
    kind, value = _kind_of(field, given)
    if kind not in FIELDS[field]:
        raise UsageError(f"{field}={given!r:.200}: {field} takes {' or '.join(FIELDS[field])}, not {kind}")
    if kind == "argv":
        return Condition(field, "argv", _argv(field, value))
    if not isinstance(value, str) or not 0 < len(value) <= PATTERN_LIMIT:
        raise UsageError(f"{field}={given!r:.200}: give a text of 1 to {PATTERN_LIMIT:,} characters")
    if kind == "host":
        value = _host(field, value)
    if kind == "under":
        value = value.rstrip("/") or "/"
    condition = Condition(field, kind, value)
    if kind in ("glob", "regex"):
        try:
            whole(condition.expression(anywhere=True))
        except ValueError as error:
            raise UsageError(f"{field}={given!r:.200}: the pattern cannot be used: {error}; {WAY_OUT}") from error
    return condition


def _kind_of(field: str, given: object) -> tuple[Kind, object]:
    match given:
        case str():
            return ("argv" if field == "argv" else "text"), given
        case list() | tuple():
            return "argv", given
        case Mapping() if len(given) == 1:
            ((kind, value),) = given.items()
            if kind in KINDS:
                return kind, value
            raise UsageError(f"{field}: no matcher is named {kind!r:.100}; {did_you_mean(kind, KINDS)}use {_ways()}")
        case _:
            raise UsageError(f"{field}={given!r:.200} is not a matcher; give a text, or one of {_ways()}")


def _ways() -> str:
    return ", ".join(f"{{{kind}: ...}}" for kind in KINDS)


def _argv(field: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not value or not all(isinstance(word, str) for word in value):
        raise UsageError(f"{field}={value!r:.200}: give a list of words that is not empty, as ['git', 'status', '*']")
    if "*" in value[0] or not value[0]:
        raise UsageError(f"{field}={value!r:.200}: the first word names the program, without *; for all use effect")
    if sum(map(len, value)) > PATTERN_LIMIT:
        raise UsageError(f"{field}={value!r:.200}: give at most {PATTERN_LIMIT:,} characters")
    return tuple(value)


def _host(field: str, value: str) -> str:
    name = f"[{value}]" if ":" in value else value
    host = None if set(value) & set("/?#@") else host_of(f"https://{name}/")
    if host is None:
        raise UsageError(f"{field}={value!r:.200} is not a host; give a name such as 'example.com', without a scheme")
    return host


def _translated(glob: str, star: str, stars: str, one: str) -> str:
    """Return the expression of a glob; `**/` stands for no folder or some."""
    meanings = {"**/": f"(?:{stars}/)?", "**": stars, "*": star, "?": one}
    return "".join(meanings.get(part) or re.escape(part) for part in re.split(r"(\*\*/|\*\*|\*|\?)", glob) if part)


# --- the index --------------------------------------------------------------------------------------------------------


class FieldIndex:
    """The conditions of rules on one field.

    Args:
        conditions: (the bit of the rule, the condition).
        anywhere: see `Condition.expression`.
    """

    def __init__(self, conditions: Iterable[tuple[int, Condition]], *, anywhere: bool) -> None:
        self.bits = 0
        self._texts: dict[str, int] = {}
        self._folders: dict[str, int] = {}
        self._hosts: dict[str, int] = {}
        self._programs: dict[str, list[_Words]] = {}
        patterns = list[tuple[int, str]]()
        tables = {"text": self._texts, "under": self._folders, "host": self._hosts}
        for bit, condition in conditions:
            self.bits |= bit
            if isinstance(condition.value, tuple):
                words = _Words(bit, condition.value)
                self._programs.setdefault(words.program, []).append(words)
            elif condition.kind in tables:
                table = tables[condition.kind]
                table[condition.value] = table.get(condition.value, 0) | bit
            else:
                patterns.append((bit, condition.expression(anywhere=anywhere)))
        self._patterns = _Union.of(patterns)

    def __repr__(self) -> str:
        return f"<FieldIndex of {self.bits.bit_count()} rules>"

    def matching(self, text: str) -> int:
        """Return the bits of the rules whose condition the text meets."""
        hits = self._texts.get(text, 0)
        if self._folders:
            hits |= self._folders.get("/" if text.startswith("/") else ".", 0)
        for table, rest in ((self._folders, _parent), (self._hosts, _parent_domain)):
            part = text if table else ""
            while part:
                hits |= table.get(part, 0)
                part = rest(part)
        return hits if self._patterns is None else hits | self._patterns.matching(text)

    def exactly(self, argv: Sequence[str]) -> int:
        """Return the bits of the rules whose words are the words of a command."""
        rules = self._programs.get(argv[0], ()) if argv else ()
        return sum(rule.bit for rule in rules if rule.fits(argv, 0))

    def loosely(self, steps: Iterable[Step]) -> int:
        """Return the bits of the rules whose words one of the steps may have, with options between them.

        A command with so many steps that judging them takes long meets all conditions.
        """
        hits = checks = 0
        for step in steps if self._programs else ():
            rules = self._programs.get(step.program, ())
            checks += len(rules)
            if checks > _CHECKS:
                return self.bits
            hits |= sum(rule.bit for rule in rules if not hits & rule.bit and rule.may_fit(step))
        return hits


_CHECKS: Final = 10_000
"""Most comparisons of steps with rules in one call: some milliseconds."""


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _parent_domain(host: str) -> str:
    return host.partition(".")[2]


class _Words:
    """The words of an argv condition: a last `*` stands for any words or none, another `*` for any part of a word."""

    def __init__(self, bit: int, words: tuple[str, ...]) -> None:
        self.bit, self.program = bit, words[0]
        self._rest = words[-1] == "*"
        self._words = words[1:-1] if self._rest else words[1:]
        self._plain = not any("*" in word for word in self._words)
        self._globs = [whole("(?s:" + _translated(word, ".*", ".*", "\\?") + ")") for word in self._words]

    def fits(self, words: Sequence[str], place: int) -> bool:
        """Compare the words behind a program's place."""
        behind = words[place + 1 : place + 2 + len(self._words)]
        if len(behind) < len(self._words) or (len(behind) > len(self._words) and not self._rest):
            return False
        if self._plain:
            return all(one == word for one, word in zip(self._words, behind, strict=False))
        return all(glob(word) for glob, word in zip(self._globs, behind, strict=False))

    def may_fit(self, step: Step) -> bool:
        """Compare the words of a step, with any options between them if any words may follow."""
        return self.fits(step.words, step.place) or (self._rest and self._plain and subcommand(step, self._words))


@attrs.frozen
class _Union:
    """Patterns that are searched together, as a tree: a leaf has one, a branch the union of two halves."""

    bit: int
    search: Callable[[str], bool] | None
    halves: tuple[_Union, ...] = ()

    @classmethod
    def of(cls, patterns: Sequence[tuple[int, str]]) -> _Union | None:
        if not patterns:
            return None
        search: Callable[[str], bool] | None
        try:
            search = whole("|".join(f"(?:{pattern})" for _, pattern in patterns))
        except ValueError:
            if len(patterns) == 1:
                raise
            search = None  # too many for one program of RE2: the halves are always asked
        if len(patterns) == 1:
            return cls(patterns[0][0], search)
        middle = len(patterns) // 2
        parts: Any = (cls.of(patterns[:middle]), cls.of(patterns[middle:]))
        return cls(0, search, parts)

    def matching(self, text: str, *, surely: bool = False) -> int:
        """Return the bits of the patterns that match. `surely`: one of them is known to."""
        if not surely and self.search is not None and not self.search(text):
            return 0
        if not self.halves:
            return self.bit
        first, second = self.halves
        hits = first.matching(text)
        return hits | second.matching(text, surely=self.search is not None and not hits)
