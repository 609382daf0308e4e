"""Circuit breakers: which models of a runtime are left alone for a while, because they keep failing.

Theory of operation. A circuit belongs to a model's name and to no run. It is closed until enough requests have failed
within a time, then open; after that one request is the trial, whose end closes or opens the circuit again. Requests ask
before they are made and report how they ended, both synchronously. The policy comes with each call, because agents that
share a model may have different ones, or none.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import attrs

from ..contract.policies import BreakerPolicy

TRIAL: Final = 1.0
"""Seconds after which a request asks again while the trial of another one is not over."""


@attrs.define(eq=False)
class Circuit:
    """The circuit of one model.

    Attributes:
        failed_at: when the newest requests failed, while the circuit is closed.
        opened_at: when the circuit opened; None: it is closed.
        on_trial: the trial is in flight.
    """

    failed_at: deque[float] = attrs.field(factory=deque)
    opened_at: float | None = None
    on_trial: bool = False

    def refusal(self, policy: BreakerPolicy, now: float) -> float | None:
        """Return the seconds after which a request may be made; None: now. That request may be the trial."""
        if self.opened_at is None:
            return None
        remaining = self.opened_at + policy.open_for - now
        if remaining > 0 or self.on_trial:
            return max(remaining, TRIAL if self.on_trial else 0.0)
        self.on_trial = True
        return None

    def succeeded(self) -> None:
        """Note an answer: the circuit is closed."""
        self.failed_at.clear()
        self.opened_at, self.on_trial = None, False

    def failed(self, policy: BreakerPolicy, now: float) -> None:
        """Note a failure that may pass."""
        self.failed_at.append(now)
        while self.failed_at[0] < now - policy.within or len(self.failed_at) > policy.failures:
            self.failed_at.popleft()
        if self.on_trial or len(self.failed_at) >= policy.failures:
            self.failed_at.clear()
            self.opened_at, self.on_trial = now, False

    def left(self) -> None:
        """Note a request that says nothing about the model: cancelled, or refused for its own sake."""
        self.on_trial = False


class Breakers:
    """The circuits of one runtime."""

    def __init__(self) -> None:
        self._circuits: dict[str, Circuit] = {}

    def __repr__(self) -> str:
        return f"<Breakers of {len(self._circuits)} models>"

    def circuit(self, model: str) -> Circuit:
        """Return the circuit of a model."""
        return self._circuits.get(model) or self._circuits.setdefault(model, Circuit())
