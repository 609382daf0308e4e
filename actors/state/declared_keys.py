"""Do the stored values fit the keys that an agent declares? Asked before a run is worked on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ..contract.state import SCOPES, KeyId
from ..errors import StateError
from .keys import StateKey
from .snapshot import StateSnapshot

_WAY: Final = "declare it as it was, or give the new one another name and bring the value over"


def invalid_state(keys: Iterable[StateKey[Any]], snapshot: StateSnapshot) -> str | None:
    """What a release has changed about a key so that a stored value would be missed or misread; None if all fit.

    A scope that changed would be read as the default, silently. A key of the same name that is declared in the scope of
    the stored value is another key. A merge that changed misreads nothing: the value is the same.

    Returns:
        A sentence that names the key, how it is stored, and the way out.
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
