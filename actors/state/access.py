"""Read and write state: the state objects of hooks, gates and tools."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Protocol, TypeVar

from msgspec.structs import replace

from ..contract.state import SCOPES, Batch, KeyId, Keys, KeySpec, Write
from ..errors import StateError, UsageError
from .keys import StateKey
from .snapshot import EMPTY, StateSnapshot

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
LIMIT: Final = 10_000
"""Most writes of one body or hook, which are kept one by one until they are merged."""


def check_state(context: object, _: object, state: object) -> None:
    """Validate the `state` of a context that was made by hand (an attrs validator).

    Raises:
        UsageError: the value is not a State.
    """
    if not isinstance(state, State):
        way = "make a gr.WritableState() and give it its values with set(key, value)"
        raise UsageError(f"{type(context).__name__}(state={state!r}): {way}")


class Readable(Protocol[T_co]):
    """A `StateKey` as the reader sees it: a key of dicts is a key of mappings, so that `{**state[key]}` has a type."""

    def decode(self, data: object, /) -> T_co:
        """Return the value of JSON data."""


class State:
    """State keys at one moment, read only. Each read returns a copy: changing it changes no state.

    Args:
        snapshot: the state to read.
        keys: The declared keys, against which a key of the same name is checked.
    """

    # slots make `state.name = 3` an error instead of a lost write
    __slots__ = ("_keys", "_own", "_snapshot", "_used_keys")

    def __init__(self, snapshot: StateSnapshot = EMPTY, keys: Keys | None = None) -> None:
        self._snapshot, self._keys = snapshot, keys or {}
        self._own: dict[KeyId, object] = {}
        self._used_keys: dict[KeyId, KeySpec] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at revision {self.revision}: {len(self._snapshot.cells)} keys>"

    @property
    def revision(self) -> int:
        """The snapshot's revision: the number of batches merged in the run."""
        return self._snapshot.revision

    def __getitem__(self, key: Readable[T]) -> T:
        """Return the value of a key, or its default.

        Raises:
            StateError: the key was never written and has no default; or the stored value does not have the key's type;
                or an undeclared key of that name is stored with the other scope.
        """
        state_key: Any = key
        exists, data = self._data(state_key)
        if not exists:
            self._check_scope(state_key)
        value: T = state_key.decode(data) if exists else state_key.initial()
        return value

    def __contains__(self, key: StateKey[Any]) -> bool:
        """Return True if the key has been written."""
        return self._data(key)[0]

    def _data(self, key: StateKey[Any]) -> tuple[bool, Any]:
        if not isinstance(key, StateKey):
            raise StateError(f"{key!r} is no state key; make one with gr.StateKey(name, type)")
        self._check(key)
        if key.id in self._own:
            return True, self._own[key.id]
        cell = self._snapshot.cells.get(key.id)
        return (False, None) if cell is None else (True, cell.value)

    def _check(self, key: StateKey[Any]) -> None:
        spec = self._keys.get(key.id, self._used_keys.get(key.id))
        if spec is not None and spec is not key.spec:
            raise StateError(
                f"there are two state keys named {str(key.id)!r}; declare one, import it where it is used, or rename it"
            )

    def _check_scope(self, key: StateKey[Any]) -> None:
        """Refuse a key that is stored with the other scope.

        A release changed the scope, and the default would silently hide the stored value.
        """
        for scope in SCOPES:
            other = KeyId(scope, key.name)
            cell = self._snapshot.cells.get(other)
            if cell is not None and cell.persistent and other not in self._keys and other not in self._used_keys:
                raise StateError(
                    f"state key {key.name!r} is stored with scope {scope!r} and read with scope {key.scope!r}; "
                    "give it the scope that it has, another name, or declare both keys in Agent(state=[...])"
                )


class WritableState(State):
    """State for a tool's body, which reads its own writes. The writes take effect together when the body returns.

    A body that raises, suspends or is cancelled writes nothing. After its return a write is an error.
    """

    __slots__ = ("_closed", "_latest", "_writes")

    def __init__(self, snapshot: StateSnapshot = EMPTY, keys: Keys | None = None) -> None:
        super().__init__(snapshot, keys)
        self._writes: list[Write] = []
        self._latest: dict[KeyId, int] = {}
        self._closed = ""

    def set(self, key: StateKey[T], value: T) -> None:
        """Replace the value of a key.

        Raises:
            StateError: the value does not have the key's type; or there are too many writes; or the body has returned.
        """
        self._data(key)
        data = key.encode(value)
        self._add(key, Write(name=key.name, scope=key.scope, persistent=key.persistent, value=data, result=data))

    def update(self, key: StateKey[Any], update: object) -> None:
        """Update a commutative key.

        Raises:
            StateError: the key is exclusive, or has neither value nor default; or the update does not have its type; or
                there are too many writes; or the body has returned.
            Exception: raised by the key's reducer.
        """
        self._data(key)
        self.apply(key, updated(key, update))

    def apply(self, key: StateKey[Any], write: Write) -> None:
        """Apply an earlier write to the values of this state.

        Raises:
            StateError, Exception: as `update`.
        """
        exists, current = self._data(key)
        result = write.value
        if write.op == "update" and key.spec.reduce is not None:
            result = key.spec.reduce(current if exists else key.initial_data(), write.value)
        full_write = Write(
            name=key.name, scope=key.scope, persistent=key.persistent, op=write.op, value=write.value, result=result
        )
        self._add(key, full_write)

    def _add(self, key: StateKey[Any], write: Write) -> None:
        if self._closed:
            raise StateError(f"state key {key.name!r} cannot be written: {self._closed}")
        if len(self._writes) >= LIMIT:
            raise StateError(f"more than {LIMIT} writes to state at once; write each key once, at the end")
        before = self._latest.get(key.id)
        if before is not None:  # only the last result of a key counts, so a growing list is stored once
            self._writes[before] = replace(self._writes[before], result=None)
        self._latest[key.id] = len(self._writes)
        self._writes.append(write)
        self._used_keys[key.id] = key.spec
        self._own[key.id] = write.result

    def copy(self) -> WritableState:
        """Return a state with the same writes."""
        new = WritableState(self._snapshot, self._keys)
        new._writes, new._latest = list(self._writes), dict(self._latest)
        new._used_keys, new._own = dict(self._used_keys), dict(self._own)
        return new

    def view(self) -> State:
        """Return the present values, read only."""
        new = State(self._snapshot, self._keys)
        new._used_keys, new._own = dict(self._used_keys), dict(self._own)
        return new

    def close(self, why: str) -> WritableState:
        """Make later writes an error, because they would be lost; `why` is the error's text."""
        self._closed = why
        return self

    def batch(self) -> Batch | None:
        """Return the writes so far; None before the first."""
        return Batch(base=self.revision, writes=tuple(self._writes)) if self._writes else None

    @property
    def used(self) -> Keys:
        """The keys that were written."""
        return dict(self._used_keys)


def updated(key: StateKey[Any], update: object) -> Write:
    """Return an update as a write that is not applied yet.

    Raises:
        StateError: the key is exclusive, or the update does not have its type.
    """
    data = key.encode_update(update)
    return Write(name=key.name, scope=key.scope, persistent=key.persistent, op="update", value=data)


def declared(keys: Iterable[StateKey[Any]], where: str) -> dict[KeyId, KeySpec]:
    """Return the specs of declared keys.

    Raises:
        StateError: an item is not a key, or two different keys have one name and scope.
    """
    out: dict[KeyId, KeySpec] = {}
    for key in keys:
        if not isinstance(key, StateKey):
            raise StateError(f"{where}: {key!r} is no state key; make one with gr.StateKey(name, type)")
        if out.setdefault(key.id, key.spec) is not key.spec:
            raise StateError(f"{where}: two different state keys are named {str(key.id)!r}; rename one")
    return out
