"""The tool call's lifecycle as a table.

Theory of operation. A call is `new` until its gates have answered. It runs, it may suspend (any number of times, each
time with a new ticket), a decision makes it `resuming`, and it ends exactly once. `CALLS` holds every legal move.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class CallStatus(StrEnum):
    """What a client sees of a call."""

    NEW = "new"
    RUNNING = "running"
    SUSPENDED = "suspended"
    RESUMING = "resuming"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


_C = CallStatus

CALLS: Final[Mapping[CallStatus, frozenset[CallStatus]]] = {
    _C.NEW: frozenset({_C.RUNNING, _C.SUSPENDED, _C.SUCCEEDED, _C.FAILED, _C.CANCELLED}),
    _C.RUNNING: frozenset({_C.SUSPENDED, _C.SUCCEEDED, _C.FAILED, _C.CANCELLED}),
    _C.SUSPENDED: frozenset({_C.RESUMING, _C.CANCELLED}),
    _C.RESUMING: frozenset({_C.RUNNING, _C.SUSPENDED, _C.SUCCEEDED, _C.FAILED, _C.CANCELLED}),
    _C.SUCCEEDED: frozenset(),
    _C.FAILED: frozenset(),
    _C.CANCELLED: frozenset(),
}
"""Status -> the statuses that may follow it."""

SETTLED: Final = frozenset(status for status, following in CALLS.items() if not following)
"""The statuses that nothing leaves."""
