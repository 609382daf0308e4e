"""The same fan-out by other libraries, each as its documentation has it, in the same rounds as ours."""

from __future__ import annotations

import attrs

from .environments import HYPERCORN, PICOWS, TRIO_WEBSOCKET, WEBSOCKETS, Peer
from .gateway.fan import Fan
from .harness import Benchmark, Figure

RATE = 1_000.0


@attrs.frozen
class Way:
    """One way to send an event to many.

    Attributes:
        title: in the table. peer: None for ours. window: events, in sum, of the case without pause: some seconds' work.
    """

    title: str
    peer: Peer | None
    window: int
    options: tuple[tuple[str, bool], ...] = ()


WAYS = {
    "ours": Way("Greenroom", None, 9_600),
    "trio_websocket": Way("trio-websocket send_message", TRIO_WEBSOCKET, 640),
    "hypercorn": Way("Hypercorn, trio worker, ASGI send", HYPERCORN, 320),
    "websockets": Way("websockets send", WEBSOCKETS, 1_600),
    "broadcast": Way("websockets broadcast", WEBSOCKETS, 1_600, (("broadcast", True),)),
    "picows": Way("picows on uvloop, send", PICOWS, 4_800),
}


def _fans(key: str, way: Way) -> dict[str, Fan]:
    with_peer = {"peer": way.peer, "options": way.options}
    return {
        "100 clients": Fan(key=f"{key}_100", clients=100, events=2_000, rate=RATE, **with_peer),
        "1,000 clients": Fan(key=f"{key}_1000", clients=1_000, events=1_000, rate=RATE, **with_peer),
        "100 clients, without pause": Fan(key=f"{key}_full", clients=100, events=way.window, **with_peer),
    }


FANS = {(name, case): fan for name, way in WAYS.items() for case, fan in _fans(name, way).items()}


def _figures() -> list[Figure]:
    """Ordered by case, so that the peers stand beneath each other."""
    fans = sorted(FANS.items(), key=lambda item: list(_fans("", WAYS["ours"])).index(item[0][1]))
    return [figure for (name, case), fan in fans for figure in fan.figures(f"{case}: {WAYS[name].title}")]


BENCHMARK = Benchmark(
    name="gateway_peers",
    about=(
        f"one run, {RATE:,.0f} events per second for 1 or 2 s, or windows of 32 without pause; fewer deliveries than "
        "100,000 or 1,000,000 per second: the server did not keep up and was stopped 2 s after the last event was due; "
        "its latencies are those of what had arrived"
    ),
    cases={fan.key: fan for fan in FANS.values()},
    figures=_figures(),
    quick=("ours_full",),
)
