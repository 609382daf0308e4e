"""The subscriptions of one connection, decided without I/O.

On the wire there is one subscription per run and connection; a client may have any number of readers of a run, each
with its own cursor. One rule, evaluated after every change, controls the subscription of a run:

    goal  = the lowest cursor of the readers that have room; none if all readers are full
    no goal, and subscribed          -> unsubscribe: no reader could take an event now
    goal, and not subscribed         -> subscribe after the goal
    goal is before the position      -> subscribe again there (a reader joined, or has caught up); a reader takes an
                                        event only if the event is its next one, so the others skip the repeated events
    goal is far behind the position  -> subscribe again there: the readers that needed the events between are full or
                                        have left

A slow reader therefore delays no other reader, buffers no more than its limit, and loses nothing: it receives events in
stretches from its cursor on. The states of a subscription on the wire:

    IDLE --subscribe--> ASKED --gw.subscribed, gw.reset--> OPEN --gw.unsubscribed, unsubscribe, a gap--> IDLE
                          |                                  |
                          +------------ subscribe -----------+        a lost connection: IDLE from everywhere

After gw.renamed an OPEN subscription is STALE until the gateway's gw.reset. Events count only in OPEN: late events of a
replaced subscription do not belong to the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto
from functools import partial
from math import inf
from typing import Final, Literal, Protocol

import attrs

from greenroom.actors.contract.catalogue import TERMINAL_EVENTS
from greenroom.actors.contract.envelope import Event
from greenroom.actors.contract.plain import JSONObject
from greenroom.actors.errors import GreenroomError, RunDegradedError, UnknownRun

from ..protocol.down import Error, Renamed, Reset, Subscribed, Unsubscribed
from ..protocol.up import Subscribe, Unsubscribe
from .errors import refusal

JUMP: Final = 256
"""Unneeded events are skipped up to this number if they are available; beyond it a new subscription is cheaper."""


class EventReader(Protocol):
    """A reader of a run.

    Attributes:
        cursor: Sequence of the last event that the reader has taken.
        epoch: Epoch of the log that the cursor belongs to; None accepts any log.
        strayed: True if the log ends before the cursor.
    """

    cursor: int
    epoch: str | None
    strayed: bool

    @property
    def hungry(self) -> bool:
        """True if the reader has room and has not ended."""

    def take(self, event: Event, size: int) -> None:
        """Take the event that follows the cursor; `size` is the size of its frame."""

    def begin_again(self, reason: Literal["epoch", "ahead"], sequence: int, snapshot: JSONObject) -> None:
        """Discard all earlier events; the next events follow `sequence`."""

    def end(self, error: Callable[[], GreenroomError] | None) -> None:
        """End the reader; `error` creates the exception to raise, None after the terminal event."""


class SubscriptionState(Enum):
    """The state of a subscription on the wire; see the module."""

    IDLE = auto()
    ASKED = auto()
    OPEN = auto()
    STALE = auto()


@attrs.frozen
class SubscriptionGoal:
    """The wanted position of a subscription. `unknown_cursor`: the cursor is not of this log.

    The gateway will answer with gw.reset.
    """

    after: int
    epoch: str | None = None
    unknown_cursor: bool = False


@attrs.define(eq=False)
class RunSubscription:
    """The subscription to one run on one connection.

    Attributes:
        readers: The readers of the run.
        state: See the module.
        id: Id of the newest subscribe.
        position: Sequence of the last received event.
        type: Type of that event, if this subscription delivered the event.
        known: Sequence of the newest event at the time of the subscribe.
        requested: The goal of the newest subscribe.
        not_before: Earliest time of the next subscribe, after the gateway could not serve one.
    """

    run_id: str
    readers: list[EventReader] = attrs.field(factory=list)
    state: SubscriptionState = SubscriptionState.IDLE
    id: str = ""
    position: int = 0
    type: str | None = None
    known: int = 0
    requested: SubscriptionGoal | None = None
    not_before: float = 0.0
    _suspect: int = -1

    def __repr__(self) -> str:
        return f"<RunSubscription to {self.run_id}: {self.state.name} at {self.position}, {len(self.readers)} readers>"

    def _goal(self, epoch: str) -> SubscriptionGoal | None:
        hungry = [reader for reader in self.readers if reader.hungry]
        if not hungry:
            return None
        for reader in hungry:
            foreign = reader.epoch not in (None, epoch)
            if reader.cursor and (foreign or reader.strayed):
                return SubscriptionGoal(reader.cursor, reader.epoch, unknown_cursor=True)
        return SubscriptionGoal(min(reader.cursor for reader in hungry), epoch)

    def _misplaced(self, goal: SubscriptionGoal) -> bool:
        """Return True if the subscription on the wire does not serve the goal."""
        if goal.unknown_cursor:
            return self.requested != goal
        newest = max(self.position, self.known)
        if self.state is SubscriptionState.OPEN and any(
            reader.hungry and reader.cursor > newest for reader in self.readers
        ):
            return True  # the gateway's answer shows whether the log extends that far
        return not self.position <= goal.after <= min(self.position + JUMP, newest)

    def frame(self, epoch: str, now: float, new_id: Callable[[], str]) -> Subscribe | Unsubscribe | None:
        """Return the frame that moves the subscription to its goal; None if it is there, or has to wait."""
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
        self.state, self.id, self.requested = SubscriptionState.ASKED, new_id(), goal
        self.position = self.known = goal.after
        return Subscribe(run=self.run_id, after=goal.after, epoch=goal.epoch if goal.after else None, id=self.id)

    def _idle(self) -> None:
        self.state, self.requested, self._suspect = SubscriptionState.IDLE, None, -1

    # --- what the gateway says ---------------------------------------------------------------------------------------

    def renamed(self, epoch: str) -> None:
        """Handle gw.renamed: gw.reset follows, pushed by the gateway or as the answer of the pending subscribe."""
        goal = self._goal(epoch)
        self.requested = goal if goal is not None and goal.unknown_cursor else None
        if self.state is SubscriptionState.OPEN:
            self.state = SubscriptionState.STALE

    def subscribed(self, frame: Subscribed, epoch: str) -> None:
        """Handle gw.subscribed: the events after `frame.after` follow."""
        if self.state is SubscriptionState.IDLE or frame.id != self.id:
            return
        self.state, self.position, self.type, self.known = SubscriptionState.OPEN, frame.after, None, frame.head
        for reader in self.readers:
            if reader.cursor > frame.head:
                reader.strayed = True
            elif self.requested is not None and self.requested.unknown_cursor and reader.cursor == self.requested.after:
                reader.epoch = epoch  # the gateway accepted the cursor: it is of this log
            elif reader.epoch is None:
                reader.epoch = epoch

    def reset(self, frame: Reset, epoch: str) -> None:
        """Handle gw.reset: the requested cursor is not of this log."""
        if self.state is SubscriptionState.IDLE:
            return
        goal, self.state = self.requested, SubscriptionState.OPEN
        self.position, self.type, self.known = frame.sequence, None, frame.sequence
        for reader in self.readers:
            foreign = reader.cursor > 0 and reader.epoch not in (None, epoch)
            names_goal = goal is not None and reader.cursor == goal.after
            if foreign or names_goal or reader.cursor > frame.sequence:
                reader.begin_again(frame.reason, frame.sequence, frame.snapshot)
                reader.epoch, reader.strayed = epoch, False

    def event(self, event: Event, size: int, now: float, patience: float) -> bool:
        """Handle an event: the next one, a known one, or one after a gap.

        Return True if a frame may have to be sent.
        """
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
        """Subscribe again because events are missing; without delay only if this subscription has delivered events."""
        if self.type is None:
            self.not_before = now + patience
        self._idle()

    def unsubscribed(self, frame: Unsubscribed, now: float, patience: float) -> None:
        """Handle gw.unsubscribed: the run has ended, has no owner, or was deleted."""
        if self.state not in (SubscriptionState.OPEN, SubscriptionState.STALE) or frame.reason == "asked":
            return  # late answer to a replaced or cancelled subscription
        at_end = self.position >= self.known and (self.type is None or self.type in TERMINAL_EVENTS)
        if frame.reason == "done" and not at_end:
            self._lost(now, patience)
            return
        self._idle()
        match frame.reason:
            case "gone":
                self._end(self.readers, partial(UnknownRun, self.run_id))
            case "degraded":
                error = partial(
                    RunDegradedError, self.run_id, frame.code or "degraded", frame.detail or "no process works on it"
                )
                self._end([reader for reader in self.readers if reader.cursor >= self.position], error)
            case _:
                self._end([reader for reader in self.readers if reader.cursor >= self.position], None)

    def refused(self, frame: Error, now: float, patience: float) -> bool:
        """Handle gw.error; return True if the error is about this subscription."""
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
        """Handle the head in a gw.tick.

        Two heads beyond an unchanged position mean that events at the end were lost.
        """
        if self.state is SubscriptionState.OPEN and sequence > self.position:
            if self._suspect == self.position:
                self._idle()
            else:
                self._suspect = self.position

    def disconnected(self) -> None:
        """Reset the subscription after a lost connection."""
        self._idle()
        self.not_before = 0.0

    def _end(self, readers: list[EventReader], error: Callable[[], GreenroomError] | None) -> None:
        for reader in list(readers):
            reader.end(error)


@attrs.define(eq=False)
class RunSubscriptions:
    """The runs that are followed on one connection.

    Attributes:
        epoch: Epoch of the gateway's log, from gw.welcome.
        patience: Seconds before a subscribe is repeated that the gateway could not serve.
    """

    patience: float
    epoch: str = ""
    _runs: dict[str, RunSubscription] = attrs.field(factory=dict)
    _ids: int = 0

    def __repr__(self) -> str:
        return f"<RunSubscriptions to {len(self._runs)} runs>"

    def join(self, run_id: str, reader: EventReader) -> None:
        """Add a reader."""
        self._runs.setdefault(run_id, RunSubscription(run_id)).readers.append(reader)

    def leave(self, run_id: str, reader: EventReader) -> None:
        """Remove a reader. Repeated calls have no effect."""
        subscription = self._runs.get(run_id)
        if subscription is not None and reader in subscription.readers:
            subscription.readers.remove(reader)

    def frame(self, now: float) -> Subscribe | Unsubscribe | None:
        """Return the next frame to send; None if every subscription is at its goal."""
        for subscription in list(self._runs.values()):
            frame = subscription.frame(self.epoch, now, self._new_id)
            if not subscription.readers:
                del self._runs[subscription.run_id]
            if frame is not None:
                return frame
        return None

    def due(self, now: float) -> float:
        """Return the earliest time at which a delayed subscribe may be sent; infinity if none is delayed."""
        return min(
            (subscription.not_before for subscription in self._runs.values() if subscription.not_before > now),
            default=inf,
        )

    def _new_id(self) -> str:
        self._ids += 1
        return f"follow-{self._ids}"

    # --- what the gateway says ---------------------------------------------------------------------------------------

    def event(self, event: Event, size: int, now: float) -> bool:
        """Handle an event of any run. Return True if a frame may have to be sent."""
        subscription = self._runs.get(event.run_id)
        return subscription is not None and subscription.event(event, size, now, self.patience)

    def receive(self, frame: Subscribed | Reset | Unsubscribed | Renamed, now: float) -> None:
        """Handle a frame about one subscription, or about all (gw.renamed: the gateway resets each)."""
        if isinstance(frame, Renamed):
            self.epoch = frame.epoch
            for each in self._runs.values():
                each.renamed(frame.epoch)
            return
        subscription = self._runs.get(frame.run)
        if subscription is None:
            return
        match frame:
            case Subscribed():
                subscription.subscribed(frame, self.epoch)
            case Reset():
                subscription.reset(frame, self.epoch)
            case Unsubscribed():
                subscription.unsubscribed(frame, now, self.patience)

    def refused(self, frame: Error, now: float) -> bool:
        """Handle an error; return True if the error is about a subscription."""
        return any(subscription.refused(frame, now, self.patience) for subscription in self._runs.values())

    def heads(self, heads: Mapping[str, int]) -> None:
        """Handle the heads of a gw.tick."""
        for run_id, sequence in heads.items():
            subscription = self._runs.get(run_id)
            if subscription is not None:
                subscription.head(sequence)

    def connected(self, epoch: str) -> None:
        """Begin a new connection, which has no subscriptions yet."""
        self.disconnected()
        self.epoch = epoch

    def disconnected(self) -> None:
        """Reset all subscriptions after a lost connection."""
        for subscription in self._runs.values():
            subscription.disconnected()

    def end(self, error: Callable[[], GreenroomError]) -> None:
        """End all readers: the connection was given up."""
        for subscription in self._runs.values():
            for reader in list(subscription.readers):
                reader.end(error)
