"""A process on a shared store that works on one run: nothing else of the database may land in it, since it ends soon.

Theory of operation. The process owns what it was asked to work on: runs that are started in it or resumed in it, and
their child runs. Its store claims nothing else, neither ready runs, nor due ones, nor those that a command wakes. The
process publishes its agents, because others judge decisions by their tools, and no room, so that no hint about work is
sent to it. When the lease was lost in an outage, the process claims its own runs again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import trio

import greenroom as gr
from greenroom.actors.abc import Store
from greenroom.actors.contract.claims import Claim
from greenroom.actors.contract.commits import Created, NewRun
from greenroom.actors.contract.lifecycle import RunStatus
from greenroom.actors.contract.run_lists import RunSummary
from greenroom.actors.processes import NO_PLACES, Ability, ReadyRun, Taken


class OneRunStore(gr.SQLiteStore):
    """A database in which this process runs one run only; the others are unchanged until they are resumed."""

    async def claim_ready(self, room: int, ability: Ability, now: datetime) -> Sequence[ReadyRun]:
        """Claim nothing: the runtime is to take up no other run."""
        return ()

    async def claim_due(self, now: datetime, ability: Ability, *, limit: int = 100) -> Sequence[ReadyRun]:
        """Return nothing: the runtime is to wake no other run."""
        return ()

    async def next_due(self) -> datetime | None:
        """Return None: no other run is woken."""
        return None


class OneRunClaims:
    """Keeps a shared store, from now on, from claiming other runs than `mine`."""

    def __init__(self, store: Store) -> None:
        """`store`: not open yet."""
        self.mine = set[str]()
        self._store = store
        self._create, self._claim, self._publish = store.create_run, store.claim, store.publish
        replaced: Any = store
        replaced.create_run, replaced.claim, replaced.publish = self.create_run, self.claim, self.publish
        replaced.claim_ready, replaced.claim_due, replaced.next_due = self.claim_ready, self.claim_due, self.next_due

    def __repr__(self) -> str:
        return f"<OneRunClaims of {', '.join(sorted(self.mine)) or 'no run yet'}>"

    async def create_run(self, new: NewRun, frame: bytes, *, claim: bool = True) -> Created:
        """Write a run that was started here; see `Store.create_run`."""
        self.mine.add(new.info.run_id)
        return await self._create(new, frame, claim=claim)

    async def claim(self, run_id: str) -> Claim | Taken | None:
        """Claim an own run; see `Claims.claim`. None for all others, as if there were nothing to do."""
        above: str | None = run_id
        while above is not None and above not in self.mine:
            outline = await self._store.outline(above)
            above = None if outline is None else outline.info.parent_run
        if above is None:
            return None
        self.mine.add(run_id)
        return await self._claim(run_id)

    async def claim_ready(self, room: int, ability: Ability, now: datetime) -> Sequence[ReadyRun]:
        """Claim the own runs that lost their owner, as after an outage."""
        await trio.lowlevel.checkpoint()
        if not self.mine:
            return ()
        run_ids = [
            line.info.run_id for line in (await self._store.summaries(sorted(self.mine))).runs if _is_ready(line)
        ]
        claims = [await self._claim(run_id) for run_id in run_ids]
        return [ReadyRun(claim=claim) for claim in claims if isinstance(claim, Claim)]

    async def claim_due(self, now: datetime, ability: Ability, *, limit: int = 100) -> Sequence[ReadyRun]:
        """Claim nothing: an own run stays in memory, with its timers."""
        await trio.lowlevel.checkpoint()
        return ()

    async def next_due(self) -> datetime | None:
        """Return None: no run is woken by `claim_due`."""
        await trio.lowlevel.checkpoint()
        return None

    def publish(self, agents: Mapping[str, str], *, places: Mapping[str, str] = NO_PLACES, room: int | None) -> None:
        """Say which agents and workspaces this process has, and that it has no room for the runs of others."""
        self._publish(agents, places=places, room=0)


def _is_ready(line: RunSummary) -> bool:
    """Return True for a run without an owner that has something to do."""
    if line.owner is not None or line.held or line.dead is not None or line.row.status is RunStatus.DONE:
        return False
    return line.row.status is not RunStatus.WAITING or line.pending > 0 or line.row.position.rule.leaving
