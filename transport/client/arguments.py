"""The checks of the arguments of a client's methods, and their form on the wire."""

from __future__ import annotations

import secrets
from base64 import b64encode
from datetime import datetime

from greenroom.actors.contract.parts import Part
from greenroom.actors.errors import UsageError
from greenroom.actors.services.sanitize import text_of

from ..protocol.up import MAX_ID, SentAttachment


def sent_attachment(part: Part) -> SentAttachment:
    """Return an image or a file as it is sent."""
    if part.data is None:
        return SentAttachment(media_type=part.media_type, url=part.url)
    return SentAttachment(media_type=part.media_type, data=b64encode(part.data).decode(), name=part.name or None)


def command_id_of(given: str | None) -> str:
    """Return the id of a request: the given one, or 128 random bits.

    Raises:
        UsageError: The id is invalid.
    """
    if not given:
        return secrets.token_hex(16)
    if not isinstance(given, str) or len(given) > MAX_ID or not given.isprintable():
        raise UsageError(f"the id {given!r:.200} cannot be; give at most {MAX_ID} printable characters")
    return given


def checked(value: object, what: str) -> str:
    """Return a text.

    Raises:
        UsageError: The value is not a str.
    """
    if not isinstance(value, str):
        raise UsageError(f"{what}={value!r:.200}: give a str")
    return text_of(value)


def moment_text(value: object, what: str) -> str | None:
    """Return a time as it is sent; None for None.

    Raises:
        UsageError: The value is not a datetime with a time zone.
    """
    if value is None:
        return None
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise UsageError(f"{what}={value!r:.200}: give a datetime with a time zone")
    return value.isoformat()


def optional(value: object, what: str) -> str | None:
    """Return a text, or None for None.

    Raises:
        UsageError: The value is not a str.
    """
    return None if value is None else checked(value, what)
