"""A run as one line of a list, the same over HTTP and the WebSocket."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec

from greenroom.actors.contract.decisions import TicketReason
from greenroom.actors.contract.lifecycle import RunStatus, Stage, Termination
from greenroom.actors.contract.messages import Usage

Newest = Annotated[int, msgspec.Meta(ge=0, description="Of the newest event; 0 if there is none.")]


class TicketLine(msgspec.Struct, frozen=True, kw_only=True):
    """An open ticket in short. `reviewers`: who may decide; empty means everybody with the scope for it."""

    ticket_id: str
    call_id: str | None
    tool: str
    reason: TicketReason
    action: str
    message: str
    requested_at: datetime
    expires_at: datetime | None
    on_expiry: Literal["deny", "cancel_run", "set_result"]
    reviewers: tuple[str, ...]


class RunLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a list of runs; its texts hold no secrets.

    Attributes:
        title: one line that says what the run is about; its id if nothing better is known.
        pending: accepted commands that have not acted yet.
        held: it waits until another run has left its thread.
        degraded: why nobody works on it here (deps_missing, agent_unknown, gave_up), or null.
        waiting_since: since when its oldest open ticket is open; null while it does not wait.
        asked: the first open tickets, oldest first. asked_count: how many are open in all.
        termination: why it ended; null before that.
    """

    run: str
    thread: str
    agent: str
    by: str
    title: str
    stage: Stage
    status: RunStatus
    created_at: datetime
    ended_at: datetime | None
    step: int
    sequence: Newest
    usage: Usage
    pending: int
    held: bool
    degraded: str | None
    waiting_since: datetime | None
    asked: tuple[TicketLine, ...]
    asked_count: int
    termination: Termination | None


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """How many runs are not done, of those that the principal may see, by status."""

    created: int
    running: int
    waiting: int
