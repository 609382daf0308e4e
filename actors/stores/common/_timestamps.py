"""Times in stores: whole milliseconds since 1970, UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def milliseconds(moment: datetime) -> int:
    """Return an aware time as whole milliseconds, rounded down."""
    return (moment - _EPOCH) // _MILLISECOND


def moment(number: int) -> datetime:
    """Return milliseconds as an aware time, UTC."""
    return _EPOCH + number * _MILLISECOND
