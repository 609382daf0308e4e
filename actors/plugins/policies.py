"""Plugins without hooks: each carries a policy, plain data for the engine's decisions.

A policy plugin is given like every other plugin, `gr.Agent(..., plugins=[gr.Retry(attempts=5)])`. An agent has one
policy of each kind: its own, or the default.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import attrs

from ..contract.policies import Policies, Policy, RetryPolicy
from ..errors import AgentDefinitionError
from .plugin import Plugin

_YEAR: Final = 365 * 86_400.0
"""Seconds; a longer wait is a mistake, and a very distant moment has no date."""


class PolicyPlugin(Plugin):
    """A plugin whose policy becomes part of the agent's spec.

    Attributes:
        policy: the data for the engine.
    """

    policy: Policy


@attrs.frozen(init=False)
class Retry(PolicyPlugin):
    """How often a model request is retried in one step, and how long the run waits before each retry.

    A failure is retried if it may pass: the kinds rate_limited, overloaded, timeout, interrupted and provider of
    `ModelError`. The wait is the longer of the back-off and the error's `retry_after`; the back-off of the n-th failure
    is `first * factor ** (n - 1)` seconds, times a random number from 0.5 to 1.5, and at most `longest`. Randomness
    never shortens a `retry_after`.

    An agent without a Retry has `Retry()`. The wait is durable: a run whose process ends meanwhile waits for the rest
    of it. A cancel or the run's deadline ends a wait at once.

    Args:
        attempts: requests of one step, 1 or more; 1 switches retries off.
        first: seconds before the first retry, before the random factor.
        factor: growth of the wait from one failure to the next, 1 or more.
        longest: seconds; upper bound of the back-off.
        retry_after_cap: seconds; a longer wait requested by the provider ends the retries, and the run fails with
            model_error.

    Raises:
        AgentDefinitionError: a number is out of range; names it and the range.
    """

    policy: RetryPolicy

    def __init__(
        self,
        attempts: int = 3,
        *,
        first: float = 0.5,
        factor: float = 2.0,
        longest: float = 30.0,
        retry_after_cap: float = 60.0,
    ) -> None:
        if not isinstance(attempts, int) or isinstance(attempts, bool) or attempts < 1:
            raise AgentDefinitionError(f"Retry(attempts={attempts!r}): give a whole number, 1 or more (1: no retries)")
        self.__attrs_init__(
            RetryPolicy(
                attempts=attempts,
                first=_number("Retry(first=", first, 0.0, _YEAR),
                factor=_number("Retry(factor=", factor, 1.0, 1_000.0),
                longest=_number("Retry(longest=", longest, 0.0, _YEAR),
                retry_after_cap=_number("Retry(retry_after_cap=", retry_after_cap, 0.0, _YEAR),
            )
        )


def _number(what: str, value: object, least: float, most: float) -> float:
    # also false for NaN
    if not isinstance(value, int | float) or isinstance(value, bool) or not least <= value <= most:
        raise AgentDefinitionError(f"{what}{value!r}): give a number from {least:g} to {most:,.0f}")
    return float(value)


def gathered(where: str, plugins: Iterable[Plugin]) -> Policies:
    """Return the policies of an agent's plugins, with defaults for missing kinds.

    Raises:
        AgentDefinitionError: two plugins have one kind of policy.
    """
    policies: dict[type[Policy], Policy] = {}
    for plugin in plugins:
        if not isinstance(plugin, PolicyPlugin):
            continue
        kind = type(plugin.policy)
        if kind in policies:
            name = kind.__name__.removesuffix("Policy")
            raise AgentDefinitionError(f"{where}: two plugins are a {name}; keep one of them")
        policies[kind] = plugin.policy
    return Policies(retry=policies.get(RetryPolicy, RetryPolicy()))


def essence(policies: Policies) -> dict[str, Any]:
    """Return the differences from the defaults, as plain data for an agent's digest."""
    return {
        field.name: attrs.asdict(getattr(policies, field.name))
        for field in attrs.fields(Policies)
        if getattr(policies, field.name) != field.default
    }
