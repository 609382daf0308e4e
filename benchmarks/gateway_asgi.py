"""1,000 followers by server-sent events: the gateway's own connections, and the same gateway behind servers of ASGI."""

from __future__ import annotations

import sys
from functools import partial

from .gateway.load import TOKEN, bench, gateway, play
from .gateway.peers.course import RUN
from .harness import Benchmark, Figure, Values

CLIENTS, RATE, SECONDS = 1_000, 5, 5
HOSTS = {
    "own": "serve",
    "hypercorn": "hypercorn -k trio",
    "uvicorn": "uvicorn",
    "uvicorn, asyncio's own loop": "uvicorn on asyncio's own loop",
}
MOST = 15
"""Percent of CPU that uvicorn may take in addition to the gateway's own connections."""


def _followed(host: str, quick: bool) -> Values:
    clients, events = (10, 20) if quick else (CLIENTS, RATE * SECONDS)
    options = {"events": events, "rate": RATE, "host": host, "fanout": "pump"}
    command = gateway()[0] if host == "own" else [sys.executable, "-m", "benchmarks.gateway.asgi_server"]
    with bench(command, options) as server:
        place = server.announcement
        path = f"/v1/runs/{RUN}/events?after={place['last']}"
        arguments = ["--port", str(place["port"]), "--path", path, "--token", TOKEN, "--clients", str(clients)]
        arguments += ["--events", str(events), "--after", str(place["last"]), "--seconds", str(events / RATE + 20)]
        program = [sys.executable, "-m", "benchmarks.gateway.sse_client"]
        with play(server, arguments, program=program) as report:
            memory = server.peak()
    if report["wrong"] or report["delivered"] != report["expected"]:
        raise AssertionError(f"not every event once: {report}")
    key = _key(host)
    return {
        f"{key}_cpu": report["server_cpu_s"] / report["delivered"] * 1e6,
        f"{key}_p50": report["p50_ms"],
        f"{key}_p99": report["p99_ms"],
        f"{key}_joined": report["joined_s"],
        f"{key}_memory": memory / 2**20,
    }


def _key(host: str) -> str:
    return host.replace(", asyncio's own loop", "_plain")


def _more(values: Values) -> Values:
    """Against the gateway's own connections in the same round."""
    own = values.get("own_cpu")
    keys = [key for key in map(_key, HOSTS) if key != "own" and f"{key}_cpu" in values]
    return {} if own is None else {f"{key}_more": (values[f"{key}_cpu"] / own - 1) * 100 for key in keys}


def _figures() -> list[Figure]:
    figures = list[Figure]()
    for host, title in HOSTS.items():
        key = _key(host)
        figures.append(Figure(key=f"{key}_cpu", what=f"{title}: CPU per delivery", unit="us"))
        if host != "own":
            most = MOST if key == "uvicorn" else None
            figures.append(
                Figure(key=f"{key}_more", what=f"{title}: CPU beside serve's", unit="%", at_most=most, digits=0)
            )
        figures += [
            Figure(key=f"{key}_p50", what=f"{title}: due to received, p50", unit="ms", digits=1),
            Figure(key=f"{key}_p99", what=f"{title}: due to received, p99", unit="ms", digits=1),
            Figure(key=f"{key}_joined", what=f"{title}: until all follow", unit="s"),
            Figure(key=f"{key}_memory", what=f"{title}: memory at most", unit="MiB", digits=0),
        ]
    return figures


BENCHMARK = Benchmark(
    name="gateway_asgi",
    about=f"{CLIENTS:,} followers of one run by server-sent events, {RATE} events per second for {SECONDS} s",
    cases={_key(host): partial(_followed, host) for host in HOSTS},
    quick=("own", "hypercorn", "uvicorn"),
    derive=_more,
    figures=tuple(_figures()),
)
