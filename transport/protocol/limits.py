"""Limits on everything that a stranger can send or hold. `gw.welcome` tells those that a client has to keep."""

from __future__ import annotations

from typing import Any, Final

import attrs

from greenroom.actors.errors import UsageError

PAGE_BYTES: Final = 1_048_576
"""Bytes after which a page of runs ends."""
ROW_BYTES: Final = 16_384
"""Bytes of a run in a list, at most."""


def _positive(_: object, attribute: attrs.Attribute[Any], value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise UsageError(f"{attribute.name}={value!r}: give a number above 0")


@attrs.frozen(kw_only=True)
class Limits:
    """What a connection may take and send. Sizes in bytes, times in seconds.

    Attributes:
        connections: open at once, of all principals; fewer if the process may not open so many files. per_principal: of
            one. strangers: of those whose peer has shown no token yet; None: a quarter of `connections`, 64 at least. A
            newcomer beyond them takes the place of the one that has been silent for longest.
        header_bytes: request line and headers. header_seconds: until they are whole.
        body_bytes: of a request. body_seconds: until it is whole.
        idle_seconds: between two requests of one connection.
        message_bytes: of a WebSocket message. messages_per_second: sustained; a burst may be twice that.
        subscriptions: runs that one connection follows. watches: lists of runs that one connection watches.
        watch_seconds: for which changes are gathered before they are told to those who watch.
        watch_bytes: that wait for a connection to take the changes of one list; above it comes the first page again.
        hello_seconds: until a browser has sent its token.
        heartbeat_seconds: without a byte from the client until it is pinged, and without an event until it gets a tick.
        pong_seconds: after a ping, until the client counts as gone.
        stall_seconds: a write without any progress, until the connection is cut.

    Raises:
        ValueError: one is not above 0.
    """

    connections: int = attrs.field(default=8192, validator=_positive)
    per_principal: int = attrs.field(default=4096, validator=_positive)
    strangers: int | None = attrs.field(default=None, validator=attrs.validators.optional(_positive))
    header_bytes: int = attrs.field(default=16_384, validator=_positive)
    header_seconds: float = attrs.field(default=10.0, validator=_positive)
    body_bytes: int = attrs.field(default=1_048_576, validator=_positive)
    body_seconds: float = attrs.field(default=30.0, validator=_positive)
    idle_seconds: float = attrs.field(default=75.0, validator=_positive)
    message_bytes: int = attrs.field(default=65_536, validator=_positive)
    messages_per_second: float = attrs.field(default=50.0, validator=_positive)
    subscriptions: int = attrs.field(default=100, validator=_positive)
    watches: int = attrs.field(default=4, validator=_positive)
    watch_seconds: float = attrs.field(default=0.2, validator=_positive)
    watch_bytes: int = attrs.field(default=1_048_576, validator=_positive)
    hello_seconds: float = attrs.field(default=5.0, validator=_positive)
    heartbeat_seconds: float = attrs.field(default=20.0, validator=_positive)
    pong_seconds: float = attrs.field(default=20.0, validator=_positive)
    stall_seconds: float = attrs.field(default=30.0, validator=_positive)
