"""The answers of a store that only one process has open: that process owns every run, and no other one sends hints."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime

from typing_extensions import override

from ...abc import Claims, Notifier
from ...contract.claims import Claim
from ...contract.run_lists import RunProgress
from ...processes import NO_PLACES, ProcessInfo


class SoleProcess(Claims, Notifier):
    """The part of `Claims` that is about other processes, and the whole `Notifier`, where there are none."""

    @property
    @override
    def good_until(self) -> float:
        return math.inf

    @property
    @override
    def unready(self) -> str | None:
        return None

    @property
    @override
    def offset(self) -> float:
        return 0.0

    @override
    async def release(self, claims: Sequence[Claim]) -> Sequence[str]:
        return ()

    @override
    async def give_back(self, claims: Sequence[Claim], *, ready_at: datetime | None = None) -> None:
        return

    @override
    def publish(self, agents: Mapping[str, str], *, places: Mapping[str, str] = NO_PLACES, room: int | None) -> None:
        return

    @override
    async def agents(self) -> Mapping[str, frozenset[str]]:
        return {}

    @override
    async def processes(self) -> Sequence[ProcessInfo]:
        return ()

    @override
    async def bury(self, process: str) -> bool:
        return False

    @override
    def watch(self, run_id: str) -> AbstractContextManager[None]:
        return nullcontext()

    @override
    async def progress(self, run_ids: Sequence[str]) -> Mapping[str, RunProgress]:
        return {}
