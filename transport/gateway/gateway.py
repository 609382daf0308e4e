"""`Gateway`: what all connections share."""

from __future__ import annotations

import itertools
import logging
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Final, Literal

import attrs
import trio

import greenroom as gr
from greenroom.actors.contract.ids import content_digest
from greenroom.actors.run.error_log import ErrorLog

from ..protocol.codes import GOING_AWAY, RESTART, CloseCode, Refused
from ..protocol.framing import server_sent_event
from ..protocol.limits import Limits
from ..protocol.up import Cancel
from .access import OriginPolicy, Principal, TokenTable
from .api import Api
from .connections import Closable
from .descriptors import room, soft_limit
from .fanout import RunPumps
from .feed import RunListFeed
from .http import Route
from .metrics import Metrics
from .shared_stream import SharedStream

logger = logging.getLogger("greenroom.gateway")

OnAbort = Literal["continue", "cancel"]
LEAST_STRANGERS: Final = 64
"""Connections without a token that are kept at least, however few connections there may be."""
SPREAD: Final = 500
"""Connections that come back per second after a restart: the more there are, the longer they are spread."""
LONGEST_SPREAD: Final = 15.0
"""Seconds after which the last one may come back."""


@attrs.define(eq=False, repr=False)
class Gateway:
    """Shared by all connections of one `serve`.

    Attributes:
        runtime, api: what is served. feed: the live lists of runs. keyring, doorway, limits: to whom, and how much.
        most: connections at once: as the limits have it, or as the process may open files. strangers: connections whose
            peer has shown no token yet, oldest first, each with the scope that ends it.
        routes: the HTTP operations. fanout: how events get to the WebSockets.
        conversations: the open WebSockets. open: all connections. turned_away: those that are told that there are too
            many. idle: scopes of those that wait for a request, or for something to stream.
        closing: no more are taken. stopping: is set with it. emptied: is set when the last one is gone after that.
        parting: what WebSockets are closed with when they are sent away.
        on_abort: what becomes of a run whose chat stream is closed by its client.
    """

    runtime: gr.Runtime
    keyring: TokenTable
    doorway: OriginPolicy
    limits: Limits
    routes: Sequence[Route[Gateway]]
    on_abort: OnAbort = "continue"
    metrics: Metrics = attrs.field(factory=Metrics)
    most: int = attrs.field(init=False)
    strangers: dict[SharedStream, trio.CancelScope] = attrs.field(factory=dict)
    conversations: set[Closable] = attrs.field(factory=set)
    closing: bool = False
    stopping: trio.Event = attrs.field(factory=trio.Event)
    emptied: trio.Event = attrs.field(factory=trio.Event)
    parting: CloseCode = GOING_AWAY
    open: int = 0
    turned_away: int = 0
    idle: set[trio.CancelScope] = attrs.field(factory=set)
    _of: Counter[str] = attrs.field(factory=Counter)
    _ids: itertools.count[int] = attrs.field(factory=itertools.count)
    fanout: RunPumps = attrs.field(init=False)
    api: Api = attrs.field(init=False)
    feed: RunListFeed = attrs.field(init=False)
    server_sent: Callable[[gr.EventSlice], bytes] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        files = soft_limit()
        self.most = min(self.limits.connections, room(files) or self.limits.connections)
        if self.most < self.limits.connections:
            text = "%d connections at most, not %d: this process may open %s files (RLIMIT_NOFILE, ulimit -n)"
            logger.warning(text, self.most, self.limits.connections, files)
        self.fanout = RunPumps(self.log_failure)
        self.api = Api(self.runtime)
        self.feed = RunListFeed(self.runtime.reader, self.limits.watch_seconds, self.log_failure)
        self.server_sent = self._server_sent  # one object: slices keep what it made by it

    def __repr__(self) -> str:
        return f"<Gateway with {self.open} connections>"

    @property
    def epoch(self) -> str:
        """Names the log that all cursors belong to."""
        return self.runtime.store.epoch

    @asynccontextmanager
    async def follow(
        self, run_id: str, after: int = 0, *, until: Literal["end", "rest"] = "end"
    ) -> AsyncIterator[gr.Follower]:
        """A run's events in slices, for the time of the block."""
        with self.runtime.reader.follow(run_id, after=after, until=until) as follower:
            yield follower

    def _server_sent(self, found: gr.EventSlice) -> bytes:
        """A slice as server-sent events; the id is a cursor: the log's epoch and the sequence."""
        epoch = self.epoch
        events = enumerate(found.frames, found.first)
        return b"".join([server_sent_event(frame, f"{epoch}-{sequence}") for sequence, frame in events])

    async def abandoned(self, who: Principal, run_id: str) -> None:
        """The client of a chat stream has hung up before its end: `chat.stop()`, an abort, or a lost connection.

        With on_abort="cancel" that cancels the run, on behalf of a principal that may. Never raises.
        """
        if self.on_abort != "cancel":
            return
        order = Cancel(id=f"abort.{content_digest([run_id])}", run=run_id, reason="the client has closed its stream")
        try:
            await self.api.command(who, order)
        except (Refused, gr.GreenroomError) as error:
            logger.info("%s was left by its client, and not cancelled: %s", run_id, error)

    def ready_or_refuse(self) -> None:
        """Go on if there is somebody to do work.

        Raises:
            Refused: closing, store_unavailable.
        """
        if self.closing or self.runtime.commands.closing:
            raise Refused("closing", "the server stops; come back when it is there again")
        if self.runtime.reader.outage is not None:
            raise Refused("store_unavailable", "the store does not answer; runs stand until it does")

    def new_connection_id(self) -> str:
        """For the log and gw.welcome."""
        return f"c{next(self._ids)}"

    # --- who is here -------------------------------------------------------------------------------------------------

    @contextmanager
    def stranger(self, stream: SharedStream) -> Iterator[None]:
        """A connection, until its peer is `recognised`; it may have to make room for a newer one, and is closed then.

        Tokens are shown within seconds, so the oldest of many strangers is one that only holds a place.
        """
        most = self.limits.strangers or max(LEAST_STRANGERS, self.most // 4)
        if len(self.strangers) >= most:
            self.strangers.pop(next(iter(self.strangers))).cancel("a newer connection needs the place")
            self.metrics.cut("stranger")
        with trio.CancelScope() as scope:
            self.strangers[stream] = scope
            try:
                yield
            finally:
                self.strangers.pop(stream, None)

    def recognised(self, stream: SharedStream) -> None:
        """The peer has shown a token: its connection keeps its place."""
        self.strangers.pop(stream, None)

    def admit(self, who: Principal) -> bool:
        """Count a connection that stays for its principal; False if that one has too many."""
        if self._of[who.name] >= self.limits.per_principal:
            self.metrics.refused("per_principal")
            return False
        self._of[who.name] += 1
        return True

    def dismiss(self, who: Principal) -> None:
        """A connection that was admitted is gone."""
        self._of[who.name] -= 1

    def authenticate(self, conversation: Closable) -> None:
        """A WebSocket is open."""
        self.conversations.add(conversation)
        self.metrics.opened("websocket")
        if self.closing:
            self.send_away(conversation)

    def welcome(self, conversation: Closable, who: Principal) -> bool:
        """A conversation says who it is; False if that one has too many connections."""
        if not self.admit(who):
            return False
        conversation.principal, conversation.counted = who, True
        self.recognised(conversation.stream)
        return True

    def forget(self, conversation: Closable) -> None:
        """A WebSocket is gone."""
        self.conversations.discard(conversation)
        self.metrics.closed("websocket")
        if conversation.counted and conversation.principal is not None:
            self.dismiss(conversation.principal)

    def send_away(self, conversation: Closable) -> None:
        """Tell one to come back later, each at another time: the more there are, the longer they are spread."""
        window = min(LONGEST_SPREAD, 0.25 + len(self.conversations) / SPREAD)
        wait = round(1000 * (0.25 + window * random.random()))  # noqa: S311 - spread, not secrecy
        conversation.leave(self.parting, self.parting.meaning, wait)

    def say_goodbye(self, *, restart: bool) -> None:
        """Tell everybody to come back later; streams end."""
        self.closing = True
        self.parting = RESTART if restart else GOING_AWAY
        self.emptied = trio.Event()
        self.stopping.set()
        for scope in tuple(self.idle):
            scope.cancel()
        for conversation in tuple(self.conversations):
            self.send_away(conversation)

    def log_failure(self, what: object, error: BaseException) -> None:
        """A bug or a broken store, told to the operator with its stack and without secrets."""
        self.metrics.failed()
        ErrorLog(self.runtime.reader.redactor).bug(logger, f"{what} failed", error)
