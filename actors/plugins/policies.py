"""Plugins without hooks: each carries a policy, plain data for the engine's decisions.

A policy plugin is given like every other plugin, `gr.Agent(..., plugins=[gr.Retry(attempts=5)])`. An agent has one
policy of each kind: its own, or the default.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

from greenroom.supervision.fields import did_you_mean

from ..abc import Model
from ..contract.policies import (
    FIELDS,
    BreakerPolicy,
    BudgetPolicy,
    FallbackPolicy,
    IdlePolicy,
    Policies,
    Policy,
    Price,
    RecoveryPolicy,
    RetryPolicy,
    TruncationPolicy,
)
from ..errors import MODEL_ERROR_KINDS, AgentDefinitionError, ModelErrorKind
from .plugin import Plugin

_ANOTHER_MODEL: Final = tuple(
    sorted(set(MODEL_ERROR_KINDS) - {"invalid_request", "context_overflow", "content_filtered"})
)
"""The kinds of failure after which another model may do better."""
_INSTANT: Final = 0.001
"""Seconds; a shorter limit would end every request."""
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
    of it. A cancel or the run's deadline ends a wait immediately.

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
        self.__attrs_init__(
            RetryPolicy(
                attempts=_whole("Retry(attempts=", attempts, 1, " (1: no retries)"),
                first=_number("Retry(first=", first, 0.0, _YEAR),
                factor=_number("Retry(factor=", factor, 1.0, 1_000.0),
                longest=_number("Retry(longest=", longest, 0.0, _YEAR),
                retry_after_cap=_number("Retry(retry_after_cap=", retry_after_cap, 0.0, _YEAR),
            )
        )


@attrs.frozen(init=False)
class Recovery(PolicyPlugin):
    """How often the text of an answer whose stream broke is continued.

    The next request has the step's messages, then the text so far as a message of the assistant, then a request to
    continue; these two join no thread. The text continues under the same message id, and the history has one message. A
    call that had begun is dropped and named to the model as not run. Each such request is one of the tries of `Retry`.
    An answer with an output type always begins again, as does an answer without text.

    An agent without a Recovery has `Recovery()`.

    Args:
        times: requests of one step that may continue a text, 0 or more; the others begin again.

    Raises:
        AgentDefinitionError: `times` is not such a number.
    """

    policy: RecoveryPolicy

    def __init__(self, times: int = 2) -> None:
        self.__attrs_init__(RecoveryPolicy(times=_whole("Recovery(times=", times, 0, " (0: off)")))


@attrs.frozen(init=False)
class IdleTimeout(PolicyPlugin):
    """How long a model may be silent. A longer silence is a failure of the kind timeout.

    Events are the deltas that the model yields, and its response; bytes that carry none do not count. Waiting for the
    store, or for a reader of it, is not silence of the model. An agent without an IdleTimeout has `IdleTimeout()`.

    Args:
        idle: seconds between two events; None: no limit.
        first: seconds from the request to its first event; None: no limit.

    Raises:
        AgentDefinitionError: a number is out of range.
    """

    policy: IdlePolicy

    def __init__(self, idle: float | None = 60.0, *, first: float | None = 120.0) -> None:
        self.__attrs_init__(
            IdlePolicy(
                idle=None if idle is None else _number("IdleTimeout(idle=", idle, _INSTANT, _YEAR),
                first=None if first is None else _number("IdleTimeout(first=", first, _INSTANT, _YEAR),
            )
        )


@attrs.frozen(init=False)
class Fallback(PolicyPlugin):
    """Other models, asked in order when a model has failed.

    The next model is asked, without a wait, when the tries of one are used up (`Retry`), immediately after a failure
    that will not pass, and immediately while the circuit of a model is open (`CircuitBreaker`). The next
    model continues a text that was shown, as `Recovery` says. Each step begins with the agent's own model.

    Args:
        *models: Model objects or "provider:name", one or more.
        on: the kinds of `ModelError` after which the next model is asked; default: all but invalid_request,
            context_overflow and content_filtered, which mean the request and not the model. An exception that is no
            ModelError is a bug, and no other model is asked.

    Raises:
        AgentDefinitionError: a model is neither, or a kind is unknown.
    """

    policy: FallbackPolicy
    models: tuple[Model | str, ...]

    def __init__(self, *models: Model | str, on: Iterable[ModelErrorKind] | None = None) -> None:
        for model in models:
            if not isinstance(model, Model | str):
                raise AgentDefinitionError(f'Fallback({model!r}): give Model objects or "provider:name"')
        if not models:
            raise AgentDefinitionError("Fallback() needs a model")
        error_kinds: tuple[object, ...] = _ANOTHER_MODEL
        if on is not None:
            error_kinds = tuple(on) if isinstance(on, Iterable) and not isinstance(on, str) else (on,)
        for kind in error_kinds:
            if not isinstance(kind, str) or kind not in MODEL_ERROR_KINDS:
                near = did_you_mean(kind, MODEL_ERROR_KINDS)
                raise AgentDefinitionError(
                    f"Fallback(on={kind!r:.200}): {near}the kinds are {', '.join(MODEL_ERROR_KINDS)}"
                )
        names = tuple(model.name if isinstance(model, Model) else str(model) for model in models)
        kinds = tuple(sorted(set(map(str, error_kinds))))
        self.__attrs_init__(FallbackPolicy(models=names, on=kinds), models)


@attrs.frozen(init=False)
class CircuitBreaker(PolicyPlugin):
    """When a model that keeps failing is left alone, by all runs of the runtime together.

    Failures that may pass are counted per model name. While the circuit is open no request is made: the try has failed
    (overloaded) with the rest of the time as its `retry_after`, counts no request, and a `Fallback` asks the next model
    immediately. Then one request is a trial: its answer closes the circuit, its failure opens it again. Circuits are in
    memory only.

    Args:
        failures: that open the circuit, 1 or more.
        within: seconds in which they happen.
        open_for: seconds during which the model is not asked.

    Raises:
        AgentDefinitionError: a number is out of range.
    """

    policy: BreakerPolicy

    def __init__(self, failures: int = 5, *, within: float = 60.0, open_for: float = 30.0) -> None:
        self.__attrs_init__(
            BreakerPolicy(
                failures=_whole("CircuitBreaker(failures=", failures, 1),
                within=_number("CircuitBreaker(within=", within, _INSTANT, _YEAR),
                open_for=_number("CircuitBreaker(open_for=", open_for, _INSTANT, _YEAR),
            )
        )


@attrs.frozen(init=False)
class Budget(PolicyPlugin):
    """A budget of a run. A run that would use more ends as failed (budget_exhausted).

    Requests, tokens and cost are checked before each model request: also retries, fallbacks and answers that are asked
    for again. `tool_calls` is checked before each body of a tool. So a run may exceed a limit of tokens by one request,
    and an answer that has come is kept. Waiting and restarts do not reset the counters; a fork begins with its own.

    Args:
        requests: model requests, failed ones included.
        input: tokens that models read.
        output: tokens that models write.
        total: both together.
        tool_calls: bodies of tools that begin, repeated ones included.
        cost: The cost of all requests, in the currency of the prices.
        prices: the name of a model, such as "openai:gpt-5-mini" -> its `gr.Price`. A model without a price is not asked
            if the cost is limited.

    Raises:
        AgentDefinitionError: a number is out of range, nothing is limited, or a price is missing.
    """

    policy: BudgetPolicy

    def __init__(
        self,
        *,
        requests: int | None = None,
        input: int | None = None,  # noqa: A002 - the names of Usage
        output: int | None = None,
        total: int | None = None,
        tool_calls: int | None = None,
        cost: float | None = None,
        prices: Mapping[str, Price] | None = None,
    ) -> None:
        counts = {"requests": requests, "input": input, "output": output, "total": total, "tool_calls": tool_calls}
        limits = {name: _whole(f"Budget({name}=", value, 0) for name, value in counts.items() if value is not None}
        table: object = prices
        if not isinstance(table, Mapping | None):
            raise AgentDefinitionError(f"Budget(prices={prices!r:.200}): give a dict of names and gr.Price")
        price_table = dict(prices or {})
        pairs: Iterable[tuple[object, object]] = price_table.items()
        for name, price in pairs:
            if not isinstance(price, Price) or not isinstance(name, str):
                way = "give the name of a model, such as 'openai:gpt-5-mini', and a gr.Price"
                raise AgentDefinitionError(f"Budget(prices={{{name!r:.200}: {price!r:.200}}}): {way}")
            for field, value in attrs.asdict(price).items():
                if value is not None or field not in ("cached", "stored"):
                    _number(f"Budget(prices={{{name!r}: Price({field}=", value, 0.0, 1e12)
        if not limits and cost is None:
            raise AgentDefinitionError(
                "Budget() limits nothing; give one of requests, input, output, total, tool_calls, cost"
            )
        if cost is not None and not price_table:
            raise AgentDefinitionError("Budget(cost=...) needs prices={'provider:model': gr.Price(input, output)}")
        most = None if cost is None else _number("Budget(cost=", cost, 0.0, 1e12)
        self.__attrs_init__(BudgetPolicy(cost=most, prices=tuple(sorted(price_table.items())), **limits))


@attrs.frozen(init=False)
class ContinueTruncated(PolicyPlugin):
    """An answer that its token limit has cut is continued, as `Recovery` continues a broken one.

    Without this plugin such a text is the answer, and `finish` says length. Answers with calls, and those with an
    output type, are not continued.

    Args:
        times: requests of one step that may do so, 1 or more.

    Raises:
        AgentDefinitionError: `times` is not such a number.
    """

    policy: TruncationPolicy

    def __init__(self, times: int = 2) -> None:
        self.__attrs_init__(TruncationPolicy(times=_whole("ContinueTruncated(times=", times, 1)))


def _whole(what: str, value: object, least: int, meaning: str = "") -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise AgentDefinitionError(f"{what}{value!r}): give a whole number, {least} or more{meaning}")
    return int(value)


def _number(what: str, value: object, least: float, most: float) -> float:
    # also false for NaN
    if not isinstance(value, int | float) or isinstance(value, bool) or not least <= value <= most:
        raise AgentDefinitionError(f"{what}{value!r}): give a number from {least:g} to {most:,.0f}")
    return float(value)


def fallbacks_of(plugins: Iterable[Plugin]) -> tuple[Model | str, ...]:
    """Return the fallback models of an agent's plugins."""
    return next((plugin.models for plugin in plugins if isinstance(plugin, Fallback)), ())


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
    fields: dict[str, Any] = {FIELDS[kind]: policy for kind, policy in policies.items()}
    return Policies(**fields)


def essence(policies: Policies) -> dict[str, Any]:
    """Return the differences from the defaults, as plain data for an agent's digest."""
    return {
        field.name: attrs.asdict(getattr(policies, field.name), filter=_is_set)
        for field in attrs.fields(Policies)
        if getattr(policies, field.name) != field.default
    }


def _is_set(field: attrs.Attribute[Any], value: object) -> bool:
    """Leave out the youngest field where it says nothing, so that agents keep the digests that they had without it."""
    return field.name != "stored" or value is not None
