"""Plain HTTP beside the WebSockets: small requests over connections that are kept."""

from __future__ import annotations

from functools import partial

from .environments import HYPERCORN
from .gateway.load import TOKEN, bench, gateway, play
from .gateway.peers.course import RUN
from .harness import Benchmark, Figure, Values

CONNECTIONS = 16
PATHS = {"health": "/healthz", "run": f"/v1/runs/{RUN}"}


def _asked(key: str, quick: bool) -> Values:
    if key == "peer":
        command, options, path = HYPERCORN.command(), {"events": 0, "rate": 0}, PATHS["health"]
    else:
        (command, options), path = gateway(fanout="pump"), PATHS[key]
    seconds, warm = ("0.2", "0.1") if quick else ("3", "0.5")
    with bench(command, options) as server:
        arguments = ["http", "--port", str(server.announcement["port"]), "--path", path, "--clients", str(CONNECTIONS)]
        with play(server, [*arguments, "--token", TOKEN, "--seconds", seconds, "--warm", warm]) as report:
            (latency,) = report["latency"]
    return {
        f"{key}_rate": report["requests"] / report["seconds"],
        f"{key}_cpu": report["server_cpu_s"] / report["requests"] * 1e6,
        f"{key}_p50": latency["p50_us"] / 1e3,
        f"{key}_p99": latency["p99_us"] / 1e3,
    }


def _figures(key: str, title: str, least: float | None = None) -> list[Figure]:
    return [
        Figure(key=f"{key}_rate", what=f"{title}: requests", unit="/s", at_least=least, digits=0),
        Figure(key=f"{key}_cpu", what=f"{title}: CPU per request", unit="us", digits=0),
        Figure(key=f"{key}_p99", what=f"{title}: p99", unit="ms", digits=1),
    ]


BENCHMARK = Benchmark(
    name="gateway_http",
    about=f"{CONNECTIONS} connections that are kept, each with one request at a time, for 3 s",
    cases={key: partial(_asked, key) for key in (*PATHS, "peer")},
    quick=tuple(PATHS),
    figures=(
        *_figures("health", "GET /healthz", 4_000),
        *_figures("run", "GET /v1/runs/{run}"),
        *_figures("peer", "peer: Hypercorn's trio worker, a bare ASGI application"),
    ),
)
