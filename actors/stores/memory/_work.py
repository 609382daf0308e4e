"""Which runs of the memory store need an owner, and which process is the owner. Each change is one synchronous stretch.

A store that is not shared has one owner, with the name "": every run that was claimed since the opening is its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta

import attrs

from ...contract.claims import Claim
from ...contract.commits import NewRun
from ...contract.lifecycle import WAITING
from ...contract.rows import QueuePlace, RunInfo
from ...errors import UnknownRun
from ...processes import Ability, QueueInfo, ReadyRun, Taken
from ..common._ranks import back_off, dead_reason
from ..common._requests import QueueRequest
from ._rows import RunTables, ThreadRecord

Served = Callable[[RunInfo], bool]
"""(RunInfo) -> whether a live process has its agent and its place."""


@attrs.define
class QueueLimits:
    """The limits of a queue; see `QueueInfo`."""

    max_running: int | None = None
    paused: bool = False


class WorkTables:
    """Runs, queues and owners.

    Attributes:
        shared: several handles are on these tables.
        runs: all runs, by id, oldest first.
        open: those that are not done.
        loose: those of `open` without an owner.
        deduped: `NewRun.dedupe` -> the open run that has it.
        limits: queue -> its limits, since its first run.
        unfreed: threads whose active run has ended, until `free_thread`; only if shared.
    """

    def __init__(self) -> None:
        self.shared = False
        self.runs: dict[str, RunTables] = {}
        self.open: dict[str, RunTables] = {}
        self.loose: dict[str, RunTables] = {}
        self.deduped: dict[str, str] = {}
        self.limits: dict[str, QueueLimits] = {}
        self.unfreed: set[ThreadRecord] = set()
        self._served = ""  # the queue of the run that was claimed last

    def queued(self, number: int, new: NewRun, thread: ThreadRecord, frame: bytes) -> RunTables:
        """Return the tables of a new run of a queue; it is not `loose` yet."""
        info = new.info
        queue, ready_at = new.queue or info.agent, new.ready_at or info.created_at
        if queue not in self.limits:
            self.limits[queue] = QueueLimits()
        run = RunTables(number, info, new.row, thread, [frame], queue, ready_at, new.priority, new.dedupe)
        self.runs[info.run_id] = self.open[info.run_id] = thread.runs[info.run_id] = run
        if new.dedupe is not None:
            self.deduped[new.dedupe] = info.run_id
        return run

    def first_claim(self, run: RunTables, owner: str | None) -> Claim | None:
        """Return the claim of the process that has created a run; None if it wants none: then any process may."""
        if owner is None:
            self.loose[run.info.run_id] = run
            return None
        run.owner = owner
        return Claim(run_id=run.info.run_id, token=run.token)

    def done(self, run: RunTables) -> None:
        """Take a run that has ended out of the tables of open runs; it has no owner."""
        run_id = run.info.run_id
        del self.open[run_id]
        self.loose.pop(run_id, None)
        run.owner = None
        if run.dedupe is not None:
            del self.deduped[run.dedupe]

    # --- claims ------------------------------------------------------------------------------------------------------

    def void_claims(self) -> None:
        """Void every earlier claim."""
        for run in self.open.values():
            self._leave(run)

    def claim(self, run_id: str, owner: str = "") -> Claim | Taken | None:
        """Return a new claim, with which the run may be written. None if no run has this id or it is done."""
        run = self.open.get(run_id)
        if run is None:
            return None
        if run.owner is not None and run.owner != owner:
            return Taken(process=run.owner)
        return self.take(run, owner)

    def take(self, run: RunTables, owner: str) -> Claim:
        """Make a process the owner of a run, with a new token."""
        run.owner = owner
        run.token += 1
        self.loose.pop(run.info.run_id, None)
        return Claim(run_id=run.info.run_id, token=run.token)

    def _leave(self, run: RunTables) -> None:
        """Void the claim of a run, which has no owner from now on."""
        run.token += 1
        run.owner = None
        self.loose[run.info.run_id] = run

    def holds(self, claim: Claim) -> RunTables | None:
        """Return the run of a claim that is good; None if it is void."""
        run = self.open.get(claim.run_id)
        return run if run is not None and run.owner is not None and run.token == claim.token else None

    def release(self, claims: Iterable[Claim]) -> tuple[Sequence[RunTables], Sequence[str]]:
        """Take the owner from runs at rest; returns them, and the ids of those that have unread commands."""
        freed, refused = list[RunTables](), list[str]()
        for claim in claims:
            run = self.holds(claim)
            if run is not None and run.pending:
                refused.append(claim.run_id)
            elif run is not None:
                self._leave(run)
                freed.append(run)
        return freed, refused

    def give_back(self, claims: Iterable[Claim], ready_at: datetime | None = None) -> Sequence[RunTables]:
        """Take the owner from runs, which are ready at a moment (None: now); returns those whose claims were good."""
        freed = [run for run in map(self.holds, claims) if run is not None]
        for run in freed:
            self._leave(run)
            if ready_at is not None:
                self._delay(run, ready_at)
        return freed

    def bereave(self, owner: str, limit: int, now: datetime, draw: Callable[[], float]) -> Sequence[RunTables]:
        """Free some runs of a process that has died; returns them. `draw` returns the jitter of a pause.

        A run on which the process worked has crashed once more, and is a dead letter after the last of its tries.
        """
        freed = list[RunTables]()
        for run in self.owned(owner):
            if len(freed) == limit:
                break
            freed.append(run)
        for run in freed:
            idle = run.held or (run.row.status is WAITING and not run.row.restless)
            self._leave(run)
            if not idle:
                self._crashed(run, now, draw())
        return freed

    def _crashed(self, run: RunTables, now: datetime, jitter: float) -> None:
        run.crashes = 1 if run.row.step > run.crashed_at else run.crashes + 1
        run.crashed_at = run.row.step
        run.dead = dead_reason(run.crashes)
        if run.dead is None:
            self._delay(run, now + timedelta(seconds=back_off(run.crashes, jitter)))

    def _delay(self, run: RunTables, until: datetime) -> None:
        run.ready_at = max(run.ready_at, until)

    def owned(self, owner: str) -> Iterator[RunTables]:
        """Yield the open runs of a process."""
        return (run for run in self.open.values() if run.owner == owner)

    def revive(self, run_id: str, now: datetime) -> RunTables | None:
        """Let a dead letter be claimed again; returns it, or None if the run is not a dead letter.

        Raises:
            UnknownRun: no run has this id.
        """
        run = self.runs.get(run_id)
        if run is None:
            raise UnknownRun(run_id)
        if run.dead is None or run.ended is not None:
            return None
        run.dead, run.crashes = None, 0
        run.ready_at = now
        return run

    # --- what is ready -----------------------------------------------------------------------------------------------

    def ready(self, run: RunTables, now: datetime) -> bool:
        """Return whether a run without an owner needs one now."""
        # a run that was not delayed is ready, also while the clock shows less than when the run was created
        if run.at_rest or (run.ready_at > now and run.ready_at > run.info.created_at):
            return False
        stopped = run.dead is not None or (self.shared and run.held)
        return not stopped or run.cancelled

    def claim_ready(
        self, room: int, ability: Ability, now: datetime, owner: str = "", level: int = 0
    ) -> Sequence[ReadyRun]:
        """Claim up to `room` ready runs: the queues take turns, the lowest rank of each is first."""
        queues = dict[str, list[RunTables]]()
        for run in self.loose.values():
            if run.level <= level and _able(ability, run) and self.ready(run, now):
                queues.setdefault(run.queue, []).append(run)
        for name, runs in queues.items():
            runs.sort(key=lambda run: (run.rank, run.number))
            del runs[self._places(name) :]
        claimed = list[ReadyRun]()
        while queues and len(claimed) < room:
            name = self._served = min(queues, key=lambda name: (name <= self._served, name))
            if not queues[name]:
                del queues[name]
                continue
            run = queues[name].pop(0)
            claimed.append(ReadyRun(claim=self.take(run, owner), held=run.held))
        return claimed

    def _places(self, queue: str) -> int:
        """Return how many more runs of a queue may work."""
        limits = self.limits[queue]
        if limits.paused:
            return 0
        return len(self.loose) if limits.max_running is None else max(0, limits.max_running - self._working(queue))

    def _working(self, queue: str) -> int:
        return sum(run.in_work for run in self.open.values() if run.queue == queue)

    # --- timers ------------------------------------------------------------------------------------------------------

    def timers(self) -> Iterator[tuple[datetime, str]]:
        """Yield the timers of the runs that `claim_due` may claim: when, and the run's id."""
        for name, run in (self.loose if self.shared else self.open).items():
            counts = run.row.status is WAITING or name in self.loose
            if counts and run.row.next_due is not None and run.dead is None:
                yield run.row.next_due, name

    def claim_due(
        self,
        now: datetime,
        ability: Ability,
        limit: int,
        owner: str = "",
        *,
        level: int = 0,
        served: Served | None = None,
    ) -> Sequence[ReadyRun]:
        """Claim runs without an owner whose timer fired, earliest first; `served`: asked about what `ability` lacks."""
        fired = (self.runs[name] for moment, name in sorted(self.timers()) if moment <= now)
        due = [run for run in fired if run.level <= level and _fires(run, now, ability, served)][:limit]
        return [ReadyRun(claim=self._present_claim(run, owner), held=run.held) for run in due]

    def _present_claim(self, run: RunTables, owner: str) -> Claim:
        """Return a claim of a run; in a store that is not shared, its claim of this opening if there is a good one."""
        if run.owner is None or run.broken == run.token:
            return self.take(run, owner)
        return Claim(run_id=run.info.run_id, token=run.token)

    # --- threads -----------------------------------------------------------------------------------------------------

    def free_thread(self, thread: ThreadRecord) -> RunTables | None:
        """Let the oldest held run of a thread work if no run works on it; returns that run. Can be repeated."""
        self.unfreed.discard(thread)
        if thread.active is not None:
            return None
        thread.active = next(iter(thread.held), None)
        freed = None if thread.active is None else self.runs[thread.active]
        if freed is not None:
            del thread.held[freed.info.run_id]
        if thread.late:
            thread.place(None if freed is None else freed.number)
        return freed

    # --- queues ------------------------------------------------------------------------------------------------------

    def limit(self, request: QueueRequest) -> None:
        """Set the limits of a queue."""
        self.limits[request.name] = QueueLimits(request.max_running, request.paused)

    def place(self, run: RunTables) -> QueuePlace | None:
        """Return where a run waits for a process that takes it; None if it is at rest or has an owner."""
        if run.at_rest or run.owner is not None:
            return None
        limits = self.limits[run.queue]
        return QueuePlace(name=run.queue, ready_at=run.ready_at, paused=limits.paused, max_running=limits.max_running)

    def queues(self, now: datetime) -> Sequence[QueueInfo]:
        """Return the queues, by name."""
        ready, later = dict[str, list[datetime]](), dict[str, list[datetime]]()
        for run in self.loose.values():
            if self.ready(run, now):
                ready.setdefault(run.queue, []).append(run.ready_at)
            elif self.ready(run, run.ready_at):
                later.setdefault(run.queue, []).append(run.ready_at)
        return [
            QueueInfo(
                name=name,
                max_running=limits.max_running,
                paused=limits.paused,
                ready=len(ready.get(name, ())),
                working=self._working(name),
                oldest=min(ready.get(name, ()), default=None),
                scheduled=len(later.get(name, ())),
                later=min(later.get(name, ()), default=None),
            )
            for name, limits in sorted(self.limits.items())
        ]


def _fires(run: RunTables, now: datetime, ability: Ability, served: Served | None) -> bool:
    """Return whether a timer that has fired lets a process claim a run without an owner.

    Without open tickets the timer is the deadline, which ends the run: no pause after a crash or a refusal counts.
    """
    not_paused = not run.open_tickets or run.ready_at <= now
    if _able(ability, run):
        return run.row.status is WAITING or run.held or not_paused
    return ability.unserved and served is not None and not served(run.info) and not_paused


def _able(ability: Ability, run: RunTables) -> bool:
    return ability.fits(run.info.agent, run.info.place, has_deps=run.info.has_deps)
