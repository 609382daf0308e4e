"""Parts of messages: images and files beside the text.

Theory of operation. Rows, inputs of the machine and records hold a part as its facts: type, media type, size and
digest. The bytes are in the store once for each thread and digest: the commit that brings a part brings the bytes, and
they are read again when a model is asked. So a row stays small however large a file is, and a replay needs no bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from msgspec.structs import replace

from .casing import camel
from .plain import JSONObject, encodable
from .row_forms import Value

PartType = Literal["image", "file"]

MAX_BYTES: Final = 8 * 1024 * 1024
"""Most bytes of one part, and of all parts of one message together: the request to a provider holds them in base64, and
the smallest limit for a request among the providers is 20 MB."""
MAX_PARTS: Final = 100
"""Most parts of one message; the smallest limit among the providers (Anthropic: images of a request)."""
LONGEST_NAME: Final = 255
"""Most characters of a file's name, as in most file systems."""
LONGEST_URL: Final = 8_192
"""Most characters of an address; longer ones are refused by many servers."""
UNKNOWN_TYPE: Final = "application/octet-stream"
"""The media type of an image behind an address whose end does not name one."""

_MEDIA_TYPE: Final = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,63}/[a-z0-9][a-z0-9!#$&^_.+-]{0,99}")
_MAGIC: Final[tuple[tuple[bytes, str], ...]] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
)
_ENDINGS: Final = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
}


class Part(Value, frozen=True, kw_only=True):
    """An image or a file of a message.

    Attributes:
        type: image or file.
        media_type: such as image/png, in lower case.
        size: bytes; 0 for an image behind an address.
        sha256: digest of the bytes, in hexadecimal digits; "" for an image behind an address.
        name: The name of a file, or "".
        url: http or https address of an image whose bytes the provider fetches; else "".
        data: the bytes, in the requests of models only; None everywhere else, and for an image behind an address.
    """

    type: PartType
    media_type: str
    size: int = 0
    sha256: str = ""
    name: str = ""
    url: str = ""
    data: bytes | None = None

    def __repr__(self) -> str:
        """Return the facts without the bytes."""
        return f"<Part {self.line()}>"

    def line(self) -> str:
        """Return one line for people: type, media type and size, and the name or the address."""
        size = self.url or f"{self.size:,} bytes"
        return f"{self.type} {self.media_type}, {size}{f', {self.name}' if self.name else ''}"

    def facts(self) -> dict[str, Any]:
        """Return the part as results and events hold it."""
        facts: dict[str, Any] = {"type": self.type, "media_type": self.media_type}
        if self.url:
            facts["url"] = self.url
        else:
            facts |= {"size": self.size, "sha256": self.sha256}
        return {**facts, "name": self.name} if self.name else facts


class InvalidPart(ValueError):
    """A tool's result holds an image or a file where none can be, or too much of them; the text has the way out."""


class Attachment:
    """Marks the classes of images and files that users make; `part` is the part that one becomes."""

    __slots__ = ()

    part: Part


def part_of(kind: PartType, data: bytes, media_type: str, name: str = "") -> Part:
    """Return the part of some bytes."""
    return Part(type=kind, media_type=media_type, size=len(data), sha256=sha256(data).hexdigest(), name=name, data=data)


def light(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Return parts without their bytes, as rows hold them."""
    return tuple(part if part.data is None else replace(part, data=None) for part in parts)


def facts_of(parts: Iterable[Part]) -> tuple[JSONObject, ...]:
    """Return the facts of parts."""
    return tuple(part.facts() for part in parts)


def facts_on_wire(parts: Iterable[Part]) -> tuple[JSONObject, ...]:
    """Return the facts of parts as an event has them: with the names of fields on the wire."""
    return tuple({camel(name): value for name, value in part.facts().items()} for part in parts)


def detected(data: bytes) -> str | None:
    """Return the media type that the first bytes of PNG, JPEG, GIF, WebP and PDF show; None for any other data."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((media_type for magic, media_type in _MAGIC if data.startswith(magic)), None)


def type_of_url(url: str) -> str:
    """Return the media type that the end of an address names."""
    path = url.partition("#")[0].partition("?")[0].lower()
    return next((media_type for ending, media_type in _ENDINGS.items() if path.endswith(ending)), UNKNOWN_TYPE)


def is_media_type(text: str) -> bool:
    """Return True for type/subtype in lower case, without parameters."""
    return _MEDIA_TYPE.fullmatch(text) is not None


def is_file_name(text: str) -> bool:
    """Return True for a name that file systems accept: 1 to 255 printable characters, and not a path."""
    plain = 0 < len(text) <= LONGEST_NAME and encodable(text) and text.isprintable() and not set(text) & set("/\\")
    return plain and text not in (".", "..")


def is_address(text: str) -> bool:
    """Return True for an http or https address of at most 8,192 characters."""
    try:
        parts = urlsplit(text)
        web = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        web = False
    return web and len(text) <= LONGEST_URL and text.isascii() and text.isprintable() and " " not in text


def fault_of_parts(parts: Iterable[Part]) -> str | None:
    """Return why the parts do not fit one message, and the way out; None if they do."""
    count = total = 0
    for part in parts:
        count, total = count + 1, total + part.size
    if count > MAX_PARTS:
        return f"{count} images and files; give at most {MAX_PARTS} in one message"
    if total > MAX_BYTES:
        way = "give fewer or smaller ones, or an address (gr.Image(url=...))"
        return f"images and files of {total:,} bytes together; one message has at most {MAX_BYTES:,} bytes: {way}"
    return None
