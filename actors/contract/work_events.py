"""Events of the work of a body: what it notes, and what it publishes. One payload class per type.

Notes are what a program says that does the work of a call; `NOTES` has their types. The engine fills in `call_id`, and
`approval_id` with the ticket whose decision let the call run, and writes the event; it reads nothing in it. Paths are
relative to the workspace of the run; `<outside>/name` is a file elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

import msgspec

from . import events as ev
from .artifacts import ArtifactKind
from .payloads import FOREIGN_TEXT, Payload
from .plain import JSONObject


class WorkspaceFileRead(Payload, frozen=True, kw_only=True):
    """The body has read a file. `path` is relative to the workspace; `bytes` and `lines` as far as known."""

    path: Annotated[str, FOREIGN_TEXT]
    call_id: str
    read_at: str
    bytes: int | None = None
    lines: int | None = None


class DiffReady(Payload, frozen=True, kw_only=True):
    """A worktree has changes that can be proposed: the difference of the commits `base` and `target`.

    Each of `files` has `path`, `change` (added, modified, deleted, renamed), `added` and `removed` (lines), and where
    they apply `fromPath`, `mode`, `binary`. `summary` counts all of them; `truncated`: `files` does not name all.
    `leftOut` names what the worktree has and the proposal has not, each with `path` and `reason`.
    """

    proposal: str
    base: str
    target: str
    files: Annotated[tuple[JSONObject, ...], FOREIGN_TEXT]
    summary: Annotated[str, FOREIGN_TEXT]
    truncated: bool = False
    left_out: Annotated[tuple[JSONObject, ...], FOREIGN_TEXT] = ()
    artifact: str | None = None


class PatchMoved(Payload, frozen=True, kw_only=True):
    """A proposal has another status: proposed, applied, partly_applied, conflicted, or discarded (it can be no more).

    `files` are paths: all of the proposal, or those that were applied; at most 200. `conflicts`: the paths that people
    have changed meanwhile in another way. `approvalId` is the ticket whose approval let it be applied.
    """

    proposal: str
    files: Annotated[tuple[str, ...], FOREIGN_TEXT]
    status: Literal["proposed", "applied", "partly_applied", "conflicted", "discarded"]
    approval_id: str | None = None
    conflicts: Annotated[tuple[str, ...], FOREIGN_TEXT] = ()


class PlanChanged(Payload, frozen=True, kw_only=True):
    """The body has another list of what it wants to do, in its order; each entry has `text` and `status`."""

    call_id: str
    entries: Annotated[tuple[Mapping[str, str], ...], FOREIGN_TEXT]


class RuntimeUnavailable(Payload, frozen=True, kw_only=True):
    """The program that should do the work is missing, not logged in, or of the wrong version.

    `runtime` names the program, `reason` says why, `hint` the way out.
    """

    code: str
    runtime: Annotated[str, FOREIGN_TEXT]
    reason: Annotated[str, FOREIGN_TEXT]
    hint: Annotated[str, FOREIGN_TEXT] = ""


class RuntimeTimeout(Payload, frozen=True, kw_only=True):
    """The program `runtime` did not answer in time: at its start, or without a word for `seconds` (idle)."""

    runtime: Annotated[str, FOREIGN_TEXT]
    which: Literal["start", "idle"]
    seconds: float


class ValidationFailed(Payload, frozen=True, kw_only=True):
    """Output of a program is not in the form that it promises.

    `source` names the program, `line` the line of its output, `rule` the rule that it breaks; `sample`: its beginning,
    at most 300 characters.
    """

    source: Annotated[str, FOREIGN_TEXT] = msgspec.field(name="source")
    line: int
    rule: Annotated[str, FOREIGN_TEXT]
    sample: Annotated[str, FOREIGN_TEXT] = ""


NOTES: Final[Mapping[str, type[Payload]]] = {
    "run.degraded": ev.RunDegraded,
    "run.file.read": WorkspaceFileRead,
    "run.diff.ready": DiffReady,
    "run.patch.proposed": PatchMoved,
    "run.patch.applied": PatchMoved,
    "run.patch.conflicted": PatchMoved,
    "run.patch.discarded": PatchMoved,
    "run.plan.changed": PlanChanged,
    "runtime.unavailable": RuntimeUnavailable,
    "runtime.timeout": RuntimeTimeout,
    "schema.validation_failed": ValidationFailed,
}
"""Type -> payload class of the events that a body may note."""


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
    media_type: Annotated[str, FOREIGN_TEXT]
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
