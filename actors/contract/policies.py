"""Policies of asking a model: plain data that the engine decides by, and the pure arithmetic that belongs to it.

A policy stands in the spec of an agent (`AgentSpec.policies`), so a choice of the engine is pure, durable and in the
log. The plugins of the same names (`gr.Retry`) carry a policy into an agent.
"""

from __future__ import annotations

from typing import Final

import attrs


@attrs.frozen(kw_only=True)
class RetryPolicy:
    """Tries of one model in one step, for failures that may pass.

    Attributes:
        attempts: tries in all, 1 or more; 1: a failure is final.
        first: seconds before the second try. factor: each further wait is so many times the one before.
        longest: seconds; no wait of the back-off is longer.
        retry_after_cap: seconds; a provider that asks for a longer wait (Retry-After) is not asked again.
    """

    attempts: int = 3
    first: float = 0.5
    factor: float = 2.0
    longest: float = 30.0
    retry_after_cap: float = 60.0

    def backoff(self, failures: int, jitter: float) -> float:
        """Seconds before the next try, after so many failures (1 or more). The jitter is drawn outside, about 1."""
        try:
            grown = self.first * self.factor ** (failures - 1)
        except OverflowError:
            grown = self.longest
        return min(grown * jitter, self.longest)

    def wait(self, failures: int, jitter: float, retry_after: float | None) -> float:
        """Seconds before the next try: the back-off, or what the provider asks for if that is longer."""
        return max(self.backoff(failures, jitter), retry_after or 0.0)

    def too_long(self, retry_after: float | None) -> bool:
        """True if the provider asks for a longer wait than the cap."""
        return retry_after is not None and retry_after > self.retry_after_cap

    @property
    def most(self) -> float:
        """Seconds; no wait is longer."""
        return max(self.longest, self.retry_after_cap)


Policy = RetryPolicy
"""What a policy plugin may carry. A union once there are more."""


@attrs.frozen(kw_only=True)
class Policies:
    """The policies of an agent, one of each kind; a kind that the agent does not give has its defaults."""

    retry: RetryPolicy = RetryPolicy()


DEFAULTS: Final = Policies()
"""The policies of an agent that gives none."""
