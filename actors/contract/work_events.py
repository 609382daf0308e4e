"""Events of work in a workspace and of what a run publishes: payload classes beside those of `events.py`.

Paths are relative to the workspace of the run; `<outside>/name` is a file elsewhere.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from .artifacts import ArtifactKind
from .payloads import FOREIGN_TEXT, Payload
from .plain import JSONObject

# --- artifacts -------------------------------------------------------------------------------------------------------


class ArtifactReady(Payload, frozen=True, kw_only=True):
    """A body has published bytes, which are durable: `GET /v1/runs/{run}/artifacts/{artifactId}` serves them.

    `size` and `sha256` are those of the stored bytes, in which secrets are masked. `metadata` is the publisher's, and
    keeps its own keys. A screenshot with the privacy review `blocked` has no stored bytes.
    """

    artifact_id: str
    call_id: str
    name: Annotated[str, FOREIGN_TEXT]
    kind: ArtifactKind
    media_type: str
    size: int
    sha256: str
    metadata: Annotated[JSONObject, FOREIGN_TEXT] = msgspec.field(default_factory=dict)


class PreviewReady(ArtifactReady, frozen=True, kw_only=True):
    """A body has published a preview: the bytes of a file (`path`), or an address (`url`), which nothing fetches.

    `read_at` is when the publisher has read the file or the page. The other fields are those of run.artifact.ready.
    """

    path: Annotated[str, FOREIGN_TEXT] = ""
    url: Annotated[str, FOREIGN_TEXT] = ""
    read_at: str
