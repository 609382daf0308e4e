"""`SharedReader`: reads runs of which any process may be the owner."""

from __future__ import annotations

import attrs

from ...contract.rows import RunRecord
from ...contract.run_lists import RunProgress
from ...run.forced_end import GAVE_UP
from ...services.follow import EventSource
from ..reader import RunReader


@attrs.define(eq=False, repr=False)
class SharedReader(RunReader):
    """A `RunReader` that reads the state of other processes before it says that no process works on a run."""

    def __attrs_post_init__(self) -> None:
        self._source = EventSource(self._services.store, self._services.signals, self.degraded, self._lack)

    def degraded(self, record: RunRecord) -> tuple[str, str] | None:
        """Return why a run that is not done is not worked on here; another process may work on the run."""
        return self._registry.degraded(record.info.run_id)

    async def _lack_of_view(self, record: RunRecord) -> tuple[str, str] | None:
        run_id = record.info.run_id
        with self._services.signals.looking():
            page = await self._services.store.summaries((run_id,))
        return await self._lack_after(record, page.runs[0].progress if page.runs else None)

    async def _lack(self, record: RunRecord) -> tuple[str, str] | None:
        """Return why no process works on a run that is not done (code, sentence), or None.

        A dead letter is worked on by none. Else what is missing here counts only for a run without an owner, and only
        if no other live process has both the run's agent and its place: it may have the rest, too.
        """
        return await self._lack_after(record, None)

    async def _lack_after(self, record: RunRecord, progress: RunProgress | None) -> tuple[str, str] | None:
        """Return `_lack`. `progress`: None if it is not known."""
        store, run_id = self._services.store, record.info.run_id
        if self._registry.get(run_id) is not None:
            return None
        if progress is None:
            progress = (await store.progress((run_id,))).get(run_id)
        self._registry.note_dead(run_id, None if progress is None else progress.dead)
        reason = self._registry.degraded(run_id)
        if progress is None or progress.dead is not None or (reason is not None and reason[0] == GAVE_UP):
            return reason
        if progress.owned or progress.done:
            return None
        reason = reason or self.missing_requirement(record)
        if reason is None:
            return None
        info = record.info
        is_served_here = self._agents.get(info.agent) is not None and self._agents.has_place(info)
        if sum(one.serves(info.agent, info.place) for one in await store.processes()) > is_served_here:
            return None
        self._services.alarm.at_deadline(run_id, record.info.deadline)  # that needs no agent
        return reason

    def _asks_anew(self, record: RunRecord) -> bool:
        """Return False without an owner here: a decision about the old ticket finds out, in whichever process."""
        return self._registry.get(record.info.run_id) is not None and super()._asks_anew(record)
