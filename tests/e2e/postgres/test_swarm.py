"""Three workers, two gateways and a follower on one PostgreSQL, killed, stopped and cut off at random.

`make test` runs short ones; `make chaos-postgres` runs them in full. Both print the seed and what they counted. A soak
with a restart of the server every minute, for two hours:

    GREENROOM_SOAK=7200 make chaos-postgres PYTEST_ARGS="-k soak --seed 7"
"""

import math
import os
import time
from pathlib import Path

import attrs
import pytest

from ...support.cutting_proxy import CuttingProxy
from ...support.postgres import Server
from .judge import Verdict
from .nodes import REFUSED, boottime
from .swarm import Process, Swarm

FULL = os.environ.get("GREENROOM_CHAOS") == "full"
SOAK = float(os.environ.get("GREENROOM_SOAK", "0"))
"""Seconds of the swarm whose server is restarted every minute; 0: a short one."""
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900 + 2 * SOAK), pytest.mark.no_cover]

SOAKED = 4_000
"""Runs of a soak, about: the judge reads what each reader has seen of them."""
STOPPED = (0.1, 2.5)
"""Seconds for which a process is stopped: shorter and longer than the lease."""
KILLED = 0.45
"""Of the strikes; the others stop a process."""
OTHERS_STOPPED = 0.15
"""Of the stops; the others stop a worker."""


@attrs.frozen(kw_only=True)
class Plan:
    """What a swarm has to bear.

    Attributes:
        runs: at least so many.
        at_once: runs that have not ended.
        strikes: at least so many SIGKILL, and as many SIGSTOP.
        restarts: of the server, each of them a crash.
        cuts: at least so many connections.
        chance: of a request to be cut.
        seconds: at least.
        every: seconds between two restarts of the server, crashes or not, beside `restarts`; 0: there are none.
        resting: of the moments for a strike, once there were as many as planned.
    """

    runs: int
    at_once: int = 30
    strikes: int = 0
    restarts: int = 0
    cuts: int = 0
    chance: float = 0.0
    seconds: float = 0.0
    every: float = 0.0
    resting: float = 0.8

    @property
    def pace(self) -> float:
        """Seconds between two new runs."""
        return self.seconds / SOAKED


FAST = {
    "strikes": Plan(runs=40, strikes=6),
    "crashes": Plan(runs=15, strikes=2, restarts=1, cuts=8, chance=0.03),
    "soak": Plan(runs=25, strikes=1, seconds=12.0, every=4.0, resting=0.97),
}
THOROUGH = {
    "strikes": Plan(runs=120, strikes=20),
    "crashes": Plan(runs=120, strikes=20, restarts=3, cuts=100, chance=0.004),
    "cuts": Plan(runs=120, cuts=200, chance=0.01),
    "soak": Plan(runs=120, strikes=5, seconds=SOAK or 180.0, every=60.0, resting=0.97),
}


@pytest.mark.parametrize("name", THOROUGH if FULL else FAST)
def test_strikes_lose_nothing_repeat_nothing_and_strand_nothing(name: str, tmp_path: Path, root: Path, rng, seed):
    plan = (THOROUGH if FULL else FAST)[name]
    with Server(durable=True) as server, CuttingProxy(server.port, seed=seed) as proxy:
        url = server.url(port=proxy.port)
        with Swarm(tmp_path, root, url, rng) as swarm:
            began = time.monotonic()
            Strikes(swarm, server, proxy, plan).run(seed)
            seconds = time.monotonic() - began
        verdict = Verdict(tmp_path, server.url())
    strikes = ", ".join(f"{what} {times}" for what, times in swarm.strikes.items())
    print(f"\nseed {seed}, {name}, {seconds:.1f} s: {strikes}, cuts {dict(proxy.cuts)}\n{verdict.report()}")  # noqa: T201
    assert not verdict.wrong, "\n".join(verdict.wrong[:20])
    assert not swarm.surprises(), "\n".join(swarm.surprises()[:60])


class Strikes:
    """Runs a swarm until all its runs have ended and it has been struck as often as planned."""

    def __init__(self, swarm: Swarm, server: Server, proxy: CuttingProxy, plan: Plan) -> None:
        self._swarm, self._server, self._proxy, self._plan = swarm, server, proxy, plan
        self._rng = swarm.rng
        self._workers: list[Process] = []
        self._others: list[Process] = []
        self._until: dict[Process, float] = {}
        self._ends = time.monotonic() + plan.seconds
        self._restart_at = time.monotonic() + plan.every if plan.every else math.inf

    def run(self, seed: int) -> None:
        """Everything, from the first process to the last."""
        swarm, plan = self._swarm, self._plan
        gateways = [swarm.gateway("gateway-1"), swarm.gateway("gateway-2")]
        self._workers = [swarm.node(f"worker-{number}", agents=["worker"]) for number in range(3)]
        self._others = [*gateways, swarm.node("follower", follow=True)]
        for process in (*self._workers, *self._others):
            swarm.said(process, "open")
        ports = [gateway.order["port"] for gateway in gateways]
        order = {"ports": ports, "runs": plan.runs, "at_once": plan.at_once, "seed": seed, "pace": plan.pace}
        people = swarm.spawn("people", people=True, **order)
        self._proxy.chance = plan.chance
        while not self._enough():
            assert people.alive, swarm.errors()[-4000:]
            swarm.pause(self._rng.uniform(0.05, 0.3))
            self._resume_some()
            self._replace()
            self._strike()
            self._crash_server()
            self._restart_server()
            if self._proxy.cuts.total() >= plan.cuts:
                self._proxy.chance = plan.chance / 10
        (swarm.folder / "enough").touch()
        self._proxy.chance = 0.0
        self._resume_some(all_of_them=True)
        swarm.wait(lambda: self._replace() or not people.alive, "some runs did not end", patience=120.0)
        assert people.code == 0, swarm.errors()[-4000:]
        runs = int(people.words[-1])
        swarm.wait(lambda: swarm.count("followed") >= runs, "the follower did not see the end of all runs")
        for process in (*self._workers, *self._others):
            swarm.terminate(process)
            assert process.code == 0, swarm.errors()[-4000:]

    def _enough(self) -> bool:
        done, plan = self._swarm.strikes, self._plan
        struck = min(done["SIGKILL"], done["SIGSTOP"]) >= plan.strikes and done["crash of the server"] >= plan.restarts
        return struck and self._proxy.cuts.total() >= plan.cuts and time.monotonic() >= self._ends

    def _resume_some(self, *, all_of_them: bool = False) -> None:
        for process, moment in list(self._until.items()):
            if all_of_them or boottime() > moment:
                del self._until[process]
                self._swarm.resume(process)

    def _replace(self) -> None:
        """Start workers in place of those that could not open the store."""
        for index, process in enumerate(self._workers):
            if process.code == REFUSED:
                self._workers[index] = self._swarm.again(process)

    def _strike(self) -> None:
        """SIGKILL a worker and start another one, or SIGSTOP a process for a while."""
        done, wanted = self._swarm.strikes, self._plan.strikes
        if not wanted or (done["SIGKILL"] >= wanted <= done["SIGSTOP"] and self._rng.random() < self._plan.resting):
            return
        index = self._rng.randrange(len(self._workers))
        process = self._workers[index]
        if self._rng.random() < KILLED:
            self._until.pop(process, None)
            self._swarm.kill(process)
            self._workers[index] = self._swarm.again(process)
            return
        if self._rng.random() < OTHERS_STOPPED:
            process = self._rng.choice(self._others)
        if process not in self._until:
            self._swarm.stop(process)
            self._until[process] = boottime() + self._rng.uniform(*STOPPED)

    def _crash_server(self) -> None:
        """At a quarter, the half and three quarters of the runs, or as many parts as there are crashes."""
        crashes = self._swarm.strikes["crash of the server"]
        share = (crashes + 1) / (self._plan.restarts + 1)
        if crashes < self._plan.restarts and self._swarm.count("ended") >= share * self._plan.runs:
            self._swarm.strikes["crash of the server"] += 1
            self._server.restart(pause=self._rng.uniform(0.1, 1.5))

    def _restart_server(self) -> None:
        """Every minute, as a crash or in order."""
        if time.monotonic() >= self._restart_at:
            self._restart_at = time.monotonic() + self._plan.every
            self._swarm.strikes["restart of the server"] += 1
            self._server.restart(crash=self._rng.random() < 0.5, pause=self._rng.uniform(0.1, 1.5))
