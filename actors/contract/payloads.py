"""The base of the payloads of events, and the marks of their fields.

Fields are snake_case in Python and camelCase on the wire (`casing.py`). Free text and foreign values pass the redactor
before they are encoded (`foreign` in the field's metadata marks them). A field with its default is left out.
"""

from __future__ import annotations

from typing import Final

import msgspec

from .casing import camel

FOREIGN_TEXT: Final = msgspec.Meta(extra={"foreign": True})
"""Marks a field with text or values from outside; the redactor reads these fields and no others."""
FOREIGN_SCHEMA: Final = msgspec.Meta(extra={"foreign": "schema"})
"""Marks a field with a foreign JSON Schema: redacted, but a property may be named `password`."""


def _wire_name(field: str) -> str:
    return "from" if field == "source" else camel(field)


class Payload(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, rename=_wire_name):
    """Base of all payloads.

    msgspec structs, not attrs: ten times cheaper to create, and a field may be named `from` on the wire.
    """
