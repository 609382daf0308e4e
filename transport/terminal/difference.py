"""The difference of a proposal, found in a run, for the person who decides about its apply."""

from __future__ import annotations

from typing import Protocol

from greenroom.actors.contract.decisions import Ticket
from greenroom.actors.errors import UnknownArtifact
from greenroom.actors.run.view import RunView

from .difference_text import ProposedDifference, differences, proposal_of


class ArtifactAccess(Protocol):
    """The runs of a place, as far as differences need them; a `RunAccess` is one."""

    async def view(self, run_id: str) -> RunView:
        """Return a snapshot of a run."""

    async def artifact(self, run_id: str, artifact_id: str) -> bytes:
        """Return the bytes of an artifact."""


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
