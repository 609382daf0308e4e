"""`Gateway`: the state that all connections of one `serve` share."""

from __future__ import annotations

import itertools
import logging
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Final, Literal

import attrs
import trio

import greenroom as gr
from greenroom.actors.contract.ids import content_digest
from greenroom.actors.services.error_log import ErrorLog
from greenroom.supervision import RecentCrashes

from ..protocol.codes import GOING_AWAY, RESTART, CloseCode, Refused
from ..protocol.framing import server_sent_event
from ..protocol.limits import Limits
from ..protocol.up import Cancel
from .access import OriginPolicy, Principal, TokenTable
from .api import Api
from .connections import Closable
from .descriptors import room, soft_limit
from .downloads import Downloads
from .exposed import A2AOptions
from .fanout import RunPumps
from .feed import RunListFeed
from .frame_stream import FrameStream
from .http import Route
from .metrics.metrics import Metrics
from .metrics.scrape import Scrapes
from .questions import QuestionBoard
from .request_head import Head
from .sign_ins.authenticator import Authenticator
from .sign_ins.sign_in import SignIn
from .threads import ThreadAccess

logger = logging.getLogger("greenroom.gateway")

OnAbort = Literal["continue", "cancel"]
LEAST_STRANGERS: Final = 64
"""Minimum number of connections without a token that are kept, even under a small limit."""
SPREAD: Final = 500
"""Reconnects per second after a restart; more connections are spread over a longer time."""
LONGEST_SPREAD: Final = 15.0
"""Maximum of that time, in seconds."""


@attrs.define(eq=False, repr=False)
class Gateway:
    """Shared by all connections of one `serve`.

    Attributes:
        runtime, api: The runtime and its operations.
        threads: The operations on threads.
        feed: The live lists of runs.
        keyring, doorway, limits: The principals, the accepted Host and Origin headers, the limits.
        sign_ins: Functions of the program that know further principals.
        authenticator: Says who sends a request.
        most: Maximum number of connections: from the limits, or from the files that the process may open.
        strangers: Connections whose peer has not shown a token, oldest first, each with the scope that ends it.
        routes: The HTTP operations.
        fanout: The pumps that write events to WebSockets.
        conversations: The open WebSockets.
        open: Number of all connections.
        downloads: The artifacts and parts that are being sent.
        turned_away: Number of connections that are being refused because there are too many.
        idle: Scopes of the connections that wait for a request, or for data to stream.
        closing: True once no connections are accepted; `stopping` is set at the same time.
        emptied: Set when the last connection ends after that.
        parting: Close code for WebSockets when the gateway stops.
        on_abort: Effect on a run whose client closes its chat stream.
        prices: Model name -> its price, for pages.
        a2a: The agents that are offered over A2A, and who may read their cards.
        mcp: Keys of the agents that are MCP tools; None: all agents of the process.
        questions: The open streams that put questions to their clients.
        scrapes: Answers scrapes of the metrics.
        crashes: Names the parts of the gateway that have crashed of late.
    """

    runtime: gr.Runtime
    keyring: TokenTable
    doorway: OriginPolicy
    limits: Limits
    routes: Sequence[Route[Gateway]]
    sign_ins: Sequence[SignIn] = ()
    on_abort: OnAbort = "continue"
    prices: Mapping[str, gr.Price] = attrs.field(factory=dict)
    a2a: A2AOptions = attrs.field(factory=A2AOptions)
    mcp: frozenset[str] | None = None
    questions: QuestionBoard = attrs.field(factory=QuestionBoard)
    metrics: Metrics = attrs.field(factory=Metrics)
    most: int = attrs.field(init=False)
    strangers: dict[FrameStream, trio.CancelScope] = attrs.field(factory=dict)
    conversations: set[Closable] = attrs.field(factory=set)
    closing: bool = False
    stopping: trio.Event = attrs.field(factory=trio.Event)
    emptied: trio.Event = attrs.field(factory=trio.Event)
    crashes: RecentCrashes = attrs.field(factory=RecentCrashes)
    parting: CloseCode = GOING_AWAY
    open: int = 0
    downloads: Downloads = attrs.field(factory=Downloads)
    turned_away: int = 0
    idle: set[trio.CancelScope] = attrs.field(factory=set)
    _of: Counter[str] = attrs.field(factory=Counter)
    _ids: itertools.count[int] = attrs.field(factory=itertools.count)
    authenticator: Authenticator = attrs.field(init=False)
    scrapes: Scrapes = attrs.field(init=False)
    fanout: RunPumps = attrs.field(init=False)
    api: Api = attrs.field(init=False)
    threads: ThreadAccess = attrs.field(init=False)
    feed: RunListFeed = attrs.field(init=False)
    server_sent: Callable[[gr.EventSlice], bytes] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        files = soft_limit()
        self.most = min(self.limits.connections, room(files) or self.limits.connections)
        if self.most < self.limits.connections:
            text = "%d connections at most, not %d: this process may open %s files (RLIMIT_NOFILE, ulimit -n)"
            logger.warning(text, self.most, self.limits.connections, files)
        self.authenticator = Authenticator(self.keyring, self.sign_ins, self.log_failure, self.runtime.reader.info)
        self.scrapes = Scrapes(self.runtime, self.metrics)
        self.fanout = RunPumps(self.log_failure)
        self.api = Api(self.runtime)
        reader, shared = self.runtime.reader, self.runtime.store.shared
        self.threads = ThreadAccess(reader)
        self.feed = RunListFeed(reader, self.limits.watch_seconds, self.log_failure, shared=shared)
        self.server_sent = self._server_sent  # one bound method: slices cache the encoding by this object

    def __repr__(self) -> str:
        return f"<Gateway with {self.open} connections>"

    @property
    def epoch(self) -> str:
        """Identifies the log that all cursors belong to."""
        return self.runtime.store.epoch

    @asynccontextmanager
    async def follow(
        self, run_id: str, after: int = 0, *, until: Literal["end", "rest"] = "end"
    ) -> AsyncIterator[gr.Follower]:
        """Follow a run's events in slices, for the block."""
        with self.runtime.reader.follow(run_id, after=after, until=until) as follower:
            yield follower

    def _server_sent(self, part: gr.EventSlice) -> bytes:
        """Encode a slice as server-sent events; the id is a cursor: the log's epoch and the sequence."""
        epoch = self.epoch
        events = enumerate(part.frames, part.first)
        return b"".join([server_sent_event(frame, f"{epoch}-{sequence}") for sequence, frame in events])

    async def abandoned(self, who: Principal, run_id: str) -> None:
        """Handle a client that closes a chat stream before its end: `chat.stop()`, an abort, or a lost connection.

        With on_abort="cancel" the run is cancelled if the principal may cancel runs. Never raises.
        """
        if self.on_abort != "cancel":
            return
        order = Cancel(id=f"abort.{content_digest([run_id])}", run=run_id, reason="the client has closed its stream")
        try:
            await self.api.command(who, order)
        except (Refused, gr.GreenroomError) as error:
            logger.info("%s was left by its client, and not cancelled: %s", run_id, error)

    def ready_or_refuse(self) -> None:
        """Check that the process accepts work.

        Raises:
            Refused: closing, store_unavailable.
        """
        if self.closing or self.runtime.commands.closing:
            raise Refused("closing", "the server stops; try again after its restart")
        if self.runtime.reader.outage is not None:
            raise Refused("store_unavailable", "the store does not answer; runs pause until it does")
        if (reason := self.runtime.store.unready) is not None:
            raise Refused("store_unavailable", reason)

    def new_connection_id(self) -> str:
        """Return an id for the log and gw.welcome."""
        return f"c{next(self._ids)}"

    # --- connections
    # -----------------------------------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        """True while there are as many connections as there may be."""
        return self.open >= self.most

    @contextmanager
    def connection(self, stream: FrameStream) -> Iterator[None]:
        """Count a connection for the block. Its peer is a stranger first, and the block may be cancelled."""
        self.open += 1
        self.metrics.opened("any")
        try:
            with self.stranger(stream):
                yield
        finally:
            if stream.stalled:
                self.metrics.cut("stalled")
            self.open -= 1
            if not self.open:
                self.emptied.set()
            self.metrics.closed("any")

    @contextmanager
    def stranger(self, stream: FrameStream) -> Iterator[None]:
        """Register a connection as a stranger until its peer is `recognised`.

        It may be closed to make room for a newer one. Clients show tokens within seconds, so the oldest of many
        strangers only occupies a place.
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

    async def principal_of(self, head: Head, route: Route[Gateway]) -> Principal | None:
        """Return who sends a request for a route; the program is not asked about routes that need no principal.

        Raises:
            Refused: unauthenticated, not_allowed, sign_in_unavailable, internal.
        """
        if route.scope is None and self.sign_ins:
            return self.keyring.of_header(head.headers.get("authorization"))
        return await self.authenticator.of_head(head)

    def recognised(self, stream: FrameStream) -> None:
        """Keep a connection whose peer has shown a token."""
        self.strangers.pop(stream, None)

    def admit(self, who: Principal) -> bool:
        """Count a connection for its principal; return False if the principal has too many."""
        if self._of[who.name] >= self.limits.per_principal:
            self.metrics.refused("per_principal")
            return False
        self._of[who.name] += 1
        return True

    def dismiss(self, who: Principal) -> None:
        """Uncount an ended connection."""
        self._of[who.name] -= 1

    def authenticate(self, conversation: Closable) -> None:
        """Register an open WebSocket."""
        self.conversations.add(conversation)
        self.metrics.opened("websocket")
        if self.closing:
            self.send_away(conversation)

    def welcome(self, conversation: Closable, who: Principal, token: str | None = None) -> bool:
        """Set the principal of a WebSocket; return False if the principal has too many connections.

        `token`: of the first message; None if the head of the upgrade has the credential.
        """
        if not self.admit(who):
            return False
        conversation.principal, conversation.counted = who, True
        conversation.opened = self.authenticator.begin(
            who, conversation.head, token, conversation.leave, conversation.followed
        )
        self.recognised(conversation.stream)
        return True

    def forget(self, conversation: Closable) -> None:
        """Unregister a closed WebSocket."""
        self.conversations.discard(conversation)
        self.metrics.closed("websocket")
        self.authenticator.finish(conversation.opened)
        if conversation.counted and conversation.principal is not None:
            self.dismiss(conversation.principal)

    def send_away(self, conversation: Closable) -> None:
        """Close a WebSocket with a random reconnect delay; more connections are spread over a longer time."""
        window = min(LONGEST_SPREAD, 0.25 + len(self.conversations) / SPREAD)
        wait = round(1000 * (0.25 + window * random.random()))  # noqa: S311 - spread, not secrecy
        conversation.leave(self.parting, self.parting.meaning, wait)

    def say_goodbye(self, *, restart: bool) -> None:
        """Close all WebSockets with a reconnect delay, and end all streams."""
        self.closing = True
        self.scrapes.close()
        self.parting = RESTART if restart else GOING_AWAY
        self.emptied = trio.Event()
        self.stopping.set()
        for scope in tuple(self.idle):
            scope.cancel()
        for conversation in tuple(self.conversations):
            self.send_away(conversation)

    def renamed(self, epoch: str) -> None:
        """Tell every connection that the logs have another identity; streams over HTTP end by their followers."""
        self.feed.begin_again()
        for conversation in tuple(self.conversations):
            conversation.renamed(epoch)

    def log_failure(self, what: object, error: BaseException) -> None:
        """Log a bug or a broken store with its stack, redacted."""
        self.metrics.failed()
        ErrorLog(self.runtime.reader.redactor).bug(logger, f"{what} failed", error)
