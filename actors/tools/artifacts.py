"""`artifact_of`: what a tool gives to `ctx.artifact`, checked, as an `Artifact` with its bytes.

The checks are those that need no run: a fault is met where the value comes from.
"""

from __future__ import annotations

import os
import stat
from codecs import getincrementaldecoder
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Final, cast, get_args

import msgspec

from ..contract.artifacts import METADATA_BYTES, PRIVACY_REVIEWS, REQUIRED, Artifact, ArtifactKind
from ..contract.codec import normalise
from ..contract.envelope import timestamp
from ..contract.parts import (
    LONGEST_NAME,
    LONGEST_URL,
    MAX_BYTES,
    UNKNOWN_TYPE,
    detected,
    is_address,
    is_file_name,
    is_media_type,
)
from ..contract.plain import encodable, exact
from ..errors import UsageError
from ..state.values import shown

KINDS: Final[tuple[ArtifactKind, ...]] = get_args(ArtifactKind)
_TEXT_KINDS: Final = frozenset({"diff", "transcript", "raw"})
"""Kinds whose bytes are text, so that they are redacted."""
_BEGINNING: Final = 4_096
"""Bytes that show whether there is a text."""
_LONGEST_PATH: Final = 1_024
"""Most characters of the path of a preview."""
_LONGEST_WORD: Final = 200
"""Most characters of a required text of the metadata."""
_OUTSIDE: Final = "<outside>"
"""Stands for the folders of a file that is not in the workspace."""
_ENDINGS: Final = {
    ".css": "text/css",
    ".csv": "text/csv",
    ".diff": "text/x-diff",
    ".htm": "text/html",
    ".html": "text/html",
    ".js": "text/javascript",
    ".json": "application/json",
    ".md": "text/markdown",
    ".patch": "text/x-diff",
    ".svg": "image/svg+xml",
    ".xml": "application/xml",
}
"""Ending of a text file's name -> its media type. A table of ours, because that of the system differs by machine."""


def artifact_of(
    name: object, data: object, *, kind: object = "file", media_type: object = None, metadata: Mapping[str, object]
) -> Artifact:
    """Return an artifact with its bytes, without an id.

    Args:
        name: A file's name.
        data: The bytes, or a text; None for a preview of an address.
        kind: An `ArtifactKind`.
        media_type: type/subtype; None: as bytes and name show.
        metadata: What the kind requires, and more JSON data.

    Raises:
        UsageError: An argument is invalid; the message names the value and the way out.
    """
    if kind not in KINDS:
        raise UsageError(f"artifact(kind={shown(kind)}): the kinds are {', '.join(KINDS)}")
    if not isinstance(name, str) or not is_file_name(name):
        way = f"give 1 to {LONGEST_NAME} printable characters without slashes, other than . and .."
        raise UsageError(f"artifact({shown(name)}): the name of an artifact is that of a file: {way}")
    own_kind, own_name = kind, exact(name)
    facts, rest = _preview_facts(own_name, own_kind, dict(metadata), has_bytes=data is not None)
    details = _details(own_name, own_kind, rest)
    if data is None:
        return Artifact(kind=own_kind, name=own_name, media_type=UNKNOWN_TYPE, metadata=details, **facts)
    body = _bytes(own_name, data)
    content_type = _media_type(own_name, own_kind, body, media_type)
    return Artifact(
        kind=own_kind, name=own_name, media_type=content_type, size=len(body), metadata=details, data=body, **facts
    )


def read_whole(path: Path) -> bytes:
    """Return the content of a file. Called in a worker thread.

    Raises:
        UsageError: The path leads to no file that can be read, or the file is larger than 8 MiB.
    """
    try:
        # a named pipe without a writer would block the open for ever
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise UsageError(f"artifact(...): {path.name!r:.200} is not a file")
            content = file.read(MAX_BYTES + 1)
            size = max(len(content), os.fstat(descriptor).st_size)
    except OSError as error:
        raise UsageError(f"artifact(...): {path.name!r:.200} cannot be read: {error.strerror}") from error
    if size > MAX_BYTES:
        raise _too_large(path.name, size)
    return content


def _too_large(name: str, size: int) -> UsageError:
    way = "publish a part of it, or a smaller one"
    return UsageError(f"artifact {name!r:.200}: {size:,} bytes; an artifact has at most {MAX_BYTES:,} bytes: {way}")


def _bytes(name: str, data: object) -> bytes:
    if isinstance(data, str):
        try:
            body = data.encode()
        except UnicodeEncodeError as error:
            text = f"artifact {name!r}: the text has a lone surrogate, so it has no form in UTF-8"
            raise UsageError(text) from error
    elif isinstance(data, bytes | bytearray | memoryview):
        if (size := data.nbytes if isinstance(data, memoryview) else len(data)) > MAX_BYTES:
            raise _too_large(name, size)
        body = bytes(data)
    else:
        raise UsageError(f"artifact {name!r}: {shown(data)}: give bytes, a str or a pathlib.Path")
    if not body:
        raise UsageError(f"artifact {name!r}: there are no bytes; leave an empty one out")
    if len(body) > MAX_BYTES:
        raise _too_large(name, len(body))
    return body


def _media_type(name: str, kind: ArtifactKind, body: bytes, media_type: object) -> str:
    content_type = exact(media_type).lower() if isinstance(media_type, str) else ""
    if media_type is None:
        ending = PurePosixPath(name).suffix.lower()
        default = "text/x-diff" if kind == "diff" else "text/plain"
        content_type = detected(body) or (_ENDINGS.get(ending, default) if _begins_as_text(body) else UNKNOWN_TYPE)
    elif not is_media_type(content_type):
        way = "give type/subtype without parameters, such as 'text/html'"
        raise UsageError(f"artifact {name!r}: media_type={shown(media_type)}: {way}")
    if kind == "screenshot" and not content_type.startswith("image/"):
        way = "give the bytes of an image, or media_type='image/...'"
        raise UsageError(f"artifact {name!r}: a screenshot is an image, not {content_type}: {way}")
    return content_type


def _begins_as_text(body: bytes) -> bool:
    """Return True if the beginning of some bytes is UTF-8, without the zeros of binary formats."""
    beginning = body[:_BEGINNING]
    try:
        return b"\0" not in beginning and bool(getincrementaldecoder("utf-8")().decode(beginning))
    except UnicodeDecodeError:
        return False


def check_text(artifact: Artifact) -> None:
    """Check an artifact whose bytes are not UTF-8.

    Raises:
        UsageError: Its kind or its media type says that it is a text.
    """
    kind, media_type = artifact.kind, artifact.media_type
    if kind in _TEXT_KINDS or media_type.startswith("text/"):
        way = "give UTF-8, or another kind and media_type"
        text = f"artifact {artifact.name!r}: {media_type} of kind {kind} is text, and these bytes are not UTF-8: {way}"
        raise UsageError(text)


def _preview_facts(
    name: str, kind: ArtifactKind, metadata: dict[str, object], *, has_bytes: bool
) -> tuple[dict[str, Any], dict[str, object]]:
    """Return path, address and time of a preview, and the rest of the metadata; nothing of any other kind."""
    if kind != "preview":
        if not has_bytes:
            raise UsageError(f"artifact {name!r}: data=None: only a preview with url= has no bytes")
        return {}, metadata
    path, url, read_at = (metadata.pop(field, None) for field in ("path", "url", "read_at"))
    if (path is None) == (url is None) or has_bytes != (path is not None):
        way = "give the bytes and path=, the file that they were read from; or no bytes and url="
        raise UsageError(f"artifact {name!r}: a preview is of a file or of an address: {way}")
    if not isinstance(read_at, datetime) or read_at.tzinfo is None:
        way = "give the time at which it was read, such as datetime.now(UTC)"
        raise UsageError(f"artifact {name!r}: a preview needs read_at, a datetime with a time zone: {way}")
    place = {"url": _url(name, url)} if path is None else {"path": _relative(name, path)}
    return {**place, "read_at": timestamp(read_at.astimezone(UTC))}, metadata


def _url(name: str, url: object) -> str:
    if not isinstance(url, str) or not is_address(url):
        way = f"give an http or https address of at most {LONGEST_URL:,} characters"
        raise UsageError(f"artifact {name!r}: url={shown(url)}: {way}")
    return exact(url)


def _relative(name: str, path: object) -> str:
    """Return the path of a preview; of a file outside of the workspace only its name is shown."""
    text = str(path) if isinstance(path, str | Path) else ""
    if not 0 < len(text) <= _LONGEST_PATH or not encodable(text) or not text.isprintable():
        way = f"give the file's path in the workspace, 1 to {_LONGEST_PATH:,} printable characters"
        raise UsageError(f"artifact {name!r}: path={shown(path)}: {way}")
    pure = PurePosixPath(text.replace("\\", "/"))
    outside = pure.is_absolute() or bool(PureWindowsPath(text).drive) or ".." in pure.parts
    return f"{_OUTSIDE}/{pure.name}" if outside else pure.as_posix()


def _details(name: str, kind: ArtifactKind, metadata: Mapping[str, object]) -> dict[str, Any]:
    """Return the metadata as JSON, with all that the kind requires."""
    for field in REQUIRED.get(kind, ()):
        value = metadata.get(field)
        if not isinstance(value, str) or not value.strip() or len(value) > _LONGEST_WORD:
            needs = ", ".join(REQUIRED[kind])
            way = f"a text of 1 to {_LONGEST_WORD} characters; a {kind} needs {needs}"
            raise UsageError(f"artifact {name!r}: {field}={shown(value)}: give {way}")
    if kind == "screenshot" and metadata["privacy_review"] not in PRIVACY_REVIEWS:
        way = f"give one of {', '.join(PRIVACY_REVIEWS)}"
        raise UsageError(f"artifact {name!r}: privacy_review={shown(metadata['privacy_review'])}: {way}")
    data, fault = normalise(dict(metadata))
    if fault is not None:
        raise UsageError(f"artifact {name!r}: the metadata has no form in JSON ({fault}); give plain data")
    size = len(msgspec.json.encode(data))
    if size > METADATA_BYTES:
        way = "put the rest into the bytes"
        raise UsageError(
            f"artifact {name!r}: the metadata has {size:,} bytes as JSON, and at most {METADATA_BYTES:,}: {way}"
        )
    return cast("dict[str, Any]", data)
