"""Unique names for live actors. A name becomes free in the same synchronous step in which its actor exits."""

from __future__ import annotations

from attrs import define, field

from .errors import ActorExited, NameTaken
from .ref import AnyRef, Ref


@define(eq=False)
class Registry:
    """A table of names. Pass a registry as an argument instead of keeping a global."""

    _refs: dict[str, Ref[object]] = field(init=False, factory=dict)

    def __repr__(self) -> str:
        return f"<Registry of {len(self._refs)} names>"

    def __len__(self) -> int:
        return len(self._refs)

    def __contains__(self, name: object) -> bool:
        return name in self._refs

    def register(self, name: str, ref: AnyRef) -> None:
        """Register a live actor under `name` until its exit; an actor may have several names.

        Raises:
            NameTaken: Another live actor has the name.
            ActorExited: `ref` has ended already.
        """
        if name in self._refs:
            raise NameTaken(name)
        if ref.exit is not None:
            raise ActorExited(ref.name, ref.exit)
        self._refs[name] = ref
        ref.on_release(lambda: self._forget(name, ref))

    def unregister(self, name: str) -> bool:
        """Free a name before its actor exits; return False if the name is not registered."""
        return self._refs.pop(name, None) is not None

    def whereis(self, name: str) -> AnyRef | None:
        """Return the live actor with that name, or None."""
        return self._refs.get(name)

    def names(self) -> tuple[str, ...]:
        """Return all names, in order of registration."""
        return tuple(self._refs)

    def _forget(self, name: str, ref: AnyRef) -> None:
        # the name may have been unregistered and given to another actor meanwhile
        if self._refs.get(name) is ref:
            del self._refs[name]
