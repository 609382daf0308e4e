"""The port to the hints: what a process hears about runs that other processes work on."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

from ..contract.run_lists import RunProgress


class Notifier(abc.ABC):
    """News of runs that other processes work on; the store reports them as a `PeerEvent` to the receiver of `run`.

    A hint may be lost, late or repeated: the rows are the truth, and the store looks at them every few seconds.
    """

    @abc.abstractmethod
    def watch(self, run_id: str) -> AbstractContextManager[None]:
        """Report changes of a run by `ChangedElsewhere` for the time of the block, if another process works on it.

        Changes before the report begins are reported once it has begun. A lost report is made up for within seconds.
        """

    @abc.abstractmethod
    async def progress(self, run_ids: Sequence[str]) -> Mapping[str, RunProgress]:
        """Return how far these runs are, by id; unknown ids are left out. Empty in a store that is not shared.

        For runs that other processes work on: a read of a few columns, without the rows that `summaries` reads.
        """
