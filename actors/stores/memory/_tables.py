"""The rows of the memory store. Every change is one synchronous stretch: checked first, then written, or not at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count, islice

from ...abc import Pruned
from ...contract.claims import Claim
from ...contract.commits import Commit, Created, NewRun, Receipt
from ...contract.decisions import Command, InboxItem
from ...contract.lifecycle import TERMINAL
from ...contract.messages import Message
from ...contract.recording import RecordDelta
from ...contract.rows import Judge, ThreadInfo
from ...contract.run_lists import RunCounts
from ...errors import UnknownRun
from ..common import _commit_rules
from ..common._commit_rules import PlaceFacts, RunFacts, admit, lease_lost, place
from ..common._encoding import unencoded_birth_fault, unencoded_fault
from ..common._requests import PostResult, PruneSlice
from ..common._timestamps import milliseconds
from ._rows import RunTables, ThreadRecord
from ._values import ValueTable
from ._work import WorkTables


class MemoryTables(WorkTables):
    """All threads and runs."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: dict[str, ThreadRecord] = {}
        self.pruned: dict[str, str] = {}
        self.values = ValueTable()
        self._numbers = 0
        self._tickets = count(1)

    def counts(self) -> RunCounts:
        """Return how many runs are not done."""
        by_status = Counter(run.row.status.value for run in self.open.values())
        return RunCounts(created=by_status["created"], running=by_status["running"], waiting=by_status["waiting"])

    def create(self, new: NewRun, frame: bytes, owner: str | None = "") -> Created:
        """Create a run, or return the one that has the id. Without an owner (None), no process claims the new run.

        Raises:
            ThreadBusy: the thread has an active run and new.on_busy is "refuse".
            InvalidCommit: the run cannot be written.
        """
        run_id, thread_id = new.info.run_id, new.info.thread_id
        thread = self.threads.get(thread_id) or ThreadRecord(new.info.by, new.info.created_at)
        behind = thread.active or next(iter(thread.held), None)
        refusal = place(self._place_facts(new, thread, behind), new)
        if refusal is not None:
            return refusal
        copied = self._copied(new, thread)
        copied_ids = {message.id for message in copied}
        messages = [*copied, *(message for message in new.messages if message.id not in copied_ids)]
        fault = unencoded_birth_fault(new, frame) or _commit_rules.repeated(thread_id, thread.repeated(messages))
        if fault is not None:
            raise fault
        self.threads[thread_id] = thread
        self._numbers += 1
        run = self.queued(self._numbers, new, thread, frame)
        thread.created += 1
        if behind is not None:
            thread.held[run_id] = None
        else:
            thread.active = run_id
        thread.append(messages)
        if new.parts:
            source = None if new.thread_parent is None else self.threads.get(new.thread_parent[0])
            thread.keep(new.parts, {} if source is None else source.parts)
        run.write_state(new.state, new.row.step)
        if new.taken:
            run.record.append(RecordDelta(1, new.taken))
        claim = self.first_claim(run, owner)
        return Created(claim=claim, held=behind is not None, behind=behind, unclaimed=claim is None)

    def _place_facts(self, new: NewRun, thread: ThreadRecord, active: str | None) -> PlaceFacts:
        run_id = new.info.run_id
        pruned = self.pruned.get(run_id)
        same = self.runs.get(run_id)
        if same is None and pruned is None and new.dedupe is not None:
            same = self.runs.get(self.deduped.get(new.dedupe, ""))
        if same is None:
            return PlaceFacts(pruned=pruned, runs=thread.created, active=active)
        return PlaceFacts(same.info, same.held)

    def _copied(self, new: NewRun, thread: ThreadRecord) -> Sequence[Message]:
        """Return the history with which a fork's new thread begins."""
        if new.thread_parent is None or thread.messages:
            return ()
        parent, position = new.thread_parent
        source = self.threads.get(parent)
        return () if source is None else source.messages[:position]

    def commit(self, claim: Claim, commit: Commit, frames: Sequence[bytes]) -> Receipt:
        """Write a valid commit; returns its receipt."""
        run = self.runs.get(commit.run_id)
        if run is None or run.broken == claim.token:
            return lease_lost(commit, claim)
        facts = RunFacts(run.token, len(run.frames), len(run.inbox), run.consumed, run.ended is not None)
        fault = _commit_rules.fault(commit, frames) or unencoded_fault(commit, frames)
        if fault is None and commit.messages:
            fault = _commit_rules.repeated(run.info.thread_id, run.thread.repeated(commit.messages))
        refusal = admit(facts, claim, commit, fault)
        if refusal is not None:
            if refusal.kind == "failed":
                run.broken = claim.token
            return refusal
        run.consumed = max(run.consumed, commit.consumed, commit.row.inbox)
        self._write(run, commit, frames)
        if commit.row.stage not in TERMINAL or not self._end(run, commit):
            return Receipt(kind="committed", last=len(run.frames))
        freed = self.free_thread(run.thread)
        return Receipt(
            kind="committed", last=len(run.frames), next_in_thread=None if freed is None else freed.info.run_id
        )

    def _write(self, run: RunTables, commit: Commit, frames: Sequence[bytes]) -> None:
        run.frames += frames
        run.row = commit.row
        for call in commit.calls:
            run.calls[call.call_id] = call
            run.tools.add(call.tool)
        for ticket in commit.tickets:
            if ticket.ticket_id not in run.tickets and ticket.call_id is not None:
                run.newest_ticket[ticket.call_id] = ticket.ticket_id
            run.tickets[ticket.ticket_id] = ticket
            run.ticket_numbers.setdefault(ticket.ticket_id, next(self._tickets))
            run.note_open(ticket)
        if commit.messages:
            run.thread.append(commit.messages)
        if commit.parts:
            run.thread.keep(commit.parts)
        if commit.state:
            run.write_state(commit.state, commit.written_at)
        if commit.taken:
            run.record.append(RecordDelta(commit.row.last_sequence, commit.taken))
        run.note_wait(commit.at)

    def _end(self, run: RunTables, commit: Commit) -> bool:
        """Handle the end of a run; returns whether `free_thread` has something to do, now."""
        run.ended = milliseconds(commit.at)
        self.done(run)
        thread = run.thread
        thread.held.pop(run.info.run_id, None)
        if commit.row.pending_input:
            thread.late[run.number] = commit.row.pending_input
        if thread.active == run.info.run_id:
            thread.active = None
            if self.shared:
                self.unfreed.add(thread)
        return not self.shared and bool(thread.held or thread.late)

    def post(self, run_id: str, command: Command, judge: Judge) -> PostResult:
        """Judge a command and journal it if accepted.

        Raises:
            UnknownRun: no run has this id.
        """
        run = self.runs.get(run_id)
        if run is None:
            raise UnknownRun(run_id)
        while True:
            row, count = run.row, len(run.inbox)
            facts = run.facts(command)
            result = _commit_rules.judged(judge, facts, command)
            if run.row is row and len(run.inbox) == count:  # a judge that writes to the run is asked again
                break
        if result.status != "accepted":
            return PostResult(result)
        if command.parts:
            run.thread.keep(command.parts)
        command = _commit_rules.journaled(facts, command, result)
        run.inbox.append((command, result))
        position = len(run.inbox)
        run.ids[command.command_id] = position
        key = _commit_rules.target_key(facts, command)
        if key is not None:
            run.targets[key] = position
        return PostResult(result, InboxItem(position=position, command=command))

    def prune(self, before: int, limit: int) -> PruneSlice:
        """Delete up to `limit` runs that ended before `before` (milliseconds), and unused parts of their threads."""
        old = list(islice(self._old(before), limit))
        messages = 0
        for run in old:
            run_id = run.info.run_id
            del self.runs[run_id]
            self.pruned[run_id] = run.info.content
            messages += run.thread.remove(run)
        return PruneSlice(len(old), messages, more=len(old) == limit)

    def forecast(self, before: int) -> Pruned:
        """Return what a prune would delete."""
        old = list(self._old(before))
        counts = Counter(run.info.thread_id for run in old)
        empty = [self.threads[name] for name, count in counts.items() if count == len(self.threads[name].runs)]
        return Pruned(runs=len(old), messages=sum(len(thread.messages) for thread in empty))

    def _old(self, before: int) -> Iterator[RunTables]:
        return (run for run in self.runs.values() if run.ended is not None and run.ended < before)

    def thread(self, thread_id: str) -> ThreadInfo | None:
        """Return the facts of a thread."""
        thread = self.threads.get(thread_id)
        if thread is None:
            return None
        return ThreadInfo(
            thread_id=thread_id,
            owner=thread.owner,
            created_at=thread.created_at,
            runs=thread.created,
            members=(*thread.pruned_members.values(), *(run.info for run in thread.runs.values())),
        )
