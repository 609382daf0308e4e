"""The frames of the gateway except events. Their `type` begins with `gw.`; no event type does.

An event frame consists of the stored bytes of the event; no part of it depends on the connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from greenroom.actors.contract.casing import camel
from greenroom.actors.contract.plain import JSONObject
from greenroom.actors.contract.threads.messages import ThreadMessages

from .lines import Counts, ListedTicketLine, RunLine, ThreadLine


class Frame(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", rename=camel):
    """The base of all gateway frames: a type; fields that have their default are left out."""


class Welcome(Frame, frozen=True, kw_only=True, tag="gw.welcome"):
    """The connection is open and the principal is authenticated.

    `epoch` identifies the log that all cursors belong to; `limits` are the limits that the client must respect, and
    `event_bytes`, the maximum size of an event.
    """

    connection: str
    server: str
    protocol: str
    epoch: str
    principal: str
    scopes: tuple[str, ...]
    heartbeat_seconds: float
    limits: Mapping[str, float]


class Renamed(Frame, frozen=True, kw_only=True, tag="gw.renamed"):
    """The logs have another identity, as after a failover: `epoch` replaces the one of gw.welcome.

    Events that were sent before may not be in the new logs: gw.reset follows for each followed run.
    """

    epoch: str


class Subscribed(Frame, frozen=True, kw_only=True, tag="gw.subscribed"):
    """The run's events follow from `after` + 1 on. `head` is the newest sequence.

    `mode` is replay if older events precede.
    """

    run: str
    after: int
    head: int
    mode: Literal["replay", "live"]
    id: str | None = None


class Live(Frame, frozen=True, kw_only=True, tag="gw.live"):
    """All events that existed at the subscription have been sent; later events are new. Sent once per subscription."""

    run: str
    sequence: int


class Reset(Frame, frozen=True, kw_only=True, tag="gw.reset"):
    """The cursor is invalid: discard the run's events, take this snapshot, and continue after `sequence`."""

    run: str
    reason: Literal["epoch", "ahead"]
    sequence: int
    snapshot: JSONObject
    id: str | None = None


class Unsubscribed(Frame, frozen=True, kw_only=True, tag="gw.unsubscribed"):
    """The subscription has ended. `reason`: asked, done (the terminal event has been sent), gone or degraded.

    `code`, of degraded: deps_missing, agent_unknown, target_offline, state_mismatch or gave_up.
    """

    run: str
    reason: Literal["asked", "done", "gone", "degraded"]
    code: str | None = None
    detail: str | None = None
    id: str | None = None


class Runs(Frame, frozen=True, kw_only=True, tag="gw.runs"):
    """The first page of a watched list; replaces all that the client has of the list.

    `reason`: asked, or too_many: there are more changes (also by a prune) than are sent one by one, or than the
    connection accepted.
    """

    watch: str
    reason: Literal["asked", "too_many"]
    runs: tuple[RunLine, ...]
    cursor: str | None
    counts: Counts


class RunChanged(Frame, frozen=True, kw_only=True, tag="gw.run"):
    """A run has changed. `matches`: the run is in the list, and `row` is its present line.

    Otherwise it is not in the list.
    """

    watch: str
    run: str
    matches: bool
    row: RunLine | None = None


class CountsChanged(Frame, frozen=True, kw_only=True, tag="gw.counts"):
    """The number of runs that are not done, independent of the watched lists."""

    counts: Counts


class Tickets(Frame, frozen=True, kw_only=True, tag="gw.tickets"):
    """The first page of a watched list of open tickets; replaces all that the client has of the list.

    `reason` as in `gw.runs`.
    """

    watch: str
    reason: Literal["asked", "too_many"]
    tickets: tuple[ListedTicketLine, ...]
    cursor: str | None


class AskedTickets(Frame, frozen=True, kw_only=True, tag="gw.asked"):
    """A run has changed. `tickets`: all open tickets of the run that are in the list, oldest first; perhaps none."""

    watch: str
    run: str
    tickets: tuple[ListedTicketLine, ...]


class Unwatched(Frame, frozen=True, kw_only=True, tag="gw.unwatched"):
    """The watch of a list has ended."""

    watch: str


class ThreadsFrame(Frame, frozen=True, kw_only=True, tag="gw.threads"):
    """A page of threads. `cursor` requests the next page; null on the last one."""

    id: str
    threads: tuple[ThreadLine, ...]
    cursor: str | None


class MessagesFrame(Frame, frozen=True, kw_only=True, tag="gw.messages"):
    """A page of a thread's messages; `page` is the body of the response over HTTP."""

    id: str
    page: ThreadMessages


class Tick(Frame, frozen=True, kw_only=True, tag="gw.tick"):
    """A sign of life without news. `heads`: run -> newest sequence, for detecting lost events at the end."""

    heads: Mapping[str, int]
    id: str | None = None


class Ack(Frame, frozen=True, kw_only=True, tag="gw.ack"):
    """A command is durable. duplicate: it was durable before and acts once.

    `code` "early": a decision before its ticket.
    """

    id: str
    run: str
    status: Literal["accepted", "duplicate"]
    code: str | None = None
    thread: str | None = None


class Error(Frame, frozen=True, kw_only=True, tag="gw.error"):
    """A frame was refused and had no effect. `retry`: the same frame may succeed later.

    `current`: the conflicting state.
    """

    code: str
    message: str
    retry: bool = False
    id: str | None = None
    run: str | None = None
    current: Any = None


class Bye(Frame, frozen=True, kw_only=True, tag="gw.bye"):
    """The gateway closes the connection with this close code. Reconnect after `retry_after_ms`, if given."""

    code: int
    name: str
    reason: str = ""
    retry_after_ms: int | None = None


DOWN: Final[Mapping[str, type[Frame]]] = {
    "gw.welcome": Welcome,
    "gw.renamed": Renamed,
    "gw.subscribed": Subscribed,
    "gw.live": Live,
    "gw.reset": Reset,
    "gw.unsubscribed": Unsubscribed,
    "gw.runs": Runs,
    "gw.run": RunChanged,
    "gw.counts": CountsChanged,
    "gw.tickets": Tickets,
    "gw.asked": AskedTickets,
    "gw.unwatched": Unwatched,
    "gw.threads": ThreadsFrame,
    "gw.messages": MessagesFrame,
    "gw.tick": Tick,
    "gw.ack": Ack,
    "gw.error": Error,
    "gw.bye": Bye,
}
"""Type -> class."""

encode: Final = msgspec.json.Encoder().encode
"""Encode a frame as JSON."""
