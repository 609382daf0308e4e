"""Times as stores keep them: whole milliseconds since 1970, UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def milliseconds(moment: datetime) -> int:
    """An aware time as milliseconds; parts of one are dropped."""
    return (moment - _EPOCH) // _MILLISECOND


def moment(number: int) -> datetime:
    """Milliseconds as an aware time, UTC."""
    return _EPOCH + number * _MILLISECOND
