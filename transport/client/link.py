"""`ClientLink`: the connections of one client, without I/O: what is sent when, what an answer means, what follows.

An adapter owns the bytes and the clock (`trio_connection.py`, `aio/client_connection.py`). For each connection the
adapter calls `begin`, then `receive` with what arrives, sends what `send` returns, and looks at `watch`:

    begin --upgrade accepted--> greeting --gw.welcome--> welcomed --+--> ConnectionLost, from receive, send or watch
      +-----------------------------+-------------------------------+
    lost -> seconds until the next connection; None: there is none

Outgoing frames are not queued: `send` asks `calls`, `lists` and `runs` for the next frame, so a lost connection leaves
no stale frames.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterable
from functools import partial
from math import inf
from typing import Final

import attrs

from greenroom.actors.contract.envelope import Event
from greenroom.supervision.border import Raised, capture
from greenroom.supervision.reporting import report

from ..protocol.codes import SUBPROTOCOL
from ..protocol.down import (
    Ack,
    Bye,
    CountsChanged,
    Error,
    Frame,
    Renamed,
    Reset,
    RunChanged,
    Runs,
    Subscribed,
    Tick,
    Unsubscribed,
    Welcome,
)
from ..protocol.limits import Limits
from ..protocol.up import Hello, Ping
from . import close_reasons, frames
from .close_reasons import ConnectionLost
from .endpoint import Endpoint
from .errors import ClientClosed, ConnectError, NotAGateway
from .list_buffer import RunLists
from .pending_requests import PendingAnswers
from .subscriptions import RunSubscriptions
from .timing import ConnectionTiming, RateLimit
from .wire import ClientWire, Rejected, WireClosed

logger: Final = logging.getLogger("greenroom.client")


@attrs.frozen(kw_only=True)
class ConnectionState:
    """The state of a client's connection.

    Attributes:
        connected: True if the connection is open and welcomed.
        reason: Why there is no connection; empty if connected.
        wait: Seconds until the next attempt.
        attempt: Failures in a row.
    """

    connected: bool
    reason: str = ""
    wait: float = 0.0
    attempt: int = 0


class ClientLink:
    """The connections of one client, one after the other.

    Attributes:
        address: The gateway's address.
        calls, runs, lists: Pending requests, followed runs and watched lists; each decides which frame to send next.
        welcome: The newest gw.welcome; None before the first.
        welcomed: The present connection is welcomed.
        state: The present state.
        closing: The client ends; the present connection is the last one.
    """

    def __init__(
        self,
        address: Endpoint,
        *,
        token: str | None,
        program: str,
        pace: ConnectionTiming,
        poke: Callable[[], None],
        on_change: Callable[[ConnectionState], None] | None = None,
    ) -> None:
        """`poke`: wakes the adapter, because `send` may have something; `program`: name and version of the client."""
        self.address, self.token, self.poke = address, token, poke
        self.calls, self.runs, self.lists = PendingAnswers(poke), RunSubscriptions(pace.patience), RunLists()
        self.welcome: Welcome | None = None
        self.welcomed = self.closing = False
        self.state = ConnectionState(connected=False, reason="not connected yet")
        self._program, self._pace, self._on_change = program, pace, on_change
        self._gone: ConnectError | None = None
        self._wire: ClientWire | None = None
        self._allowance = RateLimit(1.0)
        self._deadline = self._began = self._heard = 0.0
        self._attempt = 0
        self._pinged = self._ping = self._turn = False
        self._bye: Bye | None = None

    def __repr__(self) -> str:
        """Show the address and the state."""
        return f"<ClientLink to {self.address.url}: {'connected' if self.state.connected else self.state.reason}>"

    def check(self) -> None:
        """Check that the client is still usable.

        Raises:
            ConnectError: The connection was given up.
        """
        if self._gone is not None:
            raise self._gone.again()

    # --- one connection ----------------------------------------------------------------------------------------------

    def begin(self, now: float) -> float:
        """Begin a connection, and return the time by which it has to be welcomed."""
        self._began, self._deadline = now, now + self._pace.handshake
        self.welcomed, self._bye, self._ping, self._pinged = False, None, False, False
        headers = [(b"user-agent", self._program.encode())]
        if self.token:
            headers.append((b"authorization", f"Bearer {self.token}".encode()))
        address = self.address
        self._wire = ClientWire(address.authority, address.path, subprotocol=SUBPROTOCOL, headers=headers)
        return self._deadline

    def receive(self, data: bytes, now: float) -> None:
        """Act on bytes of the gateway; none: the connection has ended.

        Raises:
            ConnectionLost: The connection has ended.
        """
        wire = self._of_connection()
        try:
            for text in self._messages(wire, data):
                self._act(self._frame(text), len(text), now)
        except Rejected as error:
            raise close_reasons.rejected(self.address, error.status, error.body) from None
        except WireClosed as error:
            raise self._parting(error) from None
        self.poke()

    def send(self, now: float) -> bytes:
        """Return the next bytes to send; empty if there are none now.

        Raises:
            ConnectionLost: The gateway has closed the connection, and has its answer.
        """
        wire = self._of_connection()
        data = wire.take()
        if data:
            return data
        if wire.ended is not None:
            if not self.closing:
                raise self._parting(wire.ended)
            return b""
        if not self.welcomed or now < self._allowance.free_at:
            return b""
        text = self._next(now)
        if text is not None:
            self._allowance.spend(now)
            wire.send(text)
        elif self.closing:
            wire.close()
        return wire.take()

    def send_again_at(self, now: float) -> float:
        """Return the time at which `send` may have bytes without a poke."""
        if not self.welcomed or self._of_connection().ended is not None:
            return inf
        return max(self._allowance.free_at, now) if now < self._allowance.free_at else self.runs.due(now)

    def watch(self, now: float) -> float:
        """Look whether the gateway is silent, and return the time of the next look.

        Raises:
            ConnectionLost: Nothing was received for too long.
        """
        if not self.welcomed:
            if now >= self._deadline:
                raise self.too_slow()
            return self._deadline
        # The sums that are compared here are those until which the caller sleeps: a difference would be rounded
        # otherwise, and the caller would wake too early by a rounding error, again and again.
        silent_at, ping_at = self._heard + self._pace.silence, self._heard + self._pace.ping
        if now >= silent_at:
            raise ConnectionLost(self.address.unreachable(f"nothing was received for {now - self._heard:.0f} s"))
        if now >= ping_at and not self._pinged:
            self._pinged = self._ping = True
            self.poke()
        return min(silent_at, now + self._pace.ping if self._pinged else ping_at)

    def too_slow(self) -> ConnectionLost:
        """Return the end of a connection that is not welcomed in time."""
        return ConnectionLost(self.address.unreachable(f"no welcome within {self._pace.handshake:g} s"))

    # --- one connection after the other ------------------------------------------------------------------------------

    def lost(self, loss: ConnectionLost, now: float, lot: float, *, patient: bool) -> float | None:
        """Handle the end of a connection; return the seconds until the next one, None if there is none.

        `lot`: A random number from 0 to 1, so that many clients do not come back together.

        Raises:
            ConnectError: The gateway refused the client before the first welcome; or the first attempt failed and
                `patient` is not set.
        """
        self.calls.disconnected()
        self.runs.disconnected()
        self.lists.disconnected()
        if self.closing:
            return None
        first = self.welcome is None
        if loss.fatal or (first and not patient):
            self._give_up(loss.error)
            if first:
                raise loss.error
            return None
        settled = self.state.connected and now - self._began >= self._pace.settled
        self._attempt = 1 if settled else self._attempt + 1
        wait = self._pace.wait(self._attempt, lot) if loss.wait is None else loss.wait
        logger.info("no connection (%s); the next attempt is in %.2f s", loss, wait)
        self._tell(ConnectionState(connected=False, reason=str(loss), wait=wait, attempt=self._attempt))
        return wait

    def end(self) -> None:
        """End the client: every pending call and iteration raises ClientClosed."""
        if self._gone is None:
            self._give_up(ClientClosed("the block of connect() has been left; connect again", url=self.address.url))

    def _give_up(self, error: ConnectError) -> None:
        self._gone = error
        self._tell(ConnectionState(connected=False, reason=str(error)))
        self.calls.end(error.again)
        self.runs.end(error.again)
        self.lists.end(error.again)

    def _tell(self, state: ConnectionState) -> None:
        self.state = state
        if self._on_change is not None:
            result = capture(self._on_change, state)
            if isinstance(result, Raised):  # the connection does not suffer for it
                text = "".join(traceback.format_exception(result.error)).rstrip()
                report(logger, logging.ERROR, "on_change raised; it must not", traceback=text)

    # --- what the gateway says ---------------------------------------------------------------------------------------

    def _of_connection(self) -> ClientWire:
        if self._wire is None:
            raise RuntimeError("a link is used before begin()")
        return self._wire

    def _messages(self, wire: ClientWire, data: bytes) -> Iterable[str | bytes]:
        was_accepted = wire.accepted
        for text in wire.receive(data):
            if not was_accepted:
                self._accepted(wire)
                was_accepted = True
            yield text
        if wire.accepted and not was_accepted:
            self._accepted(wire)

    def _accepted(self, wire: ClientWire) -> None:
        if wire.subprotocol != SUBPROTOCOL:
            raise ConnectionLost(close_reasons.wrong_protocol(self.address, "it names no such subprotocol"), fatal=True)
        if not self.token:  # a hello without a token: the gateway answers immediately whether a token is required
            wire.send(frames.write(Hello(client=self._program, protocol=SUBPROTOCOL)))

    def _frame(self, text: str | bytes) -> Event | Frame | None:
        try:
            return frames.read(text)
        except frames.InvalidFrame as error:
            raise self._not_ours(str(error)) from error

    def _act(self, frame: Event | Frame | None, size: int, now: float) -> None:
        if not self.welcomed:
            self._greeted(frame, now)
            return
        self._heard, self._pinged = now, False
        match frame:
            case Event():
                self.runs.event(frame, size, now)
            case Subscribed() | Reset() | Unsubscribed() | Renamed():
                self.runs.receive(frame, now)
            case Ack():
                self.calls.answered(frame)
            case Error():
                if not self.runs.refused(frame, now) and not self.lists.refused(frame):
                    self.calls.answered(frame)
            case Runs() | RunChanged() | CountsChanged():
                self.lists.receive(frame)
            case Tick():
                self.runs.heads(frame.heads)
            case Bye():
                self._bye = frame
            case _:  # a second welcome, gw.live, frames of a newer gateway
                return

    def _greeted(self, frame: Event | Frame | None, now: float) -> None:
        match frame:
            case Welcome():
                self.welcome, self.welcomed, self._heard = frame, True, now
                self._allowance = RateLimit(frame.limits.get("messagesPerSecond", Limits().messages_per_second))
                self.runs.connected(frame.epoch)
                self._tell(ConnectionState(connected=True))
            case Bye():
                self._bye = frame
            case None:
                return
            case _:
                raise self._not_ours(f"{type(frame).__name__} before gw.welcome")

    def _not_ours(self, why: str) -> ConnectionLost:
        url = self.address.url
        text = f"{url} sends frames that are not {SUBPROTOCOL} ({why}); use the client of the server's release"
        return ConnectionLost(NotAGateway(text, url=url), fatal=True)

    def _parting(self, end: WireClosed) -> ConnectionLost:
        wire = self._of_connection()
        if self.closing:
            return ConnectionLost(self.address.unreachable("closed"))
        if not wire.accepted:
            return ConnectionLost(self.address.unreachable("the connection was closed before it was open"))
        return close_reasons.closed(self.address, end.code, end.reason, self._bye)

    def _next(self, now: float) -> str | None:
        """Return the next frame to send, or None.

        Requests and subscriptions alternate: many of one kind do not delay the other.
        """
        self._turn = not self._turn
        sources = self.calls.frame, partial(self._subscription, now)
        for source in sources if self._turn else reversed(sources):
            text = source()
            if text is not None:
                return text
        if self._ping:
            self._ping = False
            return frames.write(Ping())
        return None

    def _subscription(self, now: float) -> str | None:
        frame = self.lists.frame() or self.runs.frame(now)
        return None if frame is None else frames.write(frame)
