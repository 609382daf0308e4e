"""Some clients stop reading: what the others notice, what it costs in memory, and how those come back."""

from __future__ import annotations

from functools import partial

from .gateway.load import bench, check, follower, gateway, play
from .harness import Benchmark, Case, Figure, Values

RATE = 1_000.0
CLIENTS, STALLING = 100, 10
CALM, STALL, AFTER = 5.0, 10.0, 5.0
"""Seconds before, during and after the pause of those that stop reading."""
SETUPS = {"pump": ("pump", "memory"), "tasks": ("tasks", "memory"), "pump_sqlite": ("pump", "sqlite")}


def _stalled(key: str, quick: bool) -> Values:
    fanout, store = SETUPS[key]
    clients, stalling, shorter = (5, 1, 0.02) if quick else (CLIENTS, STALLING, 1.0)
    calm, stall, after = (int(RATE * seconds * shorter) for seconds in (CALM, STALL, AFTER))
    events = calm + stall + after
    marks = (calm, calm + stall)
    asked = {"events": events, "rate": RATE, "marks": marks, "watch": True}
    with bench(*gateway(**asked, fanout=fanout, store=store)) as server:
        begin = server.told["last"]
        more = ["--stalling", str(stalling), "--stall-after", str(begin + calm), "--stall-seconds", str(stall / RATE)]
        more += [word for mark in marks for word in ("--mark", str(begin + mark))]
        with play(server, follower(server, clients=clients, last=begin + events, more=more)) as seen:
            told = server.report()
    check(seen, delivered=events * clients)
    assert seen["stalled"] == stalling, seen
    before, during, afterwards = (part["p99_us"] / 1e3 for part in seen["latency"])
    first = told["marks"][0]
    grown = told["memory_peak"] - first["memory"]
    log = told["log"] - first["log"] if store == "memory" else 0
    values = {
        "before": before,
        "during": during,
        "after": afterwards,
        "ratio": during / before,
        "ratio_after": afterwards / before,
        "grown": grown / 2**20,
        "log": log / 2**20,
        "beyond": (grown - log) / 2**20,
        "behind": seen["behind"],
        "level": seen["level_s"],
        "core": seen["server_cpu_s"] / seen["seconds"],
    }
    return {f"{key}_{name}": value for name, value in values.items()}


def _case(key: str) -> Case:
    return partial(_stalled, key)


def _figures(key: str) -> list[Figure]:
    fanout, store = SETUPS[key]
    title = fanout if store == "memory" else f"{fanout}, SQLite"
    ours = fanout == "pump"
    return [
        Figure(key=f"{key}_before", what=f"{title}: due to received before, p99 of the 90", unit="ms", digits=1),
        Figure(key=f"{key}_during", what=f"{title}: the same while 10 do not read", unit="ms", digits=1),
        Figure(key=f"{key}_ratio", what=f"{title}: ratio of the two", unit="x", at_most=1.5 if ours else None),
        Figure(key=f"{key}_ratio_after", what=f"{title}: ratio, while and after they catch up", unit="x"),
        Figure(
            key=f"{key}_beyond",
            what=f"{title}: growth of the server's memory beyond the log",
            unit="MB",
            at_most=5 if ours else None,
            digits=1,
        ),
        Figure(
            key=f"{key}_behind", what=f"{title}: events that each of the 10 had missed, at least", unit="", digits=0
        ),
        Figure(key=f"{key}_level", what=f"{title}: until all of them are level with the others again", unit="s"),
    ]


BENCHMARK = Benchmark(
    name="gateway_stalled",
    about=(
        f"{STALLING} of {CLIENTS} clients read nothing for {STALL:g} s of {CALM + STALL + AFTER:g}, at {RATE:,.0f} "
        "events per second; all get all events once and in order, or this fails"
    ),
    cases={key: _case(key) for key in SETUPS},
    quick=("pump_sqlite",),
    figures=[figure for key in SETUPS for figure in _figures(key)],
)
