"""The times of a connection: reconnects, heartbeats, and the rate of frames."""

from __future__ import annotations

from collections.abc import Callable

import attrs


@attrs.frozen(kw_only=True)
class ConnectionTiming:
    """Times of a connection, in seconds. The defaults are those of docs/gateway.md.

    Attributes:
        first, slowest: Upper bounds of the first wait before a new attempt, and of any wait; each bound doubles the
        previous one. The wait is a random part of its bound, so that a thousand clients do not reconnect together.
        settled: After a connection of at least this duration, the waits start from `first` again.
        ping: Silence of the gateway after which the client sends a ping.
        silence: Silence of the gateway after which the connection counts as lost.
        handshake: Limit from the attempt to gw.welcome.
        closing: Limit for the close handshake at the end.
        patience: Delay before a subscribe is repeated that the gateway could not serve.
        lots: Draws a random number from 0 to 1; None: `random.random`.
    """

    first: float = 0.25
    slowest: float = 15.0
    settled: float = 5.0
    ping: float = 20.0
    silence: float = 45.0
    handshake: float = 10.0
    closing: float = 1.0
    patience: float = 1.0
    lots: Callable[[], float] | None = None

    def wait(self, attempt: int, lot: float) -> float:
        """Return the seconds to wait after `attempt` short connections or failures in a row, counted from 1.

        `lot`: A random number from 0 to 1.
        """
        return min(self.slowest, self.first * 2.0 ** min(attempt - 1, 62)) * lot


@attrs.define(eq=False)
class RateLimit:
    """A rate limit: `per_second` frames in the long run, and a burst of the same size (the gateway allows twice that).

    The generic cell rate algorithm (ITU-T I.371): one number, the time at which the allowance of all sent frames is
    used up.
    """

    per_second: float
    _used_up: float = 0.0

    def __repr__(self) -> str:
        return f"<RateLimit of {self.per_second:g} a second>"

    @property
    def free_at(self) -> float:
        """Earliest time at which one more frame may be sent."""
        # the burst: one second's allowance may be used ahead
        return self._used_up - 1.0

    def spend(self, now: float) -> None:
        """Count one frame."""
        self._used_up = max(self._used_up, now) + 1.0 / self.per_second
