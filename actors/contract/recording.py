"""The record of a run: what its machine took, commit by commit. Private rows, beside the events and never in them.

A machine is pure: the same state, input and time give the same events. So a record is enough to run a stored run
again, exactly. Each commit carries what was taken since the commit before it; what leads to no commit is carried by
the next one, and is lost with a crash, as its effect on the state is.
"""

from __future__ import annotations

from datetime import datetime

import msgspec


class RecordEntry(msgspec.Struct, frozen=True):
    """One entry of a record.

    Attributes:
        at: the time that the machine was given, UTC.
        entry: an input of the machine, or a change of its state that comes from elsewhere (`engine/recording.py`).
        reduced: what the reducers of undeclared state keys returned while the machine took the input, in order: JSON
            values, each in a tuple of one; or the type and the text of the error that was raised.
    """

    at: datetime
    entry: msgspec.Struct
    reduced: tuple[tuple[object, ...], ...] = ()


class RecordDelta(msgspec.Struct, frozen=True):
    """What one commit carries of the record; the creation of a run counts as its first commit.

    Attributes:
        last: sequence of the newest event after the commit.
        taken: in order.
    """

    last: int
    taken: tuple[RecordEntry, ...]
