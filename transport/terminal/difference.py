"""The difference of a proposal, for the person who decides about its apply: found in a run, drawn as rows.

A body that makes a proposal publishes its difference as git prints it: an artifact of kind diff that has the id of the
proposal for a name, and `.diff`. The ticket of `apply_changes` names the proposal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Protocol

import attrs

from greenroom.actors.contract.artifacts import Artifact
from greenroom.actors.contract.decisions import Ticket
from greenroom.actors.errors import UnknownArtifact
from greenroom.actors.run.view import RunView

from . import text_format
from .screen import Style

APPLY: Final = "apply_changes"
"""The tool that brings a proposal into the folder of the user."""

SUFFIX: Final = ".diff"
"""Ends the name of a difference; the id of the proposal is before it."""


@attrs.frozen(kw_only=True)
class ProposedDifference:
    """What a proposal changes.

    Attributes:
        proposal: The id of the proposal.
        text: The difference as git prints it.
    """

    proposal: str
    text: str


class ArtifactAccess(Protocol):
    """The runs of a place, as far as differences need them; a `RunAccess` is one."""

    async def view(self, run_id: str) -> RunView:
        """Return a snapshot of a run."""

    async def artifact(self, run_id: str, artifact_id: str) -> bytes:
        """Return the bytes of an artifact."""


def proposal_of(ticket: Ticket) -> str | None:
    """Return the proposal that a ticket is about; None if the ticket is about something else."""
    proposal = ticket.arguments.get("proposal") if ticket.tool == APPLY else None
    return proposal if isinstance(proposal, str) else None


def differences(artifacts: Iterable[Artifact]) -> dict[str, Artifact]:
    """Return the differences among artifacts: proposal -> artifact, in the order in which they were published."""
    named = [artifact for artifact in artifacts if artifact.kind == "diff" and artifact.name.endswith(SUFFIX)]
    return {artifact.name.removesuffix(SUFFIX): artifact for artifact in named}


async def difference_of(access: ArtifactAccess, ticket: Ticket) -> ProposedDifference | None:
    """Return the difference that a ticket is about; None if it is about none, or if none is published."""
    proposal = proposal_of(ticket)
    if proposal is None:
        return None
    run_id = ticket.child_run_id or ticket.run_id
    artifact = differences((await access.view(run_id)).artifacts).get(proposal)
    if artifact is None:
        return None
    try:
        data = await access.artifact(run_id, artifact.artifact_id)
    except UnknownArtifact:  # pruned meanwhile
        return None
    return ProposedDifference(proposal=proposal, text=data.decode(errors="replace"))


def rows(text: str) -> Iterator[tuple[str, Style]]:
    """Yield the lines of a difference with their styles; control characters are spelled out."""
    in_hunk = False
    for line in text.removesuffix("\n").split("\n"):
        shown = f"  {text_format.clean(line)}"
        if line.startswith("diff --git "):
            in_hunk = False
            yield shown, "strong"
        elif line.startswith("@@"):
            in_hunk = True
            yield shown, "dim"
        elif in_hunk and line.startswith(("+", "-")):
            yield shown, "added" if line.startswith("+") else "removed"
        else:
            yield shown, "" if in_hunk else "dim"
