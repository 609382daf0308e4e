"""Read published artifacts: the facts from the event that tells of one, the bytes from the thread.

A fork has the artifacts that its parent had published up to its step, under their ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from ..abc import Store
from ..contract.artifacts import COPIED, MAX_ARTIFACTS, MAX_TOTAL, Artifact, copied_artifacts, sequence_of
from ..contract.casing import from_wire
from ..contract.codec import parse
from ..contract.commits import NewRun
from ..contract.envelope import decode_event
from ..contract.rows import CallRow, RunOutline
from ..contract.secrets.redaction import Redactor
from ..contract.state import StateWrite
from ..contract.stepwise import drained
from ..errors import UnknownArtifact
from ..run.view import shown_artifact

_EVENTS: Final = frozenset({"run.artifact.ready", "run.preview.ready"})


async def read_artifact(store: Store, outline: RunOutline, name: str, redactor: Redactor) -> Artifact:
    """Return an artifact of a run with its bytes. Costs the same for every run.

    Raises:
        UnknownArtifact: The run has none with this id, or the store has no bytes of it.
    """
    run_id = outline.info.run_id
    artifact = await _published(store, run_id, name) or await _copied(store, outline, name, redactor)
    if artifact is None:
        raise UnknownArtifact(f"run {run_id!r} has no artifact {name!r:.200}")
    if not artifact.stored:
        why = "it is an address" if artifact.url else "its privacy review has blocked it"
        raise UnknownArtifact(f"the artifact {name!r} of run {run_id!r} has no bytes: {why}")
    bodies = await store.parts(outline.info.thread_id, (artifact.sha256,))
    if artifact.sha256 not in bodies:
        raise UnknownArtifact(f"the artifact {name!r} of run {run_id!r} was pruned meanwhile")
    return replace(artifact, data=bodies[artifact.sha256])


async def _published(store: Store, run_id: str, name: str) -> Artifact | None:
    sequence = sequence_of(run_id, name)
    frames = [] if not sequence else await store.events(run_id, after=sequence - 1, limit=1)
    event = decode_event(frames[0]) if frames else None
    if event is None or event.type not in _EVENTS or event.payload["artifactId"] != name:
        return None
    return parse(Artifact, from_wire(Artifact, event.payload))


async def _copied(store: Store, outline: RunOutline, name: str, redactor: Redactor) -> Artifact | None:
    record = None if outline.info.forked_from is None else await store.load(outline.info.run_id)
    if record is None:
        return None
    namesakes = (one for one in copied_artifacts(record.state) if one.artifact_id == name)
    artifact = next(namesakes, None)
    return None if artifact is None else drained(shown_artifact(artifact, redactor))


def with_artifacts(new: NewRun, calls: Sequence[CallRow], step: int) -> NewRun:
    """Return a fork with the artifacts that its parent had at the end of a step, the newest that a run may have.

    Args:
        new: The fork, with its state.
        calls: All calls of the parent.
        step: The step.
    """
    own = (artifact for call in calls if call.step <= step for artifact in call.artifacts)
    artifacts = _newest((*copied_artifacts(new.state), *sorted(own, key=_age)))
    if not artifacts:
        return new
    others = tuple(write for write in new.state if (write.scope, write.key) != COPIED)
    write = StateWrite(key=COPIED.name, scope=COPIED.scope, value=[artifact.facts() for artifact in artifacts])
    bodies = {artifact.sha256: artifact for artifact in artifacts if artifact.stored}
    return replace(new, state=(*others, write), parts=(*new.parts, *bodies.values()))


def _age(artifact: Artifact) -> int:
    return int(artifact.artifact_id.rpartition(".a")[2])


def _newest(artifacts: Sequence[Artifact]) -> tuple[Artifact, ...]:
    """Return the newest artifacts that fit the limits of one run, in their order."""
    fitting, size = list[Artifact](), 0
    for artifact in reversed(artifacts):
        size += artifact.size
        if len(fitting) == MAX_ARTIFACTS or size > MAX_TOTAL:
            break
        fitting.append(artifact)
    return tuple(reversed(fitting))
