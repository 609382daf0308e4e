"""Rules from the text of a file, in TOML or JSON: a list `rules`, whose items have the fields of `Rule`.

[[rules]]
verdict = "allow"
effect = "shell"
where = { argv = ["git", "status", "*"] }
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import attrs

from greenroom.supervision.fields import did_you_mean

from ..errors import UsageError
from .rules import RULES_LIMIT, Rule

FILE_LIMIT: Final = 1024 * 1024
"""Most characters of a file of rules."""
_KEYS: Final = tuple(field.name for field in attrs.fields(Rule) if field.init and field.name != "place")
_TOML_TEXT: Final = r'"""(?:[^\\]|\\.)*?"""|\'\'\'.*?\'\'\'|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'|#[^\n]*'
_HEADERS: Final = re.compile(
    rf"{_TOML_TEXT}|(?P<rule>^[ \t]*\[\[[ \t]*(?:rules|\"rules\"|'rules')[ \t]*\]\])", re.MULTILINE | re.DOTALL
)
"""Texts and comments of a file that is TOML, which are skipped, and the headers of rules."""
_TOML: Final = re.compile(rf"{_TOML_TEXT}|[\[\]{{}}]", re.DOTALL)
_JSON: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]')


def rules_of(text: str, *, name: str) -> tuple[Rule, ...]:
    """Return the rules of a file.

    Args:
        text: The content of the file.
        name: The name of the file, which ends in .toml or .json; each rule's `place` has it.

    Raises:
        UsageError: the text is too long or not in the form of its name, or a rule is invalid; names the file, the line
            and the rule.
    """
    if len(text) > FILE_LIMIT:
        raise UsageError(f"{name}: it has {len(text):,} characters; at most {FILE_LIMIT:,}")
    data, lines = _parsed(text, name)
    items = data.get("rules") if isinstance(data, dict) else None
    if not isinstance(items, list) or not items:
        raise UsageError(f"{name}: give a list `rules` that is not empty")
    if unknown := sorted(set(data) - {"rules"}):
        near = did_you_mean(unknown[0], ("rules",))
        raise UsageError(f"{name}: {unknown[0]!r:.100} is not known; {near}a file of rules has `rules` only")
    if len(items) > RULES_LIMIT:
        raise UsageError(f"{name}: it has {len(items):,} rules; give at most {RULES_LIMIT:,}")
    places = [f"{name}:{line}: rule {number}" for number, line in enumerate(lines, 1)]
    places += [f"{name}: rule {number}" for number in range(len(places) + 1, len(items) + 1)]
    return tuple(_rule(item, place) for item, place in zip(items, places, strict=False))


def _rule(item: object, place: str) -> Rule:
    if not isinstance(item, dict):
        raise UsageError(f"{place}: {item!r:.200} is not a rule; give a table with a verdict")
    for key in item:
        if key not in _KEYS:
            near = did_you_mean(key, _KEYS)
            raise UsageError(f"{place}: {key!r:.100} is not known; {near}a rule has {', '.join(_KEYS)}")
    if "verdict" not in item:
        raise UsageError(f"{place}: it has no verdict; give 'deny', 'ask' or 'allow'")
    if None in item.values():
        raise UsageError(f"{place}: a value is null; leave the key out")
    try:
        return Rule(**item, place=place)
    except UsageError as error:
        raise UsageError(f"{place}: {error}") from error


def _parsed(text: str, name: str) -> tuple[Any, list[int]]:
    """Return the data of a file and the lines of its rules."""
    import tomllib  # noqa: PLC0415 - 10 ms of import for those that have a file of rules

    form = name.rpartition(".")[2].lower()
    if form not in ("toml", "json"):
        raise UsageError(f"{name}: the name of a file of rules ends in .toml or .json")
    try:
        data = tomllib.loads(text) if form == "toml" else json.loads(text, object_pairs_hook=_unrepeated)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name}: the file cannot be read: {error}") from error
    places = _toml_places(text) if form == "toml" else _objects(_JSON, text, inside=["{", "["])
    return data, list(_lines(text, places))


def _unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    item = dict(pairs)
    if len(item) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r:.100} is there twice")
    return item


def _toml_places(text: str) -> Iterator[int]:
    if headers := [match.end() for match in _HEADERS.finditer(text) if match["rule"]]:
        return iter(headers)
    return _objects(_TOML, text, inside=["["])


def _objects(tokens: re.Pattern[str], text: str, inside: list[str]) -> Iterator[int]:
    """Yield the places of the objects inside of these brackets."""
    open_: list[str] = []
    for match in tokens.finditer(text):
        mark = match[0]
        if mark in ("[", "{"):
            if mark == "{" and open_ == inside:
                yield match.start()
            open_.append(mark)
        elif mark in ("]", "}"):
            open_.pop()


def _lines(text: str, places: Iterator[int]) -> Iterator[int]:
    line, last = 1, 0
    for place in places:
        line, last = line + text.count("\n", last, place), place
        yield line
