"""Bugs to plant in the store in PostgreSQL: its statements with other words, its rules with other answers.

`plant(name)` changes this process for good, for the processes of a swarm; `planted(name)` changes it for a block. A
change of words must hit a statement, so that no plant is idle.
"""

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import attrs

STORES = "greenroom.actors.stores."


@attrs.frozen
class Plant:
    """A bug.

    Attributes:
        words: replaced in the statements of all modules of the store.
        rules: module, dotted name -> what replaces it.
    """

    words: Mapping[str, str] = attrs.field(factory=dict)
    rules: Mapping[tuple[str, str], Any] = attrs.field(factory=dict)


PLANTS: dict[str, Plant] = {
    "unread commands left out of release and claim": Plant(
        {
            "AND r.posted <= r.consumed": "",
            "status <> 'waiting' OR posted > consumed OR leaving": "status <> 'waiting' OR leaving",
        }
    ),
    "rows joined by the run's number": Plant(
        {"JOIN moved m USING (i)": "JOIN c ON c.i = x.i JOIN moved m ON m.number = c.number"}
    ),
    "the commit's number left out": Plant({"AND r.commits = c.nth - 1": ""}),
    "the guard of the facts left out": Plant({"AND facts = %s AND": "AND (facts = %s OR true) AND"}),
    "the token left out of the fence": Plant({"AND r.token = c.token": ""}),
    "the level left out of the claim": Plant({"AND r.level <= %s AND": "AND (r.level <= %s OR true) AND"}),
    "buried by the clock": Plant(
        rules={("_leases", "BeatWatch.restart"): lambda _self: None, ("_leases", "_MISSED"): 1e9}
    ),
    "good_until ignored": Plant(rules={("_leases", "LeaseTimes.good_until"): lambda _self, _sent: math.inf}),
    "hints lost": Plant(
        {
            "SELECT pg_notify(h.channel, h.payload)": "SELECT h.channel",
            "SELECT pg_notify(%s, %s)": "SELECT %s::text, %s::text",
        }
    ),
    "a hint taken for the truth": Plant(
        {"(%s::bigint[] IS NULL OR r.number": "(%s::bigint[] IS NULL AND false OR r.number"}
    ),
}
"""By name. Hints may be lost, so that this is none by itself: it shows the next one."""


def _replaced(value: Any, old: str, new: str) -> Any:
    """A constant with other words; tuples have statements, too."""
    if isinstance(value, str):
        return value.replace(old, new)
    return tuple(_replaced(part, old, new) for part in value) if type(value) is tuple else value


def _changes(name: str) -> Iterator[tuple[Any, str, Any]]:
    """Owner, attribute and new value of all that a plant changes."""
    import greenroom.actors.stores.postgres.store  # noqa: F401 - with all modules of the store

    found = PLANTS[name]
    for old, new in found.words.items():
        hits = [
            (module, key, changed)
            for place, module in list(sys.modules.items())
            if place.startswith(f"{STORES}postgres._")
            for key, value in list(vars(module).items())
            if not key.startswith("__") and (changed := _replaced(value, old, new)) != value
        ]
        assert hits, f"{name}: no statement has {old!r}"
        yield from hits
    for (place, dotted), value in found.rules.items():
        owner: Any = sys.modules[f"{STORES}common.{place}"]
        *path, key = dotted.split(".")
        for part in path:
            owner = getattr(owner, part)
        assert hasattr(owner, key), dotted
        yield owner, key, value


def _forget() -> None:
    """Forget statements that were made of the constants."""
    sql: Any = sys.modules[f"{STORES}postgres._sql"]
    sql.commit_text.cache_clear()


def plant(name: str) -> None:
    """Plant a bug in this process."""
    for owner, key, value in list(_changes(name)):
        setattr(owner, key, value)
    _forget()


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """Plant a bug for the time of the block; None plants nothing."""
    restored: list[Callable[[], None]] = []
    try:
        for owner, key, value in [] if name is None else list(_changes(name)):
            before = vars(owner)[key]
            restored.append(lambda owner=owner, key=key, before=before: setattr(owner, key, before))  # type: ignore[misc]
            setattr(owner, key, value)
        if name is not None:
            _forget()
        yield
    finally:
        for restore in restored:
            restore()
        if name is not None:
            _forget()
