"""One life of a run actor: from a claim to the run's end, to a rest without an owner, or to a crash."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import attrs
import msgspec
import trio

from greenroom.supervision import Mailbox

from ..abc import Receipt
from ..contract.calls import CallPosition
from ..contract.decisions import Command, Decision, InboxItem
from ..contract.envelope import EventEncoder
from ..contract.excerpt import is_large
from ..contract.lifecycle import TERMINAL, RunStatus
from ..contract.phases import LEAVING, PHASE_OF, RunPosition
from ..contract.rows import Claim, RunRecord
from ..contract.spec import AgentSpec
from ..engine.effects import (
    AnswerBody,
    CallModel,
    CancelTask,
    CancelWork,
    Effect,
    FinishRun,
    ParkCall,
    ReleaseCall,
    ReportFailure,
    RunPhase,
    StartCall,
    StartTask,
)
from ..engine.inputs import (
    Admit,
    CallRaised,
    CallReturned,
    CallSuspended,
    CommandArrived,
    DeadlinePassed,
    Input,
    ModelAnswered,
    ModelFailed,
    ModelStreamed,
    TaskStopped,
    WorkStopped,
)
from ..engine.machine import due, step, timed
from ..engine.recording import ClockJump, Recorder
from ..engine.state import RunState, shifted
from ..state.declared_keys import invalid_state
from ..state.snapshot import StateSnapshot
from .children import EXPIRE, SLACK, Child, Children, ClaimLost, OverrunBody
from .clock import RunTime
from .effect_runner import EffectRunner
from .services import MISFIT, RunUnavailable, Services, retry_until_available

Hint = InboxItem
"""What a run actor's mailbox takes: a command that is durable already. Losing the hint loses nothing."""


@attrs.define(eq=False)
class RunPermissions:
    """What the runtime wants of a run's owner. Slots, not messages: never refused, and they outlive an incarnation.

    Attributes:
        admitted: the run has its slot (of max_running) and its thread.
        draining: come to a durable point and end; start nothing new.
    """

    admitted: bool = True
    draining: bool = False


_NONE: Final[frozenset[str]] = frozenset()
"""Shared: a set of its own would be 0.2 KB of every run."""


class _Entry(msgspec.Struct, frozen=True):
    """A submitted commit: what waits for its receipt."""

    effects: tuple[Effect, ...]
    state: RunState


class RunLoop:
    """Feeds the machine, submits commits, releases effects. Everything but `live` is synchronous.

    Attributes:
        durable: the run as the newest receipt has it, or as it was taken up.
        passive: it has ended because the run waits and leaves memory.
    """

    def __init__(
        self,
        services: Services,
        *,
        claim: Claim,
        state: RunState,
        spec: AgentSpec,
        mailbox: Mailbox[Hint],
        performer: EffectRunner,
        orders: RunPermissions,
    ) -> None:
        self._services, self._claim, self._state, self._spec = services, claim, state, spec
        self._mailbox, self._performer, self._orders = mailbox, performer, orders
        self._children: Children = performer.children
        self._encoder = EventEncoder(state.info, services.redactor)
        self._time = RunTime(services.clock, state)
        self._record = Recorder(state, self._time.begins, bare=performer.agent is None, on=services.record)
        self.durable = state
        self._outbox: list[_Entry] = []  # short: an empty deque would be 0.8 KB of every run that waits
        self._receipts: list[Receipt] = []
        self._closing: tuple[RunState, Input] | None = None
        self._stop_at: float | None = None
        self._expiring = _NONE
        self._behind = self._admitting = False
        self._resting: bool | None = None  # what the roster was told last
        self._leave_at = math.inf
        self.passive = False

    async def live(self, first: Sequence[Input]) -> None:
        """Feed the first inputs, then whatever comes, until the run is over or the owner is to go.

        Raises:
            ClaimLost: stop without a word. StoreError: a commit could not be written; begin again from the store.
        """
        if self._state.row.cursor is not RunPosition.ADMISSION and self._state.row.status is RunStatus.RUNNING:
            self._services.directory.resting(self._claim.run_id, False)  # in the middle of its work: it holds a slot
        for message in first:
            self.feed(message)
        silent = not self._outbox  # a run that was waiting before goes on waiting without a commit
        self._turn()
        if silent:
            self._publish_rest(self._state.row.status)
            self._services.board.rested(self._claim.run_id)
        while not self._over():
            await self._wait()
            if self._behind:
                await self._catch_up()
            if self._admitting:
                await self._admit()
            self._turn()

    async def end(self) -> Mapping[str, OverrunBody]:
        """Cancel what works for the run, and wait for it within its grace; who is left, as `Children.end` has it."""
        self._services.passivation.forget(self._mailbox)
        return await self._children.end(wait=not self._state.row.stubborn)

    # --- one input ---------------------------------------------------------------------------------------------------

    def feed(self, message: Input) -> None:
        """Step the machine, submit, put aside what must wait, perform the rest."""
        now, skew = self._time.next()
        before, message = self._state, self._record.watched(message, self._spec)
        if skew:
            before = shifted(before, skew)
            self._record.add(now, ClockJump(seconds=skew))
        taken = step(self._spec, before, message, now)
        self._state = taken.state
        self._record.add(now, message)
        if taken.commit is None:
            self._route_effects(taken.effects)
            return
        commit = taken.commit
        msgspec.structs.force_setattr(commit, "taken", self._record.carry())  # it has just been made; a copy costs more
        history = self._performer.history
        if history is not None:
            history.extend(commit.messages)
        if taken.state.row.stage in TERMINAL:
            self._closing = (before, message)
        durable: list[Effect] = []
        at_once: list[Effect] = []
        for effect in taken.effects:
            (durable if self._must_wait(effect) else at_once).append(effect)
        self._outbox.append(_Entry(tuple(durable), taken.state))
        frames = self._encoder.frames(commit.expected_last, commit.at, commit.events)
        self._services.store.submit(self._claim, commit, frames, self._deliver)
        for effect in at_once:
            self._perform(effect)

    def _must_wait(self, effect: Effect) -> bool:
        reads = isinstance(effect, CallModel | RunPhase)  # the thread, which must not be read before it is written
        return effect.durable or (reads and self._performer.history is None)

    def _route_effects(self, effects: tuple[Effect, ...]) -> None:
        """Effects without a commit: the durable ones wait for the commits before them."""
        for effect in effects:
            if self._outbox and self._must_wait(effect):
                entry = self._outbox[-1]
                self._outbox[-1] = _Entry((*entry.effects, effect), entry.state)
            else:
                self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        if self._outdated(effect):
            return
        self._performer.perform(effect, self._state)
        if self._performer.stopping is not None and self._stop_at is None:
            self._stop_at = trio.current_time() + self._performer.stopping + SLACK

    def _outdated(self, effect: Effect) -> bool:
        """True if the machine has gone on while the effect waited for its receipt, or the owner is about to go."""
        match effect:
            case StartCall():
                call = self._state.calls.get(effect.call_id)
                return (
                    self._state.row.cursor is not RunPosition.TOOLS
                    or call is None
                    or call.at is not CallPosition.BODY
                    or call.attempts != effect.attempt
                )
            case ParkCall():
                return self._state.row.cursor is not RunPosition.TOOLS
            case CallModel():
                return self._state.row.cursor is not RunPosition.INFERENCE or self._orders.draining
            case RunPhase():
                cursor = self._state.row.cursor
                asked = (
                    cursor is RunPosition.TOOLS if effect.call_id is not None else PHASE_OF.get(cursor) is effect.phase
                )
                return not asked or self._orders.draining  # the next owner asks again
            case StartTask():
                task = next((one for one in self._state.row.tasks if one.task_id == effect.task_id), None)
                wanted = task is not None and task.attempts == effect.attempt and task.status == "running"
                return not wanted or self._state.row.cursor in LEAVING
            case ReleaseCall() | CancelTask() | AnswerBody() | ReportFailure() | CancelWork() | FinishRun():
                return False

    def _deliver(self, receipt: Receipt) -> None:
        self._receipts.append(receipt)
        self._mailbox.nudge()

    def _received(self, receipt: Receipt) -> None:
        entry = self._outbox.pop(0)
        if receipt.kind == "inbox_ahead":
            self._undo_ending()
            return
        if receipt.kind == "failed" and receipt.error is not None:
            raise receipt.error
        if receipt.kind != "committed":
            raise ClaimLost(receipt.kind)
        if receipt.released is not None:
            self._services.directory.released(receipt.released)
        input_read = entry.state.row.inbox != self.durable.row.inbox
        self.durable = entry.state
        status = entry.state.row.status
        self._publish_rest(status, again=input_read)
        if status in (RunStatus.WAITING, RunStatus.DONE):
            self._services.board.rested(self._claim.run_id)
        for effect in entry.effects:
            self._perform(effect)

    def _publish_rest(self, status: RunStatus, *, again: bool = False) -> None:
        if status is RunStatus.CREATED:
            return  # whether it has a slot is the roster's own business
        resting = status is RunStatus.WAITING
        if resting is not self._resting:
            self._resting = resting
            self._services.passivation.forget(self._mailbox)
            self._leave_at = self._when_to_leave() if resting else math.inf
            again = True
        if again:
            self._services.directory.resting(self._claim.run_id, resting)

    def _when_to_leave(self) -> float:
        """When the run leaves memory if nothing comes, in trio time; it is nudged then."""
        if not self._services.directory.can_revive(self._state.info):
            return math.inf
        return self._services.passivation.rests(self._mailbox)

    def _undo_ending(self) -> None:
        """The terminal commit met commands that were accepted meanwhile: take it back, consume them, and end again."""
        if self._closing is None:
            raise ClaimLost("inbox_ahead without an ending")
        self._state, again = self._closing
        self._record.undo()
        self._closing = None
        history = self._performer.history
        if history is not None:
            self._performer.history = None
        self._behind = True
        self._children.inputs.append(again)

    # --- everything that waits ---------------------------------------------------------------------------------------

    def _turn(self) -> None:
        """Take everything that is there, without waiting."""
        while self._take_one():
            pass
        self._mailbox.heed()  # most nudges are our own commits' receipts, which have been taken

    def _take_one(self) -> bool:
        if self._children.crash is not None:
            raise self._children.crash
        if self._receipts:
            self._received(self._receipts.pop(0))
        elif self._closing is not None or self._behind:
            return False
        elif self._children.inputs:
            self._feed_child_input(self._children.inputs.pop(0))
        elif len(self._mailbox):
            self._feed_command(self._mailbox.peek())
            self._mailbox.pop()
        elif self._stop_at is not None:
            return self._stopped()
        elif self._state.row.cursor is RunPosition.ADMISSION and self._orders.admitted:
            return self._let_in()
        elif not self._outbox and self._children.streamed():
            for message in self._children.take_streams():
                self.feed(message)
        else:
            self._children.look()
            return bool(self._children.inputs) or self._fire_timers()
        return True

    def _feed_child_input(self, message: Input) -> None:
        """A child's input; what it streamed before goes first."""
        if isinstance(message, ModelAnswered | ModelFailed):
            self._feed_streamed(message)
        elif isinstance(message, CallReturned | CallRaised | CallSuspended):
            for late in self._children.close_call_stream(message.call_id, message.attempt):
                self.feed(late)
        elif isinstance(message, TaskStopped):
            for late in self._children.close_call_stream(message.task_id, message.attempt):
                self.feed(late)
        self.feed(message)

    def _feed_streamed(self, message: ModelAnswered | ModelFailed) -> None:
        """What a model streamed and nobody has taken yet. A text of which nothing was shown comes with the answer.

        But a text that is too large for one event comes in deltas first, also from a model that does not stream.
        """
        streams = self._children.messages.pop(message.message_id, None)
        flight = self._state.row.inference
        if flight is None:
            return
        shown = bool(flight.text_index)
        if not shown and isinstance(message, ModelAnswered) and is_large(text := "".join(message.response.text)):
            streams, shown = streams or self._children.streams(), True
            if not streams.text.waiting:
                streams.text.add(text)
        while streams is not None:
            text, reasoning = streams.text.take(last=True) if shown else "", streams.reasoning.take(last=True)
            if not text and not reasoning:
                return
            self.feed(ModelStreamed(message_id=message.message_id, text=text, reasoning=reasoning))

    def _feed_command(self, hint: Hint) -> None:
        if hint.position == self._state.row.inbox + 1:
            self.feed(CommandArrived(item=hint))
        elif hint.position > self._state.row.inbox:
            self._behind = True

    async def _catch_up(self) -> None:
        """Consume the inbox as the store has it: hints were lost, or came before what they follow."""
        record = await retry_until_available(self._services.store.load, self._claim.run_id)
        self._behind = False
        for item in () if record is None else record.inbox:
            if item.position == self._state.row.inbox + 1:
                self.feed(CommandArrived(item=item))

    def _let_in(self) -> bool:
        self._admitting = self._performer.history is None  # what ran before it in the thread may have left state
        if not self._admitting:
            self.feed(Admit())
        return not self._admitting

    async def _admit(self) -> None:
        """The run may work: with the state keys of its thread as they are now."""
        record = await retry_until_available(self._services.store.load, self._claim.run_id)
        self._admitting = False
        if record is not None and self._state.row.cursor is RunPosition.ADMISSION:
            self._check_keys(record)
            self.feed(Admit(state=record.state))

    def _check_keys(self, record: RunRecord) -> None:
        """The runs before it in the thread have written keys: does the agent declare them as they are stored?"""
        agent = self._performer.agent
        text = None if agent is None else invalid_state(agent.declared_state, StateSnapshot.restored(0, record.state))
        if text is not None:
            raise RunUnavailable(MISFIT, text)

    def _stopped(self) -> bool:
        """The work has been cancelled: when all of it has ended, or its grace is over, the machine is told."""
        if self._stop_at is None:
            return False
        if self._children.live and trio.current_time() < self._stop_at:
            return False
        self._stop_at = None
        self._performer.stopping = None
        self.feed(WorkStopped(stubborn=tuple(left.item for left in self._children.still_left().values())))
        return True

    # --- time --------------------------------------------------------------------------------------------------------

    def _fire_timers(self) -> bool:
        moment = self._state.row.next_due
        if moment is None or self._services.clock.now() < moment:
            return False
        late, expired = due(self._state, self._services.clock.now())
        if late:
            self.feed(DeadlinePassed())
            return True
        fresh = tuple(ticket_id for ticket_id in expired if ticket_id not in self._expiring)
        if fresh:
            self._expiring = self._expiring.union(fresh)
            self._start_expiry(fresh)
        return False

    def _start_expiry(self, ticket_ids: tuple[str, ...]) -> None:
        """An expiry goes through the same door as decisions do: the first one in wins. One follows the other."""
        directory, run_id = self._services.directory, self._claim.run_id

        async def expire(ticket_id: str, name: str) -> None:
            while True:
                decision = Decision(target=ticket_id, action="cancel", decision_id=name, decided_by="clock")
                answer = await directory.post(run_id, Command(command_id=name, kind="expire", decision=decision))
                if answer.code == "decision_id_conflict":
                    name += "+"  # somebody's command has that id
                elif answer.code in ("store_unavailable", "busy"):
                    await trio.sleep(1)
                else:
                    return

        async def body(_: Child) -> None:
            for ticket_id in ticket_ids:
                await expire(ticket_id, f"{EXPIRE}{ticket_id}")

        self._children.start(f"{EXPIRE}{ticket_ids[0]}", body, broke=None, ours=True)

    def _next_time(self) -> float:
        """When the loop has to look again though nothing comes, in trio time."""
        if self._stop_at is not None:
            return self._stop_at
        times = [self._children.next_look()]
        if self._state.row.next_due is not None:
            deadline = self._state.deadline
            moments = [ticket.expires_at for ticket in timed(self._state) if ticket.ticket_id not in self._expiring]
            times += [self._services.clock.trio_time(moment) for moment in (deadline, *moments) if moment is not None]
        return min(times)

    async def _wait(self) -> None:
        if (self._behind or self._admitting) and self._closing is None:
            return
        at = self._next_time()
        if at == math.inf:
            await self._mailbox.wait()
        else:
            with self._services.clock_watch.waiting(self._mailbox), trio.move_on_at(at):
                await self._mailbox.wait()

    def _over(self) -> bool:
        if self._outbox:
            return False
        if self._performer.finished or self._state.row.cursor is RunPosition.ENDED:
            return True
        if self._performer.agent is None and self._stop_at is None and not self._behind:
            return True  # without the agent only a cancel can be worked on, and there is none (any more)
        if self._orders.draining:
            return not self._busy()
        rested = self._resting is True and trio.current_time() >= self._leave_at
        self.passive = rested and self._nothing_to_wait_for()
        return self.passive

    def _nothing_to_wait_for(self) -> bool:
        """True if the run is only rows: nothing works or has come, it does not end, nothing hides from a cancel."""
        if self._state.row.termination is not None:
            return False
        idle = not (self._busy() or self._behind or len(self._mailbox) or self._children.live_left())
        return idle and not any(key.startswith(EXPIRE) for key in self._children.live)

    def _busy(self) -> bool:
        """True while something works; a parked call, a wait to ask again and an expiry can go on elsewhere."""
        live = self._children.live.values()
        working = (c for c in live if c.ticket is None and not c.pausing and not c.key.startswith(EXPIRE))
        return any(working) or bool(self._children.inputs)
