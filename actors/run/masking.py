"""Artifacts without secrets: what a body publishes leaves the run's rows, so it passes the redactor first.

Theory of operation. Bytes that are UTF-8 are a text, whatever their media type says, and a text is read as streamed
output is: piece by piece, with the possible beginning of a secret carried into the next piece. So an artifact of 8 MiB
is masked to its end, where a text of an event is cut. Digests are made afterwards, of the bytes that are stored.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Final

import attrs
import trio
from msgspec.structs import replace

from ..contract.artifacts import Artifact
from ..contract.parts import MAX_BYTES
from ..errors import ToolError
from ..services.services import Services
from ..tools.artifacts import check_text

_PIECE: Final = 4_096
"""Bytes of a text that are read between two checkpoints: ten milliseconds, if each line has a secret."""
_HASHED: Final = 1_048_576
"""Bytes of a digest between two checkpoints, which take a few milliseconds."""


@attrs.frozen
class Mask:
    """The redaction of one run: its secrets, and its directory."""

    _services: Services
    _workspace: str | None

    def pieces(self, texts: Iterable[str]) -> Iterator[str]:
        """Yield a text without secrets, in pieces."""
        redactor = self._services.redactor.within(self._workspace)
        split = self._services.holdback.within(self._workspace).split
        rest = ""
        for text in texts:
            piece = rest + text
            end, rest = split(piece)
            yield ""
            yield redactor.text(piece[:end])
        yield redactor.text(rest)


async def masked_artifact(artifact: Artifact, mask: Mask) -> Artifact:
    """Return an artifact as it is stored: without secrets, with size and digest; without bytes if it is blocked.

    Raises:
        UsageError: The bytes are not UTF-8, and the kind or the media type says that they are a text.
        ToolError: The text has more than 8 MiB with its secrets masked, for a mask may be longer than the secret.
    """
    body = artifact.data
    if body is None:
        return artifact
    try:
        body = await _masked(body, mask)
    except UnicodeDecodeError:
        check_text(artifact)
    if len(body) > MAX_BYTES:
        raise ToolError(
            f"artifact {artifact.name!r}: {len(body):,} bytes with its secrets masked; an artifact has at most "
            f"{MAX_BYTES:,} bytes: publish a part of it, or a smaller one"
        )
    digest = sha256()
    for at in range(0, len(body), _HASHED):
        digest.update(body[at : at + _HASHED])
        await trio.lowlevel.checkpoint()
    whole = replace(artifact, size=len(body), sha256=digest.hexdigest(), data=body)
    return whole if whole.stored else replace(whole, data=None)


async def _masked(body: bytes, mask: Mask) -> bytes:
    """Return the bytes of a text without its secrets.

    Raises:
        UnicodeDecodeError: The bytes are not a text.
    """
    masked_pieces: list[bytes] = []
    for piece in mask.pieces(_decoded(body)):
        masked_pieces.append(piece.encode())
        await trio.lowlevel.checkpoint()
    return b"".join(masked_pieces)


def _decoded(body: bytes) -> Iterator[str]:
    """Yield a text in pieces. A zero is in binary formats only."""
    decoder = getincrementaldecoder("utf-8")()
    for at in range(0, len(body), _PIECE):
        piece = body[at : at + _PIECE]
        if b"\0" in piece:
            raise UnicodeDecodeError("utf-8", piece, piece.index(0), piece.index(0) + 1, "a zero")
        yield decoder.decode(piece)
    yield decoder.decode(b"", True)
