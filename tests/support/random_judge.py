"""Judges a random scene whose runs have ended: what every life keeps, of each run, and of parents and children."""

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import attrs
import msgspec
import trio

import greenroom as gr
from greenroom.actors.contract.commits import Commit
from greenroom.actors.contract.envelope import decode_event

from .promises import broken_history, broken_promises
from .random_scenes import GATED, SAFE
from .scenes import CHANGES

ENDS = ("run.completed", "run.failed", "run.cancelled")
DEGRADED = (
    *CHANGES,
    "is_enabled_failed",
    "plugin_error",
    "hook_failed",
    "denial_failed",
    "hook_ignored",
    "not_asked",
    "agent_unknown",
)
"""Reasons of run.degraded that the faults of a scene explain."""


@attrs.define(eq=False)
class Judge:
    """Says what is broken of a life whose runs have ended."""

    life: Any

    async def broken(self) -> AsyncIterator[str]:
        """One sentence per broken promise."""
        life = self.life
        records: dict[str, Any] = {}
        for run in await life._runs():
            records[run.id] = await life.runtime.store.load(run.id, calls="all")
            async for sentence in self._broken_run(run, records[run.id]):
                yield f"{run.id}: {sentence}"
        for sentence in (
            *self._broken_families(records),
            *self._broken_bodies(records),
            *self._broken_deaths(records),
        ):
            yield sentence
        for sentence in life.world.lost:
            yield sentence
        for request in (request for model in life.models for request in model.requests):
            for sentence in broken_history(request.messages, f"request of {request.run_id} in step {request.step}"):
                yield sentence
        for line in (await life.runtime.runs(limit=1000)).runs:
            if line.row.status is not records[line.info.run_id].row.status or line.asked_count:
                yield f"{line.info.run_id}: the list has {line.row.status}, {line.asked}"

    async def _broken_run(self, run: gr.Run[Any], record: Any) -> AsyncIterator[str]:
        """What is broken of one run: rows, log, thread, commands, replay, follower, view."""
        life = self.life
        frames = tuple(await life.runtime.store.events(run.id, limit=100_000))
        events = [decode_event(frame) for frame in frames]
        thread = await life.runtime.store.messages(record.info.thread_id)
        view, report = await run.view(), await life.runtime.replay(run.id)
        found = [
            *broken_promises(frames, record, list(self._commits(run.id))),
            *self._broken_events(events),
            *broken_history(thread, f"thread {run.thread_id}"),
            *self._broken_commands(run.id, events, [message.content for message in view.messages]),
        ]
        for sentence in found:
            yield sentence
        changed = any(event.type == "run.degraded" and event.payload["reason"] in CHANGES for event in events)
        if not (report.equal or changed or life.changed):
            yield f"its replay differs: {report.difference or report.unreplayable}"
        if life.seen.get(run.id, []) != events:
            yield f"its follower got {len(life.seen.get(run.id, []))} of {len(events)} events"
        if view.status is not record.row.status or view.tickets:
            yield f"its view has {view.status}, {view.tickets}"

    def _commits(self, run_id: str) -> Iterator[Commit]:
        """The commits of a run that became durable."""
        for written in self.life.submitted:
            commit = written.commit
            if commit.run_id == run_id and written.durable:
                yield commit

    def _broken_events(self, events: Sequence[gr.Event]) -> Iterator[str]:
        ends = [event.type for event in events if event.type in ENDS]
        if len(ends) != 1 or events[-1].type not in ENDS:
            yield f"it has the terminal events {ends}"
        for event in events:
            if event.payload.get("code") == "internal_error":
                yield f"{event.type} with internal_error: {dict(event.payload)}"
            if event.type == "run.degraded" and event.payload["reason"] not in DEGRADED:
                yield f"run.degraded: {dict(event.payload)}"
        finished = Counter(event.payload["callId"] for event in events if event.type == "run.child.finished")
        for call_id, times in finished.items():
            if times > 1:
                yield f"the child run of {call_id} finished {times} times"

    def _broken_commands(self, run_id: str, events: Sequence[gr.Event], said: Sequence[str]) -> Iterator[str]:
        closed = [e.payload for e in events if e.type == "run.approval.resolved"]
        resolved = Counter(payload.get("by") for payload in closed if payload["resolution"] != "withdrawn")
        refused = Counter(e.payload["commandId"] for e in events if e.type == "run.decision.refused")
        named = Counter(e.payload.get("by") for e in events if e.type in ("run.cancel.requested", "run.cancelled"))
        for posted in self.life.posted:
            if posted.run_id != run_id:
                continue
            match posted.kind:
                case "decide":
                    if resolved[posted.by] > 1 or resolved[posted.by] + refused[posted.command_id] < 1:
                        acted = resolved[posted.by], refused[posted.command_id]
                        yield f"the decision {posted.command_id} acted and was refused {acted} times"
                case "send":
                    if said.count(posted.text) != 1:
                        yield f"the text {posted.text!r} is in the thread {said.count(posted.text)} times"
                case "cancel":
                    if not named[posted.by] and not refused[posted.command_id]:
                        yield f"nothing became of the cancel {posted.command_id}"
                case _:
                    pass

    def _broken_families(self, records: dict[str, Any]) -> Iterator[str]:
        for run_id, record in records.items():
            parent = record.info.parent_run
            if parent is None or parent in self.life.pruned:
                continue
            if parent not in records:
                yield f"{run_id}: its parent {parent} is not there"
                continue
            call = next((row for row in records[parent].calls if row.call_id == record.info.parent_call), None)
            if call is None or call.child_run != run_id:
                yield f"{run_id}: no call of its parent has started it"
            seen = [e for e in self.life.seen.get(parent, []) if e.type == "run.child.finished"]
            theirs = [e.payload for e in seen if e.payload["childRunId"] == run_id]
            if theirs and theirs[0]["stage"] != record.row.stage.value:
                yield f"{run_id} is {record.row.stage}, its parent has seen {theirs[0]['stage']}"
            if theirs and dict(theirs[0]["usage"]) != msgspec.to_builtins(record.row.usage):
                yield f"{run_id} has used {record.row.usage}, its parent has added {theirs[0]['usage']}"
            ended, theirs_ended = self._end_of(run_id), self._end_of(parent)
            if (
                ended is None
                or theirs_ended is None
                or record.info.parent_call in theirs_ended.payload.get("stubborn", ())
            ):
                continue
            # the parent's log says that the child has ended; else times say so, unless the clock was set back between
            if not theirs and not self.life.set_back and ended.timestamp > theirs_ended.timestamp:
                yield f"{run_id} ended after its parent: {ended.timestamp} > {theirs_ended.timestamp}"

    def _end_of(self, run_id: str) -> gr.Event | None:
        seen = self.life.seen.get(run_id)
        return seen[-1] if seen and seen[-1].type in ENDS else None

    def _broken_deaths(self, records: dict[str, Any]) -> Iterator[str]:
        """What a death of a process has cut off is asked about, or its outcome is named as unknown."""
        for key in sorted(self.life.world.cut):
            run_id, _, call_id = key.partition("/")
            call = (
                next((row for row in records[run_id].calls if row.call_id == call_id), None)
                if run_id in records
                else None
            )
            if call is None or call.tool in SAFE:
                continue
            named = False
            for event in self.life.seen.get(run_id, []):
                about = event.payload.get("callId") == call_id
                unknown = "outcome_unknown" in (event.payload.get("reason"), event.payload.get("code"))
                named |= (about and unknown) or call_id in event.payload.get("outcomeUnknown", ())
            if not named:
                yield f"{call.tool} of {key} was cut off by a death, and no event names that"

    def _broken_bodies(self, records: dict[str, Any]) -> Iterator[str]:
        tools = {f"{run_id}/{call.call_id}": call.tool for run_id, record in records.items() for call in record.calls}
        consents: Counter[str] = Counter()
        for run_id, events in self.life.seen.items():
            for event in events:
                if event.type == "run.approval.resolved" and event.payload["resolution"] == "approved":
                    consents[f"{run_id}/{event.payload['callId']}"] += 1
        for key, times in Counter(self.life.world.bodies).items():
            tool = tools.get(key, "look")  # of a run that was deleted
            allowed = consents[key] + (tool not in GATED)
            if tool not in SAFE and times > allowed:
                yield f"{tool} of {key} ran {times} times, with consent for {allowed}"

    async def broken_rest(self) -> AsyncIterator[str]:
        """What is broken of runs at rest, and stays so for a while: woken parents look at their child runs first."""
        for _ in range(3):
            if not [sentence async for sentence in self._broken_rest()]:
                return
            await trio.sleep(5)
        async for sentence in self._broken_rest():
            yield sentence

    async def _broken_rest(self) -> AsyncIterator[str]:
        async for sentence in self._broken_mirrors():
            yield sentence
        async for sentence in self._broken_lists():
            yield sentence

    async def _broken_lists(self) -> AsyncIterator[str]:
        """Lists, views, records and outcomes name the same open tickets."""
        life = self.life
        for line in (await life.runtime.runs(limit=1000)).runs:
            if line.row.status is not gr.RunStatus.WAITING:
                continue
            run = await life.runtime.get(line.info.run_id)
            view, record = await run.view(), await life.runtime.store.load(run.id, calls="all")
            shown, there = {ticket.ticket_id for ticket in view.tickets}, {t.ticket_id for t in _open_of(record)}
            if not (shown == there and len(shown) == line.asked_count):
                yield f"{run.id}: its view has {shown}, its rows {there}, the list {line.asked_count}"

    async def _broken_mirrors(self) -> AsyncIterator[str]:
        life = self.life
        for run in await life._runs(done=False):
            record = await life.runtime.store.load(run.id, calls="all")
            for call in record.calls:
                if call.child_run is None or call.settled or not call.child_started:
                    continue
                child = await life.runtime.store.load(call.child_run, calls="all")
                mirrors = [m for m in record.mirrors if m.ticket.call_id == call.call_id]
                shown = {m.ticket.child_ticket_id for m in mirrors if m.decision is None}
                there = set() if child is None else {t.ticket_id for t in _open_of(child)}
                if shown != there:
                    yield f"{run.id}: the call {call.call_id} mirrors {shown} of {there}"


def _open_of(record: Any) -> list[Any]:
    tickets = [call.ticket for call in record.calls if call.ticket is not None and not call.settled]
    return [t for t in (*tickets, *record.open_mirrors, *record.row.run_tickets) if t.status == "open"]
