"""The run loop: one incarnation of a run's owner, from a claim to the run's end, to passivation, or to a crash.

Theory of operation. Inputs arrive from three places: children (model answers, results of tool calls), the mailbox
(hints of journaled commands) and the clock. For each input the loop steps the pure machine and submits the commit
without awaiting the store. Effects marked `durable` wait in the outbox until the receipt of their commit arrives (as do
model requests and hooks while the thread's history is unread); the loop performs all other effects immediately.
Receipts arrive in the order of the commits, so the outbox is a queue. Awaits happen only in `live` and the steps that
it awaits; between two of them `_turn` drains everything that is ready, so no invariant is broken across a checkpoint.
While the owner waits, a child that ends takes the turn in its own last step (`_take_turn`): a step of a run wakes no
task but those of its work. A commit whose events are large waits in `_unwritten`: the owner makes them in steps before
it takes another input.

Example, a step that calls one unsafe tool:

    ModelAnswered  -> commit 7, StartCall(durable)   the effect waits in the outbox
    receipt of 7   -> StartCall is performed         the body starts; a crash from here on is known from the rows
    CallReturned   -> commit 8, CallModel            the next request starts before the receipt of 8
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextvars import Context
from typing import Final

import attrs
import msgspec
import trio

from greenroom.supervision import Mailbox

from ..contract.calls import CallPosition
from ..contract.claims import Claim
from ..contract.commits import Commit, Receipt
from ..contract.decisions import Command, Decision, InboxItem
from ..contract.envelope import EventEncoder
from ..contract.lifecycle import DONE, STATUS, TERMINAL, WAITING, RunStatus
from ..contract.phases import ADMISSION, ENDED, INFERENCE, TOOLS, RunPosition
from ..contract.recording import RecordEntry
from ..contract.spec import AgentSpec
from ..contract.stepwise import Steps
from ..contract.tasks import by_id
from ..engine.asking import is_continued
from ..engine.body_inputs import BodySpoke, CallRaised, CallReturned, CallSuspended, ResultRefused, TaskStopped
from ..engine.effects import (
    AnswerBody,
    AskGuards,
    CallModel,
    CancelChild,
    CancelTask,
    CancelWork,
    Effect,
    FinishRun,
    ForwardDecision,
    ParkCall,
    Prepare,
    ReleaseCall,
    ReportFailure,
    RunPhase,
    StartCall,
    StartTask,
)
from ..engine.inputs import Admit, CommandArrived, DeadlinePassed, Input, ModelAnswered, ModelFailed, WorkStopped
from ..engine.machine import due, step, timed
from ..engine.recording import ClockJump, Recorder
from ..engine.state import RunState, shifted
from ..services.agents import MISFIT, RunUnavailable
from ..services.children import EXPIRE, Child, ClaimLost, OverrunBody
from ..services.clock import RunTime
from ..services.services import Services, retry_until_available
from ..services.stepping import in_steps
from ..state.declared_keys import invalid_state
from ..state.snapshot import StateSnapshot
from .effect_runner import EffectRunner

Hint = InboxItem
"""The message of a run actor's mailbox: a command that is already durable. A lost hint loses no command."""


@attrs.define(eq=False)
class RunPermissions:
    """The permissions of a run's owner. They are slots and not messages: never refused, and kept across incarnations.

    Attributes:
        admitted: the run has a slot (of max_running) and its thread.
        draining: reach a durable point and end; start nothing new.
    """

    admitted: bool = True
    draining: bool = False


_NONE: Final[frozenset[str]] = frozenset()
"""Shared, because an empty set for each run would cost 0.2 KB."""


_CREATED: Final = RunStatus.CREATED
_READS: Final = frozenset({CallModel, RunPhase, AskGuards})
"""The effects that read the thread. They are looked up by their type, because isinstance with a struct that does not
match costs three times as much; so every `match` over structs begins with the most frequent ones.
"""


class _Entry(msgspec.Struct):
    """A submitted commit: the effects that wait for its receipt, and `asks` if it opens or closes tickets."""

    effects: list[Effect]
    state: RunState
    asks: bool


class _Ending(msgspec.Struct, frozen=True):
    """A submitted terminal commit: the input that led to it, the state before, and the record that the commit carries.

    The store rejects a terminal commit if unread commands exist; the run loop takes the commit back then (`_received`).
    """

    before: RunState
    message: Input
    entries: tuple[RecordEntry, ...]


class RunLoop:
    """Feeds the machine, submits commits and releases effects. Only `live` and `end` wait for anything but the store.

    Attributes:
        durable: the run as of the newest receipt, or as it was taken up.
        passive: the loop ended because the run waits and leaves memory.
    """

    __slots__ = (
        "_admitting", "_at", "_behind", "_children", "_claim", "_closing", "_context", "_effects", "_encoder",
        "_expiring", "_first", "_in_turn", "_leave_at", "_mailbox", "_outbox", "_permissions", "_receipts", "_record",
        "_registry", "_resting", "_run", "_services", "_spec", "_state", "_time", "_unwritten", "durable", "passive",
    )  # fmt: skip

    def __init__(
        self,
        services: Services,
        *,
        claim: Claim,
        state: RunState,
        spec: AgentSpec,
        mailbox: Mailbox[Hint],
        effects: EffectRunner,
        permissions: RunPermissions,
        first: Sequence[Input],
    ) -> None:
        """`first`: the inputs with which this incarnation begins."""
        self._services, self._claim, self._state, self._spec = services, claim, state, spec
        self._mailbox, self._effects, self._permissions, self._first = mailbox, effects, permissions, first
        self._run, self._children = effects.run, effects.run.children
        self._registry = services.directory.registry
        self._encoder = EventEncoder(state.info, services.redactor)
        self._time = RunTime(services.clock, state)
        self._record = Recorder(state, self._time.begins, bare=self._run.agent is None, on=services.record)
        self.durable = state
        self._outbox: list[_Entry] = []  # a list: an empty deque costs 0.8 KB, for every run that waits
        self._receipts: list[Receipt] = []
        self._unwritten: list[tuple[Commit, Steps[tuple[bytes, ...]]]] = []
        self._closing: _Ending | None = None
        self._expiring = _NONE
        self._behind = self._admitting = False
        self._resting: bool | None = None  # the last value reported to the registry
        self._leave_at = math.inf
        self._at = math.inf  # until when the owner waits
        self._in_turn = False
        self._context: Context | None = None
        self.passive = False

    async def live(self) -> None:
        """Feed the first inputs, then all later ones, until the run is done or its owner has to end.

        Raises:
            ClaimLost: this owner has to stop without another write.
            RunUnavailable: the thread's stored state does not fit the agent's state keys.
            StoreError: a commit was not written; the next incarnation rebuilds the run from the store.
        """
        self._context = trio.lowlevel.current_task().context
        self._children.turn = self._take_turn
        self._begin()
        while not self._over() or (self.passive and not await self._released()):
            if not self._unwritten and (self._closing is not None or not (self._behind or self._admitting)):
                at = self._at = self._next_time()
                if at == math.inf:
                    await self._mailbox.wait()
                else:
                    with self._services.clock_watch.waiting(self._mailbox), trio.move_on_at(at):
                        await self._mailbox.wait()
            if self._unwritten:
                await self._write_large()
            elif self._behind:
                await self._catch_up()
            elif self._admitting:
                await self._admit()
            self._turn()

    def lose(self, why: str) -> None:
        """End with ClaimLost as soon as possible; the children of the run are cancelled now."""
        self._children.lose(why)
        self._children.cancel_all(why)

    async def _released(self) -> bool:
        """Give up the claim of a run at rest. Returns False if it has unread commands: the run stays."""
        if await self._services.ownership.release(self._claim):
            return True
        self.passive, self._behind = False, True
        self._leave_at = self._services.passivation.rests(self._mailbox)
        return False

    def _begin(self) -> None:
        row = self._state.row
        if row.position is RunPosition.PREPARING or (row.position is not ADMISSION and row.status is RunStatus.RUNNING):
            # taken up in the middle of its preparation or of a step: the run holds a slot
            self._registry.resting(self._claim.run_id, False, slot=self._state.info.parent_run is None)
        first, self._first = self._first, ()
        for message in first:
            self.feed(message)
        silent = not self._outbox  # a run that waited before still waits, without a commit
        self._turn()
        if silent:
            self._publish_rest(self._state.row.status)
            self._services.signals.rested(self._claim.run_id)

    async def end(self) -> Mapping[str, OverrunBody]:
        """Cancel the run's children and wait for them within their grace. Returns the bodies that overran it.

        See `Children.end` for the guarantees.
        """
        self._services.passivation.forget(self._mailbox)
        return await self._children.end(wait=not self._state.row.stubborn)

    # --- one input ---------------------------------------------------------------------------------------------------

    def feed(self, message: Input) -> None:
        """Step the machine with one input, submit its commit, and perform or hold back its effects."""
        now, skew = self._time.next()
        before, message = self._state, self._record.watched(message, self._spec)
        if skew:
            before = shifted(before, skew)
            self._record.add(now, ClockJump(seconds=skew))
        transition = step(self._spec, before, message, now)
        self._state = transition.state
        self._record.add(now, message)
        effects, commit = self._effects, transition.commit
        if commit is not None:
            entries = self._record.carry()
            msgspec.structs.force_setattr(commit, "taken", entries)  # not shared yet; a copy costs more
            if commit.messages or commit.parts:
                self._run.keep(commit)
            if commit.row.stage in TERMINAL:
                self._closing = _Ending(before, message, entries)
            self._outbox.append(_Entry([], transition.state, bool(commit.tickets)))
            frame_arguments = commit.expected_last, commit.at, commit.events
            frames = None if self._unwritten else self._encoder.small_frames(*frame_arguments)
            if frames is None:  # the events are large, or those of a commit before them are
                self._unwritten.append((commit, self._encoder.frame_steps(*frame_arguments)))
            else:
                self._services.store.submit(self._claim, commit, frames, self._deliver)
        for effect in transition.effects:
            reads = type(effect) in _READS
            # effects that read the thread wait until the thread is written
            if self._outbox and (effect.durable or (reads and self._run.history is None)):
                self._outbox[-1].effects.append(effect)
            elif not (reads and self._permissions.draining):  # the next owner makes the request, or runs the phase
                effects.perform(effect, transition.state)

    async def _write_large(self) -> None:
        """Make the events of the commits that wait, with a checkpoint after each step, and submit them in order."""
        while self._unwritten:
            commit, steps = self._unwritten[0]
            frames = await in_steps(steps)
            del self._unwritten[0]
            self._services.store.submit(self._claim, commit, frames, self._deliver)

    def _outdated(self, effect: Effect) -> bool:
        """Return True if the machine moved on while the effect waited for its receipt, or the owner drains."""
        if self._permissions.draining and type(effect) in _READS:
            return True  # the next owner makes the request, or runs the phase
        row = self._state.row
        match effect:
            case StartCall():
                call = self._state.calls.rows.get(effect.call_id)
                waits = call is not None and (
                    call.at is CallPosition.BODY and call.attempts == effect.attempt
                    if effect.child_run is None
                    # a decision about a mirror begins another attempt, and ends no watch
                    else call.at in (CallPosition.BODY, CallPosition.CHILD)
                )
                return row.position is not TOOLS or not waits
            case (
                FinishRun()
                | ReleaseCall()
                | CancelTask()
                | AnswerBody()
                | ReportFailure()
                | CancelWork()
                | ForwardDecision()
                | CancelChild()
            ):
                return False
            case CallModel():
                return row.position is not INFERENCE
            case ParkCall():
                return row.position is not TOOLS
            case AskGuards():
                return row.open_guardrails is None or row.step != effect.step
            case Prepare():
                return row.position is not RunPosition.PREPARING or self._permissions.draining
            case RunPhase():
                return row.position is not TOOLS if effect.call_id else row.position.rule.hooks is not effect.phase
            case StartTask():
                task = by_id(row.tasks).get(effect.task_id)
                is_current = task is not None and task.attempts == effect.attempt and task.status == "running"
                return not is_current or row.position.rule.leaving

    def _deliver(self, receipt: Receipt) -> None:
        self._receipts.append(receipt)
        if receipt.posted and receipt.posted > self._state.row.inbox:  # the hint was lost, or is on its way
            self._behind = self._behind or (self._closing is None and not len(self._mailbox))
        if not self._in_turn:
            self._mailbox.nudge()

    def _received(self, receipt: Receipt) -> None:
        entry = self._outbox.pop(0)
        if receipt.kind == "inbox_ahead":
            # The store rejected the terminal commit, because commands were accepted that are not read. The loop returns
            # to the state before the terminal input, consumes the commands, and feeds that input again.
            if self._closing is None:
                raise ClaimLost("inbox_ahead without an ending")
            ending, self._closing = self._closing, None
            self._state = ending.before
            self._record.undo(ending.entries)
            self._run.history = None  # the commit whose messages it has was refused
            self._behind = True
            self._children.submit_last(ending.message)
            return
        if receipt.kind == "failed" and receipt.error is not None:
            raise receipt.error
        if receipt.kind != "committed":
            raise ClaimLost(receipt.kind)
        if receipt.next_in_thread is not None:
            self._registry.thread_freed(receipt.next_in_thread)
        input_read = entry.state.row.inbox != self.durable.row.inbox
        before, self.durable = self.durable, entry.state
        status, parent = STATUS[entry.state.row.stage], entry.state.info.parent_run
        if parent is not None and (status is not before.row.status or input_read or entry.asks):
            self._services.signals.report(self._claim.run_id)
            self._registry.child_moved(parent)
        self._publish_rest(status, again=input_read or bool(before.row.nested) is not bool(entry.state.row.nested))
        # the exit of its owner reports the rest of a run that is done, and every waiter waits for the exit of an owner
        # that leaves no body behind
        if status is WAITING or (status is DONE and entry.state.row.stubborn):
            self._services.signals.rested(self._claim.run_id)
        for effect in entry.effects:
            if not self._outdated(effect):
                self._effects.perform(effect, self._state)

    def _publish_rest(self, status: RunStatus, *, again: bool = False) -> None:
        if status is _CREATED:
            return  # the registry itself knows whether a created run has a slot
        resting = status is WAITING
        if resting is not self._resting:
            self._resting, self._leave_at, again = resting, math.inf, True
            if not resting:
                self._services.passivation.forget(self._mailbox)
            if resting and not self._outbox:
                self._run.part_bytes.forget()
            if resting and self._services.agents.can_revive(self._state.info):
                self._leave_at = self._services.passivation.rests(self._mailbox)  # nudges the mailbox at that moment
        if again:
            # a child run works in its parent's slot, and a body that waits for a decision keeps the slot of its run
            slot = self._state.info.parent_run is None and (not resting or self.durable.row.nested > 0)
            self._registry.resting(self._claim.run_id, resting, slot=slot)

    # --- everything that waits ---------------------------------------------------------------------------------------

    def _turn(self) -> None:
        """Process every input and receipt that is ready, without waiting."""
        self._in_turn = True
        try:
            while True:
                if self._children.crash is not None:
                    raise self._children.crash
                if self._receipts:
                    self._received(self._receipts.pop(0))
                elif self._unwritten or self._closing is not None or self._behind or not self._take_input():
                    break
        finally:
            self._in_turn = False
        self._mailbox.heed()  # nudges for inputs that were taken above

    def _take_turn(self) -> None:
        """Process the ready inputs in the last step of a child, which saves waking the owner's task.

        The owner is woken if it does not wait for a nudge, or has something to do itself: to raise, to end, to read the
        store, or to wait until another moment. The turn has the owner's context: children that it starts inherit no
        context variable of the child that ended.
        """
        if self._mailbox.parked and self._context is not None:
            try:
                self._context.run(self._turn)
                if (
                    not (self._unwritten or self._behind or self._admitting or self._over())
                    and self._next_time() == self._at
                ):
                    return
            except BaseException as error:  # noqa: BLE001, ASYNC103 - the owner raises the exception in its own task
                self._children.fail(error)
        self._mailbox.nudge()

    def _take_input(self) -> bool:
        """Feed the first ready input: of a child, else a command, the end of a cancel, the admission, text, a timer.

        Returns False if no input is ready.
        """
        row, effects, children = self._state.row, self._effects, self._children
        if children.inputs:
            self._feed_child_input(children.inputs.pop(0))
        elif len(self._mailbox):
            hint = self._mailbox.pop()
            if hint.position == row.inbox + 1:
                self._take_command(hint)
            else:  # a command before it was not hinted, or this command was read from the store
                self._behind = hint.position > row.inbox
        elif effects.stop_at is not None:
            if not effects.take_stop():
                return False
            self.feed(WorkStopped(stubborn=tuple(overrun.item for overrun in children.still_left().values())))
        elif row.position is ADMISSION and self._permissions.admitted:
            if self._run.history is None:  # earlier runs of the thread may have left state
                self._admitting = True
                return False
            self.feed(Admit())
        elif not self._outbox and children.streamed():
            for message in children.take_streams():
                self.feed(message)
        else:
            return (bool(children.checks) or row.next_due is not None) and self._fire_timers()
        return True

    def _feed_child_input(self, message: Input) -> None:
        """Feed a child's input, after the text that the child streamed before."""
        match message:
            case ModelAnswered() | ModelFailed():
                children, row = self._children, self._state.row
                goes_on = is_continued(self._spec, row, message)
                finish = children.keep_message_stream if goes_on else children.close_message_stream
                late = finish(message, row.inference)
            case CallReturned() | CallRaised() | CallSuspended() | ResultRefused():
                late = self._children.close_call_stream(message.call_id, message.attempt)
            case BodySpoke():
                late = self._children.spoken.close(message)
            case TaskStopped():
                late = self._children.close_call_stream(message.task_id, message.attempt)
            case _:
                late = []
        for delta_input in late:
            self.feed(delta_input)
        self.feed(message)

    def _take_command(self, item: InboxItem) -> None:
        if item.command.parts:
            self._run.part_bytes.needed = True
        self.feed(CommandArrived(item=item))

    async def _catch_up(self) -> None:
        """Consume the inbox from the store: hints were lost or arrived out of order."""
        record = await retry_until_available(self._services.store.load, self._claim.run_id)
        self._behind = False
        for item in () if record is None else record.inbox:
            if item.position == self._state.row.inbox + 1:
                self._take_command(item)

    async def _admit(self) -> None:
        """Admit the run to its thread, with the thread's state keys as they are now.

        Raises:
            RunUnavailable: the agent declares a key, which an earlier run may have written, differently.
        """
        record = await retry_until_available(self._services.store.load, self._claim.run_id)
        self._admitting = False
        if record is None or self._state.row.position is not ADMISSION:
            return
        agent = self._run.agent
        keys = () if agent is None else self._services.agents.declared_state(agent)
        text = invalid_state(keys, StateSnapshot.restored(0, record.state))
        if text is not None:
            raise RunUnavailable(MISFIT, text)
        self.feed(Admit(state=record.state))

    # --- time --------------------------------------------------------------------------------------------------------

    def _fire_timers(self) -> bool:
        """Run due checks of children, the deadline and expiries. Returns True if an input is ready or was fed."""
        self._children.look()
        if self._children.inputs:
            return True
        moment, now = self._state.row.next_due, self._services.clock.now()
        if moment is None or now < moment:
            return False
        late, ticket_ids = due(self._state, now)
        if late:
            self.feed(DeadlinePassed())
            return True
        fresh = tuple(ticket_id for ticket_id in ticket_ids if ticket_id not in self._expiring)
        if fresh:
            self._expiring = self._expiring.union(fresh)
            self._start_expiry(fresh)
        return False

    def _start_expiry(self, ticket_ids: tuple[str, ...]) -> None:
        """Post the expiry of tickets as commands, one after the other; against a decision, the first accepted wins."""
        directory, run_id = self._services.directory, self._claim.run_id

        async def expire(ticket_id: str, name: str) -> None:
            while True:
                decision = Decision(target=ticket_id, action="cancel", decision_id=name, decided_by="clock")
                result = await directory.post(run_id, Command(command_id=name, kind="expire", decision=decision))
                if result.code == "decision_id_conflict":
                    name += "+"  # a caller's command has that id already
                elif result.code in ("store_unavailable", "busy"):
                    await trio.sleep(1)
                else:
                    return

        async def body(_: Child) -> None:
            for ticket_id in ticket_ids:
                await expire(ticket_id, f"{EXPIRE}{ticket_id}")

        self._children.start(f"{EXPIRE}{ticket_ids[0]}", body, broke=None, ours=True)

    def _next_time(self) -> float:
        """When the loop has to look again though nothing comes, in trio time."""
        if self._effects.stop_at is not None:
            return self._effects.stop_at
        if self._state.row.next_due is None and not self._children.checks:
            return math.inf
        times = [at for at, _ in self._children.checks.values()]
        if self._state.row.next_due is not None:
            deadline = self._state.deadline
            first = next((moment for moment, name in timed(self._state) if name not in self._expiring), None)
            times += [self._services.clock.trio_time(moment) for moment in (deadline, first) if moment is not None]
        return min(times, default=math.inf)

    def _over(self) -> bool:
        if self._outbox:
            return False
        if self._effects.finished or self._state.row.position is ENDED:
            return True
        if self._run.agent is None and self._effects.stop_at is None and not self._behind:
            return True  # without the agent only a cancel can be processed, and none is left
        if self._permissions.draining:
            return not self._busy()
        if not self._resting or trio.current_time() < self._leave_at:
            return False
        # nothing but rows may be left: no work, no unread input, no expiry on its way, no end under way
        children = self._children
        has_work = self._busy() or self._behind or len(self._mailbox) or children.live_left() or children.noticed()
        expiring = any(key.startswith(EXPIRE) for key in self._children.live)
        self.passive = not (has_work or expiring) and self._state.row.termination is None
        self.passive = self.passive and not self._services.ownership.stays(self._state.row)
        return self.passive

    def _busy(self) -> bool:
        """Return True while a child works.

        Parked calls, retry pauses and expiries do not count: another owner can take them over.
        """
        live = self._children.live.values()
        working = (c for c in live if c.ticket is None and not c.pausing and not c.key.startswith(EXPIRE))
        return any(working) or bool(self._children.inputs)
