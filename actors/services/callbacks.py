"""Callbacks of the store (`StoreHooks`) and of the run actors (`Directory`).

Theory of operation. The store and the run actors exist before the registry and the commands that they call, and each of
those needs the other: the two objects here break the circle, and their targets are set before the first run. The
store's callbacks are synchronous, in the trio thread and in commit order, so they only note facts and wake tasks.
"""

from __future__ import annotations

import logging
from typing import Final

from greenroom.supervision import RecentCrashes

from ..abc import StoreHooks
from ..contract.codec import failure_text
from ..contract.decisions import InboxItem
from .change_signals import ChangeSignals
from .error_log import RUN, ErrorLog
from .services import Directory

STORE_NAME: Final = "runtime/:store"
"""Name of the store among the parts of a runtime."""


class StoreReports(ChangeSignals, StoreHooks):
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

    def posted(self, run_id: str, item: InboxItem) -> None:
        """Hint a durable command to the run's actor; lists show that the command waits."""
        self._directory.registry.posted(run_id, item)
        for listener in tuple(self.listeners):
            listener(run_id, ())

    def renamed(self, epoch: str) -> None:
        """Log that the logs have another identity, and end the followers with LogReplaced."""
        text = "the logs have another identity, as after a failover or a restored backup: readers begin again"
        self._log.note(RUN, logging.WARNING, text)
        super().renamed(epoch)

    def moved(self, run_id: str, last: int) -> None:
        """Read what another process did to a run (`moved_runs.py`)."""
        self._directory.moved(run_id, last)

    def work(self) -> None:
        """Look for runs to claim."""
        self._directory.work()

    def thread_freed(self, run_id: str) -> None:
        """Let a run work that is not held by its thread any more."""
        self._directory.registry.thread_freed(run_id)

    def voided(self) -> None:
        """End every incarnation; the runs are claimed again, here or elsewhere. Logged in `greenroom.run`."""
        text = "the claims of this process are void, because its lease has ended; its runs are claimed again"
        self._log.note(RUN, logging.WARNING, text)
        self._directory.registry.voided()
        self._directory.work()

    def crashed(self, part: str, error: Exception) -> None:
        """Log that a part of the store has crashed and begins again, and name the store for a minute."""
        self.crashes.note(STORE_NAME)
        self._log.bug(RUN, f"{part} crashed; it begins again", error, child=STORE_NAME)

    def unavailable(self, error: Exception | None) -> None:
        """Record that the store stopped answering, or answers again (None); logged in `greenroom.run`.

        Meanwhile runs wait for their receipts, and commands are rejected with store_unavailable.
        """
        self.outage = error
        if error is None:
            self._log.note(RUN, logging.WARNING, "the store answers again")
        else:
            text = f"the store does not answer ({failure_text(error)}); it is tried again for its patience"
            self._log.note(RUN, logging.WARNING, text)
