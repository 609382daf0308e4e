"""A client that comes late: 100,000 events that are in the store already, over one WebSocket, and over ten at once."""

from __future__ import annotations

import attrs

from .gateway.load import bench, check, follower, gateway, play
from .harness import Benchmark, Figure, Values

EVENTS = 100_000


@attrs.frozen
class Replay:
    """So many clients read the whole log from its beginning."""

    fanout: str
    store: str
    clients: int

    @property
    def key(self) -> str:
        """Begins the keys of all values."""
        return f"{self.fanout}_{self.store}_{self.clients}"

    def __call__(self, quick: bool) -> Values:
        """Play it."""
        before = 2_000 if quick else EVENTS
        with bench(*gateway(before=before, watch=True, fanout=self.fanout, store=self.store)) as server:
            last = server.announcement["last"]
            with play(server, follower(server, clients=self.clients, after=0, last=last), at_once=True) as report:
                server_report = server.report()
        check(report, delivered=last * self.clients)
        return {
            f"{self.key}_rate": report["delivered"] / report["seconds_subscribed"],
            f"{self.key}_cpu": report["server_cpu_s"] / report["delivered"] * 1e6,
            f"{self.key}_grown": (server_report["memory_peak"] - server_report["memory"]) / 2**20,
        }

    def figures(self) -> list[Figure]:
        """Its rows."""
        title = f"{self.fanout}, {self.store}, {self.clients} client{'s' * (self.clients > 1)}"
        budget = 300_000 if self.clients == 1 and self.fanout == "pump" else None
        return [
            Figure(key=f"{self.key}_rate", what=f"{title}: events", unit="/s", at_least=budget, digits=0),
            Figure(key=f"{self.key}_cpu", what=f"{title}: CPU per event", unit="us"),
            Figure(key=f"{self.key}_grown", what=f"{title}: growth of the server's memory", unit="MB", digits=1),
        ]


CASES = [
    Replay("pump", "memory", 1),
    Replay("pump", "sqlite", 1),
    Replay("tasks", "sqlite", 1),
    Replay("pump", "sqlite", 10),
]

BENCHMARK = Benchmark(
    name="gateway_replay",
    about=f"{EVENTS:,} events of 310 bytes from the store to a socket, wall time from the subscription on",
    cases={case.key: case for case in CASES},
    quick=("pump_sqlite_1",),
    figures=[figure for case in CASES for figure in case.figures()],
)
