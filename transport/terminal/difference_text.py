"""The difference of a proposal as rows, for the person who decides about its apply.

A body that makes a proposal publishes its difference as git prints it: an artifact of kind diff that has the id of the
proposal for a name, and `.diff`. The ticket of `apply_changes` names the proposal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import attrs

from greenroom.actors.contract.artifacts import Artifact
from greenroom.actors.contract.decisions import Ticket

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


def proposal_of(ticket: Ticket) -> str | None:
    """Return the proposal that a ticket is about; None if the ticket is about something else."""
    proposal = ticket.arguments.get("proposal") if ticket.tool == APPLY else None
    return proposal if isinstance(proposal, str) else None


def differences(artifacts: Iterable[Artifact]) -> dict[str, Artifact]:
    """Return the differences among artifacts: proposal -> artifact, in the order in which they were published."""
    named = [artifact for artifact in artifacts if artifact.kind == "diff" and artifact.name.endswith(SUFFIX)]
    return {artifact.name.removesuffix(SUFFIX): artifact for artifact in named}


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
