"""The budget of a run: what its models and tools have used, and whether more may be used.

Theory of operation. All usage of models passes `spend`, so that tokens and their cost are counted alike. A limit is
checked where more would be used: before each model request, and before each body of a tool. The counters are in the
run's row, so a restart continues to count.
"""

from __future__ import annotations

from typing import Final

from ..contract import events as ev
from ..contract.messages import Usage
from ..contract.policies import BudgetPolicy
from ..contract.rows import RunFields
from ..contract.spec import AgentSpec
from .body_inputs import Spent
from .state import StepBuilder
from .termination import fail

BUDGET_EXHAUSTED: Final = "budget_exhausted"
"""The failure of a run that would use more than its budget."""


def asked_model(spec: AgentSpec, row: RunFields, fallback: int) -> str:
    """Return the name of the model of a step's request. `fallback`: 0 for the step's own model, else its number."""
    if fallback and spec.policies.fallback is not None:
        return spec.policies.fallback.models[fallback - 1]
    return (row.request.model if row.request is not None else None) or spec.model


def spend_on_request(builder: StepBuilder, usage: Usage, fallback: int) -> None:
    """Count what a request of the step has used. `fallback`: as in `asked_model`."""
    if builder.spec.policies.budget is None:
        builder.row.usage += usage
    else:
        spend(builder, usage, asked_model(builder.spec, builder.row, fallback))


def spend(builder: StepBuilder, usage: Usage, model: str) -> None:
    """Count what a model has used."""
    builder.row.usage += usage
    policy = builder.spec.policies.budget
    if policy is not None and (price := policy.price(model)) is not None:
        builder.counters.cost += price.of(usage)


def spend_all(builder: StepBuilder, spendings: tuple[Spent, ...], call_id: str | None = None) -> None:
    """Count what models of hooks, or of the body of a call, have used, and report it."""
    for spending in spendings:
        spend(builder, spending.usage, spending.model)
        event = ev.UsageSpent(by=spending.by, usage=spending.usage, call_id=call_id)
        builder.emit("run.usage.spent", event)


def over_budget(builder: StepBuilder, policy: BudgetPolicy, model: str) -> str | None:
    """Return why the run may not ask this model; None if it may."""
    if policy.cost is not None and policy.price(model) is None:
        return f"the cost is limited to {policy.cost:g}, and the model {model!r} has no price"
    usage, cost = builder.row.usage, builder.counters.cost
    counts = {"requests": usage.requests, "input": usage.input, "output": usage.output, "total": usage.total}
    for name, count in counts.items():
        limit: int | None = getattr(policy, name)
        if limit is not None and count >= limit:
            return f"{name}: {count:,} of {limit:,} are used"
    if policy.cost is not None and cost >= policy.cost:
        return f"cost: {cost:.6g} of {policy.cost:g} are used"
    return None


def may_begin_body(builder: StepBuilder, policy: BudgetPolicy) -> bool:
    """Count a body that is to begin. Returns False, and ends the run, if the budget allows no further one."""
    if policy.tool_calls is None:
        return True
    if builder.counters.bodies >= policy.tool_calls:
        fail(builder, BUDGET_EXHAUSTED, f"tool_calls: {builder.counters.bodies:,} of {policy.tool_calls:,} are used")
        return False
    builder.counters.bodies += 1
    return True
