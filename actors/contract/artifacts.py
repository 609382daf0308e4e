"""Artifacts: bytes that a run publishes, with their kind and what a reader has to know of them.

Theory of operation. An artifact is bytes in the store, kept as those of images and files are: once for each thread and
digest, in the transaction of the commit that brings them. The facts are in the row of the call whose body published it,
and in the event that tells of it. The id names the run and the sequence of that event, so a reader finds the facts
without a search. A fork copies what was published up to its step, and keeps the facts in a reserved state key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from .casing import camel
from .plain import JSONObject
from .row_forms import Value
from .state import RESERVED, KeyId, StateWrite

ArtifactKind = Literal["file", "document", "screenshot", "preview", "diff", "transcript", "raw"]
"""What the bytes are for. raw: the lines of a program, as it wrote them."""

MAX_ARTIFACTS: Final = 200
"""Most artifacts of one run: a page can list them, and the row of a call can hold their facts."""
MAX_TOTAL: Final = 64 * 1024 * 1024
"""Most bytes of all artifacts of one run."""
METADATA_BYTES: Final = 2_048
"""Most bytes of the metadata of one artifact, as JSON: the row of a call holds those of all its artifacts."""
REQUIRED: Final[Mapping[ArtifactKind, tuple[str, ...]]] = {
    "document": ("source_route", "language", "build_status"),
    "screenshot": ("viewport", "route", "theme", "language", "privacy_review"),
}
"""Kind -> the texts of its metadata without which an artifact is refused. A preview needs its time and its source."""
PRIVACY_REVIEWS: Final = ("none", "passed", "blocked")
"""The outcomes of looking for private data in a screenshot. The bytes of a blocked one are not stored."""

COPIED: Final = KeyId("run", f"{RESERVED}artifacts")
"""The artifacts that a fork has copied, as JSON; written when the fork is created, and never again."""


class Artifact(Value, frozen=True, kw_only=True):
    """Bytes that a run has published.

    Attributes:
        artifact_id: The run's id and the sequence of the event, as `RUN.aSEQUENCE`; "" before the publication.
        call_id: The call whose body published it.
        kind: An `ArtifactKind`.
        name: A file's name.
        media_type: Such as text/html, in lower case.
        size: Bytes; 0 for a preview of an address.
        sha256: Digest of the bytes, in hexadecimal digits; "" for a preview of an address.
        path: The file that a preview shows, relative to the workspace; "" for any other.
        url: The address that a preview names; "" for any other. Greenroom fetches nothing.
        read_at: When the file or the page of a preview was read, RFC 3339; "" for any other.
        metadata: What the publisher says of it.
        data: The bytes, on their way to the store and from it; None everywhere else.
    """

    kind: ArtifactKind
    name: str
    media_type: str
    size: int = 0
    sha256: str = ""
    artifact_id: str = ""
    call_id: str = ""
    path: str = ""
    url: str = ""
    read_at: str = ""
    metadata: JSONObject = msgspec.field(default_factory=dict)
    data: bytes | None = None

    def __repr__(self) -> str:
        """Return the facts without the bytes."""
        return f"<Artifact {self.artifact_id or 'unpublished'}: {self.line()}>"

    def line(self) -> str:
        """Return one line for people: kind, name, media type and size."""
        size = self.url or f"{self.size:,} bytes"
        return f"{self.kind} {self.name}, {self.media_type}, {size}"

    def facts(self) -> dict[str, Any]:
        """Return the artifact as rows hold it: without fields that have their default."""
        fields = ((name, getattr(self, name)) for name in self.__struct_fields__ if name != "data")
        return {name: value for name, value in fields if value not in ("", 0) and value != {}}

    @property
    def stored(self) -> bool:
        """The store has bytes of it: it is not an address, and no privacy review has blocked it."""
        return bool(self.sha256) and self.metadata.get("privacy_review") != "blocked"


def without_bytes(artifact: Artifact) -> Artifact:
    """Return an artifact as rows hold it."""
    return artifact if artifact.data is None else replace(artifact, data=None)


def facts_on_wire(artifact: Artifact) -> dict[str, Any]:
    """Return the facts with the names of the wire; the metadata keeps its own."""
    return {camel(name): value for name, value in artifact.facts().items()}


def artifact_id(run_id: str, sequence: int) -> str:
    """Return the id of the artifact that an event of a run tells of."""
    return f"{run_id}.a{sequence}"


def sequence_of(run_id: str, name: str) -> int | None:
    """Return the sequence of the event that tells of an artifact; None if the id is not one of this run."""
    head, _, number = name.rpartition(".a")
    is_own = head == run_id and number.isascii() and number.isdigit() and len(number) <= 16
    return int(number) if is_own else None


def copied_artifacts(state: Iterable[StateWrite]) -> tuple[Artifact, ...]:
    """Return the artifacts that a fork has copied, from its state keys; empty for any other run."""
    facts = next((write.value for write in state if KeyId(write.scope, write.key) == COPIED), ())
    return tuple(Artifact(**one) for one in facts)
