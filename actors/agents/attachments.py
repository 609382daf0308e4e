"""`gr.Image` and `gr.File`: images and files in the input of a run and in the results of tools.

Both check their arguments when they are made, so a limit is met where the value comes from.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sized
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from ..contract.parts import (
    LONGEST_NAME,
    LONGEST_URL,
    MAX_BYTES,
    MAX_PARTS,
    Attachment,
    Part,
    PartType,
    detected,
    fault_of_parts,
    is_address,
    is_file_name,
    is_media_type,
    part_of,
    type_of_url,
)
from ..contract.plain import encodable, exact
from ..errors import InvalidAttachment
from ..state.values import copied, shown

_LONGEST_ESCAPED: Final = 1_048_576
"""Most characters of a data: address without base64, because escapes are slow to decode: about a second."""


class Image(Attachment):
    """An image, by its bytes or by its address.

    Attributes:
        part: type, media type, size, digest and bytes.
    """

    __slots__ = ("part",)

    def __init__(
        self,
        data: bytes | bytearray | memoryview | None = None,
        *,
        url: str | None = None,
        media_type: str | None = None,
    ) -> None:
        """Make an image.

        Args:
            data: the bytes, 1 byte to 8 MiB.
            url: instead: an http or https address, which the provider reads, or a data: address.
            media_type: such as "image/png". None: what the bytes of PNG, JPEG, GIF and WebP show, or what the end of
                the address names.

        Raises:
            InvalidAttachment: an argument is invalid; the message names the value and the way out.
        """
        if (data is None) == (url is None):
            raise InvalidAttachment("Image(...): give the bytes, or url=, one of the two")
        own_type = None if media_type is None else _media_type("Image", media_type)
        if url is not None:
            self.part = _at_address(url, own_type)
            return
        body = _bytes("Image", data)
        content_type = own_type or detected(body)
        if content_type is None:
            raise InvalidAttachment(
                f"Image(<{len(body)} bytes>): neither PNG, JPEG, GIF nor WebP; give media_type='image/...'"
            )
        self.part = part_of("image", body, _image_type(content_type))

    def __repr__(self) -> str:
        return f"Image(<{self.part.line()}>)"


class File(Attachment):
    """A file by its bytes: a PDF, a text, a recording.

    Attributes:
        part: type, media type, size, digest, name and bytes.
    """

    __slots__ = ("part",)

    def __init__(self, data: bytes | bytearray | memoryview, *, media_type: str, name: str | None = None) -> None:
        """Make a file.

        Args:
            data: the bytes, 1 byte to 8 MiB.
            media_type: such as "application/pdf" or "text/csv".
            name: shown to the model and to people; at most 255 characters, and no path.

        Raises:
            InvalidAttachment: an argument is invalid; the message names the value and the way out.
        """
        body = _bytes("File", data)
        self.part = part_of("file", body, _media_type("File", media_type), "" if name is None else _name(name))

    def __repr__(self) -> str:
        return f"File(<{self.part.line()}>)"


def attachment_of(data: bytes, media_type: str | None = None, name: str | None = None) -> Image | File:
    """Return an image or a file, by its media type or, without one, by its first bytes.

    Raises:
        InvalidAttachment: an argument is invalid, or the bytes show no media type.
    """
    content_type = media_type or detected(data)
    if content_type is None:
        what = "File" if name is None else f"the file {name!r:.200}"
        raise InvalidAttachment(f"{what}: its bytes show no media type; give one, such as 'text/plain'")
    if content_type.lower().startswith("image/"):
        return Image(data, media_type=content_type)
    return File(data, media_type=content_type, name=name)


def parts_of(attachments: Any) -> tuple[Part, ...]:
    """Return the parts of images and files for one message: of the argument `attachments` of a start.

    Raises:
        InvalidAttachment: one of them is something else, or together they are too many or too large.
    """
    if type(attachments) is tuple and not attachments:
        return attachments
    if isinstance(attachments, Attachment | str | bytes) or not isinstance(attachments, Iterable):
        raise InvalidAttachment(f"attachments={shown(attachments)}: give a list of gr.Image and gr.File")
    parts: list[Part] = []
    for index, item in enumerate(attachments):
        part = getattr(item, "part", None) if isinstance(item, Attachment) else None
        if not isinstance(part, Part):
            raise InvalidAttachment(f"attachments[{index}]={shown(item)}: give a gr.Image or a gr.File")
        if index == MAX_PARTS:
            more = len(attachments) if isinstance(attachments, Sized) else f"more than {MAX_PARTS}"
            raise InvalidAttachment(f"attachments: {more} images and files; give at most {MAX_PARTS} in one message")
        parts.append(part)
    fault = fault_of_parts(parts)
    if fault is not None:
        raise InvalidAttachment(f"attachments: {fault}")
    return tuple(parts)


def with_attachments(value: Any, data: Any) -> object:
    """Return a result for a guardrail of its tool: a copy of the stored data, with the attachments in their places.

    Args:
        value: as the tool returned it: an attachment, or a list with some.
        data: the same as JSON data.
    """
    if isinstance(value, Attachment):
        return value
    return [own if isinstance(own, Attachment) else copied(item) for own, item in zip(value, data, strict=True)]


def _bytes(kind: str, data: object) -> bytes:
    if not isinstance(data, bytes | bytearray | memoryview):
        raise InvalidAttachment(f"{kind}({shown(data)}): give bytes, such as those of pathlib.Path(...).read_bytes()")
    try:
        size = data.nbytes if isinstance(data, memoryview) else len(data)
    except ValueError as error:
        raise InvalidAttachment(f"{kind}(<a memoryview>): {error}; give the bytes themselves") from error
    if size == 0:
        raise InvalidAttachment(f"{kind}(b''): there are no bytes; leave an empty one out")
    if size > MAX_BYTES:
        raise InvalidAttachment(
            f"{kind}(<{size:,} bytes>): at most {MAX_BYTES:,} bytes; give a smaller one, or the address of an image"
        )
    return bytes(data)


def _media_type(kind: str, value: object) -> str:
    text = exact(value).lower() if isinstance(value, str) else ""
    if not is_media_type(text):
        way = "give type/subtype without parameters, such as 'image/png' or 'application/pdf'"
        raise InvalidAttachment(f"{kind}(media_type={shown(value)}): {way}")
    return _image_type(text) if kind == "Image" else text


def _image_type(kind: str) -> str:
    if not kind.startswith("image/"):
        raise InvalidAttachment(f"Image(...): {kind} is no type of images; give a gr.File(data, media_type={kind!r})")
    return kind


def _name(value: object) -> str:
    text = exact(value) if isinstance(value, str) else ""
    if not is_file_name(text):
        way = f"give 1 to {LONGEST_NAME} printable characters without slashes, other than . and .., or None"
        raise InvalidAttachment(f"File(name={shown(value)}): {way}")
    return text


def _at_address(value: object, media_type: str | None) -> Part:
    """Return the part of an image behind an address; the bytes of a data: address are decoded."""
    url = exact(value) if isinstance(value, str) else ""
    if url.startswith("data:"):
        body, url_type = decoded_url(url)
        kind: PartType = "image"
        return part_of(kind, _bytes("Image", body), media_type or _media_type("Image", url_type or detected(body)))
    if not is_address(url):
        way = f"give an http, https or data address of at most {LONGEST_URL:,} characters (data: as much as the bytes)"
        raise InvalidAttachment(f"Image(url={shown(value)}): {way}")
    return Part(type="image", media_type=media_type or type_of_url(url), url=url)


def decoded_url(url: str) -> tuple[bytes, str]:
    """Return the bytes and the media type of a data: address; "" if it names none.

    Raises:
        InvalidAttachment: it is no data: address, or not valid base64.
    """
    head, comma, body = url.partition(",")
    if not head.startswith("data:") or not comma:
        raise InvalidAttachment(f"{url!r:.100} is no data: address; give data:<media type>;base64,<bytes>")
    media_type, *options = head.removeprefix("data:").split(";")
    if "base64" not in options:
        if len(body) > _LONGEST_ESCAPED or not encodable(body):
            way = f"give base64, or at most {_LONGEST_ESCAPED:,} characters without lone surrogates"
            raise InvalidAttachment(f"a data: address: {body!r:.60} cannot be decoded; {way}")
        return unquote_to_bytes(body), media_type.lower()
    return decoded(body, "a data: address"), media_type.lower()


def decoded(text: str, what: str) -> bytes:
    """Return the bytes of base64 text.

    Raises:
        InvalidAttachment: the text is not base64.
    """
    if len(text) > MAX_BYTES * 4 // 3 + 4:
        raise InvalidAttachment(f"{what}: more than {MAX_BYTES:,} bytes; give a smaller one")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidAttachment(f"{what}: {text!r:.60} is not base64 ({error})") from error
