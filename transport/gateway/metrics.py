"""Counters for Prometheus. Numbers, names of queues and processes: no ids of runs or people, no content of runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from greenroom.actors.processes import ProcessInfo, QueueInfo

from ..protocol.up import UP

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4


class Metrics:
    """The counters of one gateway, in a separate registry: two gateways in a process do not mix."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry(auto_describe=True)
        self._connections = Gauge("greenroom_connections", "Open connections.", ["kind"], registry=self._registry)
        self._refused = Counter(
            "greenroom_connections_refused", "Connections that were refused.", ["why"], registry=self._registry
        )
        self._cut = Counter(
            "greenroom_connections_cut", "Connections cut without a close frame.", ["why"], registry=self._registry
        )
        self._requests = Counter("greenroom_http_requests", "HTTP requests.", ["status"], registry=self._registry)
        self._frames = Counter("greenroom_frames_received", "WebSocket frames.", ["type"], registry=self._registry)
        self._failures = Counter("greenroom_failures", "Bugs: exceptions in a connection.", registry=self._registry)
        self._live = Gauge("greenroom_runs_live", "Runs that have an owner in this process.", registry=self._registry)
        self._followed = Gauge("greenroom_runs_followed", "Runs with a follower.", registry=self._registry)
        self._store = Gauge(
            "greenroom_store", "What the store has done since it was opened.", ["what"], registry=self._registry
        )

        self._ready = Gauge(
            "greenroom_queue_ready", "Runs that wait to be claimed.", ["queue"],
            registry=self._registry,
        )  # fmt: skip
        self._working = Gauge(
            "greenroom_queue_working", "Runs with an owner that do not wait for people.", ["queue"],
            registry=self._registry,
        )  # fmt: skip
        self._oldest = Gauge(
            "greenroom_queue_oldest_seconds", "Age of the oldest ready run.", ["queue"], registry=self._registry
        )
        self._beats = Gauge(
            "greenroom_process_beat_age_seconds", "Age of the newest beat of each live process on the store.",
            ["process"], registry=self._registry,
        )  # fmt: skip

    def __repr__(self) -> str:
        return "<Metrics>"

    def opened(self, kind: str) -> None:
        """Count an accepted connection, or an open WebSocket."""
        self._connections.labels(kind).inc()

    def closed(self, kind: str) -> None:
        """Count the end of a connection."""
        self._connections.labels(kind).dec()

    def refused(self, why: str) -> None:
        """Count a refused connection."""
        self._refused.labels(why).inc()

    def cut(self, why: str) -> None:
        """Count a connection cut without a close frame, because its peer does not answer or takes no data."""
        self._cut.labels(why).inc()

    def request(self, status: int) -> None:
        """Count an answered request."""
        self._requests.labels(str(status)).inc()

    def frame(self, kind: object) -> None:
        """Count a received frame; all unknown types count as one."""
        self._frames.labels(kind if isinstance(kind, str) and kind in UP else "unknown").inc()

    def failed(self) -> None:
        """Count a bug."""
        self._failures.inc()

    def text(
        self,
        *,
        live: int,
        followed: int,
        store: dict[str, float],
        queues: Sequence[tuple[QueueInfo, float]] = (),
        processes: Sequence[ProcessInfo] = (),
    ) -> bytes:
        """Return the counters as Prometheus text, with the present gauges.

        `queues`: each with the age of its oldest ready run in seconds. `processes`: on the store; the dead are left
        out, and those whose release does not say how old their beat is.
        """
        self._live.set(live)
        self._followed.set(followed)
        for name, value in store.items():
            self._store.labels(name).set(value)
        for gauge in (self._ready, self._working, self._oldest, self._beats):
            gauge.clear()  # a queue or a process may be gone
        for queue, age in queues:
            self._ready.labels(queue.name).set(queue.ready)
            self._working.labels(queue.name).set(queue.working)
            self._oldest.labels(queue.name).set(age)
        for process in processes:
            if process.beat_age is not None and not process.dead:
                self._beats.labels(process.name).set(process.beat_age)
        return generate_latest(self._registry)
