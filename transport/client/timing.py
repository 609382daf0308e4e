"""How a client keeps time: when it comes back, when it asks whether anybody is there, how fast it may send."""

from __future__ import annotations

import random
from collections.abc import Callable

import attrs


@attrs.frozen(kw_only=True)
class ConnectionTiming:
    """Times of a connection, in seconds. The defaults are those of docs/gateway.md.

    Attributes:
        first, slowest: the longest that the first wait before a new attempt may be, and any wait; each doubles the one
            before. The wait itself is a random part of it, so that a thousand clients do not come back together.
        settled: a connection that has lasted so long was a good one: after it the waits begin anew.
        ping: without a frame for so long, the gateway is asked for one.
        silence: without a frame for so long, the connection counts as lost.
        handshake: until a connection is open and welcomed.
        closing: for the close handshake at the end.
        patience: before a subscription is asked for again that the gateway could not serve.
        lots: draws from 0 to 1.
    """

    first: float = 0.25
    slowest: float = 15.0
    settled: float = 5.0
    ping: float = 20.0
    silence: float = 45.0
    handshake: float = 10.0
    closing: float = 1.0
    patience: float = 1.0
    lots: Callable[[], float] = random.random

    def wait(self, attempt: int) -> float:
        """Seconds to wait after `attempt` short-lived connections or failures in a row, from 1."""
        return min(self.slowest, self.first * 2.0 ** min(attempt - 1, 62)) * self.lots()


@attrs.define(eq=False)
class RateLimit:
    """How fast may be sent: `per_second` in the long run, and so many at once (the gateway allows twice that).

    The generic cell rate algorithm (ITU-T I.371): one number, the moment at which all that was sent is used up.
    """

    per_second: float
    _used_up: float = 0.0

    def __repr__(self) -> str:
        return f"<Allowance of {self.per_second:g} a second>"

    @property
    def free_at(self) -> float:
        """The moment from which on one more may be sent."""
        return self._used_up - 1.0

    def spend(self, now: float) -> None:
        """Count one message."""
        self._used_up = max(self._used_up, now) + 1.0 / self.per_second
