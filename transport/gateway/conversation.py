"""One WebSocket connection: reads frames, answers them, and writes what its runs have to say.

Two tasks. The reader takes one frame after the other, so commands of one connection are journaled in their order. The
writer is the only one that waits for the peer; it takes, in this order, a frame that is half written, answers, and one
slice of one run after the other in turn. There is no queue of events: a run that has something stands in the line once,
and what it has is looked up when its turn comes. Answers are bounded, because the reader waits while there are many.
"""

from __future__ import annotations

from collections import deque
from contextlib import ExitStack, suppress
from typing import Final

import attrs
import trio
import trio_websocket

import greenroom as gr
from greenroom.actors.contract.envelope import FRAME_BYTES
from greenroom.supervision.nursery import open_collapsing_nursery

from ..protocol import codes, down, up
from ..protocol.codes import SUBPROTOCOL, CloseCode, Refused
from ..protocol.framing import PING, close_frame
from ..protocol.limits import PAGE_BYTES, ROW_BYTES
from .access import Principal
from .api import plain_view
from .feed import Watch
from .gateway import Gateway
from .subscription import Subscription, framed
from .wire import SharedStream

MOST_ANSWERS: Final = 64
"""Answers that wait to be written until the reader stops reading."""
ANSWER_BYTES: Final = 1_048_576
"""The same in bytes: the snapshot of a run may be large."""
FAREWELL: Final = 2.0
"""Seconds for the last frames."""
BROKEN_FRAMES: Final = (1002, 1007)
"""RFC 6455's codes for frames and for text that can not be: who sends such is told the code and nothing in JSON."""


class Leave(Exception):
    """The gateway closes this connection."""

    def __init__(self, code: CloseCode, reason: str = "", retry_after_ms: int | None = None) -> None:
        super().__init__(code.name)
        self.bye = down.Bye(code=code.code, name=code.name, reason=reason[:100], retry_after_ms=retry_after_ms)

    def frames(self) -> bytes:
        """What is said last."""
        bye = self.bye
        told = b"" if bye.code in (codes.DONE.code, *BROKEN_FRAMES) else framed(bye)
        return told + close_frame(bye.code, bye.reason or bye.name)


class Conversation:
    """A connection after the upgrade.

    Attributes:
        id: of the connection, for the log.
        stream: what both sides of it write to.
        principal: who it is; None before hello.
        subscriptions: run -> what it follows of it. watches: name -> the list of runs that it watches.
        counted: it counts for its principal.
    """

    def __init__(self, gateway: Gateway, stream: SharedStream, principal: Principal | None = None) -> None:
        self.id = gateway.new_connection_id()
        self.stream = stream
        self.principal = principal
        self.counted = False
        self.subscriptions: dict[str, Subscription] = {}
        self.watches: dict[str, Watch] = {}
        self._gateway = gateway
        self._line: deque[Subscription | Watch] = deque()
        self._answers: deque[bytes] = deque()
        self._answer_bytes = 0
        self._wake = trio.lowlevel.ParkingLot()
        self._room = trio.lowlevel.ParkingLot()
        self._reading = trio.CancelScope()
        self._leave: Leave | None = None
        self._ping: float | None = None  # when it was put into the line; cleared by anything that is heard after
        self._budget = 2 * gateway.limits.messages_per_second
        self._counted = trio.current_time()

    def __repr__(self) -> str:
        return f"<Conversation {self.id} with {'nobody yet' if self.principal is None else self.principal.name}>"

    # --- life --------------------------------------------------------------------------------------------------------

    async def run(self, ws: trio_websocket.WebSocketConnection) -> None:
        """Talk until one side has had enough."""
        try:
            async with open_collapsing_nursery() as nursery:
                nursery.start_soon(self._write)
                with self._reading:
                    await self._read(ws)
                await self.say_goodbye()
                nursery.cancel_scope.cancel()
        finally:
            for subscription in tuple(self.subscriptions.values()):
                subscription.drop()
            self.subscriptions.clear()
            for watch in tuple(self.watches.values()):
                watch.drop()
            self.watches.clear()

    def leave(self, code: CloseCode, reason: str = "", retry_after_ms: int | None = None) -> None:
        """End the conversation from outside: the client is told, and the connection closed."""
        if self._leave is None:
            self._leave = Leave(code, reason, retry_after_ms)
        self._reading.cancel()

    async def say_goodbye(self) -> None:
        """Write the answers that wait and the last words, if there is something to say and it can be said."""
        if self._leave is None:
            return
        last = b"".join(self._answers) + self._leave.frames()
        self._answers.clear()
        with trio.move_on_after(FAREWELL), suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await self.stream.send_last(last)

    # --- reading -----------------------------------------------------------------------------------------------------

    async def _read(self, ws: trio_websocket.WebSocketConnection) -> None:
        if self._leave is not None:
            return  # it was too much from the beginning
        try:
            await self._get_acquainted(ws)
            while True:
                await self._answer(await self._frame(ws))
        except trio_websocket.ConnectionClosed:
            self._leave = self._leave or self._why(ws)
        except Leave as leave:
            self._leave = self._leave or leave
        except gr.RuntimeClosed:
            self._gateway.send_away(self)

    def _why(self, ws: trio_websocket.WebSocketConnection) -> Leave | None:
        """What is to be said about an end that is the client's fault; None if it has just gone."""
        limits, verdict, closed = self._gateway.limits, self.stream.verdict, ws.closed
        if closed is not None and closed.code in BROKEN_FRAMES:
            return Leave(CloseCode(closed.code, "broken_frames", "", retry=False), closed.reason or "")
        if verdict is None:
            return None
        told = {
            codes.TOO_BIG: f"more than {limits.message_bytes} bytes in one message",
            codes.TOO_FAST: f"more than {limits.messages_per_second:g} messages per second",
        }
        return Leave(verdict, told[verdict])

    @property
    def who(self) -> Principal:
        """Who it is, once it has said so."""
        assert self.principal is not None  # noqa: S101 - _read has seen to it
        return self.principal

    async def _get_acquainted(self, ws: trio_websocket.WebSocketConnection) -> None:
        if ws.subprotocol != SUBPROTOCOL:
            raise Leave(codes.WRONG_PROTOCOL, f"ask for the subprotocol {SUBPROTOCOL}")
        if self.principal is None:
            await self._hello(ws)
        self._welcome(self.who)

    async def _hello(self, ws: trio_websocket.WebSocketConnection) -> None:
        with trio.move_on_after(self._gateway.limits.hello_seconds) as limit:
            data = await self._frame(ws)
        if limit.cancelled_caught:
            raise Leave(codes.HELLO_TIMEOUT, "no hello came")
        try:
            hello = up.read(data)
        except Refused as refused:
            raise Leave(codes.BAD_MESSAGE, refused.message) from refused
        if not isinstance(hello, up.Hello):
            raise Leave(codes.UNAUTHENTICATED, "the first frame must be hello with the token")
        if hello.protocol not in ("", SUBPROTOCOL):
            raise Leave(codes.WRONG_PROTOCOL, f"here is {SUBPROTOCOL} spoken")
        who = self._gateway.keyring.find(hello.token)
        if who is None:
            raise Leave(codes.UNAUTHENTICATED, "nobody has this token")
        if not self._gateway.welcome(self, who):
            raise Leave(codes.OVERLOADED, f"{who.name} has too many connections")

    def _welcome(self, who: Principal) -> None:
        gateway, limits = self._gateway, self._gateway.limits
        self.tell(
            down.Welcome(
                connection=self.id,
                server=f"greenroom/{gr.__version__}",
                protocol=SUBPROTOCOL,
                epoch=gateway.epoch,
                principal=who.name,
                scopes=tuple(sorted(who.scopes)),
                heartbeat_seconds=limits.heartbeat_seconds,
                limits={
                    "message_bytes": limits.message_bytes,
                    "messages_per_second": limits.messages_per_second,
                    "subscriptions": limits.subscriptions,
                    "watches": limits.watches,
                    "watch_seconds": limits.watch_seconds,
                    "watch_bytes": limits.watch_bytes,
                    "row_bytes": ROW_BYTES,
                    "page_bytes": PAGE_BYTES,
                    "event_bytes": FRAME_BYTES,
                },
            )
        )

    async def _frame(self, ws: trio_websocket.WebSocketConnection) -> dict[str, object]:
        """The next frame of the client; while many answers wait to be written none is taken."""
        while len(self._answers) >= MOST_ANSWERS or self._answer_bytes >= ANSWER_BYTES:
            await self._room.park()
        message = await ws.get_message()
        self._count()
        if isinstance(message, bytes):
            raise Leave(codes.BAD_MESSAGE, "a binary frame; send JSON in text frames")
        try:
            return up.parse(message)
        except up.Malformed as error:
            raise Leave(codes.BAD_MESSAGE, str(error)) from error

    def _count(self) -> None:
        """A token bucket: the sustained rate, and a burst of twice that."""
        rate, now = self._gateway.limits.messages_per_second, trio.current_time()
        self._budget = min(2 * rate, self._budget + (now - self._counted) * rate) - 1
        self._counted = now
        if self._budget < 0:
            raise Leave(codes.TOO_FAST, f"more than {rate:g} messages per second")

    async def _answer(self, data: dict[str, object]) -> None:
        name, run = data.get("id"), data.get("run")
        self._gateway.metrics.frame(data.get("type"))
        try:
            await self._act(up.read(data))
        except Refused as refused:
            self.tell(
                down.Error(
                    code=refused.error.code,
                    message=refused.message,
                    retry=refused.error.retry,
                    id=name if isinstance(name, str) else None,
                    run=run if isinstance(run, str) else None,
                    current=refused.current,
                )
            )
        except (gr.StoreUnavailable, gr.StoreDown) as error:
            self.tell(
                down.Error(
                    code="store_unavailable",
                    message=f"{error}; send it again",
                    retry=True,
                    id=name if isinstance(name, str) else None,
                    run=run if isinstance(run, str) else None,
                )
            )

    async def _act(self, frame: up.Up) -> None:
        api, who = self._gateway.api, self.who
        match frame:
            case up.Subscribe():
                await self._subscribe(frame)
            case up.Unsubscribe():
                self._unsubscribe(frame)
            case up.Watch():
                self._watch(frame)
            case up.Unwatch():
                self._unwatch(frame)
            case up.Start():
                self.tell(await api.start(who, frame))
            case up.Fork():
                self.tell(await api.fork(who, frame))
            case up.Decide() | up.Cancel() | up.Send() | up.Pause():
                self.tell(await api.command(who, frame))
            case up.Ping():
                self.tell(self.tick(frame.id))
            case up.Hello():
                raise Refused("bad_message", "hello comes once, as the first frame")

    async def _subscribe(self, frame: up.Subscribe) -> None:
        gateway = self._gateway
        if frame.run not in self.subscriptions and len(self.subscriptions) >= gateway.limits.subscriptions:
            raise Refused(
                "too_many_subscriptions", f"at most {gateway.limits.subscriptions} runs per connection; leave one first"
            )
        head = await gateway.api.head(self.who, frame.run)
        reason = "epoch" if frame.epoch not in (None, gateway.epoch) else "ahead" if frame.after > head else None
        after = frame.after
        if reason is None:
            told: down.Frame = down.Subscribed(
                run=frame.run, after=after, head=head, mode="live" if after == head else "replay", id=frame.id
            )
        else:
            view = await gateway.api.view(self.who, frame.run)
            after = view.last_sequence
            told = down.Reset(
                run=frame.run,
                reason="epoch" if reason == "epoch" else "ahead",
                sequence=after,
                snapshot=plain_view(view),
                id=frame.id,
            )
        self._drop(frame.run)
        self.tell(told)
        with ExitStack() as stack:
            follower = stack.enter_context(gateway.runtime.reader.follow(frame.run, after=after))
            subscription = self.subscriptions[frame.run] = Subscription(follower, stack.pop_all())
        gateway.fanout.join(self, subscription)
        self.touch(subscription)

    def _unsubscribe(self, frame: up.Unsubscribe) -> None:
        if not self._drop(frame.run):
            raise Refused("unknown_run", f"this connection does not follow {frame.run!r:.200}")
        self.tell(down.Unsubscribed(run=frame.run, reason="asked", id=frame.id))

    def _watch(self, frame: up.Watch) -> None:
        gateway, limits = self._gateway, self._gateway.limits
        if frame.id not in self.watches and len(self.watches) >= limits.watches:
            raise Refused(
                "too_many_subscriptions", f"at most {limits.watches} lists per connection; send unwatch for one first"
            )
        query = gateway.api.query(self.who, attrs.asdict(frame))
        try:
            query.check()
        except gr.UsageError as error:
            raise Refused("unprocessable", str(error)) from error
        old = self.watches.pop(frame.id, None)
        if old is not None:
            old.drop()
        watch = self.watches[frame.id] = Watch(self, gateway.feed, frame.id, query, limits.watch_bytes)
        gateway.feed.join(watch)

    def _unwatch(self, frame: up.Unwatch) -> None:
        watch = self.watches.pop(frame.id, None)
        if watch is None:
            raise Refused("bad_message", f"this connection watches no list {frame.id!r:.200}")
        watch.drop()
        self.tell(down.Unwatched(watch=frame.id))

    def _drop(self, run: str) -> bool:
        subscription = self.subscriptions.pop(run, None)
        if subscription is not None:
            subscription.drop()
        return subscription is not None

    # --- writing -----------------------------------------------------------------------------------------------------

    def tell(self, frame: down.Frame) -> None:
        """Queue a gateway frame."""
        self._put(framed(frame))

    def _put(self, data: bytes) -> None:
        self._answers.append(data)
        self._answer_bytes += len(data)
        self._wake.unpark_all()

    def touch(self, subscription: Subscription | Watch) -> None:
        """The subscription may have something: let it have its turn."""
        if not subscription.queued:
            subscription.queued = True
            self._line.append(subscription)
            self._wake.unpark_all()

    @property
    def answering(self) -> bool:
        """True if answers wait to be written: they were there first."""
        return bool(self._answers)

    def finish_writing(self) -> None:
        """Somebody has written a part of a frame without waiting: write the rest."""
        self._wake.unpark_all()

    async def _write(self) -> None:
        """The only task that waits for the peer, until goodbye is said."""
        try:
            while True:
                if self.stream.pending:
                    await self.stream.flush()
                elif self._answers:
                    await self._write_answers()
                elif self._line:
                    await self._turn(self._line.popleft())
                else:
                    await self._wake.park()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._reading.cancel()
        except gr.RuntimeClosed:
            self._gateway.send_away(self)
        except gr.StoreError as error:
            self._gateway.log_failure(self, error)
            self.leave(codes.INTERNAL, "the store can not be read")

    async def _write_answers(self) -> None:
        data, pinging = b"".join(self._answers), PING in self._answers
        self._answers.clear()
        self._answer_bytes = 0
        self._room.unpark_all()
        began = trio.current_time()
        await self.stream.send_all(data)
        if pinging and self.stream.heard < began:  # on a short way the answer may be here already
            self._ping = trio.current_time()

    async def _turn(self, subscription: Subscription | Watch) -> None:
        subscription.queued = False
        if subscription.over:
            return
        subscription.writing = True
        try:
            await self._write_next(subscription)
        finally:
            subscription.writing = False

    async def _write_next(self, subscription: Subscription | Watch) -> None:
        data = await subscription.advance()
        if subscription.dropped:
            return  # unsubscribed meanwhile, or subscribed again from another position
        if subscription.over:
            del self.subscriptions[subscription.run]
        if data:
            await self.stream.send_all(data)
        if data is not None and not subscription.over:
            self.touch(subscription)

    # --- signs of life -----------------------------------------------------------------------------------------------

    def tick(self, name: str | None = None) -> down.Tick:
        """The newest sequences of the runs that are followed."""
        heads = {one.run: max(one.follower.after, one.follower.tail.head) for one in self.subscriptions.values()}
        return down.Tick(heads=heads, id=name)

    def look_alive(self, now: float) -> None:
        """Ping a silent peer, tell one that hears nothing that we are here, and cut one that is gone. Never waits."""
        limits, stream = self._gateway.limits, self.stream
        if self.principal is None or self._leave is not None:
            return  # hello has its own limit, and so has goodbye
        if self._ping is not None and stream.heard >= self._ping:
            self._ping = None
        if self._ping is not None and now - max(self._ping, stream.taken) >= limits.pong_seconds:
            self._gateway.metrics.cut("no_pong")
            stream.torn = True
            self._reading.cancel()
            return
        if now - stream.told >= limits.heartbeat_seconds and not self._answers and not stream.pending:
            self.tell(self.tick())
        if self._ping is None and now - stream.heard >= limits.heartbeat_seconds and PING not in self._answers:
            self._put(PING)  # last: a write that begins with a ping does not count as told
