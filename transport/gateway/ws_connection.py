"""One WebSocket connection: moves bytes and waits; its session decides (`transport/protocol/ws_session.py`).

Two tasks perform the actions of the session. The reader takes one message after the other, each after the answer to the
previous one. The writer is the only task that waits for the peer: it writes first the rest of a partly written frame,
then the next action of the session's output.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from typing import Final, assert_never

import attrs
import trio

import greenroom as gr
from greenroom.actors.contract.ticket_lists import TicketQuery
from greenroom.supervision import failure_of
from greenroom.supervision.nursery import open_collapsing_nursery

from ..protocol import codes, down, up
from ..protocol.codes import CloseCode, Refused
from ..protocol.ws_actions import (
    Actions,
    ApiAction,
    Authenticate,
    CheckEnd,
    Close,
    CloseWatch,
    CountFrame,
    Cut,
    ExecuteCommand,
    FetchEvents,
    FindHead,
    FollowRun,
    Immediate,
    OpenWatch,
    ReadHeads,
    ReadPage,
    ReadReset,
    RetryLater,
    RunSource,
    TakeRows,
    TakeSnapshot,
    UnfollowRun,
    WriteFrames,
    WriterAction,
    WriteTurn,
)
from ..protocol.ws_session import Identity, ServerInfo, SessionPhase, WebSocketSession
from .access import Principal, SeesFailed
from .api import plain_view
from .frame_stream import FrameStream, Messages, MessagesEnded
from .gateway import Gateway
from .request_head import Head
from .sign_ins.authenticator import OpenSignIn, close_code_of
from .subscription import Subscription
from .ticket_listing import ticket_query
from .watches import ListWatch

FAREWELL: Final = 2.0
"""Seconds to write the last frames."""
RETRY: Final = 0.5
"""Seconds before a store that does not answer is retried."""


class WebSocketConnection:
    """A connection after the upgrade.

    Attributes:
        id: Id of the connection, for the log.
        stream: Takes the frames for the client.
        principal: The authenticated principal; None before hello.
        counted: True if the connection counts for its principal.
        head: The head of the upgrade.
        opened: The watch over the principal; None before hello, and for a principal that is never asked about again.
        session: Decides what happens on the connection.
        output: The output of the session.
    """

    def __init__(self, gateway: Gateway, stream: FrameStream, head: Head, principal: Principal | None = None) -> None:
        self.id = gateway.new_connection_id()
        self.stream = stream
        self.principal = principal
        self.counted = False
        self.head = head
        self.opened: OpenSignIn | None = None
        server = ServerInfo(connection=self.id, server=f"greenroom/{gr.__version__}", epoch=gateway.epoch)
        self.session = WebSocketSession(server, gateway.limits, trio.current_time())
        self.output = self.session.output
        self._gateway = gateway
        self._followed: dict[RunSource, Subscription] = {}
        self._watched: dict[str, ListWatch] = {}
        self._wake = trio.lowlevel.ParkingLot()
        self._room = trio.lowlevel.ParkingLot()
        self._reading = trio.CancelScope()

    def __repr__(self) -> str:
        who = "no principal yet" if self.principal is None else self.principal.name
        return f"<WebSocketConnection {self.id} of {who}>"

    @property
    def who(self) -> Principal:
        """The authenticated principal, as of the newest answer about it; an error before authentication."""
        if self.opened is not None:
            return self.opened.principal
        assert self.principal is not None  # noqa: S101 - the session requests nothing before
        return self.principal

    def followed(self) -> Iterable[str]:
        """Return the runs that the connection follows."""
        return (source.run for source in self._followed)

    # --- life --------------------------------------------------------------------------------------------------------

    async def run(self, messages: Messages) -> None:
        """Serve the connection until either side closes it."""
        try:
            async with open_collapsing_nursery() as nursery:
                nursery.start_soon(self._write)
                with self._reading:
                    await self._read(messages)
                await self.say_goodbye()
                nursery.cancel_scope.cancel()
        finally:
            while self._followed:
                self._followed.popitem()[1].drop()
            while self._watched:
                self._watched.popitem()[1].drop()

    def leave(self, code: CloseCode, reason: str = "", retry_after_ms: int | None = None) -> None:
        """Send the reason and close the connection."""
        for action in self.session.leave(code, reason, retry_after_ms):
            self._at_once(action)

    def end_list(self, watch: ListWatch) -> None:
        """Answer that the list cannot be read, and end the watch; everything else of the connection continues."""
        self._close_watch(watch.name)
        self.session.list_failed(watch.name)
        self._wake.unpark_all()

    async def say_goodbye(self) -> None:
        """Write the session's last frames, if there are any and the stream is writable."""
        last = self.session.last_words()
        if last:
            with trio.move_on_after(FAREWELL), suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await self.stream.send_last(last)

    def renamed(self, epoch: str) -> None:
        """Begin every subscription again: the logs have another identity."""
        for action in self.session.renamed(epoch):
            self._at_once(action)
        self._wake.unpark_all()

    def heartbeat(self, now: float) -> None:
        """Ping a silent peer, send a tick after a silence, and cut a peer that does not answer. Never waits."""
        stream, session = self.stream, self.session
        times = {"last_byte": stream.received_at, "last_frame": stream.shown_at, "last_room": stream.taken}
        for action in session.heartbeat(now, **times, writing=stream.pending):
            self._at_once(action)
        if self.output.answering:
            self._wake.unpark_all()

    # --- the reader --------------------------------------------------------------------------------------------------

    async def _read(self, messages: Messages) -> None:
        session, identity = self.session, identity_of(self.principal) if self.principal else None
        try:
            await self._perform(session.opened(messages.subprotocol, identity))
            while session.phase is not SessionPhase.CLOSED:
                await self._perform(await self._receive(messages))
        except MessagesEnded as end:
            await self._perform(session.peer_gone(end.code, end.reason, self.stream.verdict))
        except gr.RuntimeClosed:
            self._gateway.send_away(self)

    async def _receive(self, messages: Messages) -> Actions:
        """Pass the next message to the session; while too many answers are pending, no message is read."""
        session = self.session
        while not session.readable:
            await self._room.park()
        greeting = session.phase is SessionPhase.GREETING
        with trio.move_on_after(self._gateway.limits.hello_seconds if greeting else math.inf):
            return session.received(await messages.next(), trio.current_time())
        return session.hello_expired()

    # --- the writer --------------------------------------------------------------------------------------------------

    def touch(self, source: Subscription | ListWatch) -> None:
        """Give a followed run or a watched list a turn: it may have data."""
        if self.output.touch(source.source):
            self._wake.unpark_all()

    def finish_writing(self) -> None:
        """Wake the writer to write the rest of a partly written frame."""
        self._wake.unpark_all()

    async def _write(self) -> None:
        """Write until the session is closed; the reader's task writes the last frames."""
        try:
            while True:
                if self.stream.pending:
                    await self.stream.flush()
                elif (action := self.output.next()) is None:
                    await self._wake.park()
                else:
                    more = await self._in_turn(action)
                    while more is not None:
                        more = await self._in_turn(more)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            for last in self.session.peer_gone(None, None, None):
                self._at_once(last)
        except gr.RuntimeClosed:
            self._gateway.send_away(self)
        except gr.StoreError as error:
            self._gateway.log_failure(self, error)
            self.leave(codes.INTERNAL, "the store cannot be read")

    async def _write_frames(self, action: WriteFrames) -> None:
        self._room.unpark_all()
        began = trio.current_time()
        await self.stream.send_all(action.data)
        self.session.frames_written(action, began, trio.current_time(), self.stream.received_at)

    async def _in_turn(self, action: WriterAction) -> WriterAction | None:
        """Perform one action of the writer; return the next one of the same turn, or None."""
        match action:
            case FetchEvents() | CheckEnd():
                return await self._followed[action.source].look(action, self.output)
            case ReadReset():
                return await self._reset(action.source)
            case WriteTurn():
                await self.stream.send_all(action.data)
                return self.output.turn_written(action.source)
            case WriteFrames():
                await self._write_frames(action)
            case TakeRows():
                rows = await self._watched[action.source.name].advance()
                return self.output.rows_taken(action.source, rows)
            case RetryLater():
                await trio.sleep(RETRY)
                return self.output.turn_written(action.source)
            case UnfollowRun():
                self._at_once(action)
            case _ as never:
                assert_never(never)
        return None

    async def _reset(self, source: RunSource) -> WriterAction | None:
        """Read the snapshot of a run whose log was replaced, and follow the run from there."""
        output = self.output
        try:
            view = await self._gateway.api.view(self.who, source.run)
        except (Refused, SeesFailed) as error:
            return output.run_ended(source, "gone", detail=str(error))
        except gr.StoreUnavailable:
            return output.fetch_failed(source)
        action = output.reset_read(source, view.last_sequence, plain_view(view))
        if action is not None:
            self._follow(source)
        return action

    # --- requests ----------------------------------------------------------------------------------------------------

    async def _perform(self, actions: Actions) -> None:
        """Perform the session's actions for the reader, and the actions that follow from their results."""
        for action in actions:
            more = await self._ask(action) if isinstance(action, ApiAction) else self._at_once(action)
            if more:
                await self._perform(more)
        if self.output.answering:
            self._wake.unpark_all()

    async def _ask(self, action: ApiAction) -> Actions:
        """Call the gateway's API, and report the answer or the error to the session."""
        session = self.session
        try:
            match action:
                case Authenticate():
                    return await self._authenticate(action.token)
                case FindHead():
                    return session.head_found(await self._gateway.api.head(self.who, action.run))
                case TakeSnapshot():
                    view = await self._gateway.api.view(self.who, action.run)
                    return session.snapshot_taken(view.last_sequence, plain_view(view))
                case ExecuteCommand():
                    return session.executed(await self._executed(action.command))
                case ReadPage():
                    return session.page_read(await self._page(action.frame))
                case OpenWatch():
                    return self._open_watch(action.frame)
                case _ as never:
                    assert_never(never)
        except Refused as refused:
            return session.refused(refused)
        except (gr.StoreUnavailable, gr.StoreDown) as error:
            return session.store_failed(str(error))
        except SeesFailed as error:  # the server's own predicate: the other requests of this connection are unaffected
            self._gateway.log_failure(self, error)
            return session.refused(Refused("internal", codes.ERRORS["internal"].meaning))

    async def _executed(self, command: up.Start | up.Fork | up.RunCommand) -> down.Ack:
        api = self._gateway.api
        if isinstance(command, up.Start):
            return await api.start(self.who, command)
        if isinstance(command, up.Fork):
            return await api.fork(self.who, command)
        return await api.command(self.who, command)

    async def _page(self, frame: up.PageRequest) -> down.ThreadsFrame | down.MessagesFrame:
        threads = self._gateway.threads
        if isinstance(frame, up.ListThreads):
            lines, cursor = await threads.page(self.who, frame)
            return down.ThreadsFrame(id=frame.id, threads=tuple(lines), cursor=cursor)
        return down.MessagesFrame(id=frame.id, page=await threads.messages(self.who, frame))

    async def _authenticate(self, token: str) -> Actions:
        """Find the principal of a token. A refusal closes the connection; it is not the answer to a request."""
        gateway = self._gateway
        try:
            who = await gateway.authenticator.of_hello(self.head, token)
        except Refused as refused:
            return self.session.rejected(close_code_of(refused), refused.message)
        if self.session.phase is SessionPhase.CLOSED:
            return ()
        if not gateway.welcome(self, who, token):
            return self.session.rejected(codes.OVERLOADED, f"{who.name} has too many connections")
        return self.session.welcomed(identity_of(who))

    def _open_watch(self, frame: up.Watch | up.WatchTickets) -> Actions:
        feed = self._gateway.feed
        query: gr.RunQuery | TicketQuery
        if isinstance(frame, up.WatchTickets):
            query = ticket_query(self.who, attrs.asdict(frame))
        else:
            query = self._gateway.api.query(self.who, attrs.asdict(frame))
            try:
                query.check()
            except gr.UsageError as error:
                raise Refused("unprocessable", str(error)) from error
        self._close_watch(frame.id)
        watch = self._watched[frame.id] = ListWatch(self, feed, frame.id, query, self._gateway.limits.watch_bytes)
        feed.join(watch)
        return self.session.watch_opened(watch.source)

    def _close_watch(self, name: str) -> None:
        watch = self._watched.pop(name, None)
        if watch is not None:
            watch.drop()

    def _follow(self, source: RunSource) -> None:
        with ExitStack() as stack:
            follower = stack.enter_context(self._gateway.runtime.reader.follow(source.run, after=source.after))
            subscription = self._followed[source] = Subscription(source, follower, stack.pop_all())
        self._gateway.fanout.join(self, subscription)

    def _heads(self) -> dict[str, int]:
        followers = [follower.follower for follower in self._followed.values()]
        return {follower.run_id: max(follower.after, follower.tail.head) for follower in followers}

    def _at_once(self, action: Immediate) -> Actions:
        """Perform an action that does not wait."""
        match action:
            case CountFrame():
                self._gateway.metrics.frame(action.kind)
            case FollowRun():
                self._follow(action.source)
            case UnfollowRun():
                subscription = self._followed.pop(action.source, None)
                if subscription is not None:
                    subscription.drop()
            case CloseWatch():
                self._close_watch(action.name)
            case ReadHeads():
                return self.session.heads_read(self._heads(), requested=action.requested)
            case Close():
                self._reading.cancel()
            case Cut():
                self._gateway.metrics.cut("no_pong")
                self.stream.torn = True
                self._reading.cancel()
            case _ as never:
                assert_never(never)
        return ()


async def converse(
    gateway: Gateway, stream: FrameStream, messages: Messages, head: Head, who: Principal | None
) -> None:
    """Serve a WebSocket until either side closes it. `who`: the principal of the handshake; None: hello shows a token.

    Raises nothing but Cancelled.
    """
    conversation = WebSocketConnection(gateway, stream, head)
    gateway.authenticate(conversation)
    try:
        if who is not None and not gateway.welcome(conversation, who):
            conversation.leave(codes.OVERLOADED, f"{who.name} has too many connections")
        await conversation.run(messages)
    except BaseException as error:  # noqa: BLE001, ASYNC103 - a supervision boundary: one connection must not end the gateway
        gateway.log_failure(conversation, failure_of(error))
        conversation.leave(codes.INTERNAL)
        await conversation.say_goodbye()  # noqa: ASYNC102 - failure_of has raised a cancellation again
    finally:
        gateway.forget(conversation)


def identity_of(who: Principal) -> Identity:
    """Return the part of a principal that its client may know."""
    return Identity(name=who.name, scopes=tuple(who.scopes))
