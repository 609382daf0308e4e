"""One run's events to many WebSocket clients: at a fixed rate, and as fast as it goes beside trio-websocket."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from .environments import TRIO_WEBSOCKET
from .gateway.fan import Fan
from .gateway.load import bench, check, follower, gateway, play
from .harness import Benchmark, Figure, Values

MODES = ("pump", "tasks")
RATE = 1_000.0
SECONDS = 3
BUDGETS = {1_000: {"rate": 900_000, "p99": 100, "cpu": 2.5}, 100: {"rate": 98_000, "p99": 15, "cpu": 12}}
"""By the number of clients; of the pump."""


def _rated(mode: str, clients: int, store: str = "memory") -> Fan:
    key = f"{mode}_{clients}" if store == "memory" else f"{mode}_{clients}_{store}"
    return Fan(key=key, clients=clients, events=int(RATE * SECONDS), rate=RATE, fanout=mode, store=store)


RATED = {(mode, clients): _rated(mode, clients) for mode in MODES for clients in (1_000, 100)}
DURABLE = {clients: _rated("pump", clients, "sqlite") for clients in (1_000, 100)}
FULL = {mode: Fan(key=f"full_{mode}", clients=100, events=9_600, fanout=mode) for mode in MODES}
FULL_1000 = {mode: Fan(key=f"full_{mode}_1000", clients=1_000, events=3_200, fanout=mode) for mode in MODES}
PEER = Fan(key="full_peer", clients=100, events=640, peer=TRIO_WEBSOCKET)


def _counted(mode: str, quick: bool) -> Values:
    """How often an event is encoded and framed, by counting calls: 20 clients, slowly."""
    clients, events = (5, 50) if quick else (20, 400)
    with bench(*gateway(events=events, rate=200.0, fanout=mode, count=True)) as server:
        with play(server, follower(server, clients=clients, last=server.announcement["last"] + events)) as report:
            counts = server.report()
    check(report, delivered=events * clients)
    return {
        f"{mode}_encodes": counts["encodes"] / events,
        f"{mode}_other_encodes": counts["other_encodes"] / events,
        f"{mode}_frames": counts["frames"] / events,
    }


def _ratios(values: Values) -> Values:
    """Against the peer in the same round, if it is there."""
    ratios = {}
    for mode in MODES:
        if "full_peer_cpu" in values:
            ratios[f"{mode}_times_cpu"] = values["full_peer_cpu"] / values[f"full_{mode}_cpu"]
            ratios[f"{mode}_times_rate"] = values[f"full_{mode}_rate"] / values["full_peer_rate"]
    return ratios


def _cases() -> dict[str, Callable[[bool], Values]]:
    fans = [*RATED.values(), *DURABLE.values(), *FULL.values(), PEER, *FULL_1000.values()]
    return {fan.key: fan for fan in fans} | {f"{mode}_count": partial(_counted, mode) for mode in MODES}


def _figures() -> list[Figure]:
    figures: list[Figure] = []
    for (mode, clients), fan in RATED.items():
        figures += fan.figures(f"{mode}, {clients:,} clients", **(BUDGETS[clients] if mode == "pump" else {}))
    for clients, fan in DURABLE.items():
        figures += fan.figures(f"pump, {clients:,} clients, SQLite")
    figures += RATED["pump", 1_000].joining("1,000 clients connect and subscribe")
    figures += DURABLE[1_000].joining("1,000 clients connect and subscribe, SQLite")
    for mode in MODES:
        least = 20 if mode == "pump" else None
        figures += FULL[mode].figures(f"{mode}, 100 clients, without pause")
        for key, what in (("rate", "deliveries, times the peer's"), ("cpu", "CPU per delivery, the peer's to ours")):
            figures.append(
                Figure(key=f"{mode}_times_{key}", what=f"{mode}: {what}", unit="x", at_least=least, digits=0)
            )
    figures += PEER.figures("peer: trio-websocket send_message, 100 clients, without pause")
    for mode in MODES:
        figures += FULL_1000[mode].figures(f"{mode}, 1,000 clients, without pause")
    for mode in MODES:
        title = f"{mode}, 20 clients, per event"
        figures += [
            Figure(key=f"{mode}_encodes", what=f"{title}: encoded", unit="times", at_most=1),
            Figure(key=f"{mode}_frames", what=f"{title}: WebSocket frames made", unit=""),
            Figure(key=f"{mode}_other_encodes", what=f"{title}: other JSON encoded", unit=""),
        ]
    return figures


BENCHMARK = Benchmark(
    name="gateway_fanout",
    about=(
        f"one run, {RATE:,.0f} events of 310 bytes per second for {SECONDS} s, or windows of 32 events without pause; "
        "a C client over loopback; times count from when an event was due"
    ),
    cases=_cases(),
    derive=_ratios,
    quick=("pump_1000", "pump_100_sqlite", "full_tasks", "pump_count", "tasks_count"),
    figures=_figures(),
)
