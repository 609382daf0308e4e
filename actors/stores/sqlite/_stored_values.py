"""The statements that write values beside the runs."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from ...stored_values import ValueWrite

_REVISION: Final = "SELECT revision FROM stored_values WHERE space = ? AND name = ?"


def set_values(connection: sqlite3.Connection, writes: Sequence[ValueWrite]) -> bool:
    """Write values, or none if one is not at its expected revision."""
    for write in writes:
        (revision,) = connection.execute(_REVISION, write[:2]).fetchone() or (0,)
        if revision != write.expected:
            return False
    connection.executemany("DELETE FROM stored_values WHERE space = ? AND name = ?", [write[:2] for write in writes])
    rows = [write[:3] for write in writes if write.value is not None]
    connection.executemany("INSERT INTO stored_values(space, name, value) VALUES (?, ?, ?)", rows)
    return True
