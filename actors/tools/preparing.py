"""The preparation of a tool, in the stage preparing of a run: `tool(prepare=...)`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

import attrs

from ..contract.preparation import Preparation
from ..contract.rows import RunInfo

Deps = TypeVar("Deps")


@attrs.frozen(kw_only=True)
class PreparationContext(Generic[Deps]):
    """The parameter of a tool's `prepare`.

    Attributes:
        deps: the dependencies of the run.
        info: the constant facts of the run.
        workspace: the workspace of the run, which is prepared already; None for a run without one.
    """

    deps: Deps
    info: RunInfo
    workspace: object


PrepareTool = Callable[[PreparationContext[Any]], Awaitable[Preparation | None]]
"""(ctx) -> facts and doubts, or None; raises `PreparationError` if no run can use the tool now."""
