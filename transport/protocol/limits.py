"""Limits on all that a client can send or hold. `gw.welcome` announces the limits that a client must respect."""

from __future__ import annotations

from typing import Any, Final

import attrs

from greenroom.actors.errors import UsageError

PAGE_BYTES: Final = 1_048_576
"""Bytes after which a page of runs ends."""
ROW_BYTES: Final = 16_384
"""Maximum bytes of a run in a list."""


def _positive(_: object, attribute: attrs.Attribute[Any], value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise UsageError(f"{attribute.name}={value!r}: give a number above 0")


@attrs.frozen(kw_only=True)
class Limits:
    """The limits of a gateway. Sizes in bytes, times in seconds.

    Attributes:
        connections: Open connections of all principals; fewer if the process may not open as many files.
        per_principal: Open connections of one principal.
        strangers: Open connections of peers that have not shown a token yet; None for a quarter of `connections`, at
            least 64. A further one replaces the stranger that has been silent longest.
        header_bytes: Request line and headers.
        header_seconds: Until the headers are complete.
        body_bytes: Body of a request.
        body_seconds: Until the body is complete.
        idle_seconds: Between two requests of one connection.
        message_bytes: One WebSocket message.
        messages_per_second: Sustained rate of messages; a burst may be twice that.
        subscriptions: Runs that one connection follows.
        watches: Lists of runs that one connection watches.
        watch_seconds: Period over which changes of a list are collected before they are sent.
        watch_bytes: Unsent changes of one list on one connection; beyond it the first page is sent again.
        hello_seconds: Until a browser has sent its token.
        heartbeat_seconds: Silence of the client until a ping, and silence of the gateway until a tick.
        pong_seconds: From a ping until the client counts as disconnected.
        stall_seconds: A write without progress until the connection is cut.

    Raises:
        ValueError: A limit is not greater than 0.
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
    watches: int = attrs.field(default=8, validator=_positive)
    watch_seconds: float = attrs.field(default=0.2, validator=_positive)
    watch_bytes: int = attrs.field(default=1_048_576, validator=_positive)
    hello_seconds: float = attrs.field(default=5.0, validator=_positive)
    heartbeat_seconds: float = attrs.field(default=20.0, validator=_positive)
    pong_seconds: float = attrs.field(default=20.0, validator=_positive)
    stall_seconds: float = attrs.field(default=30.0, validator=_positive)
