"""Policies of model requests: plain data for the engine's decisions, with the pure arithmetic that belongs to it.

A policy is part of an agent's spec (`AgentSpec.policies`), so the engine's choice is pure, durable and in the log. The
plugins of the same names (`gr.Retry`) carry a policy into an agent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs
import msgspec

from .messages import Usage


@attrs.frozen(kw_only=True)
class RetryPolicy:
    """Retries of one model request in one step, for failures that may pass.

    Attributes:
        attempts: requests in all, 1 or more; 1: no retry.
        first: seconds before the first retry.
        factor: each further wait is this many times the previous one.
        longest: seconds; upper bound of the back-off.
        retry_after_cap: seconds; a longer wait requested by the provider (Retry-After) ends the retries.
    """

    attempts: int = 3
    first: float = 0.5
    factor: float = 2.0
    longest: float = 30.0
    retry_after_cap: float = 60.0

    def backoff(self, failures: int, jitter: float) -> float:
        """Return the seconds before the next request, after this many failures (>= 1).

        `jitter` is a factor of about 1.
        """
        try:
            seconds = self.first * self.factor ** (failures - 1)
        except OverflowError:
            seconds = self.longest
        return min(seconds * jitter, self.longest)

    def wait(self, failures: int, jitter: float, retry_after: float | None) -> float:
        """Return the seconds before the next request: the back-off, or the provider's wait if that is longer."""
        return max(self.backoff(failures, jitter), retry_after or 0.0)

    def too_long(self, retry_after: float | None) -> bool:
        """Return True if the provider asks for a wait longer than the cap."""
        return retry_after is not None and retry_after > self.retry_after_cap

    @property
    def most(self) -> float:
        """Upper bound of every wait, in seconds."""
        return max(self.longest, self.retry_after_cap)


@attrs.frozen(kw_only=True)
class RecoveryPolicy:
    """Continuing the text of an answer whose stream broke.

    Attributes:
        times: how many tries of one step may continue a shown text; all others begin again.
    """

    times: int = 2


@attrs.frozen(kw_only=True)
class IdlePolicy:
    """How long a model may be silent.

    Attributes:
        idle: seconds between two events of a stream; None: no limit.
        first: seconds from the request to its first event; None: no limit.
    """

    idle: float | None = 60.0
    first: float | None = 120.0


@attrs.frozen(kw_only=True)
class FallbackPolicy:
    """Other models of a step, asked one after the other.

    Attributes:
        models: their names, in order.
        on: the kinds of failure after which the next model is asked, sorted.
    """

    models: tuple[str, ...]
    on: tuple[str, ...]


@attrs.frozen(kw_only=True)
class BreakerPolicy:
    """When a model that keeps failing is left alone.

    Attributes:
        failures: failures that may pass, within `within` seconds, that open the circuit.
        within: seconds.
        open_for: seconds during which the model is not asked.
    """

    failures: int = 5
    within: float = 60.0
    open_for: float = 30.0


@attrs.frozen
class Price:
    """The price of a model, per million tokens, in any one currency.

    Attributes:
        input: The price of tokens that the model reads.
        output: The price of tokens that the model writes, reasoning included.
        cached: The price of read tokens that the provider had cached; None: as `input`.
        stored: The price of read tokens that the provider put into its cache; None: as `input`.
    """

    input: float
    output: float
    cached: float | None = None
    stored: float | None = None

    def of(self, usage: Usage) -> float:
        """Return what these tokens cost."""
        cached_price = self.input if self.cached is None else self.cached
        stored_price = self.input if self.stored is None else self.stored
        stored_tokens = 0 if usage.stored is msgspec.UNSET else usage.stored
        fresh = usage.input - usage.cached - stored_tokens
        read = fresh * self.input + usage.cached * cached_price + stored_tokens * stored_price
        return (read + usage.output * self.output) / 1_000_000


@attrs.frozen(kw_only=True)
class BudgetPolicy:
    """The limits of a run; None: no limit.

    Attributes:
        requests: model requests.
        input: tokens that models read.
        output: tokens that models write.
        total: both together.
        tool_calls: bodies of tools that begin.
        cost: in the currency of `prices`.
        prices: model name -> its price.
    """

    requests: int | None = None
    input: int | None = None
    output: int | None = None
    total: int | None = None
    tool_calls: int | None = None
    cost: float | None = None
    prices: tuple[tuple[str, Price], ...] = ()

    def price(self, model: str) -> Price | None:
        """Return the price of a model, or None."""
        return next((price for name, price in self.prices if name == model), None)


@attrs.frozen(kw_only=True)
class TruncationPolicy:
    """Continuing an answer that its token limit has cut.

    Attributes:
        times: requests of one step that may do so.
    """

    times: int = 2


Policy = RetryPolicy | RecoveryPolicy | IdlePolicy | FallbackPolicy | BreakerPolicy | BudgetPolicy | TruncationPolicy
"""The policies that a policy plugin may carry."""


@attrs.frozen(kw_only=True)
class Policies:
    """The policies of an agent, one of each kind; a missing kind has its default, or does not exist (None)."""

    retry: RetryPolicy = RetryPolicy()
    recovery: RecoveryPolicy = RecoveryPolicy()
    idle: IdlePolicy = IdlePolicy()
    fallback: FallbackPolicy | None = None
    breaker: BreakerPolicy | None = None
    budget: BudgetPolicy | None = None
    truncation: TruncationPolicy | None = None


DEFAULTS: Final = Policies()
"""The policies of an agent without policy plugins."""
FIELDS: Final[Mapping[type[Policy], str]] = {
    RetryPolicy: "retry",
    RecoveryPolicy: "recovery",
    IdlePolicy: "idle",
    FallbackPolicy: "fallback",
    BreakerPolicy: "breaker",
    BudgetPolicy: "budget",
    TruncationPolicy: "truncation",
}
"""Kind of policy -> its field of `Policies`."""
