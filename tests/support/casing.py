"""No key of a JSON of ours is in snake_case. What users bring may be: where it is nothing is looked at."""

import re
from collections.abc import Iterator
from typing import Any, Final

from greenroom.actors.contract.catalogue import CATALOGUE

SNAKE: Final = re.compile(r"[a-zA-Z0-9]_[a-zA-Z0-9]")

USER_DATA: Final = frozenset(
    {
        *("arguments", "parameters", "responseSchema", "result", "output", "state", "input", "rawInput"),
        *("editedArguments", "metadata"),
    }
)
"""Fields that hold what users, tools and models bring."""
BY_ID: Final = frozenset({"calls", "tasks", "heads"})
"""Fields that hold an object whose keys are ids."""


def snake_keys(value: Any, path: str = "$") -> Iterator[str]:
    """Where a key of ours is in snake_case."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from snake_keys(item, f"{path}[{index}]")
    for key, item in value.items() if isinstance(value, dict) else ():
        where = f"{path}.{key}"
        if SNAKE.search(key) and key not in CATALOGUE:  # the type of an event has words of its own
            yield where
        elif key in BY_ID and isinstance(item, dict):
            yield from snake_keys(list(item.values()), where)
        elif key not in USER_DATA:
            yield from snake_keys(item, where)


def cased(value: Any) -> Any:
    """The value, after a look at all its keys."""
    found = list(snake_keys(value))
    assert not found, f"keys in snake_case leave the process: {', '.join(found[:5])}"
    return value


def keys(value: Any) -> Iterator[str]:
    """The keys of a JSON, of all its objects."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from keys(inner)
    for inner in value if isinstance(value, list) else ():
        yield from keys(inner)
