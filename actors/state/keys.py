"""`StateKey`: a typed name for a piece of a run's or a thread's state."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar, cast

import attrs

from greenroom.supervision.fields import did_you_mean

from ..contract.plain import exact
from ..contract.state import RESERVED, SCOPES, KeyId, KeySpec
from ..contract.user_types.constraints import without_note
from ..errors import StateError
from ..options import checks_fields
from .values import NotSerializable, check_kind, copied, read, shown, write

if TYPE_CHECKING:
    from typing_extensions import TypeForm

    from ..contract.user_types.pydantic_type import PydanticType

T = TypeVar("T")
NAME_LIMIT: Final = 128
"""Most characters of a key's name."""


class _Unset:
    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final[object] = _Unset()


@attrs.frozen
class Commutative(Generic[T]):
    """How concurrent updates of a key are merged; made by `commutative`."""

    reduce: Callable[[T, Any], T]
    update: Any = None


def commutative(reduce: Callable[[T, Any], T], update: object = None) -> Commutative[T]:
    """Return a value for `StateKey(merge=...)`: updates are reduced into the value in any order.

    Args:
        reduce: (value, update) -> value. Pure, quick, and with the same result for every order of the updates; it may
            run again. If it raises, the batch with the update is dropped, with an event and a note for the model.
        update: the type of an update; None: the key's own type.

    Raises:
        StateError: `reduce` is not callable.
    """
    function: Any = reduce
    if not callable(function):
        raise StateError(f"commutative({reduce!r}): give a function of (value, update), such as operator.add")
    return Commutative(reduce, update)


@checks_fields(StateError)
@attrs.frozen(eq=False, hash=False)
class StateKey(Generic[T]):
    """Names a piece of state and its type. `ctx.state[key]` is a T for the type checker.

    Attributes:
        name: unique among the keys of its scope in a run.
        type: any type that can be written as JSON and read back (int, list[str], a class of attrs or pydantic, ...).
        default: the value of a read before the first write; without a default such a read is an error.
        merge: "exclusive": of two writers that did not see each other's write one is refused; nothing is overwritten
            silently. `commutative(reduce)`: the updates are reduced.
        scope: "run", or "thread": all runs of a thread, one after the other.
        persistent: kept in the store. Otherwise lost when the run leaves memory (passivation, restart).
        spec: the key as the engine sees it.

    Raises:
        StateError: a part is invalid; names it and says what to give.
    """

    name: str
    type: TypeForm[T]
    default: Any = attrs.field(default=UNSET, kw_only=True)
    merge: Literal["exclusive"] | Commutative[Any] = attrs.field(default="exclusive", kw_only=True)
    scope: Literal["run", "thread"] = attrs.field(default="run", kw_only=True)
    persistent: bool = attrs.field(default=True, kw_only=True)
    spec: KeySpec = attrs.field(init=False, repr=False)
    _initial: Any = attrs.field(init=False, repr=False)
    _readers: tuple[PydanticType | None, PydanticType | None] = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        name: Any = self.name
        if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= NAME_LIMIT or " " in name:
            raise StateError(f"state key {name!r}: use 1 to {NAME_LIMIT} printable characters without spaces")
        if name.startswith(RESERVED) and not isinstance(self, ReservedKey):
            raise StateError(f"state key {name!r}: names that begin with {RESERVED!r} are reserved; use another one")
        if self.scope not in SCOPES:
            near = did_you_mean(self.scope, SCOPES)
            raise StateError(f"state key {name!r}: scope={self.scope!r} is not known; {near}use 'run' or 'thread'")
        merge: Any = self.merge
        if merge != "exclusive" and not isinstance(merge, Commutative):
            way = "use 'exclusive' or gr.commutative(function)"
            raise StateError(f"state key {name!r}: merge={merge!r} is not known; {way}")
        if not isinstance(self.persistent, bool):
            raise StateError(f"state key {name!r}: persistent={self.persistent!r}: give True or False")
        object.__setattr__(self, "name", exact(name))
        object.__setattr__(self, "scope", exact(self.scope))
        self._check_kinds()
        initial = UNSET if self.default is UNSET else self.encode(self.default)
        object.__setattr__(self, "_initial", initial)
        reduce = self._reduce if isinstance(merge, Commutative) else None
        spec = KeySpec(key=KeyId(self.scope, self.name), reduce=reduce, persistent=self.persistent)
        object.__setattr__(self, "spec", spec)

    def _check_kinds(self) -> None:
        kind, _ = without_note(self.type)
        update = self.merge.update if isinstance(self.merge, Commutative) else None
        try:
            reader = check_kind(kind)
            readers = (reader, reader if update is None else check_kind(update))
        except NotSerializable as error:
            raise StateError(f"state key {self.name!r}: {error}") from error
        object.__setattr__(self, "type", kind)
        object.__setattr__(self, "_readers", readers)

    def __copy__(self) -> StateKey[T]:
        """Return the key itself: a key has one identity."""
        return self

    def __deepcopy__(self, memo: object) -> StateKey[T]:
        """Return the key itself, also in a copy of an agent or a plugin."""
        return self

    @property
    def id(self) -> KeyId:
        """Scope and name."""
        return self.spec.key

    def encode(self, value: object) -> Any:
        """Return a value of the key's type as JSON data.

        Raises:
            StateError: the value does not have that type, or has no form in JSON; names the key and the path.
        """
        return self._encoded(value, self.type, "", self._readers[0])

    def encode_update(self, update: object) -> Any:
        """Return an update as JSON data.

        Raises:
            StateError: as for `encode`, or the key takes no updates.
        """
        if not isinstance(self.merge, Commutative):
            way = f"set(key, ...), or StateKey({self.name!r}, ..., merge=gr.commutative(...))"
            raise StateError(f"state key {self.name!r} is exclusive and takes no updates; use {way}")
        return self._encoded(update, self.merge.update or self.type, "update of ", self._readers[1])

    def decode(self, data: object) -> T:
        """Return the value of JSON data; a new object each time.

        Raises:
            StateError: the data does not have the key's type; names the key and the path.
        """
        try:
            return cast("T", read(self.type, data, self._readers[0]))
        except NotSerializable as error:
            raise StateError(
                f"state key {self.name!r} holds a value that is no {_named(self.type)}: {error}"
            ) from error

    def initial(self) -> T:
        """Return the value of a read before the first write.

        Raises:
            StateError: the key has no default.
        """
        return self.decode(self.initial_data())

    def initial_data(self) -> Any:
        """Return `initial` as JSON data.

        Raises:
            StateError: the key has no default.
        """
        if self._initial is UNSET:
            raise StateError(f"state key {self.name!r} has not been written and has no default; give it one")
        return copied(self._initial)

    def _encoded(self, value: object, kind: object, what: str, reader: PydanticType | None) -> Any:
        try:
            return write(value, kind, reader)
        except NotSerializable as error:
            text = f"{what}state key {self.name!r}: {shown(value)} is no {_named(kind)}: {error}"
            raise StateError(text) from error

    def _reduce(self, current: object, update: object) -> Any:
        if not isinstance(self.merge, Commutative):
            raise StateError(f"state key {self.name!r} is exclusive")
        value = read(self.merge.update or self.type, update, self._readers[1])
        return self.encode(self.merge.reduce(self.decode(current), value))


class ReservedKey(StateKey[T]):
    """A key of the runtime's own plugins; its name begins with `RESERVED`, and views do not show it."""


def _named(kind: object) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind)
