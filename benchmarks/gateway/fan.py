"""One run, many followers: how a case of it is played, and what its numbers mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from ..environments import Peer
from ..harness import Figure, Skipped, Values
from .load import Told, bench, check, follower, gateway, play
from .peers.course import WINDOW

GRACE = 2.0
"""Seconds after the last event was due, until a server that does not keep up is given up."""
SATURATED_LIMIT = 20.0
"""Seconds after which one that works without pause is stopped; what it has delivered by then counts."""


@attrs.frozen(kw_only=True)
class Fan:
    """So many clients follow one run that makes so many events.

    Attributes:
        key: begins the keys of all values.
        clients, events: how many.
        rate: events per second; 0: always the next window of 32 when all clients have the last one.
        store, fanout: of our gateway.
        peer, options: another server in place of ours, and what it receives.
    """

    key: str
    clients: int
    events: int
    rate: float = 0
    store: str = "memory"
    fanout: str = "pump"
    peer: Peer | None = None
    options: tuple[tuple[str, Any], ...] = ()

    def __call__(self, quick: bool) -> Values:
        """Play it."""
        clients, events = (5, 2 * WINDOW) if quick else (self.clients, self.events)
        server_arguments = {"events": events, "rate": self.rate, **dict(self.options)}
        if self.peer is None:
            command, server_arguments = gateway(**server_arguments, store=self.store, fanout=self.fanout)
        else:
            command = self.peer.command()
        with bench(command, server_arguments) as server:
            seconds = events / self.rate + GRACE if self.rate else SATURATED_LIMIT
            more = ["--seconds", str(seconds)]
            if not self.rate:
                more += ["--window", str(WINDOW), "--credit", str(server.orders)]
            if self.peer is None:
                arguments = follower(server, clients=clients, last=server.announcement["last"] + events, more=more)
            else:
                arguments = ["follow", "--plain", "--path", "/", "--port", str(server.announcement["port"]), *more]
                arguments += ["--clients", str(clients), "--last", str(events)]
            with play(server, arguments) as report:
                self._check(report)
                server_report = {"peak": server.peak(), **({} if self.peer else server.report())}
        return self._values(report, server_report)

    def _check(self, report: Told) -> None:
        """Slow is one thing, wrong another."""
        try:
            check(report)
        except AssertionError as error:
            if self.peer is None:
                raise
            raise Skipped(f"the peer has not delivered properly: {error}") from error

    def _values(self, report: Told, server_report: Told) -> Values:
        (latency,) = report["latency"]
        frames = report["delivered"]
        values = {
            "rate": frames / report["seconds"],
            "share": frames / report["expected"] * 100,
            "p50": latency["p50_us"] / 1e3,
            "p99": latency["p99_us"] / 1e3,
            "worst": latency["max_us"] / 1e3,
            "cpu": report["server_cpu_s"] / frames * 1e6,
            "core": report["server_cpu_s"] / report["seconds"],
            "memory": server_report["peak"] / 2**20,
            "gc": server_report.get("gc_longest_ms", 0.0),
            "joined": report["joined_s"],
            "joining_cpu": report["joining_cpu_s"] / report["clients"] * 1e3,
            "batch": frames / max(1, report["reads"]),
            "client": report["cpu_s"] / report["wall_s"],
        }
        return {f"{self.key}_{name}": value for name, value in values.items()}

    def joining(self, title: str) -> Sequence[Figure]:
        """Rows about the beginning: all clients connect, subscribe, and are informed that they are up to date."""
        return [
            Figure(key=f"{self.key}_joined", what=f"{title}: until all follow", unit="s"),
            Figure(key=f"{self.key}_joining_cpu", what=f"{title}: CPU per client for that", unit="ms"),
        ]

    def figures(
        self, title: str, *, rate: float | None = None, p99: float | None = None, cpu: float | None = None
    ) -> Sequence[Figure]:
        """Its rows, with the budgets that are given."""
        key = self.key
        rows = [Figure(key=f"{key}_rate", what=f"{title}: deliveries", unit="/s", at_least=rate, digits=0)]
        if self.rate:
            whole = None if rate is None else 100
            rows += [
                Figure(key=f"{key}_share", what=f"{title}: of all events, in time", unit="%", at_least=whole, digits=1),
                Figure(key=f"{key}_p50", what=f"{title}: due to received, p50", unit="ms", digits=1),
                Figure(key=f"{key}_p99", what=f"{title}: due to received, p99", unit="ms", at_most=p99, digits=1),
            ]
        return [*rows, Figure(key=f"{key}_cpu", what=f"{title}: CPU per delivery", unit="us", at_most=cpu)]
