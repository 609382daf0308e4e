"""The fan-out of new events: one task, a pump, per run that has followers.

In each round a pump writes the new events to every up-to-date connection, without waiting. Rounds clock themselves, so
slices grow with the load. A connection whose socket is full continues in its own writer until it has caught up. There
is no queue per connection, and no event is dropped: delivery to each connection is in order and without a gap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import trio

from greenroom.actors.services.event_buffer import EventBuffer, EventSlice
from greenroom.supervision import Raised, acapture

from ..protocol.codes import INTERNAL, CloseCode
from ..protocol.ws_output import SessionOutput
from .frame_stream import FrameStream
from .subscription import Subscription, as_text_frames

BREATH: Final = 64
"""Writes between two checkpoints of a pump."""


class Receiver(Protocol):
    """A connection that receives events.

    Attributes:
        stream: The stream of the connection.
        output: The output of its session.
    """

    stream: FrameStream
    output: SessionOutput

    def touch(self, subscription: Subscription, /) -> None:
        """Give a subscription a turn in the connection's writer."""

    def finish_writing(self) -> None:
        """Wake the writer: a frame has been written in part."""

    def leave(self, code: CloseCode, reason: str = "", retry_after_ms: int | None = None) -> None:
        """Send the reason and close the connection."""


class RunPumps:
    """The pumps of a gateway. They run in a nursery of its connections; a pump's failure is reported to `tell`."""

    def __init__(self, tell: Callable[[object, BaseException], None]) -> None:
        self._tell = tell
        self._pumps: dict[str, RunPump] = {}
        self._nursery: trio.Nursery

    def open(self, nursery: trio.Nursery) -> None:
        """Run pumps in this nursery from now on; the pumps of an earlier nursery have ended with it."""
        self._nursery = nursery
        self._pumps.clear()

    def __repr__(self) -> str:
        return f"<RunPumps of {len(self._pumps)} runs>"

    def join(self, conversation: Receiver, subscription: Subscription) -> None:
        """Add a connection to the round of its run's pump.

        The first connection starts the pump, the last one ends it.
        """
        pump, listeners = self._pumps.get(subscription.run), subscription.follower.signal.listeners
        if pump is None:
            pump = self._pumps[subscription.run] = RunPump(subscription.follower.tail)
            self._nursery.start_soon(self._go_round, subscription.run, pump)
        pump.places[subscription] = conversation
        listeners.add(pump.wake)

        def unregister() -> None:
            del pump.places[subscription]
            if not pump.places:
                listeners.discard(pump.wake)
                self._forget(subscription.run, pump)
                pump.stop()

        subscription.on_close(unregister)

    async def _go_round(self, run: str, pump: RunPump) -> None:
        result = await acapture(pump.run)
        if isinstance(result, Raised):  # which must not end all connections
            self._tell(pump, result.error)
            self._forget(run, pump)
            for conversation in set(pump.places.values()):
                conversation.leave(INTERNAL)

    def _forget(self, run: str, pump: RunPump) -> None:
        if self._pumps.get(run) is pump:
            del self._pumps[run]


class RunPump:
    """The rounds of one run.

    Attributes:
        places: The connections on the round, by subscription.
    """

    def __init__(self, tail: EventBuffer) -> None:
        self._tail = tail
        self.places: dict[Subscription, Receiver] = {}
        self._lot = trio.lowlevel.ParkingLot()
        self._head = tail.head
        self._news = self._stirred = False
        self._found: EventSlice | None = None  # of this round, and its frames
        self._data = b""
        self._scope = trio.CancelScope()

    def __repr__(self) -> str:
        return f"<RunPump to {len(self.places)} connections>"

    def wake(self) -> None:
        """Start a round: there are new events, or (stirred) another change of the run that all followers must check."""
        head = self._tail.head
        self._stirred = self._stirred or head == self._head
        self._head = head
        self._again()

    def _again(self) -> None:
        self._news = True
        self._lot.unpark_all()

    def stop(self) -> None:
        """Stop the pump: the run has no follower left."""
        self._scope.cancel()

    async def run(self) -> None:
        """Make rounds until stopped."""
        with self._scope:
            while True:
                if not self._news:
                    await self._lot.park()
                self._news = False
                # the checkpoint below lets further events arrive, which the next round writes together
                await self._round()
                await trio.lowlevel.checkpoint()

    async def _round(self) -> None:
        written, (stirred, self._stirred) = 0, (self._stirred, False)
        for subscription, conversation in tuple(self.places.items()):
            if subscription.source.over:
                continue
            self._serve(subscription, conversation, stirred=stirred)
            written += 1
            if written % BREATH == 0:
                await trio.lowlevel.checkpoint()
        self._found, self._data = None, b""

    def _serve(self, subscription: Subscription, conversation: Receiver, *, stirred: bool) -> None:
        """Write the new events to one connection if it takes them without a wait, else leave them to its writer."""
        source, follower, output = subscription.source, subscription.follower, conversation.output
        if not output.free(source):
            conversation.touch(subscription)
            return
        events = follower.peek()
        if events is None:
            if stirred or self._tail.head != follower.after:
                conversation.touch(subscription)
            return
        if events is not self._found:  # most connections of a round get the same slice
            self._found, self._data = events, events.encoded(as_text_frames)
        sent = conversation.stream.try_send(self._data)
        if sent in ("sent", "partly"):
            follower.given(events)
            output.advance(source, events.first, events.last)
        if sent == "partly":
            conversation.finish_writing()
        if sent != "sent" or follower.ended:
            conversation.touch(subscription)
        elif events.last < self._tail.head:
            self._again()
