"""One connection after the other to a gateway: opened, welcomed, read, written, watched, and reopened.

Three tasks share a connection. The reader waits for nothing but the gateway. The writer is the only sender: a cancelled
send would leave a torn frame. The watchdog pings a silent gateway and ends the connection if the silence continues.
Outgoing frames are not queued: the writer asks `calls`, `lists` and `runs` for the next frame, so a lost connection
leaves no stale frames.

    run(): _visit -> opened -> welcomed -> read, write and watch until the connection ends -> wait -> _visit ...
"""

from __future__ import annotations

import logging
import ssl
import traceback
from collections.abc import Callable
from typing import Final, Never

import attrs
import trio
from trio_websocket import CloseReason, ConnectionClosed, ConnectionRejected, WebSocketConnection, wrap_client_stream
from wsproto.utilities import LocalProtocolError

from greenroom import __version__
from greenroom.actors.contract.envelope import Event
from greenroom.supervision.border import Raised, capture
from greenroom.supervision.exits import leaves
from greenroom.supervision.nursery import open_collapsing_nursery
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
from .errors import ClientClosed, ConnectError, NotAGateway, NotReachable
from .pending_requests import PendingAnswers
from .run_lists import RunLists
from .subscriptions import RunSubscriptions
from .timing import ConnectionTiming, RateLimit
from .watched_stream import WatchedStream

logger: Final = logging.getLogger("greenroom.client")

LARGEST: Final = 64 * 1024 * 1024
"""Maximum characters of a frame from the gateway; larger than any event that a store accepts."""
QUEUE: Final = 16
"""Maximum number of messages parsed ahead of the reader."""
RECEIVE: Final = 64 * 1024
"""Bytes per read."""


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


class Connection:
    """The connections of one client.

    Attributes:
        address: The gateway's address.
        calls, runs, lists: Pending requests, followed runs and watched lists; each decides which frame to send next.
        welcome: The newest gw.welcome; None before the first.
        state: The present state.
    """

    def __init__(
        self,
        address: Endpoint,
        *,
        token: str | None,
        pace: ConnectionTiming,
        context: ssl.SSLContext | None = None,
        on_change: Callable[[ConnectionState], None] | None = None,
    ) -> None:
        self.address, self.context, self.token = address, context, token
        self.calls, self.runs, self.lists = PendingAnswers(self.poke), RunSubscriptions(pace.patience), RunLists()
        self.welcome: Welcome | None = None
        self.state = ConnectionState(connected=False, reason="not connected yet")
        self._pace, self._on_change = pace, on_change
        self._work = trio.Event()
        self._gone: ConnectError | None = None
        self._closing = False
        self._closed = trio.Event()
        self._heard = 0.0
        self._pinged = self._ping = self._turn = False
        self._bye: Bye | None = None

    def __repr__(self) -> str:
        """Show the address and the state."""
        return f"<Connection to {self.address.url}: {'connected' if self.state.connected else self.state.reason}>"

    def check(self) -> None:
        """Check that the client is still usable.

        Raises:
            ConnectError: The connection was given up.
        """
        if self._gone is not None:
            raise self._gone.again()

    def poke(self) -> None:
        """Wake the writer: there may be a frame to send."""
        self._work.set()

    # --- one connection after the other ------------------------------------------------------------------------------

    async def run(self, *, patient: bool, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Connect, and reconnect, until `close` or until the gateway refuses the client permanently.

        Started at the first welcome.

        Raises:
            ConnectError: The gateway refused the client before the first welcome; or the first attempt failed and
                `patient` is not set.
        """
        attempt, began = 0, trio.current_time()

        def started() -> None:
            if self.welcome is None:
                task_status.started()

        while True:
            parted = await self._visit(started)
            self.calls.disconnected()
            self.runs.disconnected()
            self.lists.disconnected()
            if self._closing:
                break
            first = self.welcome is None
            if parted.fatal or (first and not patient):
                self._give_up(parted.error)
                if first:
                    raise parted.error
                break
            attempt = 1 if self.state.connected and trio.current_time() - began >= self._pace.settled else attempt + 1
            wait = self._pace.wait(attempt) if parted.wait is None else parted.wait
            logger.info("no connection (%s); the next attempt is in %.2f s", parted, wait)
            self._tell(ConnectionState(connected=False, reason=str(parted), wait=wait, attempt=attempt))
            await trio.sleep(wait)
            began = trio.current_time()
        self._closed.set()

    async def close(self) -> None:
        """Close the WebSocket within `ConnectionTiming.closing` seconds."""
        self._closing = True
        self.poke()
        if self.state.connected:
            with trio.move_on_after(self._pace.closing):
                await self._closed.wait()

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

    # --- one connection ----------------------------------------------------------------------------------------------

    async def _visit(self, started: Callable[[], None]) -> ConnectionLost:
        """Open a connection, use the connection until its end, and return why it ended."""
        try:
            await self._stay(started)
        except (ConnectionLost, ConnectionRejected, LocalProtocolError) as error:
            return self._parting(error)
        except BaseExceptionGroup as group:  # two of the three tasks noticed the end at the same moment
            losses, other = group.split((ConnectionLost, ConnectionRejected, LocalProtocolError))
            if losses is None or other is not None:
                raise
            return self._parting(next(leaves(losses)))

    def _parting(self, error: BaseException) -> ConnectionLost:
        match error:
            case ConnectionLost():
                return error
            case ConnectionRejected():
                return close_reasons.rejected(self.address, error.status_code, error.body)
            case _:  # trio-websocket answered a ping on a closing connection: harmless
                return ConnectionLost(self.address.unreachable(f"the connection was closing: {error}"))

    async def _stay(self, started: Callable[[], None]) -> Never:
        self._bye = None
        deadline = trio.current_time() + self._pace.handshake
        wire = await self._open(deadline)
        try:
            async with open_collapsing_nursery() as nursery:
                socket, welcome = await self._greet(nursery, wire, deadline)
                self._hear()
                self.runs.connected(welcome.epoch)
                started()
                self.welcome = welcome
                self._tell(ConnectionState(connected=True))
                nursery.start_soon(self._write, socket, welcome)
                nursery.start_soon(self._watch)
                await self._read(socket)
        finally:
            await trio.aclose_forcefully(wire)

    async def _open(self, deadline: float) -> WatchedStream:
        with trio.move_on_at(deadline):
            try:
                return WatchedStream(await self.address.open_stream(self.context))
            except NotReachable as error:
                raise ConnectionLost(error) from error
        raise self._too_slow()

    async def _greet(
        self, nursery: trio.Nursery, wire: WatchedStream, deadline: float
    ) -> tuple[WebSocketConnection, Welcome]:
        """Perform the two handshakes: WebSocket upgrade and gw.welcome."""
        with trio.move_on_at(deadline):
            socket = await self._shake_hands(nursery, wire)
            if socket.subprotocol != SUBPROTOCOL:
                raise ConnectionLost(
                    close_reasons.wrong_protocol(self.address, "it names no such subprotocol"), fatal=True
                )
            if not self.token:
                await self._introduce(socket)
            while True:
                frame = self._frame(await self._text(socket))
                match frame:
                    case Welcome():
                        return socket, frame
                    case Bye():
                        self._bye = frame
                    case None:
                        continue
                    case _:
                        raise self._not_ours(f"{type(frame).__name__} before gw.welcome")
        raise self._too_slow()

    async def _shake_hands(self, nursery: trio.Nursery, wire: WatchedStream) -> WebSocketConnection:
        headers = [(b"user-agent", f"greenroom/{__version__}".encode())]
        if self.token:
            headers.append((b"authorization", f"Bearer {self.token}".encode()))
        # trio-websocket does not notice that a stream ends during the handshake, see WatchedStream
        async with open_collapsing_nursery() as watching:
            watching.start_soon(self._end_with, wire)
            socket = await wrap_client_stream(
                nursery,
                wire,  # type: ignore[arg-type] # any stream does
                self.address.authority,
                self.address.path,
                subprotocols=[SUBPROTOCOL],
                extra_headers=headers,
                message_queue_size=QUEUE,
                max_message_size=LARGEST,
                receive_buffer_size=RECEIVE,
            )
            watching.cancel_scope.cancel()
        return socket

    async def _end_with(self, wire: WatchedStream) -> Never:
        await wire.closed.wait()
        raise ConnectionLost(self.address.unreachable("the connection was closed before it was open"))

    async def _introduce(self, socket: WebSocketConnection) -> None:
        """Send hello without a token, so that the gateway answers immediately whether a token is required."""
        try:
            await socket.send_message(frames.write(Hello(client=f"greenroom/{__version__}", protocol=SUBPROTOCOL)))
        except ConnectionClosed:
            return  # the reader reports the reason

    def _too_slow(self) -> ConnectionLost:
        return ConnectionLost(self.address.unreachable(f"no welcome within {self._pace.handshake:g} s"))

    def _not_ours(self, why: str) -> ConnectionLost:
        url = self.address.url
        text = f"{url} sends frames that are not {SUBPROTOCOL} ({why}); use the client of the server's release"
        return ConnectionLost(NotAGateway(text, url=url), fatal=True)

    # --- the three tasks ---------------------------------------------------------------------------------------------

    async def _read(self, socket: WebSocketConnection) -> Never:
        while True:
            text = await self._text(socket)
            self._hear()
            self._act(self._frame(text), len(text))

    async def _text(self, socket: WebSocketConnection) -> str | bytes:
        reason: CloseReason | None
        try:
            return await socket.get_message()
        except ConnectionClosed as error:
            reason = error.reason
        if self._closing:
            await trio.sleep_forever()  # the writer closes the connection and ends all three tasks
        code, message = (None, None) if reason is None else (reason.code, reason.reason)
        raise close_reasons.closed(self.address, code, message, self._bye)

    def _frame(self, text: str | bytes) -> Event | Frame | None:
        try:
            return frames.read(text)
        except frames.InvalidFrame as error:
            raise self._not_ours(str(error)) from error

    def _act(self, frame: Event | Frame | None, size: int) -> None:
        now = trio.current_time()
        match frame:
            case Event():
                if self.runs.event(frame, size, now):
                    self.poke()
                return
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
        self.poke()

    def _hear(self) -> None:
        self._heard, self._pinged = trio.current_time(), False

    async def _watch(self) -> Never:
        pace = self._pace
        while True:
            # The sums that are compared here are those until which the task sleeps: a difference would be rounded
            # otherwise, and the task would wake too early by a rounding error, again and again.
            now, silent_at, ping_at = trio.current_time(), self._heard + pace.silence, self._heard + pace.ping
            if now >= silent_at:
                quiet = now - self._heard
                raise ConnectionLost(self.address.unreachable(f"nothing was received for {quiet:.0f} s"))
            if now >= ping_at and not self._pinged:
                self._pinged = self._ping = True
                self.poke()
            await trio.sleep_until(min(silent_at, now + pace.ping if self._pinged else ping_at))

    async def _write(self, socket: WebSocketConnection, welcome: Welcome) -> None:
        allowance = RateLimit(welcome.limits.get("messagesPerSecond", Limits().messages_per_second))
        self._ping = False
        try:
            while True:
                await trio.sleep_until(allowance.free_at)
                self._work = trio.Event()  # before _next(): a poke during the check below must wake the wait
                text = self._next()
                if text is not None:
                    allowance.spend(trio.current_time())
                    await socket.send_message(text)
                elif self._closing:
                    break
                else:
                    with trio.move_on_at(self.runs.due(trio.current_time())):
                        await self._work.wait()
        except ConnectionClosed:
            return  # the reader reports the reason
        await socket.aclose()
        raise ConnectionLost(self.address.unreachable("closed"))

    def _next(self) -> str | None:
        """Return the next frame to send, or None.

        Requests and subscriptions alternate: many of one kind do not delay the other.
        """
        self._turn = not self._turn
        for source in (self._request, self._subscription) if self._turn else (self._subscription, self._request):
            text = source()
            if text is not None:
                return text
        if self._ping:
            self._ping = False
            return frames.write(Ping())
        return None

    def _request(self) -> str | None:
        return self.calls.frame()

    def _subscription(self) -> str | None:
        frame = self.lists.frame() or self.runs.frame(trio.current_time())
        return None if frame is None else frames.write(frame)
