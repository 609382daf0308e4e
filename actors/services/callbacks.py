"""Callbacks of the store (`StoreEvent`) and of the run actors (`Directory`).

Theory of operation. The store and the run actors exist before the registry and the commands that they call, and each of
those needs the other: the two objects here break the circle, and their targets are set before the first run. The
store's callbacks are synchronous, in the trio thread and in commit order, so they only note facts and wake tasks.
"""

from __future__ import annotations

import logging
from typing import Final, assert_never

from greenroom.supervision import RecentCrashes

from ..contract.codec import failure_text
from ..store_events import (
    ChangedElsewhere,
    ClaimsVoided,
    CommandPosted,
    LogsRenamed,
    OutageChanged,
    PartCrashed,
    PeerEvent,
    RunCommitted,
    RunsPruned,
    StoreEvent,
    ThreadFreed,
    WorkFound,
)
from .change_signals import ChangeSignals
from .error_log import RUN, ErrorLog
from .services import Directory

STORE_NAME: Final = "runtime/:store"
"""Name of the store among the parts of a runtime."""


class StoreReports(ChangeSignals):
    """Receives the store's reports: publishes durable changes, hints commands to the owners, and logs outages.

    Attributes:
        outage: why the store is unavailable; None if it answers.
        crashes: names the parts of the runtime that have crashed of late.
    """

    def __init__(self, directory: Directory, log: ErrorLog) -> None:
        super().__init__()
        self.outage: Exception | None = None
        self.crashes = RecentCrashes()
        self._directory, self._log = directory, log

    def __call__(self, event: StoreEvent) -> None:
        """Receive a report of the store."""
        match event:
            case RunCommitted():
                self.committed(event.run_id, event.last, event.frames)
            case CommandPosted():
                self._directory.registry.posted(event.run_id, event.item)
                for listener in tuple(self.listeners):  # lists show that the command waits
                    listener(event.run_id, ())
            case RunsPruned():
                self.pruned()
            case OutageChanged(error=error):
                self.outage = error  # until the end, runs wait for receipts, and commands get store_unavailable
                what = "the store answers again"
                if error is not None:
                    what = f"the store does not answer ({failure_text(error)}); it is tried again for its patience"
                self._log.note(RUN, logging.WARNING, what)
            case PartCrashed(part=part, error=error):
                self.crashes.note(STORE_NAME)  # names the store for a minute
                self._log.bug(RUN, f"{part} crashed; it begins again", error, child=STORE_NAME)
            case _:
                self._heard(event)

    def _heard(self, event: PeerEvent) -> None:
        """Receive a report about other processes."""
        match event:
            case ChangedElsewhere():
                self._directory.on_move(event.run_id, event.last)
            case WorkFound():
                self._directory.work()
            case ThreadFreed():
                self._directory.registry.thread_freed(event.run_id)
            case ClaimsVoided():
                text = "the claims of this process are void, because its lease has ended; its runs are claimed again"
                self._log.note(RUN, logging.WARNING, text)
                self._directory.registry.voided()
                self._directory.work()
            case LogsRenamed():
                text = "the logs have another identity, as after a failover or a restored backup: readers begin again"
                self._log.note(RUN, logging.WARNING, text)
                self.renamed(event.epoch)
            case _:
                assert_never(event)
