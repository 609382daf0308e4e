"""The envelope around every event, written once when the event is appended.

    {"id", "sequence", "type", "version", "runId", "sessionId", "agentId", "timestamp", "payload"[, "excerpted"]}

An event is bounded: a payload above `PAYLOAD_BYTES` keeps head and tail of its long texts, and `excerpted` names the
fields that were cut. So whatever a tool or a model hands in, a reader needs memory for a page and not for a file.

The bytes made here are what the store keeps, what a WebSocket client gets as text frame, and what a replay page holds.
The parts that are the same for a whole run are prepared once; the payload is encoded by msgspec.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

import attrs
import msgspec

from .plain import JSONObject
from .redaction import Redactor
from .rows import EventDraft, RunInfo

EVENT_VERSION: Final = 1
"""Version of envelope and payloads. It grows when a reader of the old form could misunderstand the new one."""

PAYLOAD_BYTES: Final = 524_288
"""Bytes of an event's payload at most: twice the largest tool result that an event shows whole, escapes included."""
FRAME_BYTES: Final = PAYLOAD_BYTES + 16_384
"""Bytes of an event at most, with its envelope: ids and names of usual length leave most of the addition free."""
_BUDGETS: Final = (131_072, 32_768, 8_192, 2_048)
"""Bytes that one field of a payload may keep, tried in turn until the payload fits."""
_EDGE: Final = 16
"""A cut text keeps this part of its budget, in characters, at each end: a character takes up to six bytes of JSON."""

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
        self._redactor = redactor.within(info.workspace)
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
            if len(payload) > PAYLOAD_BYTES:
                payload = _excerpted(payload)
            parts = (head, sequence, sequence, event.type.encode(), middle, payload)
            frames.append(b'%b%d","sequence":%d,"type":"%b%b%b}' % parts)
        return tuple(frames)


def _excerpted(payload: bytes) -> bytes:
    """A payload cut to `PAYLOAD_BYTES`, with the envelope's `excerpted` behind it.

    The payload is redacted already: a cut before that could leave the beginning of a secret that no pattern finds.
    """
    whole, cut = _decode(payload), list[str]()
    for budget in _BUDGETS:
        fields = {name: _shortened(value, budget) for name, value in whole.items()}
        cut = [name for name, value in fields.items() if value is not whole[name]]
        payload = _encode(fields)
        if len(payload) <= PAYLOAD_BYTES:
            break
    return b'%b,"excerpted":%b' % (payload, _encode(cut))


def _shortened(value: object, budget: int) -> Any:
    """A field's value within a budget of bytes; the same object if nothing has to go.

    Long texts inside lose their middle; where many short ones make the size, one text stands for the whole value.
    """
    if len(_encode(value)) <= budget:
        return value
    if isinstance(value, str):
        return _ends(value, budget)
    shorter = _cut_inside(value, budget // 4)
    if len(_encode(shorter)) <= budget:
        return shorter
    text = _ends(_encode(shorter).decode(), budget)
    return {"excerpt": text} if isinstance(value, dict) else [text]


def _cut_inside(value: object, budget: int) -> Any:
    if isinstance(value, str):
        return value if len(value) * 6 <= budget else _ends(value, budget)
    if isinstance(value, dict):
        return {key: _cut_inside(item, budget) for key, item in value.items()}
    if isinstance(value, list):
        return [_cut_inside(item, budget) for item in value]
    return value


def _ends(text: str, budget: int) -> str:
    edge = budget // _EDGE
    left_out = len(text) - 2 * edge
    if left_out <= 0:
        return text
    return f"{text[:edge]}\n[... {left_out} of {len(text)} characters left out ...]\n{text[-edge:]}"


@attrs.frozen(kw_only=True)
class Event:
    """An event as a reader sees it.

    Attributes:
        id: `<run_id>-<sequence>`. sequence: from 1, contiguous per run.
        type: one of the catalogue. payload: as its class says, as plain data.
        timestamp: UTC, milliseconds. version: of envelope and payload.
        excerpted: fields of the payload that are too long for an event, and hold head and tail of their texts.
    """

    id: str
    sequence: int
    type: str
    version: int
    run_id: str
    session_id: str | None
    agent_id: str
    timestamp: datetime
    payload: JSONObject
    excerpted: tuple[str, ...] = ()


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
        excerpted=tuple(data.get("excerpted", ())),
    )
