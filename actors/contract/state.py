"""State keys and writes as the engine sees them: plain data and pure functions.

Values are JSON data here; types are in `actors.state`, the interface for users.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple

import attrs

from .plain import JSONValue
from .row_forms import Value

Scope = Literal["run", "thread"]
SCOPES: Final = ("run", "thread")
RESERVED: Final = "greenroom."
"""Beginning of the names of keys that only the runtime writes."""


class KeyId(NamedTuple):
    """The identity of a key; a run's and a thread's key may share a name."""

    scope: Scope
    name: str

    def __str__(self) -> str:
        return self.name if self.scope == "run" else f"{self.scope}:{self.name}"


@attrs.frozen(kw_only=True)
class KeySpec:
    """A state key as the engine sees it.

    Attributes:
        key: its name and scope.
        reduce: for a commutative key: (value, update) -> value, all JSON data; pure. None: the key is exclusive.
        persistent: written to the store; else it lasts as long as the run is in memory.
    """

    key: KeyId
    reduce: Callable[[Any, Any], Any] | None = None
    persistent: bool = True


Keys = Mapping[KeyId, KeySpec]

INHERITED: Final = KeyId("run", f"{RESERVED}inherited")
"""The newest handoff of a run: `agent` (key), `after` (id of the message with its call), `messages` (what the agent
reads instead of the thread up to that message; None: the thread)."""
LAST_AGENT: Final = KeyId("thread", f"{RESERVED}agent")
"""Key of the agent with which the thread's newest completed run ended, if a run of the thread was ever handed over."""


class Write(Value, frozen=True, kw_only=True):
    """One write to a key.

    Attributes:
        name, scope: of the key.
        persistent: as in `KeySpec`.
        op: "set" replaces the value, "update" is an update for the key's reducer.
        value: the new value, or the update.
        result: the value after the write, as the writer saw it.
    """

    name: str
    scope: Scope = "run"
    persistent: bool = True
    op: Literal["set", "update"] = "set"
    value: JSONValue = None
    result: JSONValue = None

    @property
    def key(self) -> KeyId:
        """The identity of the key."""
        return KeyId(self.scope, self.name)


class Batch(Value, frozen=True, kw_only=True):
    """The writes of one writer, in order.

    Attributes:
        base: revision of the snapshot that the writer read.
        writes: in order; all of them take effect, or none. Empty if all were lost with their process.
    """

    base: int
    writes: tuple[Write, ...]


class StateWrite(Value, frozen=True, kw_only=True):
    """A state key's new value, written at a step. `revision` is the writing run's; 0 if another run wrote the value."""

    key: str
    scope: Scope
    value: JSONValue
    revision: int = 0
