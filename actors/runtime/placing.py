"""Choose the place of a new run: where its workspace is.

Theory of operation. A process knows its own workspaces, and in a shared store reads those of the others. The runs of a
thread work in one copy of a workspace, so a new run gets the place of the newest run of its thread, if that one named
the same workspace; else this process's own place, else another one. A runtime without `Surroundings`, in a store of
which no process has any, takes a workspace as a text that means nothing to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from ..abc import Surroundings
from ..contract.plain import encodable
from ..contract.run_lists import RunQuery
from ..errors import UsageError, WorkspaceRefused
from ..services.agents import Agents
from .reader import RunReader
from .shared.agent_elsewhere import AgentsElsewhere
from .thread_access import MayJoin

LONGEST: Final = 256
"""Characters of the name of a workspace, and of a place."""
MOST: Final = 1000
"""Workspaces of one process."""


async def places_of(surroundings: Surroundings | None) -> Mapping[str, str]:
    """Return the workspaces of this process: name -> place.

    Raises:
        UsageError: `surroundings` is something else, or names and places are invalid.
    """
    if surroundings is None:
        return {}
    if not isinstance(surroundings, Surroundings):
        raise UsageError(f"workspaces={surroundings!r:.200}: give a Surroundings object, or None")
    places = await surroundings.open()
    if not isinstance(places, Mapping) or len(places) > MOST:
        raise UsageError(f"workspaces: open() returned {places!r:.200}; return a dict of up to {MOST} names and places")
    for name, place in places.items():
        if not (_is_name(name) and "/" not in name and _is_name(place)):
            way = f"1 to {LONGEST} characters each, no slash in a name"
            raise UsageError(f"workspaces: open() returned {name!r:.300}: {place!r:.300}; return {way}")
    return dict(places)


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= LONGEST and encodable(value)


def name_of(workspace: str) -> str:
    """Return the name in a workspace's text: "shop" of "shop/packages/web"."""
    return workspace.partition("/")[0]


@attrs.frozen(eq=False)
class Placing:
    """Chooses the places of new runs."""

    _agents: Agents
    _reader: RunReader
    _elsewhere: AgentsElsewhere

    async def place(
        self, workspace: str | None, *, thread_id: str | None, may_join: MayJoin | None, run_id: str | None
    ) -> str | None:
        """Return the place of a new run; None for a run without a workspace, or where no process has workspaces.

        Args:
            workspace: as in `start`.
            thread_id: the thread that the run joins.
            may_join: as in `start`: nothing is said about a thread that the caller may not join.
            run_id: its id, if the caller gave one: a repeated start is not refused.

        Raises:
            WorkspaceRefused: the workspace is not allowed, or no live process has it.
        """
        if workspace is None:
            return None
        surroundings, name = self._agents.surroundings, name_of(workspace)
        own, others = self._agents.places.get(name), await self._elsewhere.places()
        if surroundings is None and not others:
            return None
        places = [*([] if own is None else [own]), *others.get(name, ())]
        bound = None if thread_id is None or not places else await self._of_thread(thread_id, may_join, name)
        if not places or (bound is not None and bound not in places):
            existing = None if run_id is None else await self._reader.outline(run_id)
            if existing is None:
                raise self._offline(workspace, sorted({*self._agents.places, *others}), bound is not None)
            return existing.info.place
        fault = None if own is None or surroundings is None else surroundings.check(workspace)
        if fault is not None:
            raise WorkspaceRefused("workspace_outside_allowlist", fault)
        return bound or places[0]

    async def _of_thread(self, thread_id: str, may_join: MayJoin | None, name: str) -> str | None:
        page = await self._reader.page(RunQuery(thread_id=thread_id, limit=1))
        newest = page.runs[0].info if page.runs else None
        if newest is None or newest.workspace is None or name_of(newest.workspace) != name:
            return None
        return newest.place if may_join is None or may_join(newest) else None

    @staticmethod
    def _offline(workspace: str, names: list[str], is_bound: bool) -> WorkspaceRefused:
        if is_bound:
            text = f"the thread works in a copy of {workspace!r:.300} at a place that no live process has"
            return WorkspaceRefused("target_offline", f"{text}; start a process there, or take another thread")
        listing = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "") if names else "none"
        return WorkspaceRefused(
            "target_offline", f"no live process has the workspace {workspace!r:.300}; there are: {listing}", *names
        )
