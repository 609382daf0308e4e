"""The gateway's side of a WebSocket, without I/O: answers to frames, order of writes, end of the connection.

A `WebSocketSession` receives messages of the client (`received`) and facts that the connection has found, each through
a separate method, and returns actions (`ws_actions.py`), which the connection performs in order. Gateway frames are
not actions: they are appended to `output`, from which the connection's writer takes its next action (`ws_output.py`).

    NEW --opened--> GREETING --welcomed--> OPEN --any of the close codes, or the peer disconnects--> CLOSED
         `--opened, by a known principal--^

A frame is answered before the next frame is received, so commands keep their order, and at most one request is in
flight. Each frame has exactly one answer: gw.ack, gw.subscribed, gw.reset, gw.unsubscribed, gw.unwatched, gw.threads,
gw.messages, gw.tick, for a watch the pages of its list, or gw.error. Only gw.bye may precede gw.welcome. In CLOSED no
input has an effect: a fact may be in flight when the gateway closes a connection.

Example: a client subscribes from a sequence beyond the head of the log.

    >>> session.received('{"type": "subscribe", "run": "r", "after": 9}', now)
    (CountFrame(kind='subscribe'), FindHead(run='r'))
    >>> session.head_found(4)
    (TakeSnapshot(run='r'),)
    >>> session.snapshot_taken(4, {"stage": "running"})    # gw.reset is in the output
    (FollowRun(source=<RunSource r after 4>),)
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, Final, Literal, assert_never

import attrs

from greenroom.actors.contract.casing import wire_of
from greenroom.actors.contract.envelope import FRAME_BYTES

from . import codes, down, up
from .codes import SUBPROTOCOL, CloseCode, Refused
from .framing import close_frame
from .limits import PAGE_BYTES, ROW_BYTES, Limits
from .ws_actions import (
    Actions,
    Authenticate,
    Close,
    CloseWatch,
    CountFrame,
    Cut,
    ExecuteCommand,
    FindHead,
    FollowRun,
    ListSource,
    OpenWatch,
    ReadHeads,
    ReadPage,
    TakeSnapshot,
    UnfollowRun,
    WriteFrames,
)
from .ws_output import SessionError, SessionOutput, framed

BROKEN_FRAMES: Final = (1002, 1007)
"""RFC 6455's codes for malformed frames and invalid UTF-8; such a peer receives a close frame without a JSON frame."""
_TOLD_LIMITS: Final = (
    "message_bytes",
    "body_bytes",
    "messages_per_second",
    "subscriptions",
    "watches",
    "watch_seconds",
    "watch_bytes",
)
"""Of `Limits`, those that a client has to keep."""
LONGEST_REASON: Final = 100
"""Maximum characters of the reason in gw.bye: a close frame has room for 123 bytes."""


@attrs.frozen(kw_only=True)
class ServerInfo:
    """The gateway's data in gw.welcome.

    Attributes:
        connection: Id of this connection.
        server: Name and version.
        epoch: Epoch of the log that all cursors belong to.
    """

    connection: str
    server: str
    epoch: str


@attrs.frozen(kw_only=True)
class Identity:
    """The principal of a connection, limited to what the client may know."""

    name: str
    scopes: tuple[str, ...]


class SessionPhase(enum.Enum):
    """The phase of a session: before the handshake, before authentication, open, closed."""

    NEW = enum.auto()
    GREETING = enum.auto()
    OPEN = enum.auto()
    CLOSED = enum.auto()


@attrs.define(eq=False)
class OpenRequest:
    """The request in flight; `id` and `run` as sent by the client, if they are strings.

    Attributes:
        epoch: Epoch of the log when the request came, or when it was last looked at.
        reset: Why a subscription begins with a snapshot; None if it does not.
    """

    id: str | None
    run: str | None
    frame: up.Up | None = None
    epoch: str = ""
    reset: Literal["epoch", "ahead"] | None = None


class WebSocketSession:
    """A session; see the module. Every method may be called in every phase, unless its docstring says otherwise.

    Attributes:
        output: The pending frames and turns.
    """

    def __init__(self, server: ServerInfo, limits: Limits, now: float) -> None:
        """Create a session. `now`, here and below, is in seconds of any monotonic clock."""
        self.output = SessionOutput()
        self._server = server
        self._limits = limits
        self._phase = SessionPhase.NEW
        self._request: OpenRequest | None = None
        self._bye: down.Bye | None = None
        self._budget = 2 * limits.messages_per_second
        self._counted = now
        self._ping: float | None = None  # time of its write; None after the next byte of the peer

    def __repr__(self) -> str:
        return f"<WebSocketSession {self._server.connection} {self._phase.name}>"

    @property
    def phase(self) -> SessionPhase:
        """The phase of the session."""
        return self._phase

    @property
    def readable(self) -> bool:
        """False while so many answers are pending that no further message is to be read."""
        return not self.output.full

    # --- the beginning -----------------------------------------------------------------------------------------------

    def opened(self, subprotocol: str | None, identity: Identity | None) -> Actions:
        """Begin after the handshake. `identity` is None if no header had a token.

        Raises:
            SessionError: `opened` was called before.
        """
        if self._phase is SessionPhase.CLOSED:
            return ()
        if self._phase is not SessionPhase.NEW:
            raise SessionError("the handshake is done once")
        if subprotocol != SUBPROTOCOL:
            return self.leave(codes.WRONG_PROTOCOL, f"ask for the subprotocol {SUBPROTOCOL}")
        self._phase = SessionPhase.GREETING
        return () if identity is None else self.welcomed(identity)

    def hello_expired(self) -> Actions:
        """Handle the expiry of the time limit for hello."""
        return self.leave(codes.HELLO_TIMEOUT, "no hello came") if self._phase is SessionPhase.GREETING else ()

    def welcomed(self, identity: Identity) -> Actions:
        """Welcome the authenticated and counted principal.

        Raises:
            SessionError: The session does not expect a principal.
        """
        if self._phase is SessionPhase.CLOSED:
            return ()
        if self._phase is not SessionPhase.GREETING:
            raise SessionError("a principal is welcomed once")
        self._phase, self._request = SessionPhase.OPEN, None
        limits, server = self._limits, self._server
        self.output.put(
            down.Welcome(
                connection=server.connection,
                server=server.server,
                protocol=SUBPROTOCOL,
                epoch=server.epoch,
                principal=identity.name,
                scopes=tuple(sorted(identity.scopes)),
                heartbeat_seconds=limits.heartbeat_seconds,
                limits={
                    **wire_of(limits, _TOLD_LIMITS),
                    "rowBytes": ROW_BYTES,
                    "pageBytes": PAGE_BYTES,
                    "eventBytes": FRAME_BYTES,
                },
            )
        )
        return ()

    def rejected(self, code: CloseCode, reason: str) -> Actions:
        """Close the session: the token has no principal, or the principal is not let in."""
        return self.leave(code, reason)

    # --- frames of the client ----------------------------------------------------------------------------------------

    def received(self, message: str | bytes, now: float) -> Actions:
        """Handle a text or binary message.

        Raises:
            SessionError: The handshake is not done, or the previous message has no answer yet.
        """
        if self._phase is SessionPhase.CLOSED:
            return ()
        if self._phase is SessionPhase.NEW or self._request is not None:
            raise SessionError("a message comes after the handshake, and after the answer to the one before")
        if not self._within_rate(now):
            return self._too_fast()
        if isinstance(message, bytes):
            return self.leave(codes.BAD_MESSAGE, "a binary frame; send JSON in text frames")
        try:
            data = up.parse(message)
        except up.Malformed as error:
            return self.leave(codes.BAD_MESSAGE, str(error))
        return self._hello(data) if self._phase is SessionPhase.GREETING else self._asked(data)

    def _within_rate(self, now: float) -> bool:
        """Count a message in a token bucket: the sustained rate, and a burst of twice that."""
        rate = self._limits.messages_per_second
        self._budget = min(2 * rate, self._budget + (now - self._counted) * rate) - 1
        self._counted = now
        return self._budget >= 0

    def _too_fast(self) -> tuple[Close, ...]:
        return self.leave(codes.TOO_FAST, f"more than {self._limits.messages_per_second:g} messages per second")

    def _hello(self, data: Mapping[str, Any]) -> Actions:
        try:
            hello = up.read(data)
        except Refused as refused:
            return self.leave(codes.BAD_MESSAGE, refused.message)
        if not isinstance(hello, up.Hello):
            return self.leave(codes.UNAUTHENTICATED, "the first frame must be hello with the token")
        if hello.protocol not in ("", SUBPROTOCOL):
            return self.leave(codes.WRONG_PROTOCOL, f"here is {SUBPROTOCOL} spoken")
        self._request = OpenRequest(id=None, run=None, frame=hello)
        return (Authenticate(hello.token),)

    def _asked(self, data: Mapping[str, Any]) -> Actions:
        name, run = data.get("id"), data.get("run")
        request = self._request = OpenRequest(
            id=name if isinstance(name, str) else None,
            run=run if isinstance(run, str) else None,
            epoch=self._server.epoch,
        )
        count = CountFrame(data.get("type"))
        try:
            request.frame = up.read(data)
            return (count, *self._act(request.frame))
        except Refused as refused:
            return (count, *self.refused(refused))

    def _act(self, frame: up.Up) -> Actions:
        """Return the actions of a frame, or answer the frame immediately.

        Raises:
            Refused: gw.error is the answer.
        """
        if isinstance(frame, up.RunCommand):
            return (ExecuteCommand(frame),)
        match frame:
            case up.Subscribe():
                return self._subscribe(frame)
            case up.Unsubscribe():
                return self._unsubscribe(frame)
            case up.Watch() | up.WatchTickets():
                return self._watch(frame)
            case up.Unwatch():
                return self._unwatch(frame)
            case up.ListThreads() | up.ReadMessages():
                return (ReadPage(frame),)
            case up.Start() | up.Fork():
                return (ExecuteCommand(frame),)
            case up.Ping():
                return (ReadHeads(requested=True),)
            case up.Hello():
                raise Refused("bad_message", "hello comes once, as the first frame")
            case _ as never:
                assert_never(never)

    def _subscribe(self, frame: up.Subscribe) -> Actions:
        runs, most = self.output.runs, self._limits.subscriptions
        if frame.run not in runs and len(runs) >= most:
            raise Refused("too_many_subscriptions", f"at most {most} runs per connection; leave one first")
        return (FindHead(frame.run),)

    def _unsubscribe(self, frame: up.Unsubscribe) -> Actions:
        source = self.output.unfollow(frame.run)
        if source is None:
            raise Refused("unknown_run", f"this connection does not follow {frame.run!r:.200}")
        self._answer(down.Unsubscribed(run=frame.run, reason="asked", id=frame.id))
        return (UnfollowRun(source),)

    def _watch(self, frame: up.Watch | up.WatchTickets) -> Actions:
        lists, most = self.output.lists, self._limits.watches
        if frame.id not in lists and len(lists) >= most:
            raise Refused("too_many_subscriptions", f"at most {most} lists per connection; send unwatch for one first")
        return (OpenWatch(frame),)

    def _unwatch(self, frame: up.Unwatch) -> Actions:
        if not self.output.unwatch(frame.id):
            raise Refused("bad_message", f"this connection watches no list {frame.id!r:.200}")
        self._answer(down.Unwatched(watch=frame.id))
        return (CloseWatch(frame.id),)

    # --- answers -----------------------------------------------------------------------------------------------------

    def _answer(self, frame: down.Frame | None) -> None:
        """Answer the request in flight; None if its answer is not a single frame."""
        self._request = None
        if frame is not None:
            self.output.put(frame)

    def _pending(self) -> OpenRequest | None:
        """Return the request that a fact is about; None if the session was closed meanwhile.

        Raises:
            SessionError: No request is in flight.
        """
        if self._phase is SessionPhase.CLOSED:
            return None
        if self._phase is not SessionPhase.OPEN or self._request is None:
            raise SessionError("no request is under way")
        return self._request

    def executed(self, ack: down.Ack) -> Actions:
        """Acknowledge a durable command.

        Raises SessionError if no request is in flight, as all facts about requests do.
        """
        if self._pending() is not None:
            self._answer(ack)
        return ()

    def page_read(self, page: down.ThreadsFrame | down.MessagesFrame) -> Actions:
        """Answer with a page."""
        if self._pending() is not None:
            self._answer(page)
        return ()

    def refused(self, refused: Refused) -> Actions:
        """Refuse the request; it had no effect."""
        return self._failed(refused.error.code, refused.message, retry=refused.error.retry, current=refused.current)

    def store_failed(self, text: str) -> Actions:
        """Answer that the store did not respond; the same request may be sent again."""
        return self._failed("store_unavailable", f"{text}; send it again", retry=True)

    def _failed(self, code: str, message: str, *, retry: bool, current: object = None) -> Actions:
        request = self._pending()
        if request is not None:
            ids = {"id": request.id, "run": request.run}
            self._answer(down.Error(code=code, message=message, retry=retry, current=current, **ids))
        return ()

    def head_found(self, head: int) -> Actions:
        """Handle the newest sequence of the run that the client subscribes to."""
        request = self._pending()
        if request is None:
            return ()
        frame = request.frame
        if not isinstance(frame, up.Subscribe):
            raise SessionError("no head was asked for")
        known, request.epoch = request.epoch, self._server.epoch
        if (frame.epoch or (known if frame.after else request.epoch)) != request.epoch:
            request.reset = "epoch"
        elif known != request.epoch:
            return (FindHead(frame.run),)  # the log was replaced meanwhile, and this is the head of the old one
        elif frame.after > head:
            request.reset = "ahead"
        if request.reset is not None:
            return (TakeSnapshot(frame.run),)
        mode: Literal["live", "replay"] = "live" if frame.after == head else "replay"
        reply = down.Subscribed(run=frame.run, after=frame.after, head=head, mode=mode, id=frame.id)
        return self._follow(frame.run, frame.after, reply)

    def snapshot_taken(self, sequence: int, snapshot: Mapping[str, Any]) -> Actions:
        """Handle the snapshot, as of event `sequence`, of the run that the client subscribes to."""
        request = self._pending()
        if request is None:
            return ()
        frame = request.frame
        if not isinstance(frame, up.Subscribe) or request.reset is None:
            raise SessionError("no snapshot was asked for")
        if request.epoch != self._server.epoch:  # the snapshot may be of the replaced log
            request.epoch, request.reset = self._server.epoch, "epoch"
            return (TakeSnapshot(frame.run),)
        reply = down.Reset(run=frame.run, reason=request.reset, sequence=sequence, snapshot=snapshot, id=frame.id)
        return self._follow(frame.run, sequence, reply)

    def _follow(self, run: str, after: int, reply: down.Frame) -> Actions:
        """Begin a subscription; an earlier one of the same run ends without a frame."""
        old = self.output.unfollow(run)
        self._answer(reply)
        new = self.output.follow(run, after)
        return (FollowRun(new),) if old is None else (UnfollowRun(old), FollowRun(new))

    def watch_opened(self, source: ListSource) -> Actions:
        """Begin a watch; the first page of the list, sent in the first turn of the source, is the answer."""
        request = self._pending()
        if request is not None:
            if not isinstance(request.frame, up.Watch | up.WatchTickets) or request.frame.id != source.name:
                raise SessionError(f"no list {source.name!r} was asked for")
            self._answer(None)
            self.output.watch(source)
        return ()

    def list_failed(self, name: str) -> Actions:
        """End a watch whose list cannot be read."""
        if self._phase is SessionPhase.OPEN and self.output.unwatch(name):
            self.output.put(down.Error(code="internal", message=codes.ERRORS["internal"].meaning, id=name))
        return ()

    def heads_read(self, heads: Mapping[str, int], *, requested: bool) -> Actions:
        """Send a tick with the newest sequences of the followed runs. `requested`: the tick answers a ping."""
        if self._phase is not SessionPhase.OPEN:
            return ()
        if not requested:
            self.output.put(down.Tick(heads=heads))
            return ()
        request = self._pending()
        if request is None or not isinstance(request.frame, up.Ping):
            raise SessionError("no heads were asked for")
        self._answer(down.Tick(heads=heads, id=request.id))
        return ()

    def renamed(self, epoch: str) -> tuple[UnfollowRun, ...]:
        """Handle another identity of the logs: gw.renamed, and gw.reset in the next turn of each followed run."""
        self._server = attrs.evolve(self._server, epoch=epoch)
        if self._phase is not SessionPhase.OPEN:
            return ()
        self.output.put(down.Renamed(epoch=epoch))
        return tuple(map(UnfollowRun, self.output.replace_runs()))

    # --- signs of life -----------------------------------------------------------------------------------------------

    def frames_written(self, written: WriteFrames, began: float, now: float, last_byte: float) -> None:
        """Handle a completed write that began at `began`; the newest byte of the peer arrived at `last_byte`."""
        if written.pinging and last_byte < began:  # on a fast network the pong may have arrived already
            self._ping = now

    def heartbeat(
        self, now: float, *, last_byte: float, last_frame: float, last_room: float, writing: bool
    ) -> tuple[Cut | ReadHeads, ...]:
        """Check the liveness of the connection; called every few seconds.

        Args:
            now: The time.
            last_byte: Time of the newest byte of the peer.
            last_frame: Time of the last write of more than a ping or pong, which a web page cannot see.
            last_room: Time at which the peer last made room in a full window.
            writing: True while a frame is partly written.

        Returns:
            Cut for a peer that does not answer a ping; ReadHeads, for a tick, if no frame was written for a while.
        """
        if self._phase is not SessionPhase.OPEN:
            return ()  # hello and the closing have time limits of their own
        limits, output = self._limits, self.output
        if self._ping is not None and last_byte >= self._ping:
            self._ping = None
        if self._ping is not None and now - max(self._ping, last_room) >= limits.pong_seconds:
            self._end()
            return (Cut(),)
        tick = now - last_frame >= limits.heartbeat_seconds and not output.answering and not writing
        if self._ping is None and now - last_byte >= limits.heartbeat_seconds and not output.pinging:
            output.put_ping()
        return (ReadHeads(requested=False),) if tick else ()

    # --- the end -----------------------------------------------------------------------------------------------------

    def leave(self, code: CloseCode, reason: str = "", retry_after_ms: int | None = None) -> tuple[Close, ...]:
        """Close the connection from the gateway's side. The first reason wins."""
        if self._phase is SessionPhase.CLOSED:
            return ()
        self._bye = down.Bye(
            code=code.code, name=code.name, reason=reason[:LONGEST_REASON], retry_after_ms=retry_after_ms
        )
        self._end()
        return (Close(),)

    def peer_gone(self, code: int | None, reason: str | None, verdict: CloseCode | None) -> tuple[Close, ...]:
        """Handle the end of the peer's messages.

        Args:
            code: Code of the close handshake; None if there was none.
            reason: Text of the close handshake.
            verdict: Close code of the frame meter, if the meter has stopped the reading.
        """
        if code is not None and code in BROKEN_FRAMES:
            return self.leave(CloseCode(code, "broken_frames", "", retry=False), reason or "")
        if verdict is codes.TOO_FAST:
            return self._too_fast()
        if verdict is not None:
            return self.leave(verdict, f"more than {self._limits.message_bytes} bytes in one message")
        if self._phase is SessionPhase.CLOSED:
            return ()
        self._end()
        return (Close(),)

    def _end(self) -> None:
        self._phase, self._request = SessionPhase.CLOSED, None
        self.output.close()

    def last_words(self) -> bytes:
        """Return the pending frames, gw.bye and the close frame.

        Empty if the peer has disconnected, and on repeated calls.
        """
        bye, self._bye = self._bye, None
        if bye is None:
            return b""
        words = b"" if bye.code in (codes.DONE.code, *BROKEN_FRAMES) else framed(bye)
        return self.output.take_frames() + words + close_frame(bye.code, bye.reason or bye.name)
