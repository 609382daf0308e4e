"""How often the taker of a shared store claims and lets timers be looked up, in virtual time, on a scripted store."""

from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from greenroom.actors.runtime.shared.shared_taker import LOOK_AHEAD, SharedTaker
from greenroom.actors.runtime.work_taker import GAP


@pytest.mark.parametrize("every", [0.001, 0.4, 10.0])
async def test_timers_of_runs_without_an_owner_are_looked_up_however_often_work_is_reported(
    every: float, autojump_clock: trio.testing.MockClock
) -> None:
    looks, claims = list[float](), list[float]()

    async def claim_ready(*_: object) -> list[Any]:
        claims.append(trio.current_time())
        await trio.lowlevel.checkpoint()
        return []

    services: Any = SimpleNamespace(
        jitter=lambda: 1.0,
        alarm=SimpleNamespace(nudge=lambda: looks.append(trio.current_time())),
        store=SimpleNamespace(claim_ready=claim_ready, publish=lambda agents, **_: None),
        clock=SimpleNamespace(now=lambda: None),
    )
    registry: Any = SimpleNamespace(room=1, closing=False)
    taker = SharedTaker(services, registry, SimpleNamespace(by_key={}, places={}, has_deps=False))  # type: ignore[arg-type]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(taker.body, SimpleNamespace(ready=lambda: None))
        until = trio.current_time() + 60.0
        while trio.current_time() < until:
            taker.nudge()
            await trio.sleep(every)
        nursery.cancel_scope.cancel()
    assert 60.0 / (LOOK_AHEAD + 1.0) - 1 <= len(looks) <= 60.0 / LOOK_AHEAD + 1
    assert len(claims) <= 60.0 / GAP + 61.0
