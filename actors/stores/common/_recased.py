"""Events of older files: version 1 had the fields of payloads in snake_case, version 2 has them in camelCase.

The table is that of the release that wrote version 1, and never changes. A payload is flat: its own keys are fields of
Greenroom's classes, and whatever stands below them is user data or a count. So one level is renamed, and the bytes of
the values are kept, but for the order of the counts in a usage.
"""

from __future__ import annotations

from typing import Final

import msgspec

_NAMES: Final = {
    "active_seconds": "activeSeconds",
    "call_id": "callId",
    "command_id": "commandId",
    "delay_ms": "delayMs",
    "duration_ms": "durationMs",
    "error_id": "errorId",
    "expires_at": "expiresAt",
    "forked_from": "forkedFrom",
    "grace_seconds": "graceSeconds",
    "last_sequence": "lastSequence",
    "message_id": "messageId",
    "on_expiry": "onExpiry",
    "outcome_unknown": "outcomeUnknown",
    "response_schema": "responseSchema",
    "resume_mode": "resumeMode",
    "task_id": "taskId",
    "thread_id": "threadId",
    "ticket_id": "ticketId",
}
"""Field of a payload in version 1 -> in version 2; the others are one word."""

_COUNTS: Final = ("requests", "input", "output", "cached", "reasoning")
"""The order of the counts of a usage in version 2; version 1 had them in another one."""

_Fields = dict[str, msgspec.Raw]
_fields: Final = msgspec.json.Decoder(_Fields).decode
_words: Final = msgspec.json.Decoder(list[str]).decode
_encode: Final = msgspec.json.Encoder().encode


def recased(frame: bytes) -> bytes:
    """Return an event in version 2; an event in version 2, and anything that is not an event, unchanged.

    Never raises for what a damaged row may hold: one row must not keep the file from opening.
    """
    try:
        event = _fields(frame)
        if bytes(event["version"]) != b"1":
            return frame
        payload = {_NAMES.get(name, name): value for name, value in _fields(event["payload"]).items()}
        if bytes(payload.get("usage", b"")).startswith(b"{"):  # a failed request may have none
            counts = _fields(payload["usage"])
            ordered = {name: counts[name] for name in _COUNTS if name in counts}
            payload["usage"] = msgspec.Raw(_encode(ordered | counts))
        changed = event | {"version": msgspec.Raw(b"2"), "payload": msgspec.Raw(_encode(payload))}
        if "excerpted" in event:
            cut = [_NAMES.get(name, name) for name in _words(event["excerpted"])]
            changed["excerpted"] = msgspec.Raw(_encode(cut))
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
        return frame
    return _encode(changed)
