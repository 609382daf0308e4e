"""One scrape: what has been counted, and how the process and the store are now."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import trio

import greenroom as gr
from greenroom.actors.processes import ProcessInfo

from .metrics import Metrics
from .run_metrics import RunMetrics

FRESH: Final = 15.0
"""Seconds for which the numbers of the store are used again: scrapers may be many, and the store is one."""
SHARE: Final = 20
"""The numbers are used for at least this multiple of the time that reading them took: at most 5 % of a reader."""
LIMIT: Final = 5.0
"""Seconds for the store's numbers; a scraper waits for 10 by default."""
_STATISTICS: Final = {
    "queued": "store_queue_length",
    "beat_age": "store_beat_age_seconds",
    "commits": "store_commits_total",
    "transactions": "store_transactions_total",
    "events": "store_events_total",
    "posts": "store_commands_total",
    "bytes_written": "store_written_bytes_total",
    "reconnects": "store_reconnects_total",
    "repeated": "store_repeated_total",
    "hints_sent": "store_hints_sent_total",
    "hints_received": "store_hints_received_total",
    "hints_dropped": "store_hints_dropped_total",
    "claims": "store_claims_total",
    "freed": "store_freed_total",
    "dead_letters": "store_dead_letters_total",
}
"""Field of `StoreStatistics` -> metric."""
_STORE: Final = (
    *("runs_open", "threads_open", "tickets_open", "ticket_oldest_age_seconds"),
    *("queue_ready", "queue_working", "queue_oldest_seconds", "process_beat_age_seconds"),
)


class Scrapes:
    """Answers scrapes of one gateway."""

    def __init__(self, runtime: gr.Runtime, metrics: Metrics) -> None:
        self._runtime, self._metrics = runtime, metrics
        self._runs = RunMetrics(metrics, runtime.reader, runtime.clock.now)
        self._turn = trio.Lock()
        self._good_until = float("-inf")

    def __repr__(self) -> str:
        return f"<Scrapes of {self._runtime!r}>"

    def close(self) -> None:
        """Stop counting what happens to runs."""
        self._runs.close()

    async def text(self) -> bytes:
        """Return the metrics. A store that does not answer is `greenroom_store_up 0`, and no error."""
        self._runs.listen()
        statistics = self._runtime.reader.statistics()
        self._show("runs_live", statistics.live)
        self._show("runs_followed", statistics.followed)
        for field, name in _STATISTICS.items():
            self._show(name, getattr(statistics.store, field))
        async with self._turn:
            self._show("store_up", float(await self._store_answers()))
        return self._metrics.text()

    def _show(self, name: str, value: float) -> None:
        self._metrics.show(f"greenroom_{name}", {(): value})

    async def _store_answers(self) -> bool:
        began = trio.current_time()
        if began < self._good_until:
            return True
        with trio.move_on_after(LIMIT):
            try:
                await self._read()
            except (gr.StoreUnavailable, gr.StoreDown):
                pass
            else:
                took = trio.current_time() - began
                self._good_until = began + max(FRESH, SHARE * took)
                return True
        self._good_until = float("-inf")
        for name in _STORE:
            self._metrics.show(f"greenroom_{name}", {})
        return False

    async def _read(self) -> None:
        runtime, show = self._runtime, self._metrics.show
        await self._runs.settle()
        backlog, now = await runtime.reader.backlog(), runtime.clock.now()
        runs = backlog.runs
        statuses = {"created": runs.created, "running": runs.running, "waiting": runs.waiting}
        show("greenroom_runs_open", {(status,): count for status, count in statuses.items()})
        self._show("threads_open", backlog.threads)
        self._show("tickets_open", backlog.tickets)
        self._show("ticket_oldest_age_seconds", _age(backlog.oldest_ticket, now))
        if not runtime.store.shared:
            return
        queues = [(self._metrics.bounded("queue", queue.name), queue) for queue in await runtime.store.queues()]
        show("greenroom_queue_ready", {(name,): queue.ready for name, queue in queues})
        show("greenroom_queue_working", {(name,): queue.working for name, queue in queues})
        show("greenroom_queue_oldest_seconds", {(name,): _age(queue.oldest, now) for name, queue in queues})
        processes = [process for process in await runtime.store.processes() if _beats(process)]
        show("greenroom_process_beat_age_seconds", {(one.name,): one.beat_age or 0.0 for one in processes})


def _beats(process: ProcessInfo) -> bool:
    """Return True for a live process whose release says how old its beat is."""
    return process.beat_age is not None and not process.dead


def _age(at: datetime | None, now: datetime) -> float:
    return 0.0 if at is None else max(0.0, (now - at).total_seconds())
