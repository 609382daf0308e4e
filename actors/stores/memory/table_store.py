"""A base for stores of one process: rows in tables in memory, which a subclass makes durable in its own way."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import trio
from typing_extensions import override

from ...abc import Store
from ...contract.claims import Claim
from ...processes import Ability, QueueInfo, ReadyRun
from ..common._requests import QueueRequest
from ..common._write_queue import closed
from ..common.sole import SoleProcess
from ._reads import TableReads
from ._tables import MemoryTables

__all__ = ["TableStore"]


class TableStore(SoleProcess, TableReads, Store):
    """The whole of `Claims` and `Notifier`, and the reads of `RunStore`, for one process.

    A subclass implements the writes: `epoch`, `run`, `create_run`, `submit`, `post`, `prune`, `statistics` and
    `set_values`. `tables` has methods that decide and apply these writes, each in one synchronous stretch. `run` fills
    the tables, voids the claims of earlier openings (`tables.void_claims`), and serves while `serving` is True.

    Attributes:
        tables: the rows.
        serving: The store is open.
    """

    def __init__(self) -> None:
        """Make an empty store, which is closed."""
        self.tables = MemoryTables()
        self.serving = False

    async def _read(self) -> MemoryTables:
        await trio.lowlevel.checkpoint()
        if not self.serving:
            raise closed()
        return self.tables

    @override
    async def claim(self, run_id: str) -> Claim | None:
        claim = (await self._read()).claim(run_id)
        return claim if isinstance(claim, Claim) else None

    @override
    async def claim_ready(self, room: int, ability: Ability, now: datetime) -> Sequence[ReadyRun]:
        return (await self._read()).claim_ready(room, ability, now)

    @override
    async def claim_due(self, now: datetime, ability: Ability, *, limit: int = 100) -> Sequence[ReadyRun]:
        return (await self._read()).claim_due(now, ability, limit)

    @override
    async def queues(self) -> Sequence[QueueInfo]:
        return (await self._read()).queues(datetime.now(UTC))

    @override
    async def set_queue(self, name: str, *, max_running: int | None = None, paused: bool = False) -> None:
        request = QueueRequest(name, max_running, paused)
        request.check()
        (await self._read()).limit(request)

    @override
    async def revive_run(self, run_id: str) -> bool:
        return (await self._read()).revive(run_id, datetime.now(UTC)) is not None
