"""State keys as the engine knows them, and what somebody wrote to them. Plain data and pure functions.

A value is JSON data here; types live in `actors.state`, where people read and write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple

import attrs

from .plain import JSONValue
from .row_forms import Value

Scope = Literal["run", "thread"]
SCOPES: Final = ("run", "thread")


class KeyId(NamedTuple):
    """What tells one key from another: a run's and a thread's key may have one name."""

    scope: Scope
    name: str

    def __str__(self) -> str:
        return self.name if self.scope == "run" else f"{self.scope}:{self.name}"


@attrs.frozen(kw_only=True)
class KeySpec:
    """What the engine knows of a state key.

    Attributes:
        key: its name and scope.
        reduce: of a commutative key: (value, update) -> value, all of them JSON data; pure.
            None: the key is exclusive.
        persistent: written to the store; else it lasts as long as the run is in memory.
    """

    key: KeyId
    reduce: Callable[[Any, Any], Any] | None = None
    persistent: bool = True


Keys = Mapping[KeyId, KeySpec]


class Write(Value, frozen=True, kw_only=True):
    """One write to a key.

    Attributes:
        name, scope: of the key. persistent: as in `KeySpec`.
        op: "set" replaces the value, "update" is an update for the key's reducer.
        value: what is set, or the update.
        result: what the value was after it where it was written.
    """

    name: str
    scope: Scope = "run"
    persistent: bool = True
    op: Literal["set", "update"] = "set"
    value: JSONValue = None
    result: JSONValue = None

    @property
    def key(self) -> KeyId:
        """Which key."""
        return KeyId(self.scope, self.name)


class Batch(Value, frozen=True, kw_only=True):
    """What one writer wrote, in order.

    Attributes:
        base: revision of the snapshot that the writer read.
        writes: in order; all of them take effect, or none. There is none if all were lost with their process.
    """

    base: int
    writes: tuple[Write, ...]


class StateWrite(Value, frozen=True, kw_only=True):
    """A state key's new value, written at a step. `revision` is of the run that wrote it; 0 if that is another run."""

    key: str
    scope: Scope
    value: JSONValue
    revision: int = 0
