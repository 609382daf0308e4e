"""Some clients stop reading: what the others notice, what it costs in memory, and how those come back."""

from __future__ import annotations

import attrs

from .gateway.load import Told, bench, check, follower, gateway, play
from .harness import Benchmark, Figure, Values

RATE = 1_000.0
CLIENTS, STALLING = 100, 10
CALM, STALL, AFTER = 5.0, 10.0, 5.0
"""Seconds before, during and after the pause of those that stop reading."""


@attrs.frozen
class Setup:
    """How our gateway is made, and how many clients stop reading."""

    key: str
    title: str
    fanout: str = "pump"
    store: str = "memory"
    stalling: int = STALLING

    def __call__(self, quick: bool) -> Values:
        """Play it."""
        clients, stalling, shorter = (5, 1, 0.02) if quick else (CLIENTS, self.stalling, 1.0)
        calm, stall, after = (int(RATE * seconds * shorter) for seconds in (CALM, STALL, AFTER))
        events, marks = calm + stall + after, (calm, calm + stall)
        options = {"events": events, "rate": RATE, "marks": marks, "watch": True}
        with bench(*gateway(**options, fanout=self.fanout, store=self.store)) as server:
            begin = server.announcement["last"]
            more = ["--stalling", str(stalling), "--stall-after", str(begin + calm)]
            more += ["--stall-seconds", str(stall / RATE)]
            more += [word for mark in marks for word in ("--mark", str(begin + mark))]
            with play(server, follower(server, clients=clients, last=begin + events, more=more)) as report:
                server_report = server.report()
        check(report, delivered=events * clients)
        assert report["stalled"] == stalling, report
        return {f"{self.key}_{name}": value for name, value in self._values(report, server_report).items()}

    def _values(self, report: Told, server_report: Told) -> Values:
        before, during, after = report["latency"]
        begin = server_report["marks"][0]
        growth = server_report["memory_peak"] - begin["memory"]
        log = server_report["log"] - begin["log"] if self.store == "memory" else 0
        return {
            "before": before["p99_us"] / 1e3,
            "during": during["p99_us"] / 1e3,
            "ratio": during["p99_us"] / before["p99_us"],
            "ratio_after": after["p99_us"] / before["p99_us"],
            "ratio_p50": during["p50_us"] / before["p50_us"],
            "grown": growth / 2**20,
            "log": log / 2**20,
            "beyond": (growth - log) / 2**20,
            "behind": report["behind"],
            "level": report["level_s"],
            "core": report["server_cpu_s"] / report["seconds"],
        }

    def figures(self) -> list[Figure]:
        """Its rows; budgets are the pump's."""
        key, title = self.key, self.title
        most, room = (1.5, 5.0) if self.stalling and self.fanout == "pump" else (None, None)
        rows = [
            Figure(
                key=f"{key}_before", what=f"{title}: due to received before, p99 of the others", unit="ms", digits=1
            ),
            Figure(key=f"{key}_during", what=f"{title}: the same meanwhile", unit="ms", digits=1),
            Figure(key=f"{key}_ratio", what=f"{title}: ratio of the two", unit="x", at_most=most),
            Figure(key=f"{key}_ratio_p50", what=f"{title}: the same ratio of the medians", unit="x"),
        ]
        if not self.stalling:
            return rows
        return [
            *rows,
            Figure(key=f"{key}_ratio_after", what=f"{title}: ratio, p99 while they catch up and after", unit="x"),
            Figure(key=f"{key}_beyond", what=f"{title}: memory beyond the log", unit="MB", at_most=room, digits=1),
            Figure(
                key=f"{key}_behind", what=f"{title}: events that each of them had missed, at least", unit="", digits=0
            ),
            Figure(key=f"{key}_level", what=f"{title}: until all are level with the others again", unit="s"),
        ]


SETUPS = (
    Setup("nobody", "nobody stops (what the machine does to the ratio)", stalling=0),
    Setup("pump", "pump"),
    Setup("pump_sqlite", "pump, SQLite", store="sqlite"),
    Setup("tasks", "tasks", fanout="tasks"),
)

BENCHMARK = Benchmark(
    name="gateway_stalled",
    about=(
        f"{STALLING} of {CLIENTS} clients read nothing for {STALL:g} s of {CALM + STALL + AFTER:g}, at {RATE:,.0f} "
        "events per second; all get all events once and in order, or this fails"
    ),
    cases={setup.key: setup for setup in SETUPS},
    quick=("pump_sqlite",),
    figures=[figure for setup in SETUPS for figure in setup.figures()],
)
