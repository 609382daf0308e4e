"""`Gateway`: what all connections share."""

from __future__ import annotations

import itertools
import logging
import random
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, Literal

import attrs
import trio

import greenroom as gr
from greenroom.actors.run.follow import Follower
from greenroom.actors.run.tails import Slice

from ..protocol.codes import GOING_AWAY, RESTART, CloseCode, Refused
from ..protocol.framing import server_sent_event
from ..protocol.limits import Limits
from .access import Doorway, Keyring, Principal
from .api import Api
from .conversation import Conversation
from .fanout import Fanout
from .http import Route
from .metrics import Metrics

logger = logging.getLogger("greenroom.gateway")

SPREAD: Final = 500
"""Connections that come back per second after a restart: the more there are, the longer they are spread."""
LONGEST_SPREAD: Final = 15.0
"""Seconds after which the last one may come back."""


@attrs.define(eq=False, repr=False)
class Gateway:
    """Shared by all connections of one `serve`.

    Attributes:
        runtime, api: what is served. keyring, doorway, limits: to whom, and how much.
        routes: the HTTP operations. fanout: how events get to the WebSockets.
        conversations: the open WebSockets. open: all connections. turned_away: those that are told that there are too
            many. idle: scopes of those that wait for a request, or for something to stream.
        closing: no more are taken. stopping: is set with it. emptied: is set when the last one is gone after that.
        parting: what WebSockets are closed with when they are sent away.
    """

    runtime: gr.Runtime
    keyring: Keyring
    doorway: Doorway
    limits: Limits
    routes: Sequence[Route]
    fanout: Fanout
    metrics: Metrics = attrs.field(factory=Metrics)
    conversations: set[Conversation] = attrs.field(factory=set)
    closing: bool = False
    stopping: trio.Event = attrs.field(factory=trio.Event)
    emptied: trio.Event = attrs.field(factory=trio.Event)
    parting: CloseCode = GOING_AWAY
    open: int = 0
    turned_away: int = 0
    idle: set[trio.CancelScope] = attrs.field(factory=set)
    _of: Counter[str] = attrs.field(factory=Counter)
    _ids: itertools.count[int] = attrs.field(factory=itertools.count)
    api: Api = attrs.field(init=False)
    server_sent: Callable[[Slice], bytes] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.api = Api(self.runtime)
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
    ) -> AsyncIterator[Follower]:
        """A run's events in slices, for the time of the block."""
        with self.runtime.follow(run_id, after=after, until=until) as follower:
            yield follower

    def _server_sent(self, found: Slice) -> bytes:
        """A slice as server-sent events; the id is a cursor: the log's epoch and the sequence."""
        epoch = self.epoch
        events = enumerate(found.frames, found.first)
        return b"".join([server_sent_event(frame, f"{epoch}-{sequence}") for sequence, frame in events])

    def ready_or_refuse(self) -> None:
        """Go on if there is somebody to do work.

        Raises:
            Refused: closing, store_unavailable.
        """
        if self.closing or self.runtime.roster.closing:
            raise Refused("closing", "the server stops; come back when it is there again")
        if self.runtime.outage is not None:
            raise Refused("store_unavailable", "the store does not answer; runs stand until it does")

    def new_connection_id(self) -> str:
        """For the log and gw.welcome."""
        return f"c{next(self._ids)}"

    # --- who is here -------------------------------------------------------------------------------------------------

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

    def greet(self, conversation: Conversation) -> None:
        """A WebSocket is open."""
        self.conversations.add(conversation)
        self.metrics.opened("websocket")
        if self.closing:
            self.send_away(conversation)

    def welcome(self, conversation: Conversation, who: Principal) -> bool:
        """A conversation says who it is; False if that one has too many connections."""
        if not self.admit(who):
            return False
        conversation.principal, conversation.counted = who, True
        return True

    def forget(self, conversation: Conversation) -> None:
        """A WebSocket is gone."""
        self.conversations.discard(conversation)
        self.metrics.closed("websocket")
        if conversation.counted and conversation.principal is not None:
            self.dismiss(conversation.principal)

    def send_away(self, conversation: Conversation) -> None:
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
        text = "".join(traceback.format_exception(error))
        logger.error("%s failed\n%s", what, self.runtime.redactor.text(text))
