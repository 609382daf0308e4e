"""The processes on a shared memory store, and the hints between them."""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, Protocol

import attrs
import trio

from ...contract.rows import RunInfo
from ...processes import ProcessInfo
from ..common._leases import LeaseTimes
from ._rows import RunTables
from ._work import WorkTables

HintKind = Literal["posted", "work", "thread_freed", "moved", "follow_up"]
"""The kinds of hints; "follow_up" is the second half of a terminal commit, which frees the thread of the run."""
HintPolicy = Callable[[str, str], float | None]
"""Called with the kind of a hint and the name of its receiver: returns seconds of delay, or None to lose the hint."""

_SEED: Final = 12
"""Draws are the same in each test."""


class Listener(Protocol):
    """The receiver of hints in a process."""

    def hear(self, delay: float, hint: Callable[[], None]) -> None:
        """Call `hint` after some seconds."""

    def report_posted(self, run_id: str) -> None:
        """Report the unread commands of a run."""

    def report_freed(self, run_id: str) -> None:
        """Report that the thread of a run is free."""

    def report_moved(self, run_id: str) -> None:
        """Report that a watched run has changed."""

    def report_work(self) -> None:
        """Report that there may be runs to claim."""


@attrs.define(eq=False)
class Process:
    """The row of a process.

    Attributes:
        listener: receives hints; None once the process has ended.
        name, beat, dead, room, level, started_at, agents, places: as in `ProcessInfo`.
        beat_at: trio's time of the newest beat.
    """

    name: str
    listener: Listener | None
    level: int
    started_at: datetime
    beat_at: float
    beat: int = 0
    dead: bool = False
    room: int | None = None
    agents: Mapping[str, str] = attrs.field(factory=dict)
    places: Mapping[str, str] = attrs.field(factory=dict)

    def serves(self, info: RunInfo) -> bool:
        """Return whether the process has the agent of a run, and its place."""
        return info.agent in self.agents and (info.place is None or info.place in self.places.values())

    def can_take(self, run: RunTables) -> bool:
        """Return whether the process lives, and could work on a run now."""
        return not self.dead and self.listener is not None and self.serves(run.info) and self.room != 0


class StoreTime:
    """The present as a moment, which moves as trio's time does: so virtual time moves it, too."""

    def __init__(self) -> None:
        """Must be made inside a trio run, which it serves."""
        self._clock = trio.lowlevel.current_clock()
        self._wall, self._start = datetime.now(UTC), trio.current_time()

    def now(self) -> datetime:
        """Return the present, UTC."""
        return self._wall + timedelta(seconds=trio.current_time() - self._start)

    @property
    def serves(self) -> bool:
        """True in the trio run in which it was made."""
        return self._clock is trio.lowlevel.current_clock()


class Hub:
    """The part of a shared ledger that is about processes.

    Attributes:
        ledger: the rows that the processes share.
        times: The times of the leases.
        epoch: The epoch of the logs.
        processes: rows, by name.
        watches: run -> names of the processes that watch it.
        policy: The policy of hints.
    """

    def __init__(self, ledger: WorkTables, times: LeaseTimes, epoch: str) -> None:
        self.ledger = ledger
        self.times = times
        self.epoch = epoch
        self.processes: dict[str, Process] = {}
        self.watches: dict[str, set[str]] = {}
        self.policy: HintPolicy | None = None
        self.random = random.Random(_SEED)  # noqa: S311 - draws of jitter and of receivers, not secrets
        self._joined = 0
        self._time: StoreTime | None = None

    def __repr__(self) -> str:
        """Return the names of the processes."""
        return f"<Hub: {', '.join(self.processes) or 'no process'}>"

    def join(self, listener: Listener, name: str, level: int, now: datetime) -> Process:
        """Write the row of a process; its name becomes unique."""
        self._joined += 1
        process = Process(f"{name}.{self._joined}", listener, level, now, trio.current_time())
        self.processes[process.name] = process
        return process

    def time(self) -> StoreTime:
        """Return the storage's clock, the same for all processes: one that began later would be behind."""
        if self._time is None or not self._time.serves:
            self._time = StoreTime()
        return self._time

    def rename(self) -> None:
        """Give the logs another identity."""
        self.epoch = secrets.token_hex(8)

    def living(self) -> Iterable[Process]:
        """Yield the processes that were not declared dead."""
        return (process for process in self.processes.values() if not process.dead)

    def infos(self) -> Iterable[ProcessInfo]:
        """Yield what is known about each process."""
        for process in self.processes.values():
            yield ProcessInfo(
                name=process.name,
                level=process.level,
                beat=process.beat,
                beat_age=trio.current_time() - process.beat_at,
                dead=process.dead,
                room=process.room,
                started_at=process.started_at,
                agents={key: text.partition(" ")[0] for key, text in process.agents.items()},
                places=dict(process.places),
                runs=sum(1 for _ in self.ledger.owned(process.name)),
            )

    def agents(self) -> Mapping[str, frozenset[str]]:
        """Return the agents of the living processes: key -> texts, as published."""
        digests_of = dict[str, set[str]]()
        for process in self.living():
            for key, digest in process.agents.items():
                digests_of.setdefault(key, set()).add(digest)
        return {key: frozenset(digests) for key, digests in digests_of.items()}

    def serves(self, info: RunInfo) -> bool:
        """Return whether a living process has the agent of a run, and its place."""
        return any(process.serves(info) for process in self.living())

    # --- hints -------------------------------------------------------------------------------------------------------

    def send(self, kind: HintKind, receiver: str, hint: Callable[[Listener], None]) -> None:
        """Send a hint to a process: it may be lost or late."""
        process = self.processes.get(receiver)
        listener = None if process is None else process.listener
        delay = 0.0 if self.policy is None else self.policy(kind, receiver)
        if listener is not None and delay is not None:
            listener.hear(delay, lambda: hint(listener))

    def able(self, run: RunTables, other_than: str = "") -> str | None:
        """Return the name of one of the processes that could work on a run now, drawn at random."""
        able = [process.name for process in self.living() if process.can_take(run) and process.name != other_than]
        return self.random.choice(able) if able else None

    def abandoned(self) -> Iterable[str]:
        """Return the owners of runs that are dead, or have no row."""
        owners = {run.owner for run in self.ledger.open.values() if run.owner is not None}
        return sorted(name for name in owners if name not in self.processes or self.processes[name].dead)

    def forget_dead(self) -> None:
        """Delete the rows of dead processes that own no run."""
        owners = set(self.abandoned())
        for name in [name for name, process in self.processes.items() if process.dead and name not in owners]:
            del self.processes[name]
