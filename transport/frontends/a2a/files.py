"""Images and files of a run in A2A: named by a data part, or with their bytes, up to 256 KiB together.

Events have the facts of images and files, and the store has the bytes. So the fold names each by a data part, and the
response, which may read, puts the bytes of small ones in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs
from msgspec.structs import replace

from greenroom.actors.backends.a2a_values import A2AArtifact, A2APart
from greenroom.actors.contract.casing import camel
from greenroom.actors.contract.plain import JSONObject, JSONValue

FILE_TYPE: Final = "application/vnd.greenroom.file+json"
"""The media type of a data part with the facts of an image or a file."""
MOST_BYTES: Final = 262_144
"""Most bytes of images and files that one answer, or one item of a stream, has."""
MOST_FILES: Final = 100
"""Most images and files with bytes in it."""
_DIGEST: Final = 64


@attrs.frozen
class FileKey:
    """Where the store has bytes: an artifact of a run by its id, or a part of its thread by its digest."""

    artifact_id: str
    sha256: str


def parts_in(result: JSONValue) -> tuple[A2APart, ...]:
    """Return the parts that name the images and files in a call's result: it is one, or a list that has some."""
    values = result if isinstance(result, list) else [result]
    return tuple(named_part({camel(name): fact for name, fact in value.items()}) for value in values if _is_file(value))


def _is_file(value: JSONValue) -> bool:
    """Return True for the facts of an image or a file, as results have them."""
    if not isinstance(value, dict) or value.get("type") not in ("image", "file"):
        return False
    digest, address = value.get("sha256"), value.get("url")
    stored = isinstance(digest, str) and len(digest) == _DIGEST and isinstance(value.get("size"), int)
    return isinstance(value.get("media_type"), str) and (stored or isinstance(address, str))


def named_part(facts: JSONObject) -> A2APart:
    """Return the part that names an image or a file, by its facts with the names of the wire."""
    address = facts.get("url")
    if isinstance(address, str) and address:
        return A2APart(url=address, media_type=str(facts.get("mediaType", "")), filename=str(facts.get("name", "")))
    return A2APart(data=dict(facts), media_type=FILE_TYPE, filename=str(facts.get("name", "")))


def keys_of(artifacts: Iterable[A2AArtifact]) -> list[FileKey]:
    """Return what to read for artifacts, as far as it is small enough.

    The facts may be those that a foreign tool has put into its result, so their number counts, too.
    """
    keys, room = dict[FileKey, None](), MOST_BYTES
    for part in (part for artifact in artifacts for part in artifact.parts):
        key, size = _key(part)
        if key is not None and 0 <= size <= room and key not in keys:
            room -= size
            keys[key] = None
            if len(keys) == MOST_FILES:
                break
    return list(keys)


def filled(artifact: A2AArtifact, bytes_of: Mapping[FileKey, bytes]) -> A2AArtifact:
    """Return an artifact whose files have their bytes, as far as they were read."""
    parts = tuple(_filled(part, bytes_of) for part in artifact.parts)
    return artifact if parts == artifact.parts else replace(artifact, parts=parts)


def _filled(part: A2APart, bytes_of: Mapping[FileKey, bytes]) -> A2APart:
    key, _ = _key(part)
    body = None if key is None else bytes_of.get(key)
    if body is None:
        return part
    facts: dict[str, Any] = part.data
    return A2APart.of_bytes(body, media_type=str(facts.get("mediaType", "")), filename=part.filename)


def _key(part: A2APart) -> tuple[FileKey | None, int]:
    """Return where the bytes of a part are, and their number; None if it names no stored bytes."""
    if part.media_type != FILE_TYPE or not isinstance(part.data, dict):
        return None, 0
    digest, size = part.data.get("sha256"), part.data.get("size")
    if not isinstance(digest, str) or not isinstance(size, int) or not digest:
        return None, 0
    return FileKey(str(part.data.get("artifactId", "")), digest), size
