"""Artifacts: a body publishes bytes, and gets the id when they are durable.

Theory of operation. The bytes, the event and the facts in the call's row are one commit, so an artifact is whole or not
there, and nobody sees one that a crash could take back. A body that runs again and publishes the same again gets the
id of before: nothing is written twice.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from ..contract.artifacts import MAX_ARTIFACTS, MAX_TOTAL, Artifact, artifact_id
from ..contract.work_events import ArtifactReady, PreviewReady
from .body_inputs import PublishAsked
from .effects import AnswerBody
from .reports import living_body
from .state import StepBuilder

GONE: Final = "The run does not wait for this call any more: it can publish nothing."
OF_A_TASK: Final = (
    "A background task cannot publish an artifact: return the bytes as its result (gr.File), or publish in a tool that "
    "does not run in the background."
)


def publish_asked(builder: StepBuilder, message: PublishAsked) -> None:
    """Publish an artifact of a body, or refuse it. The answer is the artifact, once it is durable."""
    call, artifact = living_body(builder, message.call_id, message.attempt), message.artifact
    if call is None:
        fault = OF_A_TASK if message.call_id in builder.tasks else GONE
        builder.do(AnswerBody(ask=message.ask, fault=fault, durable=False))
        return
    facts = replace(artifact, call_id=call.call_id, data=None)
    earlier = next((one for one in call.artifacts if replace(one, artifact_id="") == facts), None)
    if earlier is not None:
        builder.do(AnswerBody(ask=message.ask, value=earlier))
        return
    excess = no_room(builder, artifact)
    if excess is not None:
        builder.do(AnswerBody(ask=message.ask, fault=excess, durable=False))
        return
    name = artifact_id(builder.info.run_id, builder.row.last_sequence + len(builder.events) + 1)
    new = builder.publish(replace(artifact, artifact_id=name, call_id=call.call_id))
    builder.counters.artifacts += 1
    builder.counters.artifact_bytes += new.size
    builder.put(call, artifacts=(*call.artifacts, new))
    announce(builder, new)
    builder.do(AnswerBody(ask=message.ask, value=new))


def no_room(builder: StepBuilder, artifact: Artifact) -> str | None:
    """Return why a run can publish no artifact more, or none of this size; None if it can."""
    counters = builder.counters
    if counters.artifacts >= MAX_ARTIFACTS:
        return (
            f"artifact {artifact.name!r}: this run has published {MAX_ARTIFACTS}, the most that a run may: put several "
            "files into one archive"
        )
    total = counters.artifact_bytes + artifact.size
    if total > MAX_TOTAL:
        return (
            f"artifact {artifact.name!r}: {artifact.size:,} bytes, and {total:,} with those that this run has "
            f"published; a run has at most {MAX_TOTAL:,} bytes of artifacts: publish less of it"
        )
    return None


def announce(builder: StepBuilder, artifact: Artifact) -> None:
    """Emit the event of an artifact. Its sequence is part of the artifact's id."""
    is_preview = artifact.kind == "preview"
    form = PreviewReady if is_preview else ArtifactReady
    payload = form(**{name: getattr(artifact, name) for name in form.__struct_fields__})
    builder.emit("run.preview.ready" if is_preview else "run.artifact.ready", payload)
