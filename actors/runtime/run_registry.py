"""`RunRegistry`: the runs that have an owner in this process, their slots, and the queue for slots.

Theory of operation. A run is in at most one of four places here: held (another run works on its thread), queued (waits
for a slot), working (holds a slot of max_running), resting (waits for people or tasks and holds no slot). Each run has
one supervised actor. An actor that exits is removed; depending on its exit the run is done, passive, degraded (without
agent or deps) or given up (three crashes). A degraded run is tried again on a command, on `resume`, at its deadline,
and with back-off if its provider of deps failed.

In a shared store other processes have runs, too. An actor begins with a claim, or asks for one and leaves quietly if
another process has the run; what cannot be worked on here is given back. So no run waits here for a slot if another
process may have one. A degraded run that has not begun is back in its queue, and no command tries it again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

import attrs
import trio

from greenroom.supervision import ActorExited, ChildSpec, Crashed, Exit, GaveUp, MailboxFull, Ref, Shutdown

from ..agents.agent import Agent
from ..contract.claims import Claim
from ..contract.codec import failure_text
from ..contract.decisions import InboxItem
from ..contract.rows import RunRecord
from ..contract.run_lists import RunProgress
from ..errors import RuntimeClosed
from ..processes import ReadyRun
from ..run.forced_end import GAVE_UP
from ..run.run_actor import Errand, ForcedEnd, NewRunClaim, RunActor
from ..run.run_loop import Hint, RunPermissions
from ..services.children import EMPTY, OverrunBody
from ..services.services import ASK_AGAIN, Services, logger
from .owners import GRACE, RunOwners

CRASHES: Final = 2
"""Restarts of a run actor within `CRASH_WINDOW` seconds. The next crash gives up: failed(internal_error)."""
CRASH_WINDOW: Final = 60.0
DEAD_LETTER: Final = "dead_letter"
"""Degraded code of a run that no process claims any more, because its owners crashed again and again."""


def _said(error: BaseException | None) -> str:
    return "it returned" if error is None else failure_text(error)


@attrs.define(eq=False, repr=False)
class RunRegistry:
    """The runs that have an owner here.

    A working run holds a slot (of max_running). A run that comes to rest frees its slot for the next run in the queue,
    and takes a slot back without queueing when its work continues: a human's decision does not wait behind new work.

    Attributes:
        max_running: most runs that work at once; None: no limit.
        changed: called when `room` may have changed; None: no part wants to know.
        starting: starts whose run is being written; counted in a shared store only.
        closing: no run starts any more.
    """

    services: Services
    _owners: RunOwners
    max_running: int | None
    _actors: dict[str, RunActor] = attrs.field(init=False, factory=dict)
    _degraded: dict[str, tuple[str, str]] = attrs.field(init=False, factory=dict)
    _said: dict[str, str] = attrs.field(init=False, factory=dict)
    _refusals: dict[str, int] = attrs.field(init=False, factory=dict)
    _sequences: dict[str, int] = attrs.field(init=False, factory=dict)  # of runs with notes: their newest event then
    _working: set[str] = attrs.field(init=False, factory=set)
    _resting: set[str] = attrs.field(init=False, factory=set)
    _queue: deque[str] = attrs.field(init=False, factory=deque)
    _held: set[str] = attrs.field(init=False, factory=set)
    _freed: set[str] = attrs.field(init=False, factory=set)
    _unplaced: dict[str, ChildSpec[Hint]] = attrs.field(init=False, factory=dict)
    _next_claims: dict[str, ReadyRun] = attrs.field(init=False, factory=dict)
    _overran: dict[str, Mapping[str, OverrunBody]] = attrs.field(init=False, factory=dict)
    changed: Callable[[], None] | None = attrs.field(init=False, default=None)
    starting: int = attrs.field(init=False, default=0)
    closing: bool = attrs.field(init=False, default=False)

    def __repr__(self) -> str:
        return f"<RunRegistry of {len(self._actors)} live runs>"

    def __len__(self) -> int:
        return len(self._actors)

    def get(self, run_id: str) -> RunActor | None:
        """Return the live actor of a run, or None."""
        return self._actors.get(run_id)

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
        return None if self.max_running is None else max(0, self.max_running - len(self._working) - len(self._queue))

    def queued(self, run_id: str) -> bool:
        """Return True if a run has its thread and waits for a slot."""
        return run_id in self._queue

    def degraded(self, run_id: str) -> tuple[str, str] | None:
        """Return why a run is not worked on here (code, sentence), or None."""
        return self._degraded.get(run_id)

    def noted(self) -> set[str]:
        """Return the runs without an owner here of which something is noted here."""
        for run_id, bodies in [*self._overran.items()]:
            if all(body.ended.is_set() for body in bodies.values()):
                del self._overran[run_id]
        services = self.services
        notes = (self._degraded, self._said, self._refusals, self._sequences, self._overran, services.alarm.noted)
        return services.agents.failing.union(*notes) - self._actors.keys()

    def forget_moved(self, run_id: str, progress: RunProgress | None) -> None:
        """Forget what is noted of a run that has ended or gone on in another process, or was pruned since.

        A run that another process only claims and gives back has no new event, and its refusals still count here. An
        overrun body is forgotten once the run is done: until then it may come back, and its call waits for the body.

        Args:
            run_id: a run without an owner here.
            progress: how far it is now; None: the store does not have it any more.
        """
        if progress is None or progress.done:
            self._overran.pop(run_id, None)
        elif self._sequences.setdefault(run_id, progress.last) >= progress.last:
            return
        for notes in (self._degraded, self._said, self._refusals, self._sequences):
            notes.pop(run_id, None)
        self.services.alarm.forget(run_id)
        self.services.agents.failing.discard(run_id)

    def note_dead(self, run_id: str, why: str | None) -> None:
        """Note whether a run without an owner here is a dead letter."""
        if why is not None:
            self._degraded[run_id] = (DEAD_LETTER, why)
        elif self._degraded.get(run_id, ("",))[0] == DEAD_LETTER:
            del self._degraded[run_id]

    def posted(self, run_id: str, item: InboxItem) -> None:
        """Hint a durable command to the run's actor, and start an actor if there is none (`Owners`)."""
        actor, cancel = self._actors.get(run_id), item.command.kind == "cancel"
        if actor is None:
            if self.closing or (cancel and self.bury(run_id)):
                return
            errand: Errand = "cancel" if cancel else "command"
            if not self.services.shared:  # a degraded run has left its queue, and no other process tries it again
                self.spawn(run_id, errand=None if run_id in self._degraded else errand)
            elif cancel or self.room != 0:  # without room the run is ready for any process that has some
                self.spawn(run_id, errand=errand)
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
        actor, reason = self._actors.get(run_id), self._degraded.get(run_id)
        if actor is not None:
            actor.needed = actor.needed or actor.burial is not None
            return actor.burial is not None
        if reason is None or reason[0] != GAVE_UP or self.closing:
            return False
        self._inter(run_id, reason[1], needed=True)
        return True

    def _inter(self, run_id: str, why: str, *, needed: bool) -> None:
        self.spawn(run_id, abandon=why, burial=ForcedEnd(why=why, held=lambda: tuple(self._held)))
        if (actor := self._actors.get(run_id)) is not None:
            actor.needed = needed

    async def left(self, run_id: str) -> None:
        """Wait until a run has no owner here."""
        actor = self._actors.get(run_id)
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
        if self.closing or run_id in self._actors or (run_id in self._degraded and not degraded):
            return False
        self.spawn(run_id, errand="wake" if self.services.shared else None)
        return True

    def take(self, ready: ReadyRun) -> bool:
        """Give a claimed run an owner. Returns False if the run has one, or is degraded here and not shared."""
        run_id = ready.claim.run_id
        if run_id in self._actors:  # its claim is void, or it has none: the next owner begins with this claim
            self._next_claims[run_id] = ready
            return False
        if not self.services.shared and run_id in self._degraded:
            return False
        self.spawn(run_id, claim=ready.claim, held=ready.held)
        return True

    def voided(self) -> None:
        """End every incarnation without another write: the claims of this process are void (`Owners`)."""
        for run_id in [run_id for run_id, reason in self._degraded.items() if reason[0] == GAVE_UP]:
            del self._degraded[run_id]  # another process may work on it
        for actor in tuple(self._actors.values()):
            actor.lose()

    def thread_freed(self, run_id: str) -> None:
        """Queue a run whose thread became free (`Owners`)."""
        actor = self._actors.get(run_id)
        if actor is not None:
            actor.thread_freed = True
        if (ready := self._next_claims.get(run_id)) is not None:
            self._next_claims[run_id] = attrs.evolve(ready, held=False)
        if run_id in self._held:
            self._held.discard(run_id)
        elif self.services.shared and (actor is not None or not self.starting):
            return  # a report of another process, which may come twice, or when the run has gone on
        else:
            # `create_run` is in flight and will report held=True; remember that the thread was freed since
            self._freed.add(run_id)
        if actor is not None and self.services.shared and self.room == 0 and not actor.has_deps:
            actor.permissions.draining = True  # it has not begun, and another process may have room
            if actor.ref is not None:
                actor.ref.nudge()
            return
        self._queue.append(run_id)
        self._admit()

    def started(self) -> None:
        """Note that a start has settled (`starting`); its run was given to `spawn` if it has a claim."""
        self.starting -= 1
        if not self.starting:
            self._freed.clear()

    def resting(self, run_id: str, resting: bool, *, slot: bool = True) -> None:
        """Record that the run came to rest or works again (`Owners`). A resting run frees its slot."""
        if resting:
            self._resting.add(run_id)
        else:
            self._resting.discard(run_id)
        if slot and not resting:
            self._working.add(run_id)
            if self.changed is not None:
                self.changed()
        elif run_id in self._working or resting:
            self._working.discard(run_id)
            self._admit()

    def admit_child(self, run_id: str, agent: Agent[object], deps: object) -> None:
        """Let a child run that was taken up from the store work in its parent's slot, with the parent's deps."""
        self._working.discard(run_id)
        if run_id in self._queue:
            self._queue.remove(run_id)
        actor = self._actors.get(run_id)
        if actor is not None and actor.ref is not None:
            actor.permissions.admitted = True
            actor.attach_deps(agent, deps)
            actor.ref.nudge()
        elif actor is None and self.services.shared:  # no slot may come free while the parent run works
            self.spawn(run_id, agent=agent, deps=deps, errand="child")
        elif run_id in self._degraded:
            self.spawn(run_id, agent=agent, deps=deps)
        self._admit()

    def child_moved(self, parent_run: str) -> None:
        """Wake a parent run that is not in memory, or that is leaving memory (`Owners`)."""
        actor = self._actors.get(parent_run)
        if actor is None:
            if not self.services.shared:  # there a parent run with mirrors always has an owner, which watches
                self.wake(parent_run)
        elif actor.life is not None and actor.life.passive:
            actor.child_moved = True

    async def tasks_ended(self, run_id: str, record: RunRecord) -> None:
        """Wait until no task of a finished run is alive; a run with unresponsive bodies is not waited for."""
        actor = self._actors.get(run_id)
        if actor is not None and actor.ref is not None and not record.row.stubborn:
            await actor.ref.exited.wait()

    async def join(self) -> None:
        """Wait until no run is running: each is done, waits for people, waits for its thread, or is degraded.

        Raises:
            RuntimeClosed: the runtime closes first.
        """
        await trio.lowlevel.checkpoint()
        while any(self._at_work(run_id, actor) for run_id, actor in self._actors.items()):
            self.check_open()
            await self.services.signals.runtime.rest().wait()

    def _at_work(self, run_id: str, actor: RunActor) -> bool:
        """Return False if a run waits for its thread, or rests with every accepted command acted on."""
        return run_id not in self._held and (run_id not in self._resting or actor.unread)

    def spawn(
        self,
        run_id: str,
        *,
        born: NewRunClaim | None = None,
        claim: Claim | None = None,
        errand: Errand | None = None,
        agent: Agent[object] | None = None,
        deps: object = None,
        held: bool = False,
        abandon: str | None = None,
        burial: ForcedEnd | None = None,
        left: Mapping[str, OverrunBody] | None = None,
    ) -> None:
        """Give a run an actor; if a command started one already, add agent and deps to that actor.

        `born`, `claim`: the actor begins with this claim; else it asks for one. `errand`: and only if the errand needs
        an owner here.
        """
        live, freed = self._actors.get(run_id), held and run_id in self._freed
        held = (held and not freed) or run_id in self._held
        if freed:
            self._freed.discard(run_id)
        if live is not None:
            live.attach_deps(agent, deps)
            live.met_start = live.met_start or (claim is None and errand is None)
            if held:
                self.hold(run_id)
            return
        # in its parent's slot
        inside = errand == "child" or (born is not None and born.state.info.parent_run is not None)
        room = inside or self.max_running is None or len(self._working) < self.max_running
        admitted = not held and (room or abandon is not None)  # a run that is given up only ends: it needs no slot
        actor = RunActor(
            self.services, run_id, permissions=RunPermissions(admitted=admitted, draining=self.closing),
            born=born, given=claim or errand, agent=agent, deps=deps, has_deps=deps is not None, abandon=abandon,
            burial=burial, left=left or EMPTY,
        )  # fmt: skip
        body = (
            actor.on_shared_store(self._refusals.get(run_id, 0), self._overran.pop(run_id, EMPTY))
            if self.services.shared
            else actor.body
        )
        if held:
            self._held.add(run_id)
        elif not admitted:
            self._queue.append(run_id)
        elif not inside:
            self._working.add(run_id)
        self._degraded.pop(run_id, None)
        self.services.alarm.forget(run_id)
        self._actors[run_id] = actor
        spec: ChildSpec[Hint] = ChildSpec(
            id=run_id, start=body, restart="transient", shutdown=GRACE, max_restarts=CRASHES, within=CRASH_WINDOW
        )
        try:
            actor.ref = self._owners.start(spec)
        except BaseException:  # no half-started actor is kept
            self._forget(run_id)
            raise
        if actor.ref is None:
            self._unplaced[run_id] = spec
        if self.changed is not None:
            self.changed()

    def place(self) -> None:
        """Start the actors for which there was no place while their supervisor began again."""
        unplaced, self._unplaced = self._unplaced, {}
        for run_id, spec in unplaced.items():
            if (actor := self._actors.get(run_id)) is not None:
                actor.ref = self._owners.start(spec)

    def _again(self, run_id: str, before: RunActor, *, held: bool) -> None:
        """Give a run its next owner, because the supervisor of the owners has crashed."""
        if run_id in self._queue:
            self._queue.remove(run_id)
        ready, given = self._next_claim(run_id, before), before.given
        if ready is not None:
            given, held = ready.claim, ready.held
        self.spawn(
            run_id, born=before.born, claim=given if isinstance(given, Claim) else None,
            errand=None if isinstance(given, Claim) else given, agent=before.agent,
            deps=before.deps if before.has_deps else None, held=held, abandon=before.abandon, burial=before.burial,
            left=before.left,
        )  # fmt: skip
        self._actors[run_id].needed = before.needed

    def _next_claim(self, run_id: str, before: RunActor | None) -> ReadyRun | None:
        """Return the claim that came while a run had an owner; None if there is none, or the owner's was newer."""
        ready = self._next_claims.pop(run_id, None)
        return None if ready is None or (before is not None and before.token >= ready.claim.token) else ready

    def hold(self, run_id: str) -> None:
        """Hold a live run for its thread: a command started the actor without knowing that the thread is busy."""
        self._held.add(run_id)
        self._working.discard(run_id)
        if run_id in self._queue:
            self._queue.remove(run_id)
        if (actor := self._actors.get(run_id)) is not None:
            actor.permissions.admitted = False
        self._admit()
        self.services.signals.runtime.rested()  # for `join`: the run is not running any more

    def ended(self, ref: Ref[object], exit_: Exit) -> None:
        """Handle the final exit of a run's actor; called in the actor's last step."""
        actor, was_held = self._actors.get(ref.id), ref.id in self._held
        self._forget(ref.id)
        if actor is not None and isinstance(exit_, Shutdown | Crashed) and self._owners.stopping and not self.closing:
            self._again(ref.id, actor, held=was_held)
            return
        if actor is not None and actor.degraded is not None:
            self._refused(ref.id, actor, actor.degraded, held=was_held)
        else:
            if ref.id in self._said:  # so has each run with other notes of its refusals
                for notes in (self._said, self._refusals, self._sequences):
                    notes.pop(ref.id, None)
            self.services.agents.failing.discard(ref.id)
        ready = self._next_claim(ref.id, actor) if self._next_claims else None
        claim, held = (None, False) if ready is None else (ready.claim, ready.held)
        if isinstance(exit_, GaveUp) and not self.closing:
            why = f"the run's owner crashed again and again: {_said(exit_.error)}"
            if actor is None or actor.abandon is None:
                self.spawn(ref.id, claim=claim, abandon=why, left=None if actor is None else actor.left)
            elif actor.burial is None:  # the ordinary end could not be written either
                self._inter(ref.id, why, needed=actor.needed)
            else:  # the forced end failed, too: the run stays for the next start
                self._degrade(ref.id, (GAVE_UP, self.services.redactor.text(why)))
        elif claim is not None and not self.closing:
            self.spawn(ref.id, claim=claim, held=held)
        elif actor is not None and not self.closing:
            self._follow(actor, held=was_held)
        self._admit()
        self.services.signals.left(ref.id)

    def _follow(self, before: RunActor, *, held: bool) -> None:
        """Give a run another owner if the last owner was on the way out when the run began to need one."""
        run_id, claimless = before.run_id, not before.token and before.burial is None
        if claimless and before.met_start:
            self.spawn(run_id, agent=before.agent, deps=before.deps if before.has_deps else None, held=held)
        elif claimless and before.needed:
            self.spawn(run_id, errand="cancel")
        elif before.left_unread or before.child_moved:  # while the run was leaving memory
            self.spawn(run_id, errand="wake" if self.services.shared else None)

    def _refused(self, run_id: str, actor: RunActor, reason: tuple[str, str], *, held: bool) -> None:
        """Note that a run cannot be worked on here, and when it is tried again."""
        self._degrade(run_id, reason)
        self.services.alarm.at_deadline(run_id, actor.deadline)
        refusals = self._refusals.pop(run_id, 0) + 1
        if self.services.shared:  # given back after a pause, for any process; a timer here would always be the first
            self._refusals[run_id] = refusals
            if actor.sequence is not None:
                self._sequences[run_id] = actor.sequence
            return
        if actor.passing:
            self._refusals[run_id] = refusals
            self.services.alarm.after(run_id, ASK_AGAIN.delay(refusals, self.services.jitter() - 0.5))
        if held:
            self._held.add(run_id)  # a later owner still has to wait for the thread

    def _degrade(self, run_id: str, reason: tuple[str, str]) -> None:
        """Record why the run is not worked on here, and log each new reason once."""
        self._degraded[run_id] = reason
        if self._said.get(run_id) != reason[0]:
            self._said[run_id] = reason[0]
            logger.warning("run %s has no owner here (%s): %s", run_id, *reason)

    def _forget(self, run_id: str) -> None:
        actor = self._actors.pop(run_id, None)
        if self.services.shared and actor is not None:
            alive = {key: body for key, body in actor.left.items() if not body.ended.is_set()}
            if alive:
                self._overran[run_id] = alive  # the run may come back
        self._working.discard(run_id)
        self._resting.discard(run_id)
        self._held.discard(run_id)

    def _admit(self) -> None:
        """Give free slots to queued runs, oldest first."""
        while self._queue and (self.max_running is None or len(self._working) < self.max_running):
            run_id = self._queue.popleft()
            actor = self._actors.get(run_id)
            if actor is not None and actor.ref is not None:
                actor.permissions.admitted = True
                if run_id not in self._resting:  # a run taken up while it waits for people needs no slot
                    self._working.add(run_id)
                actor.ref.nudge()
        if self.changed is not None:
            self.changed()

    def close(self) -> None:
        """Refuse new runs, and wake the tasks in `join`, which then raise RuntimeClosed."""
        self.closing = True
        self.services.signals.runtime.rested()
        if self.changed is not None:
            self.changed()

    async def drain(self, seconds: float) -> None:
        """Refuse commands, and let live runs reach a durable point for at most this many seconds."""
        self.closing = True
        for actor in self._actors.values():
            actor.permissions.draining = True
            if actor.ref is not None:
                actor.ref.nudge()
        if self._actors and seconds > 0:
            with trio.move_on_after(seconds):  # not shielded: cancelling the block ends the drain
                await self._owners.join()
