"""The parts of JSON data that are secrets because of their place: under a telling name, or beside one.

Programs write a name and its value in four ways: as a key and its value (`{"password": "..."}`,
`{"passwords": [...]}`), as two fields (`{"name": "DB_PASSWORD", "value": "..."}`, as Kubernetes, HAR and
CloudFormation do), as a pair (`["Authorization", "..."]`), and as two words of a command line
(`["--password", "..."]`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from .secret_readers import hides, hides_items, reads_like_code
from .shapes import LINE_KEYS, LONGEST_KEY, UNMISTAKABLE

_FIELDS: Final = {
    "value": ("name", "key", "header", "field", "variable"),
    "Value": ("Name", "Key"),
    "ParameterValue": ("ParameterKey",),
    "variableValue": ("variableName",),
}
"""The field of a value -> the fields that may name the value."""
_VALUE_FIELDS: Final = frozenset(_FIELDS)
_USER_OPTIONS: Final = frozenset({"-u", "--user", "--proxy-user"})
"""Options of curl whose value is `name:password`."""


def hidden_keys(value: Mapping[Any, Any]) -> Collection[object]:
    """Return the keys whose values are never shown."""
    return [
        *hidden_fields(value),
        *(key for key, item in value.items() if isinstance(key, str) and hides_value(key, item)),
    ]


def hidden_fields(value: Mapping[Any, Any]) -> Collection[str]:
    """Return the fields whose values are never shown because another field names them."""
    return [field for field, names in _FIELDS.items() if field in value and _tells(value, names)]


def hides_value(key: str, item: object) -> bool:
    """Return whether a value under this key is never shown. A number under a plural is a count."""
    return hides_key(key) or (isinstance(item, (list, tuple, Mapping)) and hides_items(key[-LONGEST_KEY:]))


def hides_key(key: str) -> bool:
    """Return whether every value under this key is a secret."""
    name = key[-LONGEST_KEY:]
    return hides(name) or UNMISTAKABLE.search(name) is not None


def names_value(value: Mapping[Any, Any]) -> bool:
    """Return whether one field of a mapping names another field, whose value is never shown."""
    if _VALUE_FIELDS.isdisjoint(value):
        return False
    return any(field in value and _tells(value, names) for field, names in _FIELDS.items())


def _tells(value: Mapping[Any, Any], names: Sequence[str]) -> bool:
    return any(isinstance(name, str) and hides_key(name) for name in map(value.get, names))


def hidden_positions(value: Sequence[object]) -> Collection[int]:
    """Return the positions of a list whose items are never shown."""
    if len(value) == 2 and hides_position(value, 1):
        return (1,)
    options = [place for place, item in enumerate(value) if type(item) is str and item[:1] == "-"]
    return [place + 1 for place in options if place + 1 < len(value) and hides_position(value, place + 1)]


def hides_position(value: Sequence[object], place: int) -> bool:
    """Return whether the item at a position of a list is never shown."""
    before = value[place - 1] if place else None
    if not isinstance(before, str):
        return False
    if len(value) == 2 and hides(before[-LONGEST_KEY:]) and _is_secret(before, value[1]):
        return True
    return before[:1] == "-" and _takes(before, value[place])


def _is_secret(name: str, item: object) -> bool:
    """Return whether the second item of a pair is a secret: a list of two words is not a pair."""
    if not isinstance(item, str):
        return isinstance(item, int) and not isinstance(item, bool)
    return LINE_KEYS.search(name) is not None or not reads_like_code(item)


def _takes(option: str, item: object) -> bool:
    """Return whether an option of a command line takes the next word as its secret value."""
    if option in _USER_OPTIONS:
        name, colon, password = str(item).partition(":")
        return bool(name and colon and password) and not password.isdigit()
    return hides(option[-LONGEST_KEY:].lstrip("-")) and isinstance(item, (str, int)) and not str(item).startswith("-")
