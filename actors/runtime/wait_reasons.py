"""The reason why `wait()` does not return yet: another run, deps, a slot, people or tasks.

Theory of operation. Reasons have an order, and the first that applies is returned: another run works on the thread;
agent, place or deps are missing here; the deps provider has not answered; no process has taken the run from its queue;
no slot is free; people or background tasks must act. Thread, queue, people and tasks are in the store, the others are
known to this runtime only, so a reader without a runtime sees fewer reasons (`stored_wait`).
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from ..contract.envelope import timestamp
from ..contract.lifecycle import RunStatus, Stage
from ..contract.rows import QueuePlace, RunOutline, RunRecord
from ..contract.waiting_for import WaitingFor, WaitKind
from ..run.forced_end import GAVE_UP
from .run_registry import RunRegistry

_BUSY: Final = "another run works on its thread"
_LACKS: Final[dict[str, WaitKind]] = {
    "agent_unknown": "agent",
    "state_mismatch": "agent",
    "target_offline": "place",
    "deps_missing": "deps",
    GAVE_UP: "owner",
}


def waiting_for(
    registry: RunRegistry,
    record: RunRecord,
    outline: RunOutline | None,
    lack: tuple[str, str] | None,
    now: datetime,
) -> WaitingFor | None:
    """Return the reason why a run waits; None if the run works or is done.

    Args:
        registry: the registry of the runtime that looks at the run.
        record: the run's rows.
        outline: for a run without an owner here, or that has not begun to work: whether its thread holds it, and its
            place in a queue; None for others.
        lack: The requirement that is missing here, or in all processes that share the store.
        now: the time.
    """
    row, run_id = record.row, record.info.run_id
    if row.status is RunStatus.DONE:
        return None
    if outline is not None and outline.held:
        return _behind(registry, outline.behind)
    if lack is not None:
        return WaitingFor(kind=_LACKS.get(lack[0], "owner"), detail=lack[1])
    actor = registry.get(run_id)
    if actor is not None and actor.asking:
        return WaitingFor(kind="deps", detail="the provider of its deps has not answered yet")
    if actor is None and outline is not None and outline.queue is not None:
        return _in_queue(outline.queue, now)
    if registry.queued(run_id):
        return WaitingFor(kind="slot", detail=f"{registry.max_running} runs work already (max_running)")
    return _at_rest(record) if row.status is RunStatus.WAITING else None


def may_be_held(record: RunRecord) -> bool:
    """Return True for a run that has not begun to work: its thread may hold it, which its outline shows."""
    return record.row.stage in (Stage.CREATED, Stage.PLANNED)


def stored_wait(record: RunRecord, outline: RunOutline | None, now: datetime) -> WaitingFor | None:
    """Return the reason why a run waits, from the store alone: its thread, its queue, people or tasks."""
    if outline is not None and outline.held:
        return WaitingFor(kind="thread", detail=_BUSY, run_id=outline.behind)
    if outline is not None and outline.queue is not None:
        return _in_queue(outline.queue, now)
    return _at_rest(record) if record.row.status is RunStatus.WAITING else None


def _in_queue(place: QueuePlace, now: datetime) -> WaitingFor:
    waits = f"it waits in the queue {place.name!r}"
    if place.ready_at > now:
        waits += f" until {timestamp(place.ready_at)}"
    if place.paused:
        return WaitingFor(kind="queue", detail=f"{waits}, which is paused")
    if place.ready_at > now:
        return WaitingFor(kind="queue", detail=waits)
    many = "" if place.max_running is None else f"; at most {place.max_running} of its runs work at once"
    return WaitingFor(kind="queue", detail=f"{waits} for a process that has room{many}")


def _behind(registry: RunRegistry, front: str | None) -> WaitingFor:
    reason = None if front is None else registry.degraded(front)
    more = "" if reason is None else f", and no process here works on that run ({reason[0]})"
    return WaitingFor(kind="thread", detail=f"{_BUSY}{more}", run_id=front)


def _at_rest(record: RunRecord) -> WaitingFor | None:
    tickets = [call.ticket for call in record.calls if call.ticket is not None and call.ticket.status == "open"]
    tickets += record.open_mirrors
    tickets += [run_ticket for run_ticket in record.row.run_tickets if run_ticket.status == "open"]
    if tickets:
        names = sorted({ticket.tool or ticket.reason for ticket in tickets})
        many = "a ticket wants" if len(tickets) == 1 else f"{len(tickets)} tickets want"
        return WaitingFor(kind="people", detail=f"{many} a decision: {', '.join(names)}")
    if record.row.tasks:
        return WaitingFor(kind="tasks", detail=f"{len(record.row.tasks)} background tasks live")
    return None
