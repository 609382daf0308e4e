"""One process on a shared memory store, for one opening of its handle: beats, claims, hints, and what a turn repairs.

Theory of operation. All handles are on the same tables. A request changes the tables in one synchronous stretch, as in
a store that is not shared; this module adds which process asks, and gives hints to other processes. Hints may be lost.
In each turn the process does what its machine finds due (`common/_process.py`): it advances its beat, declares silent
processes dead, frees their runs, and looks for whatever a lost hint would have reported. A frozen process does none of
that until it is thawed.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any, Final, NoReturn, assert_never

import trio
from msgspec.structs import replace

from greenroom.supervision.nursery import open_collapsing_nursery

from ...contract.claims import Claim
from ...contract.commits import Created, Receipt
from ...contract.lifecycle import TERMINAL
from ...processes import Ability, ReadyRun, Taken
from ...store_events import ChangedElsewhere, ClaimsVoided, CommandPosted, LogsRenamed, Report, ThreadFreed, WorkFound
from ..common._inline_writer import InlineWriter
from ..common._process import LeaseAction, ProcessMachine
from ..common._requests import (
    ClaimRequest,
    CommitRequest,
    CreateRequest,
    DueRequest,
    GiveBackRequest,
    OwnerRequest,
    PostRequest,
    PostResult,
    QueueRequest,
    ReadyRequest,
    ReleaseRequest,
    Request,
    ReviveRequest,
)
from ..common._restarts import Restarts
from ..common._write_queue import WriteQueue
from ._hub import Hub
from ._rows import RunTables
from ._tables import MemoryTables

FREE_SLICE: Final = 500
"""Runs of a dead process that are freed in one stretch."""


class Peer:
    """A process on a shared ledger.

    Attributes:
        name: The name of the process; another one once it was declared dead.
        machine: The machine of its lease and its turns, in trio time.
        frozen: it neither sends nor receives anything.
    """

    def __init__(
        self,
        hub: Hub,
        ledger: MemoryTables,
        report: Report,
        queue: WriteQueue[Request],
        writer: InlineWriter[Request],
        *,
        name: str,
        level: int,
    ) -> None:
        self._hub, self._ledger, self._report, self._queue, self._writer = hub, ledger, report, queue, writer
        self._base, self._level = name, level
        self._time = hub.time()
        self.machine = ProcessMachine[str](hub.times, strays_every=1)
        self.machine.epoch = hub.epoch
        self._nursery: trio.Nursery | None = None
        self._poke, self._thawed, self._renewed = trio.Event(), trio.Event(), trio.Event()
        self._claims: dict[str, int] = {}  # run -> token, of the claims that were returned
        self._watched: Counter[str] = Counter()
        self._seen: dict[str, object] = {}
        self._agents: Mapping[str, str] = {}
        self._places: Mapping[str, str] = {}
        self._room: int | None = None
        self.frozen = False
        self._hints = Restarts(report)
        self._row = hub.join(self, name, level, self._time.now())
        self.machine.joined(trio.current_time())

    def __repr__(self) -> str:
        """Return the name, and whether the process is frozen."""
        return f"<Peer {self.name}{', frozen' if self.frozen else ''}>"

    @property
    def name(self) -> str:
        """The unique name of the process."""
        return self._row.name

    async def serve(self) -> NoReturn:
        """Serve requests and take turns until cancelled; then give back the runs, unless the process dies.

        Raises:
            StoreDown: the store has failed for good, and gives nothing back.
        """
        try:
            async with open_collapsing_nursery() as nursery:
                self._nursery = nursery
                Restarts(self._report).start(nursery, "the turns of this process", self._take_turns)
                Restarts(self._report).start(nursery, "the end of the lease", self._stop_in_time)
                try:
                    await self._queue.serve()
                finally:
                    self._nursery = None  # others may hint while this one closes, and a closed nursery raises
        finally:
            self._row.listener = None
            down = self._queue.down
            if not self.frozen and not self._row.dead and down is not None and down.__cause__ is None:
                self._leave()

    def _leave(self) -> None:
        del self._hub.processes[self.name]
        for run_id in self._watched:
            watchers = self._hub.watches.get(run_id, set())
            watchers.discard(self.name)
            if not watchers:
                self._hub.watches.pop(run_id, None)
        self._return(list(self._ledger.owned(self.name)))

    # --- freezing ----------------------------------------------------------------------------------------------------

    def freeze(self) -> None:
        """Stop: requests wait in the queue."""
        self.frozen = True
        self._thawed = trio.Event()
        self._writer.pause()

    def thaw(self) -> None:
        """Execute the requests that wait, late as they are; then take a turn."""
        self.frozen = False
        self._thawed.set()
        self._writer.resume()
        self._poke.set()

    async def thawed(self) -> None:
        """Wait while the process is frozen."""
        while self.frozen:
            await self._thawed.wait()

    # --- hints -------------------------------------------------------------------------------------------------------

    def hear(self, delay: float, hint: Callable[[], None]) -> None:
        """Call `hint` after some seconds. A frozen process hears nothing."""
        if self._nursery is not None and not self.frozen:
            self._hints.start(self._nursery, "a hint", partial(self._listen, delay, hint))

    async def _listen(self, delay: float, hint: Callable[[], None]) -> None:
        await trio.sleep(delay)
        if not self.frozen:
            self._guarded(hint)

    def _guarded(self, call: Callable[[], None]) -> None:
        """Call a hook; one that raises ends the store, as in `WriteQueue.settle`."""
        try:
            call()
        except Exception as error:  # noqa: BLE001 - a supervision boundary: the waiting requests must be settled
            self._writer.fail(error)

    def report_posted(self, run_id: str) -> None:
        """Report the unread commands of a run that this process owns."""
        run = self._ledger.open.get(run_id)
        if run is not None and run.owner == self.name:
            for item in run.unconsumed():
                self._report(CommandPosted(run_id, item))

    def report_freed(self, run_id: str) -> None:
        """Report that the thread of a run that this process owns is free."""
        run = self._ledger.open.get(run_id)
        if run is not None and run.owner == self.name and not run.held:
            self._report(ThreadFreed(run_id))  # before the note: a hook that raises is called again at the next turn
            self.machine.held.discard(run_id)

    def report_moved(self, run_id: str) -> None:
        """Report that a watched run has changed."""
        run = self._ledger.runs.get(run_id)
        if run is not None and run_id in self._watched and run.owner != self.name:
            self._report(ChangedElsewhere(run_id, len(run.frames)))
            self._seen[run_id] = _version(run)

    def _moved(self, run: RunTables, *, sender: str | None) -> None:
        run_id = run.info.run_id
        for name in self._hub.watches.get(run_id, ()):
            if name != sender:
                self._hub.send("moved", name, lambda peer: peer.report_moved(run_id))

    def _offer(self, runs: Iterable[RunTables], *, other_than: str = "") -> None:
        """Hint that there is work, to one process that could claim the first of these runs that any could claim."""
        now = self._time.now()
        for run in runs:
            name = self._hub.able(run, other_than) if run.owner is None and self._ledger.ready(run, now) else None
            if name is not None:
                self._hub.send("work", name, lambda peer: peer.report_work())
                return

    def report_work(self) -> None:
        """Report that there may be runs to claim."""
        self._report(WorkFound())

    def _thread_freed(self, run: RunTables | None) -> RunTables | None:
        """Give the hint that a run's thread is free; returns the run if this process owns it."""
        if run is None:
            return None
        if run.owner == self.name:
            self.machine.held.discard(run.info.run_id)
            return run
        if run.owner is None:
            self._offer([run])
        else:
            run_id = run.info.run_id
            self._hub.send("thread_freed", run.owner, lambda peer: peer.report_freed(run_id))
        self._moved(run, sender=None)
        return None

    @contextmanager
    def watch(self, run_id: str) -> Iterator[None]:
        """Report changes of a run by other processes for the time of the block."""
        self._watched[run_id] += 1
        watchers = self._hub.watches.setdefault(run_id, set())
        watchers.add(self.name)
        if self._watched[run_id] == 1:
            self.hear(0.0, lambda: self.report_moved(run_id))
        try:
            yield
        finally:
            self._watched[run_id] -= 1
            if not self._watched[run_id]:
                del self._watched[run_id]
                self._seen.pop(run_id, None)
                watchers.discard(self.name)
                if not watchers:
                    self._hub.watches.pop(run_id, None)

    def publish(self, agents: Mapping[str, str], places: Mapping[str, str], room: int | None) -> None:
        """Write agents, places and free room; a frozen process does it once it is thawed."""
        self._agents, self._places, self._room = dict(agents), dict(places), room
        if not self.frozen:
            self._write_row()

    def _write_row(self) -> None:
        self._row.agents, self._row.places, self._row.room = self._agents, self._places, self._room

    # --- requests ----------------------------------------------------------------------------------------------------

    def commit(self, request: CommitRequest) -> Receipt:
        """Write a commit; hint at what it changed."""
        commit = request.commit
        receipt = self._ledger.commit(request.claim, commit, request.frames)
        run = self._ledger.runs.get(commit.run_id)
        if receipt.kind != "committed" or run is None:
            if receipt.kind == "lease_lost" and self._claims.get(commit.run_id) == request.claim.token:
                self._forget(commit.run_id)
            return receipt
        run.level = max(run.level, self._level)
        self._moved(run, sender=self.name)
        freed = None
        if commit.row.stage in TERMINAL:
            self._forget(commit.run_id)
            freed = self._follow_up(run)
        return replace(receipt, posted=len(run.inbox), next_in_thread=None if freed is None else freed.info.run_id)

    def _follow_up(self, run: RunTables) -> RunTables | None:
        """Do the second half of a terminal commit, which a crash may leave out: every turn repairs that."""
        self._offer_limited(run.queue)
        if self._hub.policy is not None and self._hub.policy("follow_up", self.name) is None:
            return None
        return self._thread_freed(self._ledger.free_thread(run.thread))

    def _offer_limited(self, queue: str) -> None:
        """Hint at the runs of a limited queue, in which a place is free now."""
        if self._ledger.limits[queue].max_running is not None:
            self._offer(run for run in self._ledger.loose.values() if run.queue == queue)

    def post(self, request: PostRequest) -> PostResult:
        """Judge and journal a command; hint it to the run's owner."""
        posted = self._ledger.post(request.run_id, request.command, request.judge)
        if posted.item is None:
            return posted
        run_id, run = request.run_id, self._ledger.runs[request.run_id]
        run.level = max(run.level, self._level)
        self._moved(run, sender=self.name)
        if run.owner is not None and run.owner != self.name:
            self._hub.send("posted", run.owner, lambda peer: peer.report_posted(run_id))
            return PostResult(posted.reply, posted.item, elsewhere=True)
        if run.owner is None and not self._row.can_take(run):
            self._offer([run])
        return posted

    def create(self, request: CreateRequest) -> Created:
        """Create a run, owned by this process or by none."""
        self._renew()
        created = self._ledger.create(request.new, request.frame, self.name if request.claimed else None)
        if created.claim is None and not created.unclaimed:
            return created
        run = self._ledger.runs[request.new.info.run_id]
        run.level = self._level
        if created.claim is not None:
            self._returned(created.claim)
        else:
            self._offer([run])
        return created

    def owners(self, request: OwnerRequest) -> Any:
        """Execute a request about owners; returns what its caller gets."""
        ledger, now = self._ledger, self._time.now()
        self._renew()
        match request:
            case ClaimRequest(run_id=run_id):
                return self._claim(run_id)
            case ReadyRequest(room=room, ability=ability, now=moment):
                return self._ready(room, ability, moment)
            case DueRequest(now=moment, ability=ability, limit=limit):
                served = self._hub.serves if ability.unserved else None
                return self._taken(
                    ledger.claim_due(moment, ability, limit, self.name, level=self._level, served=served)
                )
            case ReleaseRequest(claims=claims):
                freed, refused = ledger.release(claims)
                self._given_up(freed)
                return refused
            case GiveBackRequest(claims=claims, ready_at=ready_at):
                return self._given_up(ledger.give_back(claims, ready_at))
            case QueueRequest():
                ledger.limit(request)
                self._offer(run for run in ledger.loose.values() if run.queue == request.name)
                return None
            case ReviveRequest(run_id=run_id):
                return self._revived(ledger.revive(run_id, now))

    def _claim(self, run_id: str) -> Claim | Taken | None:
        claim = self._ledger.claim(run_id, self.name)
        if isinstance(claim, Claim):
            self._returned(claim)
        return claim

    def _returned(self, claim: Claim) -> None:
        """Note a claim of which the caller will know."""
        self._claims[claim.run_id] = claim.token
        run = self._ledger.open[claim.run_id]
        if run.held:
            self.machine.held.add(claim.run_id)
        self._moved(run, sender=None)

    def _taken(self, ready: Sequence[ReadyRun]) -> Sequence[ReadyRun]:
        for run in ready:
            self._returned(run.claim)
        return ready

    def _ready(self, room: int, ability: Ability, now: datetime) -> Sequence[ReadyRun]:
        claimed = self._taken(self._ledger.claim_ready(room, ability, now, self.name, self._level))
        if len(claimed) == room:  # there may be more, for another process
            self._offer(self._ledger.loose.values(), other_than=self.name)
        return claimed

    def _given_up(self, runs: Sequence[RunTables]) -> None:
        for run in runs:
            self._forget(run.info.run_id)
            self._moved(run, sender=self.name)
            self._offer_limited(run.queue)
        self._offer(runs)

    def _forget(self, run_id: str) -> None:
        """Forget a claim that this process has no more."""
        self._claims.pop(run_id, None)
        self.machine.held.discard(run_id)

    def _return(self, runs: Sequence[RunTables]) -> None:
        """Give back all of these runs, regardless of their claims; counts as no crash."""
        claims = [Claim(run_id=run.info.run_id, token=run.token) for run in runs]
        self._given_up(self._ledger.give_back(claims))

    def _revived(self, run: RunTables | None) -> bool:
        if run is not None:
            self._moved(run, sender=None)
            self._offer([run])
        return run is not None

    def bury(self, name: str) -> bool:
        """Declare a process dead and free its runs. False if no live process has this name."""
        process = self._hub.processes.get(name)
        if process is None or process.dead:
            return False
        process.dead = True
        while self._free(name):
            pass
        self._hub.forget_dead()
        return True

    def _free(self, name: str) -> bool:
        """Free some runs of a dead process; returns whether there were any."""
        freed = self._ledger.bereave(name, FREE_SLICE, self._time.now(), self._hub.random.random)
        for run in freed:
            self._moved(run, sender=None)
        self._offer(freed)
        return bool(freed)

    # --- the lease ---------------------------------------------------------------------------------------------------

    async def _stop_in_time(self) -> None:
        """Void all claims when the lease may end, also if the process cannot reach the others."""
        while True:
            await trio.sleep_until(self.machine.good_until)
            if trio.current_time() >= self.machine.good_until:
                self._renewed = trio.Event()
                self._perform(self.machine.clock(trio.current_time()))
                await self._renewed.wait()

    def _renew(self) -> None:
        """Advance the beat. After a lapse, give back what was claimed before; after a death, take a new row."""
        self._perform(self.machine.turn(trio.current_time()))

    def _perform(self, actions: Iterable[LeaseAction]) -> None:
        waiting = deque(actions)
        while waiting:
            match waiting.popleft():
                case LeaseAction.JOIN:
                    self._join()
                case LeaseAction.BEAT:
                    waiting.extend(self._beat())
                case LeaseAction.RETURN_ALL:
                    self._return(list(self._ledger.owned(self.name)))
                case LeaseAction.VOID:
                    self._claims.clear()
                    self._guarded(lambda: self._report(ClaimsVoided()))
                case LeaseAction.TURN:
                    self._poke.set()
                case never:
                    assert_never(never)

    def _join(self) -> None:
        """Write a row for this process, in place of one that others have declared dead."""
        self._row.listener = None
        for run_id in self._watched:
            self._hub.watches.setdefault(run_id, set()).discard(self.name)
        self._row = self._hub.join(self, self._base, self._level, self._time.now())
        self._write_row()
        for run_id in self._watched:
            self._hub.watches.setdefault(run_id, set()).add(self.name)
        self.machine.joined(trio.current_time())

    def _beat(self) -> Sequence[LeaseAction]:
        row, sent = self._row, trio.current_time()
        row.beat += 1
        row.beat_at = sent
        self._renewed.set()
        return self.machine.beat(sent, alive=not row.dead)

    # --- the turn ----------------------------------------------------------------------------------------------------

    async def _take_turns(self) -> None:
        while True:
            with trio.move_on_after(self._hub.times.turn):
                await self._poke.wait()
            self._poke = trio.Event()
            if self.frozen or self._queue.outage is not None:
                self.machine.outage()
            elif self._queue.down is None:
                await self._turn()

    async def _turn(self) -> None:
        self._renew()
        row, hub, machine = self._row, self._hub, self.machine
        self._write_row()
        if machine.epoch != hub.epoch:
            machine.epoch = hub.epoch
            self._guarded(lambda: self._report(LogsRenamed(machine.epoch)))
        beats = {process.name: process.beat for process in hub.living() if process is not row}
        dead = [process.name for process in hub.processes.values() if process.dead]
        duties = machine.look(trio.current_time(), beats, dead)
        for name, beat in duties.silent.items():
            if hub.processes[name].beat == beat:
                hub.processes[name].dead = True
        for name in hub.abandoned():
            while True:
                if self.frozen or not self._free(name):
                    break
                await trio.lowlevel.checkpoint()
        hub.forget_dead()
        if not self.frozen:
            self._guarded(self._repair)

    def _repair(self) -> None:
        """Do and report what was left out by others, or hinted in vain."""
        for thread in list(self._ledger.unfreed):
            run = self._thread_freed(self._ledger.free_thread(thread))
            if run is not None:
                self._report(ThreadFreed(run.info.run_id))
        owned = {run.info.run_id: run for run in self._ledger.owned(self.name)}
        repairs = self.machine.repair({run_id: run.token for run_id, run in owned.items()}, self._claims)
        for run_id in repairs.lost:
            self._forget(run_id)
        for run_id, run in owned.items():
            if run_id in self.machine.held and not run.held:
                self.report_freed(run_id)
            self.report_posted(run_id)
        self._return([owned[run_id] for run_id in repairs.strays])
        for run_id in list(self._watched):
            run = self._ledger.runs.get(run_id)
            if run is not None and run.owner != self.name and self._seen.get(run_id) != _version(run):
                self.report_moved(run_id)
        now = self._time.now()
        if any(self._row.can_take(run) and self._ledger.ready(run, now) for run in self._ledger.loose.values()):
            self._report(WorkFound())


def _version(run: RunTables) -> object:
    """Return a value that differs once a watched run has changed."""
    return len(run.frames), len(run.inbox), run.owner, run.held, run.dead
