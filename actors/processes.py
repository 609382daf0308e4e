"""The processes and queues among which a store distributes runs: values of the port `abc.Store`.

The engine, the contract and the replay know nothing of them; a run is the same whichever process works on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Final

import attrs

from .contract.claims import Claim

NO_PLACES: Final[Mapping[str, str]] = MappingProxyType({})
"""The places of a process without workspaces."""


@attrs.frozen(kw_only=True)
class Taken:
    """Another process owns the run, so there is no claim. There is no stealing.

    Attributes:
        process: name of the process (`ProcessInfo.name`).
    """

    process: str


@attrs.frozen(kw_only=True)
class Ability:
    """The runs that a process can work on.

    Attributes:
        agents: keys of its agents; None: it takes runs of every agent.
        places: its places; None: it takes runs of every place. A run without a place is at every one.
        deps: it can work on runs that were started with their own deps.
        unserved: it also takes runs for which no live process of a shared store has both the agent and the place, when
            their timer fires (`Claims.claim_due`): a deadline ends a run without either.
    """

    agents: frozenset[str] | None = None
    places: frozenset[str] | None = None
    deps: bool = True
    unserved: bool = False

    def fits(self, agent: str, place: str | None, *, has_deps: bool) -> bool:
        """Return whether the process can work on a run with this agent, at this place, with separate deps."""
        at_place = place is None or self.places is None or place in self.places
        return (self.agents is None or agent in self.agents) and at_place and (self.deps or not has_deps)


@attrs.frozen(kw_only=True)
class ReadyRun:
    """A run that was claimed because there is something to do.

    Attributes:
        claim: the new claim.
        held: another run works on the run's thread; never True in a shared store, where a held run is not ready.
    """

    claim: Claim
    held: bool = False


@attrs.frozen(kw_only=True)
class QueueInfo:
    """A queue of runs. A queue exists since its first run, or since it was given a limit.

    Attributes:
        name: the agent's key, if `start` was given no queue.
        max_running: most runs of the queue that may work concurrently, over all processes; None: no limit.
        paused: no run of the queue is claimed.
        ready: runs that wait to be claimed now.
        working: runs that have an owner and do not wait for people.
        oldest: since when the oldest ready run is ready, UTC; None if no run is ready.
        scheduled: runs that become ready later by themselves (`NewRun.ready_at`).
        later: when the next of them becomes ready, UTC, or None.
    """

    name: str
    max_running: int | None = None
    paused: bool = False
    ready: int = 0
    working: int = 0
    oldest: datetime | None = None
    scheduled: int = 0
    later: datetime | None = None


@attrs.frozen(kw_only=True)
class ProcessInfo:
    """A process that has a shared store open, or had it.

    Attributes:
        name: unique.
        host, pid, version: of the process; the version is Greenroom's.
        level: newest version of rows that the process reads.
        beat: advances while the process lives.
        beat_age: seconds since the newest confirmed beat, by the clock of the shared storage; None: the process's
            release does not say. For people only: no process is declared dead by it.
        dead: declared dead; its runs are free.
        room: for how many more runs it has room; None: no limit.
        started_at: UTC.
        agents: key -> digest of the agents that it has.
        places: name -> place of the workspaces that it has.
        runs: open runs that it owns.
    """

    name: str
    host: str = ""
    pid: int = 0
    version: str = ""
    level: int = 0
    beat: int = 0
    beat_age: float | None = None
    dead: bool = False
    room: int | None = None
    started_at: datetime | None = None
    agents: Mapping[str, str] = attrs.field(factory=dict)
    places: Mapping[str, str] = attrs.field(factory=dict)
    runs: int = 0

    def serves(self, agent: str, place: str | None) -> bool:
        """Return whether the process lives and has the agent and the place of a run."""
        return not self.dead and agent in self.agents and (place is None or place in self.places.values())
