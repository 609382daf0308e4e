"""The envelope around every event, encoded once when the event is appended.

    {"id", "sequence", "type", "version", "runId", "sessionId", "agentId", "timestamp", "payload"[, "excerpted"]}

An event is bounded: a payload above `PAYLOAD_BYTES` keeps head and tail of its long texts, and `excerpted` names the
cut fields. So a reader needs memory for a page, not for the largest result of a tool.

The bytes made here are stored, sent to WebSocket clients as text frames, and returned in replay pages. The parts that
are constant for a run are prepared once; msgspec encodes the payload.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import attrs
import msgspec

from .catalogue import OURS
from .codec import SchemaError
from .commits import EventDraft
from .plain import JSONObject
from .rows import RunInfo
from .secrets.redaction import Redactor
from .stepwise import WINDOW, Steps, drained

EVENT_VERSION: Final = 2
"""Version of envelope and payloads, raised when readers of the old form could misunderstand the new one.

Version 1 had the fields of payloads in snake_case.
"""

PAYLOAD_BYTES: Final = 524_288
"""Most bytes of a payload: twice the largest tool result that an event shows whole, escapes included."""
FRAME_BYTES: Final = PAYLOAD_BYTES + 16_384
"""Most bytes of an event with its envelope; ids and names of usual length use a small part of the addition."""
BUDGETS: Final = (131_072, 32_768, 8_192, 2_048)
"""Bytes that one field of a payload may keep, tried in turn until the payload fits."""
_EDGE: Final = 16
"""A cut text keeps this part of its budget, in characters, at each end: a character takes up to six bytes of JSON."""

_SEQUENCE: Final = b'","sequence":'
_TYPE_OF: Final = b',"type":"'
_PAYLOAD: Final = b'","payload":'
_END: Final = b"}"
"""Between the parts of an event."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def timestamp(moment: datetime) -> str:
    """Return RFC 3339 text in UTC with milliseconds and Z.

    Raises:
        ValueError: the moment has no time zone.
    """
    return _stamp(moment).decode()


def _stamp(moment: datetime) -> bytes:
    if moment.tzinfo is not UTC:
        if moment.tzinfo is None:
            raise ValueError(f"{moment.isoformat()} has no time zone; use datetime.now(UTC) or .replace(tzinfo=UTC)")
        moment = moment.astimezone(UTC)
    # msgspec writes "YYYY-MM-DDTHH:MM:SS", then six digits of a fraction if there is one; much faster than isoformat
    text = _encode(moment)
    return text[1:24] + b"Z" if moment.microsecond else text[1:20] + b".000Z"


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

    def frames(self, after: int, at: datetime, events: Sequence[EventDraft]) -> tuple[bytes, ...]:
        """Return the events' bytes; the first gets sequence `after + 1`, all get the time `at`.

        Raises:
            KeyError: a payload's class is not in the catalogue; a bug, because every event is documented.
        """
        frames = self.small_frames(after, at, events)
        return drained(self.frame_steps(after, at, events)) if frames is None else frames

    def small_frames(self, after: int, at: datetime, events: Sequence[EventDraft]) -> tuple[bytes, ...] | None:
        """Return the result of `frames`, or None if the events are so large that they must be made in steps."""
        middle, redact, room = self._constant + _stamp(at) + _PAYLOAD, self._redactor.small_payload, 2 * WINDOW
        head, encode, frames = self._head, _encode, []
        for sequence, event in enumerate(events, after + 1):
            clean_payload = event.payload if type(event.payload) in OURS else redact(event.payload)
            if clean_payload is None:
                return None
            payload = encode(clean_payload)
            room -= len(payload)
            if room < 0:
                return None
            number = b"%d" % sequence  # a join is cheaper than a format of all parts
            frames.append(
                b"".join((head, number, _SEQUENCE, number, _TYPE_OF, event.type.encode(), middle, payload, _END))
            )
        return tuple(frames)

    def frame_steps(self, after: int, at: datetime, events: Sequence[EventDraft]) -> Steps[tuple[bytes, ...]]:
        """Return the result of `frames`, in steps: some thousand characters of a text, or of small events."""
        middle, head, frames, room = self._constant + _stamp(at) + _PAYLOAD, self._head, list[bytes](), WINDOW
        for sequence, event in enumerate(events, after + 1):
            clean_payload = self._redactor.small_payload(event.payload)
            if clean_payload is None:
                yield
                clean_payload = yield from self._redactor.payload_steps(event.payload)
            payload = _encode(clean_payload)
            room -= len(payload)
            if room < 0:
                room = WINDOW
                yield
            if len(payload) > PAYLOAD_BYTES:
                payload = yield from _excerpted(payload)
                yield
            number = b"%d" % sequence
            frames.append(
                b"".join((head, number, _SEQUENCE, number, _TYPE_OF, event.type.encode(), middle, payload, _END))
            )
        return tuple(frames)


def _excerpted(payload: bytes) -> Steps[bytes]:
    """Return a payload cut to `PAYLOAD_BYTES`, followed by the envelope's `excerpted`.

    The payload is already redacted: a cut before redaction could leave the beginning of a secret that no pattern finds.
    """
    whole, cut = _decode(payload), list[str]()
    for budget in BUDGETS:
        yield
        fields = {name: shortened(value, budget) for name, value in whole.items()}
        cut = [name for name, value in fields.items() if value is not whole[name]]
        payload = _encode(fields)
        if len(payload) <= PAYLOAD_BYTES:
            break
    return b'%b,"excerpted":%b' % (payload, _encode(cut))


def shortened(value: object, budget: int) -> Any:
    """Return a field's value within a budget of bytes; the same object if it fits.

    Long texts inside lose their middle; if many short texts make the size, one text replaces the whole value.
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
        id: `<run_id>-<sequence>`.
        sequence: from 1, contiguous per run.
        type: a key of the catalogue.
        version: The version of envelope and payload.
        run_id, session_id, agent_id: of the run; `agent_id` is the agent's key.
        timestamp: UTC, milliseconds.
        payload: plain data; its fields are in camelCase, as in docs/events.md.
        excerpted: fields of the payload that are too long for an event and hold head and tail of their texts.
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
    """Return the type of an encoded event without decoding the rest.

    The first `"type":"` is the envelope's: only the id precedes it, and inside a JSON string quotes are escaped.

    Raises:
        SchemaError: the bytes are not an event.
    """
    try:
        start = frame.index(_TYPE) + len(_TYPE)
        return frame[start : frame.index(b'"', start)].decode()
    except ValueError as error:
        raise _no_event(frame) from error


def decode_event(frame: bytes) -> Event:
    """Decode an event.

    Raises:
        SchemaError: the bytes are not an event.
    """
    try:
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
    except (ValueError, TypeError, LookupError, RecursionError) as error:  # DecodeError is a ValueError
        raise _no_event(frame) from error


def _no_event(frame: object) -> SchemaError:
    size = f"{len(frame)} bytes" if isinstance(frame, bytes | str) else f"a value of type {type(frame).__name__}"
    return SchemaError(f"this is not an event of Greenroom ({size})")
