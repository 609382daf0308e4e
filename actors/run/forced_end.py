"""End a run that was given up: its owner crashes, and its ordinary end cannot be written.

Theory of operation. Such a run is left untouched, for a later `resume`, until its end is needed: by a cancel, or by
another run that waits for the thread. Then it is ended by a commit that carries nothing but the end
(`engine/forced_end.py`). The commit may lose a race against another owner; then the rows are read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

import msgspec
import trio

from ..contract.claims import Claim
from ..contract.commits import Receipt
from ..contract.decisions import Command, InboxItem
from ..contract.envelope import EventEncoder, decode_event
from ..contract.lifecycle import RunStatus
from ..contract.recording import RecordEntry
from ..contract.rows import RunOutline
from ..engine.forced_end import forced_commit
from ..engine.recording import Entry, ForcedEndEntry, RecordGap
from ..errors import StoreDown, StoreError, UnknownRun
from ..processes import Taken
from ..services.services import Services, logger, retry_until_available
from ..services.stepping import in_steps

GAVE_UP: Final = "gave_up"
"""Degraded code of a run whose owner crashes and whose end cannot be written."""


async def end_if_given_up(services: Services, run_id: str, why: str, held_runs: Iterable[str], *, wanted: bool) -> bool:
    """End the run if `wanted`, if a cancel is unread, or if one of the held runs waits for its thread.

    Returns:
        True if the run is done or does not exist, or if another process has it.

    Raises:
        StoreError: the end was not written.
        StoreDown: the store has failed for good.
    """
    while True:
        outline = await retry_until_available(services.store.outline, run_id)
        if outline is None or outline.status is RunStatus.DONE:
            return True
        items = await _unread(services, outline)
        is_needed = wanted or items is None or any(item.command.kind == "cancel" for item in items)
        for name in held_runs:
            if is_needed:
                break
            other = await retry_until_available(services.store.outline, name)
            is_needed = other is not None and other.behind == run_id
        if not is_needed:
            return False
        claim = await retry_until_available(services.store.claim, run_id)
        if isinstance(claim, Taken):
            return True
        if claim is None:
            continue
        children = await _child_runs(services, run_id)
        if await _end_by_force(services, claim, outline, items or (), why):
            for child in sorted(filter(None, children)):
                command = Command(command_id=f"orphan:{child}", kind="cancel", reason="its parent run was given up")
                with suppress(UnknownRun):
                    await services.directory.post(child, command)
            logger.error("run %s was given up and is ended now: %s", run_id, services.redactor.text(why))
            return True


async def _child_runs(services: Services, run_id: str) -> set[str | None]:
    """Return the child runs that may live: of the calls; of the events if the rows are why the run is given up."""
    with suppress(StoreError):
        record = await services.store.load(run_id, calls="all")
        return {call.child_run for call in (() if record is None else record.calls) if not call.settled}
    children, after = set[str | None](), 0
    with suppress(StoreError):
        while frames := await services.store.events(run_id, after=after):
            for event in map(decode_event, frames):
                after = event.sequence
                if event.type == "run.child.started":
                    children.add(event.payload["childRunId"])
                elif event.type == "run.child.finished":
                    children.discard(event.payload["childRunId"])
    return children


async def _unread(services: Services, outline: RunOutline) -> Sequence[InboxItem] | None:
    """Return the accepted commands that have not acted; None if there are some and they are unreadable."""
    if outline.posted <= outline.consumed:
        return ()
    try:
        items = await retry_until_available(services.store.commands, outline.info.run_id)
    except StoreDown:
        raise
    except StoreError:
        return None
    return [item for item in items if item.position > outline.consumed]


async def _end_by_force(
    services: Services, claim: Claim, outline: RunOutline, items: Sequence[InboxItem], why: str
) -> bool:
    """Write the end. Returns False if the run changed meanwhile and has to be read again."""
    store, run_id = services.store, outline.info.run_id
    commit = forced_commit(outline, [item.command for item in items], why, services.clock.now())
    entry: Entry = ForcedEndEntry(why=why, items=tuple(items), posted=outline.posted, readable=outline.row is not None)
    commit = msgspec.structs.replace(commit, taken=(RecordEntry(commit.at, entry if services.record else RecordGap()),))
    encoder = EventEncoder(outline.info, services.redactor)
    frames = await in_steps(encoder.frame_steps(commit.expected_last, commit.at, commit.events))
    arrival, receipts = trio.Event(), list[Receipt]()

    def deliver(receipt: Receipt) -> None:
        receipts.append(receipt)
        arrival.set()

    store.submit(claim, commit, frames, deliver)
    with trio.CancelScope(shield=True):  # between submit and receipt; the store's patience bounds the wait
        await arrival.wait()
    receipt = receipts[0]
    if receipt.kind == "committed":
        if receipt.next_in_thread is not None:
            services.directory.registry.thread_freed(receipt.next_in_thread)
        return True
    if receipt.kind in ("inbox_ahead", "lease_lost"):
        return False
    raise receipt.error or StoreError(f"run {run_id}: its end could not be written ({receipt.kind})")
