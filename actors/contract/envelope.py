"""The envelope around every event, written once when the event is appended.

    {"id", "sequence", "type", "version", "runId", "sessionId", "agentId", "timestamp", "payload"}

The bytes made here are what the store keeps, what a WebSocket client gets as text frame, and what a replay page holds.
The parts that are the same for a whole run are prepared once; the payload is encoded by msgspec.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import attrs
import msgspec

from .redaction import Redactor
from .rows import EventDraft, RunInfo

EVENT_VERSION: Final = 1
"""Version of envelope and payloads. It grows when a reader of the old form could misunderstand the new one."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def timestamp(moment: datetime) -> str:
    """RFC 3339 in UTC with milliseconds and Z.

    Raises:
        ValueError: the moment has no time zone, so nobody knows which one it is.
    """
    return _stamp(moment).decode()


def _stamp(moment: datetime) -> bytes:
    if moment.tzinfo is not UTC:
        if moment.tzinfo is None:
            raise ValueError(f"{moment.isoformat()} has no time zone; use datetime.now(UTC) or .replace(tzinfo=UTC)")
        moment = moment.astimezone(UTC)
    # msgspec writes "YYYY-MM-DDTHH:MM:SS", then a fraction if there is one; six times as fast as isoformat
    return b"%b.%03dZ" % (_encode(moment)[1:20], moment.microsecond // 1000)


class EventEncoder:
    """Encodes the events of one run."""

    __slots__ = ("_constant", "_head", "_redactor")

    def __init__(self, info: RunInfo, redactor: Redactor) -> None:
        self._redactor = redactor
        run_id = _encode(info.run_id)
        self._head = b'{"id":' + run_id[:-1] + b"-"
        self._constant = b'","version":%d,"runId":%b,"sessionId":%b,"agentId":%b,"timestamp":"' % (
            EVENT_VERSION,
            run_id,
            _encode(info.session_id),
            _encode(info.agent),
        )

    def frames(self, after: int, at: datetime, events: Iterable[EventDraft]) -> tuple[bytes, ...]:
        """The events' bytes; the first gets sequence `after + 1`, all get the time `at`.

        Raises:
            KeyError: a payload's class is not in the catalogue (a bug: every event is documented).
        """
        head, redact, sequence = self._head, self._redactor.payload, after
        middle = self._constant + _stamp(at) + b'","payload":'
        frames = []
        for event in events:
            sequence += 1
            payload = _encode(redact(event.payload))
            parts = (head, sequence, sequence, event.type.encode(), middle, payload)
            frames.append(b'%b%d","sequence":%d,"type":"%b%b%b}' % parts)
        return tuple(frames)


@attrs.frozen(kw_only=True)
class Event:
    """An event as a reader sees it.

    Attributes:
        id: `<run_id>-<sequence>`. sequence: from 1, contiguous per run.
        type: one of the catalogue. payload: as its class says, as plain data.
        timestamp: UTC, milliseconds. version: of envelope and payload.
    """

    id: str
    sequence: int
    type: str
    version: int
    run_id: str
    session_id: str | None
    agent_id: str
    timestamp: datetime
    payload: Mapping[str, Any]


_TYPE: Final = b'"type":"'


def event_type(frame: bytes) -> str:
    """The type of an event, from its bytes, without reading the rest.

    The first `"type":"` is the envelope's: before it stands only the id, and inside a JSON string quotes are escaped.
    """
    start = frame.index(_TYPE) + len(_TYPE)
    return frame[start : frame.index(b'"', start)].decode()


def decode_event(frame: bytes) -> Event:
    """Read an event's bytes.

    Raises:
        msgspec.DecodeError: the bytes are not JSON. KeyError: they are not an envelope.
    """
    data = _decode(frame)
    return Event(
        id=data["id"],
        sequence=data["sequence"],
        type=data["type"],
        version=data["version"],
        run_id=data["runId"],
        session_id=data["sessionId"],
        agent_id=data["agentId"],
        timestamp=datetime.fromisoformat(data["timestamp"]),
        payload=data["payload"],
    )
