"""What the gateway sends beside events. Their `type` begins with `gw.`; events have none that does.

An event frame is the stored bytes of the event and nothing else: nothing in it belongs to a connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from greenroom.actors.contract.plain import JSONObject

from .lines import Counts, RunLine


class Frame(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """What all gateway frames have in common: their type; a field that has its default is left out."""


class Welcome(Frame, frozen=True, kw_only=True, tag="gw.welcome"):
    """The connection is open and knows who you are.

    `epoch` names the log that all cursors belong to; `limits` are those that the client has to keep, and `event_bytes`,
    which no event exceeds.
    """

    connection: str
    server: str
    protocol: str
    epoch: str
    principal: str
    scopes: tuple[str, ...]
    heartbeat_seconds: float
    limits: Mapping[str, float]


class Subscribed(Frame, frozen=True, kw_only=True, tag="gw.subscribed"):
    """The run's events follow from `after` + 1 on. `head` is the newest one now; replay: there are older ones first."""

    run: str
    after: int
    head: int
    mode: Literal["replay", "live"]
    id: str | None = None


class Live(Frame, frozen=True, kw_only=True, tag="gw.live"):
    """Once per subscription: everything that was there has been sent, what comes now is new."""

    run: str
    sequence: int


class Reset(Frame, frozen=True, kw_only=True, tag="gw.reset"):
    """The cursor can not be continued: forget the run's events, take this snapshot, go on after `sequence`."""

    run: str
    reason: Literal["epoch", "ahead"]
    sequence: int
    snapshot: JSONObject
    id: str | None = None


class Unsubscribed(Frame, frozen=True, kw_only=True, tag="gw.unsubscribed"):
    """No more events of this run come. `reason`: asked, done (its terminal event has been sent), gone or degraded.

    `code`, of degraded: deps_missing, agent_unknown, state_mismatch or gave_up.
    """

    run: str
    reason: Literal["asked", "done", "gone", "degraded"]
    code: str | None = None
    detail: str | None = None
    id: str | None = None


class Runs(Frame, frozen=True, kw_only=True, tag="gw.runs"):
    """The first page of a list that is watched: it takes the place of all that the client has of the list.

    `reason`: asked, or too_many: more has changed than is told run by run (a prune, too), or than the connection took.
    """

    watch: str
    reason: Literal["asked", "too_many"]
    runs: tuple[RunLine, ...]
    cursor: str | None
    counts: Counts


class RunChanged(Frame, frozen=True, kw_only=True, tag="gw.run"):
    """A run has changed. `matches`: it is in the list now, and `row` is what it looks like; else it is not in it."""

    watch: str
    run: str
    matches: bool
    row: RunLine | None = None


class CountsChanged(Frame, frozen=True, kw_only=True, tag="gw.counts"):
    """How many runs are not done, whatever the lists of this connection are."""

    counts: Counts


class Unwatched(Frame, frozen=True, kw_only=True, tag="gw.unwatched"):
    """A list is watched no more."""

    watch: str


class Tick(Frame, frozen=True, kw_only=True, tag="gw.tick"):
    """Nothing has happened, and the gateway is alive. `heads`: run -> the newest sequence, to notice a lost tail."""

    heads: Mapping[str, int]
    id: str | None = None


class Ack(Frame, frozen=True, kw_only=True, tag="gw.ack"):
    """A command is durable. duplicate: it was before; it acts once. `code` "early": a decision before its ticket."""

    id: str
    run: str
    status: Literal["accepted", "duplicate"]
    code: str | None = None
    thread: str | None = None


class Error(Frame, frozen=True, kw_only=True, tag="gw.error"):
    """A frame was refused; nothing happened. `retry`: the same frame may work later. `current`: what is the case."""

    code: str
    message: str
    retry: bool = False
    id: str | None = None
    run: str | None = None
    current: Any = None


class Bye(Frame, frozen=True, kw_only=True, tag="gw.bye"):
    """The gateway closes the connection, with this close code. Come back after `retry_after_ms`, if it is given."""

    code: int
    name: str
    reason: str = ""
    retry_after_ms: int | None = None


DOWN: Final[Mapping[str, type[Frame]]] = {
    "gw.welcome": Welcome,
    "gw.subscribed": Subscribed,
    "gw.live": Live,
    "gw.reset": Reset,
    "gw.unsubscribed": Unsubscribed,
    "gw.runs": Runs,
    "gw.run": RunChanged,
    "gw.counts": CountsChanged,
    "gw.unwatched": Unwatched,
    "gw.tick": Tick,
    "gw.ack": Ack,
    "gw.error": Error,
    "gw.bye": Bye,
}
"""Type -> class."""

encode: Final = msgspec.json.Encoder().encode
"""A frame's bytes."""
