"""What is followed over one connection, decided without I/O.

The wire has one subscription per run and connection; a client may have any number of readers of a run, each at its own
place. A run's subscription is steered by one rule, which is looked at whenever something has changed:

    goal  = the lowest cursor of the readers that have room; none if nobody has
    no goal, and subscribed          -> unsubscribe: nobody could take an event now
    goal, and not subscribed         -> subscribe after the goal
    goal is before the position      -> subscribe anew there (a reader came, or has caught up); the others drop what
                                        they have: an event is taken by those whose next one it is, and by no others
    goal is far behind the position  -> subscribe anew there: who needed the events between is full or gone

So a slow reader holds up nobody, buffers no more than its limit, and loses nothing: it is served in stretches from
where it is. The states of a subscription on the wire:

    IDLE --subscribe--> ASKED --gw.subscribed, gw.reset--> OPEN --gw.unsubscribed, unsubscribe, a hole--> IDLE
                          |                                  |
                          +------------ subscribe -----------+        a lost connection: IDLE from everywhere

Events count only in OPEN: what still comes of a subscription that was replaced is not what was asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto
from functools import partial
from math import inf
from typing import Final, Literal, Protocol

import attrs

from greenroom.actors.contract.envelope import Event
from greenroom.actors.contract.events import TERMINAL_EVENTS
from greenroom.actors.contract.plain import JSONObject
from greenroom.actors.errors import GreenroomError, RunDegradedError, UnknownRun

from ..protocol.down import Error, Reset, Subscribed, Unsubscribed
from ..protocol.up import Subscribe, Unsubscribe
from .errors import refusal

JUMP: Final = 256
"""Events that nobody needs are let pass up to so many, if they are there; beyond that a new subscription is cheaper."""


class EventReader(Protocol):
    """Somebody who follows a run.

    Attributes:
        cursor: sequence of the last event that it has taken.
        epoch: of the log that the cursor belongs to; None: of whichever is there.
        strayed: the log ends before its cursor.
    """

    cursor: int
    epoch: str | None
    strayed: bool

    @property
    def hungry(self) -> bool:
        """It has room, and has not ended."""

    def take(self, event: Event, size: int) -> None:
        """Take the event that follows its cursor; `size` is that of its frame."""

    def begin_again(self, reason: Literal["epoch", "ahead"], sequence: int, snapshot: JSONObject) -> None:
        """Forget what was before; what follows comes after `sequence`."""

    def end(self, error: Callable[[], GreenroomError] | None) -> None:
        """Nothing follows; `error` makes what tells why, None after the terminal event."""


class SubscriptionState(Enum):
    """Where a subscription stands on the wire; see the module."""

    IDLE = auto()
    ASKED = auto()
    OPEN = auto()


@attrs.frozen
class SubscriptionGoal:
    """Where a subscription should be. lost: the cursor is not of this log, and the answer is a gw.reset."""

    after: int
    epoch: str | None = None
    lost: bool = False


@attrs.define(eq=False)
class RunSubscription:
    """One run over one connection.

    Attributes:
        readers: who follows it.
        state: see the module. id: of the newest subscribe.
        position: sequence of the last event of the stream. type: its type, if it came over this subscription.
        known: sequence of the newest event when it was subscribed.
        asked: the goal of the newest subscribe.
        not_before: when it may be asked for again, after the gateway could not serve it.
    """

    run_id: str
    readers: list[EventReader] = attrs.field(factory=list)
    state: SubscriptionState = SubscriptionState.IDLE
    id: str = ""
    position: int = 0
    type: str | None = None
    known: int = 0
    asked: SubscriptionGoal | None = None
    not_before: float = 0.0
    _suspect: int = -1

    def __repr__(self) -> str:
        return f"<Subscription to {self.run_id}: {self.state.name} at {self.position}, {len(self.readers)} readers>"

    def _goal(self, epoch: str) -> SubscriptionGoal | None:
        hungry = [reader for reader in self.readers if reader.hungry]
        if not hungry:
            return None
        for reader in hungry:
            foreign = reader.epoch not in (None, epoch)
            if reader.cursor and (foreign or reader.strayed):
                return SubscriptionGoal(reader.cursor, reader.epoch, lost=True)
        return SubscriptionGoal(min(reader.cursor for reader in hungry), epoch)

    def _misplaced(self, goal: SubscriptionGoal) -> bool:
        """Whether the subscription on the wire is not the one that serves the goal."""
        if goal.lost:
            return self.asked != goal
        newest = max(self.position, self.known)
        if self.state is SubscriptionState.OPEN and any(one.hungry and one.cursor > newest for one in self.readers):
            return True  # the answer tells whether the log goes so far
        return not self.position <= goal.after <= min(self.position + JUMP, newest)

    def frame(self, epoch: str, now: float, new_id: Callable[[], str]) -> Subscribe | Unsubscribe | None:
        """The frame that brings the subscription to where it should be; None if it is there, or has to wait."""
        goal = self._goal(epoch)
        if goal is None:
            if self.state is SubscriptionState.IDLE:
                return None
            self._idle()
            return Unsubscribe(run=self.run_id)
        if self.state is SubscriptionState.IDLE and now < self.not_before:
            return None
        if self.state is not SubscriptionState.IDLE and not self._misplaced(goal):
            return None
        self.state, self.id, self.asked = SubscriptionState.ASKED, new_id(), goal
        self.position = self.known = goal.after
        return Subscribe(run=self.run_id, after=goal.after, epoch=goal.epoch if goal.after else None, id=self.id)

    def _idle(self) -> None:
        self.state, self.asked, self._suspect = SubscriptionState.IDLE, None, -1

    # --- what the gateway says ---------------------------------------------------------------------------------------

    def subscribed(self, frame: Subscribed, epoch: str) -> None:
        """The events after `frame.after` follow."""
        if self.state is SubscriptionState.IDLE or frame.id != self.id:
            return
        self.state, self.position, self.type, self.known = SubscriptionState.OPEN, frame.after, None, frame.head
        for reader in self.readers:
            if reader.cursor > frame.head:
                reader.strayed = True
            elif self.asked is not None and self.asked.lost and reader.cursor == self.asked.after:
                reader.epoch = epoch  # the gateway knows the cursor after all
            elif reader.epoch is None:
                reader.epoch = epoch

    def reset(self, frame: Reset, epoch: str) -> None:
        """The cursor that was asked for is not of this log."""
        if self.state is SubscriptionState.IDLE:
            return
        asked, self.state = self.asked, SubscriptionState.OPEN
        self.position, self.type, self.known = frame.sequence, None, frame.sequence
        for reader in self.readers:
            foreign = reader.cursor > 0 and reader.epoch not in (None, epoch)
            named = asked is not None and reader.cursor == asked.after
            if foreign or named or reader.cursor > frame.sequence:
                reader.begin_again(frame.reason, frame.sequence, frame.snapshot)
                reader.epoch, reader.strayed = epoch, False

    def event(self, event: Event, size: int, now: float, patience: float) -> bool:
        """The next event, one that is known, or one after a hole. Returns whether a frame may have to be sent."""
        if self.state is not SubscriptionState.OPEN or event.sequence <= self.position:
            return False
        if event.sequence > self.position + 1:
            self._lost(now, patience)
            return True
        self.position, self.type = event.sequence, event.type
        full = False
        for reader in self.readers:
            if reader.cursor == event.sequence - 1 and reader.hungry:
                reader.take(event, size)
                full = full or not reader.hungry
        return full

    def _lost(self, now: float, patience: float) -> None:
        """Events are missing: subscribe again; at once only if some have come since the last time."""
        if self.type is None:
            self.not_before = now + patience
        self._idle()

    def unsubscribed(self, frame: Unsubscribed, now: float, patience: float) -> None:
        """No more events come: the run has ended, or nobody works on it, or it is gone."""
        if self.state is not SubscriptionState.OPEN or frame.reason == "asked":
            return  # of a subscription that was replaced or given up
        ended = self.position >= self.known and (self.type is None or self.type in TERMINAL_EVENTS)
        if frame.reason == "done" and not ended:
            self._lost(now, patience)
            return
        self._idle()
        match frame.reason:
            case "gone":
                self._end(self.readers, partial(UnknownRun, self.run_id))
            case "degraded":
                error = partial(
                    RunDegradedError, self.run_id, frame.code or "degraded", frame.detail or "nobody works on it"
                )
                self._end([one for one in self.readers if one.cursor >= self.position], error)
            case _:
                self._end([one for one in self.readers if one.cursor >= self.position], None)

    def refused(self, frame: Error, now: float, patience: float) -> bool:
        """The subscription was refused; returns whether it was this one."""
        if self.state is SubscriptionState.IDLE or frame.id != self.id:
            return False
        self._idle()
        if frame.retry:
            self.not_before = now + patience
        else:
            error = partial(refusal, frame.code, frame.message, run_id=self.run_id, current=frame.current)
            self._end(self.readers, error)
        return True

    def head(self, sequence: int) -> None:
        """A tick has said what the newest event is. Twice without any in between: a tail was lost."""
        if self.state is SubscriptionState.OPEN and sequence > self.position:
            if self._suspect == self.position:
                self._idle()
            else:
                self._suspect = self.position

    def disconnected(self) -> None:
        """The connection is gone, and the subscription with it."""
        self._idle()
        self.not_before = 0.0

    def _end(self, readers: list[EventReader], error: Callable[[], GreenroomError] | None) -> None:
        for reader in list(readers):
            reader.end(error)


@attrs.define(eq=False)
class RunSubscriptions:
    """All runs that are followed over one connection.

    Attributes:
        epoch: of the gateway's log, from gw.welcome.
        patience: seconds before a subscription is asked for again that could not be served.
    """

    patience: float
    epoch: str = ""
    _runs: dict[str, RunSubscription] = attrs.field(factory=dict)
    _ids: int = 0

    def __repr__(self) -> str:
        return f"<Subscriptions to {len(self._runs)} runs>"

    def join(self, run_id: str, reader: EventReader) -> None:
        """A reader begins."""
        self._runs.setdefault(run_id, RunSubscription(run_id)).readers.append(reader)

    def leave(self, run_id: str, reader: EventReader) -> None:
        """A reader ends. Doing it twice is harmless."""
        one = self._runs.get(run_id)
        if one is not None and reader in one.readers:
            one.readers.remove(reader)

    def frame(self, now: float) -> Subscribe | Unsubscribe | None:
        """The next frame that is to be sent; None if all is as it should be."""
        for one in list(self._runs.values()):
            frame = one.frame(self.epoch, now, self._new_id)
            if not one.readers:
                del self._runs[one.run_id]
            if frame is not None:
                return frame
        return None

    def due(self, now: float) -> float:
        """When the next subscription may be asked for again; infinity if none waits for that."""
        return min((one.not_before for one in self._runs.values() if one.not_before > now), default=inf)

    def _new_id(self) -> str:
        self._ids += 1
        return f"follow-{self._ids}"

    # --- what the gateway says ---------------------------------------------------------------------------------------

    def event(self, event: Event, size: int, now: float) -> bool:
        """An event of some run. Returns whether a frame may have to be sent."""
        one = self._runs.get(event.run_id)
        return one is not None and one.event(event, size, now, self.patience)

    def answer(self, frame: Subscribed | Reset | Unsubscribed, now: float) -> None:
        """A frame about one subscription."""
        one = self._runs.get(frame.run)
        if one is None:
            return
        match frame:
            case Subscribed():
                one.subscribed(frame, self.epoch)
            case Reset():
                one.reset(frame, self.epoch)
            case Unsubscribed():
                one.unsubscribed(frame, now, self.patience)

    def refused(self, frame: Error, now: float) -> bool:
        """An error; returns whether it was about a subscription."""
        return any(one.refused(frame, now, self.patience) for one in self._runs.values())

    def heads(self, heads: Mapping[str, int]) -> None:
        """What a tick says of the newest events."""
        for run_id, sequence in heads.items():
            one = self._runs.get(run_id)
            if one is not None:
                one.head(sequence)

    def connected(self, epoch: str) -> None:
        """A new connection: nothing is subscribed on it yet."""
        self.disconnected()
        self.epoch = epoch

    def disconnected(self) -> None:
        """The connection is gone."""
        for one in self._runs.values():
            one.disconnected()

    def end(self, error: Callable[[], GreenroomError]) -> None:
        """There will be no connection any more."""
        for one in self._runs.values():
            for reader in list(one.readers):
                reader.end(error)
