"""The metrics of one gateway, as Prometheus text. No ids of runs or people, no content of runs."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import (
    Metric as Family,
)
from prometheus_client.registry import Collector

from ...protocol.up import UP
from .table import METRICS, Metric

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
MOST_VALUES: Final = 100
"""Values of one label beyond which further ones count together: the names of agents, tools and models are not ours."""
LONGEST_VALUE: Final = 100
"""Most characters of a label's value."""
OTHER: Final = "other"

Labels = tuple[str, ...]


class Values:
    """The values of one metric by its labels; for a histogram the number of values in each bucket, and their sum."""

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self.numbers = defaultdict[Labels, float](float)
        self.buckets: dict[Labels, list[float]] = {}

    def __repr__(self) -> str:
        return f"<Values of {self.metric.name}>"

    def add(self, labels: Labels, amount: float = 1) -> None:
        """Count."""
        self.numbers[labels] += amount

    def observe(self, labels: Labels, value: float) -> None:
        """Count a value of a histogram."""
        buckets = self.buckets.get(labels)
        if buckets is None:
            buckets = self.buckets[labels] = [0.0] * (len(self.metric.buckets) + 1)
        buckets[bisect_left(self.metric.buckets, value)] += 1
        self.numbers[labels] += value

    def family(self) -> Family:
        """Return all samples."""
        metric = self.metric
        match metric.kind:
            case "counter":
                counter = CounterMetricFamily(metric.name, metric.text, labels=metric.labels)
                for labels, number in self.numbers.items():
                    counter.add_metric(labels, number)
                return counter
            case "gauge":
                gauge = GaugeMetricFamily(metric.name, metric.text, labels=metric.labels)
                for labels, number in self.numbers.items():
                    gauge.add_metric(labels, number)
                return gauge
            case "histogram":
                histogram = HistogramMetricFamily(metric.name, metric.text, labels=metric.labels)
                for labels, buckets in self.buckets.items():
                    histogram.add_metric(labels, _cumulated(metric.buckets, buckets), self.numbers[labels])
                return histogram


def _cumulated(bounds: Sequence[float], buckets: Iterable[float]) -> list[tuple[str, float]]:
    total, samples = 0.0, list[tuple[str, float]]()
    for bound, count in zip([*map(str, bounds), "+Inf"], buckets, strict=True):
        total += count
        samples.append((bound, total))
    return samples


class Metrics(Collector):
    """The metrics of one gateway, in a separate registry: two gateways in a process do not mix."""

    def __init__(self) -> None:
        self._values = {name: Values(metric) for name, metric in METRICS.items()}
        self._names = defaultdict[str, set[str]](set)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        for metric in METRICS.values():
            if metric.kind == "counter" and not metric.labels and metric.about != "process":
                self.count(metric.name, amount=0)

    def __repr__(self) -> str:
        return f"<Metrics: {len(self._values)} metrics>"

    # --- for all -----------------------------------------------------------------------------------------------------

    def count(self, name: str, *labels: str, amount: float = 1) -> None:
        """Add to a counter, or to a gauge."""
        self._values[name].add(labels, amount)

    def observe(self, name: str, *labels: str, value: float) -> None:
        """Count a value of a histogram."""
        self._values[name].observe(labels, value)

    def show(self, name: str, samples: Mapping[Labels, float]) -> None:
        """Replace all samples of a gauge or a counter."""
        values = self._values[name].numbers
        values.clear()
        values.update(samples)

    def bounded(self, label: str, value: str) -> str:
        """Return the value of a label whose values have no bound: after `MOST_VALUES` different ones "other"."""
        names = self._names[label]
        value = value[:LONGEST_VALUE]
        if value in names:
            return value
        if len(names) >= MOST_VALUES:
            return OTHER
        names.add(value)
        return value

    def collect(self) -> Iterator[Family]:
        """Yield all metrics; those without a sample, too, so that a dashboard knows them."""
        for values in self._values.values():
            yield values.family()

    def text(self) -> bytes:
        """Return the metrics as Prometheus text."""
        return generate_latest(self._registry)

    # --- of the gateway ----------------------------------------------------------------------------------------------

    def opened(self, kind: str) -> None:
        """Count an accepted connection, or an open WebSocket."""
        self.count("greenroom_connections", kind)

    def closed(self, kind: str) -> None:
        """Count the end of a connection."""
        self.count("greenroom_connections", kind, amount=-1)

    def refused(self, why: str) -> None:
        """Count a refused connection."""
        self.count("greenroom_connections_refused_total", why)

    def cut(self, why: str) -> None:
        """Count a connection cut without a close frame, because its peer does not answer or takes no data."""
        self.count("greenroom_connections_cut_total", why)

    def request(self, status: int) -> None:
        """Count an answered request."""
        self.count("greenroom_http_requests_total", str(status))

    def frame(self, kind: object) -> None:
        """Count a received frame; all unknown types count as one."""
        self.count("greenroom_frames_received_total", kind if isinstance(kind, str) and kind in UP else "unknown")

    def failed(self) -> None:
        """Count a bug."""
        self.count("greenroom_failures_total")
