"""The checks of the arguments of a client's methods, and their form on the wire."""

from __future__ import annotations

import secrets
from base64 import b64encode
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from greenroom.actors.contract.parts import Part
from greenroom.actors.contract.run_lists import WatchFilters
from greenroom.actors.errors import UsageError
from greenroom.actors.options import unknown_option
from greenroom.actors.permission.remembered import Always
from greenroom.actors.services.sanitize import text_of

from ..protocol.up import FILTERS, MAX_ID, Remember, SentAttachment


def sent_attachment(part: Part) -> SentAttachment:
    """Return an image or a file as it is sent."""
    if part.data is None:
        return SentAttachment(media_type=part.media_type, url=part.url)
    return SentAttachment(media_type=part.media_type, data=b64encode(part.data).decode(), name=part.name or None)


def sent_always(always: object) -> Remember | None:
    """Return an "always" as it is sent.

    Raises:
        UsageError: The value is neither an `Always` nor None.
    """
    if always is None:
        return None
    if not isinstance(always, Always):
        raise UsageError(f"remember={always!r:.200}: give gr.ext.Always(scope=..., form=...), or None")
    return Remember(scope=always.scope, form=always.form)


def command_id_of(command_id: str | None) -> str:
    """Return the id of a request: the given one, or 128 random bits.

    Raises:
        UsageError: The id is invalid.
    """
    if not command_id:
        return secrets.token_hex(16)
    if not isinstance(command_id, str) or len(command_id) > MAX_ID or not command_id.isprintable():
        raise UsageError(f"the id {command_id!r:.200} cannot be; give at most {MAX_ID} printable characters")
    return command_id


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


def filter_fields(call: str, filters: Mapping[str, Any], filter_type: type[WatchFilters]) -> dict[str, Any]:
    """Return the filters of a list of runs as they are sent; those that are None are left out.

    Raises:
        UsageError: A filter is unknown, a text is not a str, or a time has no zone.
    """
    names, fields = filter_type.__annotations__, dict[str, Any]()
    for name, value in filters.items():
        if name not in names:
            raise unknown_option(call, name, names)
        if name in ("since", "until"):
            fields[FILTERS[name]] = moment_text(value, name)
        else:
            fields[FILTERS[name]] = value if name in ("limit", "order") else optional(value, name)
    return {name: value for name, value in fields.items() if value is not None}
