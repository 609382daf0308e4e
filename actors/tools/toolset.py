"""The port to a source of tools that are known at run time only."""

from __future__ import annotations

import abc
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal

from ..contract.rows import RunInfo
from ..plugins.contexts import PhaseContext
from .definition import Tool


class Toolset(abc.ABC):
    """A source of tools, such as a server, that is asked in each step of a run.

    The tools are made by `Tool.from_schema`. Their approvals, guardrails, limits and failures are those of any tool.
    Refused are background tools, tools of agents, and tools with `is_enabled`: `tools` itself decides per step.

    Attributes:
        name: `[a-z][a-z0-9_-]{0,31}`, unique in an agent.
        scope: "runtime": the runtime opens the toolset once; "run": once for each run that works here, until the run
            rests for long or ends.
        on_unavailable: "skip": a step goes on without the tools of a toolset that fails, and the run reports that once
            per cause. "fail": the run fails (runtime_unavailable).
    """

    name: str
    scope: Literal["runtime", "run"] = "runtime"
    on_unavailable: Literal["skip", "fail"] = "skip"

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that no event may show; a runtime masks those of the agents it is opened with."""
        return ()

    @abc.abstractmethod
    async def tools(self, ctx: PhaseContext[Any]) -> Sequence[Tool[..., object]]:
        """Return the tools for one step of one run, at most 2,000.

        Called after the before_inference hooks, concurrently with the other toolsets of the agent, for at most 30 s. A
        description above 4 KiB is cut, and a tool whose schema has more than 64 KiB is left out; both are logged.
        Returning the same objects again costs least: a tool is checked once.

        Raises:
            Exception: the toolset is not available in this step; the text is shown to people.
        """

    async def find(self, info: RunInfo, name: str) -> Tool[..., object] | None:
        """Return a tool for a call whose step another owner of the run has begun; None: there is none any more.

        The default asks nobody and has none: then such a call fails (unknown_tool). Called for at most 30 s.

        Raises:
            Exception: as for `tools`; the call fails (runtime_unavailable).
        """
        return None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Toolset | None]:
        """Hold what the steps share, such as connections; the default holds nothing.

        What the context yields is asked in place of this object, such as an object of one runtime; None: this object.

        A runtime enters the context before it first asks the toolset, and leaves it after its last run has stopped,
        both in one task. On leaving, the task is cancelled: shield and bound what has to be awaited there.

        Raises:
            Exception: as for `tools`; a later step tries again.
        """
        yield None
