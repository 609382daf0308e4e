"""The record of a run: the inputs of its machine, commit by commit. Private rows, beside the events and never in them.

Theory of operation. The machine is pure: equal state, input and time give equal events. So a record is enough to fold a
stored run again, exactly. Each commit carries the inputs since the previous commit; an input without a commit is
carried by the next one, and is lost in a crash together with its effect on the state.
"""

from __future__ import annotations

from datetime import datetime

import msgspec


class RecordEntry(msgspec.Struct, frozen=True):
    """One entry of a record.

    Attributes:
        at: the time given to the machine, UTC.
        entry: an input of the machine, or another change of its state (`engine/recording.py`).
        reduced: results of reducers of undeclared state keys during the input, in order: JSON values, each in a tuple
            of one; or the type and text of a raised error.
    """

    at: datetime
    entry: msgspec.Struct
    reduced: tuple[tuple[object, ...], ...] = ()


class RecordDelta(msgspec.Struct, frozen=True):
    """The part of a record in one commit; the creation of a run counts as its first commit.

    Attributes:
        last: sequence of the newest event after the commit.
        taken: entries in order.
    """

    last: int
    taken: tuple[RecordEntry, ...]
