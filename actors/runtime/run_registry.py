"""`RunRegistry`: the runs that have an owner in this process, their slots, and the queue for slots.

Theory of operation. A run has one record (`OwnedRun`) from its first owner here until nothing is known of the run that
a later owner needs; `_settle` is the only place that drops a record. The place of the run is a row of `PLACES`;
`_move` is its only writer, and checks each move. Each run has one supervised actor. When an actor exits, the run is
done, passive, degraded (without agent or deps) or given up (three crashes). A degraded run is tried again on a command,
on `resume`, at its deadline, and with back-off if its provider of deps failed. `Ownership` makes the decisions that are
different in a shared store.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final

import attrs
import trio

from greenroom.supervision import ActorExited, ChildSpec, Crashed, Exit, GaveUp, MailboxFull, Ref, Shutdown

from ..agents.agent import Agent
from ..contract.codec import failure_text
from ..contract.decisions import InboxItem
from ..contract.lifecycle import DONE, IllegalTransition
from ..contract.rows import RunRecord
from ..contract.run_lists import RunProgress
from ..errors import RuntimeClosed
from ..processes import ReadyRun
from ..run.forced_end import GAVE_UP
from ..run.run_actor import (
    CLAIM_ANYWAY,
    Begin,
    ClaimAnyway,
    ClaimIfNeeded,
    ForcedEnd,
    NewRunClaim,
    RunActor,
    WithClaim,
    is_inside,
)
from ..run.run_loop import Hint, RunPermissions
from ..services.children import EMPTY, OverrunBody
from ..services.services import Services, logger
from .owned_run import PLACES, OwnedRun, Place
from .owners import GRACE, RunOwners
from .ownership import Ownership

CRASHES: Final = 2
"""Restarts of a run actor within `CRASH_WINDOW` seconds. The next crash gives up: failed(internal_error)."""
CRASH_WINDOW: Final = 60.0
DEAD_LETTER: Final = "dead_letter"
"""Degraded code of a run that no process claims any more, because its owners crashed again and again."""


@attrs.define(eq=False, repr=False)
class RunRegistry:
    """The runs that have an owner here.

    A working run holds a slot (of max_running). A run that comes to rest frees its slot for the next run in the queue,
    and takes a slot back without queueing when its work continues: a human's decision does not wait behind new work.

    Attributes:
        max_running: The most runs that work concurrently; None: no limit.
        on_change: A callback for a possible change of `room`, or None.
        closing: no run starts any more.
    """

    services: Services
    ownership: Ownership
    _owners: RunOwners
    max_running: int | None
    _runs: dict[str, OwnedRun] = attrs.field(init=False, factory=dict)
    # The runs in place QUEUED, oldest first. A plain dict finds its first entry by scanning over all deleted ones.
    _queue: OrderedDict[str, OwnedRun] = attrs.field(init=False, factory=OrderedDict)
    _live: int = attrs.field(init=False, default=0)
    _slots_taken: int = attrs.field(init=False, default=0)
    on_change: Callable[[], None] | None = attrs.field(init=False, default=None)
    closing: bool = attrs.field(init=False, default=False)

    def __repr__(self) -> str:
        return f"<RunRegistry: {self._live} live runs>"

    def __len__(self) -> int:
        return self._live

    def get(self, run_id: str) -> RunActor | None:
        """Return the live actor of a run, or None."""
        run = self._runs.get(run_id)
        return None if run is None else run.actor

    def check_open(self) -> None:
        """Raise if no run may start any more.

        Raises:
            RuntimeClosed: the runtime is closing or closed.
        """
        if self.closing:
            raise RuntimeClosed("the runtime is closing; open it again to start or resume runs")

    @property
    def room(self) -> int | None:
        """For how many more runs there is a slot; None: for any number."""
        if self.closing:
            return 0
        return None if self.max_running is None else max(0, self.max_running - self._slots_taken - len(self._queue))

    @property
    def passes_on(self) -> bool:
        """True if a run that needs a slot waits in the store, for any process."""
        return self.ownership.passes_on and self.room == 0

    def queued(self, run_id: str) -> bool:
        """Return True if a run has its thread and waits for a slot."""
        return run_id in self._queue

    def degraded(self, run_id: str) -> tuple[str, str] | None:
        """Return why a run is not worked on here (code, sentence), or None."""
        run = self._runs.get(run_id)
        return None if run is None else run.degraded

    # --- one record for each run -------------------------------------------------------------------------------------

    def _run(self, run_id: str) -> OwnedRun:
        run = self._runs.get(run_id)
        if run is None:
            run = self._runs[run_id] = OwnedRun(run_id)
        return run

    def _settle(self, run: OwnedRun) -> None:
        """Drop the record of a run if nothing is left to keep."""
        if run.actor is None and not run.noted:
            self._runs.pop(run.run_id, None)

    def _move(self, run: OwnedRun, to: Place) -> None:
        """Move a run to another place, and count slots."""
        source = run.place
        if source is to:
            return
        before, after = PLACES[source], PLACES[to]
        if to not in before.to:
            raise IllegalTransition(f"place of run {run.run_id}", source.value, to.value, before.to)
        run.place = to
        self._slots_taken += after.slot - before.slot
        if to is Place.QUEUED:
            self._queue[run.run_id] = run
        elif source is Place.QUEUED:
            del self._queue[run.run_id]

    def noted(self) -> set[str]:
        """Return the runs without an owner here of which something is noted here."""
        for run in tuple(self._runs.values()):
            if run.actor is None and all(body.ended.is_set() for body in run.overran.values()):
                run.overran = EMPTY
                self._settle(run)
        services = self.services
        live = {run_id for run_id, run in self._runs.items() if run.actor is not None or run.starting}
        return services.agents.failing.union(self._runs, services.alarm.noted) - live

    def forget_moved(self, run_id: str, progress: RunProgress | None) -> None:
        """Forget the notes about a run that ended or went on in another process, or was pruned.

        A run that another process only claims and gives back has no new event, and its refusals still count here. An
        overrun body is forgotten once the run is done: until then it may come back, and its call waits for the body.

        Args:
            run_id: a run without an owner here.
            progress: how far it is now; None: the store does not have it any more.
        """
        run = self._run(run_id)
        if progress is None or progress.done:
            run.overran = EMPTY
        else:
            if run.sequence is None:  # its rows were not read here: its news counts from now on
                run.sequence = progress.last
            if progress.last <= run.sequence:
                return
        run.forget_refusals()
        self.services.alarm.forget(run_id)
        self.services.agents.failing.discard(run_id)
        self._settle(run)

    def note_dead(self, run_id: str, why: str | None) -> None:
        """Note whether a run without an owner here is a dead letter."""
        if why is not None:
            self._run(run_id).degraded = (DEAD_LETTER, why)
        elif (run := self._runs.get(run_id)) is not None and run.degraded and run.degraded[0] == DEAD_LETTER:
            run.degraded = None
            self._settle(run)

    # --- owners ------------------------------------------------------------------------------------------------------

    def posted(self, run_id: str, item: InboxItem) -> None:
        """Hint a durable command to the run's actor, which is started if it is missing (`Owners`)."""
        run, cancel = self._runs.get(run_id), item.command.kind == "cancel"
        actor = None if run is None else run.actor
        if actor is None:
            # without room the run is ready for any process that has some
            if self.closing or (self.bury(run_id) if cancel else self.passes_on):
                return
            self.spawn(run_id, self.ownership.for_command(run, "cancel" if cancel else "command"))
            return
        if cancel:
            actor.cap_deps_wait()
        actor.posted = max(actor.posted, item.position)
        if actor.ref is not None:
            try:
                actor.ref.tell(item)
            except (MailboxFull, ActorExited):  # the row is durable; a later hint or the next owner finds it
                actor.ref.nudge()

    def bury(self, run_id: str) -> bool:
        """End a run that was given up here, because its end is needed. Returns False if the run was not given up."""
        run = self._runs.get(run_id)
        if run is None:
            return False
        if run.actor is not None:
            run.actor.needed = run.actor.needed or run.actor.burial is not None
            return run.actor.burial is not None
        if run.degraded is None or run.degraded[0] != GAVE_UP or self.closing:
            return False
        self._inter(run_id, run.degraded[1], needed=True)
        return True

    def _inter(self, run_id: str, why: str, *, needed: bool) -> None:
        runs = self._runs
        burial = ForcedEnd(why=why, held=lambda: [name for name, run in runs.items() if run.place is Place.HELD])
        self.spawn(run_id, abandon=why, burial=burial)
        if (actor := self.get(run_id)) is not None:
            actor.needed = needed

    async def left(self, run_id: str) -> None:
        """Wait until a run has no owner here."""
        actor = self.get(run_id)
        if actor is not None and actor.ref is not None:
            await actor.ref.exited.wait()
        else:
            await trio.lowlevel.checkpoint()

    def wake(self, run_id: str, *, degraded: bool = False) -> bool:
        """Give a run that is not in memory an owner, because a timer of the run fired.

        `degraded`: try a degraded run, too. Its deadline passed, which needs no agent, or the missing part may be there
        now.

        Returns:
            False if the run has an owner, or the run is degraded and `degraded` is False, or the runtime is closing.
        """
        run = self._runs.get(run_id)
        if self.closing or (run is not None and (run.actor is not None or (run.degraded is not None and not degraded))):
            return False
        self.spawn(run_id, self.ownership.waking)
        return True

    def take(self, ready: ReadyRun) -> bool:
        """Give a claimed run an owner. Returns False if the run has one, or is degraded here and not shared."""
        run_id = ready.claim.run_id
        run = self._runs.get(run_id)
        if run is not None and run.actor is not None:  # its claim is void, or it has none: the next begins with this
            run.next_claim = ready
            return False
        if not self.ownership.may_take(run):
            return False
        self.spawn(run_id, WithClaim(ready.claim), held=ready.held)
        return True

    def voided(self) -> None:
        """End every incarnation without another write: the claims of this process are void (`Owners`)."""
        for run in self._runs.values():
            if run.degraded is not None and run.degraded[0] == GAVE_UP:
                run.degraded = None  # another process may work on it
        for actor in self._actors():
            actor.lose()

    def _actors(self) -> list[RunActor]:
        return [run.actor for run in self._runs.values() if run.actor is not None]

    def thread_freed(self, run_id: str) -> None:
        """Queue a run whose thread became free (`Owners`)."""
        run = self._run(run_id) if self.ownership.expects_all else self._runs.get(run_id)
        if run is None:
            return  # a report of another process, which may come twice, or when the run has gone on
        run.freed = True  # also for `create_run` in flight, which will report held=True
        if run.next_claim is not None:
            run.next_claim = attrs.evolve(run.next_claim, held=False)
        if run.place is not Place.HELD:
            return
        actor = run.actor
        if actor is None:
            self._move(run, Place.ABSENT)
            self._settle(run)
            return
        if self.passes_on and not actor.has_deps:
            self._move(run, Place.LEAVING)
            actor.permissions.draining = True  # it has not begun, and another process may have room
            if actor.ref is not None:
                actor.ref.nudge()
            return
        self._move(run, Place.QUEUED)
        self._admit()

    def starting(self, run_id: str) -> OwnedRun:
        """Return the record of a run that a start writes; `started` follows."""
        run = self._run(run_id)
        run.starting += 1
        return run

    def started(self, run: OwnedRun) -> None:
        """Note that a start has settled; its run was given to `spawn` if it has a claim."""
        run.starting -= 1
        if run.actor is None:
            self._settle(run)

    def resting(self, run_id: str, resting: bool, *, slot: bool = True) -> None:
        """Record that the run came to rest or works again (`Owners`), and whether it holds a slot."""
        run = self._runs[run_id]
        with_slot, without = (Place.LIVE, Place.RESTING) if resting else (Place.WORKING, Place.INSIDE)
        place = with_slot if slot else without
        is_move = place is not run.place
        self._move(run, place)
        if place is not Place.WORKING:
            if is_move:
                self._admit()
        elif self.on_change is not None:
            self.on_change()

    def admit_child(self, run_id: str, agent: Agent[object], deps: object) -> None:
        """Let a child run that was taken up from the store work in its parent's slot, with the parent's deps."""
        run = self._runs.get(run_id)
        actor = None if run is None else run.actor
        if run is not None and (run.place is Place.WORKING or run.place is Place.QUEUED):
            self._move(run, Place.INSIDE)
        if actor is not None and actor.ref is not None:
            actor.permissions.admitted = True
            actor.attach_deps(agent, deps)
            actor.ref.nudge()
        elif actor is None and (begin := self.ownership.for_child(run)) is not None:
            self.spawn(run_id, begin, agent=agent, deps=deps)
        self._admit()

    def child_moved(self, parent_run: str) -> None:
        """Wake a parent run that is not in memory, or that is leaving memory (`Owners`)."""
        actor = self.get(parent_run)
        if actor is None:
            if self.ownership.wakes_parents:
                self.wake(parent_run)
        elif actor.life is not None and actor.life.passive:
            actor.child_moved = True

    async def tasks_ended(self, run_id: str, record: RunRecord) -> None:
        """Wait until no task of a finished run is alive; a run with unresponsive bodies is not waited for."""
        actor = self.get(run_id)
        if actor is not None and actor.ref is not None and not record.row.stubborn:
            await actor.ref.exited.wait()

    async def join(self) -> None:
        """Wait until no run is running: each is done, waits for people, waits for its thread, or is degraded.

        Raises:
            RuntimeClosed: the runtime closes first.
        """
        await trio.lowlevel.checkpoint()
        while any(run.at_work for run in self._runs.values()):
            self.check_open()
            await self.services.signals.runtime.rest().wait()

    def spawn(
        self,
        run_id: str,
        begin: Begin = CLAIM_ANYWAY,
        *,
        agent: Agent[object] | None = None,
        deps: object = None,
        held: bool = False,
        abandon: str | None = None,
        burial: ForcedEnd | None = None,
        overrun_bodies: Mapping[str, OverrunBody] | None = None,
    ) -> None:
        """Give a run an actor; if a command started one already, add agent and deps to that actor.

        `begin`: how it comes to its claim. `held`: as the store said of the run when the claim was made.
        """
        run = self._run(run_id)
        held = (held and not run.freed) or run.place is Place.HELD
        if run.actor is not None:
            run.actor.attach_deps(agent, deps)
            run.actor.met_start = run.actor.met_start or isinstance(begin, NewRunClaim | ClaimAnyway)
            if held:
                self.hold(run_id)
            return
        inside = is_inside(begin)
        place, admitted = Place.INSIDE if inside else Place.WORKING, True
        if held:
            place, admitted = Place.HELD, False
        elif not (inside or abandon is not None or self._has_slot):  # a run that is given up only ends
            place, admitted = Place.QUEUED, False
        actor = RunActor(
            self.services, run_id, permissions=RunPermissions(admitted=admitted, draining=self.closing),
            begin=begin, agent=agent, deps=deps, has_deps=deps is not None, abandon=abandon, burial=burial,
            overrun_bodies=overrun_bodies or run.overran, refusals=run.refusals,
        )  # fmt: skip
        self._move(run, place)
        run.actor, run.degraded, run.overran = actor, None, EMPTY
        self._live += 1
        self.services.alarm.forget(run_id)
        spec: ChildSpec[Hint] = ChildSpec(
            id=run_id, start=self.ownership.body(actor), restart="transient", shutdown=GRACE, max_restarts=CRASHES,
            within=CRASH_WINDOW,
        )  # fmt: skip
        try:
            actor.ref = self._owners.start(spec)
        except BaseException:  # no half-started actor is kept
            self._leave(run)
            self._settle(run)
            raise
        if actor.ref is None:
            run.spec = spec
        if self.on_change is not None:
            self.on_change()

    def start_again(self) -> None:
        """Start the actors for which there was no place while their supervisor began again."""
        for run in tuple(self._runs.values()):
            spec, run.spec = run.spec, None
            if spec is not None and run.actor is not None:
                run.actor.ref = self._owners.start(spec)

    def _again(self, run: OwnedRun, before: RunActor, *, held: bool) -> None:
        """Give a run its next owner, because the supervisor of the owners has crashed."""
        ready, begin = self._next_claim(run, before), before.begin
        begin = begin if ready is None else WithClaim(ready.claim)
        self.spawn(
            run.run_id, begin, agent=before.agent, deps=before.deps if before.has_deps else None,
            held=held if ready is None else ready.held, abandon=before.abandon, burial=before.burial,
            overrun_bodies=before.overrun_bodies,
        )  # fmt: skip
        if run.actor is not None:
            run.actor.needed = before.needed

    @staticmethod
    def _next_claim(run: OwnedRun, before: RunActor) -> ReadyRun | None:
        """Return the claim that came while a run had an owner; None without one, or if the owner's claim was newer."""
        ready, run.next_claim = run.next_claim, None
        return None if ready is None or before.token >= ready.claim.token else ready

    def hold(self, run_id: str) -> None:
        """Hold a live run for its thread: a command started the actor without knowing that the thread is busy.

        No effect if the thread has become free since.
        """
        run = self._runs[run_id]
        if run.freed or run.actor is None:
            return
        self._move(run, Place.HELD)
        run.actor.permissions.admitted = False
        self._admit()
        self.services.signals.runtime.rested()  # for `join`: the run is not running any more

    def ended(self, ref: Ref[object], exit_: Exit) -> None:
        """Handle the final exit of a run's actor; called in the actor's last step."""
        run = self._runs.get(ref.id)
        if run is None or run.actor is None:
            return
        actor, was_held = run.actor, run.place is Place.HELD
        self._leave(run)
        if isinstance(exit_, Shutdown | Crashed) and self._owners.stopping and not self.closing:
            self._again(run, actor, held=was_held)
            return
        if actor.degraded is not None:
            self._refused(run, actor, actor.degraded, held=was_held)
        else:
            if run.logged_code is not None or run.sequence is not None:
                run.forget_refusals()
            self.services.agents.failing.discard(ref.id)
        self._follow(run, actor, exit_, held=was_held)
        self._settle(run)
        self._admit()
        self.services.signals.left(ref.id)

    def _follow(self, run: OwnedRun, before: RunActor, exit_: Exit, *, held: bool) -> None:
        """Give a run another owner if the last one was given up, or was leaving when the run began to need one."""
        run_id, ready = run.run_id, self._next_claim(run, before)
        begin: Begin = CLAIM_ANYWAY if ready is None else WithClaim(ready.claim)
        if isinstance(exit_, GaveUp) and not self.closing:
            cause = "it returned" if exit_.error is None else failure_text(exit_.error)
            why = f"the run's owner crashed again and again: {cause}"
            if before.abandon is None:
                self.spawn(run_id, begin, abandon=why, overrun_bodies=before.overrun_bodies)
            elif before.burial is None:  # the ordinary end could not be written either
                self._inter(run_id, why, needed=before.needed)
            else:  # the forced end failed, too: the run stays for the next start
                self._degrade(run, (GAVE_UP, self.services.redactor.text(why)))
            return
        claimless = not before.token and before.burial is None
        if self.closing:
            return
        if ready is not None:
            self.spawn(run_id, begin, held=ready.held)
        elif claimless and before.met_start:
            self.spawn(run_id, agent=before.agent, deps=before.deps if before.has_deps else None, held=held)
        elif claimless and before.needed:
            self.spawn(run_id, ClaimIfNeeded("cancel"))
        elif before.left_unread or before.child_moved:  # while the run was leaving memory
            self.spawn(run_id, self.ownership.waking)

    def _refused(self, run: OwnedRun, actor: RunActor, reason: tuple[str, str], *, held: bool) -> None:
        """Note that a run cannot be worked on here, and when it is tried again."""
        self._degrade(run, reason)
        self.services.alarm.at_deadline(run.run_id, actor.deadline)
        run.refusals += 1
        run.sequence = run.sequence if actor.sequence is None else actor.sequence
        self.ownership.note_refused(run, actor)
        if held and self.ownership.holds_unowned:
            self._move(run, Place.HELD)  # a later owner still has to wait for the thread

    def _degrade(self, run: OwnedRun, reason: tuple[str, str]) -> None:
        """Record why the run is not worked on here, and log each new reason once."""
        run.degraded = reason
        if run.logged_code != reason[0]:
            run.logged_code = reason[0]
            logger.warning("run %s has no owner here (%s): %s", run.run_id, *reason)

    def _leave(self, run: OwnedRun) -> None:
        """Note that a run has no owner here any more; the bodies that still run wait for the next one."""
        actor, run.actor, run.spec = run.actor, None, None
        self._live -= 1
        self._move(run, Place.ABSENT)
        bodies = EMPTY if actor is None else actor.overrun_bodies
        if actor is not None and bodies and (actor.durable is None or actor.durable.row.status is not DONE):
            run.overran = {key: body for key, body in bodies.items() if not body.ended.is_set()} or EMPTY

    @property
    def _has_slot(self) -> bool:
        return self.max_running is None or self._slots_taken < self.max_running

    def _admit(self) -> None:
        """Give free slots to queued runs, oldest first."""
        while self._queue and self._has_slot:
            run = next(iter(self._queue.values()))
            self._move(run, Place.WORKING)
            if run.actor is not None:
                run.actor.permissions.admitted = True
                if run.actor.ref is not None:
                    run.actor.ref.nudge()
        if self.on_change is not None:
            self.on_change()

    def close(self) -> None:
        """Refuse new runs, and wake the tasks in `join`, which then raise RuntimeClosed."""
        self.closing = True
        self.services.signals.runtime.rested()
        if self.on_change is not None:
            self.on_change()

    async def drain(self, seconds: float) -> None:
        """Refuse commands, and let live runs reach a durable point for at most this many seconds."""
        self.closing = True
        for actor in self._actors():
            actor.permissions.draining = True
            if actor.ref is not None:
                actor.ref.nudge()
        if self._live and seconds > 0:
            with trio.move_on_after(seconds):  # not shielded: cancelling the block ends the drain
                await self._owners.join()
