"""Check, before a run is worked on, that its stored values fit the state keys that the agent declares."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ..contract.state import SCOPES, KeyId
from ..errors import StateError
from .keys import StateKey
from .snapshot import StateSnapshot

_WAY: Final = "declare it as it was, or give the new one another name and bring the value over"


def invalid_state(keys: Iterable[StateKey[Any]], snapshot: StateSnapshot) -> str | None:
    """Return how a release has changed a key so that a stored value would be missed or misread; None if all values fit.

    A changed scope would silently be read as the default. A key of the same name that is declared in the scope of the
    stored value is another key. A changed merge misreads nothing, because the value is the same.

    Returns:
        A sentence with the key, how it is stored, and what to do; or None.
    """
    if not snapshot.cells:
        return None
    persistent = {key.id: key for key in keys if key.persistent}
    for key in persistent.values():
        cell = snapshot.cells.get(key.id)
        if cell is not None:
            try:
                key.decode(cell.value)
            except StateError as error:
                return f"{error}; {_WAY}"
            continue
        for scope in SCOPES:
            other = KeyId(scope, key.name)
            if other in snapshot.cells and other not in persistent:
                return (
                    f"state key {key.name!r} is stored with scope {scope!r} and declared with scope {key.scope!r}, "
                    f"so that its value would be missed; {_WAY}"
                )
    return None
